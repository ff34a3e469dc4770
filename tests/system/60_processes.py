# SPDX-License-Identifier: Apache-2.0
"""Processes: deaths of each, drains, heartbeats, and what is left behind (nothing)."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
AB = 369


def forced(s, n=4000, path=COMP, headers=(), **kw):
    body = force(AB, max_tokens=n, stream=True, **kw)
    body.update({"prompt": "x"} if path != CHAT else {"messages": chat("x")["messages"]})
    return s.stream(path, body, headers=headers)


def cut_visibly(st):
    """Whether the stream ended without any sign of completeness."""
    try:
        st.rest()
        return not st.ended
    except (EOFError, ConnectionResetError, ValueError):
        return not st.done and not st.finishes()


def serves_again(s, what):
    """Ready, and an answer of the right shape; s.pids is then what runs now."""
    check(until(lambda: s.get("/health").status == 200), f"{what}: ready again", s.get("/health").text)

    def full():
        p = s.processes()
        return len(p["engine"]) == 1 and len(p["frontend"]) == len(s.pids["frontend"]) and p
    p = until(full)
    check(p, f"{what}: every process is there", s.processes())
    s.pids = p or s.pids
    s.alive(what)


def listens(pid):
    """Whether the process holds a listening socket."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        inodes = {r[9] for r in (line.split() for line in f.readlines()[1:]) if r[3] == "0A"}
    held = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                held.add(os.readlink(f"/proc/{pid}/fd/{fd}")[8:-1])
    return bool(held & inodes)


def shared_objects():
    names = os.listdir("/dev/shm") if os.path.isdir("/dev/shm") else []
    return {n for n in names if "tokenring" in n}


@test
def names_and_rights():
    with Server(frontends=3) as s:
        names = sorted(title(p) for p in children(s.pid))
        equal(names, ["tokenring: engine", "tokenring: frontend 0", "tokenring: frontend 1",
                      "tokenring: frontend 2", "tokenring: ledger"], "each process has its name")
        equal(title(s.pid), "tokenring: supervisor", "the supervisor too")
        engine = s.pids["engine"][0]
        kinds = [os.readlink(f"/proc/{engine}/fd/{fd}") for fd in os.listdir(f"/proc/{engine}/fd")]
        check(not any(k.startswith("socket:") for k in kinds), "the engine owns no socket", kinds)
        check(not any("memfd" in k for k in kinds), "mapped regions are closed", kinds)
        # Regions are named tokenring-<kind>-<number>, kinds as in shm/layout.h: 0 control, 1 rings,
        # 2 accounting, 3 claims, 4 ledger, 5 slots, 6 processes, 7 statistics, 8 areas.
        rights = {"frontend": ["3", "7", "8"], "engine": ["1", "2", "3", "5", "7"] + ["8"] * 6,
                  "ledger": ["4", "7"]}
        for role, want in rights.items():
            for p in s.pids[role]:
                maps = re.findall(r" r([w-])[x-]s .*/memfd:tokenring-(\d+)-\d+",
                                  proc_read(p, "maps").decode())
                equal(sorted(kind for w, kind in maps if w == "w"), want,
                      f"regions that a {role} may write")


@test
def engine_dies():
    """Case B07: nobody loses anything: those that run, wait, are parked or not streamed are whole."""
    with Server(max_seqs=4, sim_step_us=2000) as s:
        free = s.kv_free()
        streams = [forced(s, 400, headers=[f"X-Request-Id: run-{i}"]).read(3) for i in range(3)]
        native = s.conn()
        native.send(request("POST", NATIVE, force(AB, prompt="x", max_tokens=400),
                            ["X-Request-Id: run-3"]))
        native.head()
        check(until(lambda: s.metrics()["requests_running"] == 4), "four run")
        queued = forced(s, 400, path=CHAT, headers=["X-Request-Id: wait-0"])
        queued.headers()
        waiting = s.conn()
        waiting.send(request("POST", COMP, force(AB, prompt="x", max_tokens=5), ["X-Request-Id: wait-1"]))
        check(until(lambda: s.metrics()["requests_waiting"] == 2), "four run, two wait")
        old = s.pids["engine"][0]
        os.kill(old, signal.SIGKILL)
        late = s.post(COMP, force(AB, prompt="x", max_tokens=5), headers=["X-Request-Id: late"])
        equal((late.status, text_of(late)), (200, "ab" * 5), "a request after its death is served")
        for st in streams + [queued]:
            st.rest()
            check(st.text() == "ab" * 400 and st.finishes() == ["length"] and not st.errors() and
                  st.done == 1 and st.ended, "the stream is whole", len(st.text()), st.events[-2:])
        data = b""
        while (c := native.chunk()):
            data += c
        ev = native_events(data)
        equal("".join(e["text"] for _, t, e in ev if t == "output_text.delta"), "ab" * 400,
              "native: the same")
        equal(ev[-1][1], "response.incomplete", "native: its own end")
        r = waiting.response()
        equal((r.status, text_of(r)), (200, "ab" * 5), "a waiting request that is not streamed")
        m = s.metrics()
        serves_again(s, "the engine died")
        check(s.pids["engine"][0] != old, "a new engine")
        check(s.idle() and s.kv_free() == free, "KV blocks are whole", s.kv_free())
        for rid, n in [(f"run-{i}", 400) for i in range(4)] + [("wait-0", 400), ("wait-1", 5), ("late", 5)]:
            row = s.row(rid)
            check(row and row["status"] == "incomplete" and row["completion_tokens"] == n,
                  f"one row for {rid}, as if nothing had been", row)
        equal(len([r for r in s.rows() if r["request_id"].startswith(("run-", "wait-", "late"))]), 7,
              "no row twice")
        equal((m['streams_ended_total{reason="length"}'], m['tokens_total{kind="completion"}'],
               m['process_restarts_total{role="engine"}']), (7, 5 * 400 + 10, 1), "counted once")
        equal(m["streams_without_terminal_total"], 0, "no live socket without its terminal event")


