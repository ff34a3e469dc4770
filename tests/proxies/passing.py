# SPDX-License-Identifier: Apache-2.0
"""What is claimed and measured of every proxy, whatever it is: each function takes a Front, makes claims
with check() where a `must` says so, and returns figures for tell()."""
import functools

from rig import *
import frames
import oip
from websocket import WebSocket

COMP, CHAT = "/v1/completions", "/v1/chat/completions"


# ---- the delay of an event ----------------------------------------------------------------------

def events_at(pieces):
    """The time at which each event of a body was whole, from [(time, bytes)]; keep-alives are none."""
    out, data = [], b""
    for t, piece in pieces:
        data += piece
        while b"\n\n" in data:
            event, data = data.split(b"\n\n", 1)
            if b"data: " in event:
                out.append(t)
    return out


def read_http1(port, body):
    """A stream as it comes: [(time, bytes)], its chunks as they are framed."""
    pieces = []
    with contextlib.closing(Conn(port)) as c:
        c.send(request("POST", COMP, body))
        c.head()
        pieces.append((time.monotonic(), c.buf))
        while b"data: [DONE]\n\n" not in c.buf[-200:]:
            had = len(c.buf)
            if not c.more():
                break
            pieces.append((time.monotonic(), c.buf[had:]))
    return pieces


def read_http3(front, body):
    import http3  # what it needs is only where it is used
    return http3.post(front.at["http3"], TLS["cert"], COMP, json.dumps(body).encode()).pieces


def delays(read, tap, events=300):
    """What lies between the service's write and the client's read, of each event of one stream that comes
    through the tap: {"median", "p99", "max"} in ms.  read(body) reads it somewhere in front of the tap."""
    tap.forget()
    came = events_at(read(force(AB, prompt="x", max_tokens=events, stream=True)))
    left = next((x for x in (events_at(c.answered) for c in tap.calls) if x), [])
    check(len(came) == len(left) == events + 2, "every event came, and nothing else", len(came), len(left))
    late = sorted(1e3 * (b - a) for a, b in zip(left, came)) or [0.0]
    return {"median": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1]}


def shown(d):
    """For the table."""
    return "%.1f / %.1f / %.1f" % (d["median"], d["p99"], d["max"])


# ---- a client that leaves -----------------------------------------------------------------------

PHASES = ("queued", "prefill", "decode", "decode, text held back", "decode, not streamed")
AFTER = "tokens_after_disconnect_total"


def left_service(**more):
    """A service for leaves(): one request at a time, prompts that take a while."""
    return Server(sim_step_us=10000, sim_prefill_us=2000, max_seqs=1, prefix_cache="off", **more)


def leaves(front, server, phase, way="close", limit=WAIT):
    """A client of the proxy that leaves in a phase: (ms until the service saw it, tokens made since then);
    None: it did not see it while the request ran."""
    rid = f"{front.name}-{front.setting}-{phase}-{random.random()}".replace(" ", "-").replace(",", "")
    before = server.metric(AFTER)
    other = None
    if phase == "queued":
        other = server.stream(COMP, force(AB, prompt="x", max_tokens=6000, stream=True)).read(1)
    prompt = " a" * 3000 if phase == "prefill" else "x"  # a token each; some routers take no lists of them
    body = force(AB, prompt=prompt, max_tokens=1000, stream="not streamed" not in phase)
    if "held" in phase:  # as while a tool call is not yet whole: tokens come, nothing is sent
        body["stop"] = ["ab" * 500 + "x"]
    c = front.conn()
    c.send(request("POST", COMP, body, [f"X-Request-Id: {rid}"]))
    count = "requests_waiting" if phase == "queued" else "requests_running"
    check(until(lambda: server.metric(count) == 1), f"{rid}: it is there")
    if phase == "decode":
        c.head()
        until(lambda: c.more() and c.buf.count(b"data: {") > 3)
    time.sleep(0.3)  # the proxy has passed on what there was, and waits
    at = time.time()
    getattr(c, way)()
    row = server.row(rid, limit)
    after = server.metric(AFTER) - before
    if other:
        other.close()
    check(server.idle(), f"{rid}: nothing runs on")
    if not row or row["reason"] != "client_disconnected":
        return None
    return 1e3 * (row["disconnect_at"] - at), after


def seen(result):
    """For the table."""
    return "not seen" if result is None else "%.0f ms, %d tokens" % result


# ---- silence ------------------------------------------------------------------------------------

