# SPDX-License-Identifier: Apache-2.0
"""Idempotency-Key: of all requests with one key, one is worked on and stands in the ledger; the others are
told that it runs, or are given its answer, by whatever frontend and whoever has died in between."""
import hashlib

import frames
import oip
from lib import *

CHAT, COMP, NATIVE, MESSAGES, RESPONSES = ("/v1/chat/completions", "/v1/completions", "/v1/streams",
                                           "/v1/messages", "/v1/responses")
SLOW = dict(TINY, sim_step_us=10_000)
ASK = dict(model=MODEL, max_tokens=8, seed=7)
WORDS = [{"role": "user", "content": "x"}]
# How one thing is asked for: in every dialect, streamed and in one piece.
SHAPES = {
    "chat": (CHAT, dict(ASK, messages=WORDS)),
    "chat, streamed": (CHAT, dict(ASK, messages=WORDS, stream=True,
                                  stream_options={"include_usage": True})),
    "completions": (COMP, dict(ASK, prompt="x", echo=True, stop=["zzz"])),
    "completions, streamed": (COMP, dict(ASK, prompt="x", stream=True)),
    "native": (NATIVE, dict(ASK, prompt="x")),
    "native, resumable": (NATIVE, dict(ASK, prompt="x", on_disconnect="hold")),
    "messages": (MESSAGES, dict(ASK, messages=WORDS)),
    "messages, streamed": (MESSAGES, dict(ASK, messages=WORDS, stream=True)),
    "responses": (RESPONSES, dict(model=MODEL, input="x", max_output_tokens=8)),
    "responses, streamed": (RESPONSES, dict(model=MODEL, input="x", max_output_tokens=8, stream=True)),
}


def key(name, rid=None):
    return [f"Idempotency-Key: {name}", *([f"X-Request-Id: {rid}"] if rid else [])]


def ask(server, path, body, headers, conn=None):
    """The answer read whole, streamed or not."""
    c = conn or server.conn()
    c.send(request("POST", path, body, headers))
    r = c.response()
    if not conn:
        c.close()
    return r


def replayed(r):
    return r.header("idempotency-replayed") == "true"


def content(r):
    """What of an answer does not depend on how its text was cut into events."""
    if r.header("content-type") == "application/json":
        return r.json
    data = [l[6:] for l in r.text.split("\n") if l.startswith("data: {")]
    events = [strict_json(d) for d in data]
    text = "".join(c.get("text") or (c.get("delta") or {}).get("content") or ""
                   for e in events if "type" not in e for c in e.get("choices", ()))
    text += "".join(e["text"] for e in events if e.get("type") == "output_text.delta")
    text += "".join(e["delta"] if isinstance(e["delta"], str) else e["delta"].get("text", "")
                    for e in events if e.get("delta") and "text" not in e)
    usage = [e.get("usage") for e in events if e.get("usage")]
    ids = sorted({str(e.get("id", "")).split(":")[0] for e in events} |
                 {e[k]["id"] for e in events for k in ("message", "response") if k in e})
    kinds = [e.get("type") for e in events]
    return text, usage[-1:], ids, kinds[0], kinds[-1], r.text.count("[DONE]")


def only(server, rid, n=1):
    """So many rows has a request's key in the ledger; ids of answers that were told again have none."""
    def rows():
        return [r for r in server.rows() if r["request_id"].startswith(rid)]
    until(rows)
    return len(rows()) == n


@test
def the_finished_answer_again_in_every_shape_at_every_frontend():
    with Server(TINY, frontends=2) as s:
        at = [s.conn_at(p) for p in s.processes()["frontend"]]
        for n, (name, (path, body)) in enumerate(SHAPES.items()):
            first = ask(s, path, body, key(f'"k {n}"', f"shape-{n}-0"), at[0])
            check(first.status == 200 and not replayed(first), f"{name}: the first", first.status)
            for i, conn in enumerate(at):
                r = ask(s, path, body, key(f'"k {n}"', f"shape-{n}-{i + 1}"), conn)
                check(r.status == 200 and replayed(r), f"{name}: told again by {i}", r.status, r.text[:200])
                equal(content(r), content(first), f"{name}: the same")
                equal(r.header("x-tokenring-stream"), first.header("x-tokenring-stream"), f"{name}: its id")
            check(only(s, f"shape-{n}-"), f"{name}: one row", s.rows())
        check(until(lambda: s.metric("streams") == s.metric("streams_held")), "nothing else is left")


@test
def of_many_at_once_one_is_admitted():
    with Server(SLOW, frontends=2) as s:
        body = dict(ASK, messages=WORDS, max_tokens=60, ignore_eos=True)
        at = [s.conn_at(p) for p in s.processes()["frontend"] for _ in range(4)]
        for i, c in enumerate(at):
            c.send(request("POST", CHAT, body, key("one", f"many-{i}")))
        got = [c.response() for c in at]
        firsts = [r for r in got if r.status == 200 and not replayed(r)]
        equal(len(firsts), 1, "one is worked on")
        for r in got:
            if r.status == 409:
                check(is_error(r, 409, "Idempotency-Key", "idempotency_key_in_use") and
                      r.header("x-should-retry") == "false", "the others: in use", r.text)
            else:
                equal(text_of(r), text_of(firsts[0]), "or its answer")
        check(any(r.status == 409 for r in got), "it ran while they asked")
        check(only(s, "many-"), "one row")
        equal(s.metric("published_tokens_total"), 60, "nothing was computed twice")


