# SPDX-License-Identifier: Apache-2.0
"""What a client says and the server says again: in heads, events, errors, statuses of gRPC and on the page of
somebody else.  It can be no line, no field, no event and no order of its own.  docs/security.md."""
import oip
from frames import Session
from lib import *
from websocket import WebSocket

CHAT, COMP, NATIVE, RESPONSES, MESSAGES = (
    "/v1/chat/completions", "/v1/completions", "/v1/streams", "/v1/responses", "/v1/messages")
EVIL = 'x"\\\r\n\r\ndata: {"forged":1}\n\nevent: forged\nid: 99\n\u2028\u2029\x00\x1b[2J</script><!--{"forged":1}'
HEADS = {"date", "content-type", "content-length", "x-request-id", "request-id", "transfer-encoding", "cache-control",
         "x-accel-buffering", "incremental", "x-tokenring-stream", "connection", "allow", "retry-after", "upgrade",
         "access-control-allow-origin", "access-control-expose-headers", "access-control-allow-methods",
         "access-control-allow-headers", "access-control-max-age", "vary", "sec-websocket-protocol",
         "sec-websocket-accept", "x-should-retry", "traceparent", "www-authenticate"}
S = None


def known(headers, claim):
    check(set(headers) <= HEADS and not any("forged" in v for v in headers.values()), claim,
          {k: v for k, v in headers.items() if k not in HEADS or "forged" in v})