@test
def engine_dies_again_and_again():
    """Under load, at random moments: no request is lost, every slot comes back, each row once."""
    with Server(max_seqs=8, max_queue=8, max_streams=64, sim_step_us=1000) as s:
        free = s.kv_free()
        stop = threading.Event()
        seen = {"ok": 0, "503": 0, "odd": []}
        lock = threading.Lock()

        def client(k):
            i = 0
            while not stop.is_set():
                i += 1
                rid = f"load-{k}-{i}"
                try:
                    if i % 2:
                        r = s.post(COMP, force(AB, prompt="x", max_tokens=30),
                                   headers=[f"X-Request-Id: {rid}"])
                        kind = ("ok" if r.status == 200 and text_of(r) == "ab" * 30 else
                                "503" if r.status == 503 and r.error.get("code") != "engine_lost" else "odd")
                    else:
                        st = forced(s, 30, headers=[f"X-Request-Id: {rid}"]).rest()
                        kind = ("503" if st.status == 503 else
                                "ok" if st.text() == "ab" * 30 and st.finishes() == ["length"] else "odd")
                except Exception as e:
                    kind, r = "odd", repr(e)
                with lock:
                    if kind == "odd":
                        seen["odd"].append((rid, locals().get("r")))
                    else:
                        seen[kind] += 1
                if kind == "503":
                    time.sleep(0.02)

        threads = [threading.Thread(target=client, args=(k,), daemon=True) for k in range(12)]
        for t in threads:
            t.start()
        for _ in range(6):
            time.sleep(0.3 + random.random() * 0.4)
            for p in s.processes()["engine"]:
                os.kill(p, signal.SIGKILL)
            until(lambda: s.processes()["engine"])
        stop.set()
        for t in threads:
            t.join(WAIT)
        check(not any(t.is_alive() for t in threads), "no client hangs")
        check(not seen["odd"] and seen["ok"] > 0, "every request that was taken was served", seen["odd"][:3])
        serves_again(s, "six engine deaths")
        check(s.idle() and s.kv_free() == free, "KV blocks are whole")
        ids = [r["request_id"] for r in s.rows()]
        equal(len(ids), len(set(ids)), "no row twice")
        got = sum(i.startswith("load-") for i in ids)
        check(until(lambda: sum(r["request_id"].startswith("load-") for r in s.rows()) ==
                    seen["ok"], 10), "a row for each admitted request", got, seen)
        # Every slot can be used again: as many at once as are admitted at most.
        jobs = [lambda: s.post(COMP, force(AB, prompt="x", max_tokens=3)).status for _ in range(16)]
        equal(together(jobs), [200] * 16, "all places are free again")


