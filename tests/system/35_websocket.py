# SPDX-License-Identifier: Apache-2.0
"""/v1/ws: several streams on one connection, started, cancelled and resumed by messages.  Each has its
own window; who does not read parks the streams of his connection and no others; what is wrong is told
and costs the others nothing."""
from websocket import *

NATIVE = "/v1/streams"
A = 97  # of the small vocabulary
WINDOW = 256
FAST = dict(TINY, sim_step_us=500)
SLOW = dict(TINY, sim_step_us=10_000)


def body(seed=1, n=40, **kw):
    """A text that depends on the seed alone."""
    return dict(model=MODEL, prompt="x", seed=seed, temperature=1.0, max_tokens=n, ignore_eos=True, **kw)


def forever(**kw):
    """Ends only if somebody ends it."""
    return dict(model=MODEL, prompt="x", logit_bias={str(A): 100}, temperature=0, max_tokens=3000, **kw)


def undisturbed(server, ask):
    """The text and the tokens of the same request by HTTP."""
    r = server.post(NATIVE, ask)
    ev = [e for _, _, e in native_events(r.body)]
    return ("".join(e["text"] for e in ev if e["type"] == "output_text.delta"), ev[-1]["type"],
            [e["usage"]["completion_tokens"] for e in ev if e["type"] == "usage"])


def seen(w, label):
    end = w.events[label][-1]["type"]
    return w.text(label), end, [w.usage(label)["completion_tokens"]] if w.usage(label) else []


def refusal(w, label, code, param=None):
    """The error event of a message that was refused."""
    m = next((e for e in w.events.get(label, ()) if "status" in e), None) or \
        w.until(lambda e: "status" in e and e.get("stream", "") == label)
    good = m and m["type"] == "error" and m["code"] == code and m["param"] == param and m["message"]
    if m:
        w.events[label].remove(m)
    check(good, f"refused: {code} {param}", m, w.closed, w.why)
    return m


@test
def handshakes():
    """Good ones, and for each field what is answered when it is wrong."""
    with Server(FAST) as s:
        w = WebSocket(s)
        equal((w.status, w.head.get("upgrade"), w.head.get("connection")), (101, "websocket", "Upgrade"),
              "the answer")
        equal(w.head.get("sec-websocket-protocol"), None, "no subprotocol was asked for")
        equal(w.close(), 1000, "closed")
        w = WebSocket(s, Upgrade="WebSocket", Connection="keep-alive, upgrade",
                      headers=["Sec-WebSocket-Protocol: other, tokenring.events.v1",
                               "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits",
                               "X-Request-Id: mine"])
        equal((w.head.get("sec-websocket-protocol"), w.head.get("x-request-id")),
              ("tokenring.events.v1", "mine"), "subprotocol and request id")
        w.close()
        equal(WebSocket(s, headers=["Origin: http://localhost"]).status, 101, "a page of its own")
        for claim, how, status in (
                ("no upgrade", {"leave_out": ("Upgrade",)}, 426),
                ("no connection", {"leave_out": ("Connection",)}, 426),
                ("another protocol", {"Upgrade": "h2c"}, 426),
                ("another version", {"Sec_WebSocket_Version": "8"}, 426),
                ("no version", {"leave_out": ("Sec-WebSocket-Version",)}, 426),
                ("no key", {"leave_out": ("Sec-WebSocket-Key",)}, 400),
                ("half a key", {"key": b"dGhlIHNhbXBsZQ=="}, 400),
                ("a page of somebody else", {"headers": ["Origin: http://evil.example"]}, 403)):
            with contextlib.closing(s.conn()) as c:
                c.send(handshake(**how))
                r = c.response()
                check(r.status == status and r.error.get("message"), f"{claim}: {status}", r.status, r.text)
                if status == 426:
                    check((r.header("upgrade"), r.header("sec-websocket-version")) == ("websocket", "13"),
                          f"{claim}: says what it takes", r.headers)
                c.send(request("GET", "/livez"))
                equal(c.response().status, 200, f"{claim}: the connection goes on as HTTP")
        equal(s.ask("POST", PATH, {}).status, 405, "POST")
        equal(s.get(PATH).status, 426, "a plain GET")
    with Server(FAST, cors="http://app.example") as s:
        equal(WebSocket(s, headers=["Origin: http://app.example"]).status, 101, "--cors allows")


