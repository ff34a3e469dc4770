# SPDX-License-Identifier: Apache-2.0
"""Cancellation: a client that leaves, a DELETE, a stop, a deadline; slow and silent readers.

Promptness is proved by counts: how many tokens the engine published after a frontend saw the end."""
import random

from lib import *

S = None
CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
AB, E_ACUTE, EOS = 369, 2756, 2
AFTER = "tokens_after_disconnect_total"


def long_stream(server, token=AB, n=4000, path=COMP, **kw):
    body = force(token, max_tokens=n, stream=True, **kw)
    body.update({"prompt": "x"} if path != CHAT else {"messages": chat("x")["messages"]})
    return server.stream(path, body)


def quiet_again(server, free, claim):
    """Nothing runs and every KV block is back."""
    check(server.idle(), f"{claim}: nothing runs", server.metrics())
    equal(server.kv_free(), free, f"{claim}: KV blocks are back")


def cancelled_rows(server, ids, claim, got, slack):
    """A row for each id that says client_disconnected and holds what was really decoded."""
    for i, rid in enumerate(ids):
        row = server.row(rid)
        if check(row is not None, f"{claim}: one row for {rid}"):
            check(row["status"] == "cancelled" and row["reason"] == "client_disconnected" and
                  row["disconnect_at"] and row["cancel_ack_at"] and
                  got[i] <= row["completion_tokens"] <= got[i] + slack,
                  f"{claim}: row of {rid}", got[i], row)


@test
def client_goes_in_three_ways():
    """Case B01: FIN, RST, and a client process that is killed."""
    free = S.kv_free()
    for way in ("close", "reset", "kill"):
        before = S.metrics()
        ids = [f"{way}-{random.random()}" for _ in range(8)]
        if way == "kill":
            code = ("import sys; sys.path.insert(0, %r); from lib import *\n"
                    "class P: port=%d\n"
                    "ss=[Stream(P, %r, force(%d, prompt='x', max_tokens=4000, stream=True),"
                    " headers=['X-Request-Id: '+i], conn=Conn(P.port)) for i in %r]\n"
                    "[s.read(3) for s in ss]; print('read', flush=True); time.sleep(600)\n"
                    % (os.path.dirname(os.path.abspath(__file__)), S.port, COMP, AB, ids))
            p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            equal(p.stdout.readline(), b"read\n", "the client read")
            p.kill()
            p.wait()
            p.stdout.close()
        else:
            streams = [S.stream(COMP, force(AB, prompt="x", max_tokens=4000, stream=True),
                                headers=[f"X-Request-Id: {i}"]).read(3) for i in ids]
            for st in streams:
                getattr(st.conn, way)()
        quiet_again(S, free, way)
        after = S.metrics()
        check(after[AFTER] - before[AFTER] <= 2 * 8,
              f"{way}: at most the step in flight was decoded after the end was seen",
              after[AFTER] - before[AFTER])
        equal(after['streams_ended_total{reason="client_disconnected"}'] -
              before['streams_ended_total{reason="client_disconnected"}'], 8, f"{way}: counted")
        check(after["cancelled_tokens_avoided_total"] - before["cancelled_tokens_avoided_total"] >
              8 * 1000, f"{way}: tokens avoided are counted")
        cancelled_rows(S, ids, way, [3] * 8, 2000)
    equal(S.metrics()["abort_seconds_count"] >= 24, True, "abort_seconds saw each")
    S.alive("clients gone")


