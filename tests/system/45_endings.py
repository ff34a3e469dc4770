# SPDX-License-Identifier: Apache-2.0
"""Every way a stream ends, in every framing, on HTTP/1.1 and 1.0: exactly one terminal event and
nothing after it, or a cut that shows; the connection is then as it should be, and ledger, metrics and
log tell the same reason, once."""
from lib import *
from wire import ALL, FRAMINGS, VERSIONS, Wire

AB, EOS, HALF = 369, 2, 10813
WORDS = {"response.completed", "response.incomplete", "response.cancelled", "error"}


def told(w, reason, code=None):
    """Exactly one terminal event of this kind, nothing after it, and the framing's own end."""
    claim = f"{reason}: {w}"
    natural = code is None
    if w.framing.startswith("messages"):
        return told_messages(w, claim, reason, code)
    if not w.streamed:
        r = Response(w.status, "", w.head, w.body)
        good = (r.status == 200 and r.json["choices"][0]["finish_reason"] == reason if natural
                else r.error.get("code") == code and r.status >= 400)
        check(good and w.end == "length", f"{claim}: one whole answer", w.status, w.end, w.body[:300])
        return
    want = "fin" if w.version.startswith("1.0") else "chunk"
    ev = w.events()
    check(w.status == 200 and w.end == want, f"{claim}: the framing has its end", w.end, ev[-2:])
    if w.framing in ("native", "ndjson"):
        kinds = [e["type"] for e in ev]
        last = ev[-1] if ev else {}
        word = {"stop": "response.completed", "length": "response.incomplete"}.get(
            reason, "error" if code == "engine_lost" else "response.cancelled")
        check(sum(k in WORDS for k in kinds) == 1 and kinds[-2:] == ["usage", word],
              f"{claim}: usage and one {word} at the end", ev[-3:])
        check((last.get("finish_reason") == reason) if natural else
              code in (last.get("reason"), last.get("code")), f"{claim}: its reason", last)
        ids = [int(e["id"].rsplit(":", 1)[1]) for e in ev if "id" in e]
        check(ids == sorted(set(ids)), f"{claim}: numbers rise", ids[-5:])
    else:
        objects = [e for e in ev if e != "[DONE]"]
        reasons = [c["finish_reason"] for e in objects for c in e.get("choices", ()) if c["finish_reason"]]
        errors = [e["error"]["code"] for e in objects if "error" in e]
        check(ev[-1:] == ["[DONE]"] and len(objects) == len(ev) - 1, f"{claim}: one [DONE], the last", ev[-2:])
        equal((reasons, errors), ([reason], []) if natural else ([], [code]), f"{claim}: one end")
        check(bool(objects) and ("error" in objects[-1]) == (not natural), f"{claim}: before [DONE]",
              objects[-1:])


def told_messages(w, claim, reason, code):
    """The same in Anthropic's words."""
    stops = {"stop": ("end_turn", "stop_sequence"), "length": ("max_tokens",)}.get(reason)
    if not w.streamed:
        r = Response(w.status, "", w.head, w.body)
        good = (r.status == 200 and r.json["stop_reason"] in stops if code is None
                else r.error["details"]["error_code"] == code and r.status >= 400)
        check(good and w.end == "length", f"{claim}: one whole answer", w.status, w.end, w.body[:300])
        return
    want = "fin" if w.version.startswith("1.0") else "chunk"
    ev = w.events()
    kinds = [e["type"] for e in ev if e["type"] != "ping"]
    check(w.status == 200 and w.end == want, f"{claim}: the framing has its end", w.end, ev[-2:])
    if code is None:
        check(kinds[-2:] == ["message_delta", "message_stop"] and "error" not in kinds and
              ev[-2]["delta"]["stop_reason"] in stops, f"{claim}: one end", ev[-2:])
    else:
        check(kinds[-1] == "error" and kinds.count("error") == 1 and "message_delta" not in kinds and
              ev[-1]["error"]["details"]["error_code"] == code, f"{claim}: one error, the last", ev[-2:])


def still_there(w, claim, closing=False):
    """The connection after an answer: of use where it was kept, ended by a FIN where not."""
    keeps = not closing and (w.version == "1.1" or (w.version == "1.0 kept" and not w.streamed))
    try:
        if keeps:
            w.conn.send(request("GET", "/livez"))
            equal(w.conn.response().status, 200, f"{claim}: {w}: the connection is used again")
        else:
            check(not w.conn.more(), f"{claim}: {w}: a FIN after it", w.conn.buf[:200])
    except OSError as e:
        check(False, f"{claim}: {w}: the connection ends in order", e)
    w.conn.close()


