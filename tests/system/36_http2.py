# SPDX-License-Identifier: Apache-2.0
"""HTTP/2: the same answers as on HTTP/1, streams that stall only themselves, and clients that abuse it."""
import frames
from frames import (CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS,
                    INTERNAL_ERROR, NO_ERROR, PING, PREFACE, PROTOCOL_ERROR, REFUSED_STREAM, RST_STREAM, SETTINGS,
                    Session, frame, hpack)
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
A = 97  # of the small vocabulary
BUFFER, EVENT = 16 << 10, 6 * 8200  # unsent bytes at which framing stops, and the event that comes beyond them
S = None


def head(method, path, *more, authority="localhost"):
    out = [(":method", method), (":scheme", "http"), (":path", path)]
    return out + ([(":authority", authority)] if authority else []) + list(more)


def post(session, path, body, *more, **kw):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return session.request(head("POST", path, ("content-type", "application/json"), *more), body=data, **kw)


def whole(flow, limit=300):
    """Waits for the end: (status, fields, body)."""
    flow.wait(lambda: False, limit)
    with flow.session.news:
        return int(flow.header(":status") or 0), dict(flow.headers or []), flow.data


def events(data):
    return [x if x == "[DONE]" else strict_json(x) for x in
            (b[6:] for b in data.decode().split("\n\n") if b.startswith("data: "))]


def text(data):
    return "".join(c["text"] for e in events(data) if e != "[DONE]" for c in e["choices"])


def closes(session, code, claim):
    """The connection ends with GOAWAY and this code, or one of these, and others are served."""
    check(session.wait(lambda: session.gone), f"{claim}: closed")
    check(session.goaway and session.goaway[1] in (code if isinstance(code, tuple) else (code,)), f"{claim}: told why", session.goaway)
    equal(S.get("/health").status, 200, f"{claim}: the service goes on")


def sound(session, claim):
    equal(session.broken, [], f"{claim}: no rule was broken")
    session.close()


@test
def same_answers():
    """Status, fields, body of every kind of request are those of HTTP/1."""
    h = Session(S.port)
    asks = [("GET", "/", None), ("HEAD", "/", None), ("GET", "/health", None), ("GET", "/v1/models", None), ("HEAD", "/health", None),
            ("GET", "/nope", None), ("PUT", "/health", None), ("OPTIONS", COMP, None),
            ("GET", "/v1/models/no%2Fmodel", None), ("BREW", "/health", None),
            ("POST", COMP, {"prompt": 1.5}), ("POST", COMP, b"{"), ("POST", "/tokenize", {"content": "abc"}),
            ("POST", COMP, completion("x", max_tokens=8, seed=1)),
            ("POST", CHAT, chat("x", max_tokens=8, seed=1))]
    flows = []
    for method, path, body in asks:
        if body is None:
            flows.append(h.request(head(method, path)))
        else:
            flows.append(post(h, path, body))
    vary = re.compile(r'("id": ?"[^"]*"|"created": ?\d+|[a-z]+-\d+-\d+-[0-9a-f]{16})')
    for (method, path, body), f in zip(asks, flows):
        want = S.ask(method, path, body)
        status, fields, data = whole(f)
        claim = f"{method} {path} {str(body)[:20]}"
        equal(status, want.status, f"{claim}: status")
        names = set(want.headers) - {"connection"}
        equal(set(fields) - {":status"}, names, f"{claim}: the same fields")
        equal([fields.get(k) for k in ("content-type", "allow", "content-length")],
              [want.header(k) for k in ("content-type", "allow", "content-length")], f"{claim}: their values")
        equal(vary.sub("", data.decode()), vary.sub("", want.text), f"{claim}: body")
    tag = S.get("/").header("etag")
    status, fields, data = whole(h.request(head("GET", "/", ("if-none-match", tag))))
    equal((status, fields.get("etag"), fields.get("content-length"), data), (304, tag, None, b""), "the page again: 304, without a body")
    sound(h, "same answers")


