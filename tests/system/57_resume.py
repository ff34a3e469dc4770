# SPDX-License-Identifier: Apache-2.0
"""Streams that outlive their readers: held, resumed at any frontend, expired, cancelled, drained, and
left by frontends and engines that die.  Nothing is lost or repeated: a text is compared with that of a
stream nobody disturbed, and numbers never repeat."""
from lib import *
from websocket import WebSocket

NATIVE, CHAT, COMP = "/v1/streams", "/v1/chat/completions", "/v1/completions"
NDJSON = "Accept: application/x-ndjson"
SLOW = dict(TINY, sim_step_us=10_000)  # a stream of 60 tokens takes 0.6 s
TERMINAL = ("response.completed", "response.incomplete", "response.cancelled", "error")


def body(seed, n=60, **kw):
    """A text that depends on the seed alone."""
    return dict(model=MODEL, prompt="x", seed=seed, max_tokens=n, ignore_eos=True,
                on_disconnect="hold", **kw)


class Reader:
    """A reader of native events as NDJSON.  `ended` when the answer had its last chunk, `cut` when the
    connection ended without."""

    def __init__(self, server, ask=None, sid=None, query="", headers=(), conn=None, **kw):
        self.conn = conn or server.conn(**kw)
        head = [NDJSON, *headers]
        self.conn.send(request("POST", NATIVE, ask, head) if ask else
                       request("GET", f"{NATIVE}/{sid}{query}", None, head))
        self.events, self.ended, self.cut, self.comments = [], False, False, 0
        self.status, _, self.head = self.conn.head()
        self.error = None
        if self.status != 200:
            n = int(self.head.get("content-length", 0))
            self.error = json.loads(self.conn.take(n))["error"] if n else {}
            self.ended = True

    @property
    def id(self):
        return self.head["x-tokenring-stream"]

    def next(self):
        """One event, or None at the end of either kind."""
        if self.ended or self.cut:
            return None
        try:
            chunk = self.conn.chunk()
        except (EOFError, ConnectionResetError):
            self.cut = True
            return None
        if not chunk:
            self.ended = True
            return None
        e = strict_json(chunk.decode())
        if e["type"] == "keepalive":
            self.comments += 1
            return self.next()
        self.events.append(e)
        return e

    def read(self, n):
        """Until n numbered events have come."""
        while len(self.numbered()) < n and self.next():
            pass
        return self

    def rest(self):
        while self.next():
            pass
        return self

    def numbered(self):
        return [e for e in self.events if "id" in e]

    def number(self):
        return int(self.numbered()[-1]["id"].rsplit(":", 1)[1])

    def kinds(self):
        return [e["type"] for e in self.events]

    def end(self):
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None


def joined(*readers):
    return "".join(e["text"] for r in readers for e in r.events if e["type"] == "output_text.delta")


def numbers(*readers):
    return [int(e["id"].rsplit(":", 1)[1]) for r in readers for e in r.numbered()]


def whole(claim, want, *readers):
    """These readers together are one stream that was not disturbed."""
    equal(joined(*readers), want, f"{claim}: the text")
    n = numbers(*readers)
    check(n[:1] == [0] and all(a < b for a, b in zip(n, n[1:])), f"{claim}: numbers ascend", n)
    end = readers[-1].end()
    check(end and readers[-1].ended, f"{claim}: has its end", readers[-1].kinds()[-3:])
    return end


def undisturbed(server, ask):
    return joined(Reader(server, dict(ask, on_disconnect="cancel")).rest())


def held(server, n=1):
    return until(lambda: server.metric("streams_held") == n)


def is_over(server, reader):
    """410, asked without reading, which would keep it."""
    return until(lambda: server.ask("HEAD", f"{NATIVE}/{reader.id}", None).status == 410)


def delete(server, sid, conn=None):
    c = conn or server.conn()
    c.send(request("DELETE", f"{NATIVE}/{sid}"))
    return c.response()


