# SPDX-License-Identifier: Apache-2.0
"""Other frontends while the service serves: replaced (SIGHUP), added (SIGTTIN), taken away
(SIGTTOU); nobody's request is lost, refused or reset by it."""
import fcntl
import termios

from lib import *

CHAT, COMP = "/v1/chat/completions", "/v1/completions"
AB = 369


def forced(s, n=4000, headers=(), **kw):
    return s.stream(COMP, force(AB, prompt="x", max_tokens=n, stream=True, **kw), headers=headers)


def frontends(s):
    return set(s.processes()["frontend"])


def replaced(s, old, n):
    """Waits until n others serve and the old ones have ended."""
    return until(lambda: not (frontends(s) & set(old)) and len(frontends(s)) == n)


def reading(streams):
    """Each is read to its end meanwhile; an unread one would be parked."""
    def rest(st):
        with contextlib.suppress(OSError, EOFError):
            st.rest()
    threads = [threading.Thread(target=rest, args=(st,), daemon=True) for st in streams]
    for t in threads:
        t.start()
    return threads


class Clients:
    """Clients of all kinds in a loop; odd is what no client may see."""

    def __init__(self, s, fresh=3, kept=3, streams=3):
        self.s, self.stop, self.odd, self.served = s, threading.Event(), [], 0
        self.closes = 0
        self.lock = threading.Lock()
        kinds = [self.fresh] * fresh + [self.kept] * kept + [self.stream] * streams
        self.threads = [threading.Thread(target=self.loop, args=(k, i), daemon=True)
                        for i, k in enumerate(kinds)]
        for t in self.threads:
            t.start()

    def loop(self, kind, i):
        self.conn = None
        state = {}
        k = 0
        while not self.stop.is_set():
            k += 1
            try:
                good = kind(state, f"{i}-{k}")
            except Exception as e:
                good = repr(e)
            with self.lock:
                self.served += 1
                if good is not True:
                    self.odd.append((kind.__name__, f"{i}-{k}", good))

    def fresh(self, _, rid):
        r = self.s.post(COMP, force(AB, prompt="x", max_tokens=3), headers=[f"X-Request-Id: {rid}"])
        return r.status == 200 and text_of(r) == "ab" * 3 or (r.status, r.text)

    def kept(self, state, rid):
        """One connection for as long as the server keeps it, with idle moments; closed in one that
        was too long, it is opened again, as every client does."""
        c, ask = state.get("c"), request("POST", COMP, force(AB, prompt="x", max_tokens=3),
                                         [f"X-Request-Id: {rid}"])
        if not c or select.select([c.sock], [], [], 0)[0]:
            c = self.s.conn()
        try:
            c.send(ask)
            r = c.response()
        except (OSError, EOFError):  # right only if this client stood still for long in between
            if time.monotonic() - state.get("at", time.monotonic()) < 0.5 or c is not state["c"]:
                raise
            c = self.s.conn()
            c.send(ask)
            r = c.response()
        state["c"], state["at"] = c, time.monotonic()
        if r.header("connection") == "close":
            with self.lock:
                self.closes += 1
            if c.drain() != b"":
                return "bytes after the last answer"
            c.close()
            state["c"] = None
        time.sleep(random.random() * 0.02)
        return r.status == 200 and text_of(r) == "ab" * 3 or (r.status, r.text)

    def stream(self, _, rid):
        st = forced(self.s, 40, headers=[f"X-Request-Id: {rid}"]).rest()
        st.close()
        return st.status == 200 and st.text() == "ab" * 40 and st.done == 1 or (st.status, st.text())

    def end(self, what):
        until(lambda: self.served > 20)
        self.stop.set()
        for t in self.threads:
            t.join(WAIT)
        check(not any(t.is_alive() for t in self.threads), f"{what}: no client hangs")
        check(not self.odd, f"{what}: every request is answered whole", len(self.odd), self.odd[:3])
        check(self.served > 20, f"{what}: there was load", self.served)


