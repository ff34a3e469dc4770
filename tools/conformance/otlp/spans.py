#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces as OpenTelemetry's own messages read them.
serve: OTLP --sim-step-us 1000
A collector of this program; what comes is parsed by google.protobuf into opentelemetry-proto's messages, which
refuse a name or a type that they do not know."""
import base64
import http.server
import importlib.metadata
import os

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from claims import *

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
bodies = []


class Collector(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args):
        pass


def spans():
    """Ids are base64 in the JSON of protobuf and hexadecimal in that of OTLP, so they are put back first."""
    out = []
    for body in bodies:
        o = json.loads(body)
        for r in o["resourceSpans"]:
            for k in r["scopeSpans"]:
                for s in k["spans"]:
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in s:
                            s[name] = base64.b64encode(bytes.fromhex(s[name])).decode()
        m = Parse(json.dumps(o), ExportTraceServiceRequest())
        check("other", Parse(json.dumps(o), ExportTraceServiceRequest()).SerializeToString(), "a body is one of its messages")
        for r in m.resource_spans:
            for k in r.scope_spans:
                out += [(r.resource, k.scope, s) for s in k.spans]
    return out


def value(v):
    kind = v.WhichOneof("value")
    return [value(x) for x in v.array_value.values] if kind == "array_value" else getattr(v, kind)


def attributes(o):
    return {a.key: value(a.value) for a in o.attributes}


def ask(rid, **body):
    data = json.dumps(dict(SAID, max_tokens=5, **body)).encode()
    rq = urllib.request.Request(V1 + "/chat/completions", data, {"content-type": "application/json", "x-request-id": rid,
                                                                 "traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1"})
    with urllib.request.urlopen(rq) as r:
        return r.read()


client("opentelemetry-proto", importlib.metadata.version("opentelemetry-proto"))
collector = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["TOKENRING_OTLP"])), Collector)
threading.Thread(target=collector.serve_forever, daemon=True).start()
answer = json.loads(ask("whole"))
ask("stream", stream=True)
end = time.monotonic() + WAIT_S
while time.monotonic() < end and sum(b.count(b'"spanId"') for b in bodies) < 2:
    time.sleep(0.1)
with trying("whole", "spans are read"):
    told = {attributes(s)["tokenring.request_id"]: (r, k, s) for r, k, s in spans()}
    equal("whole", sorted(told), ["stream", "whole"], "one for each request")
    resource, scope, span = told["whole"]
    a = attributes(span)
    equal("whole", (span.trace_id.hex(), span.parent_span_id.hex(), span.trace_state, len(span.span_id)), (TRACE, SPAN, "a=1", 8), "ids")
    equal("whole", (span.kind, span.name, scope.name), (Span.SPAN_KIND_SERVER, "chat " + MODEL, "tokenring"), "kind and name")
    equal("whole", attributes(resource)["service.name"], "tokenring", "whose it is")
    equal("whole", (a["gen_ai.usage.input_tokens"], a["gen_ai.usage.output_tokens"]),
          (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]), "tokens")
    equal("whole", (a["gen_ai.operation.name"], a["gen_ai.request.max_tokens"], a["gen_ai.request.stream"]), ("chat", 5, False), "what was asked")
    equal("whole", a["gen_ai.response.finish_reasons"], ["length"], "a list")
    check("whole", span.start_time_unix_nano < span.end_time_unix_nano <= time.time_ns(), "times are numbers")
    equal("whole", span.status.code, Status.STATUS_CODE_UNSET, "no error")
    names = [e.name for e in span.events]
    check("whole", "tokenring.first_token" in names and "tokenring.closed" in names, "stages are events", names)
    check("whole", all(span.start_time_unix_nano <= e.time_unix_nano <= span.end_time_unix_nano for e in span.events), "within the span")
with trying("stream", "a stream"):
    a = attributes(told["stream"][2])
    equal("stream", (a["gen_ai.request.stream"], a["tokenring.delivered_tokens"]), (True, 5), "a stream")
    check("stream", 0 < a["gen_ai.response.time_to_first_chunk"] < 60, "seconds to its first chunk", a)