def no_slot(server, claim):
    """All are back: nothing of a stream is left."""
    check(until(lambda: server.metric('slots{state="busy"}') == 0 and
                server.metric('slots{state="ended"}') == 0), f"{claim}: slots are free",
          {k: v for k, v in server.metrics().items() if k.startswith("slots")})


# ---- a reader goes and comes ----------------------------------------------------------------------

def ways_to_leave():
    """Reset, close, and a write deadline; the stream goes on meanwhile and nothing is missing."""
    with Server(SLOW, frontends=2) as s:
        want = undisturbed(s, body(1))
        for way in ("reset", "close"):
            before = s.metric("published_tokens_total")
            a = Reader(s, body(1), headers=[f"X-Request-Id: way-{way}"]).read(10)
            getattr(a.conn, way)()
            check(held(s), f"{way}: held", s.metrics()["streams_held"])
            check(until(lambda: s.metric("published_tokens_total") == before + 60), f"{way}: it goes on")
            b = Reader(s, sid=a.id, headers=[f"Last-Event-ID: {a.id}:{a.number()}"]).rest()
            end = whole(way, want, a, b)
            equal(end and end["type"], "response.incomplete", f"{way}: how it ended")
            equal(b.head["content-type"], "application/x-ndjson", f"{way}: shape")
            row = s.row(f"way-{way}")
            check(row and (row["status"], row["completion_tokens"]) == ("incomplete", 60),
                  f"{way}: one row", row)
            delete(s, a.id)
            check(until(lambda: (s.row(f"way-{way}") or {}).get("delivered_tokens") == 60),
                  f"{way}: delivered over both readers", s.row(f"way-{way}"))
        no_slot(s, "after both")
        # Somebody who has only closed his sending side still reads.
        a = Reader(s, body(1)).read(5)
        a.conn.sock.shutdown(socket.SHUT_WR)
        whole("half closed", want, a.rest())
        equal(s.metric("streams_without_terminal_total"), 0, "nobody was left without an end")


def slow_readers():
    """Who takes nothing is cut, and may come back."""
    with Server(dict(TINY, sim_step_us=300), frontends=2, write_deadline_s=0.5, window=64,
                stream_buffer=1024) as s:
        ask = body(2, 4000)
        want = undisturbed(s, ask)
        a = Reader(s, ask, rcvbuf=2048).read(3)
        check(held(s), "cut and held")
        a.rest()
        check(a.cut, "and the cut shows")
        b = Reader(s, sid=a.id, query=f"?after={a.number()}").rest()
        end = whole("slow", want, a, b)
        equal(end and end["type"], "response.incomplete", "slow: how it ended")


