# SPDX-License-Identifier: Apache-2.0
"""Where one request ends and the next begins: every framing, every byte, every way to arrive."""
import random

from lib import *

S = None
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
JSON = b"Content-Type: application/json\r\n"
POST = b"POST /detokenize HTTP/1.1\r\nHost: x\r\n" + JSON
BODY = b'{"tokens":[19556]}'  # "Hello"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def chunks(body, size=5, ext=b""):
    return b"".join(b"%x%s\r\n%s\r\n" % (len(body[i:i + size]), ext, body[i:i + size])
                    for i in range(0, len(body), size)) + b"0" + ext + b"\r\n\r\n"


def seen(rs):
    return [(r.status, r.headers, r.text[:200]) for r in rs]


# ---- refused early (case B09) --------------------------------------------------------------------

def in_order_or_closed(claim, got, status):
    """Exactly two responses in order, or one that says close and then the end."""
    rs, rest = got
    good = (rs and rs[0].status == status and rest == b"" and rs[0].error and
            (len(rs) == 2 and rs[1].status == 200 or
             len(rs) == 1 and rs[0].header("connection") == "close"))
    check(good, claim, seen(rs), rest)


REFUSED = [  # request line, fields, whether the body's end is known
    ("POST /no/such/path", JSON, 404), ("POST /v1/models", JSON, 405), ("PUT /detokenize", JSON, 405),
    ("BREW /detokenize", JSON, 501), ("POST /detokenize", b"Content-Type: text/html\r\n", 415),
    ("POST /detokenize", JSON + b"Content-Encoding: gzip\r\n", 415),
    ("POST /detokenize", JSON + b"Expect: foo\r\n", 417),
    ("POST /v1/chat/completions", JSON, 400), ("POST /detokenize", JSON, 400)]