@test
def any_of_them_dies():
    """Engine, frontends and ledger killed at random, also together, under load with groups: what
    was admitted has one row, every place and block comes back."""
    with Server(frontends=3, max_seqs=8, max_queue=16, max_streams=96, sim_step_us=1000) as s:
        free = s.kv_free()
        stop = threading.Event()
        odd = []

        def client(k):
            rnd = random.Random(k)
            while not stop.is_set():
                body = force(AB, prompt=rnd.choice(["x", ["x", "y"], [81] * 700]), n=rnd.choice([1, 3]),
                             max_tokens=rnd.choice([1, 20, 60]), stream=rnd.random() < 0.6)
                n = len(body["prompt"]) * body["n"] if body["prompt"] == ["x", "y"] else body["n"]
                try:
                    if not body["stream"]:
                        r = s.post(COMP, body)
                        good = r.status == 503 or [c["text"] for c in r.json["choices"]] == \
                            ["ab" * body["max_tokens"]] * n
                    else:
                        st = s.stream(COMP, body).rest()
                        good = st.status == 503 or not st.ended or st.errors() and not st.usage() or \
                            all(st.text(i) == "ab" * body["max_tokens"] for i in range(n))
                    if not good:
                        odd.append(((r.status, r.text) if not body["stream"] else
                                    (st.status, st.ended, st.events[-3:], [st.text(i) for i in range(n)]), body))
                except (OSError, EOFError):  # its frontend was killed
                    time.sleep(0.01)

        threads = [threading.Thread(target=client, args=(k,), daemon=True) for k in range(16)]
        for t in threads:
            t.start()
        rnd = random.Random(99)
        for turn in range(8):
            time.sleep(0.2 + rnd.random() * 0.3)
            p = s.processes()
            victims = [rnd.choice(p[role]) for role in ("engine", "frontend", "ledger")
                       if p[role] and rnd.random() < 0.6]
            for v in victims:
                os.kill(v, signal.SIGKILL)
        stop.set()
        for t in threads:
            t.join(WAIT)
        check(not any(t.is_alive() for t in threads), "no client hangs")
        check(not odd, "no answer is wrong", odd[:2])
        until(lambda: len(s.processes()["frontend"]) == 3 and len(s.processes()["ledger"]) == 1)
        serves_again(s, "deaths of all kinds")
        check(s.idle() and s.kv_free() == free, "KV blocks are back", s.metrics())
        out = together([lambda: s.post(COMP, force(AB, prompt="x", max_tokens=3)).status
                        for _ in range(24)])
        equal(out, [200] * 24, "every place is free again")
        check(until(lambda: s.metrics()["ledger_lag_seconds"] == 0), "the ledger is up to date")
        ids = [r["request_id"] for r in s.rows()]
        equal(len(ids), len(set(ids)), "no row twice")
        check(all(r["status"] in ("completed", "incomplete", "cancelled", "error") and r["choices"] >= 1
                  for r in s.rows()), "each row has an end")


ROUNDS = int(os.environ.get("TOKENRING_TEST_ROUNDS", 20 if LONG else 3))  # of faults under load


class Readers:
    """Streams under load, each read to its end and then opened again: how each ended, and when each
    token came."""

    def __init__(self, s, n, tokens):
        self.s, self.tokens = s, tokens
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.whole, self.cut, self.odd = [], [], []  # request ids
        self.gaps = []  # (request id, when, seconds), of whole streams
        self.open = {}  # request id: port
        self.begun = set()  # request ids whose head was read: they are admitted
        self.threads = [threading.Thread(target=self.loop, args=(i,), daemon=True) for i in range(n)]
        for t in self.threads:
            t.start()

    def loop(self, i):
        k = 0
        while not self.stop.is_set():
            k += 1
            rid = f"r{i}-{k}"
            try:
                st = forced(self.s, self.tokens, headers=[f"X-Request-Id: {rid}"])
            except ConnectionError:  # the frontend that had taken it died before a byte was sent
                self.cut.append(rid)
                continue
            except OSError as e:
                self.odd.append((rid, repr(e)))
                continue
            with self.lock:
                self.open[rid] = st.conn.sock.getsockname()[1]
            kind = self.whole if self.read(st, rid) else self.cut
            with self.lock:
                del self.open[rid]
                kind.append(rid)
                if kind is self.whole:
                    self.gaps += [(rid, b, b - a) for a, b in zip(st.times, st.times[1:])]
            st.close()

    def read(self, st, rid):
        try:
            st.headers()
            with self.lock:
                self.begun.add(rid)
            st.rest()
        except (EOFError, ConnectionResetError, ValueError):
            return False
        if st.text() != "ab" * self.tokens or st.done != 1 or not st.ended:
            self.odd.append((st.status, st.response and st.response.text, len(st.text()), st.events[-1:]))
        return True

    def on(self, pid):
        """The requests whose connections this frontend has."""
        ports = clients_of(pid, self.s.port)
        with self.lock:
            return {rid for rid, port in self.open.items() if port in ports}

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(WAIT)
        check(not any(t.is_alive() for t in self.threads), "no reader hangs")
        check(not self.odd, "every stream is whole, or its cut shows", len(self.odd), self.odd[:3])

    def figures(self, moments, hit=()):
        """Gaps in the second after each moment, and at all other times; streams that were hit apart."""
        near, far = [], []
        for rid, at, gap in self.gaps:
            if rid not in hit:
                (near if any(m <= at <= m + 1 for m in moments) else far).append(gap)

        def q(v, p):
            return f"{1000 * sorted(v)[min(len(v) - 1, int(p * len(v)))]:.1f}" if v else "-"
        return (f"gaps in ms, p50/p99/max: {q(near, .5)}/{q(near, .99)}/{q(near, 1)} in the second after, "
                f"{q(far, .5)}/{q(far, .99)}/{q(far, 1)} otherwise; {len(self.whole)} whole streams")


def descriptors(s):
    return {r: fd_count(p[0]) if p else 0 for r, p in s.processes().items() if r != "frontend"}


def descriptors_at_work(s):
    """When the ledger has opened what it needs for a first row, in the spool and in the database."""
    r = s.post(COMP, force(AB, prompt="x", max_tokens=1), headers=["X-Request-Id: first"])
    check(r.status == 200 and until(lambda: s.metric("ledger_database_records_total") >= 2), "a first row", r.text)
    return descriptors(s)