def positions():
    """Where a reader may say that he stands, and where not."""
    with Server(dict(TINY, sim_step_us=1000), frontends=2) as s:
        a = Reader(s, body(3, 20)).rest()
        last = a.number()
        all_of = a.numbered()

        def tail(query="", headers=()):
            r = Reader(s, sid=a.id, query=query, headers=headers).rest()
            return r.status if r.error is not None else r.numbered()

        equal(tail(), all_of, "no position: from the beginning")
        equal(tail("?after=0"), all_of[1:], "?after=0")
        equal(tail(f"?after={last - 1}"), all_of[-1:], "only the end is left")
        equal(tail(headers=[f"Last-Event-ID: {a.id}:7"]), all_of[8:], "Last-Event-ID")
        equal(tail(headers=["Last-Event-ID: 7"]), all_of[8:], "its number alone")
        equal(tail("?after=3", [f"Last-Event-ID: {a.id}:9"]), all_of[10:], "both: the header")
        equal(tail(headers=["Last-Event-ID:"]), all_of, "an empty one says nothing")
        equal(tail(f"?after={last}"), 204, "who has all gets nothing")
        for query, headers, param in (("?after=-1", (), "after"), ("?after=1x", (), "after"),
                                      ("?after=", (), "after"), (f"?after={last + 1}", (), "after"),
                                      ("?after=99999999999999999999", (), "after"),
                                      ("", ["Last-Event-ID: tr-0-1-0000000000000000:3"],
                                       "Last-Event-ID"),
                                      ("", [f"Last-Event-ID: {a.id}:"], "Last-Event-ID"),
                                      ("?format=xml", (), "format"),
                                      ("?format=chat", (), "format")):
            r = Reader(s, sid=a.id, query=query, headers=headers)
            equal((r.status, (r.error or {}).get("param")), (400, param), f"{query} {headers}")
        equal(tail("?after=5"), all_of[6:], "and it is still there")
        # SSE by default, with ids.
        r = s.get(f"{NATIVE}/{a.id}?after={last - 1}")
        equal([i for i, _, _ in native_events(r.body)], [f"{a.id}:{last}"], "SSE")
        r = s.ask("HEAD", f"{NATIVE}/{a.id}", None)
        equal((r.status, r.header("content-type")), (200, "text/event-stream; charset=utf-8"), "HEAD")
        equal(s.ask("PUT", f"{NATIVE}/{a.id}", None).status, 405, "another method")
        # 404: unknown, never there, somebody else's random bits, not resumable; 410: over.
        slot, gen, rand = a.id.split("-")[1:]
        b = Reader(s, dict(body(3, 20), on_disconnect="cancel")).rest()
        for sid in ("x", "tr-fffff-1-0000000000000000", f"tr-{slot}-{gen}-{int(rand, 16) ^ 1:016x}",
                    f"tr-{slot}-{int(gen, 16) + 1:x}-{rand}"):
            equal(s.get(f"{NATIVE}/{sid}").status, 404, f"{sid}: 404")
        check(is_over(s, b), "over: 410")
        equal(delete(s, a.id).json["status"], "incomplete", "DELETE of what has ended")
        r = Reader(s, sid=a.id)
        equal((r.status, r.error["code"]), (410, "stream_over"), "then it is over")
        no_slot(s, "positions")


def openai_formats():
    """Chat and completions with X-Tokenring-Resume, resumed in their own shape."""
    with Server(SLOW, frontends=2) as s:
        ask = chat("Hi", seed=4, max_tokens=60, ignore_eos=True, stream=True,
                   stream_options={"include_usage": True})
        want = Stream(s, CHAT, ask).rest()
        a = Stream(s, CHAT, ask, headers=["X-Tokenring-Resume: 1"]).read(12)
        sid = a.id
        cursor = a.events[-1]["tokenring"]["cursor"]
        a.conn.reset()
        c = s.conn()
        c.send(request("GET", f"{NATIVE}/{sid}?format=chat", None, [f"Last-Event-ID: {cursor}"]))
        b = Stream(s, None, None, conn=Sent(c)).rest()
        equal(a.text() + b.text(), want.text(), "chat: the text")
        equal({e["id"] for e in a.events + b.events}, {a.events[0]["id"]}, "chat: one id")
        equal({e["created"] for e in a.events + b.events}, {a.events[0]["created"]}, "created")
        check(not any("role" in c["delta"] for e in b.events for c in e["choices"]), "no role again",
              b.events[:1])
        equal((b.finishes(), b.done, b.usage()["completion_tokens"]), (["length"], 1, 60), "its end")
        # From the beginning there is one.
        c = s.conn()
        c.send(request("GET", f"{NATIVE}/{sid}?format=chat"))
        again = Stream(s, None, None, conn=Sent(c)).rest()
        equal((again.text(), again.done), (want.text(), 1), "chat: all of it again")
        check("role" in again.events[0]["choices"][0]["delta"], "with its role")
        # As native events, numbered in their own way.
        r = Reader(s, sid=sid).rest()
        equal(joined(r), want.text(), "as native events")
        ask = completion("x", seed=4, max_tokens=60, ignore_eos=True, stream=True)
        want = Stream(s, COMP, ask).rest().text()
        a = Stream(s, COMP, ask, headers=["X-Tokenring-Resume: 1"]).read(7)
        sid, cursor = a.id, a.events[-1]["tokenring"]["cursor"]
        a.conn.close()
        c = s.conn()
        c.send(request("GET", f"{NATIVE}/{sid}?format=completions&after={cursor.split(':')[1]}"))
        b = Stream(s, None, None, conn=Sent(c)).rest()
        equal((a.text() + b.text(), b.done), (want, 1), "completions")


