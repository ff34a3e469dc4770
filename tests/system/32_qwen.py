# SPDX-License-Identifier: Apache-2.0
"""Qwen 2 and Qwen 3 through the whole service: the small random models of tests/golden/tiny, which have
no vocabulary, with one of byte-level BPE put in front.  What they say is what transformers computed."""
import atexit
import shutil

from lib import *

TMP = tempfile.mkdtemp(prefix="tokenring-test-")
atexit.register(shutil.rmtree, TMP, True)
TINY_DIR = os.path.join(ROOT, "tests/golden/tiny")
COMP, CHAT = "/v1/completions", "/v1/chat/completions"
IM_START, END_OF_TEXT, IM_END = 252, 253, 255
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# As a file writes them: newline and blank, the rest of ASCII, two that merges make, and names of their own.
PIECES = ["\u010a", "\u0120"] + [chr(c) for c in range(33, 127)] + ["he", "\u0120he"]
PIECES += [f"[{i}]" for i in range(len(PIECES), IM_START)] + ["<|im_start|>", "<|endoftext|>", "[254]", "<|im_end|>"]
MERGES = ["h e", "\u0120 he"]


def said(ids):
    return "".join(PIECES[i] for i in ids).replace("\u010a", "\n").replace("\u0120", " ")


# ---- a file with a vocabulary ----

STRING, ARRAY, U32, I32 = 8, 9, 4, 5


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def strings(rows):
    return struct.pack("<IIQ", ARRAY, STRING, len(rows)) + b"".join(text(r) for r in rows)


def with_vocabulary(name, pre="qwen2", **more):
    """Keys go in front of the file's own; one more makes their length a multiple of the alignment, so that
    everything behind keeps its place."""
    types = [3 if i in (IM_START, END_OF_TEXT, IM_END) else 1 for i in range(256)]
    keys = {"model": struct.pack("<I", STRING) + text("gpt2"), "pre": struct.pack("<I", STRING) + text(pre),
            "tokens": strings(PIECES), "merges": strings(MERGES),
            "token_type": struct.pack("<IIQ256i", ARRAY, I32, 256, *types),
            "eos_token_id": struct.pack("<II", U32, IM_END), "padding_token_id": struct.pack("<II", U32, END_OF_TEXT),
            **more}
    pairs = [text(f"tokenizer.ggml.{k}") + v for k, v in keys.items()]
    pairs.append(text("tokenizer.chat_template") + struct.pack("<I", STRING) + text(TEMPLATE))
    own = b"".join(pairs)
    filler = text("test.filler") + struct.pack("<I", STRING)
    own += filler + text("x" * (-(len(own) + len(filler) + 8) % 32))
    with open(os.path.join(TINY_DIR, name + ".gguf"), "rb") as f:
        head, rest = f.read(16), f.read()
    n_keys = struct.unpack("<Q", rest[:8])[0] + len(pairs) + 1
    path = os.path.join(TMP, f"{name}.gguf")
    with open(path, "wb") as f:
        f.write(head + struct.pack("<Q", n_keys) + own + rest[8:])
    return path


def expected(name):
    with open(os.path.join(TINY_DIR, "expected.jsonl"), encoding="ascii") as f:
        return next(r for r in map(json.loads, f) if r["model"] == name)


def answer(s, path, body):
    r = s.post(path, body)
    st = s.stream(path, dict(body, stream=True, stream_options={"include_usage": True})).rest()
    if check(r.status == 200, f"{path} is answered", r.text):
        equal(st.text(), text_of(r), "streamed as whole")
        return text_of(r), r.json["usage"]
    return None, None


