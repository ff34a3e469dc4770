# SPDX-License-Identifier: Apache-2.0
"""The ledger in a real PostgreSQL: rows arrive, and each exactly once whatever happens to the server,
to the service or to its ledger process meanwhile; nothing a client waits for waits for the server."""
from lib import *
from database import PASSWORD, QUOTED, Postgres

COMP = "/v1/completions"
COUNTS = "SELECT count(*), count(DISTINCT request_id), count(delivered_tokens) FROM tokenring_requests"


def folder():
    return tempfile.mkdtemp(prefix="tokenring-test-")


def service(url, spool=None, **more):
    return Server(TINY, ledger=url, ledger_spool=spool or os.path.join(folder(), "spool"),
                  sim_step_us=500, **more)


def ask(s, name, tokens=5):
    """One stream to its end; its name, or None if it had none."""
    st = s.stream(COMP, force(97, prompt="x", max_tokens=tokens, stream=True),
                  headers=[f"X-Request-Id: {name}"]).rest()
    good = st.status == 200 and st.done == 1 and st.finishes() == ["length"]
    st.close()
    return name if good else None


class Load:
    """Clients that ask one thing after the other until they are told to end."""

    def __init__(self, s, prefix, clients=4):
        self.s, self.prefix, self.over, self.told, self.bad = s, prefix, False, [], []
        self.threads = [threading.Thread(target=self._ask, args=(i,), daemon=True) for i in range(clients)]
        for t in self.threads:
            t.start()

    def _ask(self, who):
        n = 0
        while not self.over:
            name = f"{self.prefix}-{who}-{n}"
            n += 1
            try:
                told = ask(self.s, name)
            except Exception as e:
                told = None
                self.bad.append(repr(e))
            (self.told if told else self.bad).append(name)
            time.sleep(0.01)

    def more(self, n=20):
        """Waits for so many more answers: the service does not wait for the database."""
        want = len(self.told) + n
        return check(until(lambda: len(self.told) >= want), "streams go on and end", len(self.told), want)

    def end(self):
        self.over = True
        for t in self.threads:
            t.join(WAIT)
        check(not self.bad, "every stream came to its natural end", self.bad[:3])
        return self.told


def arrived(pg, names, what):
    """All of these requests, each once, with both parts."""
    n = str(len(names))
    until(lambda: pg.sql(COUNTS) == [[n, n, n]])
    equal(pg.sql(COUNTS), [[n, n, n]], f"{what}: each request exactly once, and its delivery")
    equal({r[0] for r in pg.sql("SELECT request_id FROM tokenring_requests")}, set(names),
          f"{what}: those that were asked")
    equal(pg.sql("SELECT count(*) FROM tokenring_deliveries"), [["0"]],
          f"{what}: no delivery is left over")


def silent(s, what):
    """The password is neither in the log nor in any list of processes."""
    words = [PASSWORD, QUOTED, "pa%20ss", "pa ss"]
    shown = s.log() + "".join(title(p) for p in s.all_pids())
    check(not any(w in shown for w in words), f"{what}: nobody tells the password", shown[-300:])


def confined(s, what):
    filters = os.path.exists("/proc/sys/kernel/seccomp/actions_avail")
    for p in s.processes()["ledger"]:
        for t in os.listdir(f"/proc/{p}/task"):
            text = proc_read(p, f"task/{t}/status").decode()
            check(not filters or "Seccomp:\t2" in text, f"{what}: under its filter", text[-400:])
            check("CapEff:\t" + "0" * 16 in text, f"{what}: without capabilities")


