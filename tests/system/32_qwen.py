# SPDX-License-Identifier: Apache-2.0
"""Qwen 2 and Qwen 3 through the whole service: the small random models of tests/golden/tiny, which have
no vocabulary, with one of byte-level BPE put in front.  What they say is what transformers computed."""
from lib import *
from tiny import *

COMP, CHAT = "/v1/completions", "/v1/chat/completions"


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