class Sent:
    """A connection whose request has been sent."""

    def __init__(self, conn):
        self.conn = conn

    def __getattr__(self, name):
        return getattr(self.conn, name)

    def send(self, data):
        pass


def newest_reader():
    """A second reader takes the stream; the first one sees a cut.  Here and at the other frontend."""
    with Server(SLOW, frontends=2) as s:
        want = undisturbed(s, body(5))
        for where in ("here", "there"):
            here, there = s.pids["frontend"]
            a = Reader(s, body(5), conn=s.conn_at(here)).read(10)
            b = Reader(s, sid=a.id, query="?after=4", conn=s.conn_at(here if where == "here" else there))
            equal(b.status, 200, f"{where}: the second reader")
            a.rest()
            check(a.cut and not a.ended, f"{where}: the first one is cut", a.kinds()[-2:])
            b.rest()
            a.events = [e for e in a.events if "id" in e and int(e["id"].split(":")[1]) <= 4]
            whole(f"newest {where}", want, a, b)
            delete(s, a.id)
        no_slot(s, "newest reader")


# ---- how it ends without a reader ------------------------------------------------------------------

def expiry():
    """The window ends: what runs is cancelled, what has ended is let go; then 410."""
    with Server(SLOW, frontends=2, resume_window_s=1) as s:
        a = Reader(s, body(6, 5000), headers=["X-Request-Id: runs"]).read(5)
        a.conn.reset()
        row = s.row("runs")
        check(row and (row["status"], row["reason"]) == ("cancelled", "client_disconnected"),
              "running: cancelled", row)
        check(row and row["disconnect_at"] + 0.9 < row["cancel_ack_at"], "the close was seen before",
              row)
        check(is_over(s, a), "running: 410")
        b = Reader(s, body(6, 20), headers=["X-Request-Id: ends"]).read(5)
        b.conn.reset()
        row = s.row("ends")
        check(row and row["status"] == "incomplete", "ended: as it would have", row)
        check(is_over(s, b), "ended: 410")
        equal(s.metric("resume_expired_total"), 2, "both are counted")
        # Who had all of it is no loss.
        c = Reader(s, body(6, 5)).rest()
        check(is_over(s, c), "told: 410")
        equal(s.metric("resume_expired_total"), 2, "told: not counted")
        no_slot(s, "expiry")
    with Server(SLOW, resume_window_s=0) as s:
        a = Reader(s, body(6, 5000), headers=["X-Request-Id: none"]).read(3)
        a.conn.reset()
        row = s.row("none")
        check(row and row["reason"] == "client_disconnected", "no window: cancelled at once", row)


