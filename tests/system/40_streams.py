# SPDX-License-Identifier: Apache-2.0
"""Streams: order of chunks, endings, whole characters, stop strings, logprobs, choices, usage, and
the same text alone, in a crowd, streamed or not.  Real vocabulary, scripted tokens."""
from lib import *

S = None
CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
AB, E_ACUTE, BLANK, NEWLINE, HALF, EOS = 369, 2756, 216, 198, 10813, 2
PROMPTS = [
    "def f(x):\n    if x:\n        return 1\n", "- one\n- two\n  - three", "日本語の文章", "😀😀 🎉",
    '"quoted" \'text\'', "a\tb\tc", "   leading", "trailing   ", "x", "1234567890", "naïve café",
    "\n\n\n", "{\"a\": [1, 2]}", "<b>bold</b>", "Ω ≈ ç √ ∫", "مرحبا", "привет мир", "e\u0301",
    "\u200bzero", "a" * 50, "The quick brown fox", "Once upon a time", "SELECT * FROM t;",
    "https://example.com/?q=1&r=2", "C:\\path\\file", "null", "true false", "--", "...", "!?",
]


def both(path, body):
    """The same request streamed and not: (stream, response)."""
    st = S.stream(path, dict(body, stream=True, stream_options={"include_usage": True})).rest()
    return st, S.post(path, body)


def same(claim, path, body, n=1):
    """Joined deltas, finish reasons and usage equal the non-streamed answer; both are returned."""
    st, r = both(path, body)
    if not check(st.status == 200 and r.status == 200, claim, st.status, r.text):
        return st, r
    for k in range(n):
        c = r.json["choices"][k]
        whole = c["text"] if "text" in c else c["message"]["content"]
        check(st.text(k) == whole, f"{claim}: deltas joined are the text [{k}]", st.text(k), whole)
        equal(st.finishes(k), [c["finish_reason"]], f"{claim}: one finish_reason [{k}]")
    # The second of two equal prompts takes from the cache what the first one left.
    equal(*({k: v for k, v in u.items() if k != "prompt_tokens_details"} for u in (st.usage(), r.json["usage"])),
          f"{claim}: the same usage")
    return st, r


def well_formed(claim, st, n=1):
    """Order and shape of the chunks of a stream that ended well."""
    ids = {(e["id"], e["created"], e["object"], e["model"]) for e in st.events}
    check(len(ids) == 1, f"{claim}: one id, created, object, model", ids)
    equal(st.done, 1, f"{claim}: one [DONE]")
    check(st.ended and st.chunks[-2:] == [b"data: [DONE]\n\n", b""], f"{claim}: [DONE] is last",
          st.chunks[-3:])
    for k in range(n):
        mine = [c for e in st.events for c in e["choices"] if c["index"] == k]
        reasons = [c["finish_reason"] for c in mine]
        check(mine and reasons[-1] in ("stop", "length") and not any(reasons[:-1]),
              f"{claim}: finish_reason in the last chunk only [{k}]", reasons)
        if "delta" in mine[0]:
            check(mine[0]["delta"] == {"role": "assistant", "content": ""} and
                  not any("role" in c["delta"] for c in mine[1:]) and mine[-1]["delta"] == {},
                  f"{claim}: role first and once, an empty delta last [{k}]", mine[0], mine[-1])
        check(all("logprobs" in c for c in mine), f"{claim}: logprobs key [{k}]")