def left_behind(s, base_fds, shm):
    check(until(lambda: not zombies(s.pid)), "no zombie", zombies(s.pid))

    def good():
        now = descriptors(s)
        return now["engine"] == base_fds["engine"] and abs(now["ledger"] - base_fds["ledger"]) <= 2
    check(until(good), "descriptors as before, but for segments of the spool", descriptors(s), base_fds)
    equal(shared_objects(), shm, "no shared-memory object left")
    ids = [r["request_id"] for r in s.rows()]
    equal(len(ids), len(set(ids)), "no row twice")


@test
def frontends_die():
    """Case B06: streams of a killed frontend are cut, cancelled and accounted; the others' are whole;
    a new one takes its place within moments."""
    with Server(frontends=3, max_seqs=48, sim_step_us=5000) as s:
        free = s.kv_free()
        base_fds = descriptors_at_work(s)
        base_sup, shm = fd_count(s.pid), shared_objects()
        load = Readers(s, 24, 200)
        time.sleep(0.5)
        rnd, lost, moments, back, freed = random.Random(6), set(), [], [], []
        for _ in range(ROUNDS):
            before = s.processes()["frontend"]
            victim = rnd.choice(before)
            held = load.on(victim)
            begun = set(load.begun)
            os.kill(victim, signal.SIGKILL)
            moments.append(time.monotonic())
            # A stream that was opened or ended between the two looks is in neither.
            check(until(lambda held=held: held <= set(load.cut) | set(load.whole)), "each cut shows")
            freed.append(time.monotonic() - moments[-1])

            def new():
                now = set(s.processes()["frontend"]) - set(before)
                return now and clients_of(now.copy().pop(), s.port)
            check(until(new), "a new frontend has connections", s.processes())
            back.append(time.monotonic() - moments[-1])
            lost |= held & begun & set(load.cut)
            time.sleep(rnd.random() + (1 if ROUNDS > 3 else 0))
        load.end()
        check(lost, "streams were lost")
        check(len(load.cut) < 24 * ROUNDS and load.whole, "and others were not", len(load.cut))
        wanted = lost | set(load.whole[-40:])

        def rows_by_id():
            return {r["request_id"]: r for r in s.rows()}
        until(lambda: wanted <= set(rows_by_id()))
        check(s.idle() and until(lambda: s.metric("ledger_lag_seconds") == 0), "nothing is on its way")
        rows = rows_by_id()
        for rid in load.cut:
            row = rows.get(rid)
            # Killed between the record and the last bytes: the record says that all was made.
            check(row is None and rid not in lost or row and (
                row["status"] == "cancelled" and row["reason"] == "frontend_lost" and
                row["completion_tokens"] < 200 or
                row["reason"] == "length" and row["completion_tokens"] == 200), f"{rid}: its row", row)
        told = [rows[rid]["reason"] for rid in lost if rid in rows]
        check("frontend_lost" in told, "some were in the middle", told)
        for rid in load.whole[-40:]:
            row = rows.get(rid)
            check(row and row["completion_tokens"] == 200, f"{rid}: its row", row)
        check(s.idle() and s.kv_free() == free, "KV blocks are back", s.kv_free())
        serves_again(s, "frontends died")
        left_behind(s, base_fds, shm)
        until(lambda: fd_count(s.pid) == base_sup)
        equal(fd_count(s.pid), base_sup, "the supervisor's descriptors too")
        equal(s.metrics()['process_restarts_total{role="frontend"}'], ROUNDS, "counted")
        print(f"    {ROUNDS} killed: replaced in {max(back):.2f} s at most, {load.figures(moments)}")


@test
def frontends_stand_still():
    """Stopped for a while under load: only its own streams wait, new requests go to others, and all
    go on complete."""
    with Server(frontends=3, max_seqs=48, sim_step_us=5000, window=32, frontend_stall_s=600) as s:
        free = s.kv_free()
        base_fds = descriptors_at_work(s)
        shm = shared_objects()
        load = Readers(s, 18, 200)
        time.sleep(0.5)
        rnd, hit, moments, took = random.Random(7), set(), [], []
        for _ in range(ROUNDS):
            victim = rnd.choice(s.pids["frontend"])
            os.kill(victim, signal.SIGSTOP)
            moments.append(time.monotonic())
            held = load.on(victim)
            hit |= held
            others = len(load.whole)
            try:
                for _ in range(20):
                    begin = time.monotonic()
                    r = s.post(COMP, force(AB, prompt="x", max_tokens=1))
                    took.append(time.monotonic() - begin)
                    equal(r.status, 200, "a new request is answered by the others")
                # Its streams may all have ended, but for the last bytes.
                check(until(lambda: len(load.whole) > others + 4), "streams of the others end")
                # One of the others is, for a moment, when its frontend or its reader had no turn.
                check(until(lambda: s.metrics()["requests_parked"] <= len(held)), "only its own are parked")
            finally:
                os.kill(victim, signal.SIGCONT)
            check(until(lambda held=held: held <= set(load.whole)), "its streams go on complete",
                  held - set(load.whole))
            time.sleep(rnd.random() * 0.3)
        load.end()
        check(not load.cut, "no stream was cut", load.cut)
        check(s.idle() and s.kv_free() == free, "KV blocks are back", s.kv_free())
        s.alive("after standing still")  # the same processes
        left_behind(s, base_fds, shm)
        print(f"    {ROUNDS} stopped: a new request took {max(took):.3f} s at most, "
              f"{load.figures(moments, hit)}")