@test
def refused_early_with_a_body_behind():
    """Whatever is refused, however long its body, however framed, and however it arrives."""
    for line, fields, status in REFUSED:
        head = line.encode() + b" HTTP/1.1\r\nHost: x\r\n" + fields
        for n in (1, 2000, 70000, 400000):
            body = b"GET / HTTP/1.1\r\n\r\n" * (n // 18 + 1)
            for framed in (b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
                           b"Transfer-Encoding: chunked\r\n\r\n" + chunks(body, 3000)):
                in_order_or_closed(f"{line} {status}, {n} bytes {framed[:8]}",
                                   S.responses(head + framed + HEALTH), status)
    model = json.dumps(dict(chat("leftover " * 200), model="no-such")).encode()
    in_order_or_closed("unknown model", S.responses(
        request("POST", "/v1/chat/completions", model) + HEALTH), 404)


@test
def refused_early_and_its_body_comes_late():
    for line, fields, status in REFUSED[:7]:
        r = line.encode() + b" HTTP/1.1\r\nHost: x\r\n" + fields + b"Content-Length: 2000\r\n\r\n"
        with contextlib.closing(S.conn()) as c:
            c.send(r + b"{" * 100)
            first = c.response()
            equal(first.status, status, f"{line}: refused before its body came")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                c.send(b"{" * 1900 + HEALTH)
            if first.header("connection") == "close":
                equal(c.drain(), b"", f"{line}: then the end")
            else:
                equal(c.response().status, 200, f"{line}: the late body is no request")


@test
def a_connection_outlives_what_was_wrong_with_a_request():
    """After an error whose framing was sound the connection goes on, and only then."""
    for line, fields, status in REFUSED:
        r = line.encode() + b" HTTP/1.1\r\nHost: x\r\n" + fields + b"Content-Length: 9\r\n\r\n{\"a\":{}}x"
        rs, rest = S.responses(r + r + HEALTH + r + LAST, 5)
        equal([x.status for x in rs], [status, status, 200, status, 200], f"{line} and on: {rest}")
    for r, status in ((b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404),
                      (b"HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 404)):
        with contextlib.closing(S.conn()) as c:
            c.send(r + HEALTH)
            equal((c.response(head_only=r.startswith(b"HEAD")).status, c.response().status),
                  (status, 200), f"{r[:14]} and on")


# ---- ambiguous framing ---------------------------------------------------------------------------

def ambiguous():
    """(name, bytes): messages that two readers could cut differently."""
    for v in ("+18", "-18", "18,18", "18, 18", "18,19", "0x12", "18.0", "18;", "'18'", '"18"', "1 8",
              "", " ", "x", "1e1", "18\t", "\t18", "\x0b18", "18\x00", "18\xa0", "٣", "18\r\n ", "1_8"):
        yield f"Content-Length: {v!r}", (POST + b"Content-Length: " + v.encode("latin-1", "replace") +
                                         b"\r\n\r\n" + BODY)
    for v in ("xchunked", "chunked, gzip", "gzip, chunked", "gzip", "identity", "identity, chunked",
              "chunked, chunked", "chunked,", ",chunked", "", " ", "chunked;q=1", '"chunked"', "chunked\t",
              "\tchunked", "\x0bchunked", "chunked\x0b", "chunked\x00", "chu nked", "chunked identity",
              "chunked\xa0", "\xffchunked", "deflate", "chunked\r\n x", "\r\n chunked", "cow", "[]"):
        yield f"Transfer-Encoding: {v!r}", (POST + b"Transfer-Encoding: " + v.encode("latin-1") +
                                            b"\r\n\r\n" + chunks(BODY))
    te, cl = b"Transfer-Encoding: chunked\r\n", b"Content-Length: 18\r\n"
    for name, fields in (("length and chunked", cl + te), ("chunked and length", te + cl),
                         ("chunked and length 0", te + b"Content-Length: 0\r\n"),
                         ("length and identity", cl + b"Transfer-Encoding: identity\r\n"),
                         ("two lengths", cl + b"Content-Length: 19\r\n"), ("a length twice", cl + cl),
                         ("a length in another case", cl + b"CONTENT-LENGTH: 18\r\n"),
                         ("chunked twice", te + te), ("chunked and gzip", te + b"Transfer-Encoding: gzip\r\n"),
                         ("identity and chunked", b"Transfer-Encoding: identity\r\n" + te)):
        yield name, POST + fields + b"\r\n" + (chunks(BODY) if te in fields else BODY)
    for name, field in (("space before the colon", b"Transfer-Encoding : chunked"),
                        ("tab before the colon", b"Content-Length\t: 18"),
                        ("space before the name", b" Transfer-Encoding: chunked"),
                        ("tab before the name", b"\tContent-Length: 18"),
                        ("NUL in the name", b"Transfer-\0Encoding: chunked"),
                        ("vertical tab in the name", b"Content-Length\x0b: 18"),
                        ("8-bit byte in the name", b"Transfer-Encoding\xff: chunked"),
                        ("line feed in a value", b"X: y\nTransfer-Encoding: chunked"),
                        ("CR in a value", b"X: y\rTransfer-Encoding: chunked"),
                        ("CR before CR LF", b"X: y\r\r\nTransfer-Encoding: chunked"),
                        ("folded line", b"X: y\r\n z\r\nTransfer-Encoding: chunked"),
                        ("a line without colon", b"X\r\nTransfer-Encoding: chunked"),
                        ("a line without name", b": x\r\nTransfer-Encoding: chunked"),
                        ("NUL in a value", b"X: a\0b"), ("DEL in a value", b"X: a\x7fb"),
                        ("a name of two words", b"Content Length: 18")):
        yield name, POST + field + b"\r\n\r\n" + (BODY if b"18" in field else chunks(BODY))
    yield "chunked in HTTP/1.0", CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + chunks(BODY)
    yield "two lengths in HTTP/1.0", (POST + cl + cl + b"\r\n" + BODY).replace(b"/1.1", b"/1.0")
    for name, tail in (
            ("sign", b"+12\r\n"), ("minus", b"-12\r\n"), ("0x", b"0x12\r\n"), ("space before", b" 12\r\n"),
            ("space after", b"12 \r\n"), ("no digit", b"\r\n"), ("not hex", b"g\r\n"), ("dot", b"12.0\r\n"),
            ("comma", b"12,12\r\n"), ("17 digits", b"10000000000000012\r\n"),
            ("20 zeros", b"00000000000000000012\r\n"), ("LF alone", b"12\n"), ("CR alone", b"12\r{"),
            ("extension without number", b";x\r\n"), ("LF in an extension", b"12;a\nb\r\n"),
            ("CR in an extension", b"12;a\rb\r\n"), ("NUL in an extension", b"12;a\0\r\n"),
            ("4 KB of extension", b"12;" + b"a" * 5000 + b"\r\n"), ("underscore", b"1_2\r\n")):
        yield f"chunk size: {name}", CHUNKED + tail + BODY + b"\r\n0\r\n\r\n"
    for name, tail in (("longer than its size", b"11\r\n" + BODY + b"\r\n0\r\n\r\n"),
                       ("shorter than its size", b"13\r\n" + BODY + b"\r\n0\r\n\r\n"),
                       ("ended by LF", b"12\r\n" + BODY + b"\n0\r\n\r\n"),
                       ("ended by CR", b"12\r\n" + BODY + b"\r0\r\n\r\n"),
                       ("not ended", b"12\r\n" + BODY + b"0\r\n\r\n"),
                       ("last chunk ended by LF", b"12\r\n" + BODY + b"\r\n0\n\n"),
                       ("trailer without colon", b"12\r\n" + BODY + b"\r\n0\r\nX\r\n\r\n"),
                       ("folded trailer", b"12\r\n" + BODY + b"\r\n0\r\nX: a\r\n b\r\n\r\n"),
                       ("trailer ended by LF", b"12\r\n" + BODY + b"\r\n0\r\nX: a\n\r\n"),
                       ("control byte in a trailer", b"12\r\n" + BODY + b"\r\n0\r\nX: \x01\r\n\r\n"),
                       ("space before a trailer's colon", b"12\r\n" + BODY + b"\r\n0\r\nX : a\r\n\r\n")):
        yield f"chunk: {name}", CHUNKED + tail
    for name, head in (
            ("no host", b"GET /health HTTP/1.1\r\n\r\n"),
            ("two hosts", b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
            ("a host twice", b"GET /health HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"),
            ("two hosts in HTTP/1.0", b"GET /health HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
            ("no host, absolute target", b"GET http://x/health HTTP/1.1\r\n\r\n"),
            ("line feeds alone", b"GET /health HTTP/1.1\nHost: x\n\n"),
            ("one line feed alone", b"GET /health HTTP/1.1\r\nHost: x\n\r\n"),
            ("two empty lines before", b"\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("LF before", b"\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("space before", b" GET /health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("two spaces", b"GET  /health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("tab for a space", b"GET\t/health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("form feed for a space", b"GET\x0c/health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("space at the end", b"GET /health HTTP/1.1 \r\nHost: x\r\n\r\n"),
            ("space in the target", b"GET /hea lth HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("control byte in the target", b"GET /hea\x01lth HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("8-bit byte in the target", b"GET /hea\xc3\xa9lth HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("NUL in the target", b"GET /hea\0lth HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("escaped NUL", b"GET /health%00 HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("escaped line end", b"GET /health%0d%0aX:%20y HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("half an escape", b"GET /health%4 HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("fragment", b"GET /health#x HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("relative target", b"GET health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("authority as target", b"GET x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("asterisk as target", b"GET * HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("user in the target", b"GET http://u:p@x/health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("another scheme", b"GET ftp://x/health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("no target", b"GET HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("no version", b"GET /health\r\nHost: x\r\n\r\n"),
            ("version 11.1", b"GET /health HTTP/11.1\r\nHost: x\r\n\r\n"),
            ("version 1.10", b"GET /health HTTP/1.10\r\nHost: x\r\n\r\n"),
            ("version 2.0", b"GET /health HTTP/2.0\r\nHost: x\r\n\r\n"),
            ("version 1.2", b"GET /health HTTP/1.2\r\nHost: x\r\n\r\n"),
            ("small letters", b"GET /health http/1.1\r\nHost: x\r\n\r\n"),
            ("method with a control byte", b"GE\x02T /health HTTP/1.1\r\nHost: x\r\n\r\n"),
            ("CONNECT", b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n"),
            ("HTTP/2 preface with fields", b"PRI / HTTP/2.0\r\nHost: x\r\n\r\n"),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
            ("JSON", b'{"model":"x"}\r\n\r\n'), ("empty name", b"GET /health HTTP/1.1\r\nHost: x\r\n:\r\n\r\n")):
        yield name, head
    for host in ("a b", "a,b", "u@x", "x:y", "x:80:80", "[::1", "[]", "[x]", "::1", "a/b", "x\\y", "%zz", ":80",
                 "x\x00", "\xff"):
        yield f"Host: {host!r}", b"GET /health HTTP/1.1\r\nHost: " + host.encode("latin-1") + b"\r\n\r\n"


@test
def ambiguous_framing():
    """Where two readers could differ: one 4xx or 5xx that says close, the end, and nothing of what
    follows is read as a request."""
    cases = list(ambiguous())

    def one(case):
        rs, rest = S.responses(case[1] + HEALTH, 3, shut=False)
        good = (len(rs) == 1 and rest == b"" and rs[0].status in (400, 501, 505) and rs[0].error and
                rs[0].header("connection") == "close" and
                (rs[0].status == 400 or case[0] in ("CONNECT", "version 2.0", "version 1.2",
                                                    "HTTP/2 preface with fields")))
        check(good, f"ambiguous: {case[0]}", seen(rs), rest)

    for i in range(0, len(cases), 16):
        together([lambda c=c: one(c) for c in cases[i:i + 16]])
    equal(len(dict(cases)), len(cases), "each case has its own name")
    S.alive("ambiguous requests")


@test
def what_is_well_framed_is_taken():
    """The other side of the same rules: odd, and allowed."""
    ok = {
        "leading zeros": POST + b"Content-Length: 00000018\r\n\r\n" + BODY,
        "no blank, two blanks": POST + b"Content-Length:18  \r\n\r\n" + BODY,
        "name in capitals": POST + b"CONTENT-LENGTH: 18\r\n\r\n" + BODY,
        "chunked in capitals": POST + b"transfer-encoding: CHUNKED\r\n\r\n" + chunks(BODY),
        "a name that only looks like it": POST + b"Transfer_Encoding: chunked\r\nContent-Length: 18\r\n\r\n" + BODY,
        "one byte a chunk": CHUNKED + chunks(BODY, 1),
        "upper and lower hex": CHUNKED + b"0A\r\n" + BODY[:10] + b"\r\n8\r\n" + BODY[10:] + b"\r\n0\r\n\r\n",
        "zeros before a size": CHUNKED + b"000000000000012\r\n" + BODY + b"\r\n000\r\n\r\n",
        "extensions": CHUNKED + chunks(BODY, 7, b';a="b;c";d= e'),
        "blank before an extension": CHUNKED + chunks(BODY, 7, b" \t;a"),
        "trailers": CHUNKED + chunks(BODY)[:-2] + b"X: y\r\nHost: z\r\nContent-Length: 99\r\n\r\n",
        "an empty line before": b"\r\n" + POST + b"Content-Length: 18\r\n\r\n" + BODY,
        "absolute target": (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(b" /d", b" http://h:1/d", 1),
        "absolute target, another scheme": (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(
            b" /d", b" HTTPS://[::1]/d", 1),
        "escaped letters": (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(b"/det", b"/%64%65t", 1),
        "query": (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(b"ize ", b"ize?x=%00&y#".strip(b"#") + b" ", 1),
        "8-bit value": POST + b"X: \xff\xfe\tz\r\nContent-Length: 18\r\n\r\n" + BODY,
        "Host of an IPv6 address": (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(
            b"Host: x", b"Host: [::1]:8080", 1),
        "empty Host": (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(b"Host: x", b"Host:", 1),
        "100 fields": POST + b"".join(b"X%d: y\r\n" % i for i in range(97)) +
        b"Content-Length: 18\r\n\r\n" + BODY,
    }
    for name, data in ok.items():
        rs, rest = S.responses(data + HEALTH)
        check([r.status for r in rs] == [200, 200] and rs[0].json == {"prompt": "Hello"} and not rest,
              f"taken: {name}", seen(rs), rest)


# ---- every byte ----------------------------------------------------------------------------------

@test
def any_byte_at_any_place():
    """A valid request with one byte changed, added or gone is answered once or closed; what follows
    is answered too or not at all, and never read from the wrong place."""
    whole = (b"POST /detokenize?q=1 HTTP/1.1\r\nHost: [::1]:80\r\nContent-Type: application/json\r\n"
             b"Accept: */*\r\nContent-Length: 18\r\n\r\n" + BODY)
    split = CHUNKED + chunks(BODY, 9, b";e")
    jobs = []
    for base in (whole, split):
        for at in range(len(base)):
            for c in (b"", b"\0", b"\t", b"\n", b"\r", b" ", b":", b"0", b"A", b",", b"\x7f", b"\xff"):
                jobs.append(base[:at] + c + base[at + 1:])
                if c:
                    jobs.append(base[:at] + c + base[at:])
    taken = [0] * 8
    head = whole.index(BODY)  # a byte is missing behind it: the body takes the G of the next GET

    def one(i, data):
        rs, rest = S.responses(data + HEALTH, 3, shut=True)
        status = [r.status for r in rs]
        closed = not rs or rs[-1].header("connection") == "close"
        good = (rest == b"" and len(rs) <= 2 and all(r.error for r in rs if r.status >= 400) and
                (len(rs) < 2 or status[1] == 200 and rs[1].body == b'{"status":"ok"}' or
                 status[1] == 501 and len(data) < len(whole) and data.startswith(whole[:head]) or
                 closed and status[1] == 400))
        taken[i] += status == [200, 200]
        if not good:
            check(False, f"any byte: {data!r}", seen(rs), rest)

    def share(i):
        for data in jobs[i::8]:
            one(i, data)

    bad = [e for e in together([lambda i=i: share(i) for i in range(8)]) if e]
    equal(bad, [], "every answer is HTTP")
    check(len(jobs) // 20 < sum(taken) < len(jobs), "some were taken whole, not all", sum(taken), len(jobs))
    S.alive("any byte at any place")


def told(r):
    """An answer without what differs from one to the next."""
    h = {k: v for k, v in r.headers.items() if k not in ("date", "x-request-id", "x-tokenring-stream")}
    body = re.sub(rb'"(id|created)":("[^"]*"|\d+)', b"", r.body)
    return r.status, h, body


@test
def however_it_arrives():
    """Byte by byte, or cut anywhere: the same answers as in one piece."""
    rnd = random.Random(7)
    stream = request("POST", "/v1/completions", force(369, prompt="x", max_tokens=3, stream=True))
    for name, data, n in (
            ("length", POST + b"Content-Length: 18\r\n\r\n" + BODY + LAST, 2),
            ("chunks", CHUNKED + chunks(BODY, 3, b";x") + LAST, 2),
            ("a stream and another", stream + stream + LAST, 3),
            ("refused", b"POST /nowhere HTTP/1.1\r\nHost: x\r\n" + JSON + b"Content-Length: 18\r\n\r\n" +
             BODY + LAST, 2),
            ("broken body", CHUNKED + b"12\r\n" + BODY + b"x", 1),
            ("broken head", b"GET /health HTTP/1.1\r\nHost : x\r\n", 1),
            ("old", (POST + b"Content-Length: 18\r\n\r\n" + BODY).replace(b"/1.1", b"/1.0"), 1),
            ("two empty lines", b"\r\n" + HEALTH + b"\r\n" + LAST, 2)):
        want = [told(r) for r in S.responses(data, n)[0]]
        equal(len(want), n, f"{name}: in one piece")
        for way in range(6):
            got = []
            with contextlib.closing(S.conn()) as c:
                at = 0
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    while at < len(data):
                        step = 1 if way == 0 else rnd.randrange(1, len(data) + 1)
                        c.send(data[at:at + step])
                        at += step
                        if rnd.random() < 0.2:
                            time.sleep(0.001)
                with contextlib.suppress(EOFError, ConnectionResetError):
                    while len(got) < n:
                        got.append(told(c.response()))
            equal(got, want, f"{name}: in pieces, way {way}")


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


# ---- one connection, many requests ---------------------------------------------------------------

@test
def chunked_and_pipelined():
    body = json.dumps(chat("Hi", max_tokens=1)).encode()
    req = (b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           b"Transfer-Encoding: chunked\r\n\r\n" + chunks(body, 7, b";ext=1")[:-2] + b"Trailer: x\r\n\r\n")
    rs, rest = S.responses(req + HEALTH)
    check([r.status for r in rs] == [200, 200] and not rest, "chunked body with extensions",
          seen(rs), rest)
    stream = request("POST", "/v1/completions", force(369, prompt="x", max_tokens=5, stream=True))
    rs, rest = S.responses(stream + HEALTH + stream + LAST, 4)
    check([r.status for r in rs] == [200] * 4 and not rest, "streams and others pipelined",
          seen(rs), rest)
    equal([r.body.count(b"data: [DONE]\n\n") for r in rs], [1, 0, 1, 0], "each stream is whole")
    # behind each kind of answer: refused at the head, refused in the body, with 100, with HEAD
    rs, rest = S.responses(
        stream + b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 16\r\n\r\nGET / HTTP/1.1\r\n" +
        POST + b"Content-Length: 1\r\n\r\n{" + stream + POST + b"Content-Length: 18\r\n\r\n" + BODY + LAST, 6)
    check([r.status for r in rs] == [200, 404, 400, 200, 200, 200] and not rest,
          "refused ones between streams", seen(rs), rest)


@test
def hundreds_in_one_write():
    """Pipelined without reading: answered in order, and memory does not follow them."""
    n = 30000
    before = sum(rss(p) for p in S.all_pids())
    with contextlib.closing(S.conn(rcvbuf=4096)) as c:
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 32768)
        sent = [0]

        def sender():
            data = memoryview(HEALTH * n + LAST)
            while sent[0] < len(data):
                sent[0] += c.sock.send(data[sent[0]:sent[0] + 65536])

        t = threading.Thread(target=sender, daemon=True)
        t.start()
        last = -1
        while sent[0] != last:  # until nobody takes more
            last = sent[0]
            time.sleep(0.3)
        grown = sum(rss(p) for p in S.all_pids()) - before
        check(sent[0] < len(HEALTH) * n, "the client is held back", sent[0])
        check(grown < (4 << 20) or SANITIZED, "pipelined requests are not kept in memory", grown)
        got = 0
        with contextlib.suppress(EOFError):
            while c.response().status == 200:
                got += 1
        t.join(WAIT)
        equal(got, n + 1, "every pipelined request has its answer")
    S.alive("many pipelined requests")


@test
def idle_connections():
    """--keepalive-s: an idle connection is closed without a word, one in use is not; an empty line
    is no request."""
    with Server(keepalive_s=1, header_timeout_s=30, ledger=False) as s:
        quiet, stray, busy = s.conn(), s.conn(), s.conn()
        for c in (quiet, stray, busy):
            c.send(HEALTH)
            equal(c.response().status, 200, "first request")
        stray.send(b"\r\n")
        for _ in range(8):
            last = time.monotonic()
            time.sleep(0.25)
            try:
                busy.send(HEALTH)
                equal(busy.response().status, 200, "a connection in use lives on")
            except (OSError, EOFError):  # right only if this machine stood still for a second
                check(time.monotonic() - last >= 1, "a connection in use lives on")
                break
        equal(quiet.drain(), b"", "the idle one ends without a word")
        equal(stray.drain(), b"", "and the one with an empty line too")
        for c in (quiet, stray, busy):
            c.close()


@test
def expect_continue():
    """Case B63."""
    body = json.dumps(chat("a " * 300, max_tokens=1) | {"user": "x" * 39000}).encode()

    def head(n, *more, version="1.1", path="/v1/chat/completions"):
        length = ["Transfer-Encoding: chunked"] if n is None else [f"Content-Length: {n}"]
        return ("\r\n".join([f"POST {path} HTTP/{version}", "Host: x",
                             "Content-Type: application/json", *length, *more]) + "\r\n\r\n").encode()

    for name, n, pieces in (("length", len(body), [body[i:i + 4000] for i in range(0, len(body), 4000)]),
                            ("chunked", None, [chunks(body, 4000)])):
        with contextlib.closing(S.conn()) as c:
            c.send(head(n, "Expect: 100-Continue"))
            equal(c.take_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue", f"{name}: 100 before the body")
            equal(c.buf, b"", f"{name}: and nothing else")
            for p in pieces:
                c.send(p)
                time.sleep(0.005)
            equal(c.response().status, 200, f"{name}: then one final response")
            c.send(HEALTH)
            equal(c.response().status, 200, f"{name}: and the connection goes on")
    for name, data, status in (
            ("too large", head(1 << 30, "Expect: 100-continue"), 413),
            ("no such path", head(10, "Expect: 100-continue", path="/nowhere"), 404),
            ("no such method", head(10, "Expect: 100-continue", path="/v1/models"), 405),
            ("wrong type", head(10, "Expect: 100-continue").replace(b"/json", b"/xml"), 415),
            ("chunked, no such path", head(None, "Expect: 100-continue", path="/nowhere"), 404)):
        out = S.raw(data)  # the body never comes
        check(out.startswith(b"HTTP/1.1 %d " % status) and out.count(b"HTTP/1.1") == 1 and
              b"onnection: close" in out, f"{name}: {status} without 100, then the end", out)
    for name, more in (("unknown", ["Expect: foo"]), ("list", ["Expect: 100-continue, foo"]),
                       ("twice", ["Expect: 100-continue", "Expect: 100-continue"])):
        rs, rest = S.responses(head(len(body), *more) + body + HEALTH)
        check([r.status for r in rs] == [417, 200] and not rest, f"expectation {name}", seen(rs), rest)
    rs, rest = S.responses(head(0, "Expect: 100-continue") + HEALTH)
    check([r.status for r in rs] == [400, 200] and not rest, "no 100 where no body comes", seen(rs), rest)
    rs, rest = S.responses(head(len(body), "Expect: 100-continue", "Connection: close") + body, 3)
    check([r.status for r in rs] in ([100, 200], [200]) and not rest, "the body came unasked", seen(rs), rest)
    with contextlib.closing(S.conn()) as c:
        c.send(head(len(body), "Expect: 100-continue", version="1.0"))
        check(not select.select([c.sock], [], [], 0.2)[0], "HTTP/1.0 gets no 100")
        c.send(body)
        equal(c.response().status, 200, "HTTP/1.0: one final response")


@test
def http_1_0():
    """Case B64 (a): pure SSE up to the end of the connection; and whole answers."""
    for more in ((), ("Connection: keep-alive",), ("Connection: close",)):
        r = request("POST", "/v1/completions", force(369, prompt="x", max_tokens=5, stream=True), more,
                    version="1.0")
        with contextlib.closing(S.conn()) as c:
            c.send(r + HEALTH)
            status, _, h = c.head()
            body = c.drain()
        check(status == 200 and "transfer-encoding" not in h and "content-length" not in h and
              h.get("connection") == "close", f"no chunked coding for HTTP/1.0 {more}", h)
        blocks = body.decode().split("\n\n")
        check(blocks[-1] == "" and blocks[-2] == "data: [DONE]" and
              all(b.startswith("data: {") for b in blocks[:-2]), f"pure SSE {more}", body)
    old = b"GET /health HTTP/1.0\r\n%s\r\n"
    rs, rest = S.responses(old % b"Connection: Keep-Alive\r\n" + old % b"", 3)
    check([r.status for r in rs] == [200, 200] and not rest and
          [r.header("connection") for r in rs] == ["keep-alive", "close"] and
          all("content-length" in r.headers for r in rs), "kept alive as asked", seen(rs), rest)
    rs, rest = S.responses(old % b"Connection: close, keep-alive\r\n" + HEALTH, 3)
    check(len(rs) == 1 and rs[0].header("connection") == "close" and not rest, "in doubt closed", seen(rs))
    rs, rest = S.responses(old.replace(b"/health", b"/nowhere") % b"Connection: keep-alive\r\n" + old % b"", 3)
    check([r.status for r in rs] == [404, 200] and not rest, "kept alive after an error", seen(rs), rest)


if __name__ == "__main__":
    S = Server(ledger=False)
    main()
