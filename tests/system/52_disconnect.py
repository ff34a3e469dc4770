# SPDX-License-Identifier: Apache-2.0
"""A client that leaves stops its work before the next forward pass, whatever it is in: P3 by counts of
passes, tokens and prompt rows, never by the clock.  Passes take so long that one more would show."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
A = 97  # of the small vocabulary
AFTER, PASSES, ROWS = "tokens_after_disconnect_total", "step_seconds_count", "step_rows_total"
WAYS = ("close", "reset")
PATHS = (COMP, NATIVE)


def leave(conn, way):
    if way == "shut":
        conn.sock.shutdown(socket.SHUT_WR)
    else:
        getattr(conn, way)()


def ask(server, path, body, rid, rcvbuf=0, stream=True):
    body = dict(body, stream=stream) if path != NATIVE else dict(body)
    c = server.conn(rcvbuf=rcvbuf)
    c.send(request("POST", path, body, [f"X-Request-Id: {rid}"]))
    if stream:
        equal(c.head()[0], 200, f"{rid}: admitted")
    return c


def gone(server, rid, claim, tokens=None):
    """It ended as left, its KV is back, and its slot too."""
    row = server.row(rid)
    check(row and (row["status"], row["reason"]) == ("cancelled", "client_disconnected") and
          row["disconnect_at"] <= row["cancel_ack_at"], f"{claim}: the row", row)
    if row and tokens is not None:
        equal(row["completion_tokens"], tokens, f"{claim}: tokens")
    check(server.idle(), f"{claim}: KV is free", server.metrics())
    return row


def left_at_a_stop(server, conn, way):
    """The client leaves while the engine stands still, in a pass or between two, until its frontend has
    seen it: whatever is computed afterwards was computed for nobody.  Rows of passes at that moment."""
    engine = server.pids["engine"][0]
    os.kill(engine, signal.SIGSTOP)
    try:
        rows = server.metric(ROWS)
        check(until(lambda: server.metric("streams") == 1), "a frontend has it")
        leave(conn, way)
        check(until(lambda: server.metric("streams") == 0), "which has seen its end")
    finally:
        os.kill(engine, signal.SIGCONT)
    return rows


@test
def queue():
    with Server(TINY, max_seqs=1, sim_step_us=100_000) as s:
        for path in PATHS:
            for way in WAYS + ("whole shut", "whole reset"):
                rid = f"queue{path}-{way}".replace(" ", "-")
                whole = way.startswith("whole")
                if whole and path == NATIVE:
                    continue
                other = ask(s, COMP, force(A, prompt="x", max_tokens=8000), rid + "-other", stream=False)
                check(until(lambda: s.metric("requests_running") == 1), f"{rid}: the place is taken")
                c = ask(s, path, force(A, prompt="x", max_tokens=50), rid, stream=not whole)
                check(until(lambda: s.metric("requests_waiting") == 1), f"{rid}: waits")
                leave(c, way.split()[-1])
                check(until(lambda: s.metric("requests_waiting") == 0), f"{rid}: waits no more")
                equal(s.metric("requests_running"), 1, f"{rid}: while the other one runs")
                other.reset()
                row = gone(s, rid, rid, 0)
                check(row and row["first_token_at"] is None, f"{rid}: never worked on", row)


@test
def prefill():
    """4,096 prompt tokens are 16 passes; which one runs is told by response.prefill."""
    with Server(TINY, max_seqs=4, sim_step_us=0, sim_prefill_us=400, prefill_chunk=256, prefix_cache="off") as s:
        for way in WAYS:
            rid = f"prefill-{way}"
            rows = s.metric(ROWS)
            c = ask(s, NATIVE, force(A, prompt=[70] * 4096, max_tokens=50), rid)
            done = 0
            while done < 512:
                for _, kind, e in native_events(c.chunk()):
                    done = e["done"] if kind == "response.prefill" else done
            passed = left_at_a_stop(s, c, way)
            gone(s, rid, rid, 0)
            # The pass that ran is the last.
            check(512 <= done <= passed - rows and s.metric(ROWS) - passed <= 256,
                  f"{rid}: rows computed", done, passed - rows, s.metric(ROWS) - passed)
            check(s.metric(ROWS) - rows < 4096, f"{rid}: not the whole prompt", s.metric(ROWS) - rows)
        rid = "prefill-whole-shut"
        rows = s.metric(ROWS)
        c = ask(s, COMP, force(A, prompt=[70] * 4096, max_tokens=50), rid, stream=False)
        check(until(lambda: s.metric(ROWS) >= rows + 256), f"{rid}: it runs")
        passed = left_at_a_stop(s, c, "shut")
        gone(s, rid, rid, 0)
        check(s.metric(ROWS) - passed <= 256 and s.metric(ROWS) - rows < 4096, f"{rid}: rows computed",
              passed - rows, s.metric(ROWS) - rows)


@test
def decode():
    with Server(TINY, max_seqs=8, sim_step_us=60_000) as s:
        for way in WAYS + ("whole shut", "whole reset", "n 4 close", "n 4 reset"):
            for path in PATHS:
                whole, n = way.startswith("whole"), 4 if way.startswith("n") else 1
                if path == NATIVE and whole:
                    continue
                rid = f"decode{path}-{way}".replace(" ", "-")
                before = s.metrics()
                more = {"n": n} if n > 1 else {}
                c = ask(s, path, force(A, prompt="x", max_tokens=2000, **more), rid, stream=not whole)
                check(until(lambda: s.metric("published_tokens_total") >=
                            before["published_tokens_total"] + 3 * n), f"{rid}: it decodes")
                leave(c, way.split()[-1])
                row = gone(s, rid, rid)
                after = s.metrics()
                # Each choice may have had a row in the one pass that ran.
                check(after[AFTER] - before[AFTER] <= n, f"{rid}: tokens after the end was seen",
                      after[AFTER] - before[AFTER])
                check(row and row["completion_tokens"] < 100 * n, f"{rid}: tokens in all", row)
                equal(after["abort_seconds_count"] - before["abort_seconds_count"], n, f"{rid}: timed")


@test
def parked():
    """While nothing can be written to it and nothing is read from it."""
    with Server(TINY, max_seqs=4, sim_step_us=300, write_deadline_s=0) as s:
        for path in PATHS:
            for way in WAYS:
                rid = f"parked{path}-{way}"
                c = ask(s, path, force(A, prompt="x", max_tokens=8000, logprobs=5), rid, rcvbuf=4096)
                check(until(lambda: s.metric("requests_parked") == 1), f"{rid}: parked")
                check(s.metric('kv_blocks{state="used"}') > 0, f"{rid}: it still has its KV")
                before = s.metrics()
                leave(c, way)
                gone(s, rid, rid)
                after = s.metrics()
                equal((after[AFTER] - before[AFTER], after[PASSES] - before[PASSES]), (0, 0),
                      f"{rid}: no pass was made for it")


@test
def finalisation():
    """While the end waits for the ledger: its stream is let go at once, and its reason stays."""
    with Server(TINY, max_seqs=4, sim_step_us=300, ledger_wait_ms=600_000) as s:
        ledger = s.pids["ledger"][0]
        for path in PATHS:
            for way in WAYS + ("whole shut", "whole reset"):
                whole = way.startswith("whole")
                if whole and path == NATIVE:
                    continue
                rid = f"final{path}-{way}".replace(" ", "-")
                os.kill(ledger, signal.SIGSTOP)
                passes = s.metric(PASSES)
                c = ask(s, path, force(A, prompt="x", max_tokens=20), rid, stream=not whole)
                check(until(lambda: s.metric("published_tokens_total") % 20 == 0 and
                            s.metric(PASSES) > passes and s.metric("requests_running") == 0),
                      f"{rid}: it has ended")
                check(until(lambda: s.metric("streams") == 1), f"{rid}: its client is not told yet")
                leave(c, way.split()[-1])
                check(until(lambda: s.metric("streams") == 0), f"{rid}: let go")
                os.kill(ledger, signal.SIGCONT)
                row = s.row(rid)
                check(row and (row["reason"], row["completion_tokens"]) == ("length", 20),
                      f"{rid}: the row", row)
                check(until(lambda: s.metric('slots{state="ended"}') == 0), f"{rid}: its slot is back")
        equal(s.metric("streams_without_terminal_total"), 0, "nobody who was there was left untold")


if __name__ == "__main__":
    main()