@test
def a_stream_that_runs_is_in_use_and_one_that_was_left_is_not():
    with Server(SLOW, frontends=2) as s:
        body = dict(ASK, prompt="x", max_tokens=2000, ignore_eos=True)
        a = s.conn()
        a.send(request("POST", NATIVE, body, key("left")))
        equal(a.head()[0], 200, "it begins")
        equal(ask(s, NATIVE, body, key("left")).status, 409, "it runs")
        a.reset()
        check(until(lambda: s.metric('streams_ended_total{reason="client_disconnected"}') == 1), "cancelled")
        short = dict(body, max_tokens=5)
        r = ask(s, NATIVE, short, key("left"))
        check(r.status == 200 and not replayed(r), "as if it had never been, whatever is asked for", r.status)


@test
def another_request_with_the_key_is_refused():
    with Server(TINY) as s:
        path, body = SHAPES["completions"]
        equal(ask(s, path, body, key("k")).status, 200, "the first")
        others = [(path, dict(body, seed=8), []), (path, dict(body, stream=True), []),
                  (CHAT, SHAPES["chat"][1], []), (path, body, ["Accept: text/plain"])]
        for where, what, more in others:
            r = ask(s, where, what, key("k") + more)
            check(r.status == 422 and r.error["code"] == "idempotency_key_reused", "another", r.status, r.text)
        r = ask(s, path, body, key('"k"'))
        check(r.status == 200 and replayed(r), "quotes are not part of the key", r.status)


@test
def what_cannot_have_one():
    with Server(TINY) as s:
        good = dict(ASK, prompt="x")
        for v in ('""', '"a', 'a b', '"a"b"', '"\\n"', "x" * 256, '"é"', "a\r\nIdempotency-Key: b"):
            r = ask(s, COMP, good, [f"Idempotency-Key: {v}"])
            check(is_error(r, 400, "Idempotency-Key"), f"{v!r:.30}", r.status, r.text)
        for more in (dict(n=2), dict(logprobs=1), dict(prompt=["a", "b"])):
            r = ask(s, COMP, dict(good, **more), key("k"))
            check(is_error(r, 400, "Idempotency-Key"), f"{more}", r.status, r.text)
        for v in ("x" * 255, '"a \\"b\\" \\\\"'):
            equal(ask(s, COMP, good, [f"Idempotency-Key: {v}"]).status, 200, f"{v!r:.20}")
    with Server(TINY, idempotency_s=0) as s:
        for _ in range(2):
            r = ask(s, COMP, dict(good, n=2), ["Idempotency-Key: a b"])
            check(r.status == 200 and not replayed(r), "--idempotency-s 0: ignored", r.status)


@test
def a_key_is_that_of_one_api_key():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        keys = {name: f"tr-{name}-0123456789" for name in ("ann", "ben")}
        json.dump({"keys": [dict(name=n, sha256=hashlib.sha256(k.encode()).hexdigest()) for n, k in keys.items()]}, f)
        f.flush()
        with Server(TINY, frontends=2, api_keys=f.name) as s:
            path, body = SHAPES["completions"]
            got = {n: ask(s, path, body, key("k") + [f"Authorization: Bearer {k}"]) for n, k in keys.items()}
            check(all(r.status == 200 and not replayed(r) for r in got.values()), "each has its own", got)
            for n, k in keys.items():
                r = ask(s, path, body, key("k") + [f"X-Api-Key: {k}"])
                check(replayed(r), f"{n}: told again")
                equal(content(r), content(got[n]), f"{n}: its own answer")


@test
def an_answer_that_is_told_again_uses_nothing():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"keys": [dict(name="ann", tokens_per_min=1000,
                                 sha256=hashlib.sha256(b"tr-ann-0123456789").hexdigest())]}, f)
        f.flush()
        with Server(TINY, frontends=2, api_keys=f.name) as s:
            for path, body in SHAPES["completions"], SHAPES["chat, streamed"]:
                got = [ask(s, path, body, key(path) + ["Authorization: Bearer tr-ann-0123456789"]) for _ in range(3)]
                check(replayed(got[1]) and replayed(got[2]), f"{path}: told again", got)
                left = [int(r.header("x-ratelimit-remaining-tokens")) for r in got]
                check(left[1] < left[0], f"{path}: the first one is charged", left)
                check(left[2] >= left[1], f"{path}: the second is not", left)


