# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 apart from framing: limits, times, headers, sockets, browsers, paths, IPv6."""
import ctypes

from lib import *

S = None
COMP = "/v1/completions"
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@test
def body_too_large():
    """Case B28: the client gets one whole 413, though it was still sending."""
    limit = 1 << 20
    with Server(max_body=limit, ledger=False) as s:
        before = sum(rss(p) for p in s.all_pids())
        bad = 0
        for size in (limit + 1, 4 * limit):
            for _ in range(20):
                out = s.raw(request("POST", "/v1/chat/completions",
                                    b'{"x":"' + b"a" * (size - 8) + b'"}'))
                bad += not (out.startswith(b"HTTP/1.1 413 ") and out.count(b"HTTP/1.1") == 1
                            and out.endswith(b"}}"))
        equal(bad, 0, "413 for a body over the limit, whole, every time")
        for _ in range(20):
            out = s.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                        b"Content-Length: 9223372036854775807\r\n\r\n")
            check(out.startswith(b"HTTP/1.1 413 ") and out.endswith(b"}}"),
                  "Content-Length of 2^63 - 1", out)
        out = s.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                    b"Content-Length: 99999999999999999999999\r\n\r\n")
        check(re.match(rb"HTTP/1\.1 (413|400) ", out), "Content-Length beyond 64 bits", out)
        grown = sum(rss(p) for p in s.all_pids()) - before
        check(grown < 2 * limit * len(s.pids["frontend"]) or SANITIZED,
              "memory does not follow refused bodies", grown)

        def endless():
            with contextlib.closing(s.conn(wait=2)) as c:
                c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                       b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                with contextlib.suppress(OSError):
                    while True:  # until the server takes no more
                        c.send(b"10000\r\n" + b"a" * 65536 + b"\r\n")
                c.sock.settimeout(WAIT)
                return c.drain()
        for out in together([endless] * 20):
            check(isinstance(out, bytes) and out.startswith(b"HTTP/1.1 413 ") and
                  out.count(b"HTTP/1.1") == 1 and out.endswith(b"}}"),
                  "413 for a chunked body without end, whole, then the end", out)
        grown = sum(rss(p) for p in s.all_pids()) - before
        check(grown < 24 * limit or SANITIZED, "each of them holds at most one limit", grown)
        s.alive("bodies over the limit")


def flood(first, piece, n):
    """How many bytes were taken, and the answer."""
    sent = 0
    with contextlib.closing(S.conn()) as c:
        with contextlib.suppress(OSError):
            c.send(first)
            for _ in range(n):
                c.send(piece)
                sent += len(piece)
        try:
            return sent, c.drain()
        except OSError:
            return sent, b""


@test
def heads_without_end():
    """Case B59."""
    before = sum(rss(p) for p in S.all_pids())
    get = b"GET /health HTTP/1.1\r\nHost: x\r\n"
    floods = [
        (get + b"X: ", b"a" * 65536, 1024),
        (get, b"".join(b"h%d: 1\r\n" % i for i in range(1000)), 200),
        (b"GET /", b"a" * 65536, 16),
        (get, b"Cookie: a\r\n" * 100, 100),
    ]
    for i, f in enumerate(floods):
        for sent, out in together([lambda f=f: flood(*f)] * 20):
            check(out == b"" or re.match(rb"HTTP/1\.1 (431|414|400) ", out) and
                  out.count(b"HTTP/1.1") == 1, f"flood {i}: 431, 414, 400 or the end", out)
    grown = sum(rss(p) for p in S.all_pids()) - before
    check(grown < (8 << 20) or SANITIZED, "heads without end take no memory", grown)
    S.alive("heads without end")