def silence(port, seconds, server_us_per_token, stream=True):
    """A prompt that takes `seconds`; whole: the answer came to its end; what: how it ended otherwise;
    after: seconds until then."""
    n = max(1, int(seconds * 1e6 / server_us_per_token))
    begin, c = time.monotonic(), Conn(port, wait=seconds + WAIT)
    out = {"whole": False, "what": ""}
    try:
        c.send(request("POST", COMP, force(AB, prompt=[81] * n, max_tokens=3, stream=stream)))
        status, _, h = c.head()
        body = b""
        if h.get("transfer-encoding") == "chunked":
            while (part := c.chunk()):
                body += part
        else:
            body = c.take(int(h["content-length"]))
        out["whole"] = status == 200 and (body.endswith(b"data: [DONE]\n\n") if stream else b'"usage"' in body)
        out["what"] = "" if out["whole"] else str(status)
    except (OSError, EOFError, ValueError) as e:
        out["what"] = f"cut ({e})" if not isinstance(e, EOFError) else "cut"
    c.close()
    out["after"] = time.monotonic() - begin
    return out


def silences(make, setting, name):
    """Longer than 50 and 60 s, which are the usual limits: with keep-alives, without, and in one piece, all
    at the same time.  Returns a function that waits for it and tells."""
    box = []

    def measure():
        us, how = 20000, {"sim_prefill_us": 20000, "prefill_chunk": 16}
        with Server(**how) as beats, Server(**how) as piece, Server(heartbeat_s=0, **how) as mute:
            with make(beats) as a, make(piece) as b, make(mute) as c:
                box.extend(together([lambda: silence(a.port, 70, us), lambda: silence(b.port, 70, us, stream=False),
                                     lambda: silence(c.port, 70, us)]))
    thread = threading.Thread(target=measure, daemon=True)
    thread.start()

    def told():
        thread.join(300)
        if not check(len(box) == 3 and all(isinstance(x, dict) for x in box), f"{name}: silence was measured", box):
            return box
        for row, r in zip(("70 s of prefill, streamed", "70 s, in one piece", "70 s, streamed, no keep-alives"), box):
            tell(name, setting, row, "whole" if r["whole"] else "ends after %.0f s: %s" % (r["after"], r["what"]))
        return [r["whole"] for r in box]
    return told


# ---- other carriers -----------------------------------------------------------------------------

def h2_post(session, body, rid=""):
    fields = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", COMP),
              ("content-type", "application/json")]
    return session.request(fields + ([("x-request-id", rid)] if rid else []), body=json.dumps(body).encode())


def over_h2(session, server, name):
    """A stream of HTTP/2 through the proxy, whole, and one that is reset: ms until the service saw that."""
    whole_one = h2_post(session, force(AB, prompt="x", max_tokens=50, stream=True))
    whole_one.wait(whole_one.over)
    check(whole_one.ended and whole_one.data.count(b"data: {") == 51 and whole_one.data.endswith(b"data: [DONE]\n\n"),
          f"{name}: a stream of HTTP/2", whole_one.headers, whole_one.data[-200:], whole_one.reset)
    rid = f"{name}-{random.random()}".replace(" ", "-")
    f = h2_post(session, force(AB, prompt="x", max_tokens=3000, stream=True), rid)
    f.wait(lambda: f.data.count(b"data: {") > 3)
    at = time.time()
    f.cancel()
    row = server.row(rid)
    session.close()
    if check(row and row["reason"] == "client_disconnected", f"{name}: RST_STREAM cancels", row):
        return 1e3 * (row["disconnect_at"] - at)
    return 0.0


def over_websocket(front, server, name):
    """A stream on a WebSocket, whole, and one whose client leaves; the status if there is no WebSocket."""
    w = WebSocket(front)
    if w.status != 101:
        return f"no: {w.status}"
    ask = dict(force(AB, max_tokens=20), prompt="x")
    w.start("a", ask)
    end = w.end("a")
    check(w.text("a") == "ab" * 20, f"{name}: a stream on a WebSocket", end)
    w.start("b", dict(ask, max_tokens=3000))
    rid = w.event("b", "response.started")["request_id"]
    w.event("b", "output_text.delta")
    at = time.time()
    w.conn.close()
    row = server.row(rid)
    if check(row and row["reason"] == "client_disconnected", f"{name}: a WebSocket that is left cancels", row):
        return "yes; cancelled after %.0f ms" % (1e3 * (row["disconnect_at"] - at))
    return "yes; not cancelled"