@test
def same_streams():
    """Events of streams are those of HTTP/1; many at once on one connection, each whole and in order."""
    h = Session(S.port)
    body = completion("x", max_tokens=60, seed=7, temperature=1.0, ignore_eos=True, stream=True)
    want = S.stream(COMP, body).rest()
    flows = [post(h, COMP, dict(body, seed=7 + i % 2), ("x-request-id", f"h2-{i}")) for i in range(40)]
    for i, f in enumerate(flows):
        status, fields, data = whole(f)
        ev = events(data)
        check(f.ended and f.reset is None and status == 200, f"{i}: ended well", f.reset, status)
        check(fields["content-type"].startswith("text/event-stream") and fields["x-accel-buffering"] == "no" and
              fields["incremental"] == "?1" and fields["x-request-id"] == f"h2-{i}", f"{i}: head", fields)
        if i % 2 == 0:
            check(ev[-1] == "[DONE]" and len(ev) == len(want.events) + 1, f"{i}: events", len(ev), len(want.events))
            equal(text(data), want.text(), f"{i}: text")
    row = until(lambda: (r := S.row("h2-3")) and r["delivered_tokens"] and r) or S.row("h2-3")
    check(row and row["status"] == "incomplete" and row["completion_tokens"] == 60 and
          row["delivered_tokens"] == 60 and row["first_byte_at"], "the row is as of HTTP/1", row)
    sound(h, "same streams")


@test
def heads():
    """What a head may not say: answered 4xx, or the stream is reset; the connection goes on."""
    h = Session(S.port)
    big = "x" * 9000
    answered = [
        ([*head("GET", "/health", ("host", "other"))], 400), (head("GET", "/%zz"), 400), (head("GET", "/" + "a" * 8300), 414),
        (head("GET", "/health", *((f"a{i}", big) for i in range(4))), 431),
        (head("GET", "/health", *((f"a{i}", "") for i in range(120))), 431),
        (head("GET", "/health", ("host", "localhost")), 200),
        (head("GET", "/health", ("host", "localhost"), authority=None), 200),
        (head("GET", "/health", ("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers")), 200),
        (head("GET", "/health", ("content-encoding", "gzip")), 415),
        (head("GET", "/health", ("expect", "tea")), 417),
        (head("OPTIONS", "*"), 204)]
    malformed = [
        head("GET", "/health", ("connection", "close")), head("GET", "/health", ("transfer-encoding", "chunked")),
        head("GET", "/health", ("te", "gzip")), head("GET", "/health", ("Accept", "x")),
        head("GET", "/health", ("a", "b\r\nc: d")), head("GET", "/health", ("a", "b\0c")),
        head("GET", "/health", ("content-length", "5")), head("GET", "/health")[1:],
        head("GET", "/health", (":path", "/livez")), [("a", "b"), *head("GET", "/health")],
        head("GET", "/health", (":status", "200")), head("GET", ""),
        head("GET", "/he alth"), head("GET", "/health", authority="a b"), head("CONNECT", "/")]
    for fields, status in answered:
        f = h.request(fields)
        got, _, data = whole(f)
        equal(got, status, f"{fields[2:4]}")
        check(status < 400 or "error" in strict_json(data.decode()), f"{fields[2:4]}: told why", data)
    for fields in malformed:
        f = h.request(fields)
        got = whole(f)[0]
        check(f.reset == PROTOCOL_ERROR or got == 400, f"malformed: {fields}"[:200], f.reset, got)
    equal(whole(h.request(head("GET", "/health")))[0], 200, "the connection goes on")
    sound(h, "heads")