@test
def one_stream():
    """The events are those of POST /v1/streams, under the client's label."""
    with Server(FAST) as s:
        for label, ask in (("a", body(1)), ("ü \"quoted\" \\", body(2, 25)), ("x" * 128, body(3, n=10)),
                           ("two", body(4, 12) | {"n": 2}), ("lp", body(5, 12) | {"logprobs": 3}),
                           ("chat", {k: v for k, v in body(6, 9).items() if k != "prompt"} |
                            {"messages": [{"role": "user", "content": "}]\"{"}]})):
            w = WebSocket(s)
            w.start(label, ask)
            check(w.end(label), f"{label[:10]}: ends")
            if "n" not in ask:
                equal(seen(w, label), undisturbed(s, ask), f"{label[:10]}: text, end and usage")
            equal(w.close(), 1000, "closed")
        # One after the other, on one connection and under one label.
        w = WebSocket(s)
        for k in range(3):
            w.start("again", body(k, 8))
            w.end("again")
            equal(seen(w, "again"), undisturbed(s, body(k, 8)), f"{k}: under the same label")
            w.events["again"] = []
        ids = WebSocket(s, headers=["X-Request-Id: conn-7"])
        ids.start("l", body(1, 5))
        rid = ids.event("l", "response.started")["request_id"]
        check(rid.startswith("conn-7") and s.row(rid), "the connection's request id is the beginning of its streams'", rid)
        ids.end("l")
        long = WebSocket(s, headers=["X-Request-Id: " + "y" * 128])
        rids = [long.event(long.start(x, body(1, 3)), "response.started")["request_id"] for x in "ab"]
        check(rids[0] != rids[1] and all(len(r) <= 128 and s.row(r) for r in rids), "also of a long one", rids)
        check(until(lambda: s.row(rid)["delivered_tokens"] == 5), "what was delivered is in the ledger", s.row(rid))


@test
def many_streams():
    """As many as a connection may have, at the same time, in one order each; one more is refused."""
    with Server(FAST, max_seqs=8, max_queue=100) as s:
        w = WebSocket(s)
        labels = [w.start(f"s{k}", body(k, 20)) for k in range(64)]
        w.start("s65", body(1))
        refusal(w, "s65", "too_many_streams", None)
        w.start("s3", body(3))
        ends = w.end(*labels)
        if any("status" in e for e in w.events["s3"]):  # the first had not ended
            refusal(w, "s3", "invalid_value", "stream")
        equal({e["type"] for e in ends if e}, {"response.incomplete"}, "all end")
        want = {k: undisturbed(s, body(k, 20)) for k in (0, 7, 63)}
        for k, v in want.items():
            equal(seen(w, f"s{k}"), v, f"s{k}: as if alone")
        w.start("s65", body(1, 5))
        check(w.end("s65"), "there is room again")


@test
def refused_messages():
    """What is wrong is told by an event, under the label if there is one; the connection goes on."""
    with Server(FAST, max_body=20000) as s:
        w = WebSocket(s)
        w.start("good", forever())
        w.event("good", "output_text.delta")
        for message, label, code, param in (
                (b"{", "", "invalid_json", None), (b"[]", "", "invalid_request", None),
                (b"{}", "", "invalid_value", "type"),
                (b'{"type":"stop","stream":"t"}', "t", "invalid_value", "type"),
                (b'{"type":"start","request":{}}', "", "invalid_value", "stream"),
                (b'{"type":"start","stream":"t"}', "t", "invalid_value", "request"),
                (b'{"type":"start","stream":"t","request":{}}', "t", "invalid_value", "messages"),
                (b'{"type":"start","stream":"t","request":{"model":"smollm2","prompt":"x","max_tokens":-1}}', "t", "invalid_value",
                 "max_tokens"),
                (b'{"type":"start","stream":"t","request":{"prompt":"x",}}', "t", "invalid_json", None),
                (b'{"type":"start","stream":"t","request":{"prompt":"x","model":"none"}}', "t",
                 "model_not_found", "model"),
                (b'{"type":"start","stream":"good","request":{"prompt":"x"}}', "good", "invalid_value", "stream"),
                (b'{"type":"cancel"}', "", "invalid_value", "id"),
                (b'{"type":"cancel","id":"tr-1-1-0000000000000000"}', "", "not_found", None),
                (b'{"type":"resume","stream":"t","id":"tr-1-1-0000000000000000"}', "t", "not_found", None),
                (b'{"type":"credit","stream":"nobody","tokens":1}', "nobody", "not_found", "stream"),
                (b'{"type":"start","stream":"t","x":"' + b"y" * 5000 + b'"}', "", "invalid_request", None)):
            w.raw(frame(TEXT, message))
            m = refusal(w, label, code, param)
            if m:
                check(m["retryable"] is False and 400 <= m["status"] < 500, "status", m)
        before = len(w.events["good"])
        w.until(lambda m: len(w.events["good"]) > before + 5)
        w.cancel(w.id("good"))
        end = w.end("good")
        equal((end["type"], end["reason"]), ("response.cancelled", "cancelled"), "the other stream went on")
        w.raw(frame(BINARY, b"{}"))
        w.drain()
        equal(w.closed, 1003, "binary")
        w = WebSocket(s)
        w.raw(frame(TEXT, b'"' + b"x" * 30000 + b'"'))
        w.drain()
        equal(w.closed, 1009, "larger than --max-body")
        check(s.idle(), "idle")


