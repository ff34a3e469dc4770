# SPDX-License-Identifier: Apache-2.0
"""vllm-router and sglang-router in front of two services of ours: how they find and watch them, what they pass
on, where they send it, what they do when one is drained or killed, and what they count.

What a router cannot do is claimed as well, so that a newer version which can is noticed."""
import hashlib

from load import *

PATHS = (("/v1/chat/completions", chat("Hi", max_tokens=2)),
         ("/v1/completions", force(AB, prompt="x", max_tokens=2)),
         ("/v1/responses", {"model": MODEL, "input": "hi", "max_output_tokens": 16, "store": False}),
         ("/v1/messages", {"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "hi"}]}),
         ("/v1/streams", force(AB, prompt="x", max_tokens=2)),
         ("/tokenize", {"prompt": "x"}))
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
# Looked at each second instead of each minute, as docs/proxies.md has it.
OURS = ["--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1"]


class Router(Front):
    ports = ("http", "counted")

    def write(self):
        return [f"{PLACE}/bin/{self.name}", *self.launch, "--host", "127.0.0.1", "--port", str(self.port),
                "--prometheus-port", str(self.at["counted"]), "--worker-urls", *[f"http://127.0.0.1:{p}" for p in self.up],
                *(OURS + self.more if self.setting == "ours" else []), *self.options.get("more", [])]

    def answers(self):
        with contextlib.suppress(OSError, EOFError, ValueError):
            return self.get(self.ready).status == 200
        return False

    def counted(self, name, up=None):
        """The sum of a metric of its own, over all its labels or those of one worker."""
        with contextlib.closing(Conn(self.at["counted"])) as c:
            c.send(request("GET", "/metrics"))
            text = c.response().text
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines()
                   if line.split("{")[0].split(" ")[0] == name and (not up or f'worker="http://127.0.0.1:{up}"' in line))

    def sees(self, port):
        return self.counted(self.health, port) == 1


class Vllm(Router):
    name, launch, ready, health, processed = "vllm-router", [], "/health", "vllm_router_worker_health", "vllm_router_processed_requests_total"
    passes = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/streams", "/tokenize"}
    keeps_key = {"/v1/chat/completions", "/v1/completions"}  # the others lose Authorization
    asks = {b"GET /health "}
    breaks_on_400, more = False, []


class Sglang(Router):
    name, launch, ready, health, processed = "sglang-router", ["launch"], "/v1/models", "smg_worker_health", "smg_worker_cb_outcomes_total"
    passes = {"/v1/chat/completions", "/v1/completions", "/v1/responses"}  # the last with "store": false, for it says true where nothing is said
    keeps_key = passes
    asks = {b"GET /health ", b"GET /server_info ", b"GET /model_info "}
    breaks_on_400, more = True, ["--disable-circuit-breaker"]


BOTH = (Vllm, Sglang)


def lines(tap):
    """The first lines of the requests that came through, and their heads."""
    return [h for c in tap.calls for h in c.requests()]


@test
def discovery_and_paths():
    """What a router asks of a service, and which requests it passes on, with which headers."""
    for router in BOTH:
        name = router.name
        with Server(SLOW) as a, Server(SLOW) as b, Tap(a) as ta, Tap(b) as tb, router(ta, tb) as front:
            asked = {h[:h.index(b"HTTP/")] for t in (ta, tb) for h in lines(t)}
            check(router.asks <= asked, f"{name}: it asks {router.asks}", asked)
            models = front.get("/v1/models").text
            check(json.loads(models)["data"][0]["id"] == MODEL, f"{name}: the model has our name for it", models)
            check(all(front.sees(t.port) for t in (ta, tb)), f"{name}: both are healthy")
            passed = {path for path, body in PATHS if front.post(path, body).status == 200}
            equal(passed, router.passes, f"{name}: the paths that it passes on")
            tell("routers", name, "passes on", in_order(passed))


@test
def documented():
    """docs/proxies.md shows the flags that these tests start them with."""
    with open(os.path.join(ROOT, "docs/proxies.md"), encoding="utf-8") as f:
        shown_lines = f.read().splitlines()
    for router in BOTH:
        words = [router.name, *router.launch, "--worker-urls", "http://127.0.0.1:8081", "http://127.0.0.1:8082", *OURS, *router.more]
        check(" ".join(words) in shown_lines, f"{router.name}: its command is in the documentation", words)


def in_order(paths):
    return ", ".join(f"`{p}`" for p, _ in PATHS if p in paths) or "none"


@test
def keys():
    """Requests with a key of the service: 401 where the router drops it."""
    key = "tr-sesame"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"keys": [{"name": "k", "sha256": hashlib.sha256(key.encode()).hexdigest()}]}, f)
        f.flush()
        os.chmod(f.name, 0o644)
        for router in BOTH:
            with Server(SIM, api_keys=f.name) as s, router(s) as front:
                got = {path: front.post(path, body, headers=[f"Authorization: Bearer {key}"]).status for path, body in PATHS}
                equal({p for p, status in got.items() if status == 200}, router.keeps_key, f"{router.name}: paths with their key")
                equal({p for p, status in got.items() if status == 401}, router.passes - router.keeps_key, f"{router.name}: and without")
                tell("routers", router.name, "drops `Authorization` of", in_order(router.passes - router.keeps_key))