@test
def all_frontends_die():
    with Server(frontends=2) as s:
        free = s.kv_free()
        streams = [forced(s).read(1) for _ in range(6)]
        for p in s.pids["frontend"]:
            os.kill(p, signal.SIGKILL)
        check(all([cut_visibly(st) for st in streams]), "every cut shows")

        def up():
            with contextlib.suppress(OSError, EOFError):
                return s.get("/health").status == 200
        check(until(up), "connects succeed again")
        serves_again(s, "all frontends died")
        check(s.idle() and s.kv_free() == free, "KV blocks are back")


@test
def ledger_dies():
    """Tokens do not wait for it; its successor writes what was queued, each row once."""
    with Server(ledger_wait_ms=300) as s:
        st = forced(s, 600).read(2)
        for i in range(3):
            os.kill(s.processes()["ledger"][0], signal.SIGKILL)
            rs = together([lambda i=i, k=k: s.post(COMP, force(AB, prompt="x", max_tokens=5),
                                                   headers=[f"X-Request-Id: led-{i}-{k}"]).status
                           for k in range(10)])
            equal(rs, [200] * 10, "answers go out while the ledger is replaced")
            check(until(lambda: len(s.processes()["ledger"]) == 1), "a new ledger")
        st.rest()
        equal(st.text(), "ab" * 600, "a stream saw nothing of it")
        rows = until(lambda: len(s.rows()) >= 31 and s.rows())
        ids = [r["request_id"] for r in s.rows()]
        check(rows and len(ids) == len(set(ids)) and
              {f"led-{i}-{k}" for i in range(3) for k in range(10)} <= set(ids),
              "every row is there once", len(ids), len(set(ids)))
        s.pids = s.processes()
        s.alive("ledger deaths")


@test
def supervisor_dies():
    """kill -9 of the supervisor: nothing stays, and running streams have their rows."""
    for turn in range(2):
        s = Server()
        try:
            streams = [forced(s, headers=[f"X-Request-Id: sup-{i}"]).read(5) for i in range(6)]
            whole = s.conn()
            whole.send(request("POST", COMP, force(AB, prompt="x", max_tokens=4000),
                               ["X-Request-Id: sup-whole"]))
            until(lambda: s.metrics()["requests_running"] + s.metrics()["requests_parked"] == 7)
            pids = s.all_pids()
            if turn:  # everything dies at once but the ledger
                for p in s.pids["frontend"] + s.pids["engine"]:
                    os.kill(p, signal.SIGKILL)
            os.kill(s.pid, signal.SIGKILL)
            s.child.wait()
            check(all([cut_visibly(st) for st in streams]), "every cut shows")
            check(until(lambda: not any(living(p) for p in pids)), "every process is gone",
                  [(p, title(p)) for p in pids if living(p)])
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", s.port), 1).close()
                check(False, "the port is closed")
            rows = {r["request_id"]: r for r in s.rows()}
            for i, st in enumerate(streams):
                row = rows.get(f"sup-{i}")
                got = st.text().count("ab")
                check(row and row["prompt_tokens"] == 1 and row["completion_tokens"] >= got,
                      "the row of a running stream", got, row)
            check("sup-whole" in rows, "also of one that was not streamed", list(rows))
            equal(len(s.rows()), len(rows), "no row twice")
        finally:
            s.stop()


@test
def everything_dies():
    """kill -9 of all: nothing stays; what a client saw complete is in the ledger."""
    s = Server()
    done = [f"end-{i}" for i in range(5)]
    for rid in done:
        equal(s.post(COMP, force(AB, prompt="x", max_tokens=3),
                     headers=[f"X-Request-Id: {rid}"]).status, 200, "served")
    st = forced(s).read(2)
    pids = s.all_pids()
    for p in pids:
        os.kill(p, signal.SIGKILL)
    s.child.wait()
    check(cut_visibly(st), "the cut shows")
    check(until(lambda: not any(living(p) for p in pids)), "every process is gone")
    ids = [r["request_id"] for r in s.rows()]
    check(all(ids.count(rid) == 1 for rid in done), "every end a client saw is in the ledger", ids)
    with Server(TINY, ledger=s.ledger) as again:
        again.alive("a new service on the same ledger", None)
    s.stop()