def places():
    """--hold-slots over both frontends; one that has ended gives way, a running one does not."""
    with Server(SLOW, frontends=2, hold_slots=1) as s:
        here, there = s.pids["frontend"]
        a = Reader(s, body(7, 2000), conn=s.conn_at(here)).read(3)
        b = Reader(s, body(7, 2000), headers=["X-Request-Id: second"], conn=s.conn_at(there)).read(3)
        a.conn.reset()
        check(held(s), "the first is held")
        b.conn.reset()
        row = s.row("second")
        check(row and row["reason"] == "client_disconnected", "the second is cancelled", row)
        r = Reader(s, sid=a.id, query="?after=0").read(3)
        equal(r.status, 200, "the first is there")
        r.conn.reset()
        check(held(s), "and held again")
        delete(s, a.id)
        check(held(s, 0), "a cancel makes place")
        done = Reader(s, body(7, 5), conn=s.conn_at(here)).rest()
        check(held(s), "one that has ended is held")
        c = Reader(s, body(7, 2000), conn=s.conn_at(here)).read(3)
        c.conn.reset()
        check(is_over(s, done), "it gives way")
        r = Reader(s, sid=c.id).read(3)
        equal(r.status, 200, "to one that runs")
        r.conn.reset()
        delete(s, c.id)
        no_slot(s, "places")


def terminal_kinds():
    """Deadline, DELETE by another, drain: a reader who comes back is told."""
    with Server(SLOW, frontends=2, drain_s=1) as s:
        a = Reader(s, body(8, 5000, timeout_s=1), headers=["X-Request-Id: deadline"]).read(3)
        a.conn.reset()
        row = s.row("deadline")
        check(row and row["reason"] == "deadline_exceeded", "its time goes on", row)
        r = Reader(s, sid=a.id, query=f"?after={a.number()}").rest()
        equal(r.end() and (r.end()["type"], r.end()["reason"]),
              ("response.cancelled", "deadline_exceeded"), "deadline")
        # DELETE: of one with a reader, of one without, of one that has ended; at either frontend.
        here, there = s.pids["frontend"]
        for at in (here, there):
            a = Reader(s, body(8, 5000), conn=s.conn_at(here)).read(3)
            equal(delete(s, a.id, s.conn_at(at)).json["status"], "cancelled", "DELETE, read")
            equal((a.rest().end() or {}).get("reason"), "cancelled", "its reader is told")
            check(is_over(s, a), "and it is over")
            a = Reader(s, body(8, 5000), conn=s.conn_at(here)).read(3)
            a.conn.reset()
            check(until(lambda: s.metric("streams_held") >= 1), "held")
            equal(delete(s, a.id, s.conn_at(at)).json["status"], "cancelled", "DELETE, held")
            check(is_over(s, a), "it is over too")
            a = Reader(s, body(8, 5), conn=s.conn_at(here)).rest()
            equal(delete(s, a.id, s.conn_at(at)).json["status"], "incomplete", "DELETE, ended")
            check(is_over(s, a), "let go")
        # An end of its own, with a stop string, found while nobody reads.
        want = undisturbed(s, body(8))
        a = Reader(s, body(8, 5000, stop=[want[-4:]])).read(3)
        a.conn.reset()
        r = Reader(s, sid=a.id, query=f"?after={a.number()}").rest()
        end = whole("stop string", want[:want.index(want[-4:])], a, r)
        equal(end and end["type"], "response.completed", "stop string")
        # The drain limit.
        a = Reader(s, body(8, 5000)).read(3)
        a.conn.reset()
        r = Reader(s, sid=a.id, query=f"?after={a.number()}").read(3)
        os.kill(s.pid, signal.SIGTERM)
        equal((r.rest().end() or {}).get("reason"), "drain_limit", "drain")
        equal(s.wait_exit(), 0, "the service has ended")


def drain():
    """What runs without a reader may end; what has ended is not waited for."""
    with Server(SLOW, frontends=2, drain_s=60, resume_window_s=600) as s:
        a = Reader(s, body(9, 5)).rest()
        b = Reader(s, body(9, 60), headers=["X-Request-Id: goes-on"]).read(3)
        b.conn.reset()
        check(held(s, 2), "both are held")
        begin = time.monotonic()
        os.kill(s.pid, signal.SIGTERM)
        equal(s.wait_exit(), 0, "exit status")
        check(time.monotonic() - begin < 50, "nobody waited for a window", time.monotonic() - begin)
        rows = {r["request_id"]: r for r in s.rows()}
        equal(rows["goes-on"]["completion_tokens"], 60, "it went on to its end")
        check(a.end(), "the other one was whole")