def cut(w, claim):
    """Nothing that could be taken for the end of a whole answer."""
    want = ("reset",) if w.streamed and w.version.startswith("1.0") else ("cut", "reset")
    check(w.end in want, f"{claim}: {w}: the cut shows", w.end, w.body[-300:])
    check(b"[DONE]" not in w.body and not any(x.encode() in w.body for x in WORDS - {"error"} | {"message_delta"}),
          f"{claim}: {w}: no terminal event", w.body[-300:])
    w.conn.close()


def agreed(server, wires, reason, claim, before=None):
    """Ledger, metrics and log say the same, once for each request."""
    ids = {w.rid for w in wires}

    def mine():
        return [r for r in server.rows() if r["request_id"] in ids]
    until(lambda: len(mine()) >= len(wires))
    rows = mine()
    for w in wires:
        got = [r["reason"] for r in rows if r["request_id"] == w.rid]
        equal(got, [reason], f"{claim}: {w}: its row")
    def lines():
        return sum(f" ended: {reason} (" in x and any(f"request {w.rid}," in x for w in wires)
                   for x in server.log().splitlines())
    until(lambda: lines() >= len(wires))
    equal(lines(), len(wires), f"{claim}: a line of the log for each")
    if before is not None:
        m = server.metrics()
        key = f'streams_ended_total{{reason="{reason}"}}'
        equal(m[key] - before[key], len(wires), f"{claim}: counted")
        equal(m["streams_without_terminal_total"], 0, f"{claim}: no live stream without its event")


def all_at_work(server, wires):
    """Each runs, or is parked because nobody reads it yet."""
    check(until(lambda: server.metric("requests_running") + server.metric("requests_parked") == len(wires)),
          "all are at work", server.metrics())


def every(server, body, slow=False, streamed=False):
    # Events that are made large fill what a kernel takes; Anthropic's cannot be.
    return [Wire(server, f, v, body, slow) for f in (FRAMINGS if slow else ALL) for v in VERSIONS if ALL[f][2] or not streamed]


LONG = force(AB, max_tokens=8000)
LONG_TINY = force(97, max_tokens=6000)  # large events quickly: of the small vocabulary


@test
def natural_ends():
    before = S.metrics()
    for reason, word, body in (("length", "length", force(AB, max_tokens=4)),
                               ("stop", "stop", force(EOS)),
                               ("stop", "stop_id", force(AB, max_tokens=9, stop_token_ids=[AB])),
                               ("stop", "stop_string", force(AB, max_tokens=9, stop="baba")),
                               ("stop", "stop_string", force(HALF, max_tokens=1, stop="\ufffd"))):
        before = S.metrics()
        wires = every(S, body)
        together([w.read for w in wires])
        for w in wires:
            told(w, reason)
            still_there(w, word)
        agreed(S, wires, word, f"{word} {body.get('stop', '')!r}", before)


@test
def cancelled_by_request():
    before = S.metrics()
    wires = every(S, LONG, streamed=True)
    together([w.start for w in wires])
    for w in wires:
        r = S.ask("DELETE", f"/v1/streams/{w.head['x-tokenring-stream']}", None)
        check(r.status == 200 and r.json["completion_tokens"] > 0, "DELETE", r.text)
    together([w.read for w in wires])
    for w in wires:
        told(w, "cancelled", "cancelled")
        still_there(w, "cancelled")
    agreed(S, wires, "cancelled", "cancelled", before)


@test
def deadline():
    for body, name in ((dict(LONG, timeout_s=0.4), "timeout_s"),):
        before = S.metrics()
        wires = every(S, body)
        together([w.read for w in wires])
        for w in wires:
            told(w, name, "deadline_exceeded")
            still_there(w, name)
        agreed(S, wires, "deadline_exceeded", name, before)


@test
def drain_limit():
    with Server(drain_s=0.3, sim_step_us=5000, log_level="debug") as s:
        wires = every(s, LONG)
        together([w.start for w in wires])
        all_at_work(s, wires)
        s.child.send_signal(signal.SIGTERM)
        together([w.read for w in wires])
        for w in wires:
            told(w, "drain_limit", "drain_limit")
            still_there(w, "drain_limit", closing=True)
        equal(s.wait_exit(), 0, "the drain ends well")
        agreed(s, wires, "drain_limit", "drain_limit")