@test
def refused_starts():
    """503 as an event: no place, and a service that drains."""
    with Server(SLOW, max_seqs=1, max_queue=1) as s:
        w = WebSocket(s)
        w.start("a", forever())
        w.event("a", "output_text.delta")
        w.start("b", forever())
        w.event("b", "response.queued")
        w.start("c", forever())
        m = refusal(w, "c", "engine_overloaded")
        equal((m["status"], m["retryable"]), (503, True), "and may be tried again")
        w.cancel(w.id("b"))
        equal(w.end("b")["last_token"], None, "cancelled in the queue")
        w.cancel(w.id("a"))
        w.end("a")
        w.start("c", body(1, 3))
        check(w.end("c"), "there is a place again")


@test
def frames():
    """Case B75: what may stand between the parts of a message, and what ends the connection."""
    ask = json.dumps({"type": "start", "stream": "a", "request": body(1, 5)}).encode()
    with Server(FAST) as s:
        want = undisturbed(s, body(1, 5))
        w = WebSocket(s)
        w.raw(frame(TEXT, ask[:9], fin=0))
        w.raw(frame(PING, b"hb"))
        w.raw(frame(CONT, ask[9:20], fin=0), frame(CONT, b"", fin=0), frame(PONG, b"unasked"), frame(CONT, ask[20:]))
        w.end("a")
        equal((w.pongs, seen(w, "a")), ([b"hb"], want), "a message in parts, a ping between")
        w.raw(*[frame(PING, bytes([k]) * k) for k in range(126)])
        w.start("b", body(1, 5))
        w.end("b")
        w.raw(frame(TEXT))
        equal(w.until(lambda m: m.get("status"))["code"], "invalid_json", "an empty message is refused")
        equal(w.pongs[1:], [bytes([k]) * k for k in range(126)], "each ping has its pong")
        equal(w.close(3333), 3333, "a close is answered with its code")
        huge = 1 << 63
        for claim, data, codes in (
                ("not masked", [frame(TEXT, ask, mask=b"")], {1002}),
                ("a message inside another", [frame(TEXT, ask[:9], fin=0), frame(TEXT, ask[9:])], {1002}),
                ("the middle of nothing", [frame(CONT, ask)], {1002}),
                ("a long ping", [frame(PING, b"a" * 126)], {1002}),
                ("a ping in parts", [frame(PING, b"a", fin=0)], {1002}),
                ("a reserved bit", [frame(TEXT, ask, rsv=4)], {1002}),
                ("a length of 2^63", [frame(TEXT, b"", say=huge)], {1002, 1009}),
                ("a length of 2^62", [frame(TEXT, b"x", say=huge >> 1)], {1009}),
                ("an unknown kind", [frame(3, ask)], {1002}),
                ("not UTF-8", [frame(TEXT, b'{"\xff":1}')], {1007}),
                ("a code that may not be sent", [frame(CLOSE, struct.pack(">H", 1005))], {1002}),
                ("a close without a code", [frame(CLOSE)], {1005}),
                ("half a code", [frame(CLOSE, b"x")], {1002})):
            w = WebSocket(s)
            w.start("other", forever())
            w.event("other", "output_text.delta")
            w.raw(*data)
            w.drain()
            check(w.closed in codes, f"{claim}: closed with its code", w.closed, w.why)
            equal(w.conn.more() if not w.conn.eof else False, False, f"{claim}: and the connection ends")
            check(until(lambda: s.metric("requests_running") == 0), f"{claim}: its stream is cancelled")
        for claim, leave in (("cut", "close"), ("reset", "reset")):
            w = WebSocket(s, headers=[f"X-Request-Id: {claim}"])
            w.start("a", forever())
            rid = w.event("a", "response.started")["request_id"]
            getattr(w.conn, leave)()
            row = s.row(rid)
            check(row and row["reason"] == "client_disconnected" and row["disconnect_at"], f"{claim}: the row", row)
        check(s.idle(), "idle")
        equal(s.get("/health").status, 200, "alive")


