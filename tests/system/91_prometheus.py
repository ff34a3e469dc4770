# SPDX-License-Identifier: Apache-2.0
"""Prometheus and promtool themselves: the page is clean to its linter, a real server scrapes it in OpenMetrics and
answers the dashboard's questions, the rules pass their tests and an alert goes off when the service stops."""
import shutil
import urllib.parse

from lib import *

DEPLOY = os.path.join(ROOT, "deploy/prometheus")


def run(*argv, **kw):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False, timeout=2 * WAIT, **kw)


class Prometheus:
    """One of our own, with the deployed configuration, at 1 s instead of 15."""

    def __init__(self, target):
        self.dir = tempfile.mkdtemp(prefix="tokenring-prometheus-")
        with open(os.path.join(DEPLOY, "prometheus.yml"), encoding="utf-8") as f:
            text = f.read()
        text = text.replace("interval: 15s", "interval: 1s").replace("127.0.0.1:8080", "127.0.0.1:%d" % target)
        with open(os.path.join(self.dir, "prometheus.yml"), "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(DEPLOY, "tokenring.rules.yml"), encoding="utf-8") as f:
            rules = f.read().replace("for: 1m", "for: 1s")
        with open(os.path.join(self.dir, "tokenring.rules.yml"), "w", encoding="utf-8") as f:
            f.write(rules)
        for _ in range(5):  # another one may take the port in between
            if self._start():
                return
        raise RuntimeError("prometheus does not start: " + self.log())

    def _start(self):
        with contextlib.closing(socket.socket()) as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        with open(os.path.join(self.dir, "log"), "w", encoding="utf-8") as err:
            self.child = subprocess.Popen(["prometheus", "--config.file=%s/prometheus.yml" % self.dir, "--storage.tsdb.path=%s/data" % self.dir,
                                           "--web.listen-address=127.0.0.1:%d" % self.port], stdout=err, stderr=err, stdin=subprocess.DEVNULL)

        def answers():
            with contextlib.suppress(OSError, EOFError, ValueError):
                return Server.get(self, "/-/ready").status == 200
            return self.child.poll() is not None
        until(answers)
        return self.child.poll() is None

    def conn(self, wait=WAIT):
        return Conn(self.port, wait=wait)

    def ask(self, method, path, body, headers=(), wait=WAIT):
        return Server.ask(self, method, path, body, headers, wait)

    def log(self):
        with open(os.path.join(self.dir, "log"), encoding="utf-8") as f:
            return f.read()[-2000:]

    def api(self, path, **query):
        r = Server.get(self, "/api/v1/" + path + "?" + urllib.parse.urlencode(query))
        if r.status != 200 or r.json["status"] != "success":
            raise RuntimeError("%s: %s" % (path, r.text[:500]))
        return r.json["data"]

    def value(self, query):
        rows = self.api("query", query=query)["result"]
        return float(rows[0]["value"][1]) if len(rows) == 1 else None

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.child.terminate()
        self.child.wait(WAIT)
        shutil.rmtree(self.dir, ignore_errors=True)


@test
def the_linter_has_nothing_to_say():
    with Server(TINY) as s:
        equal(s.post("/v1/completions", completion("x", max_tokens=5)).status, 200, "an answer")
        p = run("promtool", "check", "metrics", input=s.get("/metrics").text)
        equal((p.returncode, p.stdout), (0, ""), "promtool check metrics")
    with Server(TINY, compat_metrics="on") as s:
        p = run("promtool", "check", "metrics", input=s.get("/metrics").text)
        rest = [x for x in p.stdout.splitlines() if not re.fullmatch(r"vllm:\w+ metric names should not contain ':'", x)]
        equal(rest, [], "with the names of vLLM it says that they have a colon, and nothing else")


@test
def configuration_and_rules_are_good():
    for argv in (("check", "config", "prometheus.yml"), ("check", "rules", "tokenring.rules.yml"), ("test", "rules", "tokenring.test.yml")):
        p = run("promtool", *argv, cwd=DEPLOY)
        check(p.returncode == 0, "promtool " + " ".join(argv), p.stdout[-1500:])


@test
def a_real_server_scrapes_it():
    with Server(TINY, compat_metrics="on") as s, Prometheus(s.port) as p:
        for _ in range(4):
            equal(s.post("/v1/completions", completion("x", max_tokens=20, ignore_eos=True)).status, 200, "an answer")
        check(until(lambda: p.value("tokenring_tokens_total{kind=\"completion\"}") == 80), "tokens arrive", p.log())
        targets = p.api("targets")["activeTargets"]
        equal([(t["health"], t["lastError"]) for t in targets], [("up", "")], "its one target")
        kinds = {m["metric"]: m["type"] for m in p.api("targets/metadata")}
        equal(kinds.get("tokenring"), "info", "it asked for OpenMetrics, and read it as that")
        told = set(re.findall(r"^([a-z_:]+)(?:\{| )", s.get("/metrics").text, re.M))
        kept = set(p.api("label/__name__/values"))
        equal(told - kept, set(), "every series is kept under its name")
        equal(p.value("vllm:generation_tokens_total"), 80, "vLLM's too")
        equal(p.value("sum(tokenring_request_completion_tokens_bucket{le=\"32.0\"}) - sum(tokenring_request_completion_tokens_bucket{le=\"16.0\"})"), 4, "buckets")
        with open(os.path.join(ROOT, "deploy/grafana/tokenring.json"), encoding="utf-8") as f:
            panels = json.load(f)["panels"]
        for t in (t for panel in panels for t in panel.get("targets", [])):
            expr = t["expr"].replace("$instance", ".*").replace("$job", ".*").replace("$__rate_interval", "4s")
            check(until(lambda e=expr: p.api("query", query=e)["result"]), "the dashboard's question has an answer", expr)
        rules = [r for g in p.api("rules")["groups"] for r in g["rules"]]
        check(until(lambda: all(r["health"] == "ok" for g in p.api("rules")["groups"] for r in g["rules"])), "all rules are evaluated", rules)
        equal([a["labels"]["alertname"] for a in p.api("alerts")["alerts"]], [], "no alert")
        s.stop()
        fired = until(lambda: [a for a in p.api("alerts")["alerts"] if a["state"] == "firing"])
        equal([a["labels"]["alertname"] for a in fired or []], ["TokenringDown"], "it is missed when it has gone")


main()
