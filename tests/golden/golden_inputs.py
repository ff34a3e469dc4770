# SPDX-License-Identifier: Apache-2.0
"""Input texts for the golden reference data (prompts, perplexity text, tokenizer strings).

Everything in this file was written for this project.  Invisible or ambiguous
characters are spelled with escapes, so that the file survives editors.
"""
import random

# --------------------------------------------------------------------------
# Perplexity text: about 1500 tokens of plain English.
# --------------------------------------------------------------------------
PPL_TEXT = """The ferry to the outer islands leaves the old harbour at ten past six, and anyone who has lived in the town for more than a winter knows that ten past six means six o'clock. The captain, a narrow woman called Ines Halloran, does not believe in waiting. She says that the tide waits for nobody, so why should a boat that depends on the tide behave any differently? Tourists find this rude. The people who live on the islands find it restful, because it means that one thing in their lives is certain.

On the morning this account begins, there were eleven passengers, two goats, a crate of printer paper and a wooden case as long as a coffin. The case belonged to a clock repairer named Tobias Wren, who had been asked to look at the tower clock on the largest island. It had stopped in the storm of the previous autumn, at twenty minutes to four, and nobody had been able to persuade it to continue. Three people had tried. The first had oiled everything that moved and several things that did not. The second had replaced a spring. The third, a retired engineer, had taken the whole mechanism apart on the floor of the town hall, drawn a careful plan of it, put it together again and found four pieces left over. He kept them in a jar and refused to discuss them.

Tobias was not a talkative man, but he liked to explain how a thing worked, and the two children who sat opposite him on the ferry asked good questions. A clock, he told them, is a way of counting something that repeats. The pendulum swings, and each swing takes the same time as the last. A wheel with teeth is allowed to turn by one tooth for every swing. That is all. The rest of the machine is only there to multiply and divide, so that thousands of small steps become one slow turn of the hand. If you understand the part that lets one tooth pass, he said, you understand the whole clock. If you do not understand that part, no amount of oil will help you.

The girl, who was nine, asked what happened if the pendulum stopped. Then nothing is counted, Tobias answered. The weight still pulls, the wheels still want to turn, but there is no permission to move. The boy, who was seven, wanted to know whether the clock was sad about it. Tobias thought for a moment and said that he had met a few that seemed to be.

The crossing takes an hour and a half in good weather. The sea that morning was flat and grey, like a sheet of lead that somebody had polished without much enthusiasm. Gulls followed the boat as far as the last buoy and then turned back, as they always did, having learned that nobody throws bread after that point. One of the goats fell asleep on the printer paper.

The largest island has a single road, which goes around it in a ring and so has neither a beginning nor an end. The post office, the school, the bakery and the town hall stand together on the eastern side, out of the wind. The tower rises from the town hall roof. It is not tall, but the island is low, and sailors can see it from a great distance. For a hundred and twelve years the clock had told them when to turn for home. Since the autumn it had told them that it was twenty minutes to four, and twice a day this was true.

The baker, Marta Oyelaran, had the key to the tower. She was also the mayor, and in the summer she ran the only hotel, so she was accustomed to being asked for things. She gave Tobias a loaf of rye bread, still warm, and warned him about the ninth step. The ninth step had been missing since before she was born. Everyone on the island stepped over it in the dark without thinking. Visitors generally did not.

Inside the tower the air smelled of dust, pigeons and cold iron. Tobias lit a lamp and stood still for several minutes, as a doctor stands at the foot of a bed. The mechanism was about the size of a kitchen table. The frame was cast iron, painted green, and the wheels were brass. He looked at the escapement first, since that is where the permission is given, and he saw what the other three had also seen: it was clean, unbroken and well made. Somebody had looked after it with great care. He touched the pendulum with one finger. It swung four times and came to rest, far too soon.

A pendulum that stops too soon is losing its energy somewhere. It can lose it to the air, to the suspension spring, or to friction in the arbor. It can also lose it to the building. Tobias put down his lamp, laid his palm flat against the wall and waited. The wind was light, but now and then a gust came in from the north, and each time it did he felt the wall answer. The movement was very small. You would not have noticed it unless you had spent forty years with your hands on things that trembled.

He went up to the roof. The storm had torn away two of the iron straps which tied the tower to the beams of the hall, and the carpenters who repaired the roof afterwards had covered the place with new boards, neat and tight, so that nothing could be seen from below. The tower was standing by habit. It leaned with every gust by less than the width of a hair, and the pendulum, which hung from the tower, spent its strength pushing against a wall that would not keep still. There was nothing wrong with the clock. The clock was the only thing in the building that had told the truth.

Marta listened to this with her arms folded. She asked how much two iron straps would cost. He named a sum, and she laughed, because it was less than they had paid the man with the spring. The blacksmith on the western side made the straps in an afternoon. It took four people and a borrowed hoist to fit them, and one of those people was the retired engineer, who brought his jar. Tobias examined the four pieces it contained. Three of them, he said, were from a sewing machine. The fourth was a coat button. The engineer was silent for a while, and then he began to laugh as well, and he went on laughing until he had to sit down on the eighth step.

At five minutes past nine in the evening Tobias gave the pendulum a push, and this time it kept going. The wheel let one tooth pass, and another, and another. Below, in the square, most of the island had come out to watch the hand, which is not an exciting thing to watch. It moved too slowly to be seen. But when the hour came the hammer lifted and the bell rang, ten clear strokes going out over the roofs, the fields and the dark water, and a fishing boat a long way off switched on its lamp in reply.

The children from the ferry had been allowed to stay up. The girl counted the strokes aloud and said that it was correct. The boy asked whether the clock felt better. Tobias packed his tools in the long wooden case, in their proper order, and closed the lid. He said that it was only a machine for counting, and that one should not imagine too much about machines. Then he looked up at the lit face of it, and added that in his opinion it was delighted.
"""