@test
def chunk_contract():
    """Case B44."""
    for path, body in ((CHAT, chat("Hi", max_tokens=4, ignore_eos=True)),
                       (COMP, completion("Hi", max_tokens=4, ignore_eos=True))):
        for options in (None, {"include_usage": True}, {"include_usage": False}, {},
                        {"include_usage": None}, {"include_obfuscation": False}):
            b = dict(body, stream=True)
            if options is not None:
                b["stream_options"] = options
            st = S.stream(path, b).rest()
            well_formed(f"{path} {options}", st)
            asked = bool(options and options.get("include_usage"))
            empty = [e for e in st.events if e["choices"] == []]
            equal(len(empty), int(asked), f"{path} {options}: usage chunk")
            if asked:
                u = st.events[-1]["usage"]
                check(st.events[-1]["choices"] == [] and u["total_tokens"] ==
                      u["prompt_tokens"] + u["completion_tokens"] and u["completion_tokens"] == 4 and
                      all(e["usage"] is None for e in st.events[:-1]),
                      f"{path}: usage in the last chunk, null before", st.events)
            else:
                check(not any("usage" in e for e in st.events), f"{path} {options}: no usage key")
            check(abs(st.events[0]["created"] - time.time()) < 120, "created in wall-clock seconds")
            equal(st.events[0]["object"],
                  "chat.completion.chunk" if path == CHAT else "text_completion", "object")
            check(st.events[0]["id"].startswith("chatcmpl-" if path == CHAT else "cmpl-"), "id")


@test
def endings():
    """Case B43."""
    runs = {
        "EOS at once": (force(EOS), "stop", ""),  # also B38: an end of turn is no text
        "EOS at once, and a limit": (force(EOS, max_tokens=20), "stop", ""),
        "the other end token": (force(0, max_tokens=20), "stop", ""),
        "a control token": (force(1, max_tokens=20), "length", ""),
        "one token": (force(AB, max_tokens=1), "length", "ab"),
        "twenty tokens": (force(AB, max_tokens=20), "length", "ab" * 20),
        "natural stop": (dict(model=MODEL, temperature=0, max_tokens=4000), "stop", None),
        "stop string": (force(AB, max_tokens=20, stop="bab"), "stop", "a"),
        "stop id": (force(AB, max_tokens=20, stop_token_ids=[AB]), "stop", ""),
        "ignore_eos": (force(EOS, max_tokens=3, ignore_eos=True), "length", None),
        "min_tokens": (dict(model=MODEL, temperature=0, max_tokens=8, min_tokens=8,
                            logit_bias={str(EOS): 100}), "length", None),
        "two choices": (force(AB, max_tokens=20, n=2), "length", "ab" * 20),
    }
    for path in (CHAT, COMP):
        for name, (body, reason, text) in runs.items():
            ask = dict(body, prompt="x") if path == COMP else dict(body, messages=chat("x")["messages"])
            n = ask.get("n", 1)
            st, r = same(f"{path} {name}", path, ask, n)
            well_formed(f"{path} {name}", st, n)
            for k in range(n):
                equal(st.finishes(k), [reason], f"{path} {name}: reason")
                if text is not None:
                    equal(st.text(k), text, f"{path} {name}: text")
            if path == CHAT:
                check(isinstance(r.json["choices"][0]["message"]["content"], str),
                      f"{name}: content is a string, not null")
    with contextlib.closing(S.conn()) as c:
        for _ in range(3):
            Stream(S, COMP, force(AB, prompt="x", max_tokens=3, stream=True), conn=c).rest()
        check(not c.buf and not c.eof, "the connection is used again after a stream")


