# SPDX-License-Identifier: Apache-2.0
"""Traces: each sampled request is one span at the collector of --otlp, which says what the ledger says; whatever the
collector does, nobody waits for it.  tools/conformance/otlp reads the same bodies with the protocol's own classes."""
import http.server
import ssl
import struct

from carriers import *
from dialects import *
from tls import FILES, make_files

TRACED = dict(TINY, sim_step_us=1000, log_format="json")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Answers POST as `answer(n)` says for the n-th request: (status, fields, body); keeps what came."""

    def __init__(self, answer=None, context=None, port=0):
        self.requests, self.answer = [], answer or (lambda n: (200, {}, b"{}"))
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                with outer.lock:
                    outer.requests.append((self.path, dict(self.headers), body))
                    n = len(outer.requests)
                status, fields, data = outer.answer(n)
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    for k, v in fields.items():
                        self.send_header(k, v)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.lock = threading.Lock()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        if context:
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.http.shutdown()
        self.http.server_close()

    def bodies(self):
        with self.lock:
            return [strict_json(b.decode()) for _, _, b in self.requests]

    def spans(self):
        return [s for b in self.bodies() for r in b["resourceSpans"] for k in r["scopeSpans"] for s in k["spans"]]

    def span(self, rid):
        """The one span of a request, waited for."""
        def mine():
            return [s for s in self.spans() if values(s)["tokenring.request_id"] == rid]
        until(mine)
        found = mine()
        check(len(found) == 1, f"{rid} has one span", found)
        return found[0] if found else {}


def values(o):
    """Attributes as a dict."""
    out = {}
    for a in o["attributes"]:
        (kind, v), = a["value"].items()
        out[a["key"]] = {"stringValue": str, "boolValue": bool, "doubleValue": float,
                         "intValue": lambda x: int(x) if isinstance(x, str) else "a number that is no string",
                         "arrayValue": lambda x: [list(y.values())[0] for y in x["values"]]}[kind](v)
    return out


def lines(server):
    return {o["request_id"]: o for o in map(strict_json, (x for x in server.log().split("\n")[:-1] if x.startswith("{")))
            if o["msg"] == "access"}


def traced(server, rid, *more, body=None):
    return server.post(CHAT, body or chat("x", max_tokens=4), headers=[f"X-Request-Id: {rid}", *more])


@test
def a_span_says_what_the_ledger_says():
    with Collector() as c, Server(TRACED, otlp=c.url + "/") as s:
        traced(s, "child", f"traceparent: 00-{TRACE}-{SPAN}-01", "tracestate: a=1,b=2",
               body=chat("x", max_tokens=7, temperature=0.5, top_p=0.9, top_k=5))
        traced(s, "unsampled", f"traceparent: 00-{TRACE}-{SPAN}-00")
        traced(s, "refused", body={"model": MODEL, "messages": 5})
        with contextlib.closing(s.stream(COMP, completion("x", stream=True, max_tokens=5000, ignore_eos=True),
                                         headers=["X-Request-Id: left"])) as st:
            st.read(3)
        o, row, line = c.span("child"), s.row("child"), until(lambda: lines(s).get("child"))
        equal((o["traceId"], o["parentSpanId"], o["traceState"]), (TRACE, SPAN, "a=1,b=2"), "it continues the trace")
        equal((o["spanId"], o["kind"], o["name"]), (line["span_id"], 2, f"chat {MODEL}"), "its name, and its id in the log")
        equal(o["flags"] & 0x301, 0x301, "sampled, child of somebody else's")
        v = values(o)
        equal([v[f"gen_ai.usage.{k}"] for k in ("input_tokens", "output_tokens", "cache_read.input_tokens")],
              [row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]], "tokens")
        equal((v["gen_ai.operation.name"], v["gen_ai.request.model"], v["gen_ai.provider.name"]), ("chat", MODEL, "tokenring"), "what it is")
        equal([v[f"gen_ai.request.{k}"] for k in ("max_tokens", "temperature", "top_p", "top_k", "stream")], [7, 0.5, 0.9, 5, False], "what was asked")
        equal((v["gen_ai.response.id"], v["gen_ai.response.finish_reasons"], v["tokenring.status"], v["tokenring.delivered_tokens"]),
              (row["stream_id"], [row["reason"]], row["status"], 7), "what came of it")
        check("error.type" not in v and o["status"] == {}, "no error", o["status"])
        at = {e["name"].removeprefix("tokenring."): int(e["timeUnixNano"]) for e in o["events"]}
        order = ["parsed", "rendered", "tokenised", "submitted", "admitted", "started", "first_token", "finished", "closed"]
        equal([k for k in at if k in order], order, "its stages, in their order")
        times = [int(o["startTimeUnixNano"]), *(at[k] for k in order)]
        equal(times, sorted(times), "times ascend")
        check(abs(int(o["startTimeUnixNano"]) / 1e9 - row["created_at"]) < 0.01, "of the same clock", o, row)
        check(int(o["endTimeUnixNano"]) == at["closed"], "it ends with its last byte")
        left = c.span("left")
        v = values(left)
        equal((v["gen_ai.response.finish_reasons"], left["name"]),
              (["client_disconnected"], f"text_completion {MODEL}"), "one whose client has left")
        check("error.type" not in v and "parentSpanId" not in left, "is no error, and began its trace", left)
        check({"disconnect", "cancel_acknowledged", "first_byte", "closed"} <= {e["name"].split(".")[1] for e in left["events"]}, "when he left")
        equal(v.get("tokenring.delivered_tokens"), s.row("left")["delivered_tokens"], "how much of it he had")
        equal({values(x)["tokenring.request_id"] for x in c.spans()}, {"child", "left"}, "and no others")
        res = values(c.bodies()[0]["resourceSpans"][0]["resource"])
        equal(res["service.name"], "tokenring", "whose they are")
        check(re.fullmatch("[0-9a-f]{32}", res["service.instance.id"]) and res["service.version"], "which one", res)
        path, fields, _ = c.requests[0]
        equal((path, fields["Content-Type"]), ("/v1/traces", "application/json"), "where they go")
        equal(until(lambda: s.metric("trace_spans_exported_total")), 2, "counted")


@test
def errors_are_errors():
    with Collector() as c, Server(TRACED, otlp=c.url + "/v1/traces") as s:
        traced(s, "late", "X-Request-Timeout: 0.05", body=chat("x", max_tokens=5000, ignore_eos=True))
        o = c.span("late")
        equal((o["status"]["code"], values(o)["error.type"]), (2, "deadline_exceeded"), "an error")
        equal(c.requests[0][0], "/v1/traces", "the path is not added twice")


@test
def without_a_ledger():
    """The ledger process is there for traces alone; a new one goes on."""
    with Collector() as c, Server(TRACED, ledger=False, otlp=c.url) as s:
        traced(s, "one")
        equal(values(c.span("one"))["gen_ai.usage.output_tokens"], 4, "a span")
        pid, = s.processes()["ledger"]
        os.kill(pid, signal.SIGKILL)
        traced(s, "two")
        check(until(lambda: s.processes()["ledger"] not in ([], [pid])), "another one takes its place")
        traced(s, "three")
        c.span("two"), c.span("three")
        s.pids = s.processes()
        s.alive("without a ledger", None)


@test
def the_last_ones():
    with Collector() as c:
        with Server(TRACED, otlp=c.url) as s:
            traced(s, "last")
        check([x for x in c.spans() if values(x)["tokenring.request_id"] == "last"], "the end of the service sends what is there")


@test
def a_collector_that_is_busy_refuses_or_says_too_much():
    """503 with Retry-After, then 200 with a rejected span, 400, an answer without end."""
    words = [(503, {"Retry-After": "1"}, b"later"), (200, {}, b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"no"}}'),
             (400, {}, b"never"), (301, {"Location": "http://127.0.0.1:9/"}, b""), (200, {}, b"x" * (1 << 22)), (200, {}, b"{")]
    with Collector(lambda n: words[min(n, len(words)) - 1]) as c, Server(TRACED, otlp=c.url) as s:
        def after(rid, **want):
            traced(s, rid)
            def seen():
                m = s.metrics()
                return {k: m[k] for k in KEYS}
            full = dict(zip(KEYS, want["sums"]))
            until(lambda: seen() == full)
            equal(seen(), full, rid)
        KEYS = ("trace_spans_exported_total", 'trace_spans_lost_total{reason="refused"}', "trace_export_errors_total")
        after("busy", sums=(0, 1, 1))
        equal(c.requests[0][2], c.requests[1][2], "the same again")
        after("refused", sums=(0, 2, 2))
        after("moved", sums=(0, 3, 3))
        after("endless", sums=(1, 3, 3))
        after("no json", sums=(2, 3, 3))
        told = [x for x in s.log().splitlines() if "collector" in x]
        check(len(told) <= 5, "the log tells changes", told)


@test
def an_answer_whose_fields_have_no_end_is_not_read_to_it():
    """Trailers: the library would keep each of them, as long as they come."""
    listener, sent = socket.create_server(("127.0.0.1", 0)), []

    def answer():
        with contextlib.suppress(OSError), listener.accept()[0] as c:
            c.recv(1 << 20)
            c.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
            while len(sent) < 4096:
                c.sendall(b"x: y\r\n" * 10000)
                sent.append(60000)
    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with Server(TRACED, otlp=f"http://127.0.0.1:{listener.getsockname()[1]}") as s:
        traced(s, "trailers")
        check(until(lambda: s.metric("trace_spans_exported_total") == 1), "the status has said what it is")
        thread.join(WAIT)
        listener.close()
        check(len(sent) < 4096, "the rest is not read", sum(sent))


@test
def a_collector_that_is_not_there_or_does_not_answer():
    with Collector(lambda n: (time.sleep(30), (200, {}, b"{}"))[1]) as c:
        with Server(TRACED, otlp=c.url) as s:
            traced(s, "first")
            until(lambda: c.requests)
            for i in range(5):
                equal(traced(s, f"r{i}").status, 200, "requests are answered while the collector is silent")
                check(s.row(f"r{i}"), "and accounted")
            s.child.send_signal(signal.SIGTERM)
            equal(s.wait_exit(), 0, "the service ends while it is silent")
    port = socket.create_server(("127.0.0.1", 0))
    number = port.getsockname()[1]
    port.close()
    with Server(TRACED, otlp=f"http://127.0.0.1:{number}") as s:
        equal(traced(s, "early").status, 200, "nobody listens")
        check(until(lambda: s.metric("trace_export_errors_total")), "which is counted")
        with Collector(port=number) as c:
            c.span("early")
        check(until(lambda: "takes traces again" in s.log()), "and told when it is over")


def without_end(conn, what):
    """An answer of `what` over and over, until the peer has enough."""
    with contextlib.suppress(OSError), conn:
        conn.recv(1 << 16)
        conn.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            conn.sendall(what)


@test
def a_collector_that_never_ends_its_head_or_breaks_off():
    for what, data in (("fields", (b"X: " + b"y" * 900 + b"\r\n") * 100), ("one field", b"y" * (1 << 16)), ("reset", None)):
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener:
            with Server(TRACED, otlp=f"http://127.0.0.1:{listener.getsockname()[1]}") as s:
                pids = s.processes()["ledger"]
                traced(s, what)
                conn = listener.accept()[0]
                if data:
                    without_end(conn, data)
                else:
                    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    conn.close()
                check(until(lambda: s.metric("trace_export_errors_total")), f"{what}: an error")
                equal((traced(s, "after").status, s.processes()["ledger"]), (200, pids), f"{what}: nobody is harmed")


@test
def over_tls_with_a_key_of_its_own():
    secret = "Bearer%20tr-a-collectors-secret"
    make_files()
    cert, key = FILES["ec"]["tls_cert"], FILES["ec"]["tls_key"]
    ctx = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ctx.load_cert_chain(cert, key)
    with Collector(context=ctx) as c:
        url = c.url.replace("127.0.0.1", "localhost")
        os.environ["TOKENRING_OTLP_HEADERS"] = f"authorization={secret},x-tenant=a%2Cb"
        try:
            s = Server(TRACED, ledger=False, otlp=url, otlp_ca=cert)
        finally:
            del os.environ["TOKENRING_OTLP_HEADERS"]
        with s:
            traced(s, "secret")
            c.span("secret")
            fields = {k.lower(): v for k, v in c.requests[0][1].items()}
            equal((fields["authorization"], fields["x-tenant"]), ("Bearer tr-a-collectors-secret", "a,b"), "its fields")
            for pid in s.all_pids():
                both = proc_read(pid, "cmdline") + proc_read(pid, "environ")
                check(b"collectors-secret" not in both, "not in the list of processes", title(pid))
            check("collectors-secret" not in s.log(), "not in the log")
        with Server(TRACED, ledger=False, otlp=url) as s:
            n = len(c.requests)
            traced(s, "stranger")
            check(until(lambda: s.metric("trace_export_errors_total")), "an authority that is not known")
            equal(len(c.requests), n, "gets nothing")


@test
def what_cannot_be_meant():
    for flags, word in ((dict(otlp="ftp://a"), "--otlp takes"), (dict(otlp="http://"), "--otlp takes"),
                        (dict(otlp="http://a:secret@b"), "no user and password"), (dict(otlp="http://a", otlp_headers="a"), "--otlp-headers takes"),
                        (dict(otlp="http://a", otlp_headers="a=%0ab"), "--otlp-headers takes"), (dict(otlp_headers="a=b"), "need --otlp"),
                        (dict(otlp="https://a", otlp_ca="/nowhere"), "/nowhere")):
        status, err, _ = fails_to_start(dict(TRACED, port=0, **flags))
        check(status == 2 or status == 1, f"{flags} ends the start", status)
        check(word in err and "secret" not in err, f"{flags}: it says why", err[-300:])


if __name__ == "__main__":
    main()