@test
def drains():
    """Case B27: SIGTERM, SIGINT; streams finish or get their terminal event; exit 0; all rows."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        s = Server(drain_s=3, sim_step_us=5000)
        streams = [forced(s, headers=[f"X-Request-Id: d{i}"]).read(1) for i in range(3)]
        native = s.conn()
        native.send(request("POST", NATIVE, force(AB, prompt="x", max_tokens=4000)))
        native.head()
        idle = []
        for _ in range(3):
            c = s.conn()
            c.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            equal(c.response().status, 200, "idle connection")
            idle.append(c)
        half = s.conn()
        half.send(request("POST", COMP, completion("x"))[:-5])
        pids = s.all_pids()
        short = forced(s, 40, headers=["X-Request-Id: short"]).read(1)
        data = []

        def rest_of_native():
            while (ch := native.chunk()):
                data.append(ch)
        # All are read meanwhile: after the limit nobody waits long for a reader.
        readers = [threading.Thread(target=fn, daemon=True)
                   for fn in [rest_of_native, short.rest] + [st.rest for st in streams]]
        for t in readers:
            t.start()
        os.kill(s.pid, sig)
        for c in idle:
            equal(c.drain(), b"", "idle connections are closed")
        for t in readers:
            t.join(WAIT)
        equal((short.text(), short.done), ("ab" * 40, 1), "a short stream finishes")
        for st in streams:
            check([e["code"] for e in st.errors()] == ["drain_limit"] and st.done == 1 and st.ended,
                  "a long one gets its terminal event", st.events[-1:])
        ev = native_events(b"".join(data))
        check([t for _, t, _ in ev[-2:]] == ["usage", "response.cancelled"] and
              ev[-1][2]["reason"] == "drain_limit", "native: response.cancelled", ev[-1:])
        half.drain()
        equal(s.wait_exit(), 0, f"{sig.name}: exit code 0")
        check(not any(living(p) for p in pids), "every process is gone")
        rows = {r["request_id"]: r for r in s.rows()}
        check(all(rows.get(f"d{i}", {}).get("reason") == "drain_limit" for i in range(3)) and
              rows.get("short", {}).get("reason") == "length", "the rows", rows)
        s.stop()


@test
def drain_refuses_new_work():
    """New connects are refused, or told 503, while streams finish; readiness says so first."""
    with Server(drain_grace_s=2, drain_s=60, sim_step_us=5000) as s:
        st = forced(s, 800).read(1)
        open_before = s.conn()
        open_before.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        open_before.response()
        begin = time.monotonic()
        os.kill(s.pid, signal.SIGTERM)

        def in_the_grace(ask, status):
            """It says so, or the answer came too late to be of the grace."""
            try:
                return ask().status == status or time.monotonic() - begin >= 2
            except (OSError, EOFError):
                return time.monotonic() - begin >= 2
        check(until(lambda: in_the_grace(lambda: s.get("/health"), 503)), "in the grace /health is 503")
        check(in_the_grace(lambda: s.post(COMP, completion("x", max_tokens=1)), 200),
              "but requests are still taken")

        def refused():
            try:
                r = s.post(COMP, completion("x", max_tokens=1))
                return is_error(r, 503, code="draining")
            except (OSError, EOFError):
                return True
        check(until(refused), "then new work is refused")
        st.rest()
        equal(st.text(), "ab" * 800, "the open stream is whole")
        equal(s.wait_exit(), 0, "exit code 0, when the last stream is out")


@test
def drain_answers_the_backlog():
    """Clients in the queue of the listening socket when the drain closes it are told, not reset."""
    s = Server(frontends=2, drain_s=60)
    for p in s.pids["frontend"]:
        os.kill(p, signal.SIGSTOP)
    waiting = [s.conn() for _ in range(20)]
    for c in waiting[:10]:
        c.send(request("POST", COMP, completion("x", max_tokens=1)))
    os.kill(s.pid, signal.SIGTERM)
    # Asleep again after it has closed its sockets: by then everybody can know.
    check(until(lambda: not listens(s.pid) and parent_and_state(s.pid)[1] == "S"), "it drains")
    for p in s.pids["frontend"]:
        os.kill(p, signal.SIGCONT)
    for c in waiting[10:]:
        with contextlib.suppress(OSError):
            c.send(request("POST", COMP, completion("x", max_tokens=1)))
    for i, c in enumerate(waiting):
        try:
            r = c.response()
            check(is_error(r, 503, code="draining") and r.header("connection") == "close" and not c.more(),
                  "503 draining, then the end", i, r.status, r.text)
        except (OSError, EOFError) as e:
            check(False, "each is answered", i, e)
        c.close()
    equal(s.wait_exit(), 0, "exit code 0")
    s.stop()


@test
def drain_with_a_stopped_frontend():
    """It would keep the socket open and the drain waiting: killed for its silence, and its requests have
    their rows."""
    s = Server(frontends=2, drain_s=600, frontend_stall_s=4, sim_step_us=5000)
    stopped, other = s.pids["frontend"]
    mute = Stream(s, COMP, force(AB, prompt="x", max_tokens=8000, stream=True), conn=s.conn_at(stopped),
                  headers=["X-Request-Id: mute"]).read(1)
    heard = Stream(s, COMP, force(AB, prompt="x", max_tokens=400, stream=True), conn=s.conn_at(other),
                   headers=["X-Request-Id: heard"]).read(1)
    os.kill(stopped, signal.SIGSTOP)
    os.kill(s.pid, signal.SIGTERM)
    heard.rest()
    equal((heard.text(), heard.done), ("ab" * 400, 1), "the other one's stream is whole")
    equal(s.wait_exit(), 0, "the drain ends long before its limit")
    check("a frontend gave no sign of life" in s.log(), "and why is told", s.log()[-500:])
    equal(s.log().count("gave no sign of life"), 1, "once")
    rows = {r["request_id"]: (r["status"], r["reason"]) for r in s.rows()}
    check(sorted(rows) == ["heard", "mute"] and rows["heard"][1] == "length" and rows["mute"][0] == "cancelled",
          "the rows", rows)
    with contextlib.suppress(EOFError, ConnectionResetError):
        mute.rest()
    check(not mute.ended, "the killed one's stream is cut visibly")
    mute.close()
    s.stop()


@test
def drain_with_a_stopped_engine():
    """It is replaced, as outside of a drain, and its streams go on."""
    s = Server(drain_s=600, engine_stall_s=2, sim_step_us=1000)
    st = forced(s, 1000, headers=["X-Request-Id: whole"]).read(2)
    os.kill(s.pids["engine"][0], signal.SIGSTOP)
    os.kill(s.pid, signal.SIGTERM)
    st.rest()
    equal((st.text(), st.done), ("ab" * 1000, 1), "the stream is whole")
    equal(s.wait_exit(), 0, "the drain ends long before its limit")
    equal([(r["request_id"], r["reason"]) for r in s.rows()], [("whole", "length")], "its row")
    s.stop()


@test
def second_signal():
    """Case B27: a second signal ends it at once, whatever is open, still with terminal events and
    rows."""
    for first, second in ((signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGQUIT),
                          (signal.SIGTERM, signal.SIGINT)):
        shm = shared_objects()
        s = Server(drain_s=600)
        streams = [forced(s, 8000, headers=[f"X-Request-Id: s{i}"]).read(1) for i in range(4)]
        idle, half = s.conn(), s.conn()
        idle.send(request("GET", "/livez"))
        equal(idle.response().status, 200, "an idle connection")
        half.send(request("POST", COMP, completion("x"))[:-5])
        pids = s.all_pids()
        os.kill(s.pid, first)

        def refused():
            try:
                return is_error(s.post(COMP, completion("x", max_tokens=1)), 503, code="draining")
            except (OSError, EOFError):
                return True
        check(until(refused), "no new work")
        check(s.child.poll() is None, "the first waits for the streams")
        os.kill(s.pid, second)
        ends = []
        for st in streams:
            with contextlib.suppress(EOFError, ConnectionResetError):
                st.rest()
            ends.append([e["code"] for e in st.errors()] == ["drain_limit"] or not st.ended)
        check(all(ends), "each stream has its terminal event, or is cut visibly")
        equal(s.wait_exit(), 0, f"{first.name}, {second.name}: exit code 0")
        check(not any(living(p) for p in pids), "every process is gone")
        rows = {r["request_id"]: r for r in s.rows()}
        check(all(rows.get(f"s{i}", {}).get("reason") == "drain_limit" and
                  rows[f"s{i}"]["completion_tokens"] < 8000 for i in range(4)),
              "the rows: no stream was waited for", rows)
        equal(shared_objects(), shm, "no shared-memory object left")
        # Who has not ended by itself after a moment is killed (9), which is no crash.
        check("core dumped" not in s.log() and not re.search(r"killed by signal (?!9\b)", s.log()),
              "nobody crashed", s.log())
        s.stop()


@test
def engine_killed_in_the_cut():
    """An engine that does not follow the drain is killed; the ledger settles what it left."""
    s = Server(drain_s=600)
    streams = [forced(s, 8000, headers=[f"X-Request-Id: k{i}"]).read(1) for i in range(3)]
    os.kill(s.pids["engine"][0], signal.SIGSTOP)
    os.kill(s.pid, signal.SIGTERM)
    check(until(lambda: "draining" in s.log()), "it drains")
    os.kill(s.pid, signal.SIGTERM)
    equal(s.wait_exit(), 0, "exit code 0")
    rows = {r["request_id"]: r for r in s.rows()}
    check(sorted(rows) == ["k0", "k1", "k2"] and len(s.rows()) == 3, "one row each", rows)
    check(all(r["status"] == "cancelled" and r["reason"] == "drain_limit" and r["completion_tokens"] > 0
              for r in rows.values()), "with what was generated", rows)
    for st in streams:
        st.close()
    s.stop()


@test
def everybody_killed_in_the_drain():
    """Also when the ledger dies with the rest, at the very end, there is one that settles what is left."""
    s = Server(drain_s=600)
    st = forced(s, 8000, headers=["X-Request-Id: left"]).read(3)
    children_of_it = s.all_pids()[1:]
    os.kill(s.pid, signal.SIGTERM)
    check(until(lambda: "draining" in s.log()), "it drains")
    os.kill(s.pid, signal.SIGSTOP)  # so that it learns of all deaths at once
    for p in children_of_it:
        os.kill(p, signal.SIGKILL)
    check(until(lambda: not any(living(p) for p in children_of_it)), "everybody is dead")
    os.kill(s.pid, signal.SIGCONT)
    equal(s.wait_exit(), 0, "exit code 0")
    rows = s.rows()
    check([r["request_id"] for r in rows] == ["left"] and rows[0]["completion_tokens"] >= 3,
          "what was open has its row", rows)
    st.close()
    s.stop()


@test
def ledger_that_does_not_end():
    """A disk that never answers does not keep the service from ending; the status tells."""
    s = Server()
    os.kill(s.pids["ledger"][0], signal.SIGSTOP)
    os.kill(s.pid, signal.SIGTERM)
    equal(s.wait_exit(), 1, "exit code 1: rows may be missing")
    check("ledger" in s.log().splitlines()[-1], "a sentence about it", s.log()[-300:])
    s.stop()


@test
def engine_stalls():
    """An engine without a sign of life for --engine-stall-s is replaced; so is a frontend."""
    with Server(engine_stall_s=2, frontend_stall_s=2, sim_step_us=1000) as s:
        st = forced(s, 1000).read(2)
        old = s.pids["engine"]
        os.kill(old[0], signal.SIGSTOP)
        st.rest()
        equal((st.text(), st.done), ("ab" * 1000, 1), "the stream is whole")
        serves_again(s, "a stalled engine")
        check(s.pids["engine"] != old, "by another one")
        os.kill(s.pids["frontend"][0], signal.SIGSTOP)
        old = s.pids["frontend"][0]
        check(until(lambda: not living(old)), "a stalled frontend is replaced")

        def up():
            p = s.processes()["frontend"]
            return len(p) == 2 and old not in p
        check(until(up), "two frontends again")
        s.pids = s.processes()
        s.alive("a stalled frontend")


@test
def everybody_stood_still():
    """A container that was frozen for longer than the limits: nobody is taken for stalled afterwards."""
    with Server(engine_stall_s=3, frontend_stall_s=3) as s:
        st = forced(s, 300).read(2)
        pids = s.all_pids()
        for p in pids:
            os.kill(p, signal.SIGSTOP)
        time.sleep(3.5)
        for p in pids:  # the supervisor first, and it has time to look
            os.kill(p, signal.SIGCONT)
            time.sleep(0.1)
        st.rest()
        equal((st.text(), st.done), ("ab" * 300, 1), "the stream is whole")
        equal(s.all_pids(), pids, "nobody was killed")
        s.alive("a pause")


@test
def log_reader_leaves():
    """Whoever read the log is gone: lines are lost, the service is not."""
    out = tempfile.TemporaryFile()
    p = subprocess.Popen(command({**SIM, "port": 0}), stdout=out, stderr=subprocess.PIPE)
    p.stderr.close()

    def ready():
        out.seek(0)
        return b"ready" in out.read()
    check(until(ready), "it serves without a log")

    def engine():
        pids = [c for c in children(p.pid) if "engine" in title(c)]
        return pids[0] if pids and living(pids[0]) else None
    old = until(engine)
    os.kill(old, signal.SIGKILL)
    check(until(lambda: engine() not in (None, old)), "a death that nobody reads about is mended")
    p.send_signal(signal.SIGTERM)
    equal(p.wait(60), 0, "it drains")


@test
def no_standard_descriptors():
    """Closed standard descriptors are not taken for sockets or shared memory."""
    p = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command({**SIM, "port": 0})])
    check(until(lambda: len(children(p.pid)) >= 3), "the processes are there")
    check(all(os.readlink(f"/proc/{p.pid}/fd/{n}") == "/dev/null" for n in range(3)), "0, 1 and 2 are taken")
    p.send_signal(signal.SIGTERM)
    equal(p.wait(60), 0, "it drains")


@test
def requests_between_two_engines():
    """They wait for the next one, as far as there are places; then 503 with Retry-After, never a hang."""
    with Server(max_seqs=2, max_queue=2, sim_step_us=1000, faults=True) as s:
        engine = s.pids["engine"][0]
        s.faults.arm("supervisor.reaped", "stop")  # so that nobody comes for a while
        os.kill(engine, signal.SIGKILL)
        supervisor = s.faults.wait_stopped("supervisor.reaped")
        check(supervisor == s.pid, "there is no engine now", supervisor)
        streams = [forced(s, 50) for _ in range(4)]
        equal([st.headers() for st in streams], [200] * 4, "as many are taken as there are places")
        r = s.post(COMP, force(AB, prompt="x", max_tokens=1))
        check(is_error(r, 503) and r.header("retry-after"), "the next is told", r.status, r.text)
        equal(s.get("/health").status, 200, "a short absence is nobody's business")
        check(until(lambda: s.get("/health").status == 503), "a longer one is")
        Faults.go_on(supervisor)
        for st in streams:
            st.rest()
            equal((st.text(), st.done), ("ab" * 50, 1), "and all are served by the next engine")
        check(until(lambda: s.get("/health").status == 200), "ready again")


if __name__ == "__main__":
    main()
