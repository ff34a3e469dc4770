#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Record what Hugging Face's tokenizers make of texts with the pre-tokenisers of many models: pretok/.

    pip install tokenizers==0.23.3
    python make_pretok.py

The pipelines below are those of the models' own tokenizer.json, in their own patterns (Oniguruma's); the C table
is text/pretok_rules.c.  Two things are recorded for each text: the lengths in bytes of the words it is cut into,
and its ids in a vocabulary that is made here.  That is trained on text that was not cut, so that its merges go
across words wherever they can: a cut in the wrong place gives other ids.
"""
import json
import os
import random
import unicodedata

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "pretok")

P = pre_tokenizers
ENDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + ENDS + "?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + ENDS + "?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace(ENDS + "?", "").replace("{1,3}", "")
HAN = r"[一-龥぀-ゟ゠-ヿ]+"
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
EAST_ASIAN = "[一-龥\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
# Escapes, because normalisation would change some of the letters.
DEEPSEEK_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943")


def split(*patterns):
    return [P.Split(Regex(p), "isolated") for p in patterns]


MAPPED = [P.ByteLevel(add_prefix_space=False, use_regex=False)]
GPT2 = [P.ByteLevel(add_prefix_space=False, use_regex=True)]

# name of the pipeline: steps, whether text is brought to NFC, whether merges are ignored for whole words, the
# names that files have for it
PIPELINES = [
    (GPT2, 0, 0, "gpt-2 a.x-4.0 exaone4 gigachat granite-docling jais mellum phi-2 trillion"),
    (GPT2, 1, 0, "mpt olmo"),
    ([P.Digits(individual_digits=True)] + GPT2, 0, 0, "smollm codeshell exaone mellum2 minerva-7b refact starcoder"),
    ([P.Digits(individual_digits=True)] + GPT2, 1, 0, "command-r"),
    (split(LLAMA3) + MAPPED, 0, 1, "llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 midm-2.0 pixtral"),
    (split(LLAMA3) + MAPPED, 0, 0, "chatglm-bpe dbrx glm4 smaug-bpe"),
    (split(QWEN2) + MAPPED, 1, 0, "qwen2 stablelm2"),
    (split(QWEN2) + MAPPED, 0, 0, "deepseek-r1-qwen grok-2 hunyuan kormo megrez solar-open"),
    (split(ENDS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
     + MAPPED, 1, 0, "qwen35"),
    (split(QWEN2[len(ENDS) + 1:]) + MAPPED, 0, 0, "ufakzeka"),
    (split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
     + MAPPED, 0, 0, "bailingmoe bailingmoe2 llada-moe"),
    (split(ENDS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]"
           r"|\s+(?!\S)|\s+") + MAPPED, 0, 0, "exaone-moe"),
    (split(ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
           + "|".join(r"\s{%d}(?!\S)" % n for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}")
     + MAPPED, 0, 0, "jais-2"),
    (split(r"\p{N}{1,3}", LLAMA3.replace("{1,3}", "+")) + MAPPED, 0, 1, "minicpm5"),
    (split(ENDS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+") + MAPPED, 0, 0,
     "seed-coder"),
    (split(O200K) + MAPPED, 0, 0, "gpt-4o kanana2 llama4 minimax-m2 talkie"),
    (split(TEKKEN) + MAPPED, 0, 1, "tekken"),
    (split(r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
           + ENDS + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
           + ENDS + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+") + MAPPED, 0, 0, "kimi-k2"),
    (split("[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + HAN, O200K.replace("{1,3}", "")) + MAPPED, 0, 1, "youtu"),
    (split(r"[\r\n]", r"\s?[" + DEEPSEEK_LETTERS + "]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", EAST_ASIAN)
     + [P.Digits(individual_digits=True)] + MAPPED, 0, 0, "deepseek-llm"),
    (split(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN) + [P.Digits(individual_digits=True)] + MAPPED, 0, 0,
     "deepseek-coder"),
    (split(r"\p{N}{1,3}", HAN, DEEPSEEK) + MAPPED, 0, 0, "deepseek-v3 hunyuan-dense hy_v4 joyai-llm"),
    (split(r"\p{N}{1,3}", HAN, DEEPSEEK.replace(r"[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+", r"[\p{P}\p{S}]+|[\r\n]"), r"\p{N}")
     + MAPPED, 0, 0, "spark2_5"),
    ([P.Punctuation("contiguous")] + GPT2 + [P.Digits(individual_digits=False)] + split("[0-9][0-9][0-9]"), 0, 0, "falcon"),
    # Not a model's own: llama.cpp's way where a file says "default".
    (split(r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)", r"\p{N}+",
           "[0-9][0-9][0-9]") + MAPPED, 0, 0, "default"),
    (split(BLOOM) + MAPPED, 0, 0, "bloom gpt3-finnish poro-chat"),
    (split(BLOOM) + [P.Digits(individual_digits=True)] + MAPPED, 0, 0, "viking"),
]

TEXTS = [
    "", " ", "a", "Hello world", "Hello  world", "  Hello", "Hello   ", "\n", "\n\n\nHi\n", "a \n\n b", "\r\nx\r\n\r\ny\r", "\t\tif x:\n\t\t\treturn\n",
    "I'm sure they'll say it's theirs, we've seen he'd", "DON'T I'LL WE'RE he'S 'tis 'Twas l'été", "x's 's ' s' 'ſ K'M",
    "1 12 123 1234 12345 123456 1234567", "3.14159, 1,000,000.00 and 50% or 1e-9", "x1y22z333w4444", "²³¹ ½¾ Ⅷ ٣٤٥ १२३ ㊿ 〇一二",
    "naïve café résumé", "cafe\u0301 e\u0301e\u0300 A\u030a \u1e9b\u0323", "\u212b \u2126 \u212a \u0344 \u1f71 \uf900 \U0002f800",
    "\u1100\u1161\u11a8 \uac00\u11a8 한국어 조선말", "q\u0307\u0323 q\u0323\u0307 a\u0315\u0300\u05ae\u0300b", "\u0958 \ufb1d \U0001d15e \u2adc",
    "日本語のテキスト、カタカナとひらがな。", "我想在apple工作1314151天～", "中文，没有空格！真的？“是的”。（好）", "ᄀᆞ ㄱㄴㄷ ㄅㄆㄇ",
    "Привет, мир! Ёлка 2024 год м", "Ελληνικά ΑΒΓ άέή ὅτι", "שלום עולם 123", "مرحبا بالعالم، ١٢٣", "नमस्ते दुनिया। यह १ है", "ไทย ภาษา ၁၂ မြန်မာ",
    "ǅ ǈ Ǆungla ʰa ªº ẞß İı", "CamelCaseWordsHTTPServer iPhone XMLHttpRequest aB Ab AB", "snake_case __init__ $var @user #tag",
    "a+b=c <= >= != ^~ | `code` \\n", "()[]{}<>!!!...???", "url: https://example.org/a/b?c=d&e=f#g", "path/to/file.txt // comment\n/* x */",
    "😀😀 👩‍👩‍👧 🇩🇪 ❤️ 🏳️‍🌈", "\u00a0x\u00a0\u00a0y \u3000z\u2028w\u2029v\u0085u", "a\u180eb\u200bc\u200dd\ufeffe", "\x00\x01\x1b[0m\x7f\x1c x\x1dy",
    "-- ---- ====== ~~~ ___ ***", "      x       y", "\n \n  \n   \n", " \t \t\n\t ", "x \n", " \n", "tail blank ", "\u2003\u2003a", "\r\r\n\n",
    "for (int i = 0; i < n; i++) {\n    sum += a[i] * b[i];\n}\n", "{\"key\": [1, 2.5, null, true], \"k\\u00e9y\": \"v\"}",
    "| a | b |\n|---|---|\n| 1 | 2 |\n", "# Title\n\n* item one\n* item two\n\n```py\nprint('hi')\n```\n", "a.b,c;d:e!f?g", "e.g. i.e. etc...",
    "、。「」・…—―‘’“”〿︰﹏！～", "ｆｕｌｌ　ｗｉｄｔｈ１２３", "x⁰¹²³ ₀₁₂ ①②③ ⅓", "𝒜𝓑 𐐀𐐨 𠀀𠀁 🜁", "\u0301\u0302 \u0300a", "a\u0307'\u0307s", "!hello ?World /path .NET @me_2",
    "5,000 5 000 5'000", "1a2b3c", "ab" * 20, "1" * 25, " " * 40 + "x" + " " * 17, "\n" * 9, "=" * 33, "é" * 9, "中" * 12, "'" * 5 + "s",
]

PARTS = ["a", "B", "c", "The", "'s", "'LL", "'", "1", "23", "456", "²", "¼", " ", "  ", "\n", "\r\n", "\t", "!", "...", "(", "/", "$", "+", "_", "é",
         "e\u0301", "\u0323", "日", "本", "ー", "ひ", "한", "\u1161", "м", "Я", "😀", "\u00a0", "\u200b", "\u180e", "\u2028", "ſ", "\u0085", "\x01", "ǅ",
         "ʰ", "…", "。", "，", "।", "٣", "〇", "々", "⺀", "Ⅷ", "`", "|", "~", "，", "‘"]


def texts():
    rng = random.Random(8)
    made = ["".join(rng.choice(PARTS) for _ in range(rng.randrange(2, 28))) for _ in range(70)]
    return TEXTS + made


def corpus():
    """Words and blanks of all kinds, in no order: nothing is learnt but that neighbours occur."""
    rng = random.Random(9)
    words = [w for t in TEXTS for w in t.replace("\n", " \n ").split(" ") if w]
    for _ in range(600):
        yield "".join(rng.choice(words) + rng.choice([" ", "  ", "", "\n", "", " "]) for _ in range(20))
        yield unicodedata.normalize("NFC", "".join(rng.choice(PARTS) for _ in range(40)))


def train():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = MAPPED[0]
    t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=256 + 900, initial_alphabet=P.ByteLevel.alphabet(),
                                                         show_progress=False))
    made = json.loads(t.to_str())["model"]
    tokens = sorted(made["vocab"], key=made["vocab"].get)
    return tokens, [m if isinstance(m, str) else " ".join(m) for m in made["merges"]]


def main():
    tokens, merges = train()
    vocab = {t: i for i, t in enumerate(tokens)}
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "vocab.json"), "w") as f:
        json.dump({"tokens": tokens, "merges": merges}, f)
        f.write("\n")
    rows = texts()
    with open(os.path.join(OUT, "texts.jsonl"), "w") as f:
        for t in rows:
            n = normalizers.NFC().normalize_str(t)
            assert n == unicodedata.normalize("NFC", t), t
            f.write(json.dumps({"text": t} if n == t else {"text": t, "nfc": n}) + "\n")
    with open(os.path.join(OUT, "rules.jsonl"), "w") as f:
        for steps, nfc, whole, names in PIPELINES:
            t = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges], ignore_merges=bool(whole)))
            t.pre_tokenizer = P.Sequence(steps)
            if nfc:
                t.normalizer = normalizers.NFC()
            words = [[len(w) for w, _ in t.pre_tokenizer.pre_tokenize_str(t.normalizer.normalize_str(x) if nfc else x)]
                     for x in rows]
            ids = [t.encode(x, add_special_tokens=False).ids for x in rows]
            row = {"names": names.split(), "nfc": bool(nfc), "whole": bool(whole), "words": words, "ids": ids}
            f.write(json.dumps(row, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