@test
def keys_and_traces_arrive():
    for router in BOTH:
        with Server(SLOW) as s, Tap(s) as tap, router(tap) as front:
            front.post(COMP, force(AB, prompt="x", max_tokens=2), headers=["X-Request-Id: kept", "Authorization: Bearer sesame", f"traceparent: 00-{TRACE}-00f067aa0ba902b7-01"])
            head = b"".join(h for h in lines(tap) if h.startswith(b"POST")).lower()
            check(b"x-request-id: kept" in head and b"authorization: bearer sesame" in head and TRACE.encode() in head,
                  f"{router.name}: request id, key and trace arrive", head)


@test
def streams():
    """Nothing is held back, nothing is changed."""
    for router in BOTH:
        with Server(SLOW) as s, Tap(s) as tap, router(tap) as front:
            tell("routers", router.name, "delay of an event: median / p99 / max, ms", shown(delays(lambda body, f=front: read_http1(f.port, body), tap)))
            with contextlib.closing(Conn(s.port)) as direct, contextlib.closing(Conn(front.port)) as through:
                texts = []
                for c in (direct, through):
                    c.send(request("POST", CHAT, chat("Hi", max_tokens=20, stream=True, seed=1, stream_options={"include_usage": True})))
                    r = c.response()
                    events = [json.loads(e[6:]) for e in r.body.split(b"\n\n") if e.startswith(b"data: {")]
                    texts.append(["".join(c["delta"].get("content") or "" for e in events for c in e["choices"]), len(events), events[-1]["usage"]])
                check(texts[0] == texts[1] and texts[0][2]["completion_tokens"] == 20, f"{router.name}: the same chat as without it", texts)


@test
def a_client_leaves():
    """vllm-router tells at once; sglang-router of a stream when it next has something to write, so the keep-alives bound it."""
    for router in BOTH:
        with left_service(heartbeat_s=2) as s, router(s) as front:
            for phase in PHASES:
                result = leaves(front, s, phase)
                check(result, f"{router.name}: {phase}: it is seen")
                tell("routers", router.name, f"leaving while {phase} (`--heartbeat-s 2`)", seen(result))