@test
def bodies():
    """Bodies with and without a length, in pieces, too long, not as long as they say, too slow."""
    with Server(TINY, max_body=100000, body_timeout_s=0.5, ledger=False) as s:
        h = Session(s.port)
        body = json.dumps(completion("x", max_tokens=3)).encode()
        for more in ([], [("content-length", str(len(body)))]):
            f = post(h, COMP, b"", *more, end=False)
            for i in range(0, len(body), 7):
                f.send(body[i:i + 7], i + 7 >= len(body))
            equal(whole(f)[0], 200, f"in pieces {more}")
        f = post(h, COMP, body, end=False)
        h.send(frame(HEADERS, END_HEADERS | END_STREAM, f.number, hpack([("x-trailer", "1")])))
        equal(whole(f)[0], 200, "ended by trailers")
        f = post(h, COMP, body, ("expect", "100-continue"))
        equal((whole(f)[0], len(f.informational)), (200, 1), "100-continue")
        big = completion("x" * 90000, max_tokens=1)
        equal(whole(post(h, COMP, big))[0], s.post(COMP, big).status, "more than a window")
        f = post(h, COMP, b"", ("content-length", "200000"), end=False)
        until(lambda: f.reset is not None)
        equal((whole(f)[0], f.ended, f.reset), (413, True, NO_ERROR), "refused before it came")
        f = post(h, "/v1/nothing", b"", ("content-length", "9"), end=False)
        equal(whole(f)[0], 404, "answered before its body")
        f.send(b"123456789", True)
        check(h.ping() and f.reset is None, "little is awaited: no reset for clients to trip over", f.reset)
        f = post(h, COMP, b"", end=False)
        with contextlib.suppress(ConnectionError):
            for _ in range(30):
                f.send(b" " * 8000)
        until(lambda: f.reset is not None)
        equal((whole(f)[0], f.ended, f.reset), (413, True, NO_ERROR), "what is too long is stopped")
        for size in (3, 300):
            f = post(h, COMP, b"x" * 30, ("content-length", str(size)))
            f.wait(lambda: False, 60)
            equal(f.reset, PROTOCOL_ERROR, f"30 bytes that say {size}")
        f = post(h, COMP, b"{", end=False)
        until(lambda: f.reset is not None)
        equal((whole(f)[0], f.reset), (408, NO_ERROR), "one that does not come")
        equal(whole(post(h, COMP, body))[0], 200, "the connection goes on")
        sound(h, "bodies")


@test
def stalled_stream_stalls_itself():
    """A stream whose window is shut parks its request; its neighbours end; it goes on when opened."""
    with Server(TINY, write_deadline_s=0, sim_step_us=200) as s:
        ask = completion("x", max_tokens=1500, seed=11, temperature=1.0, ignore_eos=True, stream=True)
        want = s.stream(COMP, ask).rest().text()
        h = Session(s.port, window=20000)
        stalled = post(h, COMP, ask, ("x-request-id", "stalled"), credit=False)
        check(until(lambda: s.metric("requests_parked") == 1, 120), "it is parked", s.metrics())
        # The gauge is written a few times a second.
        pending = until(lambda: s.metric('buffered_bytes{layer="pending"}')) or 0
        check(0 < pending <= BUFFER + EVENT, "its unsent bytes are bounded", pending)
        equal(stalled.received, 20000, "the window was used and kept")
        flows = [post(h, COMP, ask) for _ in range(3)]
        for f in flows:
            equal(text(whole(f)[2]), want, "a neighbour's text is whole")
        equal(s.metric("requests_parked"), 1, "the stalled one still stands")
        stalled.credit = True
        stalled.open_window(1 << 20)
        equal(text(whole(stalled)[2]), want, "then it goes on, byte for byte")
        check(until(lambda: s.row("stalled")["delivered_tokens"] == 1500), "and was delivered", s.row("stalled"))
        sound(h, "stalled")