@test
def hang_ups_under_load():
    """Case P11: SIGHUP after SIGHUP; no connection is refused or reset, no answer lost."""
    with Server(frontends=2, max_seqs=32, max_queue=64) as s:
        free = s.kv_free()
        long = [forced(s, 800, headers=[f"X-Request-Id: long-{i}"]).read(1) for i in range(6)]
        readers = reading(long)
        load = Clients(s)
        old = frontends(s)
        for turn in range(3):
            time.sleep(0.3)
            before = frontends(s)
            os.kill(s.pid, signal.SIGHUP)
            if turn == 1:
                os.kill(s.pid, signal.SIGHUP)  # while the first of them is at work
            check(until(lambda: len(frontends(s) - before) == 2), f"round {turn}: two new ones",
                  s.processes())
        for t in readers:
            t.join(WAIT)
        for i, st in enumerate(long):
            check(st.text() == "ab" * 800 and st.done == 1 and st.ended, f"long-{i} is whole",
                  len(st.text()))
        check(replaced(s, old, 2), "the old ones have ended", s.processes())
        load.end("hang-ups")
        check(load.closes > 0, "a retiring frontend says that an answer is the last", load.closes)
        s.pids = s.processes()
        s.alive("after hang-ups")
        check(s.idle() and s.kv_free() == free, "KV blocks are back")
        m = s.metrics()
        equal(m['process_restarts_total{role="frontend"}'], 0, "nobody died")
        equal(m["streams_without_terminal_total"], 0, "no stream without its end")
        rows = [r["request_id"] for r in s.rows()]
        equal(len(rows), len(set(rows)), "one row each")
        check({f"long-{i}" for i in range(6)} <= set(rows), "a row for each long stream")
        check(until(lambda: not zombies(s.pid)), "no zombie", zombies(s.pid))


@test
def nothing_of_an_idle_connection_is_lost():
    """Requests at the moment of the replacement: answered, as the last of their connections."""
    with Server(TINY, frontends=1) as s:
        old = frontends(s)
        silent, half, sent, idle, stream = (s.conn() for _ in range(5))
        for c in (sent, idle):
            c.send(request("GET", "/livez"))
            equal(c.response().status, 200, "a connection that is kept")
        st = Stream(s, COMP, completion("x", max_tokens=300, stream=True, ignore_eos=True), conn=stream)
        st.read(1)
        half.send(request("POST", COMP, completion("x", max_tokens=2))[:-4])
        until(lambda: s.metrics()["connections"] >= 5)
        os.kill(old.copy().pop(), signal.SIGSTOP)  # so that what is sent now is unread at that moment
        try:
            sent.send(request("GET", "/livez"))
            os.kill(s.pid, signal.SIGHUP)
            check(until(lambda: "frontend 0 is new" in s.log()), "a new one has the place")
        finally:
            os.kill(old.copy().pop(), signal.SIGCONT)
        equal(sent.response().status, 200, "a request sent before is answered")
        half.send(request("POST", COMP, completion("x", max_tokens=2))[-4:])
        r = half.response()
        equal((r.status, r.header("connection")), (200, "close"), "half a request becomes a whole one")
        silent.send(request("GET", "/health"))
        r = silent.response()
        equal((r.status, r.header("connection")), (200, "close"), "a connection without a request yet")
        idle.send(request("GET", "/health"))
        r = idle.response()
        equal((r.status, r.header("connection")), (200, "close"), "an idle one has time for another")
        equal(sent.drain(), b"", "and its connection ends")
        late = st.rest()
        check(late.done == 1 and late.ended, "the stream is whole")
        stream.send(request("GET", "/livez"))
        r = stream.response()
        equal((r.status, r.header("connection")), (200, "close"), "its connection, too")
        check(replaced(s, old, 1), "then the old one ends", s.processes())
        one = s.conn()
        one.send(request("GET", "/livez"))
        one.response()
        now = frontends(s)
        os.kill(s.pid, signal.SIGHUP)
        equal(one.drain(), b"", "an idle connection that stays idle is closed, not reset")
        one.close()
        check(replaced(s, now, 1), "also with idle connections the old one ends", s.processes())