@test
def whole_characters():
    """Case B12: a character of several tokens is never sent in halves."""
    for k in range(1, 10):
        st, _ = same(f"k={k}", COMP, completion("😀" * 20, temperature=0, max_tokens=k,
                                                ignore_eos=True))
        equal(st.usage()["completion_tokens"], k, f"k={k}: completion_tokens")
    cycle = [10813, 242, 218]
    for k in range(1, 8):  # one character, cut after k tokens of three
        want = "😀" * (k // 3) + ("\ufffd" if k % 3 else "")
        r = S.post("/detokenize", {"tokens": (cycle * 3)[:k]})
        equal(r.json["prompt"], want, f"detokenize {k} tokens of emoji")
    st, _ = same("half a character for ever", COMP, force(HALF, prompt="x", max_tokens=8))
    check(st.text() in ("\ufffd" * 7, "\ufffd" * 8), "FORCE(10813): eager U+FFFD", st.text())
    check(len(st.events) >= 7, "FORCE(10813): deltas keep coming", len(st.events))


@test
def text_is_kept():
    """Case B42: stream and whole are byte for byte the same, blanks and newlines included."""
    for path in (CHAT, COMP):
        def one(p, path=path):
            body = dict(completion(p) if path == COMP else chat(p), temperature=0, max_tokens=64,
                        ignore_eos=True)
            return lambda: same(f"{path} {p[:10]!r}", path, body)
        jobs = [one(p) for p in PROMPTS]
        for i in range(0, len(jobs), 10):
            for r in together(jobs[i:i + 10]):
                check(not isinstance(r, Exception), "text_is_kept", r)
    for token, want in ((BLANK, " " * 5), (NEWLINE, "\n" * 5)):
        for path, extra in ((CHAT, {"messages": chat("x")["messages"]}), (COMP, {"prompt": "x"})):
            st, _ = same(f"FORCE({token}) {path}", path, force(token, max_tokens=5, **extra))
            equal(st.text(), want, f"FORCE({token}): text")
            equal(st.usage()["completion_tokens"], 5, f"FORCE({token}): tokens")
    hello = S.post("/tokenize", {"prompt": " Hello"}).json["tokens"]
    equal(len(hello), 1, "' Hello' is one token")
    st, _ = same("leading blank", COMP, force(hello[0], prompt="x", max_tokens=2))
    equal(st.text(), " Hello Hello", "the first token keeps its leading blank")


@test
def stop_strings():
    """Case B13: no part of a stop string is ever sent, wherever it lies over tokens and events."""
    for path, extra in ((CHAT, {"messages": chat("x")["messages"]}), (COMP, {"prompt": "x"})):
        st, _ = same(f"{path} baba", path, force(AB, max_tokens=50, stop=["baba"], **extra))
        equal((st.text(), st.finishes()), ("a", ["stop"]), f"{path}: stop baba")
        check(not any("b" in st_text(e) for e in st.events), f"{path}: no delta holds a b")
        equal(st.usage()["completion_tokens"], 3, "tokens up to the one that ended it")
        for stop, text, tokens in ((["ab"], "", 1), (["b"], "a", 1), (["abab", "zzz"], "", 2),
                                   (["bX", "babab"], "a", 3), ("abX", "ab" * 50, 50),
                                   (["x" * 100 + "ab"], "ab" * 50, 50), (["ba", "ab"], "", 1)):
            st, r = same(f"{path} stop {stop}", path,
                         force(AB, max_tokens=50, stop=stop, **extra))
            equal((st.text(), st.usage()["completion_tokens"]), (text, tokens), f"stop {stop}")
        st, _ = same("held to the end", path, force(AB, max_tokens=5, stop="bababababababX", **extra))
        equal((st.text(), st.finishes()), ("ab" * 5, ["length"]), "held text comes with the end")
        st, _ = same("include_stop_str_in_output", path,
                     force(AB, max_tokens=50, stop="baba", include_stop_str_in_output=True, **extra))
        equal(st.text(), "ababa", "the stop string itself if it was asked for")
    ids = S.post("/tokenize", {"prompt": "é"}).json["tokens"]
    st, _ = same("stop of two bytes", COMP, force(ids[0], prompt="x", max_tokens=9, stop="éé"))
    equal(st.text(), "", "a stop string of multi-byte characters")
    st, _ = same("stop in the prompt", COMP, force(AB, prompt="ab stop", echo=True, max_tokens=3,
                                                  stop="stop"))
    equal(st.text(), "ab stopababab", "a stop string in the echoed prompt stops nothing")


def st_text(e):
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "")
                   for c in e.get("choices", ()))


def finite(x):
    return isinstance(x, float) and x == x and abs(x) < 1e5