@test
def one_row_for_each_part():
    """The statements themselves, against the server: orders, doubles, odd text (tests/system/postgres_sink.c)."""
    program = os.path.join(os.path.dirname(BIN), "../tests/system_postgres_sink")
    with Postgres() as pg:
        p = subprocess.run([program, pg.url()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           encoding="utf-8", check=False, timeout=5 * WAIT)
        last = (p.stdout.splitlines() or [""])[-1]
        check(re.fullmatch(r"[1-9]\d* passed, 0 failed", last) and p.returncode == 0,
              "the program's claims", p.stdout[-1500:])


@test
def rows_arrive():
    """By TCP, TLS with a checked certificate, a name that has to be looked up, and a UNIX socket."""
    with Postgres(tls=True) as pg:
        ways = {"tls": pg.url(host="localhost", more=f"?sslmode=verify-full&sslrootcert={pg.ca}"),
                "tcp": pg.url(), "unix": pg.local_url()}
        names = []
        for way, url in ways.items():
            with service(url) as s:
                start = time.time()
                names.append(ask(s, f"{way}-0", 7))
                arrived(pg, names, way)
                row = pg.sql("SELECT status, reason, model, choices, prompt_tokens, completion_tokens, last_token, "
                             "delivered_tokens, stream_id, extract(epoch FROM created_at), "
                             "created_at <= first_token_at AND first_token_at <= finished_at "
                             f"FROM tokenring_requests WHERE request_id='{way}-0'")[0]
                equal(row[:8], ["incomplete", "length", MODEL, "1", "1", "7", "97", "7"], f"{way}: the row")
                check(re.fullmatch("tr-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+", row[8]) and
                      start - 5 < float(row[9]) < time.time() + 5 and row[10] == "t", f"{way}: id, times", row)
                # Whoever connects again does it under the filter: look-up, handshake, certificate.
                pg.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename='tokenring'")
                names.append(ask(s, f"{way}-1"))
                arrived(pg, names, f"{way}, connected again")
                confined(s, way)
                equal(s.processes(), s.pids, f"{way}: the same processes")
                silent(s, way)


@test
def server_away():
    """The server is killed, comes back, stands still, goes on: streams end meanwhile, then all rows are there."""
    with Postgres() as pg, service(pg.url()) as s:
        load = Load(s, "away")
        load.more()
        for how in ("stopped at once", "frozen"):
            if how == "frozen":
                pg.freeze()
            else:
                pg.stop()
            load.more()
            check(until(lambda: "records wait in the spool" in s.log()), f"{how}: the log says so", s.log()[-400:])
            load.more()
            if how == "frozen":
                pg.freeze(False)
            else:
                pg.start()
            load.more()
            check(until(lambda: "takes records again" in s.log()), f"{how}: and when it is over", s.log()[-400:])
        arrived(pg, load.end(), "after both")
        equal(s.processes(), s.pids, "the same processes")
        m = s.metrics()
        equal((m["ledger_lag_seconds"], m["ledger_unconfirmed_total"]), (0, 0), "nobody waited for the server")
        silent(s, "away")


def slow_server():
    """Each group takes longer than one try waits: it is through at the next, not sent for ever."""
    with Postgres() as pg, service(pg.url()) as s:
        names = [ask(s, "quick")]
        arrived(pg, names, "quick")
        pg.sql("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3); RETURN NULL; END'")
        pg.sql("CREATE TRIGGER slow BEFORE INSERT ON tokenring_requests FOR EACH STATEMENT EXECUTE FUNCTION slow()")
        names.append(ask(s, "slow"))
        check(until(lambda: "takes records again" in s.log()), "it comes to an end", s.log()[-400:])
        arrived(pg, names, "slow")


def full_spool():
    """The service ends beside a server that stands still; what is in its spool is read, and brought by the
    next one."""
    spool = os.path.join(folder(), "spool")
    with Postgres() as pg:
        with service(pg.url(), spool) as s:
            names = [ask(s, "before")]
            arrived(pg, names, "before")
            pg.freeze()
            names += [ask(s, f"without-{i}") for i in range(20)]
            s.child.send_signal(signal.SIGTERM)
            equal(s.wait_exit(), 0, "it ends well without the server")
            pg.kill()
        p = ledger_tool("export", pg.url(), spool)
        check(p.returncode == 1 and "PostgreSQL" in p.stderr and PASSWORD not in p.stderr + p.stdout,
              "no server, no export", p.returncode, p.stderr, p.stdout)
        pg.start()
        p = ledger_tool("export", pg.url(), spool)
        equal(sorted(json.loads(line)["request_id"] for line in p.stdout.splitlines()), sorted(names),
              "export reads both")
        p = ledger_tool("verify", pg.url(), spool)
        equal((p.returncode, p.stdout),
              (0, "21 requests, 20 of them not yet in the database; 0 anomalies\n"), "verify too")
        equal(pg.sql(COUNTS), [["1", "1", "1"]], "and neither of them writes")
        with service(pg.url(), spool) as s:
            names.append(ask(s, "after"))
            arrived(pg, names, "the next start")
            p = ledger_tool("sum", pg.url(), spool, "--format", "jsonl")
            equal(json.loads(p.stdout)["requests"], 22, "sum")


def ledger_tool(action, url, spool, *flags):
    env = dict(os.environ, TOKENRING_LEDGER=url, TOKENRING_LEDGER_SPOOL=spool)
    return subprocess.run([BIN, "ledger", action, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", env=env, check=False, timeout=3 * WAIT)


@test
def two_services():
    """They start at once on an empty database, and gather in it."""
    with Postgres() as pg:
        both = together([lambda: service(pg.url()), lambda: service(pg.local_url())])
        a, b = both
        try:
            check(all(isinstance(s, Server) for s in both), "both start", both)
            loads = [Load(a, "a", 2), Load(b, "b", 2)]
            for load in loads:
                load.more()
            arrived(pg, [n for load in loads for n in load.end()], "two services")
            equal(pg.sql("SELECT version FROM tokenring_schema"), [["1"]], "one schema")
        finally:
            for s in both:
                if isinstance(s, Server):
                    s.stop()


@test
def killed_ledgers():
    """kill -9 of the ledger process at any time, also while the server is away."""
    rounds = 30 if LONG else 6
    with Postgres() as pg, service(pg.url()) as s:
        load = Load(s, "killed")
        for turn in range(rounds):
            if turn == rounds // 2:
                pg.stop()
            load.more(random.randint(1, 8))
            old = s.processes()["ledger"]
            for p in old:
                os.kill(p, signal.SIGKILL)
            check(until(lambda: s.processes()["ledger"] and s.processes()["ledger"] != old), "a new ledger process",
                  s.log()[-300:])
        pg.start()
        load.more(5)
        arrived(pg, load.end(), "killed ledgers")


def not_yet_reachable():
    """A wrong password, a database or a server that is not there: it serves, says so, and the rows come later."""
    with Postgres() as pg:
        later = folder()
        for what, url, mend in (
                ("password", pg.url(password="wrong-secret"), "ALTER ROLE tokenring PASSWORD 'wrong-secret'"),
                ("database", pg.url(password="wrong-secret", database="late"), "CREATE DATABASE late OWNER tokenring")):
            with service(url, os.path.join(later, what)) as s:
                names = [ask(s, f"{what}-{i}") for i in range(3)]
                check(None not in names, f"{what}: streams are served", names)
                check("records wait in the spool" in s.log() and "PostgreSQL" in s.log() and
                      "secret" not in s.log(), f"{what}: the log says what is wrong", s.log()[-400:])
                pg.sql(mend, into="postgres")
                into = "late" if what == "database" else "ledger"

                def there():
                    with contextlib.suppress(RuntimeError):
                        return pg.sql(COUNTS, into=into) == [["3"] * 3]
                check(until(there), f"{what}: rows come when it is mended", s.log()[-300:])


def mute_server():
    """Something that takes connections and says nothing: the service starts, serves and ends."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        with service(f"postgresql://me:secret@127.0.0.1:{mute.getsockname()[1]}/db") as s:
            check(ask(s, "mute"), "streams are served")
            check(until(lambda: "does not answer" in s.log()) and "secret" not in s.log(), "the log says so", s.log()[-300:])
            s.child.send_signal(signal.SIGTERM)
            equal(s.wait_exit(), 0, "it ends well")


@test
def refused():
    """What will never go well ends the start, in one sentence that has no password in it."""
    with Postgres() as pg:
        pg.sql("CREATE TABLE tokenring_requests(a int)")
        before = pg.sql("SELECT relname FROM pg_class WHERE relname LIKE 'tokenring%'")
        status, err, _ = fails_to_start(dict(TINY, ledger=pg.url(), ledger_spool=folder(), port=0))
        check(status == 1 and "not a ledger's" in err, "tables of somebody else", status, err[-300:])
        equal(pg.sql("SELECT relname FROM pg_class WHERE relname LIKE 'tokenring%'"), before, "they are as they were")
        pg.sql("DROP TABLE tokenring_requests")
        with service(pg.url()) as s:
            arrived(pg, [ask(s, "now")], "an empty database")
        pg.sql("UPDATE tokenring_schema SET version=99")
        status, err, _ = fails_to_start(dict(TINY, ledger=pg.url(), ledger_spool=folder(), port=0))
        check(status == 1 and "newer tokenring" in err, "a newer schema", status, err[-300:])
        p = ledger_tool("export", pg.url(), folder())
        check(p.returncode == 1 and "newer tokenring" in p.stderr, "for the tool as well", p.stderr)
    for url in ("postgresql://me:sec@ret@host/db", "postgresql://me:sec/ret@host/db", "postgres://me:secret@host:x/db",
                "postgresql://me:sec%ret@host/db", "postgresql://me:secret@host/db?none=1",
                "postgresql://me:secret@127.0.0.1:1/db?sslmode=none"):
        status, err, _ = fails_to_start(dict(TINY, ledger=url, ledger_spool=folder(), port=0))
        check(status in (1, 2) and "PostgreSQL" in err and "sec" not in err and "ret@" not in err,
              f"{url} is refused", status, err[-300:])
    url = "postgresql://me:secret@host/db"
    for argv in (["serve", url], ["serve", f"--leger={url}"], ["ledger", "sum", url], ["ledger", "sum", f"--leger={url}"],
                 ["ledger", "sum", "--by", url], ["ledger", url]):
        status, err, _ = fails_to_start(argv)
        check(status == 2 and "secret" not in err and err, "nor is an address at a wrong place repeated", argv, err)


@test
def what_mostly_waits():
    """Those that wait for time limits, beside each other."""
    jobs = [slow_server, full_spool, not_yet_reachable, mute_server]
    for job, result in zip(jobs, together(jobs)):
        check(result is None, f"{job.__name__} ran to its end", repr(result))


if __name__ == "__main__":
    main()