@test
def one_that_cannot_start():
    """A template that is broken now: told once, the old ones go on; mended, they are replaced."""
    path = os.path.join(tempfile.mkdtemp(prefix="tokenring-test-"), "template")

    def write(text):
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    good = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    write(good)
    with Server(frontends=2, chat_template=path) as s:
        old = frontends(s)
        st = forced(s, 800).read(1)
        write("{% for m in messages %}{{ m['content'] }}")
        os.kill(s.pid, signal.SIGHUP)
        check(until(lambda: "could not start" in s.log()), "a sentence says so", s.log())
        time.sleep(0.3)
        equal(s.log().count("could not start"), 1, "once")
        equal(s.log().count("template cannot be used"), 1, "and why")
        equal(frontends(s), old, "the old ones serve")
        equal(s.post(CHAT, chat("Hi", max_tokens=1)).status, 200, "with their template")
        os.kill(s.pid, signal.SIGTTIN)
        check(until(lambda: s.log().count("could not start") == 2), "nor is one added")
        equal(frontends(s), old, "the old ones still serve")
        write(good)
        os.kill(s.pid, signal.SIGHUP)
        check(until(lambda: len(frontends(s) - old) == 2), "mended: replaced")
        st.rest()
        check(st.text() == "ab" * 800 and st.done == 1, "a stream saw nothing of it")
        check(replaced(s, old, 2), "the old ones have ended")


@test
def more_and_fewer():
    """SIGTTIN and SIGTTOU: counts, limits, deaths and a drain with another number."""
    with Server(frontends=2) as s:
        load = Clients(s, 2, 2, 2)
        os.kill(s.pid, signal.SIGTTIN)
        check(until(lambda: len(frontends(s)) == 3), "one more", s.processes())
        os.kill(s.pid, signal.SIGTTIN)
        check(until(lambda: "no further frontend" in s.log()), "not more than there is room for")
        equal(len(frontends(s)), 3, "three")
        titles = sorted(title(p) for p in frontends(s))
        equal(titles, [f"tokenring: frontend {i}" for i in range(3)], "each has its name")
        victim = max(frontends(s))
        long = [forced(s, 500).read(1) for _ in range(4)]
        load.end("one more")
        held = clients_of(victim, s.port)
        os.kill(victim, signal.SIGKILL)
        check(until(lambda: len(frontends(s)) == 3 and victim not in frontends(s)),
              "the added one is replaced when it dies", s.processes())
        for st in long:
            if st.conn.sock.getsockname()[1] not in held:
                st.rest()
                check(st.text() == "ab" * 500 and st.done == 1, "the others' streams are whole")
            st.close()
        load = Clients(s, 2, 2, 2)
        long = [forced(s, 500).read(1) for _ in range(6)]
        os.kill(s.pid, signal.SIGTTOU)
        check(until(lambda: "one frontend less: 2" in s.log()), "one less")
        os.kill(s.pid, signal.SIGTTOU)
        check(until(lambda: "one frontend less: 1" in s.log()), "and another")
        os.kill(s.pid, signal.SIGTTOU)
        check(until(lambda: "the last frontend stays" in s.log()), "the last one stays")
        for st in long:
            st.rest()
            check(st.text() == "ab" * 500 and st.done == 1, "streams end as they should")
            st.close()
        check(until(lambda: len(frontends(s)) == 1), "one is left", s.processes())
        load.end("fewer")
        old = frontends(s)
        os.kill(s.pid, signal.SIGHUP)
        check(replaced(s, old, 1), "the last one can be replaced")
        os.kill(s.pid, signal.SIGTTIN)
        check(until(lambda: len(frontends(s)) == 2), "and another added")
        os.kill(s.pid, signal.SIGTERM)
        equal(s.wait_exit(), 0, "it drains")
        check("killed by signal 9" in s.log() and s.log().count("killed by") == 1, "one death in all")


@test
def drain_in_the_middle():
    """SIGTERM while old and new frontends are there: all streams end, all rows, exit status 0."""
    s = Server(frontends=2, drain_s=1, sim_step_us=5000)
    old, first = frontends(s), []
    # So many that both have some: one that had none would end at once.
    while len(first) < 4 or (len(first) < 24 and not all(clients_of(p, s.port) for p in old)):
        first.append(forced(s, headers=[f"X-Request-Id: first-{len(first)}"]).read(1))
    os.kill(s.pid, signal.SIGHUP)
    check(until(lambda: len(frontends(s) - old) == 2), "old and new ones at once")
    second = [forced(s, headers=[f"X-Request-Id: second-{i}"]).read(1) for i in range(4)]
    equal(len(frontends(s)), 4, "four in all")
    os.kill(s.pid, signal.SIGHUP)  # waits for an area
    check(until(lambda: "waits until a retired one has ended" in s.log()), "all areas are in use")
    pids = s.all_pids()
    readers = reading(first + second)  # in time: after the limit nobody waits long for a reader
    os.kill(s.pid, signal.SIGTERM)
    for t in readers:
        t.join(WAIT)
    for st in first + second:
        check([e["code"] for e in st.errors()] == ["drain_limit"] and st.done == 1 and st.ended,
              "each stream has its terminal event", st.events[-1:])
    equal(s.wait_exit(), 0, "exit code 0")
    check(not any(living(p) for p in pids), "every process is gone")
    rows = {r["request_id"]: r["reason"] for r in s.rows()}
    names = [f"first-{i}" for i in range(len(first))] + [f"second-{i}" for i in range(4)]
    equal(rows, {n: "drain_limit" for n in names}, "the rows")
    s.stop()