@test
def fields_of_a_head():
    names = ("X-Request-Id", "Origin", "Access-Control-Request-Headers", "Access-Control-Request-Method", "traceparent",
             "tracestate", "Idempotency-Key", "Last-Event-ID", "Accept", "Authorization", "X-Api-Key", "Content-Type",
             "X-Request-Timeout", "X-Tokenring-Resume", "anthropic-version", "Sec-WebSocket-Protocol", "User-Agent")
    values = (b"a\rX-Forged: forged", b"a\nX-Forged: forged", b"a\r\n X-Forged: forged", b"a\x00X-Forged: forged",
              b"a%0d%0aX-Forged: forged", b"a\xc4\x8d\xc4\x8aX-Forged: forged", b"a\xe5\x98\x8a\xe5\x98\x8dX-Forged: forged")
    for name in names:
        for value in values:
            for line in (b"POST /v1/completions", b"OPTIONS /v1/completions", b"GET /v1/streams/x"):
                body = json.dumps(completion("x", max_tokens=1)).encode() if line[:1] == b"P" else b""
                rs, rest = S.responses(line + b" HTTP/1.1\r\nHost: x\r\n" + name.encode() + b": " + value +
                                       b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body, 1)
                check(len(rs) == 1 and not rest, f"{name}: one answer", value, rs, rest[:100])
                for r in rs:
                    known(r.headers, f"{name}: {value}: no field is made")
    for path in (b"/v1/streams/x%0d%0aX-Forged:%20forged", b"/%0aX-Forged:forged", b"/v1/models/a%0d%0ab",
                 b"/v1/streams/x?format=%0d%0aX-Forged:forged&after=%00"):
        rs, rest = S.responses(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n", 1, shut=True)
        check(len(rs) == 1 and rs[0].status in (400, 404) and not rest, "an escape in a path makes no line", path, rs)
        known(rs[0].headers, f"nor a field: {path}")


@test
def fields_of_http2():
    s = Session(S.port)
    good = [(":method", "GET"), (":scheme", "http"), (":authority", "x"), (":path", "/health")]
    for fields in ([("x-request-id", "a\r\nx-forged: forged")], [("x-request-id", "a\nx-forged: forged")],
                   [("x-a\r\nx-forged", "forged")], [("x-a: b\r\nx-request-id", "forged")], [("x-request-id", "a\0b")],
                   [("host", "x\r\nx-request-id: forged")], [("cookie", "a\r\nx-request-id: forged")]):
        f = s.request(good + fields)
        f.wait(f.over)
        check(not any("forged" in str(x) for x in f.headers or ()), "no field is made", fields, f.headers)
    for bad in ("/health HTTP/1.1\r\nx-request-id: forged\r\n", "/health\r\nx-request-id: forged", "/health x"):
        f = s.request([(n, bad if n == ":path" else v) for n, v in good])
        f.wait(f.over)
        check(not any("forged" in str(x) for x in f.headers or ()), "nor by a path", bad, f.headers)
    s.close()


def lines_of(body):
    """The lines of an event stream as a client splits them: by CR, LF or both."""
    return [x for x in re.split("\r\n|\r|\n", body.decode("utf-8")) if x]


@test
def strings_in_events():
    """Each dialect says some strings of its request again; on SSE each line is one that the server wrote."""
    tool = {"type": "function", "function": {"name": "f", "description": EVIL, "parameters": {"type": "object", "description": EVIL}}}
    asks = ((COMP, dict(completion(EVIL, echo=True), user=EVIL)),
            (CHAT, dict(chat(EVIL), user=EVIL, tools=[tool], tool_choice="none", stop=[EVIL])),
            (NATIVE, dict(model=MODEL, prompt=EVIL, metadata={"a": EVIL}, user=EVIL, stop=[EVIL])),
            (RESPONSES, dict(model=MODEL, input=EVIL, instructions=EVIL, metadata={"a": EVIL, EVIL[:60]: "b"}, user=EVIL,
                             safety_identifier="x\ny", prompt_cache_key="x\r\ny",
                             tools=[dict(tool["function"], type="function")], tool_choice="none")),
            (MESSAGES, dict(model=MODEL, system=EVIL, messages=[{"role": "user", "content": EVIL}], max_tokens=3,
                            stop_sequences=[EVIL], metadata={"user_id": EVIL})))
    for path, ask in asks:
        for stream in (True, False):
            body = dict(ask, stream=stream)
            body.setdefault("max_tokens" if path != RESPONSES else "max_output_tokens", 3)
            r = S.post(path, body)
            check(r.status == 200, f"{path} is answered", r.status, r.text)
            known(r.headers, f"{path}: its head")
            if not (r.header("content-type") or "").startswith("text/event-stream"):
                check(r.status != 200 or isinstance(r.json, dict), f"{path}: JSON", r.text)
                continue
            for line in lines_of(r.body):
                kind, _, value = line.partition(": ")
                check(kind == "data" and (value == "[DONE]" or "forged" not in strict_json(value)) or
                      kind == "event" and re.fullmatch("[a-z_.]+", value) or
                      kind == "id" and "forged" not in value or kind == "", f"{path}: a line of the server's own", line)
    r = S.post(NATIVE, dict(model=MODEL, prompt=EVIL, max_tokens=3, metadata={"a": EVIL}), headers=["Accept: application/x-ndjson"])
    check(all("type" in strict_json(x) for x in r.text.split("\n") if x), "NDJSON: a line is an event", r.text)
    w = WebSocket(S)
    label = 'x"\\</script>\u2028{"forged":1}'
    w.start(label, dict(model=MODEL, prompt=EVIL, max_tokens=3))
    w.end(label)
    equal({e["stream"] for e in w.events[label]}, {label}, "a label comes back as it was")
    w.start(EVIL, dict(model=MODEL, prompt="x", max_tokens=3))
    w.until(lambda m: "stream" not in m)
    equal([(e["type"], e["param"]) for e in w.events[""]], [("error", "stream")], "or not at all")
    w.close()
    w.conn.close()


@test
def errors_are_json():
    for path in (COMP, CHAT, NATIVE, RESPONSES, MESSAGES, "/tokenize", "/detokenize", "/v1/messages/count_tokens"):
        for body in (dict(model=EVIL, prompt="x", messages=[{"role": "user", "content": "x"}], input="x", max_tokens=1),
                     {EVIL: EVIL}, dict(model=MODEL, messages=[{"role": EVIL, "content": EVIL}]),
                     dict(model=MODEL, prompt="x", stop=5, response_format={"type": EVIL}, reasoning={"effort": EVIL}),
                     dict(model=MODEL, input=[{"type": EVIL, "role": EVIL}], tools=[{"type": EVIL, "name": EVIL}]),
                     dict(model=MODEL, prompt="x", input="x", messages=[{"role": "user", "content": "x"}], max_tokens=1,
                          response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {EVIL: EVIL, "type": EVIL}}})):
            r = S.post(path, body)
            known(r.headers, f"{path}: its head")
            check(r.header("content-type") == "application/json" and isinstance(r.json, dict), f"{path}: one object", r.text)
    for path in ("/v1/streams/" + "%3Cscript%3E" * 9, "/%3Csvg/onload=x%3E", "/v1/models/%3Cscript%3E"):
        r = S.get(path)
        check(r.status == 404 and r.header("content-type") == "application/json" and b"<" not in r.body, "no path is repeated as markup",
              r.status, r.text)