@test
def drain_limit_without_the_engine():
    """An engine that stands still at the cut says nothing any more; clients are told all the same."""
    with Server(drain_s=0.3, sim_step_us=5000, log_level="debug", engine_stall_s=100) as s:
        wires = every(s, LONG)
        together([w.start for w in wires])
        all_at_work(s, wires)
        os.kill(s.pids["engine"][0], signal.SIGSTOP)
        s.child.send_signal(signal.SIGTERM)
        together([w.read for w in wires])
        for w in wires:
            told(w, "drain_limit", "drain_limit")
            w.conn.close()
        s.wait_exit()
        agreed(s, wires, "drain_limit", "drain_limit without the engine")


@test
def slow_client_that_still_reads():
    """Below --min-drain-bps, but its socket takes bytes: it is told."""
    with Server(TINY, min_drain_bps=50_000_000, write_deadline_s=1, sim_step_us=500, max_seqs=32,
                log_level="debug") as s:
        before = s.metrics()
        wires = every(s, LONG_TINY, slow=True, streamed=True)

        def told_all():
            m = s.metrics()
            return m['streams_ended_total{reason="slow_client"}'] - before[
                'streams_ended_total{reason="slow_client"}'] == len(wires)

        def drip(w):
            w.start()
            while not told_all():
                if select.select([w.conn.sock], [], [], 0)[0]:
                    w.conn.more(4096)
                time.sleep(0.05)
            w.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            return w.read()
        out = together([lambda w=w: drip(w) for w in wires])
        check(not any(isinstance(x, Exception) for x in out), "all are read", out)
        for w in wires:
            told(w, "slow_client", "slow_client")
            still_there(w, "slow_client")
        agreed(s, wires, "slow_client", "slow_client", before)


@test
def slow_client_that_does_not():
    """Nothing could be written for --write-deadline-s: cut, and it shows."""
    with Server(TINY, write_deadline_s=1, sim_step_us=500, max_seqs=32, log_level="debug") as s:
        before = s.metrics()
        wires = every(s, LONG_TINY, slow=True, streamed=True)
        agreed(s, wires, "slow_client", "write deadline", before)
        together([w.read for w in wires])
        for w in wires:
            cut(w, "write deadline")


@test
def engine_lost():
    """The last resort: no engine can be brought back, and the service ends."""
    s = Server(sim_step_us=1000, log_level="debug", faults=True)
    wires = every(s, LONG)
    together([w.start for w in wires])
    all_at_work(s, wires)
    s.faults.arm("engine.plan.made", "abort", left=ALWAYS)
    together([w.read for w in wires])
    for w in wires:
        told(w, "engine_lost", "engine_lost")
    equal(s.wait_exit(), 1, "exit code 1")
    check("giving up" in s.log(), "and it says why", s.log()[-500:])
    equal({(r["status"], r["reason"]) for r in s.rows()}, {("error", "engine_lost")}, "the rows")
    equal(len(s.rows()), len(wires), "one for each")
    s.stop()


@test
def frontend_killed():
    with Server(sim_step_us=1000, frontends=1, log_level="debug") as s:
        wires = every(s, LONG)
        together([w.start for w in wires])
        all_at_work(s, wires)
        os.kill(s.pids["frontend"][0], signal.SIGKILL)
        together([w.read for w in wires])
        for w in wires:
            cut(w, "frontend killed")
        agreed(s, wires, "frontend_lost", "frontend killed")
        check(until(lambda: len(s.processes()["frontend"]) == 1), "a new one serves")
        equal(s.metric('streams_ended_total{reason="frontend_lost"}'), len(wires), "counted")


@test
def client_gone():
    """In whatever it was: the log and the ledger say so, and nothing is counted as untold."""
    before = S.metrics()
    wires = every(S, LONG)
    together([w.start for w in wires])
    for i, w in enumerate(wires):
        (w.conn.close if i % 2 else w.conn.reset)()
    agreed(S, wires, "client_disconnected", "client gone", before)


if __name__ == "__main__":
    S = Server(sim_step_us=1000, max_seqs=64, log_level="debug")
    main()