# --------------------------------------------------------------------------
# Long prompt: about 700 tokens.
# --------------------------------------------------------------------------
LONG_TEXT = """Notes for new members of the community garden

Welcome to the garden on Millrace Lane. There are forty-two plots, one shed, one greenhouse and a great many opinions about compost. Please read these notes once before you start digging. They are short, and each of them exists because something went wrong.

Water. The main tap is beside the shed. It is turned off from the first of November until the end of March, because the pipe is shallow and it froze in 2011, 2013 and again in 2018. During a dry summer we take turns: even plots water on even days, odd plots water on odd days, and nobody waters between eleven in the morning and five in the afternoon. A watering can wastes less than a hose. If you find the tap dripping, tell Rosalind, who has the spanner.

Compost. There are three bays. The left bay is for fresh material, the middle bay is resting, and the right bay is ready to use. Do not add anything to the middle bay. Do not take anything from the left bay. Grass, leaves, vegetable peelings, coffee grounds and torn cardboard are welcome. Meat, cheese, glossy paper, cat litter and the roots of bindweed are not. We turn the heaps on the first Saturday of every month, and it takes about an hour if at least five people come.

Tools. Everything in the shed with a blue handle belongs to the garden and may be borrowed by any member. Everything else belongs to somebody in particular, even if it does not look like it. Clean a tool before you put it back, and hang it on the outline that was painted for it. If a tool breaks while you are using it, nobody will be angry; write its name on the board, so that it can be mended before the next person needs it.

Paths. Each member keeps the path on the north side of the plot clear. The paths are eighty centimetres wide so that a wheelchair or a barrow can pass. Beans that lean over the path will be tied back by whoever gets there first, and not always gently.

Pests. We do not use poison of any kind. Slugs are collected by hand at dusk, and there is a bucket for the purpose. Nets are allowed over brassicas and soft fruit as long as they are pulled tight, since hedgehogs and birds become trapped in loose ones. The pond behind the greenhouse is there for the frogs, and the frogs are there for the slugs, so please leave both of them alone.

Sharing. When you have more courgettes than you can eat, and you will, leave them on the table by the gate. Anything left on the table may be taken by anyone. Anything not on the table may not. A jar with honey in it also appears on the table in August. It is not free: put two coins in the tin, because the bees have to be fed in winter.

Meetings. The members meet four times a year, on the last Sunday of February, May, August and November, at three o'clock in the greenhouse. Bring a chair. Decisions are made by a show of hands, and the treasurer, who is currently Mr. Abernathy from plot seventeen, reads out the accounts. The yearly fee is thirty-six pounds, due before the February meeting.

To summarise the most important rules in this document in one sentence each:
1."""

CODE_TEXT = '''def fibonacci(n):
    """Return the n-th Fibonacci number (iterative)."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def is_prime(n):
    """Return True if n is a prime number."""
'''

