# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 framing: refusals, limits, keep-alive, pipelining, 100-continue, HTTP/1.0, browsers."""
import ctypes
import random

from lib import *

S = None
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def responses(data, n=2):
    """What a strict client reads from these bytes sent in one go: up to n responses and the rest."""
    out = []
    with contextlib.closing(S.conn()) as c:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            c.send(data)
        try:
            for _ in range(n):
                out.append(c.response())
                if out[-1].header("connection") == "close":
                    break
            if out[-1].header("connection") == "close":
                c.drain()
        except (EOFError, ConnectionResetError):
            pass
        return out, c.buf


def in_order_or_closed(claim, got, status):
    """Exactly two responses in order, or one that says close and then the end (case B09)."""
    rs, rest = got
    good = (rs and rs[0].status == status and rest == b"" and
            (len(rs) == 2 and rs[1].status == 200 or
             len(rs) == 1 and rs[0].header("connection") == "close"))
    check(good, claim, [(r.status, r.headers, r.text) for r in rs], rest)


@test
def refused_early_with_a_body_behind():
    """Case B09."""
    body = json.dumps(chat("leftover " * 200, max_tokens=1)).encode()
    for path, b, status in (("/no/such/path", body, 404), ("/v1/models", body, 405),
                            ("/v1/chat/completions",
                             json.dumps(dict(chat("x"), model="no-such")).encode(), 404)):
        in_order_or_closed(f"{path} {status}",
                           responses(request("POST", path, b) + HEALTH), status)
    in_order_or_closed("wrong type", responses(
        request("POST", "/v1/chat/completions", None, ["Content-Type: text/html"]).replace(
            b"Content-Type: application/json\r\n", b"").replace(
            b"Content-Length: 0", b"Content-Length: %d" % len(body)) + body + HEALTH), 415)
    with contextlib.closing(S.conn()) as c:  # the body comes late
        r = request("POST", "/no/such/path", b'{"x":"' + b"a" * 1992 + b'"}')
        c.send(r[:-1900])
        first = None
        if select.select([c.sock], [], [], 0.2)[0]:
            first = c.response()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            c.send(r[-1900:] + HEALTH)
        first = first or c.response()
        equal(first.status, 404, "refused before its body came")
        if first.header("connection") != "close":
            equal(c.response().status, 200, "the late body is not read as a request")


@test
def ambiguous_framing():
    """Where two readers could differ, the answer is 400 and the end of the connection."""
    post = b"POST /v1/completions HTTP/1.1\r\n"
    json_type = b"Content-Type: application/json\r\n"
    bad = {
        "two lengths": post + b"Host: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        "length and chunked": post + b"Host: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "signed length": post + b"Host: x\r\nContent-Length: +2\r\n\r\n{}",
        "list of lengths": post + b"Host: x\r\nContent-Length: 2, 3\r\n\r\n{} ",
        "unknown coding": post + b"Host: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "coding on top of chunked": post + b"Host: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "space before colon": post + b"Host: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "no host": b"GET /health HTTP/1.1\r\n\r\n",
        "two hosts": b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "folded header": b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n",
        "NUL in a header": b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n",
        "bare CR": b"GET /health HTTP/1.1\r\nHost: x\r\nX: a\rb: c\r\n\r\n",
        "space in the target": b"GET /hea lth HTTP/1.1\r\nHost: x\r\n\r\n",
        "control byte in the target": b"GET /hea\x01lth HTTP/1.1\r\nHost: x\r\n\r\n",
        "chunk size with sign": post + b"Host: x\r\n" + json_type +
        b"Transfer-Encoding: chunked\r\n\r\n+2\r\n{}\r\n0\r\n\r\n",
        "chunk size too long": post + b"Host: x\r\n" + json_type +
        b"Transfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
        "chunk without its CRLF": post + b"Host: x\r\n" + json_type +
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}x\r\n0\r\n\r\n",
        "version": b"GET /health HTTP/11.1\r\nHost: x\r\n\r\n",
        "noise": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    }
    for name, data in bad.items():
        out = S.raw(data + HEALTH)
        check(re.match(rb"HTTP/1\.1 (400|501|505) ", out) and out.count(b"HTTP/1.1 ") == 1 and
              b"onnection: close" in out and b'"error":{' in out, f"ambiguous: {name}", out)
    S.alive("ambiguous requests")