def over_grpc(session, server, name):
    """The Open Inference Protocol: health, a stream, one that is cancelled."""
    answer, code, text = oip.unary(session, oip.HEALTH + "Check")
    equal((answer, code), (b"\x08\x01", oip.OK), f"{name}: health over gRPC {text}")
    sampling = {"max_tokens": 20, "logit_bias": {str(AB): 100}, "temperature": 0}
    call = oip.Call(session, oip.INFER + "ModelStreamInfer").write(oip.infer_request(sampling=sampling, stream=True)).done()
    call.until_last()
    end = call.end()
    check(end[0] == oip.OK and "".join(a.text or "" for a in call.answers) == "ab" * 20, f"{name}: a stream of gRPC", end, call.answers)
    rid = f"{name}-{random.random()}".replace(" ", "-")
    call = oip.Call(session, oip.INFER + "ModelStreamInfer")
    call.write(oip.infer_request(sampling=dict(sampling, max_tokens=3000), stream=True, id=rid)).done().read(3)
    at = time.time()
    call.cancel()
    row = server.row(rid)
    session.close()
    if check(row and row["reason"] == "client_disconnected", f"{name}: a cancelled call of gRPC", row):
        return "yes; cancelled after %.0f ms" % (1e3 * (row["disconnect_at"] - at))
    return "yes; not cancelled"


# ---- two services -------------------------------------------------------------------------------

def ids_of(tap):
    return [m[1].decode() for m in (re.search(rb"(?i)\r\nx-request-id: (\S+)\r\n", h) for h in tap.heads()) if m]


def many(front, n, word, max_tokens=30):
    """n streams, one after the other: {request id: "whole", "cut", or the status}."""
    out = {}
    for i in range(n):
        rid = f"{word}-{i}-{random.randrange(1 << 30)}"
        try:
            st = front.stream(COMP, force(AB, prompt="x", max_tokens=max_tokens, stream=True), headers=[f"X-Request-Id: {rid}"])
            with contextlib.closing(st.conn):
                status, _, h = st.conn.head()
                data = b""
                while status == 200 and (part := st.conn.chunk()):
                    data += part
                out[rid] = status if status != 200 else "whole" if data.endswith(b"data: [DONE]\n\n") else "short"
        except (OSError, EOFError, ValueError):
            out[rid] = "cut"
    return out


DEATHS = (("a service dies before its first byte", 0), ("after it", 2000))  # row, bytes until then


def dies(front, bad, good, refuse, name, again):
    """20 streams, while one of two services dies with every request in its hands, after so many bytes of its
    answer.  again: before the first one each is to be answered by the other.  For the table."""
    bad.refuse = refuse
    bad.forget()
    good.forget()
    got = many(front, 20, re.sub(r"\W", "-", f"{name}-{refuse}"))
    ends, sent = list(got.values()), ids_of(bad) + ids_of(good)
    twice = [rid for rid in got if sent.count(rid) > 1]
    check("short" not in ends, f"{name}: what was cut shows as cut", ends)
    if refuse:
        equal(twice, [], f"{name}: nothing is sent again behind the first byte")
    elif again:
        check(ends == ["whole"] * 20 and twice, f"{name}: each is answered by the other service", ends, len(twice))
    return "%d of 20 whole, %d cut, %d refused; %d were sent again" % (
        ends.count("whole"), ends.count("cut"), sum(isinstance(e, int) for e in ends), len(twice))


def retries(make, name, setting):
    """One of two services dies: before a byte of its answer, and after."""
    with Server(SIM) as s, Tap(s) as bad, Tap(s) as good, make(bad, good) as front:
        for row, refuse in DEATHS:
            tell(name, setting, row, dies(front, bad, good, refuse, f"{name} {setting}", setting == "ours"))


def drain(make, name, setting, grace=2):
    """SIGTERM of one of two services under load: readiness goes, its streams end by themselves, new ones
    find the other."""
    with Server(SLOW, drain_grace_s=grace) as a, Server(SLOW, drain_grace_s=grace) as b, make(a, b) as front:
        stop, short = threading.Event(), {}

        def load(i):
            while not stop.is_set():
                short.update(many(front, 1, f"{name}-{i}", 20))
        threads = [threading.Thread(target=load, args=(i,), daemon=True) for i in range(3)]
        long = [{} for _ in range(6)]
        threads += [threading.Thread(target=lambda d=d: d.update(many(front, 1, f"{name}-long", 400)), daemon=True) for d in long]
        for t in threads:
            t.start()
        check(until(lambda: a.metric("requests_running") and b.metric("requests_running")), f"{name} {setting}: both have streams")
        a.child.send_signal(signal.SIGTERM)
        check(until(lambda: a.get("/health").status == 503), f"{name} {setting}: one is no longer ready")
        equal(a.wait_exit(), 0, f"{name} {setting}: it ends by itself")
        time.sleep(1)
        stop.set()
        for t in threads:
            t.join(WAIT)
        lost = [e for d in long for e in d.values() if e != "whole"]
        failed = [e for e in short.values() if e != "whole"]
        equal(lost, [], f"{name} {setting}: no stream that ran is lost")
        if setting == "ours":
            equal(failed, [], f"{name}: and no new one refused, of {len(short)}")
        tell(name, setting, "drain of one of two", "6 long streams: %d lost; %d new ones: %d failed" % (len(lost), len(short), len(failed)))