# name -> (text, parse_special); texts used for both models
PROMPTS = [
    ("short", "The capital of France is", False),
    ("long", LONG_TEXT, False),
    ("code", CODE_TEXT, False),
    ("cjk", "中国的首都是北京。日本の首都は東京です。대한민국의 수도는 서울입니다. Translate to English: 人工智能", False),
    ("emoji", "Weather today: ☀️🌧️ Family: 👩‍👩‍👧‍👦 Flag: 🇨🇦 Mood: 👍🏽 means", False),
    ("arabic", "اللغة العربية هي واحدة من أكثر اللغات انتشارًا في", False),
    ("hebrew", "ירושלים היא עיר הבירה של מדינת ישראל, והעיר הגדולה", False),
    ("digits", "1, 1, 2, 3, 5, 8, 13, 21, 34,", False),
]
PROMPTS_SMOLLM2 = [
    ("chat", "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
             "<|im_start|>user\nWrite one sentence about the sea.<|im_end|>\n<|im_start|>assistant\n", True),
]
PROMPTS_GEMMA3 = [
    ("chat", "<start_of_turn>user\nWrite one sentence about the sea.<end_of_turn>\n<start_of_turn>model\n", True),
]
FULL_LOGITS = ("short", "long")
HIDDEN_PROMPT = "short"

# --------------------------------------------------------------------------
# Tokenizer strings
# --------------------------------------------------------------------------