@test
def chunked_and_pipelined():
    body = json.dumps(chat("Hi", max_tokens=1)).encode()
    pieces = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                      for i in range(0, len(body), 7))
    req = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\nTrailer: x\r\n\r\n")
    rs, rest = responses(req + HEALTH)
    check([r.status for r in rs] == [200, 200] and not rest, "chunked body with extensions",
          [(r.status, r.text) for r in rs], rest)
    with contextlib.closing(S.conn()) as c:
        for b in req:
            c.send(bytes([b]))
        equal(c.response().status, 200, "a request sent byte by byte")
    stream = request("POST", "/v1/completions", force(369, prompt="x", max_tokens=5, stream=True))
    rs, rest = responses(stream + HEALTH + stream + LAST, 4)
    check([r.status for r in rs] == [200] * 4 and not rest, "streams and others pipelined",
          [(r.status, r.text[:100]) for r in rs], rest)
    equal([r.body.count(b"data: [DONE]\n\n") for r in rs], [1, 0, 1, 0], "each stream is whole")
    n = 500
    rs, rest = responses(HEALTH * n + LAST, n + 1)
    equal(sum(r.status == 200 for r in rs), n + 1, "hundreds of pipelined requests")


@test
def body_too_large():
    """Case B28: the client gets one whole 413, though it was still sending."""
    limit = 1 << 20
    with Server(max_body=limit, ledger=False) as s:
        before = sum(rss(p) for p in s.all_pids())
        bad = 0
        for size in (limit + 1, 4 * limit):
            for _ in range(10):
                out = s.raw(request("POST", "/v1/chat/completions",
                                    b'{"x":"' + b"a" * (size - 8) + b'"}'))
                bad += not (out.startswith(b"HTTP/1.1 413 ") and out.count(b"HTTP/1.1") == 1
                            and out.endswith(b"}}"))
        equal(bad, 0, "413 for a body over the limit, whole, every time")
        with contextlib.closing(s.conn()) as c:
            c.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                   b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
            with contextlib.suppress(OSError):
                for _ in range(2000):
                    c.send(b"10000\r\n" + b"a" * 65536 + b"\r\n")
            out = c.drain()
            check(out == b"" or out.startswith(b"HTTP/1.1 413 "), "chunked body without end", out)
        out = s.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                    b"Content-Length: 9223372036854775807\r\n\r\n")
        check(out.startswith(b"HTTP/1.1 413 "), "Content-Length of 2^63 - 1", out)
        out = s.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
                    b"Content-Length: 99999999999999999999999\r\n\r\n")
        check(re.match(rb"HTTP/1\.1 (413|400) ", out), "Content-Length beyond 64 bits", out)
        grown = sum(rss(p) for p in s.all_pids()) - before
        check(grown < 2 * limit * len(s.pids["frontend"]) or SANITIZED,
              "memory does not follow refused bodies", grown)
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
        (get + b"X: ", b"a" * 65536, 512),
        (get, b"".join(b"h%d: 1\r\n" % i for i in range(1000)), 200),
        (b"GET /", b"a" * 65536, 16),
        (get, b"Cookie: a\r\n" * 100, 100),
    ]
    for i, f in enumerate(floods):
        for sent, out in together([lambda f=f: flood(*f)] * 5):
            check(out == b"" or re.match(rb"HTTP/1\.1 (431|414|400) ", out) and
                  out.count(b"HTTP/1.1") == 1, f"flood {i}: 431, 414, 400 or the end", out)
    grown = sum(rss(p) for p in S.all_pids()) - before
    check(grown < (8 << 20) or SANITIZED, "heads without end take no memory", grown)
    S.alive("heads without end")


