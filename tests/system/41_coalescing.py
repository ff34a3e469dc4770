# SPDX-License-Identifier: Apache-2.0
"""Coalescing: one event for each token, or for all that came meanwhile; whichever, nothing of what the
events carry is lost, repeated or counted twice: text, log-probabilities, token counts, numbers, usage."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
GAPS = (0, 20, 50)
ASKS = {
    "plain": dict(max_tokens=400, ignore_eos=True),
    "two choices": dict(max_tokens=40, ignore_eos=True, n=2, seed=5, temperature=1.0),
    "a natural end": dict(max_tokens=600),
}


def entries(answer, path, k):
    """What the log-probabilities of choice k say, entry by entry."""
    if path == CHAT:
        return [(e["token"], round(e["logprob"], 4), len(e["top_logprobs"])) for e in answer]
    return list(zip(answer["tokens"], answer["text_offset"], [len(t) for t in answer["top_logprobs"]]))


def streamed_entries(st, path, k):
    out = []
    for c in (c for e in st.events for c in e["choices"] if c["index"] == k and c["logprobs"]):
        part = c["logprobs"]["content"] if path == CHAT else c["logprobs"]
        out += entries(part, path, k)
    return out


def asks(path):
    lp = dict(logprobs=True, top_logprobs=20) if path == CHAT else dict(logprobs=20)
    prompt = dict(messages=chat("Hi")["messages"]) if path == CHAT else dict(prompt="Hi")
    base = dict(model=MODEL, temperature=0, **prompt)
    for name, more in ASKS.items():
        yield name, dict(base, **more)
        yield f"{name}, logprobs", dict(base, **dict(more, **lp))


def whole_and_streamed(server, claim, path, body, **kw):
    """The same request in one piece and as a stream, which must say the same."""
    r = server.post(path, body)
    st = server.stream(path, dict(body, stream=True, stream_options={"include_usage": True}), **kw)
    return r, st


def say_the_same(claim, path, body, r, st):
    if not check(r.status == 200 and st.status == 200 and st.done == 1, claim, r.text, st.status):
        return
    equal(st.usage(), r.json["usage"], f"{claim}: usage")
    for k in range(body.get("n", 1)):
        c = r.json["choices"][k]
        equal(st.text(k), c["text"] if path == COMP else c["message"]["content"], f"{claim}: text [{k}]")
        equal(st.finishes(k), [c["finish_reason"]], f"{claim}: finish_reason [{k}]")
        if c["logprobs"]:
            want = entries(c["logprobs"]["content"] if path == CHAT else c["logprobs"], path, k)
            equal(streamed_entries(st, path, k), want, f"{claim}: every token's entry, once [{k}]")


def contents(st):
    return [c for e in st.events for c in e["choices"]
            if c.get("text") or c.get("delta", {}).get("content")]


@test
def every_gap_says_the_same():
    for ms in GAPS:
        with Server(TINY, coalesce_ms=ms, sim_step_us=500) as s:
            for path in (CHAT, COMP):
                for name, body in asks(path):
                    claim = f"{ms} ms, {path}, {name}"
                    r, st = whole_and_streamed(s, claim, path, body)
                    say_the_same(claim, path, body, r, st.rest())
                    if ms and name == "plain":
                        n = len(contents(st))
                        check(2 <= n < 400, f"{claim}: fewer events than tokens", n)


@test
def stop_strings_in_a_coalesced_event():
    with Server(TINY) as s:
        text = s.post(COMP, dict(model=MODEL, temperature=0, prompt="Hi", max_tokens=60,
                                 ignore_eos=True)).json["choices"][0]["text"]
    stop = text[40:46]
    for ms in GAPS:
        with Server(TINY, coalesce_ms=ms) as s:
            body = dict(model=MODEL, temperature=0, prompt="Hi", max_tokens=60, ignore_eos=True,
                        stop=[stop], logprobs=20)
            claim = f"{ms} ms, stop string"
            r, st = whole_and_streamed(s, claim, COMP, body)
            say_the_same(claim, COMP, body, r, st.rest())
            equal(st.text(), text[:text.index(stop)], f"{claim}: nothing of it is shown")


@test
def native_numbers_skip_and_never_repeat():
    last = set()
    for ms in GAPS:
        with Server(TINY, coalesce_ms=ms) as s:
            r = s.post(NATIVE, dict(model=MODEL, temperature=0, prompt="Hi", max_tokens=60,
                                    ignore_eos=True))
            events = native_events(r.body)
        numbers = [int(i.rsplit(":", 1)[1]) for i, _, _ in events if i]
        check(numbers == sorted(set(numbers)), f"{ms} ms: numbers rise", numbers)
        equal(sum(e["tokens"] for _, t, e in events if t == "output_text.delta"), 60,
              f"{ms} ms: tokens of all deltas")
        equal([e["usage"]["completion_tokens"] for _, t, e in events if t == "usage"], [60], f"{ms} ms: one usage")
        last.add(numbers[-1])
    equal(len(last), 1, f"the last number is that of one event for each token: {last}")


@test
def what_a_blocked_socket_could_not_take():
    """Unread until parked, then read to the end: few events, and all there."""
    with Server(TINY, sim_step_us=200, stream_buffer="4K", window=64, ctx_size=4096) as s:
        for path, n in ((CHAT, 1), (CHAT, 2), (COMP, 2)):
            lp = dict(logprobs=True, top_logprobs=20) if path == CHAT else dict(logprobs=20)
            prompt = dict(messages=chat("Hi")["messages"]) if path == CHAT else dict(prompt="Hi")
            body = dict(model=MODEL, temperature=0, max_tokens=700, ignore_eos=True, n=n, **prompt, **lp)
            claim = f"blocked, {path}, n {n}"
            r, st = whole_and_streamed(s, claim, path, body, rcvbuf=4096)
            check(until(lambda: s.metrics()["requests_parked"] == n), f"{claim}: parked")
            # 4 KB at a time would wait for delayed acknowledgements.
            st.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            say_the_same(claim, path, body, r, st.rest())


@test
def a_gap_that_is_longer_than_the_window():
    """Half a window goes out at once: the engine parks nothing for a wait of the frontend."""
    with Server(TINY, sim_step_us=200, window=32, coalesce_ms=10000) as s:
        st = s.stream(COMP, dict(model=MODEL, prompt="x", max_tokens=500, ignore_eos=True, stream=True,
                                 timeout_s=9, stream_options={"include_usage": True})).rest()
        equal((st.finishes(), (st.usage() or {}).get("completion_tokens")), (["length"], 500), "it comes to its end")
        check(len(st.events) < 300, "and its events are gathered", len(st.events))


main()
