# SPDX-License-Identifier: Apache-2.0
"""/metrics: both formats as strict readers want them, the names that are promised, the figures of a known load, the
set by the names of vLLM; rules and dashboard use no name that is not there."""
import exposition
from lib import *

COMP = "/v1/completions"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
TEXT = "text/plain; version=0.0.4; charset=utf-8"
DEPLOY = os.path.join(ROOT, "deploy")

# What dashboards rely on: names, with the values of their one label where they have one.
PROMISED = """time_to_first_token_seconds inter_token_seconds prefill_seconds queue_seconds step_seconds e2e_seconds
first_byte_seconds inter_chunk_seconds delivered_gap_seconds frame_seconds abort_seconds
buffered_bytes{layer=ring|pending|kernel} requests_running requests_waiting requests_parked
kv_blocks{state=free|used|cached} tokens_total{kind=prompt|cached|completion|overrun} cancelled_tokens_avoided_total
tokens_after_disconnect_total streams_ended_total{reason} streams_without_terminal_total prefix_cache_queries_total
prefix_cache_hits_total preemptions_total requests_within_slo_total ledger_lag_seconds
process_restarts_total{role=engine|frontend|ledger} info{deterministic=1} ready processes{role=engine|frontend}"""
COMPAT = """num_requests_running num_requests_waiting kv_cache_usage_perc gpu_cache_usage_perc cache_config_info
prefix_cache_queries_total prefix_cache_hits_total prompt_tokens_total generation_tokens_total num_preemptions_total
request_success_total{finished_reason=stop|length|abort|error} time_to_first_token_seconds inter_token_latency_seconds
e2e_request_latency_seconds request_queue_time_seconds request_prefill_time_seconds request_decode_time_seconds
request_prompt_tokens request_generation_tokens"""


def page(s, is_open=False):
    r = s.get("/metrics", headers=["Accept: " + (OPEN if is_open else TEXT)])
    equal((r.status, r.header("content-type"), r.header("vary")), (200, OPEN if is_open else TEXT, "Accept"), "what comes")
    try:
        return exposition.parse(r.text, is_open)
    except exposition.Wrong as e:
        check(False, "the page is as its format says", *e.args)
        return {}


def has(families, prefix, promised):
    told = {}
    for f in families.values():
        for x in f.samples:
            told.setdefault(x.name.removesuffix("_bucket"), []).append(x.labels)
    for name, label, values in re.findall(r"(\w+)(?:\{(\w+)=?([\w|]*)\})?", promised):
        rows = told.get(prefix + name, [])
        if check(rows, prefix + name + " is told"):
            seen = {row.get(label) for row in rows}
            check(not label or (None not in seen and set(filter(None, values.split("|"))) <= seen), "%s by %s" % (name, label), seen)


def known_load(s, n=3, tokens=10):
    for _ in range(n):
        r = s.post(COMP, completion("x", max_tokens=tokens, ignore_eos=True))
        equal(r.status, 200, "an answer")


@test
def both_formats_are_what_strict_readers_want():
    plain, om = page(S), page(S, True)
    has(plain, "tokenring_", PROMISED)
    has(om, "tokenring_", PROMISED)
    a, b = exposition.samples(plain), exposition.samples(om)
    equal(set(a), set(b), "the same series, whatever was negotiated")
    equal(plain["tokenring_info"].kind, "gauge", "an info is a gauge in text")
    equal(om["tokenring"].kind, "info", "and an info in OpenMetrics")
    units = {f.unit for f in om.values()}
    equal(units, {"", "seconds", "bytes"}, "units")
    check(all(f.unit == "seconds" for f in om.values() if f.name.endswith("_seconds")), "seconds are told")
    check(not any(x.name.endswith("_created") for f in om.values() for x in f.samples), "no _created")