@test
def slow_heads_and_bodies():
    """A client that does not finish its request is told so and let go; others do not wait."""
    with Server(header_timeout_s=0.5, body_timeout_s=0.5, keepalive_s=0.5, ledger=False) as s:
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
def expect_continue():
    """Case B63."""
    body = json.dumps(chat("a " * 300, max_tokens=1) | {"user": "x" * 39000}).encode()

    def head(n, *more, version="1.1"):
        return ("\r\n".join([f"POST /v1/chat/completions HTTP/{version}", "Host: x",
                             "Content-Type: application/json", f"Content-Length: {n}",
                             *more]) + "\r\n\r\n").encode()

    with contextlib.closing(S.conn()) as c:
        c.send(head(len(body), "Expect: 100-continue"))
        equal(c.take_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue", "100 before the body")
        for i in range(0, len(body), 4000):
            c.send(body[i:i + 4000])
            time.sleep(0.005)
        equal(c.response().status, 200, "then one final response")
        c.send(HEALTH)
        equal(c.response().status, 200, "and the connection goes on")
    out = S.raw(head(1 << 30, "Expect: 100-continue"))
    check(out.startswith(b"HTTP/1.1 413 ") and out.count(b"HTTP/1.1") == 1, "413 without 100", out)
    with contextlib.closing(S.conn()) as c:
        c.send(head(10, "Expect: 100-continue").replace(b"/v1/chat/completions", b"/nowhere"))
        equal(c.response().status, 404, "404 without 100")
    with contextlib.closing(S.conn()) as c:
        c.send(head(len(body), "Expect: foo") + body)
        equal(c.response().status, 417, "an unknown expectation")
    with contextlib.closing(S.conn()) as c:
        c.send(head(len(body), "Expect: 100-continue", version="1.0"))
        time.sleep(0.1)
        c.send(body)
        equal(c.response().status, 200, "HTTP/1.0 gets no 100")


@test
def http_1_0_stream():
    """Case B64 (a): pure SSE up to the end of the connection."""
    r = request("POST", "/v1/completions", force(369, prompt="x", max_tokens=5, stream=True),
                version="1.0")
    with contextlib.closing(S.conn()) as c:
        c.send(r)
        status, _, h = c.head()
        body = c.drain()
    check(status == 200 and "transfer-encoding" not in h and "content-length" not in h,
          "no chunked coding for HTTP/1.0", h)
    blocks = body.decode().split("\n\n")
    check(blocks[-1] == "" and blocks[-2] == "data: [DONE]" and
          all(b.startswith("data: {") for b in blocks[:-2]), "pure SSE", body)
    with contextlib.closing(S.conn()) as c:
        c.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        r = c.response()
        check(r.status == 200 and "content-length" in r.headers, "HTTP/1.0 GET", r.headers)


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


@test
def browsers_and_paths():
    """Case B77, without keys."""
    with Server(cors="https://app.example", ledger=False) as s:
        r = s.ask("OPTIONS", "/v1/chat/completions", None,
                  ["Origin: https://app.example", "Access-Control-Request-Method: POST",
                   "Access-Control-Request-Headers: authorization,content-type"])
        check(r.status in (200, 204) and
              r.header("access-control-allow-origin") == "https://app.example" and
              "POST" in r.header("access-control-allow-methods") and
              "authorization" in r.header("access-control-allow-headers").lower(),
              "preflight", r.status, r.headers)
        for r in (s.post("/v1/chat/completions", b"{"), s.get("/nowhere"),
                  s.post("/v1/chat/completions", chat("Hi", max_tokens=1))):
            equal(r.header("access-control-allow-origin"), "https://app.example",
                  f"allow-origin on {r.status}")
        st = s.stream("/v1/chat/completions", chat("Hi", max_tokens=1, stream=True)).rest()
        equal(st.head.get("access-control-allow-origin"), "https://app.example", "and on a stream")
    for path in ("//v1/chat/completions", "/v1/chat/completions/",
                 "/v1/chat/completions?api-version=1"):
        equal(S.post(path, chat("Hi", max_tokens=1)).status, 200, f"POST {path}")
    r = S.get("/v1/chat/completions")
    check(is_error(r, 405) and "POST" in r.header("allow"), "GET: 405 with Allow", r.headers, r.text)
    r = S.ask("HEAD", "/health", None)
    check(r.status == 200, "HEAD /health", r.status)
    with contextlib.closing(S.conn()) as c:
        c.send(b"HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n" + HEALTH)
        a, b = c.response(head_only=True), c.response()
        check(a.status == 200 and b.status == 200 and not c.buf, "HEAD has no body", c.buf)
    out = S.raw(b"GET /health HTTP/1.1\r\nHost: [::1]:8080\r\nConnection: close\r\n\r\n")
    check(out.startswith(b"HTTP/1.1 200 "), "[::1] as Host", out)
    for path in ("/nowhere", "/v1", "/v1/", "/%00", "/..%2f..", "/v1/streams/x"):
        r = S.get(path)
        check(r.status in (400, 404) and r.error, f"GET {path}: JSON error", r.status, r.text)
    r = S.ask("BREW", "/health", None)
    check(is_error(r, 501) or is_error(r, 405), "unknown method", r.status, r.text)


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


@test
def random_bytes():
    """Noise and cut requests never hurt: the same processes afterwards."""
    rnd = random.Random(1)
    whole = request("POST", "/v1/chat/completions", chat("Hi", max_tokens=1, stream=True))

    def noise():
        data = bytearray(whole)
        for _ in range(rnd.randrange(1, 6)):
            data[rnd.randrange(len(data))] = rnd.randrange(256)
        return bytes(data[:rnd.randrange(1, len(data) + 1)])

    for _ in range(200):
        with contextlib.closing(S.conn()) as c:
            with contextlib.suppress(OSError):
                c.send(noise())
                if rnd.random() < 0.5:
                    c.sock.shutdown(socket.SHUT_WR)
                    c.drain()
    check(S.idle(), "nothing keeps running", S.metrics())
    S.alive("random bytes")


if __name__ == "__main__":
    S = Server()
    main()