@test
def in_every_phase():
    """P3 while queued, in prefill, in decode, while answering whole, with several choices."""
    with Server(max_seqs=2, sim_step_us=5000, sim_prefill_us=1500) as s:
        free = s.kv_free()

        def busy(n):
            return until(lambda: s.metrics()["requests_running"] == n)

        def gone(claim, conns, how):
            for c in conns:
                getattr(c, how)()
            quiet_again(s, free, f"{claim} ({how})")

        for how in ("close", "reset"):
            runs = [long_stream(s).read(2) for _ in range(2)]
            queued = [long_stream(s), long_stream(s, n=5)]
            for q in queued:
                equal(q.headers(), 200, "headers at admission, while queued")
            equal(until(lambda: s.metrics()["requests_waiting"] == 2), True, "two wait")
            queued[0].conn.close() if how == "close" else queued[0].conn.reset()
            check(until(lambda: s.metrics()["requests_waiting"] == 1), f"queued one is gone ({how})")
            runs[0].conn.close()
            check(len(queued[1].rest().events) == 6, "the next in the queue is served")
            gone("decode", [runs[1].conn], how)

            long = s.stream(COMP, completion([81] * 4000, max_tokens=5, stream=True))
            equal(long.headers(), 200, "headers before the prefill has ended")
            busy(1)
            gone("prefill", [long.conn], how)
            check(not long.events, "gone before the first token")

            c = s.conn()
            rid = f"whole-{how}"
            c.send(request("POST", CHAT, dict(force(AB, max_tokens=4000),
                                              messages=chat("x")["messages"]),
                           [f"X-Request-Id: {rid}"]))
            busy(1)
            gone("not streamed", [c], how)
            row = s.row(rid)
            check(row and row["status"] == "cancelled" and row["completion_tokens"] < 4000,
                  "not streamed: the row", row)

            c = s.conn()
            c.send(request("POST", CHAT, dict(force(AB, max_tokens=4000, n=4),
                                              messages=chat("x")["messages"])))
            busy(2)
            gone("four choices, not streamed", [c], how)
            four = long_stream(s, path=CHAT, n=4000)
            four.read(1)
            many = s.stream(CHAT, dict(force(AB, max_tokens=4000, n=4, stream=True),
                                       messages=chat("x")["messages"])).read(4)
            gone("n 4 in decode", [four.conn, many.conn], how)
        s.alive("cancels in every phase", 31)


@test
def half_closed_client():
    """FIN on a stream is probed: a client that only closed its sending side keeps its stream; one
    that is gone loses it.  On a request that is not streamed FIN cancels."""
    st = long_stream(S, n=60)
    st.conn.sock.shutdown(socket.SHUT_WR)
    st.rest()
    equal((st.text(), st.done), ("ab" * 60, 1), "a half-closed client gets its whole stream")
    with contextlib.closing(S.conn()) as c:
        c.send(request("POST", COMP, force(AB, prompt="x", max_tokens=4000), ["X-Request-Id: half"]))
        until(lambda: S.metrics()["requests_running"] > 0)
        c.sock.shutdown(socket.SHUT_WR)
        c.drain()
    row = S.row("half")
    check(row and row["reason"] == "client_disconnected", "not streamed: FIN cancels", row)


@test
def random_moments():
    """150 clients closed at random moments; the KV pool is back to its start each time."""
    free = S.kv_free()
    rnd = random.Random(7)
    fds = {p: fd_count(p) for p in S.pids["frontend"]}
    for turn in range(6):
        def one(i, turn=turn):
            delay = rnd.random() * (0.3 if turn % 2 else 0.03)
            way, kind = rnd.choice(["close", "reset"]), rnd.randrange(6)
            with contextlib.suppress(ConnectionResetError, EOFError):
                c = S.conn()
                body = [force(AB, prompt="x", max_tokens=3000, stream=True),
                        completion([81 + i] * rnd.randrange(1, 2000), max_tokens=500, stream=True),
                        force(AB, prompt="x", max_tokens=3000),
                        dict(force(AB, max_tokens=50, n=3, stream=True), prompt=["x", "y"]),
                        completion("word " * 8000, max_tokens=500, stream=True),  # a worker's
                        completion("word " * 8000, max_tokens=500)][kind]
                c.send(request("POST", COMP, body))
                time.sleep(delay)
                getattr(c, way)()
        together([lambda i=i: one(i) for i in range(25)])
        quiet_again(S, free, f"25 closed at random, turn {turn}")
    check(until(lambda: all(fd_count(p) <= fds[p] + 2 for p in fds)), "descriptors are back",
          fds, {p: fd_count(p) for p in fds})
    m = S.metrics()
    equal(m["streams_without_terminal_total"], 0, "no live socket without its terminal event")
    S.alive("random closes")


@test
def many_resets():
    """Case B29 and B02 (a): resets before, in and after the answer."""
    rnd = random.Random(3)
    free = S.kv_free()

    def one(i):
        with contextlib.suppress(OSError, EOFError):
            c = S.conn()
            data = request("POST", COMP, force(AB, prompt="x", max_tokens=rnd.choice([1, 20, 400]),
                                               stream=True))
            c.send(data[:data.index(b"\r\n\r\n") + 4] if i % 10 == 0 else data)
            delay = rnd.random() * (0.3 if LONG else 0.1)
            if i % 3:
                time.sleep(delay)
            elif i % 10:
                Stream.read(_reader(c), 2)
            c.reset()

    fds = {p: fd_count(p) for p in S.all_pids()}
    for _ in range(40 if LONG else 8):
        together([lambda i=i: one(i) for i in range(50)])
    quiet_again(S, free, "resets")
    pids = S.all_pids()
    check(until(lambda: _close_wait(S.port) == 0), "no socket in CLOSE_WAIT", _close_wait(S.port))
    check(until(lambda: all(abs(fd_count(p) - n) <= 2 for p, n in fds.items())), "descriptors are back", fds,
          {p: fd_count(p) for p in fds})
    span = 5 if LONG else 2
    spent = sum(cpu_seconds(p) for p in pids)
    time.sleep(span)
    spent = sum(cpu_seconds(p) for p in pids) - spent
    check(spent < (0.1 if SANITIZED else 0.03) * span, "an idle service does nothing", spent)
    print(f"    idle: {100 * spent / span:.1f} % of a processor")
    S.alive("resets")