@test
def cancelled():
    """Acknowledged with the last token: by the connection itself, by another, by HTTP."""
    with Server(SLOW, frontends=2) as s:
        a, b = WebSocket(s), WebSocket(s)
        for claim in ("itself", "another connection", "HTTP"):
            a.start("s", forever())
            sid = a.id("s")
            rid = a.event("s", "response.started")["request_id"]
            a.event("s", "output_text.delta")
            if claim == "HTTP":
                equal(s.ask("DELETE", f"{NATIVE}/{sid}", None).json["status"], "cancelled", "HTTP: the answer")
            else:
                (a if claim == "itself" else b).cancel(sid)
            end = a.end("s")
            equal((end["type"], end["reason"]), ("response.cancelled", "cancelled"), f"{claim}: the end")
            equal(end["last_token"] + 1, a.usage("s")["completion_tokens"], f"{claim}: the last token")
            equal(a.tokens("s"), a.usage("s")["completion_tokens"], f"{claim}: all text before it came")
            row = s.row(rid)
            equal((row["status"], row["completion_tokens"]), ("cancelled", end["last_token"] + 1), f"{claim}: the row")
            if claim == "another connection":
                told = b.event("", "cancel.done")
                equal((told["id"], told["status"], told["last_token"]), (sid, "cancelled", end["last_token"]),
                      "and who cancelled is told")
            a.events["s"] = []
        check(s.idle(), "idle")


@test
def held_and_resumed():
    """A connection goes, its streams are held; they are read on by another connection, or by HTTP, and
    nothing is lost or repeated."""
    with Server(SLOW, frontends=2) as s:
        want = [undisturbed(s, body(k, 60)) for k in range(3)]
        a = WebSocket(s)
        for k in range(3):
            a.start(f"s{k}", body(k, 60, on_disconnect="hold"))
        a.until(lambda m: all(a.tokens(f"s{k}") > 5 for k in range(3)))
        ids = [a.id(f"s{k}") for k in range(3)]
        last = [int(a.events[f"s{k}"][-1]["id"].rpartition(":")[2]) for k in range(3)]
        a.conn.reset()
        check(until(lambda: s.metric("streams_held") == 3), "held")
        b = WebSocket(s)
        for k in (0, 1):
            b.say({"type": "resume", "id": ids[k], "stream": f"r{k}", "after": last[k]})
        b.end("r0", "r1")
        for k in (0, 1):
            equal((a.text(f"s{k}") + b.text(f"r{k}"), b.events[f"r{k}"][-1]["type"]), want[k][:2], f"{k}: whole")
            first = int(b.events[f"r{k}"][0]["id"].rpartition(":")[2])
            equal(first, last[k] + 1, f"{k}: from the next event on")
        r = s.get(f"{NATIVE}/{ids[2]}?after={last[2]}")
        text = "".join(e["text"] for _, t, e in native_events(r.body) if t == "output_text.delta")
        equal(a.text("s2") + text, want[2][0], "by HTTP")
        # From the beginning, and a second time.
        b.say({"type": "resume", "id": ids[0], "stream": "again"})
        b.end("again")
        equal(b.text("again"), want[0][0], "from the beginning")
        b.say({"type": "resume", "id": ids[0], "stream": "late", "after": 999})
        refusal(b, "late", "invalid_value", "after")
        # Two readers: the newer one wins, and the other is told that his was cut.
        b.start("first", body(1, 60, on_disconnect="hold"))
        sid = b.id("first")
        c = WebSocket(s)
        c.say({"type": "resume", "id": sid, "stream": "second"})
        equal(b.end("first")["type"], "stream.reset", "cut, and it shows")
        c.end("second")
        equal(seen(c, "second"), want[1], "the other has all")
        for sid in [*ids, sid]:
            c.cancel(sid)
            check(c.until(lambda m: m.get("id") == sid), "let go")