@test
def slow_heads_and_bodies():
    """A client that does not finish its request is told so and let go; others do not wait."""
    with Server(header_timeout_s=1.5, body_timeout_s=1.5, keepalive_s=1.5, ledger=False) as s:
        head = s.conn()
        head.send(b"GET /health HTTP/1.1\r\nHo")
        body = s.conn()
        body.send(request("POST", "/v1/completions", b"{}      ")[:-4])
        idle = s.conn()
        idle.send(HEALTH)
        equal(idle.response().status, 200, "a request on a connection that is then idle")
        for name, c, want in (("head", head, rb"HTTP/1\.1 408 "), ("body", body, rb"HTTP/1\.1 408 "),
                              ("idle", idle, rb"$")):
            out = c.drain()
            check(re.match(want, out), f"unfinished {name}", out)
            c.close()
        s.alive("unfinished requests")


@test
def dripping_requests():
    """A byte now and then does not make the time of a head or a body longer."""
    with Server(header_timeout_s=2, body_timeout_s=1, ledger=False, frontends=1) as s:
        def drip(first, piece, pause):
            """What comes back before the client tires, and how many pieces went out."""
            with contextlib.closing(s.conn()) as c:
                c.send(first)
                for i in range(400):
                    if select.select([c.sock], [], [], pause)[0]:
                        return c.drain(), i
                    with contextlib.suppress(OSError):
                        c.send(piece)
                return b"never", 400
        body = request("POST", COMP, b"{}" + b" " * 4000)
        cut = len(body) - 4002
        jobs = [lambda: drip(b"GET /health HTTP/1.1\r\nX: ", b"a", 0.1),
                lambda: drip(b"GET /health HTTP/1.1\r\nHost: x\r\n", b"a: b\r\n", 0.1),
                lambda: drip(b"GET ", b"/", 0.1),
                lambda: drip(body[:cut], b" ", 0.05),
                lambda: drip(b"POST " + COMP.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: "
                             b"application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
                             b"1\r\n \r\n", 0.05)]
        names = ["a field", "fields", "a target", "a body", "chunks"]
        for name, got in zip(names, together(jobs)):
            check(isinstance(got, tuple) and got[0].startswith(b"HTTP/1.1 408 ") and 0 < got[1] < 400,
                  f"{name}, byte by byte: 408 while the bytes still come", got)
        s.alive("dripping requests")


@test
def connections():
    """--max-connections: one too many is told at once; who is in is not disturbed."""
    with Server(max_connections=6, frontends=1, ledger=False) as s:
        st = s.stream(COMP, force(369, prompt="x", max_tokens=300, stream=True)).read(2)
        crowd = [s.conn() for _ in range(5)]
        for c in crowd:
            c.send(HEALTH)
            equal(c.response().status, 200, "a connection within the limit")
        for _ in range(20):
            with contextlib.closing(s.conn()) as c:
                with contextlib.suppress(OSError):
                    c.send(HEALTH)
                r = c.response()
                check(is_error(r, 503, code="too_many_connections") and r.header("retry-after") and
                      r.header("connection") == "close", "one too many: 503, come again", r.headers)
        crowd[0].send(HEALTH)
        equal(crowd[0].response().status, 200, "those within go on")
        st.rest()
        check(st.text() == "ab" * 300 and st.done == 1, "the stream too")
        for c in crowd + [st.conn]:
            c.close()
        check(until(lambda: s.get("/health").status == 200), "there is room again")
        check(s.metric('requests_refused_total{reason="overloaded"}') >= 20, "counted",
              [k for k in s.metrics() if "refused" in k])
        s.alive("too many connections")


@test
def stream_headers():
    with contextlib.closing(S.conn()) as c:
        c.send(request("POST", "/v1/chat/completions", chat("Hi", max_tokens=3, stream=True),
                       ["X-Request-Id: my-id-1"]))
        r = c.response()
    h = r.headers
    check(h.get("content-type", "").split(";")[0] == "text/event-stream" and
          h.get("cache-control") == "no-cache, no-transform" and
          h.get("x-accel-buffering") == "no" and h.get("incremental") == "?1" and
          h.get("transfer-encoding") == "chunked", "headers of a stream", h)
    equal(h.get("x-request-id"), "my-id-1", "the client's request id is echoed")
    check(S.row("my-id-1"), "and names the row in the ledger")


