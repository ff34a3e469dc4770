# SPDX-License-Identifier: Apache-2.0
"""The access log: one line for each request, on every carrier, however it ends; it says what the ledger says,
and nothing that a client wrote but ids."""
import hashlib

from carriers import *
from dialects import *
from websocket import WebSocket

LOGGED = dict(TINY, grpc_port=0, sim_step_us=3000, max_seqs=64, log_format="json")
WORDS = {"http/1.1": "http/1.1", "http/2": "h2", "websocket": "ws", "grpc": "grpc"}
STAGES = ("head", "body", "parsed", "rendered", "tokenised", "submitted", "admitted", "started", "first_token",
          "last_token", "finished", "terminal", "closed")
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = ("traceparent", f"00-{TRACE}-{SPAN}-01")
CELLS = [(c, d) for c, cls in CARRIERS.items() for d in DIALECTS if cls.carries(d)]


def lines(server):
    """Every line of the log, which are all JSON; those of requests.  The last one may be half written."""
    out = []
    for text in server.log().split("\n")[:-1]:
        if text.startswith("{"):
            out.append(strict_json(text))
    return [o for o in out if o["msg"] == "access"]


def line_of(server, request_id):
    """The one line of a request, waited for."""
    def mine():
        return [o for o in lines(server) if o["request_id"] == request_id]
    until(mine)
    found = mine()
    check(len(found) == 1, f"{request_id} has one line", found)
    return found[0] if found else {"ms": {}}


def in_order(o, claim):
    at = [(k, o["ms"][k]) for k in STAGES if o["ms"][k] is not None]
    check(all(a[1] <= b[1] + 0.001 for a, b in zip(at, at[1:])), f"{claim}: stages in their order", at)


def open_cells(server, what, n):
    calls = []
    for i, (c, d) in enumerate(CELLS):
        with_trace = Dialect(d.name, d.path, d.make, d.read, d.messages, [*d.headers, PARENT], d.streamed, d.says_end)
        calls.append(CARRIERS[c](server, with_trace, Ask(seed=3, n=n), f"{what}-{i}"))
    return calls


@test
def every_way_to_a_natural_end():
    with Server(LOGGED) as s:
        calls = open_cells(s, "natural", 12)
        together([c.read for c in calls])
        for (c, d), call in zip(CELLS, calls):
            claim, o, row = f"{d.name} on {c}", line_of(s, call.rid), s.row(call.rid)
            got = {k: o.get(k) for k in ("end", "reason", "stream", "prompt_tokens", "cached_tokens", "completion_tokens")}
            want = dict(end=row["status"], reason=row["reason"], stream=row["stream_id"],
                        **{k: row[k] for k in ("prompt_tokens", "cached_tokens", "completion_tokens")})
            equal(got, want, f"{claim}: as in the ledger")
            equal(o["delivered_tokens"], 12, f"{claim}: all of it has arrived")
            equal((o["carrier"], o["status"], o["streamed"]), (WORDS[c], 200, d.streamed), claim)
            if c in ("http/1.1", "http/2"):
                equal((o["trace_id"], o["parent_id"]), (TRACE, SPAN), f"{claim}: its trace is continued")
            in_order(o, claim)
            none = {k for k in STAGES if o["ms"][k] is None}
            # A prompt has no template; plain text has no end of its own but that of its bytes, unless it is whole.
            want = {k for k, has in (("rendered", d.messages), ("terminal", d.says_end)) if not has}
            equal(none, want, f"{claim}: stages without a time")
            check(o["ms"]["first_token"] <= o["ms"]["first_byte"] <= o["ms"]["closed"], f"{claim}: content", o["ms"])
            check(o["bytes"] > 0 and o["peer"] == "127.0.0.1", f"{claim}: bytes, peer", o)
            call.drop()
        ids = [o["span_id"] for o in lines(s)]
        check(len(ids) == len(set(ids)), "each request has a span of its own")


@test
def every_way_to_leave():
    with Server(LOGGED) as s:
        calls = open_cells(s, "left", 3000)
        together([c.begin for c in calls])
        time.sleep(0.1)
        rids = [c.rid for c in calls]
        for call in calls:
            call.leave()
        for (c, d), call, rid in zip(CELLS, calls, rids):
            claim, o, row = f"{d.name} on {c}", line_of(s, rid), s.row(rid)
            equal((o["end"], o["reason"]), (row["status"], row["reason"]), f"{claim}: as in the ledger")
            equal(o["reason"], "client_disconnected", claim)
            equal(o["ms"]["terminal"], None, f"{claim}: it was told no end")
            check(o["delivered_tokens"] <= o["completion_tokens"] <= row["completion_tokens"],
                  f"{claim}: tokens as far as they were known here", o, row)
            check(o["streamed"] or o["delivered_tokens"] == 0, f"{claim}: nothing arrived of one piece", o)
            in_order(o, claim)