@test
def slow_clients():
    """A window that stays shut, a stream's or the connection's: slow_client, and only that stream ends."""
    with Server(TINY, write_deadline_s=1, sim_step_us=200) as s:
        h = Session(s.port, window=0)
        ask = force(A, prompt="x", max_tokens=4000, stream=True)
        f = post(h, COMP, ask, ("x-request-id", "shut"), credit=False)
        plain = post(h, COMP, completion("x", max_tokens=4), credit=False)
        for x, claim in ((f, "a stream"), (plain, "a whole answer")):
            check(x.wait(lambda: x.reset is not None, 120), f"{claim}: reset", x.reset)
            check(not x.ended and x.reset in (CANCEL, INTERNAL_ERROR), f"{claim}: cut", x.reset)
        row = s.row("shut", 120)
        check(row and (row["status"], row["reason"]) == ("cancelled", "slow_client"), "the row", row)
        equal(whole(h.request(head("HEAD", "/health")))[0], 200, "the connection lives")
        sound(h, "slow clients")
        check(s.idle(), "nothing is left")


@test
def reset_cancels():
    """RST_STREAM cancels in every phase, and only its stream; so does the end of the connection."""
    with Server(TINY, max_seqs=2, sim_step_us=4000, sim_prefill_us=200) as s:
        h = Session(s.port)
        free = s.kv_free()
        ask = force(A, max_tokens=8000, stream=True, prompt="x")

        def cancelled(flow, rid):
            flow.cancel()
            row = s.row(rid)
            check(row and (row["status"], row["reason"]) == ("cancelled", "client_disconnected") and
                  row["disconnect_at"], f"{rid}: the row", row)

        two = [post(h, COMP, ask, ("x-request-id", f"run-{i}")) for i in range(2)]
        for f in two:
            check(f.wait(lambda f=f: f.received > 600), "it runs")
        queued = post(h, COMP, ask, ("x-request-id", "queued"))
        check(until(lambda: s.metric("requests_waiting") == 1), "one waits")
        cancelled(queued, "queued")
        cancelled(two[0], "run-0")
        for rid, more in (("whole", {"prompt": "x"}), ("prefill", {"stream": True, "prompt": [70] * 4000})):
            check(until(lambda: s.metric("requests_running") == 1), f"{rid}: there is room")
            f = post(h, COMP, force(A, max_tokens=4000, **more), ("x-request-id", rid))
            check(until(lambda: s.metric("requests_running") == 2), f"{rid}: it runs")
            cancelled(f, rid)
        n = two[1].received
        check(two[1].wait(lambda: two[1].received > n + 2000), "the neighbour goes on")
        h.abort()
        row = s.row("run-1")
        check(row and row["reason"] == "client_disconnected", "the connection is reset: the row", row)
        check(s.idle(), "nothing runs")
        equal(s.kv_free(), free, "KV blocks are back")
        equal(h.broken, [], "no rule was broken")


@test
def half_closed():
    """A FIN lets a stream go on to its end, and cancels what is not streamed."""
    with Server(TINY, sim_step_us=2000) as s:
        h = Session(s.port)
        f = post(h, COMP, force(A, max_tokens=200, stream=True, prompt="x"))
        g = post(h, COMP, force(A, max_tokens=4000, prompt="x"), ("x-request-id", "whole"))
        check(f.wait(lambda: f.received > 600) and until(lambda: s.metric("requests_running") == 2), "both run")
        h.sock.shutdown(socket.SHUT_WR)
        row = s.row("whole")
        check(row and row["reason"] == "client_disconnected", "what is not streamed is cancelled", row)
        status, _, data = whole(f)
        equal((status, len(text(data)), f.ended), (200, 200, True), "the stream is whole")
        check(h.wait(lambda: h.gone), "then the connection ends")
        check(g.reset not in (None, NO_ERROR), "the cancelled one shows as cut", g.reset)