@test
def nobody_reads():
    """Who does not read parks the streams of his connection, within one bound, and no others; when he
    reads again each gets its text, in turn."""
    with Server(TINY, sim_step_us=200, write_deadline_s=0, max_seqs=8) as s:
        want = [undisturbed(s, body(k, 1500)) for k in range(4)]
        a = WebSocket(s, rcvbuf=4096, wait=300)
        for k in range(4):
            a.start(f"s{k}", body(k, 1500))
        check(until(lambda: s.metric("requests_parked") == 4, 120), "parked", s.metric("requests_parked"))
        pending = s.metric('buffered_bytes{layer="pending"}')
        check(pending <= (16 << 10) + 4096, "one bound for the connection", pending)
        b = WebSocket(s)
        b.start("b", body(1, 400))
        equal(b.end("b")["type"], "response.incomplete", "another connection's stream goes on")
        equal(s.metric("requests_parked"), 4, "and these still stand")
        a.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        order = []
        while (m := a.next()):
            if m["type"] == "output_text.delta":
                order += [m["stream"]] * (m["tokens"] >= 8)  # text that had to wait
            if all(a.events.get(f"s{k}", [{}])[-1].get("type") == "response.incomplete" for k in range(4)):
                break
        for k in range(4):
            equal(seen(a, f"s{k}"), want[k], f"s{k}: whole")
        first_end = min((len(order) - 1 - order[::-1].index(x) for x in set(order)), default=0)
        turns = [[order[:n].count(f"s{k}") for k in range(4)] for n in range(first_end)]
        check(all(max(t) - min(t) <= 2 for t in turns), "what waited came in turn", order)
        check(s.idle(), "idle")


@test
def slow_readers():
    """The write deadline is the connection's: all its streams end."""
    with Server(TINY, sim_step_us=200, write_deadline_s=1) as s:
        a = WebSocket(s, rcvbuf=4096, wait=300, headers=["X-Request-Id: slow"])
        for k in range(3):
            a.start(f"s{k}", body(k, 4000))
        rids = [a.event(f"s{k}", "response.started")["request_id"] for k in range(3)]
        rows = [s.row(r, 120) for r in rids]
        equal([r and r["reason"] for r in rows], ["slow_client"] * 3, "the rows")
        a.drain()
        check(a.closed in (CUT, RESET), "the cut shows", a.closed)
        check(s.idle(), "idle")


@test
def credits():
    """A stream with credits gets so many tokens and parks alone; more credit, and it goes on."""
    with Server(TINY, sim_step_us=200, write_deadline_s=0) as s:
        want = undisturbed(s, body(1, 900))
        w = WebSocket(s)
        w.start("c", body(1, 900), credit=10)
        w.until(lambda m: w.tokens("c") == 10)
        check(until(lambda: s.metric("requests_parked") == 1), "parked", s.metric("requests_parked"))
        w.start("other", body(2, 500))
        w.end("other")
        equal((w.tokens("c"), w.tokens("other")), (10, 500), "the other one is not limited")
        for n in (1, 5, 100, 7):
            before = w.tokens("c")
            w.say({"type": "credit", "stream": "c", "tokens": n})
            w.until(lambda m: w.tokens("c") >= before + n)
            w.start("tick", body(3, 3))
            w.end("tick")
            equal(w.tokens("c"), before + n, f"{n} more")
        w.say({"type": "credit", "stream": "c", "tokens": 100000})
        w.end("c")
        equal(seen(w, "c"), want, "nothing was lost")
        # One that was not limited is from the first credit on.
        w.start("d", forever(), credit=0)
        w.event("d", "response.started")
        check(until(lambda: s.metric("requests_parked") == 1), "parked with nothing")
        w.cancel(w.id("d"))
        end = w.end("d")
        equal((end["type"], end["last_token"] + 1, w.tokens("d")),
              ("response.cancelled", w.usage("d")["completion_tokens"], w.usage("d")["completion_tokens"]),
              "a cancel is told without credit, after all text")
        check(s.idle(), "idle")
    with Server(TINY, sim_step_us=200, write_deadline_s=1) as s:
        w = WebSocket(s)
        w.start("c", forever(), credit=3)
        rid = w.event("c", "response.started")["request_id"]
        equal(s.row(rid)["reason"], "slow_client", "credit that never comes ends it as a slow reader")
        end = w.end("c")
        equal((end["type"], end["reason"]), ("response.cancelled", "slow_client"), "and he is told")
        w.start("e", body(1, 5), credit=1)
        equal((w.end("e")["type"], w.tokens("e")), ("response.incomplete", 5), "an answer that is complete comes whole")
        w.start("d", body(1, 5))
        check(w.end("d"), "the connection goes on")