@test
def policies():
    """In turn; and with cache_aware, prompts to where their beginnings are."""
    for router in BOTH:
        with Server(SIM) as a, Server(SIM) as b:
            with router(a, b, more=["--policy", "round_robin"]) as front:
                for i in range(20):
                    front.post(COMP, force(AB, prompt=f"x{i}", max_tokens=1))
                equal([len(a.rows()), len(b.rows())], [10, 10], f"{router.name}: round robin")
            with router(a, b, more=["--policy", "cache_aware"]) as front:
                base = "".join(random.Random(1).choice("abcdefghij ") for _ in range(1500))
                hits = a.metric("tokens_total{kind=\"cached\"}") + b.metric("tokens_total{kind=\"cached\"}")
                before = [len(a.rows()), len(b.rows())]
                for i in range(8):
                    r = front.post(COMP, force(AB, prompt=base + str(i), max_tokens=1))
                    check(r.status == 200, f"{router.name}: an answer", r.text)
                went = sorted(n - m for n, m in zip([len(a.rows()), len(b.rows())], before))
                hits = a.metric("tokens_total{kind=\"cached\"}") + b.metric("tokens_total{kind=\"cached\"}") - hits
                equal(went, [0, 8], f"{router.name}: cache_aware keeps a conversation at one of them")
                check(hits > 0, f"{router.name}: whose cache has its beginning", hits)


@test
def refusals_and_their_breaker():
    """A client's own mistakes must not take a service away from others: with sglang-router they do."""
    for router in BOTH:
        for setting, breaks in (("default", router.breaks_on_400), ("ours", False)):
            with Server(SIM) as s, router(s, setting=setting) as front:
                statuses = [front.post(CHAT, chat(" a" * 9000, max_tokens=1)).status for _ in range(25)]
                after = front.post(CHAT, chat("Hi", max_tokens=1)).status
                what = f"{router.name} {setting}: after 25 wrong requests"
                equal(after, 503 if breaks else 200, what)
                check(set(statuses) <= {400, 503}, f"{what}: they were 400", statuses)
                if setting == "default":
                    tell("routers", router.name, "after 25 requests that are 400, default", "503 for everybody" if after == 503 else "goes on")


@test
def a_service_dies():
    """With requests in its hands: before a byte of their answers another service is asked, behind it none."""
    for router in BOTH:
        for row, refuse in DEATHS:
            with Server(SIM) as s, Tap(s) as bad, Tap(s) as good, router(bad, good, more=["--policy", "round_robin"]) as front:
                tell("routers", router.name, row, dies(front, bad, good, refuse, router.name, True))


def rows_of(replicas, load):
    def rows():
        return [(r["request_id"], r["stream_id"], r["status"], r["completion_tokens"]) for x in replicas
                for r in ledger_rows(x.ledger, "--ledger-spool", x.flags["ledger_spool"]) if r["request_id"].startswith(load.name + "-")]
    return rows


@test
def drained_and_killed():
    """Restarts in turn fail no stream; a kill breaks those of one service."""
    for router in BOTH:
        name = router.name
        replicas = [Replica(n, 5) for n in ("A", "B")]
        try:
            with router(*replicas, more=["--policy", "round_robin"]) as front:
                load = Load(front.port, name + "-drain")
                load.more(100)
                for r in replicas:
                    r.restart()
                    check(until(lambda r=r: front.sees(r.port)), f"{name}: it sees {r.name} again", front.log()[-800:])
                    load.more(50)
                load.end()
                equal(load.broken, {}, f"{name}: no stream failed while both were restarted")
                exact(rows_of(replicas, load), load)
                print(" ", name, reasons(load), flush=True)
                tell("routers", name, "both restarted under load: answers, tries repeated, streams broken",
                     f"{len(load.answered):,}, {len(load.early)}, {len(load.broken)}")
                load = Load(front.port, name + "-kill")
                load.more(100)
                replicas[0].kill()
                check(until(lambda: front.sees(replicas[0].port)), f"{name}: it sees the killed one again")
                load.more(50)
                load.end()
                check(0 < len(load.broken) <= CLIENTS, f"{name}: streams of the killed one break", len(load.broken))
                exact(rows_of(replicas, load), load, cut=True)
                print(" ", name, reasons(load), flush=True)
                tell("routers", name, "one killed under load: answers, tries repeated, streams broken",
                     f"{len(load.answered):,}, {len(load.early)}, {len(load.broken)}")
                check(front.counted(router.processed) > 0, f"{name}: it counts what it sent us")
        finally:
            for r in replicas:
                r.server.stop()


if __name__ == "__main__":
    main()