@test
def refusals():
    with Server(dict(LOGGED, max_seqs=1, max_queue=0, max_body=2048)) as s:
        def refused(rid, status, reason, route, *ask, **kw):
            r = s.ask(*ask, headers=[f"X-Request-Id: {rid}", *kw.get("headers", ())])
            o = line_of(s, rid)
            equal((r.status, o["status"], o["end"], o["reason"], o["route"]), (status, status, "refused", reason, route), rid)
            equal((o["completion_tokens"], o["ms"]["submitted"], o["stream"]), (None, None, None), f"{rid}: nothing began")
        refused("bad", 400, "invalid_value", CHAT, "POST", CHAT, {"messages": 5, "model": MODEL})
        refused("json", 400, "invalid_json", CHAT, "POST", CHAT, b"{")
        refused("where", 404, "not_found", None, "GET", "/nowhere", None)
        refused("how", 405, "method_not_allowed", None, "GET", CHAT, None)
        refused("big", 413, "body_too_large", CHAT, "POST", CHAT, b" " * 3000)
        busy = s.stream(CHAT, chat("x", stream=True, max_tokens=4000, ignore_eos=True))
        busy.read(2)
        refused("full", 503, "engine_overloaded", CHAT, "POST", CHAT, chat("x", max_tokens=1))
        busy.close()
        head = s.raw(b"GET / HTTP/1.1\r\nbad\r\n\r\n")
        check(b" 400 " in head, "a head that cannot be read", head)
        rid = re.search(rb"(?i)x-request-id: (\S+)", head).group(1).decode()
        o = line_of(s, rid)
        equal((o["status"], o["method"], o["end"]), (400, None, "refused"), "it has a line, too")


@test
def whose_request_it_was():
    secret = "tr-a-secret-of-a-test"
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "keys.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"keys": [{"name": "alice", "sha256": hashlib.sha256(secret.encode()).hexdigest()}]}, f)
        with Server(dict(LOGGED, api_keys=path)) as s:
            body = chat("x", max_tokens=1)
            s.post(CHAT, body, headers=["X-Request-Id: hers", f"Authorization: Bearer {secret}"])
            s.post(CHAT, body, headers=["X-Request-Id: nobody", "Authorization: Bearer tr-another-one"])
            equal([line_of(s, "hers")[k] for k in ("key", "status", "end")], ["alice", 200, "incomplete"], "by her key")
            equal([line_of(s, "nobody")[k] for k in ("key", "status", "end")], [None, 401, "refused"], "by none")
            session = frames.Session(oip.port_of(s))
            oip.Call(session, "/inference.GRPCInferenceService/ModelInfer",
                     headers=[("x-request-id", "call")]).write(b"").done().end()
            equal([line_of(s, "call")[k] for k in ("key", "end", "reason")], [None, "refused", "unauthenticated"], "in gRPC")
            session.close()
            check(secret not in s.log() and "another-one" not in s.log(), "no key")


@test
def a_call_without_a_request():
    """gRPC that asks for nothing to be generated: at debug, unless it is refused."""
    with Server(dict(LOGGED, log_level="debug")) as s:
        session = frames.Session(oip.port_of(s))
        oip.Call(session, "/inference.GRPCInferenceService/ServerLive", headers=[("x-request-id", "live")]).write(b"").done().message()
        oip.Call(session, "/no.such/Method", headers=[("x-request-id", "none")]).write(b"").done().end()
        live, none = line_of(s, "live"), line_of(s, "none")
        equal((live["level"], live["end"], live["carrier"]), ("debug", "answered", "grpc"), "a probe")
        equal((none["level"], none["end"], none["reason"]), ("info", "refused", "unimplemented"), "a refusal")
        session.close()