# ---- what is passed on --------------------------------------------------------------------------

def passes(front, tap, name):
    """Names of requests, traces, keys: unchanged there, and the name comes back.  What the service is told
    of the client's address."""
    sent = {"x-request-id": "name-1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "tracestate": "a=b", "authorization": "Bearer key", "x-api-key": "key", "idempotency-key": "once",
            "x-forwarded-for": "203.0.113.9"}
    tap.forget()
    r = front.post(COMP, force(AB, prompt="x", max_tokens=2), headers=[f"{k}: {v}" for k, v in sent.items()])
    heads = tap.heads()
    got = {}
    for line in heads[-1].decode("latin-1").split("\r\n")[1:-2] if heads else []:
        key, _, value = line.partition(": ")
        got.setdefault(key.lower(), []).append(value)
    for key in ("traceparent", "tracestate", "authorization", "x-api-key", "idempotency-key"):
        equal(got.get(key), [sent[key]], f"{name}: {key} is passed on")
    equal(r.status, 200, f"{name}: the answer")
    words = got.get("x-forwarded-for")
    own = [w for w in re.split(", *", ",".join(words or [])) if w and w != sent["x-forwarded-for"]]
    address = ("as X-Forwarded-For; what a client says of itself is replaced" if own and own == words else
               "last in X-Forwarded-For, behind what the client says of itself" if own else "not told; X-Forwarded-For is the client's own word")
    return {"id": got.get("x-request-id") == ["name-1"] == [r.header("x-request-id")], "address": address}


def compressed(front):
    """How a stream of a hundred tokens comes to a client that takes gzip: its encoding, and in how many reads."""
    with contextlib.closing(front.conn()) as c:
        c.send(request("POST", COMP, force(AB, prompt="x", max_tokens=100, stream=True), ["Accept-Encoding: gzip"]))
        _, _, h = c.head()
        reads = 0
        while not c.buf.endswith(b"0\r\n\r\n") and c.more(1 << 20):
            reads += 1
    return h.get("content-encoding", "none"), reads


# ---- answers in one piece -----------------------------------------------------------------------

def whole(front, name):
    """Answers and refusals in one piece, with small bodies and such as are not read to their end."""
    r = front.post(CHAT, chat("Hi", max_tokens=1))
    check(r.status == 200 and r.json["usage"]["prompt_tokens"] == 31, f"{name}: an answer", r.text)
    r = front.post("/tokenize", {"prompt": "a b " * 100000})
    check(r.status == 200 and r.json["count"] > 100000, f"{name}: a long body and a long answer", r.status)
    wrong = {}
    for status, path, data in ((404, "/nowhere", b"x" * 900000), (404, "/nowhere", b"x" * 100),
                               (405, "/v1/models", b"x" * 900000), (400, "/tokenize", b"x" * 900000)):
        for _ in range(10):
            r = front.post(path, data)
            if r.status != status or not r.error:
                wrong[path, len(data), r.status] = r.text[:200]
    equal(wrong, {}, f"{name}: each refusal is ours, none a 502")


# ---- further ways ---------------------------------------------------------------------------------

def carriers(make, name, setting):
    """gRPC, by a Front that is told the port for it."""
    with Server(SLOW, grpc_port=0) as s, make(s, grpc=oip.port_of(s)) as front:
        check(until(lambda: oip.unary(front.h2(), oip.HEALTH + "Check")[1] == oip.OK), f"{name}: gRPC is ready")
        tell(name, setting, "gRPC", over_grpc(front.h2(), s, f"{name} {setting}"))


def clear_http2(make, name, setting):
    """HTTP/2 with prior knowledge, without TLS."""
    with Server(SLOW) as s, make(s) as front:
        tell(name, setting, "HTTP/2 of clients (h2c)", "yes; reset seen after %.0f ms" % over_h2(frames.Session(front.port), s, f"{name} h2c"))


