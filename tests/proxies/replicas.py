# SPDX-License-Identifier: Apache-2.0
"""Two replicas behind Envoy (deploy/envoy/replicas.yaml), one PostgreSQL for the ledgers of both.

Clients ask without a pause and try again as long as no byte of an answer has come.  Meanwhile the replicas are
stopped and started in turn, then one is killed as a whole.  A restart fails no stream, a kill those on that
replica alone, and what the clients counted is what PostgreSQL has: no row too few, too many or twice.

ROUNDS (3): how often both are restarted."""
from load import *
from database import Postgres

ROUNDS = int(os.environ.get("ROUNDS", "3"))


# ---- the peers ----------------------------------------------------------------------------------

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


def told(pg, load, column, cut=False):
    def rows():
        found = pg.sql("SELECT request_id, stream_id, status, completion_tokens FROM tokenring_requests "
                       f"WHERE request_id LIKE '{load.name}-%'")
        return [(*r[:3], int(r[3])) for r in found]

    tokens, more = exact(rows, load, cut)
    print(f"  {load.name}:", reasons(load))
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
        replicas = [Replica(n, grace_s, pg.url()) for n in ("A", "B")]
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
        replicas = [Replica(n, 0, pg.url()) for n in ("A", "B")]
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


@test
def full_is_no_fault():
    """Both are full: clients are told so by tokenring itself, and nobody is ejected for it."""
    with Server(TINY, max_seqs=1, max_queue=0) as a, Server(TINY, max_seqs=1, max_queue=0) as b, Envoy(a, b) as envoy:
        check(until(lambda: envoy.sees([a.port, b.port])), "Envoy finds both replicas", envoy.log())
        held = [s.stream(COMP, force(97, prompt="x", max_tokens=8000, stream=True)).read(1) for s in (a, b)]
        refused = [envoy.post(COMP, force(97, prompt="x", max_tokens=1)) for _ in range(20)]
        equal({(r.status, r.error.get("code")) for r in refused}, {(503, "engine_overloaded")}, "each is refused in tokenring's words")
        check(envoy.sees([a.port, b.port]), "Envoy holds both for healthy all the while")
        for st in held:
            st.close()
        check(a.idle() and b.idle(), "the places are free again")
        equal({envoy.post(COMP, force(97, prompt="x", max_tokens=1)).status for _ in range(4)}, {200}, "and requests are taken at once")


if __name__ == "__main__":
    main()