@test
def logprobs_chat():
    """Case B49."""
    base = dict(chat("one two"), max_tokens=10)
    runs = {
        "forced": dict(logit_bias={str(AB): 100}, temperature=0),
        "free": dict(temperature=0, ignore_eos=True),
        "top_p 0.01": dict(top_p=0.01, seed=1, ignore_eos=True),
        "top_k 1": dict(top_k=1, seed=1, ignore_eos=True),
        "stop": dict(logit_bias={str(AB): 100}, temperature=0, stop="ababab"),
        "banned": dict(logit_bias={"369": 100, "370": -100}, temperature=0),
        "natural end": dict(temperature=0, max_tokens=3000),
    }
    for name, more in runs.items():
        for top in (None, 0, 5, 20):
            if name == "natural end" and top != 5:
                continue
            body = dict(base, logprobs=True, **more)
            if top is not None:
                body["top_logprobs"] = top
            st, r = same(f"logprobs {name} {top}", CHAT, body)
            if r.status != 200:
                continue
            whole = r.json["choices"][0]["logprobs"]["content"]
            pieces = st.logprobs()
            check(whole == pieces, f"{name} {top}: the same entries streamed", whole[:2], pieces[:2])
            u = r.json["usage"]["completion_tokens"]
            visible = u - (r.json["choices"][0]["finish_reason"] == "stop" and name == "natural end")
            check(len(whole) in (u, visible) or name == "stop" and len(whole) <= u,
                  f"{name} {top}: an entry for each visible token", len(whole), u)
            check(all(len(e["top_logprobs"]) == (top or 0) for e in whole),
                  f"{name} {top}: alternatives as many as asked")
            check(all(finite(e["logprob"]) and all(finite(t["logprob"]) for t in e["top_logprobs"])
                      for e in whole), f"{name} {top}: finite numbers")
            shown = bytes(b for e in whole for b in e["bytes"]).decode("utf-8", "replace")
            if name != "stop":
                check(shown.replace("\ufffd", "") ==
                      r.json["choices"][0]["message"]["content"].replace("\ufffd", ""),
                      f"{name} {top}: bytes make the text", shown[:200])
            for e in whole:
                lps = [t["logprob"] for t in e["top_logprobs"]]
                check(lps == sorted(lps, reverse=True), f"{name} {top}: falling order", lps)
    for top in (21, -1, 1.5, "5"):
        r = S.post(CHAT, dict(base, logprobs=True, top_logprobs=top))
        check(is_error(r, param="top_logprobs"), f"top_logprobs {top}", r.text)
    r = S.post(CHAT, dict(base, logprobs=False))
    equal(r.json["choices"][0]["logprobs"], None, "logprobs false")


@test
def logprobs_completions():
    """Case B49 on the other route."""
    runs = (dict(logit_bias={str(AB): 100}), {}, dict(temperature=1, top_p=0.01, seed=1),
            dict(temperature=1, top_k=1, seed=1), dict(logit_bias={str(AB): 100}, stop="zz"))
    for n in (0, 1, 5, 20):
        for more in runs:
            body = dict(completion("one two", temperature=0, max_tokens=8, ignore_eos=True, logprobs=n), **more)
            st, r = same(f"completions logprobs {n}", COMP, body)
            whole = r.json["choices"][0]["logprobs"]
            joined = {k: [] for k in whole}
            for e in st.events:
                for c in e["choices"]:
                    for k, v in (c["logprobs"] or {}).items():
                        joined[k] += v or []
            for k in ("tokens", "token_logprobs", "text_offset"):
                check(joined[k] == whole[k], f"logprobs {n}: {k} the same streamed", joined[k], whole[k])
            equal(len(whole["tokens"]), 8, f"logprobs {n}: an entry for each token")
            check(all(finite(x) for x in whole["token_logprobs"]), "finite")
            if n:
                # The chosen token may be one more than was asked for.
                check(all(n <= len(t) <= n + 1 for t in whole["top_logprobs"]),
                      f"logprobs {n}: alternatives", whole["top_logprobs"][:2])
            offs = whole["text_offset"]
            check(offs[0] == 0 and offs == sorted(offs), "text_offset rises", offs)
    r = S.post(COMP, force(AB, prompt="Hello world", max_tokens=2, echo=True, logprobs=2)).json
    lp = r["choices"][0]["logprobs"]
    check(r["choices"][0]["text"] == "Hello worldabab" and
          lp["tokens"] == ["Hello", " world", "ab", "ab"] and lp["token_logprobs"][0] is None and
          all(finite(x) for x in lp["token_logprobs"][1:]) and lp["text_offset"] == [0, 5, 11, 13],
          "echo with logprobs", r)
    st, _ = same("echo with logprobs", COMP, force(AB, prompt="Hello world", max_tokens=2, echo=True,
                                                   logprobs=2))
    big = S.post(CHAT, chat("x", logprobs=True, top_logprobs=20))
    check(is_error(big, param="logprobs"), "an answer that cannot fit is refused at admission", big.text[:300])


