# SPDX-License-Identifier: Apache-2.0
"""Two replicas behind Envoy (deploy/envoy/replicas.yaml), one PostgreSQL for the ledgers of both.

Clients ask without a pause and try again as long as no byte of an answer has come.  Meanwhile the replicas are
stopped and started in turn, then one is killed as a whole.  A restart fails no stream, a kill those on that
replica alone, and what the clients counted is what PostgreSQL has: no row too few, too many or twice.

ROUNDS (3): how often both are restarted."""
from passing import *
from database import Postgres, quiet_port

ROUNDS = int(os.environ.get("ROUNDS", "3"))
CLIENTS = 40
TRIES = 100  # a tenth of a second apart


# ---- the peers ----------------------------------------------------------------------------------

class Replica:
    """A place at which a service runs, is stopped and started again: its port and its spool stay."""

    def __init__(self, name, url, grace_s):
        self.name, self.url, self.grace_s, self.port = name, url, grace_s, quiet_port()
        self.spool = os.path.join(tempfile.mkdtemp(prefix="tokenring-test-"), "spool")
        self.start()

    def start(self):
        self.server = Server(TINY, ledger=self.url, ledger_spool=self.spool, port=self.port, max_seqs=64,
                             drain_grace_s=self.grace_s)

    def restart(self):
        """Seconds from SIGTERM to the end, and from there until it is ready again."""
        begin = time.monotonic()
        self.server.child.send_signal(signal.SIGTERM)
        equal(self.server.wait_exit(), 0, f"{self.name}: a drain ends with status 0")
        gone = time.monotonic()
        self.server.stop()
        self.start()
        return gone - begin, time.monotonic() - gone

    def kill(self):
        self.server.kill_all()
        self.server.stop()
        self.start()


class Envoy(Front):
    name, ports = "envoy", ("http", "admin")

    def write(self):
        port = "port_value: %d".__mod__
        changes = {port(9901): port(self.at["admin"]), port(8000): port(self.port),
                   port(8081): port(self.up[0]), port(8082): port(self.up[1])}
        if self.options.get("h2"):
            changes["{http_protocol_options: {}}"] = "{http2_protocol_options: {}}"
        path = self.put("replicas.yaml", shipped("envoy/replicas.yaml", changes))
        return [f"{PLACE}/bin/envoy", "-c", path, "--concurrency", "2", "--disable-hot-restart", "-l", "warn"]

    def asked(self, path):
        with contextlib.closing(Conn(self.at["admin"])) as c:
            c.send(request("GET", path))
            return c.response().text

    def sees(self, ports):
        """Whether it holds the replicas at these ports for healthy."""
        hosts = json.loads(self.asked("/clusters?format=json"))["cluster_statuses"][0].get("host_statuses", [])
        good = {h["address"]["socket_address"]["port_value"] for h in hosts
                if h["health_status"] == {"eds_health_status": "HEALTHY"}}
        return good >= set(ports)

    def retries(self):
        m = re.search(r"upstream_rq_retry: (\d+)", self.asked("/stats?filter=tokenring.upstream_rq_retry$"))
        return int(m[1]) if m else 0


# ---- the clients --------------------------------------------------------------------------------

class Early(Exception):
    """Nothing of an answer has come: it may be asked again."""


