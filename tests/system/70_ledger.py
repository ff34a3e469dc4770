# SPDX-License-Identifier: Apache-2.0
"""The ledger: one row for each admitted request, what was really generated, durable before the end
is told, in groups; nothing for what was refused."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
AB, E_ACUTE = 369, 2756
COLUMNS = {"request_id", "stream_id", "key", "model", "status", "reason", "created_at",
           "first_token_at", "finished_at", "choices", "prompt_tokens", "cached_tokens",
           "completion_tokens", "overrun_tokens", "last_token", "disconnect_at", "cancel_ack_at",
           "first_byte_at", "delivered_tokens", "closed_at"}


def deliveries(s):
    """Rows of which is known what became of their bytes."""
    return [r for r in s.rows() if r["delivered_tokens"] is not None]


@test
def columns():
    with Server() as s:
        t0 = time.time()
        st = s.stream(CHAT, dict(chat("Hi"), **force(AB, max_tokens=7, stream=True)),
                      headers=["X-Request-Id: one"]).rest()
        row = s.row("one")
        equal(set(row), COLUMNS, "columns of a row")
        check(row["model"] == MODEL and row["status"] == "incomplete" and row["reason"] == "length" and
              row["choices"] == 1 and row["prompt_tokens"] == 31 and row["cached_tokens"] == 0 and
              row["completion_tokens"] == 7 and row["overrun_tokens"] == 0 and
              row["last_token"] == AB and row["disconnect_at"] is None and
              row["cancel_ack_at"] is None and row["stream_id"] == st.id, "a completed stream", row)
        check(t0 - 5 < row["created_at"] <= row["first_token_at"] <= row["finished_at"] <
              time.time() + 5, "times are seconds since 1970 and in order", row)
        s.post(COMP, force(2, prompt="x"), headers=["X-Request-Id: eos"])
        row = s.row("eos")
        check((row["status"], row["reason"], row["completion_tokens"], row["last_token"]) ==
              ("completed", "stop", 1, 2), "an end of turn counts as a token", row)
        s.post(COMP, force(AB, prompt=["x", "y z"], n=2, max_tokens=3, stop="abab"),
               headers=["X-Request-Id: group"])
        row = s.row("group")
        check((row["choices"], row["prompt_tokens"], row["completion_tokens"], row["reason"]) ==
              (4, 3, 8, "stop_string"), "all choices in one row", row)
        s.post(COMP, force(AB, prompt="x", max_tokens=9, stop_token_ids=[AB]),
               headers=["X-Request-Id: stopid"])
        row = s.row("stopid")
        check(row["completion_tokens"] == 1 and row["status"] == "completed", "a stop id", row)
        r = s.post(COMP, force(AB, prompt="x", max_tokens=2))
        check(s.row(r.header("x-request-id")), "a made request id is in the header and the row")
        d = until(lambda: {x["request_id"]: x for x in deliveries(s)}.get("one"))
        check(d and d["delivered_tokens"] == 7 and row and d["closed_at"] and
              d["first_byte_at"], "the delivery record", d)


@test
def abandoned_streams():
    """Case B24: left streams are billed for what was decoded, once each; sums equal the counters."""
    with Server(max_seqs=16) as s:
        start = s.metrics()
        ids = [f"left-{i}" for i in range(10)]
        # 20 events are awaited one by one, so the engine is at most a window ahead.
        streams = [s.stream(COMP, force(E_ACUTE, prompt="a b", max_tokens=2000, stream=True),
                            headers=[f"X-Request-Id: {i}"]).read(20) for i in ids]
        for i, st in enumerate(streams):
            (st.conn.close if i % 2 else st.conn.reset)()
        early = s.conn()
        early.send(request("POST", COMP, force(E_ACUTE, prompt=[81] * 3000, max_tokens=2000,
                                               stream=True), ["X-Request-Id: early"]))
        early.head()
        early.reset()
        whole = s.conn()
        whole.send(request("POST", COMP, force(E_ACUTE, prompt="x", max_tokens=8000),
                           ["X-Request-Id: whole"]))
        until(lambda: s.metrics()["requests_running"] > 0)
        whole.close()
        equal(s.post(COMP, force(E_ACUTE, prompt="x", max_tokens=5),
                     headers=["X-Request-Id: good"]).status, 200, "one completes")
        for rid in ids:
            row = s.row(rid)
            check(row and row["prompt_tokens"] == 2 and 20 <= row["completion_tokens"] <= 2000 and
                  row["status"] == "cancelled" and row["reason"] == "client_disconnected" and
                  row["last_token"] == E_ACUTE and row["disconnect_at"] <= row["cancel_ack_at"],
                  f"{rid}: its row", row)
        row = s.row("early")
        check(row and row["prompt_tokens"] == 3000 and row["status"] == "cancelled", "left early", row)
        row = s.row("whole")
        check(row and row["status"] == "cancelled" and row["completion_tokens"] < 8000,
              "left, not streamed", row)
        check(s.idle(), "idle")
        rows, m = s.rows(), s.metrics()
        equal(len(rows), 13, "13 rows")
        equal(len({r["request_id"] for r in rows}), 13, "one for each id")
        for kind, column in (("prompt", "prompt_tokens"), ("completion", "completion_tokens"),
                             ("overrun", "overrun_tokens")):
            key = f'tokens_total{{kind="{kind}"}}'
            equal(sum(r[column] for r in rows), int(m[key] - start[key]),
                  f"rows and the engine's counter agree on {kind} tokens")
        d = until(lambda: len(deliveries(s)) == 13 and deliveries(s))
        check(d, "a delivery record for each", len(deliveries(s)))
        by = {x["request_id"]: x for x in d or []}
        bill = {r["request_id"]: r for r in rows}
        check(all(by[i]["delivered_tokens"] <= bill[i]["completion_tokens"] for i in by),
              "nobody got more than was decoded")
        # The window of 256, and what one pass of the frontend had taken from the ring.
        check(all(bill[i]["completion_tokens"] - by[i]["delivered_tokens"] <= 256 + 64 for i in ids),
              "nor was much more decoded than was sent", [(bill[i]["completion_tokens"], by[i]) for i in ids])
        m = s.metrics()
        equal((m["ledger_rows_total"], m["ledger_lag_seconds"], m["ledger_unconfirmed_total"]),
              (13, 0, 0), "the ledger's own figures")


@test
def told_and_then_killed():
    """Case B26: everything dies at the moment a client has read [DONE]; its row is there, whole and once,
    after the next start, and nobody has one who was not answered, unless it says so."""
    told, running = [], []
    path = os.path.join(tempfile.mkdtemp(prefix="tokenring-test-"), "ledger.db")
    rounds = 30 if LONG else 6
    for turn in range(rounds + 1):
        last = turn == rounds  # several that end together
        s = Server(TINY, ledger=path, sim_step_us=1000, ledger_wait_ms=60000, max_seqs=16)
        try:
            equal(sorted(r["request_id"] for r in s.rows() if r["request_id"] in told), sorted(told),
                  "every earlier row is there once")
            ids = [f"told-{turn}-{i}" for i in range(8 if last else 1)]
            long = s.stream(COMP, force(97, prompt="x", max_tokens=4000, stream=True),
                            headers=[f"X-Request-Id: running-{turn}"]).read(1)
            running.append(f"running-{turn}")
            streams = [s.stream((COMP, CHAT)[turn % 2], dict(
                force(97, max_tokens=5, stream=True), **(chat("x") if turn % 2 else completion("x"))),
                headers=[f"X-Request-Id: {i}"]) for i in ids]

            def until_done(st):
                while not st.done:
                    st.next()
            if last:
                together([lambda st=st: until_done(st) for st in streams])
            else:
                until_done(streams[0])
            s.kill_all()
            told += [i for i, st in zip(ids, streams) if st.done]
            equal(len([st for st in streams if st.done]), len(ids), "each was told its end")
            for st in [*streams, long]:
                st.close()
        finally:
            s.stop()
    with Server(TINY, ledger=path) as s:
        rows = s.rows()
        names = [r["request_id"] for r in rows]
        equal(sorted(n for n in names if n in told), sorted(told), "each end that was told has its row, once")
        equal(len(names), len(set(names)), "no row twice")
        check(all(set(r) == COLUMNS and r["completion_tokens"] == 5 and r["status"] == "incomplete"
                  for r in rows if r["request_id"] in told), "whole")
        others = [r for r in rows if r["request_id"] not in told]
        check(all(r["request_id"] in running and r["status"] in ("error", "cancelled") for r in others),
              "rows of others say that they were cut", others)
        s.alive("after all these deaths", None)
    print(f"    {len(told)} ends told, then killed: {sum(n in told for n in names)} rows")


@test
def durable_before_told():
    """The end a client sees is in the file at that moment, and the wait is bounded and counted."""
    with Server(ledger_wait_ms=60000) as s:
        for i in range(20):
            rid = f"now-{i}"
            if i % 2:
                s.post(COMP, force(AB, prompt="x", max_tokens=2), headers=[f"X-Request-Id: {rid}"])
            else:
                st = s.stream(COMP, force(AB, prompt="x", max_tokens=2, stream=True),
                              headers=[f"X-Request-Id: {rid}"])
                while not st.finishes():
                    st.next()
            equal(sum(r["request_id"] == rid for r in s.rows()), 1, f"{rid}: in the file when told")
            if not i % 2:
                st.rest()
        os.kill(s.pids["ledger"][0], signal.SIGSTOP)
        st = s.stream(COMP, force(AB, prompt="x", max_tokens=5, stream=True)).read(5)
        equal(st.text(), "ab" * 5, "tokens never wait for the ledger")
        ready, _, _ = select.select([st.conn.sock], [], [], 1)
        check(not ready, "the terminal event does")
        os.kill(s.pids["ledger"][0], signal.SIGCONT)
        st.rest()
        equal(st.finishes(), ["length"], "and comes when the record is durable")
    with Server(ledger_wait_ms=200) as s:
        os.kill(s.pids["ledger"][0], signal.SIGSTOP)
        st = s.stream(COMP, force(AB, prompt="x", max_tokens=5, stream=True)).rest()
        equal(st.finishes(), ["length"], "--ledger-wait-ms bounds the wait")
        check(s.metrics()["ledger_unconfirmed_total"] >= 1, "which is counted")
        os.kill(s.pids["ledger"][0], signal.SIGCONT)
        check(until(lambda: len(s.rows()) == 1), "the row comes afterwards")


@test
def backlog():
    """A ledger that stands still: slots wait for their records, new requests get ledger_backlog,
    and when it goes on every row is there."""
    with Server(max_seqs=4, max_queue=4, max_streams=16, ledger_wait_ms=10, sim_step_us=100) as s:
        os.kill(s.pids["ledger"][0], signal.SIGSTOP)
        served, last = 0, None
        for i in range(20000):
            last = s.post(COMP, force(AB, prompt="x", max_tokens=1), headers=[f"X-Request-Id: b{i}"])
            if last.status != 200:
                break
            served += 1
        check(is_error(last, 503, code="ledger_backlog") and last.header("retry-after"),
              "no room for records: 503 ledger_backlog", served, last.text)
        equal(s.get("/health").status, 200, "readiness is not about the ledger")
        check(until(lambda: s.metric("ledger_lag_seconds") > 0), "the lag is told")
        os.kill(s.pids["ledger"][0], signal.SIGCONT)
        check(until(lambda: s.post(COMP, force(AB, prompt="x", max_tokens=1)).status == 200),
              "it goes on")
        check(until(lambda: len(s.rows()) >= served + 1), "every row is there", len(s.rows()), served)
        ids = [r["request_id"] for r in s.rows()]
        equal(len(ids), len(set(ids)), "once each")
        check(until(lambda: s.metric("ledger_lag_seconds") == 0), "no lag is left")


@test
def off():
    with Server(ledger=False) as s:
        equal(s.pids["ledger"], [], "no ledger process")
        st = s.stream(COMP, force(AB, prompt="x", max_tokens=50, stream=True)).rest()
        equal((st.text(), st.done), ("ab" * 50, 1), "streams end without it")
        check(s.idle() and s.get("/metrics").status == 200, "and slots come back")


if __name__ == "__main__":
    main()