# ---- processes die -----------------------------------------------------------------------------------

def frontends_die():
    """kill -9 of the frontend that has it, while it is read and while it is held; of all of them."""
    with Server(SLOW, frontends=3) as s:
        want = undisturbed(s, body(10))
        for what in ("read", "held", "ended", "all"):
            mine = s.processes()["frontend"][0]
            a = Reader(s, body(10), conn=s.conn_at(mine), headers=[f"X-Request-Id: {what}"])
            a.read(20)
            if what == "ended":
                a.rest()
                a.events = a.events[:30]
            elif what != "read":
                a.conn.reset()
                check(held(s), f"{what}: held")
            victims = s.processes()["frontend"] if what == "all" else [mine]
            for pid in victims:
                os.kill(pid, signal.SIGKILL)
            if what == "read":
                a.rest()
                check(a.cut, "read: the cut shows", a.kinds()[-2:])
            r = resumed(s, a)
            r.read(10)
            r.conn.reset()
            last = resumed(s, r, a.id)
            whole(f"frontend killed, {what}", want, a, r, last.rest())
            row = s.row(what)
            check(row and (row["status"], row["completion_tokens"]) == ("incomplete", 60),
                  f"{what}: its row", row)
            delete(s, a.id)
            no_slot(s, what)
            check(until(lambda: len(s.processes()["frontend"]) == 3), "three again")


def resumed(server, reader, sid=None):
    """A reader that goes on, as a client would: again while there is no answer or a 503."""
    def ask():
        with contextlib.suppress(OSError, EOFError):
            after = f"?after={reader.number()}" if reader.numbered() else ""
            r = Reader(server, sid=sid or reader.id, query=after)
            return r if r.status != 503 else None
    r = until(ask)
    equal(r and (r.status, r.error), (200, None), f"it can be resumed: {server.log()[-300:]}")
    return r


def nobody_comes_after_a_death():
    """The window of a stream whose frontend died begins anew at another one, and ends."""
    with Server(SLOW, frontends=2, resume_window_s=1) as s:
        mine = s.processes()["frontend"][0]
        a = Reader(s, body(11, 5000), conn=s.conn_at(mine), headers=["X-Request-Id: orphan"]).read(5)
        os.kill(mine, signal.SIGKILL)
        row = s.row("orphan")
        check(row and row["reason"] == "client_disconnected", "cancelled", row)
        check(row and row["completion_tokens"] > 5, "after it went on for a while", row)
        check(is_over(s, a), "410")
        no_slot(s, "orphan")


def frontends_are_replaced():
    """SIGHUP: an old frontend ends with the streams that it holds, and others have them."""
    with Server(SLOW, frontends=2) as s:
        want = undisturbed(s, body(12))
        a = Reader(s, body(12)).read(10)
        b = Reader(s, body(12)).read(10)
        a.conn.reset()
        check(held(s), "held")
        old = s.processes()["frontend"]
        os.kill(s.pid, signal.SIGHUP)
        r = resumed(s, a)
        b.rest()
        whole("held, replaced", want, a, r.rest())
        whole("read, replaced", want, b)
        b.conn.close()
        check(until(lambda: not any(living(p) for p in old)), "the old ones have ended")
        for x in (a, b):
            again = until(lambda: Reader(s, sid=x.id) if s.get("/livez").status == 200 else None)
            equal(joined(again.rest()), want, "what has ended is there too")
            delete(s, x.id)
        no_slot(s, "replaced")


def engine_dies():
    """kill -9 of the engine while a stream is held."""
    with Server(SLOW, frontends=2) as s:
        want = undisturbed(s, body(13))
        a = Reader(s, body(13)).read(20)
        a.conn.reset()
        check(held(s), "held")
        os.kill(s.processes()["engine"][0], signal.SIGKILL)
        whole("engine killed", want, a, resumed(s, a).rest())
        delete(s, a.id)
        no_slot(s, "engine dies")