class Load:
    """Clients that ask one thing after the other, most of it streamed, and count what they get."""

    def __init__(self, port, name):
        self.port, self.name, self.over = port, name, False
        self.lock = threading.Lock()
        self.answered = {}  # request id: completion tokens of what came to its end
        self.broken = {}    # request id: what was seen of a stream that did not
        self.early = {}     # request id of a try that gave nothing: why
        self.waited = 0.0   # the longest time from the first try to the head of a stream
        self.threads = [threading.Thread(target=self._client, args=(i,), daemon=True) for i in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def _client(self, who):
        rng, n, conn = random.Random(who), 0, None
        while not self.over:
            n += 1
            body = {"model": MODEL, "prompt": [rng.randrange(200) for _ in range(rng.randrange(1, 40))],
                    "max_tokens": rng.randrange(1, 400), "ignore_eos": True, "stream": n % 4 > 0}
            if body["stream"]:
                body["stream_options"] = {"include_usage": True}
            conn = self._until_answered(f"{self.name}-{who}-{n}", body, conn)
            if conn and n % 5 == 0:  # most requests come on a connection that was used before
                conn.close()
                conn = None

    def _until_answered(self, name, body, conn):
        """Asks until something comes; the connection, if it can be used again."""
        begin = time.monotonic()
        for k in range(TRIES):
            try:
                conn = conn or Conn(self.port)
                tokens = self._ask(conn, f"{name}-{k}", body, begin)
                with self.lock:
                    self.answered[f"{name}-{k}"] = tokens
                return conn
            except (Early, OSError, EOFError, ValueError) as e:
                if conn:
                    conn.close()
                conn = None
                with self.lock:
                    (self.early if isinstance(e, Early) else self.broken)[f"{name}-{k}"] = repr(e)
                if not isinstance(e, Early):
                    return None
            time.sleep(0.1)
        self.broken[name] = f"{TRIES} tries"
        return None

    def _ask(self, conn, name, body, begin):
        """The completion tokens of a whole answer."""
        try:
            conn.send(request("POST", COMP, body, [f"X-Request-Id: {name}"]))
            status, _, headers = conn.head()
        except (OSError, EOFError) as e:
            raise Early(repr(e)) from e
        if body["stream"]:
            with self.lock:
                self.waited = max(self.waited, time.monotonic() - begin)
        data = b""
        if headers.get("transfer-encoding") == "chunked":
            while (part := conn.chunk()):
                data += part
        else:
            data = conn.take(int(headers["content-length"]))
        if status in (429, 502, 503, 504):
            raise Early(f"{status} {data[:150]!r}")
        if status != 200:
            raise ValueError(f"{status} {data[:300]!r}")
        if not body["stream"]:
            return json.loads(data)["usage"]["completion_tokens"]
        events = data.split(b"\n\n")
        said = [json.loads(e[6:]) for e in events if e.startswith(b"data: {")]
        if events[-2:] != [b"data: [DONE]", b""] or any("error" in e for e in said):
            raise ValueError(f"no good end: {data[-300:]!r}")
        tokens = said[-1]["usage"]["completion_tokens"]
        if tokens != body["max_tokens"]:
            raise ValueError(f"{tokens} tokens of {body['max_tokens']}")
        return tokens

    def more(self, n):
        want = len(self.answered) + n
        return check(until(lambda: len(self.answered) >= want), f"{self.name}: requests go on and end", len(self.answered), want)

    def end(self):
        self.over = True
        for t in self.threads:
            t.join(3 * WAIT)
        check(not any(t.is_alive() for t in self.threads), f"{self.name}: every client comes to an end")


# ---- the sums -----------------------------------------------------------------------------------

def exact(pg, load, cut=False):
    """PostgreSQL has what the clients have.  cut: tries that were cut may have a row or not; they were
    admitted or not, and nobody saw which."""
    of_load = f"FROM tokenring_requests WHERE request_id LIKE '{load.name}-%'"
    until(lambda: int(pg.sql(f"SELECT count(*) {of_load}")[0][0]) >= len(load.answered))
    equal(pg.sql(f"SELECT count(*) - count(DISTINCT stream_id), count(*) - count(DISTINCT request_id) {of_load}"), [["0", "0"]],
          f"{load.name}: nothing is there twice")
    rows = {r[0]: (r[1], int(r[2])) for r in pg.sql(f"SELECT request_id, status, completion_tokens {of_load}")}
    got = {name: tokens for name, (_, tokens) in rows.items() if name in load.answered}
    differ = {name: (got.get(name), n) for name, n in load.answered.items() if got.get(name) != n}
    check(not differ, f"{load.name}: every answer has its row, with the tokens its client counted", len(differ), list(differ.items())[:3])
    more = {name: row for name, row in rows.items() if name not in load.answered}
    strange = {name: row for name, row in more.items() if not cut or name not in {**load.broken, **load.early} or row[0] == "completed"}
    check(not strange, f"{load.name}: every other row is of a stream that was cut", len(strange), list(strange.items())[:3])
    return sum(n for _, n in rows.values()), len(more)


def told(pg, load, column, cut=False):
    tokens, more = exact(pg, load, cut)
    print(f"  {load.name}:", sorted({re.sub(r"\d+", "N", v)[:120] for v in [*load.early.values(), *load.broken.values()]}))
    for row, words in (("answers that clients have whole, streamed and not", len(load.answered)),
                       ("completion tokens: clients", sum(load.answered.values())),
                       ("completion tokens: PostgreSQL", tokens),
                       ("rows: PostgreSQL", len(load.answered) + more),
                       ("tries that were repeated, nothing had come", len(load.early)),
                       ("streams that broke", len(load.broken)),
                       ("longest wait for the head of a stream", f"{load.waited:.2f} s")):
        tell("rolling", column, row, f"{words:,}" if isinstance(words, int) else words)


def rolling(column, grace_s, h2=False):
    name = re.sub(r"\W+", "-", column)
    with Postgres() as pg:
        replicas = [Replica(n, pg.url(), grace_s) for n in ("A", "B")]
        with Envoy(*replicas, h2=h2) as envoy:
            check(until(lambda: envoy.sees([r.port for r in replicas])), "Envoy finds both replicas", envoy.log())
            load, times = Load(envoy.port, name), []
            load.more(100)
            for r in ROUNDS * replicas:
                times.append(r.restart())
                check(until(lambda r=r: envoy.sees([r.port])), f"{r.name}: Envoy sees it again")
                load.more(20)
            load.end()
            equal(load.broken, {}, f"{name}: no stream failed")
            told(pg, load, column)
            tell("rolling", column, "retries by Envoy", envoy.retries())
            tell("rolling", column, "restarts; longest from SIGTERM to the end, to readiness",
                 f"{len(times)}; {max(t[0] for t in times):.1f} s, {max(t[1] for t in times):.1f} s")
        for r in replicas:
            r.server.stop()


@test
def restarts():
    rolling("HTTP/1.1", 4)


@test
def restarts_over_http2():
    rolling("HTTP/2", 4, h2=True)


@test
def restarts_without_grace():
    """Clients are refused, and see it before the first byte."""
    rolling("no grace", 0)


@test
def one_is_killed():
    with Postgres() as pg:
        replicas = [Replica(n, pg.url(), 0) for n in ("A", "B")]
        with Envoy(*replicas) as envoy:
            until(lambda: envoy.sees([r.port for r in replicas]))
            load = Load(envoy.port, "killed")
            for _ in range(ROUNDS):
                load.more(100)
                replicas[0].kill()
                check(until(lambda: envoy.sees([replicas[0].port])), "Envoy sees the killed replica again")
            load.more(100)
            load.end()
            check(0 < len(load.broken) <= ROUNDS * CLIENTS, "streams on the killed replica break, no others", len(load.broken))
            told(pg, load, "kill -9", cut=True)
            cut = {name: n for name, n in replicas[1].server.metrics().items()
                   if name.startswith("streams_ended_total") and n and '"length"' not in name}
            equal(cut, {}, "every stream of the other replica came to its natural end")
        for r in replicas:
            r.server.stop()


if __name__ == "__main__":
    main()
