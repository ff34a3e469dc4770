# SPDX-License-Identifier: Apache-2.0
"""Log-probabilities as evaluations use them: prompts of token ids that are scored by echo, names that are ids,
and the same figures whether a token was generated or read."""
from lib import *

CHAT, COMP = "/v1/chat/completions", "/v1/completions"


def score(s, prompt, **kw):
    return s.post(COMP, dict({"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 0, "logprobs": 1, "echo": True,
                              "seed": 1234}, **kw))


@test
def a_token_has_one_logprob_wherever_it_stands():
    """What was generated, read again as a prompt, has the same figures to the last digit; so has any beginning of it."""
    with Server(REAL, ledger=False) as s:
        ids = s.post("/tokenize", {"prompt": "The capital of France is"}).json["tokens"]
        made = s.post(COMP, {"model": MODEL, "prompt": ids, "temperature": 0, "max_tokens": 12, "ignore_eos": True,
                             "logprobs": 5, "echo": True, "return_tokens_as_token_ids": True}).json["choices"][0]["logprobs"]
        all_ids = [int(t.removeprefix("token_id:")) for t in made["tokens"]]
        equal((all_ids[:len(ids)], len(all_ids)), (ids, len(ids) + 12), "tokens by their ids")
        check(made["token_logprobs"][0] is None and made["top_logprobs"][0] is None, "the first has none")
        for n in (len(all_ids), len(ids) + 3, 2):
            r = score(s, all_ids[:n], logprobs=5, return_tokens_as_token_ids=True).json["choices"][0]["logprobs"]
            for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                equal(r[k], made[k][:n], f"{k} of {n} tokens, read")
        greedy = all(p == max(t.values()) for p, t in zip(made["token_logprobs"][len(ids):], made["top_logprobs"][len(ids):]))
        check(greedy, "the generated ones are the most probable")
        # Several at once, as lm-eval asks: each context with a continuation, one answer for each.
        lists = [all_ids, all_ids[:8], ids]
        for more in ({"max_tokens": 0}, {"max_tokens": 1}):
            r = score(s, lists, **more).json
            equal([c["index"] for c in r["choices"]], [0, 1, 2], "an answer for each prompt, in order")
            for c, prompt in zip(r["choices"], lists):
                lp = c["logprobs"]
                equal(len(lp["tokens"]), len(prompt) + more["max_tokens"], f"{more}: prompt and answer")
                equal(lp["token_logprobs"][:len(prompt)], made["token_logprobs"][:len(prompt)], f"{more}: the same figures")
                check(all(len(t) == 1 for t in lp["top_logprobs"][1:]), "one alternative each")
            equal(r["usage"]["prompt_tokens"], sum(map(len, lists)), "usage of the prompts")
            equal(r["usage"]["completion_tokens"], 3 * more["max_tokens"], "usage of the answers")


@test
def echo_alone():
    with Server(ledger=False) as s:
        for n in (0, 3):
            body = dict(force(369, prompt="Hello world", max_tokens=n, echo=True))
            r = s.post(COMP, body)
            equal(text_of(r), "Hello world" + "ab" * n, f"the prompt and {n} tokens")
            check(r.json["choices"][0]["logprobs"] is None and r.json["choices"][0]["finish_reason"] == "length", "no logprobs")
            equal(Stream(s, COMP, dict(body, stream=True)).rest().text(), text_of(r), "the same in a stream")
        r = s.post(COMP, force(369, prompt=["Hello", "é"], max_tokens=1, echo=True))
        equal([c["text"] for c in r.json["choices"]], ["Helloab", "éab"], "of several prompts")


@test
def names_that_are_ids():
    """In every shape; characters that are several tokens keep their bytes."""
    with Server(ledger=False) as s:
        base = dict(logit_bias={"10813": 100}, temperature=0, max_tokens=4, return_tokens_as_token_ids=True)
        body = dict(chat("Hi"), logprobs=True, top_logprobs=2, **base)
        whole = s.post(CHAT, body).json["choices"][0]["logprobs"]["content"]
        check(all(e["token"] == "token_id:10813" and e["bytes"] == [0xf0, 0x9f] for e in whole) and len(whole) == 4, "chat", whole)
        check(all(re.fullmatch(r"token_id:\d+", t["token"]) for e in whole for t in e["top_logprobs"]), "its alternatives")
        equal(Stream(s, CHAT, dict(body, stream=True)).rest().logprobs(), whole, "chat, streamed")
        body = dict(completion("x", logprobs=2), **base)
        whole = s.post(COMP, body).json["choices"][0]["logprobs"]
        equal(whole["tokens"], ["token_id:10813"] * 4, "completions")
        check(all(len(t) == 2 and all(re.fullmatch(r"token_id:\d+", k) for k in t) for t in whole["top_logprobs"]), "alternatives")
        streamed = Stream(s, COMP, dict(body, stream=True)).rest()
        parts = [c["logprobs"]["tokens"] for e in streamed.events for c in e["choices"] if c["logprobs"]]
        equal(sum(parts, []), whole["tokens"], "completions, streamed")
        plain = s.post(COMP, dict(body, return_tokens_as_token_ids=False)).json["choices"][0]["logprobs"]
        equal(plain["tokens"], ["bytes:\\xf0\\x9f"] * 4, "without: bytes that are no text")
        equal(plain["token_logprobs"], whole["token_logprobs"], "the same figures")


@test
def a_reader_who_comes_back():
    """Entries that an earlier reader may have had are null; from then on there is one for each token."""
    with Server(ledger=False, sim_step_us=20000) as s:
        body = dict(force(369, prompt="x", max_tokens=60, logprobs=1, stream=True, return_tokens_as_token_ids=True))
        first = Stream(s, COMP, body, ["X-Tokenring-Resume: 1"]).read(10)
        cursor = first.events[-1]["tokenring"]["cursor"]
        first.close()
        with contextlib.closing(s.conn()) as c:
            c.send(request("GET", f"/v1/streams/{first.id}?format=completions", None, [f"Last-Event-ID: {cursor}"]))
            r = c.response()
        events = [strict_json(x[6:]) for x in r.text.split("\n\n") if x.startswith("data: {")]
        tokens = [c for e in events for c in e.get("choices", ()) if c["text"]]
        equal("".join(c["text"] for c in tokens), "ab" * (60 - first.text().count("ab")), "the rest of the text")
        got = [c["logprobs"] for c in tokens]
        k = next((i for i, lp in enumerate(got) if lp), len(got))
        check(got and all(lp and set(lp["tokens"]) == {"token_id:369"} for lp in got[k:]) and k < len(got),
              "null, then one for each token, by the names that were asked for", got[:3], got[-3:])


main()