@test
def deaths_in_the_middle():
    """Frontends of every age are killed while others are replaced, added and taken away: the service
    finds its way back to what was asked for."""
    with Server(frontends=2, max_seqs=32, max_queue=64) as s:
        free = s.kv_free()
        rnd, stop, odd = random.Random(5), threading.Event(), []

        def client():
            while not stop.is_set():
                try:
                    r = s.post(COMP, force(AB, prompt="x", max_tokens=20))
                    if r.status != 200 or text_of(r) != "ab" * 20:
                        odd.append((r.status, r.text))
                except (OSError, EOFError):  # its frontend was killed
                    time.sleep(0.01)
        threads = [threading.Thread(target=client, daemon=True) for _ in range(8)]
        for t in threads:
            t.start()
        wanted = 2
        for _ in range(int(os.environ.get("TOKENRING_TEST_ROUNDS", 20 if LONG else 3)) * 8):
            what = rnd.choice("hhkkkmf")
            with contextlib.suppress(ProcessLookupError, IndexError):
                if what == "h":
                    os.kill(s.pid, signal.SIGHUP)
                elif what == "k":
                    os.kill(rnd.choice(s.processes()["frontend"]), signal.SIGKILL)
                else:
                    os.kill(s.pid, signal.SIGTTIN if what == "m" else signal.SIGTTOU)
            time.sleep(rnd.random() * 0.12)
        stop.set()
        for t in threads:
            t.join(WAIT)
        check(not any(t.is_alive() for t in threads) and not odd, "no answer is wrong", odd[:3])
        # The last word on their number; a further one that is killed three times is given up, one that
        # was to replace another is not counted in it.
        for more, number, there in re.findall(
                r"(?:one more frontend:|one frontend less:) (\d+)|"
                r"frontend (\d+) could not start: the (\d+)", s.log()):
            if more or int(number) >= int(there):
                wanted = int(more or there)

        def settled():
            return len(frontends(s)) == wanted and s.get("/health").status == 200
        check(until(settled), f"{wanted} frontends, as asked for", s.processes(), s.log()[-800:])
        old = frontends(s)
        time.sleep(0.3)
        os.kill(s.pid, signal.SIGHUP)
        check(replaced(s, old, wanted), "they can be replaced", s.processes(), s.log()[-800:])
        check(s.idle() and s.kv_free() == free, "KV blocks are back")
        out = together([lambda: s.post(COMP, force(AB, prompt="x", max_tokens=3)).status
                        for _ in range(96)])
        equal(out, [200] * 96, "every place is free again")
        check(until(lambda: not zombies(s.pid)), "no zombie", zombies(s.pid))


@test
def terminal_goes_away():
    """At a terminal a hang-up ends the service, unless it was to be ignored."""
    for ignored in (False, True):
        master, slave = os.openpty()
        out = tempfile.TemporaryFile()

        def at_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            if ignored:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
        p = subprocess.Popen(command({**TINY, "port": 0}), stdin=slave, stdout=out, stderr=out,
                             preexec_fn=at_terminal)
        os.close(slave)

        def ready():
            out.seek(0)
            return b"ready" in out.read()
        check(until(ready), "it serves")
        os.close(master)
        if ignored:
            def told():
                out.seek(0)
                return b"replacing" in out.read()
            check(until(told), "ignored: the frontends are replaced")
            check(p.poll() is None, "and it serves on")
            p.send_signal(signal.SIGTERM)
        equal(p.wait(60), 0, "it drains")