def serves(name):
    model, want = with_vocabulary(name), expected(name)
    body = dict(model=MODEL, prompt=want["ids"], max_tokens=16, temperature=0, ignore_eos=True)
    chatting = dict(model=MODEL, messages=[{"role": "user", "content": "he said the[254]"}], max_tokens=24, temperature=0,
                    ignore_eos=True)
    with Server(model=model, served_name=MODEL, flags={}, cpu_math="f32", kv_type="f32") as s:
        check(name in s.log(), "the log names the architecture", s.log())
        equal(answer(s, COMP, body)[0], said(want["greedy_ids"]), f"{name}: tokens of transformers")
        ids = s.post("/tokenize", {"prompt": "he <|im_end|>"}).json["tokens"]
        equal(ids[:1] + [said(ids)], [PIECES.index("he"), "he <|im_end|>"], "merges; control tokens by name are text")
        ids = s.post("/tokenize", dict(messages=chatting["messages"])).json["tokens"]
        equal((ids.count(IM_START), ids.count(IM_END)), (2, 1), "the file's template")
    first = None
    for flags in (dict(prefix_cache="off"), {}, dict(speculate="ngram", threads=1, prefill_chunk=7)):
        with Server(model=model, served_name=MODEL, flags={}, **flags) as s:
            got = answer(s, COMP, body), answer(s, COMP, body), answer(s, CHAT, chatting)
            texts = [t for t, _ in got]
            first = first or texts
            equal(texts, first, f"{name}: the same tokens with {flags}")
            equal(got[1][1]["prompt_tokens_details"]["cached_tokens"], 0 if "prefix_cache" in flags else 64,
                  f"cached with {flags}")


@test
def qwen2():
    serves("qwen2")


@test
def qwen3():
    serves("qwen3")


@test
def text_is_normalised():
    """NFC, as Qwen's own tokeniser does: in counts, prompts and chats; what is longer then is whole, and a control
    token that only NFC would write is text."""
    pieces = list(PIECES)
    pieces[100:104] = "\u00e0", "\u00a4", "\u0137", "\u00bc"  # bytes E0 A4 95 BC, in GPT-2's alphabet
    with Server(model=with_vocabulary("qwen2", tokens=strings(pieces)), served_name=MODEL, flags={}) as s:
        for prompt, ids in (("\u212a" * 3, [PIECES.index("K")] * 3), ("K\u0301", s.post("/tokenize", {"prompt": "\u1e30"}).json["tokens"]),
                            ("\u0958" * 50, [100, 101, 102, 100, 101, 103] * 50),
                            ("\u0958" * 9000, [100, 101, 102, 100, 101, 103] * 9000)):
            r = s.post("/tokenize", {"prompt": prompt, "return_token_strs": True}).json
            equal((r["tokens"] == ids, r["count"], len(r["token_strs"])), (True, len(ids), len(ids)), f"{prompt[:3]!r}")
        told = s.post("/detokenize", {"tokens": [100, 101, 102, 100, 101, 103]}).json["prompt"]
        equal(told, "\u0915\u093c", "what the model reads")
        r = s.post(COMP, dict(model=MODEL, prompt="\u0958" * 10, max_tokens=1))
        equal(r.json["usage"]["prompt_tokens"], 60, "a prompt")
        plain, other = (s.post("/tokenize", dict(messages=[{"role": "user", "content": t}])).json["tokens"]
                        for t in ("x<|im_end|>K", "x<|im_end|>\u212a"))
        equal((plain, plain.count(IM_END)), (other, 1), "a chat; the typed marker stays text")


@test
def refused_by_name():
    """A vocabulary that would be cut otherwise, and one that does not fit the weights."""
    for more, words in ((dict(pre="superbpe"), ("superbpe", "tokenizer.ggml.pre")),
                        (dict(tokens=strings(PIECES[:255])), ("255", "256"))):
        code, err, _ = fails_to_start(dict(model=with_vocabulary("qwen2", **more), port=0))
        lines = [line for line in err.splitlines() if " info " not in line]
        check(code and len(lines) == 1 and all(w in lines[0] for w in words), f"one sentence with {words}", code, err)


main()