def _reader(c):
    """A stream over a connection whose request has been sent."""
    st = Stream.__new__(Stream)
    st.conn, st.response, st.status, st.head = c, None, None, None
    st.events, st.times, st.comments, st.done, st.ended, st.chunks = [], [], 0, 0, False, []
    return st


def _close_wait(port):
    n = 0
    with open("/proc/net/tcp", encoding="ascii") as f:
        for line in f.readlines()[1:]:
            fields = line.split()
            n += fields[3] == "08" and int(fields[1].split(":")[1], 16) == port
    return n


def streamed_text(server, ask):
    return server.stream(CHAT, dict(ask, stream=True)).rest().text()


@test
def held_text_stays_with_its_request():
    """Case B02 (b): text held back for a dead request never reaches the next one."""
    with Server(max_seqs=1, max_queue=4, max_streams=8, frontends=1, ledger=False, sim_step_us=300) as s:
        want = text_of(s.post(CHAT, chat("Hi", temperature=0, max_tokens=8)))
        held = [(AB, dict(stop=["ababababX"])), (AB, dict(stop=["ab" * 300 + "X"])),  # all of it is held back
                (10813, {}),  # half a character
                (10813, dict(stop=["\ufffd\ufffd\ufffdX"])), (AB, dict(stop=["babX"], logprobs=True))]
        for token, more in held:
            wrong = []
            for i in range(50 if more is held[0][1] else 8):
                a = long_stream(s, token=token, path=CHAT, **more)
                a.read(1 if len(more.get("stop", [""])[0]) > 600 else 3)
                a.conn.reset()
                ask = chat("Hi", temperature=0, max_tokens=8)
                b = streamed_text(s, ask) if i % 2 else text_of(s.post(CHAT, ask))
                wrong += [b] if b != want else []
            equal(wrong, [], f"the next answer on the slot is its own: {token} {str(more)[:40]}")
        s.alive("held text")