def upstream_http2(make, name, setting):
    """HTTP/2 between proxy and service."""
    with Server(SLOW) as s, Tap(s) as tap, make(tap, h2=True) as front:
        d = delays(lambda body: read_http1(front.port, body), tap)
        preface = [c for c in tap.calls if any(b.startswith(frames.PREFACE[:14]) for _, b in c.first)]
        check(preface, f"{name}: it speaks HTTP/2 to the service")
    with left_service(heartbeat_s=2) as s, make(s, h2=True) as front:
        ends = [leaves(front, s, phase) for phase in PHASES]
        check(None not in ends, f"{name}: leaving is seen over HTTP/2", ends)
    tell(name, setting, "HTTP/2 to tokenring", f"yes; {shown(d)}; leaving: {seen(tuple(map(max, zip(*ends))) if None not in ends else None)}")


def over_http3(make, name, setting):
    """HTTP/3 of clients: the delay, a stream that is whole, one that is given up."""
    import http3
    with Server(SLOW) as s, Tap(s) as tap, make(tap) as front:
        d = delays(lambda body: read_http3(front, body), tap)
        rid = f"{name}-h3-{random.random()}"
        c = http3.post(front.at["http3"], TLS["cert"], COMP, json.dumps(force(AB, prompt="x", max_tokens=3000, stream=True)).encode(),
                       [("x-request-id", rid)], lambda data: data.count(b"data: {") > 3)
        equal(c.headers.get(":status"), "200", f"{name}: an answer over HTTP/3")
        row = s.row(rid)
        check(row and row["reason"] == "client_disconnected", f"{name}: a stream of HTTP/3 that is given up cancels", row)
        tell(name, setting, "HTTP/3 of clients", "yes; %s; given up: seen after %.0f ms" % (
            shown(d), 1e3 * (row["disconnect_at"] - c.left_at) if row and row["disconnect_at"] else -1))


# ---- connections that are used again ------------------------------------------------------------

def reuse(make, name, setting):
    """Requests that come just when the service closes the connections that the proxy kept for them."""
    with Server(SIM, keepalive_s=1) as s, make(s) as front:
        def client(seed):
            rnd, out = random.Random(seed), []
            for _ in range(6):
                out.append(front.post(COMP, force(AB, prompt="x", max_tokens=2)).status)
                time.sleep(0.95 + rnd.random() * 0.1)
            return out
        got = [x for part in together([lambda i=i: client(i) for i in range(24)]) for x in (part if isinstance(part, list) else [part])]
        bad = [x for x in got if x != 200]
        check(setting == "default" or not bad, f"{name}: no request is lost on a connection that closes", len(bad), bad[:3])
        tell(name, setting, "kept connections that close", f"{len(bad)} of {len(got)} requests lost")


# ---- all of it ----------------------------------------------------------------------------------

def figures(make, name, setting):
    """What is measured in milliseconds."""
    with Server(SLOW) as s, Tap(s) as tap, make(tap) as front:
        direct = delays(lambda body: read_http1(tap.port, body), tap)
        d = delays(lambda body: read_http1(front.port, body), tap)
        tell(name, setting, "delay of an event, ms", f"{shown(d)} (without: {shown(direct)})")
        check(d["median"] < 20 or setting == "default", f"{name}: events come one by one", d)
    with left_service(heartbeat_s=2) as s, make(s) as front:
        for phase in PHASES:
            ends = [leaves(front, s, phase, way) for way in ("close", "reset")]
            tell(name, setting, f"client leaves: {phase}", seen(None if None in ends else tuple(map(max, zip(*ends)))))
            check(None not in ends or setting == "default", f"{name}: a client that leaves, {phase}", ends)


def conduct(make, name, setting):
    """What does not depend on the clock.  Returns how the silences ended (silences())."""
    quiet = silences(make, setting, name)
    with Server(SLOW) as s, Tap(s) as tap, make(tap) as front:
        whole(front, f"{name} {setting}")
        p = passes(front, tap, f"{name} {setting}")
        check(p["id"] or setting == "default", f"{name}: the name of a request is passed on and comes back", p)
        tell(name, setting, "name and trace of a request", "passed on" if p["id"] else "trace passed on, name replaced")
        tell(name, setting, "address of the client", p["address"])
        tell(name, setting, "WebSocket", over_websocket(front, s, f"{name} {setting}"))
        tell(name, setting, "HTTP/2 of clients (TLS)", "yes; reset seen after %.0f ms" % over_h2(front.h2(), s, f"{name} {setting}"))
    retries(make, name, setting)
    drain(make, name, setting)
    reuse(make, name, setting)
    return quiet()


def makers(cls):
    """[(setting, make)] for both configurations of a proxy."""
    return [(setting, functools.partial(cls, setting=setting)) for setting in ("ours", "default")]
