# SPDX-License-Identifier: Apache-2.0
"""Deaths of the engine (case B07, the stronger outcome): nobody loses a byte, whatever it was that died and
whenever; usage and rows are those of an undisturbed run; a request that crashes the engine is found."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
COLD = {"temperature": 0}
SPICE = {"temperature": 1.0, "top_p": 0.9, "frequency_penalty": 0.4, "presence_penalty": 0.2,
         "logit_bias": {"70": 3, "90": -20}}
N = 40
# A signal that is sent is no finding of a sanitizer's.
os.environ["ASAN_OPTIONS"] = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), "handle_segv=0")))


def kinds():
    """(path, body) of every kind of answer that a stop of the engine could spoil."""
    long = [81 + i % 40 for i in range(300)]
    base = {"model": MODEL, "max_tokens": N, "min_tokens": N // 2}
    return [
        (COMP, dict(base, prompt="one", stream=True, stream_options={"include_usage": True}, **COLD)),
        (COMP, dict(base, prompt="two", seed=11, stream=True, **SPICE)),
        (COMP, dict(base, prompt="three", seed=12, n=2, **SPICE)),
        (COMP, dict(base, prompt="four", seed=13, logprobs=3, stream=True, **SPICE)),
        (COMP, dict(base, prompt=long, echo=True, logprobs=2, stream=True, **COLD)),
        (COMP, dict(base, prompt=long, echo=True, logprobs=1, **COLD)),
        (COMP, dict(base, prompt=["five", "six"], n=2, seed=14, stream=True, **SPICE)),
        (COMP, dict(base, prompt="seven", seed=15, stop=["e", "☃"], stream=True, **SPICE)),
        (COMP, dict(base, prompt="seven", seed=15, stop=["e", "☃"], **SPICE)),
        (CHAT, dict(base, messages=[{"role": "user", "content": "eight"}], stream=True, **COLD)),
        (CHAT, dict(base, messages=[{"role": "user", "content": "nine"}], seed=16, logprobs=True,
                    top_logprobs=2, **SPICE)),
        (NATIVE, dict(base, prompt="ten", seed=17, **SPICE)),
        (NATIVE, dict(base, prompt="eleven", ignore_eos=True, **COLD)),
    ]


def answer(s, path, body, rid):
    """What a client has of it in the end, without what depends on time."""
    headers = [f"X-Request-Id: {rid}"]
    c = s.conn()
    try:
        c.send(request("POST", path, body, headers))
        if not (body.get("stream") or path == NATIVE):
            r = c.response()
            return (r.status, [{k: v for k, v in x.items()} for x in r.json.get("choices", [r.json])],
                    r.json.get("usage"))
        c.head()
        data = b""
        while (ch := c.chunk()):
            data += ch
    finally:
        c.close()
    if path == NATIVE:
        ev = [e for _, _, e in native_events(data) if "id" in e]
        for e in ev:
            e["id"] = e["id"].rsplit(":", 1)[1]
            e.pop("created", None)
        return [e for e in ev if e["type"] != "response.started"]
    out = {}
    for line in data.decode().split("\n"):
        if not line.startswith("data: {"):
            continue
        e = json.loads(line[6:])
        if "error" in e:
            return e
        for ch in e["choices"]:
            at = out.setdefault(ch["index"], {"text": "", "finish": [], "lp": {}})
            at["text"] += ch.get("text") or ch.get("delta", {}).get("content") or ""
            at["finish"] += [ch["finish_reason"]] if ch.get("finish_reason") else []
            for k, v in (ch.get("logprobs") or {}).items():  # however they were cut into events
                at["lp"].setdefault(k, []).extend(v or [])
        if e.get("usage"):
            out["usage"] = e["usage"]
    return out, data.count(b"[DONE]")


def counted(s, ids):
    """Billing columns of these requests, one row each."""
    rows = [r for r in s.rows() if r["request_id"] in ids]
    return {r["request_id"]: [r[k] for k in ("status", "reason", "choices", "prompt_tokens",
                                             "completion_tokens")] for r in rows}, len(rows)


def all_of(s, tag):
    return together([lambda p=p, b=b, i=i: answer(s, p, b, f"{tag}-{i}") for i, (p, b) in enumerate(kinds())])


@test
def at_any_moment_by_any_signal():
    with Server(dict(TINY, sim_step_us=2000), frontends=2, max_seqs=8, max_queue=32, sim_prefill_us=10,
                prefill_chunk=64, kv_memory="64K") as s:
        free = s.kv_free()
        want = all_of(s, "want")
        check(all(not isinstance(a, Exception) for a in want), "undisturbed", want)
        before = s.metrics()
        rnd = random.Random(66)
        rounds = int(os.environ.get("TOKENRING_TEST_ROUNDS", 60 if LONG else 6))
        deaths = 0
        for turn in range(rounds):
            stop = threading.Event()

            def killer():
                nonlocal deaths
                own = [signal.SIGSEGV, signal.SIGABRT][turn % 2]  # twice on one request would be a proof
                at = rnd.randrange(3)
                while not stop.wait(0.03 + rnd.random() * 0.12):
                    for p in s.processes()["engine"]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(p, own if at == 0 else signal.SIGKILL)
                            deaths, at = deaths + 1, at - 1
            t = threading.Thread(target=killer, daemon=True)
            t.start()
            got = all_of(s, f"got{turn}")
            stop.set()
            t.join(WAIT)
            for i, (g, w) in enumerate(zip(got, want)):
                same = g == w or [(a, b) for a, b in zip(repr(g).split("'"), repr(w).split("'")) if a != b]
                check(same is True, f"round {turn}: answer {i} is the undisturbed one", same)
        check(deaths >= rounds, "engines died", deaths)
        check(s.idle(), "nothing is left", s.metrics())
        check(until(lambda: s.kv_free() == free), "KV blocks are whole", s.kv_free())
        rows, n = counted(s, {f"want-{i}" for i in range(len(want))})
        for turn in range(rounds):
            ids = {f"got{turn}-{i}" for i in range(len(want))}
            check(until(lambda: counted(s, ids)[1] == len(want)), "one row each")
            mine, n = counted(s, ids)
            equal((n, [mine.get(f"got{turn}-{i}") for i in range(len(want))]),
                  (len(want), [rows[f"want-{i}"] for i in range(len(want))]), "rows tell the same")
        after = s.metrics()
        for name in ('tokens_total{kind="prompt"}', 'tokens_total{kind="completion"}'):
            equal(after[name], before[name] * (rounds + 1), f"{name} is counted once")
        equal(after["streams_without_terminal_total"], 0, "no live socket without its terminal event")
        s.pids = s.processes()
        s.alive("many deaths", None)


@test
def one_that_crashes_it():
    """Among many: it ends with engine_crashed, all others as if it had not been there."""
    with Server(max_seqs=16, max_queue=16, sim_step_us=1000, faults=True) as s:
        def ask(i, **kw):
            return completion(f"number {i}", temperature=1, seed=1000 + i, max_tokens=40, min_tokens=40, **kw)
        want = together([lambda i=i: text_of(s.post(COMP, ask(i))) for i in range(24)])
        before = s.metrics()
        s.faults.arm("engine.pass.sequence", "segv", left=ALWAYS, match=1007)
        got = together([lambda i=i: s.post(COMP, ask(i), headers=[f"X-Request-Id: c{i}"])
                        for i in range(24)])
        check(is_error(got[7], 500, code="engine_crashed"), "the guilty one", got[7].status, got[7].text)
        equal([text_of(r) for i, r in enumerate(got) if i != 7], [t for i, t in enumerate(want) if i != 7],
              "all others have their answers")
        fired = s.faults.fired("engine.pass.sequence")
        check(2 <= fired <= 7, "found by halves: 16, 8, 4, 2, 1, 1", fired)
        st = s.stream(COMP, ask(7, stream=True), headers=["X-Request-Id: again"]).rest()
        equal(([e["code"] for e in st.errors()], st.finishes(), st.done), (["engine_crashed"], [], 1),
              "streamed and by itself: the same")
        equal(s.faults.fired("engine.pass.sequence"), fired + 2, "two deaths are enough")
        for rid in ("c7", "again"):
            row = s.row(rid)
            check(row and (row["status"], row["reason"]) == ("error", "engine_crashed"), "its row", row)
        m = s.metrics()
        equal(m['streams_ended_total{reason="engine_crashed"}'] - before['streams_ended_total{reason="engine_crashed"}'],
              2, "counted")
        s.faults.disarm()
        equal(text_of(s.post(COMP, ask(7))), want[7], "it was the request, not the server")
        s.pids = s.processes()
        s.alive("a request that crashes the engine")


@test
def one_that_hangs_it():
    """An engine that stands still in a pass is killed, and that is evidence too."""
    with Server(max_seqs=4, engine_stall_s=2, sim_step_us=1000, faults=True) as s:
        other = s.stream(COMP, completion("x", max_tokens=60, min_tokens=60, temperature=0, stream=True))
        s.faults.arm("engine.pass.sequence", "stop", left=ALWAYS, match=77)
        bad = s.stream(COMP, completion("y", max_tokens=60, seed=77, stream=True))
        bad.rest()
        equal([e["code"] for e in bad.errors()], ["engine_crashed"], "it is found")
        other.rest()
        equal((other.finishes(), other.done, other.errors()), (["length"], 1, []), "the other one goes on")
        check("gave no sign of life" in s.log(), "why it was killed is told")


@test
def while_there_is_none():
    """Cancels, deadlines and a drain come while no engine lives: the next one finds them."""
    s = Server(max_seqs=8, sim_step_us=2000, faults=True)

    def ask(rid, **kw):
        return s.stream(COMP, completion("x", max_tokens=4000, ignore_eos=True, stream=True, **kw),
                        headers=[f"X-Request-Id: {rid}"] +
                        (["X-Request-Timeout: 3"] if rid == "late" else [])).read(1)
    begin = time.monotonic()
    gone, late = ask("gone"), ask("late")
    whole = s.stream(COMP, completion("y", max_tokens=1500, min_tokens=1500, temperature=0, stream=True),
                     headers=["X-Request-Id: whole"]).read(1)
    native = s.conn()
    native.send(request("POST", NATIVE, completion("x", max_tokens=4000, ignore_eos=True),
                        ["X-Request-Id: cancelled"]))
    stream_id = native.head()[2]["x-tokenring-stream"]
    data = native.chunk()
    check(until(lambda: s.metric("requests_running") == 4), "four are at work", s.metrics())
    s.faults.arm("supervisor.reaped", "stop")
    os.kill(s.pids["engine"][0], signal.SIGKILL)
    check(s.faults.wait_stopped("supervisor.reaped") == s.pid, "there is none")
    gone.conn.reset()
    told = []
    deleter = threading.Thread(daemon=True, target=lambda: told.append(
        s.ask("DELETE", f"{NATIVE}/{stream_id}", None)))
    deleter.start()
    time.sleep(max(0.2, begin + 3.2 - time.monotonic()))  # the deadline is in this time
    os.kill(s.pid, signal.SIGTERM)
    Faults.go_on(s.pid)
    late.rest()
    equal([e["code"] for e in late.errors()], ["deadline_exceeded"], "a deadline")
    while (c := native.chunk()):
        data += c
    deleter.join(WAIT)
    check(b"response.cancelled" in data and told and told[0].status == 200, "a cancel", data[-300:],
          told and told[0].text)
    whole.rest()
    equal((whole.finishes(), whole.done), (["length"], 1), "a drain: who is at work may finish")
    equal(s.wait_exit(), 0, "exit code 0")
    rows = {r["request_id"]: r["reason"] for r in s.rows()}
    equal(rows, {"gone": "client_disconnected", "late": "deadline_exceeded", "cancelled": "cancelled",
                 "whole": "length"}, "the rows")
    s.stop()


@test
def a_crash_loop_without_requests():
    """No request can be blamed, and none is served: a clear end.  (45_endings has one with requests.)"""
    if not LONG:
        return
    s = Server(faults=True)
    s.faults.arm("engine.news.before", "abort", left=ALWAYS)
    os.kill(s.pids["engine"][0], signal.SIGKILL)
    equal(s.wait_exit(), 1, "exit code 1")
    check("giving up" in s.log(), "and it says why", s.log()[-500:])
    s.stop()


if __name__ == "__main__":
    main()