@test
def over_http2_and_grpc():
    """And where one head is that of many requests, it is nobody's."""
    with Server(TINY, frontends=2, grpc_port=0) as s:
        path, body = SHAPES["chat"]
        first = ask(s, path, body, key("k"))
        for _ in range(2):
            session = frames.Session(s.port)
            f = session.request([(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
                                 ("content-type", "application/json"), ("idempotency-key", "k")],
                                body=json.dumps(body).encode())
            f.wait(f.over)
            check(f.header(":status") == "200" and f.header("idempotency-replayed") == "true", "HTTP/2", f.headers)
            equal(strict_json(f.data.decode()), first.json, "HTTP/2: the same")
            session.close()
        one = dict(max_tokens=8, seed=7)

        def infer(sampling, method="ModelInfer"):
            session = frames.Session(oip.port_of(s))
            m, status, text = oip.unary(session, oip.INFER + method, oip.infer_request("x", one | sampling),
                                        headers=[("idempotency-key", "g")])
            session.close()
            return m, status, text
        got = [infer({}) for _ in range(3)]
        check(got[0][1] == 0 and all(g[0] == got[0][0] for g in got), "gRPC: the same, its ids too", got)
        equal(infer(dict(seed=8))[1], oip.INVALID_ARGUMENT, "gRPC: another request")
        for seed in (7, 8):
            equal(infer(dict(seed=seed), "ModelStreamInfer")[1], 0, "a call of many requests: ignored")


@test
def a_new_engine_knows_the_keys():
    with Server(SLOW, frontends=2) as s:
        path, body = SHAPES["chat, streamed"]
        first = ask(s, path, body, key("done", "engine-0"))
        long = dict(ASK, prompt="x", max_tokens=200, ignore_eos=True)
        running = s.conn()
        running.send(request("POST", COMP, long, key("runs", "runs-0")))
        check(until(lambda: s.metric("published_tokens_total") > 10), "it runs")
        os.kill(s.processes()["engine"][0], signal.SIGKILL)
        r = ask(s, COMP, long, key("runs"))
        equal(r.status, 409, "it still runs: it goes on in the next engine")
        r = ask(s, path, body, key("done"))
        check(r.status == 200 and replayed(r), "the finished one", r.status)
        equal(content(r), content(first), "is the same")
        got = running.response()
        equal(content(ask(s, COMP, long, key("runs"))), content(got), "then this one too")
        check(only(s, "engine-") and only(s, "runs-"), "one row each")


@test
def a_dead_frontends_answers_are_told_by_others():
    with Server(SLOW, frontends=2) as s:
        path, body = SHAPES["messages"]
        victim, other = s.processes()["frontend"]
        at = s.conn_at(victim)
        first = ask(s, path, body, key("done", "front-0"), at)
        long = dict(ASK, prompt="x", max_tokens=2000, ignore_eos=True)
        at.send(request("POST", COMP, long, key("runs", "lost-0")))
        check(until(lambda: s.metric("published_tokens_total") > 20), "it runs")
        os.kill(victim, signal.SIGKILL)
        check(until(lambda: s.metric("streams_held") == 1), "given to another")
        for _ in range(2):
            r = ask(s, path, body, key("done"))
            check(r.status == 200 and replayed(r), "the finished one", r.status)
            equal(content(r), content(first), "is the same")
        check(until(lambda: s.metric('streams_ended_total{reason="frontend_lost"}') == 1), "lost")
        r = ask(s, COMP, dict(long, max_tokens=3), key("runs"))
        check(r.status == 200 and not replayed(r), "what ran begins anew", r.status)
        check(only(s, "front-"), "one row")


@test
def a_background_response_is_told_as_it_stands():
    with Server(SLOW, frontends=2) as s:
        body = dict(model=MODEL, input="x", max_output_tokens=30, background=True)
        got = [ask(s, RESPONSES, body, key("b", f"back-{i}")).json for i in range(3)]
        check(len({r["id"] for r in got}) == 1, "one response", got)
        check(until(lambda: ask(s, RESPONSES, body, key("b")).json["status"] not in ("queued", "in_progress")),
              "its end is told too")
        check(only(s, "back-"), "one row")


@test
def kept_answers_give_way():
    with Server(TINY, frontends=1, hold_slots=16) as s:  # of four areas
        path, body = SHAPES["chat"]
        for i in range(6):
            equal(ask(s, path, body, key(f"w{i}")).status, 200, f"w{i}")
        check(until(lambda: s.metric("streams_held") == 4), "four are kept", s.metric("streams_held"))
        told = [replayed(ask(s, path, body, key(f"w{i}"))) for i in (5, 4, 3, 2)]
        equal(told, [True] * 4, "the youngest")
        check(not replayed(ask(s, path, body, key("w0"))), "the oldest begins anew")
    with Server(TINY, frontends=1, idempotency_s=0.2) as s:
        ask(s, path, body, key("k"))
        check(until(lambda: s.metric("streams_held") == 0), "its time is over")
        check(not replayed(ask(s, path, body, key("k"))), "it begins anew")


main()