@test
def statuses_of_grpc():
    """The message of a status holds what was wrong; it is printable, whatever that was."""
    s = Session(oip.port_of(S))
    head, kind = [(":method", "POST"), (":scheme", "http"), (":authority", "x")], [("content-type", "application/grpc"), ("te", "trailers")]
    for method in ("ModelInfer", "ModelMetadata", "ModelReady"):
        for name in (EVIL, "a\r\ngrpc-status: 0\r\nx-forged: forged"):
            f = s.request(head + [(":path", oip.INFER + method)] + kind, end=False)
            m = oip.field(1, name) + (oip.field(5, oip.field(1, name)) if method == "ModelInfer" else b"")
            f.send(struct.pack(">BI", 0, len(m)) + m, True)
            f.wait(f.over)
            told = list(f.headers or ()) + list(f.trailers or ())
            check(all(re.fullmatch("[ -~]*", v) for _, v in told) and len([v for n, v in told if n == "grpc-status"]) == 1 and
                  not any("forged" in n for n, _ in told), f"{method}: one status, printable", told)
    equal(s.broken, [], "the rules of HTTP/2 are kept")
    s.close()


@test
def names_of_the_model():
    """An operator's, but it stands in every answer."""
    name = 'a"b\\c<script>'
    with Server(TINY, served_name=name, ledger=False) as s:
        equal(s.get("/v1/models").json["data"][0]["id"], name, "is as it was given")
        st = s.stream(CHAT, dict(chat("x", max_tokens=2, stream=True), model=name)).rest()
        equal({e["model"] for e in st.events}, {name}, "in events too")
        for line in s.get("/metrics").text.splitlines():
            check(line.startswith("#") or re.fullmatch(r'[a-z0-9_:]+(\{([a-z_]+="([^"\\\n]|\\.)*",?)*\})? \S+', line), "a metric is one", line)


@test
def pages_of_others():
    """A browser sends some requests to another origin without asking: no type of theirs is taken for JSON."""
    body = json.dumps(completion("x", max_tokens=1)).encode()

    def post(*headers):
        rs, _ = S.responses(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body) +
                            "".join(h + "\r\n" for h in headers).encode() + b"\r\n" + body, 1)
        return rs[0].status
    for origin in ("http://evil.example", "null", "http://localhost"):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
                     "text/plain; application/json", "application/jsonx", ""):
            equal(post(f"Origin: {origin}", *([f"Content-Type: {kind}"] if kind else [])), 415, f"{origin}, {kind or 'no type'}")
    equal(post("Origin: http://localhost", "Content-Type: application/json"), 200, "a page of ours says what it sends")
    equal(post(), 200, "a client that is no page need not")
    r = S.ask("OPTIONS", COMP, None, ["Origin: http://evil.example", "Access-Control-Request-Method: POST"])
    check(not any(h.startswith("access-control") for h in r.headers), "and who asks first gets no leave", r.headers)
    for host in ("evil.example", "localhost:1"):
        w = WebSocket(S, headers=[f"Origin: http://{host}"])
        equal(w.status, 403, "nor a WebSocket")
        w.conn.close()


if __name__ == "__main__":
    S = Server(TINY, grpc_port=0)
    main()