def tokenizer_strings():
    """Return a list of (group, text) used for both models."""
    out = []

    def add(group, *texts):
        for t in texts:
            out.append((group, t))

    add("empty", "")
    # every ASCII control character, alone and inside a word
    add("control", *[chr(c) for c in list(range(0x20)) + [0x7F]])
    add("control", *["a%sb" % chr(c) for c in (0x00, 0x01, 0x04, 0x06, 0x07, 0x08, 0x0B, 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1D, 0x1F, 0x7F)])
    add("control", "\x1b[31mred\x1b[0m", "col1\x1fcol2\x1erow2", "bell\x07!", "nul\x00nul\x00\x00", "\u0080\u0081\u009f", "C1: \u0085 next line")
    # printable ASCII
    add("ascii", *[chr(c) for c in range(0x21, 0x7F)])
    add("ascii", "".join(map(chr, range(0x20, 0x7F))), " ".join(map(chr, range(0x21, 0x7F))))
    # whitespace runs
    for n in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 30, 31, 32, 33, 40, 62, 63, 64, 65, 93, 94, 128, 200):
        add("spaces", " " * n)
    for n in (1, 2, 3, 4, 8, 16, 31, 32, 33):
        add("spaces", "a" + " " * n + "b", " " * n + "x", "x" + " " * n)
    for n in (1, 2, 3, 5, 8, 10, 16, 30, 31, 32, 33, 63, 100):
        add("newlines", "\n" * n)
    for n in (1, 2, 3, 4, 31, 32):
        add("newlines", "a" + "\n" * n + "b")
    for n in (1, 2, 3, 4, 8, 16, 31, 32, 50):
        add("tabs", "\t" * n)
    add("tabs", "\tx", "x\t", "\t\tx = 1", "a\tb\tc", "\t \t ", " \t")
    add("mixed_ws", " \n", "\n ", "\r\n", "\r", "\r\n\r\n", "\n\r", "a\r\nb", "\n\n  \n", "  \n  \n  ", "\t\n\t\n", " \t\n\r\x0b\x0c",
        "end.\n\nStart", "end. \n \n Start", "  indented\n    more\n\tand tab", "trailing   ", "   leading", "x  y   z    w",
        "a \n b", "line1\n\n\nline2", "\n\n\tfoo\n\n\tbar\n", "if x:\n        pass\n\n\n    else", " a", "  a", "   a", " .", "  .", " 1", "  1", "\n1", "\n a", " \u00e9", "  \u4e2d")
    # unicode whitespace and invisible characters
    ws = [0x00A0, 0x1680, 0x180E, 0x2000, 0x2002, 0x2003, 0x2007, 0x2009, 0x200A, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F,
          0x2028, 0x2029, 0x202A, 0x202E, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF, 0x00AD, 0x061C]
    add("unicode_ws", *["a%sb" % chr(c) for c in ws])
    add("unicode_ws", "\u00a0\u00a0\u00a0", "\u3000\u3000x", " \u00a0 x", "x\u2003\u2003y", "\ufeffBOM first", "price:\u00a010\u00a0\u20ac", "a\u2028\u2029b", "\u0085", " \u0085x", "\u200b" * 5, "\u2003x \u3000y")
    # digits and numbers
    add("digits", "0", "7", "42", "007", "123", "1234567890", "3.14159", "1,000,000", "1e-10", "-273.15", "0x1F", "0b1010",
        "2024-02-29T23:59:60Z", "192.168.0.1", "+1 (555) 010-9999", "12:34:56.789", "100%", "$5.00", "a1b2c3", "v2.0.1-rc3",
        "1 2  3   4", "x1", "1x", "1st 2nd 3rd", "\u00bd \u00bc \u2153", "m\u00b2 m\u00b3 10\u207b\u2076", "\u2167 \u216b", "\u0663\u0664\u0665", "\u096a\u0968",
        "\uff11\uff12\uff13", "\u2460\u2461\u2462", "\u4e00\u4e8c\u4e09", "9" * 50, "1" + "0" * 100, " 5", "  55", "5 5", "\n5\n")
    # contractions
    add("contractions", "I'm", "don't", "they'll", "we've", "I'd", "it's", "you're", "I'M", "DON'T", "IT'S", "y'all'd've", "'s", "'t", "'re", "'ve", "'m", "'ll", "'d",
        "rock 'n' roll", "O'Brien's", "the '90s", "'tis", "it\u2019s", "don\u2019t", "we\u2019re they\u2019ll", "''s", "''''", "a's'b't", "'lls", "'store", " 's", "x 'd", "can't've", "'S 'T 'RE")
    # code
    add("code", "def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "#include <stdio.h>\nint main(void) { printf(\"%d\\n\", 42); return 0; }",
        "const f = async ({a, b}) => await fetch(`/api/${a}?b=${b}`);", "<div class=\"row\"><p>Hi &amp; bye</p><br/></div>", "{\"key\": [1, 2.5, null, true], \"nested\": {\"a\": \"b\\n\"}}",
        "SELECT name, COUNT(*) FROM users WHERE id >= 10 GROUP BY name;", "$ ls -la | grep '^d' > out.txt 2>&1", "all: main.o\n\tcc -o $@ $^\n", "^(?:[a-z]+\\d{2,})*$",
        "\\frac{1}{2} \\sum_{i=0}^{\\infty} x_i^2", "fn main() { let v: Vec<u8> = vec![0; 16]; }", "class Foo(Bar, metaclass=Baz):\n    \"\"\"Doc.\"\"\"\n    __slots__ = ()\n",
        "a->b.c::d<e>(f)[g]{h}", "i+++++j", "!=== <=> ??= ?. ... -> => |> <- :=", "snake_case camelCase PascalCase SCREAMING_SNAKE kebab-case", "__init__ _x x_ __",
        "0xDEADBEEF & ~0x0F", "// comment\n/* block */ # hash -- sql ; lisp % tex", "if(x){y();}else{z();}", "        deep = 1\n            deeper = 2\n                deepest = 3\n",
        "@decorator\nasync def g(*args, **kwargs) -> None: ...", "template <typename T, size_t N> constexpr T &at(T (&a)[N], size_t i) noexcept;", "```python\nprint('hi')\n```", "~/.config/app.toml", "C:\\Users\\me\\file.txt",
        "https://example.com/path/to?q=a%20b&x=1#frag", "user.name+tag@example.co.uk", "550e8400-e29b-41d4-a716-446655440000", "d41d8cd98f00b204e9800998ecf8427e", "SGVsbG8sIHdvcmxkIQ==")
    # CJK
    add("cjk", "你好", "你好，世界！", "我爱北京天安门。", "今天天气很好，我们去公园吧。", "漢字とひらがなとカタカナ", "こんにちは世界", "ｱｲｳｴｵ ｶﾞ", "東京都渋谷区1-2-3", "안녕하세요 세계", "대한민국의 수도는 서울이다.",
        "\u1112\u1161\u11ab\u1100\u1173\u11af", "中English混じり文字列123テスト", "「引用」『二重』【括弧】", "、。！？…—～", "\U00020000\U00020001\U0002A6D6", "繁體字與简体字", "龘靐齉爩", "\u3400\u4db5", " 中", "中 文", "中\n文", "。。。。", "〇一二三", "ㄅㄆㄇ", "ꀀꀁ")
    # emoji
    add("emoji", "😀", "😀😃😄", "Hello 👋 world 🌍!", "👍🏻👍🏼👍🏽👍🏾👍🏿", "👨\u200d👩\u200d👧\u200d👦", "👩🏽\u200d🚀", "🏳\ufe0f\u200d🌈", "🏴\u200d☠\ufe0f", "🇺🇸🇬🇧🇯🇵", "🇨🇦", "🇨",
        "\U0001F3F4\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F", "1\ufe0f\u20e3 #\ufe0f\u20e3", "❤\ufe0f", "❤", "☺\ufe0e", "🤷🏿\u200d♀\ufe0f", "🫠🫡🪿", " 😀", "😀 ", "a😀b", "😀\n😀", "👁\ufe0f\u200d🗨\ufe0f", "🧑\u200d🤝\u200d🧑", "™©®", "♠♥♦♣", "→←↑↓⇒", "√∞≠≤≥∑∫", "🀄🃏", "\u200d\u200d", "\ufe0f")
    # RTL
    add("rtl", "مرحبا بالعالم", "السلام عليكم ورحمة الله", "اَلْعَرَبِيَّةُ", "שלום עולם", "שָׁלוֹם", "בְּרֵאשִׁית בָּרָא אֱלֹהִים", "abc שלום def", "(مرحبا) [שלום]", "\u202eabc\u202c", "\u2067עברית\u2069 x", "قال: \"نعم\"، ثم ذهب.", "فارسی: می\u200cخواهم", "اردو زبان", "١٢٣ و ٤٥٦", "ـــــ", "ﷺ", "ﻼ", "ܫܠܡܐ")
    # combining marks and other scripts
    add("combining", "e\u0301", "\u00e9", "n\u0303a\u0308o\u0302", "Z\u0351\u036b\u0343\u036a\u0302a\u0334l\u0335g\u0336o\u0337", "\u0301", "a\u0301\u0301\u0301", "Việt Nam: tiếng Việt có dấu", "Vie\u0323\u0302t", "हिन्दी में लिखा", "क्षत्रिय", "தமிழ் மொழி", "ภาษาไทยไม่มีช่องว่าง", "ខ្មែរ", "မြန်မာ", "བོད་ཡིག", "ქართული", "Հայերեն", "አማርኛ", "ᏣᎳᎩ", "ᚠᚢᚦ", "Å Å A\u030a", "ﬁ ﬂ ﬃ", "ǅ ǆ", "ß ẞ", "İ ı I i", "Σ σ ς", "\u0e33\u0e4d")
    add("scripts", "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter", "Falsches Üben von Xylophonmusik quält jeden größeren Zwerg", "El niño comió piñas; ¿cuántas? ¡Muchísimas!", "Съешь ещё этих мягких французских булок", "Привет, мир!", "Γειά σου Κόσμε", "Zażółć gęślą jaźń", "Příliš žluťoučký kůň", "Pijamalı hasta yağız şoföre çabucak güvendi", "Blåbærsyltetøy på brød", "Kæmi ný öxi hér", "Árvíztűrő tükörfúrógép", "Esperanto: eĥoŝanĝo ĉiuĵaŭde", "Ukrainian: їжак, ґудзик", "Latin-1: ¡¢£¤¥¦§¨©ª«¬®¯°±²³´µ¶·¸¹º»¼½¾¿", "".join(map(chr, range(0xC0, 0x100))), "".join(map(chr, range(0x100, 0x180))))
    # unusual code points
    add("edge", "\ufffd", "a\ufffdb", "\ufffd\ufffd", "\ufffe", "\uffff", "\U0001FFFE", "\U0010FFFF", "\U0010FFFD", "\ue000\uf8ff", "\U000F0000", "\U00040000", "\U00080000", "\U000C0000", "\ud7ff\ue000", "\U00010000", "\U0001D400\U0001D401", "\U0001D7D8\U0001D7D9", "\u0378", "\u2581", "a\u2581b", "\u2581\u2581", " \u2581 ", "\u0120", "\u0120the", "\u010a", "\u0100\u0143")
    # texts which look like vocabulary internals
    add("lookalike", "<0x41>", "<0x0A><0xE2>", "[UNK]", "[CLS] [SEP] [MASK] [PAD]", "<|", "|>", "<||>", "<|im_start", "im_start|>", "<|im_end|", "<|endoftext|", "<start_of_turn", "start_of_turn>", "<bos", "</s", "<unused", "<|fim_prefix|>", "<|eot_id|>", "[INST] hi [/INST]", "<<SYS>>", "<think>x</think>", "<tool_call>\n{}\n</tool_call>")
    # special-token texts of both models; each model treats the other's as plain text
    add("special", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>", "<empty_output>", "<jupyter_start><jupyter_text>x", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "a<|im_end|>b", " <|im_start|> ", "<|im_start|><|im_start|>", "<|im_start|>|im_start|>", "<<|im_end|>>", "hello<|endoftext|>world", "<|im_start|>\n\n<|im_end|>", "\n<|im_end|>\n", "<|IM_START|>", "< |im_start| >", "<|im_st\u200bart|>", "text <|im_end|>  two spaces", "1<|im_end|>2", "<filename>a.py<gh_stars>0<repo_name>x",
        "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "[multimodal]", "<unused0>", "<unused99>", "<unused6241>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>", "<start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n", "a<eos>b", " <bos> ", "<bos><bos>", "<bos>\n", "<START_OF_TURN>", "< bos >", "<start_of_turn>\n\n<end_of_turn>", "x<end_of_turn>  y", "1<eos>2", "<<bos>>", "hello<eos> world")
    add("markup", "<table><tr><td>1</td></tr></table>", "<h1>Title</h1>", "<b>bold</b> <i>it</i>", "<code>x</code>", "<strong><em>both</em></strong>", "<a href=\"x\">y</a>", "<a>y</a>", "< table >", "<TABLE>", "<sub>2</sub>", "<html><body>\n</body></html>", "<ul>\n<li>one</li>\n<li>two</li>\n</ul>", "<blockquote>q</blockquote>", "<table", "table>", "<s>x</s>", "<div><span>")
    # prose
    add("prose", "The quick brown fox jumps over the lazy dog.", "Hello, world!", "HELLO WORLD", "hello", " hello", "Hello", "It was the best of soups, it was the worst of soups; nobody complained.", "Wait... what?! No--really?", "\"Quoted,\" she said. 'Single.'", "\u201cCurly\u201d \u2018quotes\u2019 \u2014 dash \u2013 en\u2026", "e.g., i.e., etc.", "Dr. Smith's Ph.D. (U.S.A.)", "#hashtag @mention", "**bold** _italic_ ~~strike~~ `code`", "- item\n- item\n  - sub\n1. one\n2. two\n", "| a | b |\n|---|---|\n| 1 | 2 |\n", "Supercalifragilisticexpialidocious", "pneumonoultramicroscopicsilicovolcanoconiosis", "antidisestablishmentarianism", "xkcd qwzx vbnm zzzz", "A.B.C.D", "a,b,c;d:e", "(((nested)))", "$$$", "***", "!!!???", "--- +++ ===", "Ünïcödé", "na\u00efve caf\u00e9", "tab\tand newline\n", "one\u00b7two", "50\u00b0C", "\u00a9 2024", PPL_TEXT[:600])
    # long runs
    add("long_run", "a" * 1000, "ab" * 300, "=" * 300, "-" * 100, "." * 257, "\u00e9" * 100, "中" * 100, "😀" * 40, "\u0301" * 40, "the " * 100, "x " * 120, "0" * 200, "A" * 333, " \n" * 60, "\n " * 60, "\t " * 40, "!?" * 70, "aaaaaaaaab" * 30, "\x00" * 20, "<" * 90, "ha" * 77, "_" * 130, "#" * 64, "/" * 99, "\u200b" * 33)
    # seeded random strings
    rng = random.Random(20240601)
    pools = {
        "rand_ascii": [chr(c) for c in range(0x20, 0x7F)],
        "rand_ws": list(" \n\t\r") + [" "] * 4 + list("ab1.'"),
        "rand_latin": [chr(c) for c in range(0x20, 0x250) if not 0x7F <= c <= 0xA0],
        "rand_bmp": None,
        "rand_mixed": list("abcXYZ019 .,'\n") + list("éñüßçø") + list("中文字日本") + list("шлю") + list("😀🚀👍") + ["\u0301", "\u200d", "\ufe0f", "\u00a0", "ا", "ש"],
    }
    for name, pool in pools.items():
        for i in range(16):
            n = rng.choice([3, 6, 10, 16, 30, 60])
            s = []
            for _ in range(n):
                if pool is None:
                    while True:
                        c = rng.randrange(1, 0x10000)
                        if not 0xD800 <= c <= 0xDFFF:
                            break
                    s.append(chr(c))
                else:
                    s.append(rng.choice(pool))
            add(name, "".join(s))
    return out