def sockets_of(pid):
    """Copies of another process's sockets (pidfd_getfd), so that their options can be read."""
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = os.pidfd_open(pid)
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                continue
            copy = libc.syscall(438, pidfd, int(fd), 0)
            if copy < 0:
                raise PermissionError(ctypes.get_errno(), "pidfd_getfd")
            yield socket.socket(fileno=copy)
    os.close(pidfd)


@test
def no_delay():
    """Case B66: TCP_NODELAY and bounded buffers on accepted sockets; each token its own event."""
    with contextlib.closing(S.conn()) as c:
        c.send(HEALTH)
        c.response()
        found = 0
        for pid in S.pids["frontend"]:
            for s in sockets_of(pid):
                with contextlib.suppress(OSError), s:
                    if s.getpeername() != c.sock.getsockname():
                        continue
                    found += 1
                    equal(s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 1, "TCP_NODELAY")
                    equal(s.getsockopt(socket.IPPROTO_TCP, 25), 16384, "TCP_NOTSENT_LOWAT")
                    check(s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 1 << 20,
                          "SO_SNDBUF is bounded", s.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
                    check(s.getsockopt(socket.IPPROTO_TCP, 18) > 0, "TCP_USER_TIMEOUT is set")
        equal(found, 1, "the other end of our connection")
        st = Stream(S, "/v1/completions", force(369, prompt="x", max_tokens=300, stream=True),
                    conn=c).rest()
        equal(len(st.events), 301, "300 tokens and a finish: each its own event")


ORIGIN = "https://app.example"
ASKED = "authorization,content-type,x-stainless-os,x-stainless-retry-count,x-request-id"
GETS = ("/health", "/readyz", "/livez", "/startupz", "/ping", "/v2/health/live", "/v2/health/ready",
        "/v1/models", f"/v1/models/{MODEL}", "/version", "/server_info", "/get_server_info",
        "/model_info", "/get_model_info", "/metrics")
POSTS = ("/v1/chat/completions", "/v1/completions", "/v1/streams", "/tokenize", "/detokenize")


def preflight(s, path, method):
    return s.ask("OPTIONS", path, None, [f"Origin: {ORIGIN}", f"Access-Control-Request-Method: {method}",
                                         f"Access-Control-Request-Headers: {ASKED}"])


@test
def browsers():
    """Case B77: a page of the allowed origin may ask every path, and read every answer and error."""
    with Server(cors=ORIGIN, max_body=65536, header_timeout_s=2, ledger=False) as s:
        for path, method in [(p, "GET") for p in GETS] + [(p, "POST") for p in POSTS] + [
                ("/v1/streams/x", "DELETE"), ("//v1//completions/", "POST"), ("/tokenize?x=1", "POST")]:
            r = preflight(s, path, method)
            check(r.status == 204 and r.body == b"" and "content-length" not in r.headers and
                  r.header("access-control-allow-origin") == ORIGIN and r.header("vary") == "Origin" and
                  method in r.header("access-control-allow-methods").split(", ") and
                  method in r.header("allow").split(", ") and "OPTIONS" in r.header("allow") and
                  set(ASKED.split(",")) <= set(r.header("access-control-allow-headers").split(",")) and
                  r.header("access-control-max-age"), f"preflight of {path}", r.status, r.headers)
        r = s.ask("OPTIONS", "/tokenize", None, [f"Origin: {ORIGIN}"])
        check("authorization" in r.header("access-control-allow-headers"),
              "authorization is granted without being asked for", r.headers)
        r = s.ask("OPTIONS", "/tokenize", None, ["Access-Control-Request-Headers: \xff<x>\""])
        check("authorization" in r.header("access-control-allow-headers"),
              "odd names are not echoed", r.headers)
        equal(s.ask("OPTIONS", "*", None).status, 204, "OPTIONS *")
        head = b"POST /tokenize HTTP/1.1\r\nHost: x\r\n"
        for claim, data, status in (
                ("no path", b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
                ("preflight of no path", b"OPTIONS /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
                ("method", b"GET /tokenize HTTP/1.1\r\nHost: x\r\n\r\n", 405),
                ("JSON", head + b"Content-Length: 1\r\n\r\n{", 400),
                ("framing", head + b"Content-Length: +1\r\n\r\n{", 400),
                ("broken chunk", head + b"Transfer-Encoding: chunked\r\n\r\nx", 400),
                ("no host", b"GET /health HTTP/1.1\r\n\r\n", 400),
                ("head too slow", b"GET /health HTTP/1.1\r\nHo", 408),
                ("too large", head + b"Content-Length: 70000\r\n\r\n", 413),
                ("target too long", b"GET /" + b"a" * 10000 + b" HTTP/1.1\r\n\r\n", 414),
                ("type", head + b"Content-Type: text/html\r\nContent-Length: 1\r\n\r\n{", 415),
                ("expectation", head + b"Expect: x\r\nContent-Length: 1\r\n\r\n{", 417),
                ("head too large", head + b"X: " + b"a" * 40000, 431),
                ("unknown method", b"BREW / HTTP/1.1\r\nHost: x\r\n\r\n", 501),
                ("version", b"GET / HTTP/2.0\r\nHost: x\r\n\r\n", 505)):
            rs, _ = s.responses(data, 1)
            check(len(rs) == 1 and rs[0].status == status and rs[0].error and
                  rs[0].header("access-control-allow-origin") == ORIGIN and
                  rs[0].header("content-type") == "application/json" and
                  "x-request-id" in rs[0].header("access-control-expose-headers"),
                  f"a page can read the error: {claim}", [(r.status, r.headers) for r in rs])
        equal(s.get("/health").header("access-control-allow-origin"), ORIGIN, "and an answer")
        st = s.stream("/v1/chat/completions", chat("Hi", max_tokens=1, stream=True)).rest()
        equal(st.head.get("access-control-allow-origin"), ORIGIN, "and a stream")
        check({"x-tokenring-stream", "retry-after", "x-should-retry", "idempotency-replayed"} <=
              set(st.head["access-control-expose-headers"].split(", ")), "and what our heads say besides", st.head)
    with Server(cors="*", ledger=False) as s:
        r = preflight(s, "/v1/chat/completions", "POST")
        check(r.status == 204 and r.header("access-control-allow-origin") == "*" and not r.header("vary"),
              "any origin", r.headers)
    r = preflight(S, "/v1/chat/completions", "POST")
    check(r.status == 204 and not [h for h in r.headers if h.startswith("access-control")],
          "without --cors there is no grant", r.headers)


@test
def paths():
    """Case B77: a slash or a query too many is no other path; what is not there is said in JSON."""
    for path in ("//v1/chat/completions", "/v1/chat/completions/", "/v1//chat///completions//",
                 "/v1/chat/completions?api-version=1", "/v1/chat/completions/?", "/v1/%63hat/completions",
                 "http://any.host:1/v1/chat/completions"):
        equal(S.post(path, chat("Hi", max_tokens=1)).status, 200, f"POST {path}")
    for path in POSTS:
        for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE"):
            r = S.ask(method, path, None)
            check(r.status == 405 and r.header("allow") == "POST, OPTIONS" and
                  (method == "HEAD" or is_error(r, 405)), f"{method} {path}: 405 with Allow", r.headers, r.text)
    for path in ("/nowhere", "/v1", "/v1/", "/..%2f..", "/v1/streams/x", "/v1/./models", "/v1/x/../models",
                 "/v1/models/%ff%fe", "/%c3%a9", "/v1/models/%22%5c%0a".replace("%0a", ""), "/V1/MODELS",
                 "/v1/chat/completions%3Fx", "/" + "a/" * 4000):
        r = S.get(path)
        check(r.status == 404 and r.error and r.json, f"GET {path[:40]}: JSON error", r.status, r.body)
    r = S.ask("BREW", "/health", None)
    check(is_error(r, 501), "unknown method", r.status, r.text)


@test
def heads():
    """HEAD is GET without its body, on every path, and the next request is found."""
    for path in GETS:
        with contextlib.closing(S.conn()) as c:
            c.send(request("GET", path) + request("HEAD", path) + HEALTH)
            get, head, last = c.response(), c.response(head_only=True), c.response()
        same = {k: v for k, v in get.headers.items() if k not in ("date", "x-request-id", "content-length")}
        check(head.status == get.status == 200 and last.status == 200 and same.items() <= head.headers.items()
              and (path == "/metrics" or head.header("content-length") == str(len(get.body))),
              f"HEAD {path}", get.headers, head.headers)


@test
def ipv6():
    with Server(host="[::1]", ledger=False) as s:
        check("http://[::1]:" in s.ready, "brackets around the flag are taken off", s.ready)
        with contextlib.closing(socket.create_connection(("::1", s.port), timeout=WAIT)) as c:
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            check(c.recv(65536).startswith(b"HTTP/1.1 200 "), "and it listens there")
    with Server(host="::1", ledger=False) as s:
        check("http://[::1]:" in s.ready, "the address is shown as a URL has it", s.ready)
        for host in ("[::1]", f"[::1]:{s.port}", "localhost", f"[0:0:0:0:0:0:0:1]:{s.port}"):
            with contextlib.closing(socket.create_connection(("::1", s.port), timeout=WAIT)) as c:
                c.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                out = b"".join(iter(lambda: c.recv(65536), b""))
                check(out.startswith(b"HTTP/1.1 200 "), f"over IPv6 with Host {host}", out)


@test
def request_ids():
    """Case B58, framing part: what is echoed is short, printable, and injects nothing."""
    for name, value in (("quotes", 'a"b\\c'), ("8-bit", "caf\xe9"), ("long", "x" * 300),
                        ("129", "x" * 129), ("blank inside", "a b"), ("empty", "")):
        r = S.get("/health", headers=[f"X-Request-Id: {value}"])
        got = r.header("x-request-id")
        check(r.status == 200 and got and len(got) <= 128 and
              all(0x20 < ord(ch) < 0x7f for ch in got) and (got == value) == (name == "quotes"),
              f"request id: {name}", r.status, got)
    out = S.raw(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + b"x" * (1 << 20) + b"\r\n\r\n")
    check(out == b"" or re.match(rb"HTTP/1\.1 (400|431) ", out), "request id of 1 MB", out)
    out = S.raw(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\x07b\r\nConnection: close\r\n\r\n")
    check(b"\x07" not in out, "control byte in a request id", out)
    rid = 'q"\\' + "{}"
    equal(S.post("/v1/completions", completion("x", max_tokens=1),
                 headers=[f"X-Request-Id: {rid}"]).status, 200, "request id with JSON in it")
    check(S.row(rid), "is one well-formed row in the ledger")
    for form in ("json", "text"):
        with Server(TINY, log_format=form, log_level="debug", ledger=False) as s:
            ids = [rid, "x\xe9\xff\x85y", "a\tb", "z" * 5000, '"}\\n{"level":"error', "2026-01-01T00:00:00Z error"]
            for i in ids:
                s.post("/v1/completions", completion("x", max_tokens=1, ignore_eos=True),
                       headers=[f"X-Request-Id: {i}"])
            check(until(lambda: s.log().count("length") >= len(ids)), f"{form}: a line for each", s.log())
            lines = s.log().rpartition("\n")[0].splitlines()  # without one that is half written
            for line in lines:
                check(isinstance(strict_json(line), dict) if form == "json" else
                      re.match(r"\d{4}-\d\d-\d\dT[0-9:.]+Z (info|warn|debug|error) ", line) and line.isprintable() and
                      line.isascii(), f"{form}: no log line is made by a client", line)
            check(not any(" error " in line[:40] for line in lines) and max(map(len, lines)) < 1500,
                  f"{form}: nor forged, nor long", lines)


if __name__ == "__main__":
    S = Server()
    main()