def engine_crashes():
    """The request itself kills the engine, again and again, while nobody reads: who comes is told."""
    with Server(SLOW, frontends=2, faults=True) as s:
        a = Reader(s, body(777, 5000)).read(10)
        a.conn.reset()
        check(held(s), "held")
        s.faults.arm("engine.pass.sequence", "segv", left=ALWAYS, match=777)
        check(until(lambda: s.metric('streams_ended_total{reason="engine_crashed"}') == 1), "found")
        r = resumed(s, a).rest()
        equal(r.end() and (r.end()["type"], r.end()["code"]), ("error", "engine_crashed"), "told")
        n = numbers(a, r)
        check(all(x < y for x, y in zip(n, n[1:])), "numbers ascend", n)


def restless(server, seed, rng):
    """A stream whose reader leaves and comes back until he has its end: all of his connections."""
    def begin():
        with contextlib.suppress(OSError, EOFError):
            r = Reader(server, body(seed, 120, temperature=1))
            return r if r.status == 200 else None
    r = until(begin)
    readers = [r]
    while r and r.status == 200 and not r.read(rng.randint(1, 25)).end():
        (r.conn.reset if rng.random() < 0.5 else r.conn.close)()
        last = [x for x in readers if x.numbered()]
        r = resumed(server, last[-1] if last else readers[0], readers[0].id)
        readers.append(r)
    return readers


def gone(server, sid):
    """A DELETE that was answered: who keeps 300 streams that are over has no place for another."""
    with contextlib.suppress(OSError, EOFError):
        return delete(server, sid).status in (200, 404)


def under_fire():
    """Restless readers, while frontends and engines are killed and replaced: not a byte is lost."""
    n, rounds = (32, 12) if LONG else (6, 1)
    with Server(dict(TINY, sim_step_us=4000), frontends=3, hold_slots=300) as s:
        want = [undisturbed(s, body(100 + k, 120, temperature=1)) for k in range(n)]
        over = threading.Event()

        def shoot():
            rng, kills = random.Random(1), 0
            while not over.wait(rng.uniform(0.05, 0.4)):
                role = "engine" if rng.random() < 0.2 else "frontend"
                for pid in s.processes()[role][:1]:
                    os.kill(pid, signal.SIGKILL)
                    kills += 1
                if rng.random() < 0.05:
                    os.kill(s.pid, signal.SIGHUP)
            return kills

        def read(k):
            rng = random.Random(k)
            for turn in range(rounds):
                readers = restless(s, 100 + k, rng)
                # The process may die between the terminal event and the last chunk.
                readers[-1].ended = bool(readers[-1].end())
                whole(f"under fire, {k} {turn}", want[k], *readers)
                until(lambda: gone(s, readers[0].id))
        gun = threading.Thread(target=shoot)
        gun.start()
        for k, e in enumerate(together([lambda k=k: read(k) for k in range(n)], 600)):
            check(e is None, f"under fire: {k} came to its end", repr(e)[-500:])
        over.set()
        gun.join()
        equal(s.metric("streams_without_terminal_total"), 0, "nobody was left without an end")


# ---- the rest ----------------------------------------------------------------------------------------