@test
def choices():
    """Case B56."""
    ask = dict(chat("Tell me"), n=3, temperature=1.5, max_tokens=24, ignore_eos=True)
    st = S.stream(CHAT, dict(ask, stream=True, stream_options={"include_usage": True})).rest()
    well_formed("n 3", st, 3)
    check(len({st.text(k) for k in range(3)}) == 3, "three different texts")
    equal(st.usage()["prompt_tokens"], S.post("/tokenize", {"messages": ask["messages"]}).json["count"],
          "the prompt is counted once")
    equal(st.usage()["completion_tokens"], 72, "completions are summed")

    def texts(**kw):
        return [c["message"]["content"] for c in S.post(CHAT, dict(ask, **kw)).json["choices"]]

    seven = texts(seed=7)
    equal(texts(seed=7), seven, "the same seed: the same three")
    check(texts(seed=8) != seven, "another seed: others")
    check(texts() != texts(), "no seed: the two runs differ")
    st = S.stream(CHAT, dict(ask, seed=7, stream=True)).rest()
    equal([st.text(k) for k in range(3)], seven, "streamed with the seed: the same three")
    equal(texts(seed=7, n=1)[0], seven[0], "choice 0 does not depend on n")
    big = 2 ** 63 + 5
    equal(texts(seed=big), texts(seed=big), "a seed above 2^63")
    check(texts(seed=-1) == texts(seed=-1), "a negative seed")
    prompts = ["one", "two three", "four"]
    r = S.post(COMP, dict(model=MODEL, prompt=prompts, n=2, echo=True, max_tokens=4, seed=3,
                          ignore_eos=True))
    c = r.json["choices"]
    equal([x["index"] for x in c], list(range(6)), "choices sorted, index = prompt x n + k")
    check(all(c[2 * p + k]["text"].startswith(prompts[p]) for p in range(3) for k in range(2)),
          "each choice belongs to its prompt", [x["text"] for x in c])
    counts = [S.post("/tokenize", {"prompt": p}).json["count"] for p in prompts]
    equal((r.json["usage"]["prompt_tokens"], r.json["usage"]["completion_tokens"]),
          (sum(counts), 24), "usage: each prompt once")
    st, _ = same("prompt list", COMP, dict(model=MODEL, prompt=prompts, n=2, echo=True, max_tokens=4,
                                           seed=3, ignore_eos=True), 6)
    well_formed("prompt list", st, 6)
    ids = [[81, 82], [83]]
    r = S.post(COMP, dict(model=MODEL, prompt=ids, max_tokens=2, temperature=0, ignore_eos=True)).json
    alone = [text_of(S.post(COMP, dict(model=MODEL, prompt=p, max_tokens=2, temperature=0,
                                       ignore_eos=True))) for p in ids]
    equal([x["text"] for x in r["choices"]], alone, "lists of token arrays: each as alone")