@test
def what_clients_say():
    """Ids that would forge lines or fields, and what client libraries say of themselves."""
    with Server(LOGGED) as s:
        hostile = '","end":"completed"},\\"{}'
        secret = "the-words-of-a-person"
        r = s.post(CHAT, chat(secret, max_tokens=2, user=secret),
                   headers=[f"X-Request-Id: {hostile}", "x-stainless-retry-count: 3", "x-stainless-read-timeout: 600",
                            f"Authorization: Bearer {secret}", f"User-Agent: {secret}", "traceparent: 00-evil-01",
                            f"tracestate: a={secret}"])
        o = line_of(s, hostile)
        equal((r.status, o["end"], o["retry"], o["read_timeout_s"]), (200, "incomplete", 3, 600.0), "a hostile id")
        check(o["parent_id"] is None and re.fullmatch("[0-9a-f]{32}", o["trace_id"]), "a new trace", o)
        s.post(CHAT, chat(secret, max_tokens=2), headers=["X-Request-Id: odd", "x-stainless-retry-count: 1e3"])
        equal(line_of(s, "odd")["retry"], None, "not a count")
        check(secret not in s.log(), "no content, no header")


@test
def readers_of_one_stream():
    with Server(LOGGED, log_level="debug") as s:
        first = s.conn()
        first.send(request("POST", NATIVE, chat("x", max_tokens=60, ignore_eos=True, on_disconnect="hold"),
                           ["X-Request-Id: first", "Accept: application/x-ndjson"]))
        sid = first.head()[2]["x-tokenring-stream"]
        while b"delta" not in first.buf:
            first.more()
        first.close()
        one = line_of(s, "first")
        equal((one["end"], one["reason"], one["stream"]), ("held", None, sid), "who has left")
        second = s.get(f"/v1/streams/{sid}", headers=["X-Request-Id: second"])
        two = line_of(s, "second")
        equal((second.status, two["end"], two["reason"], two["completion_tokens"]), (200, "incomplete", "length", 60), "who read to the end")
        equal((two["stream"], two["route"], two["delivered_tokens"]), (sid, "/v1/streams/{id}", 60), "of the same stream")
        equal((two["ms"]["submitted"], two["ms"]["started"]), (None, None), "what was before he came is null")
        check(two["ms"]["first_byte"] is not None, "what he was sent is his", two)
        check(one["trace_id"] != two["trace_id"], "a trace for each")


@test
def a_socket_and_its_streams():
    with Server(LOGGED) as s:
        ws = WebSocket(s, headers=["X-Request-Id: sock", f"{PARENT[0]}: {PARENT[1]}"])
        ws.start("a", chat("x", max_tokens=3))
        ws.end("a")
        ws.close()
        o, st = line_of(s, "sock"), line_of(s, "sock.1")
        equal((o["status"], o["end"], o["route"], o["trace_id"]), (101, "closed", "/v1/ws", TRACE), "the socket")
        equal((st["carrier"], st["end"], st["trace_id"], st["parent_id"]), ("ws", "incomplete", TRACE, SPAN), "its stream")


@test
def as_text_and_without_addresses():
    with Server(dict(LOGGED, log_format="text", access_log="no-address")) as s:
        s.post(CHAT, chat("x", max_tokens=1), headers=["X-Request-Id: text"])
        s.get("/health")
        m = until(lambda: re.search(r"^\S+Z info  frontend \d: access (\{.*\"text\".*\})$", s.log(), re.M))
        o = strict_json(m.group(1))
        equal((o["request_id"], o["end"]), ("text", "incomplete"), "the usual beginning, then the object")
        check("peer" not in o and "127.0.0.1" not in m.group(1), "nobody's address", o)
        check("/health" not in s.log(), "probes are told at debug only")
    with Server(dict(LOGGED, access_log="off")) as s:
        s.post(CHAT, chat("x", max_tokens=1))
        s.get("/v1/models")
        check("\"access\"" not in s.log(), "off")


@test
def a_log_that_nobody_reads():
    """The pipe is full: answers come all the same, and lines that are lost are counted."""
    r, w = os.pipe()
    with Server(LOGGED, before=lambda: os.dup2(w, 2)) as s:
        os.close(w)
        n = 400
        for _ in range(n):
            with contextlib.closing(s.conn()) as c:
                for _ in range(5):
                    c.send(request("GET", "/v1/models"))
                    c.response()
            if s.metric("log_lines_dropped_total"):
                break
        check(until(lambda: s.metric("log_lines_dropped_total") > 0), "lines were lost, and counted")
        equal(s.post(CHAT, chat("x", max_tokens=1)).status, 200, "and requests are answered")
        text = b""
        os.set_blocking(r, False)
        with contextlib.suppress(BlockingIOError):
            while (part := os.read(r, 65536)):
                text += part
        told = [strict_json(x) for x in text.decode().splitlines() if x.startswith("{")]
        check(told and all("msg" in o for o in told), "what was told are whole lines")
    os.close(r)


if __name__ == "__main__":
    main()