@test
def drain():
    """SIGTERM: GOAWAY in two steps, what is open ends well, the process ends with 0."""
    s = Server(TINY, sim_step_us=2000)
    h, idle = Session(s.port), Session(s.port)
    equal(whole(idle.request(head("GET", "/health")))[0], 200, "a connection is idle")
    f = post(h, COMP, force(A, max_tokens=600, stream=True, prompt="x"), ("x-request-id", "drained"))
    check(f.wait(lambda: f.received > 600), "a stream runs")
    s.child.send_signal(signal.SIGTERM)
    for x in (h, idle):
        check(x.wait(lambda x=x: x.goaway), "GOAWAY came")
    check(idle.wait(lambda: idle.gone), "the idle one ends")
    status, _, data = whole(f)
    equal((status, len(text(data)), f.ended, events(data)[-1]), (200, 600, True, "[DONE]"), "the stream is whole")
    check(h.wait(lambda: h.gone) and not h.reset, "then the connection ends by FIN")
    equal((h.goaways, h.goaway[:2]), (2, (1, NO_ERROR)), "the second GOAWAY names the last stream")
    equal(s.wait_exit(), 0, "exit status")
    row = s.row("drained")
    check(row and row["completion_tokens"] == 600, "the row", row)
    s.stop()
    for x in (h, idle):
        sound(x, "drain")


@test
def cut_shows():
    """A stream that is cut does not look whole."""
    with Server(TINY, sim_step_us=2000, frontends=1) as s:
        h = Session(s.port)
        f = post(h, COMP, force(A, max_tokens=4000, stream=True, prompt="x"))
        check(f.wait(lambda: f.received > 600), "a stream runs")
        os.kill(s.pids["frontend"][0], signal.SIGKILL)
        check(h.wait(lambda: h.gone), "the connection ends")
        check(not f.ended, "without END_STREAM")


@test
def floods():
    """More frames than work: GOAWAY with ENHANCE_YOUR_CALM, others are served."""
    def flood(make, claim, code=ENHANCE_YOUR_CALM, n=40):
        h = Session(S.port)
        for i in range(n):
            h.send(make(i))
            if h.gone:
                break
        closes(h, code, claim)
        h.close()

    flood(lambda i: frame(PING, 0, 0, b"12345678") * 1000, "PING")
    flood(lambda i: frame(SETTINGS, 0, 0) * 1000, "SETTINGS")
    flood(lambda i: frame(frames.PRIORITY, 0, 1, b"\0\0\0\0\1") * 1000, "PRIORITY")

    def rapid(i):
        ids = range(1 + i * 400, 1 + (i + 1) * 400, 2)
        ask = hpack(head("GET", "/health"))
        return b"".join(frame(HEADERS, END_HEADERS | END_STREAM, k, ask) +
                        frame(RST_STREAM, 0, k, struct.pack(">I", CANCEL)) for k in ids)
    # The library counts resets by its clock and we count frames by ours: who is first depends on the time.
    flood(rapid, "rapid reset", code=(INTERNAL_ERROR, ENHANCE_YOUR_CALM))

    def empty(i):
        first = frame(HEADERS, END_HEADERS, 1, hpack(head("POST", COMP))) if i == 0 else b""
        return first + frame(DATA, 0, 1) * 1000
    flood(empty, "empty DATA")

    h = Session(S.port)
    h.send(frame(HEADERS, END_STREAM, 1, hpack(head("GET", "/health"))))
    for i in range(20):
        h.send(frame(CONTINUATION, 0, 1, hpack([(f"a{i}", "b")])))
    check(h.wait(lambda: h.gone), "CONTINUATION: closed", h.goaway)
    h.close()
    S.alive("floods", None)


@test
def many_streams():
    """More streams at once than the connection may have, before the client can know, and after."""
    with Server(TINY, max_seqs=4, max_queue=400, sim_step_us=1000) as s:
        ask = json.dumps(force(A, max_tokens=4000, stream=True, prompt="x")).encode()
        h = Session(s.port)
        check(h.wait(lambda: frames.MAX_CONCURRENT_STREAMS in h.settings), "settings came", h.settings)
        most = h.settings[frames.MAX_CONCURRENT_STREAMS]
        flows = [post(h, COMP, ask) for _ in range(most)]
        check(until(lambda: s.metric("requests_running") == 4), "they are served")
        post(h, COMP, ask)
        check(h.wait(lambda: h.gone), "one more, though the client knew: the connection ends")
        check(h.goaway and h.goaway[1] == PROTOCOL_ERROR, "told why", h.goaway)
        check(s.idle(), "and all of it is cancelled")
        fields = hpack(head("POST", COMP, ("content-type", "application/json")))
        with contextlib.closing(s.conn()) as c:
            c.send(PREFACE + frames.settings(enable_push=0) +
                   b"".join(frame(HEADERS, END_HEADERS, 1 + 2 * i, fields) for i in range(most + 3)))
            refused = [frame(RST_STREAM, 0, 1 + 2 * i, struct.pack(">I", REFUSED_STREAM)) for i in range(most + 3)]
            while refused[-1] not in c.buf and c.more():
                pass
            equal([i for i, x in enumerate(refused) if x in c.buf], list(range(most, most + 3)),
                  "too many, and it could not know: these are refused")
        equal(len(flows), most, "limit")