@test
def usage_everywhere():
    """The same number in stream, whole, native events, metrics and ledger."""
    S.idle()
    before = S.metrics()
    rows = len(S.rows())
    runs = [(CHAT, chat("Hi", temperature=0, max_tokens=40)),
            (CHAT, chat("Hi", temperature=0, max_tokens=7, ignore_eos=True)),
            (CHAT, dict(chat("Hi"), **force(AB, max_tokens=30, stop="bab"))),
            (CHAT, chat("Hi", seed=5, n=3, max_tokens=9, ignore_eos=True)),
            (COMP, dict(model=MODEL, prompt=["a", "b b"], n=2, seed=1, max_tokens=5, ignore_eos=True)),
            (COMP, force(EOS, prompt="x", max_tokens=9))]
    want_prompt = want_completion = n = 0
    for i, (path, body) in enumerate(runs):
        st = S.stream(path, dict(body, stream=True, stream_options={"include_usage": True}),
                      headers=[f"X-Request-Id: u{i}-stream"]).rest()
        r = S.post(path, body, headers=[f"X-Request-Id: u{i}-whole"])
        nat = S.post(NATIVE, body, headers=[f"X-Request-Id: u{i}-native"])
        u = r.json["usage"]
        native = [e for _, t, e in native_events(nat.body) if t == "usage"][0]["usage"]
        equal((st.usage(), native), (u, u), f"run {i}: one usage in every form")
        for form in ("stream", "whole", "native"):
            row = S.row(f"u{i}-{form}")
            check(row and (row["prompt_tokens"], row["completion_tokens"]) ==
                  (u["prompt_tokens"], u["completion_tokens"]), f"run {i} {form}: the row", row, u)
            want_prompt += u["prompt_tokens"]
            want_completion += u["completion_tokens"]
            n += 1
    after = S.metrics()
    for kind, want in (("prompt", want_prompt), ("completion", want_completion)):
        key = f'tokens_total{{kind="{kind}"}}'
        equal(int(after[key] - before[key]), want, f"the counter of {kind} tokens")
    equal(len(S.rows()) - rows, n, "one row for each request, choices summed")


@test
def native_stream():
    """The typed events: ids, numbers, order, NDJSON, the failure forms of the endings table."""
    r = S.post(NATIVE, chat("Hi", temperature=0, max_tokens=5, ignore_eos=True))
    check(r.status == 200 and r.header("content-type").startswith("text/event-stream"), "SSE", r.headers)
    ev = native_events(r.body)
    types = [t for _, t, _ in ev]
    check(types[0] == "response.started" and types[-2:] == ["usage", "response.incomplete"] and
          types.count("output_text.delta") == 5 and
          set(types) <= {"response.started", "response.queued", "response.prefill",
                         "output_text.delta", "usage", "response.incomplete"}, "order", types)
    sid = ev[0][2]["stream_id"]
    equal(r.header("x-tokenring-stream"), sid, "the stream id is in the header")
    numbers = []
    for i, t, e in ev:
        check(e["type"] == t, "type in the data")
        if "id" in e:
            check(i == e["id"] and i.startswith(sid + ":"), "id <stream id>:<number>", i)
            numbers.append(int(i.rsplit(":", 1)[1]))
        else:
            check(t in ("response.queued", "response.prefill"), f"{t} has a number")
    equal(numbers, list(range(len(numbers))), "numbers rise by one from 0")
    check(ev[-1][2]["reason"] == "length" and ev[-1][2]["finish_reason"] == "length", "reason", ev[-1])
    text = "".join(e["text"] for _, t, e in ev if t == "output_text.delta")
    equal(text, text_of(S.post(CHAT, chat("Hi", temperature=0, max_tokens=5, ignore_eos=True))),
          "deltas are the text of chat")
    r = S.post(NATIVE, force(EOS, prompt="x"), headers=["Accept: application/x-ndjson"])
    check(r.header("content-type").startswith("application/x-ndjson"), "NDJSON by Accept", r.headers)
    lines = [strict_json(line) for line in r.text.splitlines()]
    check(lines[0]["type"] == "response.started" and lines[-1]["type"] == "response.completed" and
          lines[-1]["finish_reason"] == "stop", "NDJSON events", lines)
    r = S.post(NATIVE, dict(chat("Hi"), n=2, seed=1, max_tokens=3, ignore_eos=True))
    ev = native_events(r.body)
    check(sorted(e["index"] for _, t, e in ev if t == "choice.finished") == [0, 1],
          "each choice's end is told", [t for _, t, _ in ev])