@test
def delete_by_id():
    """DELETE /v1/streams/{id} through either frontend ends the stream with its terminal event."""
    free = S.kv_free()
    for path in (NATIVE, COMP, CHAT):
        for turn in range(4):  # the stream at one frontend, the DELETE at the same or the other
            a, b = S.pids["frontend"][turn % 2], S.pids["frontend"][turn // 2]
            body = dict(force(AB, max_tokens=6000, stream=True),
                        **({"messages": chat("x")["messages"]} if path == CHAT else {"prompt": "x"}))
            with contextlib.closing(S.conn_at(a)) as c, contextlib.closing(S.conn_at(b)) as other:
                c.send(request("POST", path, body, [f"X-Request-Id: del-{path}-{turn}"]))
                status, _, head = c.head()
                sid = head["x-tokenring-stream"]
                data = c.chunk() + c.chunk()
                other.send(request("DELETE", f"/v1/streams/{sid}"))
                r = other.response()
                while (ch := c.chunk()):
                    data += ch
            check(r.status == 200 and r.json["status"] == "cancelled" and
                  r.json["reason"] == "cancelled" and r.json["id"] == sid, "DELETE answers", r.text)
            row = S.row(f"del-{path}-{turn}")
            # Also when the slot serves somebody else before the other frontend looks.
            check(row and row["status"] == "cancelled" and row["reason"] == "cancelled" and
                  row["completion_tokens"] == r.json["completion_tokens"] and
                  r.json["last_token"] == row["completion_tokens"] - 1 and
                  row["disconnect_at"] is None, "its row", row, r.text)
            if path == NATIVE:
                ev = native_events(data)
                check([t for _, t, _ in ev[-2:]] == ["usage", "response.cancelled"] and
                      ev[-1][2]["reason"] == "cancelled" and
                      ev[-2][2]["usage"]["completion_tokens"] == row["completion_tokens"] and
                      ev[-1][2]["last_token"] == row["completion_tokens"] - 1,
                      "native: usage, response.cancelled", ev[-2:], row)
                n = sum(e["tokens"] for _, t, e in ev if t == "output_text.delta")
                equal(n, row["completion_tokens"], "every token up to the acknowledgement was sent")
            else:
                blocks = data.decode().strip().split("\n\n")
                err = json.loads(blocks[-2][6:])
                check(blocks[-1] == "data: [DONE]" and err["error"]["code"] == "cancelled" and
                      "finish_reason\":\"" not in data.decode(), "bare: error chunk, [DONE]", blocks[-2:])
    quiet_again(S, free, "DELETE")
    r = S.ask("DELETE", f"/v1/streams/{sid}", None)
    check(r.status in (200, 404), "DELETE of an ended stream", r.status, r.text)
    for bad in ("x", "st-0-1-0000000000000000", sid[:-1] + ("0" if sid[-1] != "0" else "1"),
                "st-99999999-1-0000000000000000", "a" * 300, "%20"):
        equal(S.ask("DELETE", f"/v1/streams/{bad}", None).status, 404, f"DELETE {bad[:30]}")
    S.alive("DELETE")


@test
def deadlines():
    """A per-request deadline ends the stream with the code; queue time counts."""
    for headers, extra in (([], {"timeout_s": 0.3}), (["X-Request-Timeout: 0.3"], {})):
        st = S.stream(COMP, force(AB, prompt="x", max_tokens=8000, stream=True, **extra),
                      headers=headers).rest()
        check([e["code"] for e in st.errors()] == ["deadline_exceeded"] and st.done == 1 and
              not st.finishes(), "deadline: error chunk and [DONE]", st.events[-2:])
        r = S.post(COMP, force(AB, prompt="x", max_tokens=8000, **extra), headers=headers)
        check(is_error(r, 504, code="deadline_exceeded"), "not streamed: 504", r.status, r.text)
    for value in ("", "0", "-1", "0x10", "inf", "nan", "1e400", "5s", "5 5", "1e9", "0." + "0" * 40, "1." + "0" * 40 + "e9"):
        r = S.post(COMP, force(EOS, prompt="x"), headers=[f"X-Request-Timeout: {value}"])
        check(is_error(r, 400, "X-Request-Timeout"), f"X-Request-Timeout: {value!r}", r.status, r.text)
    for value in ("1e-10", "0.000001", "5e-324"):
        r = S.post(COMP, force(AB, prompt="x", max_tokens=8000), headers=[f"X-Request-Timeout: {value}"])
        check(is_error(r, 504, code="deadline_exceeded"), f"X-Request-Timeout: {value}", r.status, r.text)
    with Server(max_seqs=1, timeout_s=4, sim_step_us=5000, ledger=False) as s:
        a = long_stream(s).read(1)
        b = long_stream(s, timeout_s=0.2).rest()
        check([e["code"] for e in b.errors()] == ["deadline_exceeded"] and not b.text(),
              "the deadline runs in the queue", b.events)
        a.rest()
        equal([e["code"] for e in a.errors()], ["deadline_exceeded"], "--timeout-s")
    with Server(max_stream_s=0.5, ledger=False) as s:
        a = long_stream(s).rest()
        equal([e["code"] for e in a.errors()], ["deadline_exceeded"], "--max-stream-s")


@test
def stop_string_stops_the_engine():
    """The engine's overrun behind a stop string is a few tokens, and is counted apart."""
    before = S.metrics()
    r = S.post(COMP, force(AB, prompt="x", max_tokens=4000, stop="ab" * 20))
    equal(r.json["usage"]["completion_tokens"], 20, "tokens up to the stop string")
    S.idle()
    over = S.metrics()['tokens_total{kind="overrun"}'] - before['tokens_total{kind="overrun"}']
    check(over < 1000, "overrun is small", over)
    rows = S.rows()
    check(rows[-1]["completion_tokens"] == 20 and rows[-1]["overrun_tokens"] == over and
          rows[-1]["reason"] == "stop_string", "the row", rows[-1])


@test
def slow_readers():
    """Case B08: readers that do not read park their own requests and take no memory; those that
    resume lose nothing.  One normal stream beside them goes on."""
    many, length = (40, 6000) if LONG else (24, 800)
    with Server(max_seqs=64, max_queue=32, write_deadline_s=0, sim_step_us=1000) as s:
        body = force(E_ACUTE, prompt="x", max_tokens=length, stream=True, logprobs=20 if LONG else 5)
        before = sum(rss(p) for p in s.all_pids())
        stalled = [s.stream(COMP, body, rcvbuf=4096, headers=[f"X-Request-Id: slow-{i}"], wait=300)
                   for i in range(many)]
        check(until(lambda: s.metrics()["requests_parked"] == many, 120), "all are parked",
              s.metrics()["requests_parked"])
        tokens = s.metrics()['tokens_total{kind="completion"}']
        good = long_stream(s, token=E_ACUTE, n=200).rest()
        equal(good.text(), "é" * 200, "a stream beside them is whole")
        m = s.metrics()
        check(m["requests_parked"] == many and m["requests_running"] == 0 and
              m['tokens_total{kind="completion"}'] - tokens in (0, 200),
              "stalled requests are not decoded", m["requests_parked"])
        grown = sum(rss(p) for p in s.all_pids()) - before
        check(grown < 64 << 20 or SANITIZED, "memory of stalled readers", grown)
        check(m['buffered_bytes{layer="pending"}'] <= many * (64 << 10), "pending bytes are bounded",
              m['buffered_bytes{layer="pending"}'])
        late = stalled[:5]
        for st in late:  # 4 KB at a time would wait for delayed acknowledgements
            st.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        together([st.rest for st in late])
        for st in late:
            n = sum(len(c["logprobs"]["tokens"]) for e in st.events for c in e["choices"]
                    if c["logprobs"])
            check(st.text() == "é" * length and n == length and st.done == 1 and st.ended,
                  "a reader that resumes gets everything once, in order", len(st.text()), n)
        for st in stalled[5:]:
            st.conn.reset()
        check(s.idle(), "the others are gone")
        rows = [s.row(f"slow-{i}") for i in range(many)]
        check(all(r and r["completion_tokens"] == length for r in rows[:5]) and
              all(r and r["completion_tokens"] < length and r["reason"] == "client_disconnected"
                  for r in rows[5:]), "rows of slow readers", rows[:1], rows[5:7])
        s.alive("slow readers")


@test
def slow_client_is_cut():
    """Nothing could be written for --write-deadline-s: cancelled as slow_client, and the cut shows."""
    with Server(write_deadline_s=1, sim_step_us=500) as s:
        free = s.kv_free()
        st = s.stream(COMP, force(E_ACUTE, prompt="x", max_tokens=8000, stream=True, logprobs=5),
                      rcvbuf=4096, headers=["X-Request-Id: cut"])
        row = s.row("cut", 120)
        check(row and row["status"] == "cancelled" and row["reason"] == "slow_client" and
              row["completion_tokens"] < 8000, "the row", row)
        try:
            st.rest()
            whole = st.ended
        except (EOFError, ConnectionResetError, ValueError):
            whole = False
        check(not whole and not st.finishes() and not st.done, "the cut shows at the client")
        quiet_again(s, free, "slow client")
    with Server(min_drain_bps=100000, write_deadline_s=1, sim_step_us=500) as s:
        st = s.stream(COMP, force(E_ACUTE, prompt="x", max_tokens=8000, stream=True, logprobs=5),
                      rcvbuf=4096, headers=["X-Request-Id: drip"])
        st.headers()
        row = None
        for _ in range(600):
            with contextlib.suppress(OSError):
                st.conn.sock.recv(100)
            row = [r for r in s.rows() if r["request_id"] == "drip"]
            if row:
                break
            time.sleep(0.1)
        check(row and row[0]["reason"] == "slow_client", "--min-drain-bps", row)


@test
def parked_kv_gives_way():
    """The KV of parked requests is taken when a waiting one needs it, and recomputed afterwards."""
    with Server(max_seqs=8, kv_memory=128 * 300, write_deadline_s=0, sim_step_us=500) as s:
        free = s.kv_free()
        want = "é" * 1500
        body = force(E_ACUTE, prompt=[81] * 1500, max_tokens=1500, stream=True, logprobs=5)
        slow = [s.stream(COMP, body, rcvbuf=4096, wait=300) for _ in range(4)]
        check(until(lambda: s.metrics()["requests_parked"] == 4, 120), "four are parked",
              s.metrics())
        big = s.post(COMP, force(AB, prompt=[82] * 7000, max_tokens=20), wait=300)
        check(big.status == 200 and text_of(big) == "ab" * 20, "a large prompt is served meanwhile",
              big.status, big.text[:200])
        for st in slow:
            st.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        together([st.rest for st in slow])
        check(all(st.text() == want for st in slow), "the parked ones then go on, whole",
              [len(st.text()) for st in slow])
        quiet_again(s, free, "parked KV")


if __name__ == "__main__":
    S = Server(sim_step_us=1000)
    main()