@test
def clocks():
    """Heads that do not end, connections that say nothing, silence that a PING breaks."""
    with Server(TINY, header_timeout_s=0.5, keepalive_s=0.7, heartbeat_s=0.2, sim_step_us=2000000) as s:
        h = Session(s.port)
        h.send(frame(HEADERS, 0, 1, hpack(head("GET", "/health"))))
        check(h.wait(lambda: h.gone), "a head that does not end")
        h = Session(s.port, hello=False)
        h.send(PREFACE[:20])
        check(h.wait(lambda: h.gone), "a preface that does not end")
        h = Session(s.port)
        check(h.wait(lambda: h.gone), "no request")
        h = Session(s.port)
        equal(whole(h.request(head("HEAD", "/health")))[0], 200, "one request")
        check(h.wait(lambda: h.gone), "then nothing")
        equal(h.goaway and h.goaway[1], NO_ERROR, "is ended politely")
        h = Session(s.port)
        f = post(h, COMP, completion("x", max_tokens=2))
        check(f.wait(lambda: h.pings >= 2), "a long silence", h.pings)
        equal(whole(f)[0], 200, "then the answer")
        sound(h, "clocks")


@test
def prefaces():
    """The preface in any pieces; what only looks like one."""
    with contextlib.closing(S.conn()) as c:
        for b in PREFACE + frames.settings(enable_push=0) + frame(PING, 0, 0, b"12345678"):
            c.send(bytes([b]))
            time.sleep(0.002)
        while frame(PING, frames.ACK, 0, b"12345678") not in c.buf and c.more():
            pass
        check(c.buf.endswith(frame(PING, frames.ACK, 0, b"12345678")), "byte by byte", c.buf)
    for data, claim in ((b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "another end"), (PREFACE + b"\0" * 9, "no SETTINGS first"),
                        (PREFACE + b"GET / HTTP/1.1\r\n\r\n" * 3, "HTTP/1 behind it")):
        out = S.raw(data)
        check(not re.search(rb"HTTP/1\.1 2", out), f"{claim}: closed", out[:80])
    for data in (b"\r\n" + PREFACE, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" + PREFACE, b"PRI * HTTP/3.0\r\n\r\n",
                 b"PRIX * HTTP/2.0\r\n\r\n"):
        out = S.raw(data)
        check(b"HTTP/1.1 505 " in out or b"HTTP/1.1 400 " in out, f"{data[:20]}: no preface", out[-200:])
    S.alive("prefaces", None)


@test
def resumed():
    """A stream that loses its connection goes on over another one."""
    with Server(TINY, sim_step_us=3000) as s:
        h = Session(s.port)
        ask = completion("x", logit_bias={str(A): 100}, max_tokens=300, on_disconnect="hold")
        f = post(h, NATIVE, ask)
        check(f.wait(lambda: f.data.count(b"output_text.delta") > 5), "it runs")
        name = f.header("x-tokenring-stream")
        h.abort()
        h = Session(s.port)
        g = h.request(head("GET", f"/v1/streams/{name}"))
        status, _, data = whole(g)
        equal((status, data.count(b'"a"')), (200, 300), "all of it, again")
        sound(h, "resumed")


if __name__ == "__main__":
    S = Server(TINY)
    main()
