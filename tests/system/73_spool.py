# SPDX-License-Identifier: Apache-2.0
"""Between the queue and the database: a database that takes nothing, a spool that is full or damaged, a
ledger process that is killed, two services that want the same.  Each admitted request is there once."""
import glob
import shutil
import sqlite3

from lib import *

COMP = "/v1/completions"
FAST = dict(TINY, sim_step_us=500)


def folder():
    return tempfile.mkdtemp(prefix="tokenring-test-")


@contextlib.contextmanager
def locked(path):
    """Somebody else writes to the database, and takes his time."""
    db = sqlite3.connect(path, timeout=WAIT, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        db.close()


def in_database(path):
    """Request ids in the database alone."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=WAIT)) as db:
        return [r[0] for r in db.execute("SELECT request_id FROM request")]


def segments(path, ending=".spool"):
    return sorted(os.path.join(path + ".spool", f) for f in os.listdir(path + ".spool") if f.endswith(ending))


def ask(s, name, tokens=5):
    """A stream to its natural end."""
    st = s.stream(COMP, force(97, prompt="x", max_tokens=tokens, stream=True),
                  headers=[f"X-Request-Id: {name}"]).rest()
    st.close()
    return st.done == 1 and st.finishes() == ["length"]


def each_once(rows, names, claim):
    ids = sorted(r["request_id"] if isinstance(r, dict) else r for r in rows)
    equal(ids, sorted(names), claim)


@test
def database_is_locked():
    """For seconds, by somebody else: streams end as always, and all rows come when it is free."""
    with Server(FAST, ledger_wait_ms=600_000) as s:
        check(ask(s, "first") and until(lambda: in_database(s.ledger) == ["first"]), "a row before")
        with locked(s.ledger):
            long = s.stream(COMP, force(97, prompt="x", max_tokens=2000, stream=True),
                            headers=["X-Request-Id: long"]).read(2)
            names = [f"l{i}" for i in range(40)]
            check(all(together([lambda n=n: ask(s, n) for n in names])), "streams end while it is locked")
            equal(s.post(COMP, force(97, prompt="x", max_tokens=3), headers=["X-Request-Id: whole"]).status, 200,
                  "so do answers that are not streamed")
            names += ["whole", "first"]
            each_once(s.rows(), names, "all of them are there, from the spool")
            check(until(lambda: s.metric("ledger_database_errors_total") >= 3), "it is tried again and again")
            m = s.metrics()
            check(m["ledger_spool_bytes"] > 40 * 200 and m["ledger_unconfirmed_total"] == 0 and
                  m["ledger_errors_total"] == 0 and m["ledger_lag_seconds"] == 0, "the spool holds them", m)
            equal(s.log().count("is locked; records wait in the spool"), 1, "told once, not at each try")
            long.read(20)
            equal(in_database(s.ledger), ["first"], "nothing of it is in the database")
        check(until(lambda: len(in_database(s.ledger)) == len(names)), "then they come")
        check(until(lambda: "takes records again" in s.log()), "and the log says so")
        long.rest()
        s.row("long")
        each_once(s.rows(), names + ["long"], "each once")
        check(until(lambda: len(in_database(s.ledger)) == len(names) + 1), "the last one, too")
        check(all(r["delivered_tokens"] == r["completion_tokens"] for r in s.rows()), "with what was delivered")
        s.child.send_signal(signal.SIGTERM)
        equal(s.wait_exit(), 0, "it ends well")
        equal(segments(s.ledger), [], "and leaves an empty spool")


@test
def spool_is_full():
    """New requests are refused when nothing can wait any more; nothing of what ran is lost or doubled."""
    with Server(FAST, max_seqs=4, max_queue=4, max_streams=32, ledger_wait_ms=10, ledger_spool_max="64K") as s:
        check(ask(s, "first"), "a row before")
        with locked(s.ledger):
            long = s.stream(COMP, force(97, prompt="x", max_tokens=4000, stream=True),
                            headers=["X-Request-Id: long"]).read(2)
            names, last = ["first", "long"], None
            for i in range(5000):
                last = s.post(COMP, force(97, prompt="x", max_tokens=1), headers=[f"X-Request-Id: f{i}"])
                if last.status != 200:
                    break
                names.append(f"f{i}")
            check(is_error(last, 503, code="ledger_backlog") and last.header("retry-after"), "503 ledger_backlog",
                  len(names), last.text)
            check(100 < len(names) < 1000, "when spool and slots are full", len(names))
            check(s.metric("ledger_spool_bytes") <= 65536, "the spool keeps its limit")
            check("spool is full (64 KiB)" in s.log(), "the log says so")
            equal(s.get("/health").status, 200, "readiness is not about the ledger")
            long.read(20)
            check(not long.ended, "a stream that runs goes on")
            check(s.metric("ledger_unconfirmed_total") >= 1 and until(lambda: s.metric("ledger_lag_seconds") > 0),
                  "ends that were told without a record are counted")
        check(until(lambda: s.post(COMP, force(97, prompt="x", max_tokens=1),
                                   headers=["X-Request-Id: again"]).status == 200), "there is room again")
        long.rest()
        check(until(lambda: len(s.rows()) == len(names) + 1), "every row comes", len(s.rows()), len(names))
        each_once(s.rows(), names + ["again"], "each once")
        check(until(lambda: sorted(in_database(s.ledger)) == sorted(names + ["again"])), "in the database")
        check(until(lambda: s.metric("ledger_lag_seconds") == 0), "no lag is left")
        check("has room again" in s.log(), "and the log says so again")


@test
def two_services():
    """One file or one spool is one service's."""
    def refused(claim, *words, **flags):
        p = serve_once(dict(TINY, port=0, **flags))
        lines = [line for line in p.stderr.splitlines() if " error " in line]
        check(p.returncode == 1 and len(lines) == 1 and all(w in lines[0] for w in words), claim, p.returncode, lines)

    with Server(FAST) as s:
        check(ask(s, "first"), "a row")
        other = os.path.join(folder(), "other.db")
        link, words = other + ".link", "in use by another service"
        os.symlink(s.ledger, link)
        equal(together([lambda: refused("the same file", words, s.ledger, ledger=s.ledger),
                  lambda: refused("the same file with another spool", words, s.ledger, ledger=s.ledger,
                                  ledger_spool=link + ".1"),
                  lambda: refused("the same file by another name", words, link, ledger=link),
                  lambda: refused("the same spool", words, s.ledger + ".spool", ledger=other,
                                  ledger_spool=s.ledger + ".spool")]), [None] * 4, "all of them were tried")
        check(not os.path.exists(other), "the last of them makes no database")
        s.alive("others wanted its ledger", None)
        check(ask(s, "second"), "it goes on")
        each_once(s.rows(), [r["request_id"] for r in s.rows()], "each once")
        check({"first", "second"} <= {r["request_id"] for r in s.rows()}, "with all rows")


def serve_once(flags):
    args = [BIN, "serve"]
    for k, v in flags.items():
        args += ["--" + k.replace("_", "-"), str(v)]
    return subprocess.run(args, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", timeout=WAIT, check=False)


@test
def what_is_no_ledger():
    """Is refused with a sentence, and is afterwards what it was before."""
    place, made = folder(), {"newer": ["newer.spool"]}

    def refused(name, word):
        path = os.path.join(place, name)
        with open(path, "rb") as f:
            before = f.read()
        p = serve_once(dict(TINY, port=0, ledger=path))
        errors = [line for line in p.stderr.splitlines() if " error " in line]
        check(p.returncode == 1 and len(errors) == 1 and word in errors[0] and path in errors[0],
              f"{name}: one sentence", p.returncode, p.stderr[-500:])
        with open(path, "rb") as f:
            equal(f.read(), before, f"{name}: untouched")
        beside = [f for f in os.listdir(place) if f.startswith(name) and f != name]
        equal(beside, made.get(name, []), f"{name}: and nothing is made beside it")

    with open(os.path.join(place, "lines"), "w", encoding="utf-8") as f:
        f.write('{"request_id":"a"}\n')
    refused("lines", "no SQLite database")
    with contextlib.closing(sqlite3.connect(os.path.join(place, "foreign"))) as db:
        db.execute("CREATE TABLE request (a)")
        db.commit()
    refused("foreign", "another SQLite database")
    with Server(FAST, ledger=os.path.join(place, "newer")) as s:
        check(ask(s, "first"), "a ledger")
    with contextlib.closing(sqlite3.connect(os.path.join(place, "newer"))) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA user_version = 77")
    refused("newer", "newer version")


@test
def ledger_is_killed():
    """At any moment, also while the database is locked: each request has its row, once."""
    rounds = 60 if LONG else 6
    rng = random.Random(5)
    with Server(FAST, ledger_wait_ms=600_000) as s:
        names, over = [], []

        def load(who):
            mine = []
            while not over:
                mine.append(f"k{who}-{len(mine)}")
                if not ask(s, mine[-1]):
                    return mine + ["was not told its end"]
            return mine

        def kill():
            for i in range(rounds):
                with locked(s.ledger) if i % 3 == 0 else contextlib.nullcontext():
                    before = s.metric("ledger_rows_total")
                    until(lambda b=before, n=rng.randrange(1, 20): s.metric("ledger_rows_total") >= b + n)
                    for pid in s.processes()["ledger"]:
                        os.kill(pid, signal.SIGKILL)
                    check(until(lambda b=before: s.metric("ledger_rows_total") > b + 20), "it is replaced, and goes on")
            over.append(True)
            return []
        for part in together([kill] + [lambda i=i: load(i) for i in range(4)]):
            names += part
        each_once(s.rows(), names, "each once, of spool and database")
        check(until(lambda: len(in_database(s.ledger)) == len(names)), "and in the database",
              len(in_database(s.ledger)), len(names))
        equal(s.metric("process_restarts_total{role=\"ledger\"}"), rounds, "so often it was killed")
    print(f"    {rounds} deaths of the ledger, {len(names)} requests: each has its row")


@test
def everything_is_killed():
    """While the database is locked: what a client was told is in the spool, for readers at once and for the
    next start; bytes that were damaged meanwhile cost what lay in them, and are told."""
    path = os.path.join(folder(), "ledger.db")
    names = [f"ending-{i}" for i in range(12)]  # found in the spool by its bytes: nothing else there looks so
    s = Server(FAST, ledger=path, ledger_wait_ms=600_000, ledger_durability="process")
    try:
        check(ask(s, "first") and until(lambda: in_database(path) == ["first"]), "a row before")
        with locked(path):
            check(all(ask(s, n) for n in names), "streams end")
            s.kill_all()
        each_once(ledger_rows(path), ["first", *names], "all can be read before the next start")
    finally:
        s.stop()
    copy = path + ".copy"
    shutil.copytree(path + ".spool", copy)
    with Server(FAST, ledger=path) as s:
        check(until(lambda: len(in_database(path)) == 13), "the next start brings them to the database")
        each_once(s.rows(), ["first", *names], "once")
        check(ask(s, "later"), "and goes on")
    equal(segments(path), [], "a good end leaves no spool")
    # The same again, so that all of it is doubled; then with a changed byte, and its end cut off.
    for f in os.listdir(copy):
        if f.endswith(".spool"):
            shutil.copy(os.path.join(copy, f), path + ".spool")
    last = segments(path)[-1]
    with open(last, "r+b") as f:
        data = f.read()
        at = data.index(b"ending-5", 1)
        f.seek(at)
        f.write(b"#")
        f.truncate(len(data) - 3)
    for db in glob.glob(path + "*"):
        if os.path.isfile(db):
            os.unlink(db)
    with Server(FAST, ledger=path) as s:
        check(until(lambda: s.metric("ledger_anomalies_total") == 2), "what is damaged and what is torn is counted",
              s.metric("ledger_anomalies_total"))
        check("damaged bytes in" in s.log() and "a torn end in" in s.log(), "and told", s.log()[-800:])
        check(until(lambda: segments(path, ".bad")), "the segment is kept aside")
        rows = [r["request_id"] for r in s.rows()]
        missing = {"first", *names} - set(rows)
        check("ending-5" in missing and len(missing) <= 2 and len(rows) == len(set(rows)), "everything else is there", missing)
        s.alive("a damaged spool", None)


@test
def database_stays_locked_to_the_end():
    """The service does not wait for it; the next one brings the rest."""
    with Server(FAST) as s:
        check(ask(s, "first"), "a row before")
        with locked(s.ledger):
            names = [f"d{i}" for i in range(5)]
            check(all(ask(s, n) for n in names), "streams end")
            s.child.send_signal(signal.SIGTERM)
            equal(s.wait_exit(), 0, "it ends well")
            check("stay in the spool for the next start" in s.log(), "and says what is left", s.log()[-300:])
            each_once(s.rows(), ["first", *names], "where it can be read")
        with Server(FAST, ledger=s.ledger) as t:
            check(until(lambda: len(in_database(t.ledger)) == 6), "the next one has it")
            each_once(t.rows(), ["first", *names], "once")


@test
def durability():
    """Whatever an end waits for, its row comes."""
    for mode in ("power", "process", "none"):
        with Server(FAST, ledger_durability=mode, ledger_wait_ms=600_000) as s:
            names = [f"{mode}-{i}" for i in range(30)]
            check(all(together([lambda n=n: ask(s, n) for n in names])), f"{mode}: streams end")
            check(until(lambda: len(s.rows()) == 30), f"{mode}: rows", len(s.rows()))
            each_once(s.rows(), names, f"{mode}: once")
            equal(s.metric("ledger_unconfirmed_total"), 0, f"{mode}: none is told unconfirmed")


if __name__ == "__main__":
    main()