def kept(s):
    """A connection that has had an answer, and stays."""
    c = s.conn()
    c.send(request("GET", "/livez"))
    return c, c.response().status


def spread(s):
    return sorted(len(clients_of(p, s.port)) for p in frontends(s))


def evenly(s, n, open_all, close):
    """The spread of 64 connections: the best of some rounds, as a busy machine may keep a frontend
    from taking its turn."""
    got = []
    for _ in range(6):
        some = open_all()
        got.append(spread(s))
        for c in some:
            close(c)
        until(lambda: sum(spread(s)) == 0)
        if sum(got[-1]) == 64 and got[-1][0] >= 64 // n - 12:
            break
    return check(sum(got[-1]) == 64 and got[-1][0] >= 64 // n - 12,
                 f"64 connections over {n} frontends", got)


@test
def connections_are_balanced():
    """By load: opened one after the other, all at once, and with streams on them; also when one
    frontend stands still, nobody waits for it."""
    for n in (2, 4):
        with Server(frontends=n, max_seqs=64, window=64, max_queue=64) as s:
            def burst():
                return together([lambda: kept(s)[0] for _ in range(64)])

            def one_by_one():
                return [kept(s)[0] for _ in range(64)]

            def streams():
                return [forced(s, 6000).read(1) for _ in range(64)]
            evenly(s, n, one_by_one, Conn.close)
            evenly(s, n, burst, Conn.close)
            evenly(s, n, streams, Stream.close)
            until(lambda: s.metrics()["streams"] == 0)
            stopped = s.pids["frontend"][0]
            os.kill(stopped, signal.SIGSTOP)
            try:
                some = one_by_one()
                check(all(isinstance(c, Conn) for c in some), "nobody is stuck in a stopped one")
                equal(len(clients_of(stopped, s.port)), 0, "it takes none")
            finally:
                os.kill(stopped, signal.SIGCONT)
            # It is asked again when its loop has turned: how many others are opened before that is the
            # machine's affair.
            more, share = [], lambda: sum(spread(s)) // n - 12
            while len(more) < 512 and len(clients_of(stopped, s.port)) < share():
                more += [kept(s)[0] for _ in range(8)]
            check(len(clients_of(stopped, s.port)) >= share(), "going on, it takes its share", spread(s))
            for c in some + more:
                c.close()


@test
def full_frontends_leave_to_others():
    """--max-connections of one: as long as another has room there is no 503."""
    with Server(TINY, frontends=2, max_connections=16) as s:
        some = []
        for _ in range(40):  # one that has not had its turn for half a second is not waited for
            some += [k for k in [kept(s)] if k[1] == 200]
            if len(some) == 32:
                break
        equal(len(some), 32, "each place can be used")
        equal(spread(s), [16, 16], "all of them")
        r = s.get("/livez")
        check(is_error(r, 503, code="too_many_connections"), "then 503", r.status, r.text)
        some.pop()[0].close()
        check(until(lambda: kept(s)[1] == 200), "a free place is found")
        until(lambda: sum(spread(s)) <= 31)
        one = s.pids["frontend"][0]
        held = clients_of(one, s.port)
        for c, _ in some:
            if c.sock.getsockname()[1] in held:
                c.close()
        until(lambda: not clients_of(one, s.port))
        os.kill(one, signal.SIGSTOP)  # it has room, and takes none
        try:
            got = set()
            for _ in range(3):
                got.add(kept(s)[1])
        finally:
            os.kill(one, signal.SIGCONT)
        check(got <= {200, 503}, "beside a stopped one with room: an answer, no wait", got)
        r = until(lambda: kept(s)[1] == 200)
        check(r, "going on, it serves")
        for c, _ in some:
            c.close()
        until(lambda: sum(spread(s)) == 0)
        flood = [s.conn() for _ in range(2 * (16 + 64) + 20)]
        # All 20 before we close ours: who has gone before he is accepted is one too many no more.
        closed = until(lambda: len(select.select([c.sock for c in flood], [], [], 0)[0]) >= 20)
        check(closed, "far too many: some are closed at once")
        for c in flood:
            c.close()

        def counted():
            with contextlib.suppress(OSError, EOFError, KeyError):
                return s.metrics()["connections_refused_total"] >= 20
        check(until(counted), "and counted")


if __name__ == "__main__":
    main()