@test
def deterministic_in_a_crowd():
    """P10, and the kind of case B10: text is the same alone and beside 31 others with other settings, while
    some leave, streamed or not."""
    kinds = [dict(temperature=0), dict(temperature=1.2, top_p=0.9, top_k=40),
             dict(temperature=1, frequency_penalty=1.5, presence_penalty=-1), dict(temperature=0.8, min_p=0.1),
             dict(temperature=1, repetition_penalty=1.3), dict(logit_bias={str(AB): 4, str(E_ACUTE): -100}),
             dict(stop=["e", "é"]), dict(top_k=1, logprobs=3)]

    def body(i):
        kw = dict(kinds[i % 8], seed=i)
        return completion(PROMPTS[i % len(PROMPTS)] + str(i), max_tokens=40 + i % 8, ignore_eos=True, **kw)

    def leaves(i):
        time.sleep(random.random() * 0.1)
        S.stream(COMP, dict(body(i), max_tokens=3000, stream=True)).read(3).conn.reset()

    alone = [text_of(S.post(COMP, body(i))) for i in range(32)]
    check(len(set(alone)) >= 28, "different texts", len(set(alone)))  # a stop string may come at once
    for turn in range(4):
        crowd = together([lambda i=i: S.stream(COMP, dict(body(i), stream=True)).rest().text()
                          for i in range(32)] + [lambda i=i: leaves(i) for i in range(8)])
        wrong = [i for i in range(32) if crowd[i] != alone[i]]
        check(not wrong, f"32 in parallel, turn {turn}: each as alone", wrong,
              [crowd[i] for i in wrong[:1]])


@test
def cross_talk():
    """Case B10: settings stay with their request while rows of the batch move."""
    words = {i: text_of(S.post(COMP, force(i, prompt="x", max_tokens=64))) for i in range(1000, 1032)}

    def forced(i):
        time.sleep(random.random() * 0.3)
        return text_of(S.post(COMP, force(i, prompt="x", max_tokens=64)))

    def aborted(i):
        time.sleep(random.random() * 0.3)
        st = S.stream(COMP, force(i, prompt="x", max_tokens=2000, stream=True)).read(5)
        st.conn.reset()

    def free():
        return text_of(S.post(COMP, completion("x", max_tokens=64)))

    wrong = []
    for _ in range(5):
        jobs = [lambda i=i: forced(i) for i in words]
        jobs += [lambda i=i: aborted(i) for i in range(1000, 1008)] + [free] * 4
        out = together(jobs)
        wrong += [(i, out[k]) for k, i in enumerate(words) if out[k] != words[i]]
    check(not wrong, "each answer is its own token, 64 times", wrong[:2])
    check(S.idle(), "nothing keeps running")
    S.alive("cross talk")


@test
def penalties_and_filters():
    """Each sampling parameter has its effect."""
    def text(**kw):
        return text_of(S.post(COMP, completion("x", max_tokens=20, ignore_eos=True, **kw)))

    greedy = text(temperature=0)
    for kw in (dict(top_k=1), dict(top_p=0), dict(top_p=1e-6), dict(min_p=1), dict(temperature=1e-6)):
        equal(text(seed=9, **kw), greedy, f"{kw} is greedy")
    check(text(seed=9, temperature=2) != greedy, "temperature 2 is not")
    r = S.post(COMP, completion("x", max_tokens=30, temperature=0, ignore_eos=True,
                                logit_bias={str(AB): 15}, logprobs=0))
    check(r.json["choices"][0]["text"].count("ab") > 20, "a bias of 15 nearly forces", r.text[:200])
    for kw in (dict(presence_penalty=2), dict(frequency_penalty=2), dict(repetition_penalty=2)):
        t = text_of(S.post(COMP, completion("x", max_tokens=30, temperature=0, ignore_eos=True,
                                            logit_bias={str(AB): 1.5}, **kw)))
        plain = text_of(S.post(COMP, completion("x", max_tokens=30, temperature=0, ignore_eos=True,
                                                logit_bias={str(AB): 1.5})))
        check(isinstance(t, str) and isinstance(plain, str), f"{kw} is taken")
    t = text_of(S.post(COMP, completion("x", max_tokens=6, temperature=0, ignore_eos=True,
                                        logit_bias={str(AB): 7, str(E_ACUTE): 6.5},
                                        frequency_penalty=2, presence_penalty=2)))
    check("ab" in t, "penalties with biases", t)


if __name__ == "__main__":
    S = Server(sim_step_us=1000)
    main()