@test
def silence():
    """While nothing is to be said a ping comes, with streams and without."""
    with Server(TINY, heartbeat_s=0.3, sim_step_us=1000) as s:
        w = WebSocket(s)
        w.raw(frame(PONG, b""))
        end = time.monotonic() + WAIT
        while len(w.pings) < 2 and time.monotonic() < end:
            op, data = w._frame()
            w.pings += [data] if op == PING else []
        check(len(w.pings) >= 2, "an idle connection", w.pings)
        w.start("a", forever())
        w.event("a", "output_text.delta")
        os.kill(s.pids["engine"][0], signal.SIGSTOP)
        try:
            n = len(w.pings)
            while len(w.pings) < n + 2:
                op, data = w._frame()
                if op == PING:
                    w.pings.append(data)
                elif op == TEXT:
                    w._message(strict_json(data.decode()))
                else:
                    break
            check(len(w.pings) >= n + 2, "a stream that stands still", w.closed)
        finally:
            os.kill(s.pids["engine"][0], signal.SIGCONT)
        w.cancel(w.id("a"))
        check(w.end("a"), "and it goes on")


@test
def half_a_frame():
    """A frame that does not come on closes the connection, from the first byte of its head; silence does not."""
    with Server(TINY, body_timeout_s=1) as s:
        whole = frame(TEXT, b'{"type":"credit"}')
        cuts = [WebSocket(s) for n in (1, 2, 5, 7)]
        idle = WebSocket(s)
        for w, n in zip(cuts, (1, 2, 5, 7)):
            w.raw(whole[:n])
        for w, n in zip(cuts, (1, 2, 5, 7)):
            equal(w.drain().closed, 1008, f"{n} bytes of a frame")
        idle.start("a", body())
        check(idle.end("a")["type"] == "response.incomplete", "who says nothing stays")


@test
def drained():
    """Open streams end, new ones are refused, then 1001."""
    with Server(SLOW, drain_s=20) as s:
        idle, w = WebSocket(s), WebSocket(s)
        w.start("a", body(1, 60))
        w.event("a", "output_text.delta")
        s.child.send_signal(signal.SIGTERM)
        idle.drain()
        equal(idle.closed, 1001, "one without streams is closed at once")
        w.start("b", body(1))
        refusal(w, "b", "draining")
        equal(w.end("a")["type"], "response.incomplete", "the open stream ends")
        w.drain()
        equal(w.closed, 1001, "then its connection")
        equal(s.wait_exit(), 0, "status")
    with Server(SLOW, drain_s=0.3) as s:
        w = WebSocket(s)
        w.start("a", forever())
        w.event("a", "output_text.delta")
        s.child.send_signal(signal.SIGTERM)
        end = w.end("a")
        equal((end and end["type"], end and end["reason"]), ("response.cancelled", "drain_limit"), "at the limit")
        w.drain()
        equal(w.closed, 1001, "then its connection")
        equal(s.wait_exit(), 0, "status")


@test
def frontend_killed():
    """The cut shows: no terminal event, no close."""
    with Server(SLOW, frontends=2) as s:
        w = WebSocket(s)
        w.start("a", forever())
        rid = w.event("a", "response.started")["request_id"]
        w.event("a", "output_text.delta")
        for pid in s.pids["frontend"]:
            os.kill(pid, signal.SIGKILL)
        w.drain()
        check(w.closed in (CUT, RESET) and w.events["a"][-1]["type"] == "output_text.delta", "cut", w.closed)
        equal(s.row(rid)["reason"], "frontend_lost", "the row")


@test
def floods():
    """A client that talks and does not listen is cut; it costs the others nothing."""
    with Server(FAST) as s:
        for claim, data in (("pings", frame(PING, b"x" * 100)), ("nonsense", frame(TEXT, b"{"))):
            w = WebSocket(s, rcvbuf=4096)
            with contextlib.suppress(OSError):  # it is not read any more, or cut
                w.conn.sock.settimeout(2)
                for _ in range(2000):
                    w.conn.send(data * 100)
            pending = s.metric('buffered_bytes{layer="pending"}')
            check(pending < (256 << 10), f"{claim}: what waits is bounded", pending)
            w.conn.reset()
        b = WebSocket(s)
        b.start("b", body(1, 5))
        check(b.end("b"), "others are served")
        check(max(rss(p) for p in s.pids["frontend"]) < (64 << 20) or SANITIZED, "memory",
              [rss(p) for p in s.pids["frontend"]])


main()