@test
def the_format_is_negotiated():
    prometheus2 = ("application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                   "text/plain;version=0.0.4;q=0.5,*/*;q=0.1")
    for accept, want in ((None, TEXT), ("*/*", TEXT), ("application/*", TEXT), (prometheus2, OPEN),
                         ("application/openmetrics-text", OPEN), ("application/openmetrics-text;q=0", TEXT),
                         ("application/openmetrics-text;version=0.0.1", TEXT), ("application/json", TEXT),
                         ("application/openmetrics-text;version=1.0.0;q=0.4, text/plain;q=0.5", TEXT),
                         ("application/openmetrics-text;q=0.5, text/plain;q=0.5", OPEN)):
        r = S.get("/metrics", headers=["Accept: " + accept] if accept else [])
        equal((r.status, r.header("content-type")), (200, want), "Accept: %s" % accept)
    r = S.ask("HEAD", "/metrics", None, headers=["Accept: " + OPEN])
    equal((r.status, r.header("content-type"), r.body), (200, OPEN, b""), "HEAD")
    r = S.get("/metrics", headers=["Accept-Encoding: gzip"])
    equal(r.header("content-encoding"), None, "nothing is compressed")


@test
def the_figures_are_those_of_the_load():
    before = exposition.samples(page(S))
    known_load(S)
    check(S.idle(), "the load is over")
    after = exposition.samples(page(S))

    def grown(name, **labels):
        key = ("tokenring_" + name, tuple(sorted(labels.items())))
        return after[key] - before[key]

    equal(grown("streams_ended_total", reason="length"), 3, "requests")
    equal(grown("tokens_total", kind="completion"), 30, "tokens")
    for name in ("time_to_first_token", "prefill", "queue", "e2e", "decode", "first_byte"):
        equal(grown(name + "_seconds_count"), 3, name)
    equal(grown("inter_token_seconds_count"), 27, "gaps")
    equal(grown("request_completion_tokens_sum"), 30, "tokens of requests")
    equal(grown("request_completion_tokens_bucket", le="8.0"), 0, "none of them short")
    equal(grown("request_completion_tokens_bucket", le="16.0"), 3, "all of that size")
    check(grown("decode_seconds_sum") <= grown("e2e_seconds_sum"), "decode is a part of the whole")
    gauges = {name for name, f in page(S).items() if f.kind == "gauge"}
    check(all(after[k] >= v for k, v in before.items() if k[0] not in gauges), "counters only grow")


@test
def the_ledger_s_lag_ends_when_it_has_caught_up():
    """Told by the engine, which has nothing to do then."""
    lag = ("tokenring_ledger_lag_seconds", ())
    with Server(TINY) as s:
        pid, = s.processes()["ledger"]
        os.kill(pid, signal.SIGSTOP)
        known_load(s, 1)
        first = until(lambda: exposition.samples(page(s))[lag])
        check(first and until(lambda: exposition.samples(page(s))[lag] > first), "it grows while the ledger stands still", first)
        os.kill(pid, signal.SIGCONT)
        check(until(lambda: exposition.samples(page(s))[lag] == 0), "and is 0 when all is durable")


@test
def an_engine_that_died_holds_nothing():
    with Server(TINY, compat_metrics="on") as s:
        os.kill(s.processes()["engine"][0], signal.SIGKILL)

        def replaced():
            return exposition.samples(page(s))[("tokenring_process_restarts_total", (("role", "engine"),))] == 1
        check(until(replaced), "the restart is counted")
        back = until(lambda: exposition.samples(page(s))[("tokenring_processes", (("role", "engine"),))] == 1)
        check(back, "the new engine is told")


@test
def names_of_vllm_are_there_when_asked_for():
    check("vllm" not in S.get("/metrics").text, "not by themselves")
    with Server(TINY, compat_metrics="on", served_name='a "model" \\ of é') as s:
        body = dict(prompt="x", model='a "model" \\ of é', max_tokens=10, ignore_eos=True)
        for _ in range(3):
            equal(s.post(COMP, body).status, 200, "an answer")
        check(s.idle(), "the load is over")
        for is_open in (False, True):
            families = page(s, is_open)
            has(families, "vllm:", COMPAT)
            named = [x for f in families.values() if f.name.startswith("vllm:") for x in f.samples]
            equal({x.labels.get("model_name") for x in named}, {'a "model" \\ of é'}, "each under the model's name")
            told = {(x.name, x.labels.get("finished_reason")): x for x in named}
            equal(told["vllm:request_success_total", "length"].value, 3, "requests")
            equal(told["vllm:generation_tokens_total", None].value, 30, "tokens")
            equal(told["vllm:request_generation_tokens_sum", None].value, 30, "tokens of requests")
            equal(told["vllm:time_to_first_token_seconds_count", None].value, 3, "first tokens")
            equal(told["vllm:kv_cache_usage_perc", None].value, 0, "no KV is in use")
            config = told["vllm:cache_config_info", None].labels
            check(int(config["block_size"]) > 0 and int(config["num_gpu_blocks"]) > 0, "the size of the KV cache", config)
            check(all("tokenring_" in f.help or "KV" in f.help or "Older" in f.help for f in families.values() if f.name.startswith("vllm:")),
                  "HELP says from what")


# ---- what is deployed with it ----------------------------------------------------------------------

def expressions():
    """(where, PromQL) of the rules and of the dashboard."""
    with open(os.path.join(DEPLOY, "prometheus/tokenring.rules.yml"), encoding="utf-8") as f:
        for m in re.finditer(r"^ +expr: (?:\|-\n((?: {10,}.*\n)+)|(\S.*))", f.read(), re.M):
            yield "rules", m[1] or m[2]
    with open(os.path.join(DEPLOY, "grafana/tokenring.json"), encoding="utf-8") as f:
        board = json.load(f)
    for p in board["panels"]:
        for t in p.get("targets", []):
            yield p["title"], t["expr"]


@test
def rules_and_dashboard_use_what_is_there():
    known_load(S, 1)
    told = {}
    for x in (x for f in page(S).values() for x in f.samples):
        told.setdefault(x.name, []).append(x.labels)
    n = 0
    for where, expr in expressions():
        found = re.findall(r"\b(tokenring_\w+)(?:\{([^}]*)\})?", expr)
        check(found or "up{" in expr, "%s has a metric" % where, expr)
        for name, matchers in found:
            n += 1
            if not check(name in told, "%s: %s is there" % (where, name)):
                continue
            for label, op, values in re.findall(r'(\w+)\s*(=~|!~|=|!=)\s*"([^"]*)"', matchers or ""):
                if label in ("job", "instance"):
                    continue
                have = {row.get(label) for row in told[name]}
                check(set(values.split("|")) <= have, "%s: %s{%s}" % (where, name, label), values, have)
    check(n > 60, "expressions were read", n)


@test
def each_alert_has_a_page_to_turn_to():
    with open(os.path.join(DEPLOY, "prometheus/tokenring.rules.yml"), encoding="utf-8") as f:
        rules = f.read()
    with open(os.path.join(ROOT, "docs/operations.md"), encoding="utf-8") as f:
        headings = re.findall(r"^### (Tokenring\w+)$", f.read(), re.M)
    alerts = re.findall(r"- alert: (\w+)", rules)
    links = re.findall(r"runbook_url: docs/operations\.md#(\w+)", rules)
    equal(links, [a.lower() for a in alerts], "each alert links its section")
    equal(headings, alerts, "the sections are there, in this order")
    with open(os.path.join(DEPLOY, "prometheus/tokenring.test.yml"), encoding="utf-8") as f:
        tested = re.findall(r"alertname: (\w+)", f.read())
    equal(set(tested), set(alerts), "each alert has a unit test")


S = Server(TINY)
main()