def comments_and_descriptors():
    """Keep-alives come in resumed streams, and nothing is left of many readers."""
    with Server(dict(TINY, sim_step_us=1000), frontends=2, heartbeat_s=0.2, hold_slots=40) as s:
        eng = s.pids["engine"][0]
        a = Reader(s, body(14, 8000)).read(5)
        a.conn.reset()
        r = Reader(s, sid=a.id, query=f"?after={a.number()}")
        os.kill(eng, signal.SIGSTOP)
        # What was published is read first; then silence.
        while not r.comments:
            size = int(r.conn.take_until(b"\r\n"), 16)
            chunk = r.conn.take(size)
            r.conn.take(2)
            r.comments += b"keepalive" in chunk
        os.kill(eng, signal.SIGCONT)
        check(r.comments, "a keep-alive")
        r.conn.reset()
        delete(s, a.id)
        no_slot(s, "keep-alives")
        before = [fd_count(p) for p in s.pids["frontend"]]
        for k in range(30):
            a = Reader(s, body(14, 200), conn=s.conn_at(s.pids["frontend"][k % 2]) if k < 4 else None)
            a.read(2 + k % 7)
            (a.conn.reset if k % 2 else a.conn.close)()
            r = Reader(s, sid=a.id, query=f"?after={a.number()}")
            r.read(3)
            (r.conn.reset if k % 3 else r.conn.close)()
            if k % 2:
                delete(s, a.id)
        check(until(lambda: s.metric("connections") <= 1), "connections are gone")
        check(until(lambda: all(fd_count(p) <= b + 1 for p, b in zip(s.pids["frontend"], before))),
              "no descriptor is left", before, [fd_count(p) for p in s.pids["frontend"]])
        check(s.processes() == s.pids, "the same processes")


def side_by_side(*fns):
    """Services of their own that mostly wait."""
    word = os.environ.get("CASE", "")
    fns = [fn for fn in fns if word in fn.__name__]
    for fn, out in zip(fns, together(fns)):
        if isinstance(out, Exception):
            check(False, f"{fn.__name__} ran to its end",
                  "".join(traceback.format_exception(out))[-1500:])


@test
def readers():
    side_by_side(ways_to_leave, slow_readers, positions, openai_formats, newest_reader,
                 comments_and_descriptors)


@test
def endings():
    side_by_side(expiry, places, terminal_kinds, drain)


@test
def deaths():
    side_by_side(frontends_die, nobody_comes_after_a_death, frontends_are_replaced, engine_dies,
                 engine_crashes, under_fire)


def ids_of_others(s, n):
    """The random bits of n streams, told by any frontend."""
    return [int(s.post(NATIVE, dict(model=MODEL, prompt="x", max_tokens=1)).header("x-tokenring-stream").split("-")[3], 16)
            for _ in range(n)]


@test
def nobody_guesses_an_id():
    """All of its bits are asked, of whoever wants to read, end or take over a stream; and they are random."""
    with Server(SLOW, frontends=2, ctx_size=4096) as s:
        a = Reader(s, body(7, 3000)).read(3)
        _, slot, gen, rand = a.id.split("-")
        w = WebSocket(s)
        for bit in range(64):
            sid = f"tr-{slot}-{gen}-{int(rand, 16) ^ 1 << bit:016x}"
            for method in ("GET", "HEAD", "DELETE"):
                equal(s.ask(method, f"{NATIVE}/{sid}", None).status, 404, f"{method} with bit {bit} turned")
            w.cancel(sid)
            w.say({"type": "resume", "stream": "x", "id": sid, "after": 0})
        def told():
            return w.events[""] + w.events.get("x", [])
        while len(told()) < 128 and w.next():
            pass
        equal([e.get("status") for e in told()], [404] * 128, "and on a WebSocket")
        w.close()
        w.conn.close()
        n = a.number()
        check(not a.end() and a.read(len(a.numbered()) + 5).number() > n, "the stream has gone on", a.kinds()[-3:])
        rands = ids_of_others(s, 100)
        equal(len(set(rands)), 100, "no bits come twice")
        ones = [sum(r >> bit & 1 for r in rands) for bit in range(64)]
        check(min(ones) > 12 and max(ones) < 88, "each of them is one as often as not", ones)  # 7.6 standard deviations
        equal(delete(s, a.id).status, 200, "who knows it may end it")
        a.rest()
        a.conn.close()


main()
