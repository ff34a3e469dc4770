# SPDX-License-Identifier: Apache-2.0
"""What is claimed and measured of every proxy, whatever it is: each function takes a Front, makes claims
with check() where a `must` says so, and returns figures for tell()."""
from rig import *

COMP, CHAT = "/v1/completions", "/v1/chat/completions"


# ---- the delay of an event ----------------------------------------------------------------------

def events_at(pieces):
    """The time at which each event of a stream was whole, from [(time, bytes)]; keep-alives are none."""
    out, data, head = [], b"", True
    for t, piece in pieces:
        data += piece
        if head and b"\r\n\r\n" in data:
            data, head = data.split(b"\r\n\r\n", 1)[1], False
        while not head and b"\n\n" in data:
            event, data = data.split(b"\n\n", 1)
            if b"data: " in event:
                out.append(t)
    return out


def delays(port, tap, events=300, headers=()):
    """What lies between the service's write and the client's read, of each event of one stream that comes
    through the tap and reaches this port: {"median", "p99", "max"} in ms, `gathered`: how many came
    together with the one before them, `n`."""
    tap.forget()
    pieces = []
    with contextlib.closing(Conn(port)) as c:
        c.send(request("POST", COMP, force(AB, prompt="x", max_tokens=events, stream=True), headers))
        while b"data: [DONE]\n\n" not in c.buf[-200:]:
            had = len(c.buf)
            if not c.more():
                break
            pieces.append((time.monotonic(), c.buf[had:]))
    came = events_at(pieces)
    call = next((k for k in tap.calls if k.posts()), None)
    left = events_at(call.answered) if call else []
    check(len(came) == len(left) == events + 2, "every event came, and nothing else", len(came), len(left), c.buf[-300:])
    late = sorted(1e3 * (b - a) for a, b in zip(left, came)) or [0.0]
    return {"n": len(late), "median": late[len(late) // 2], "p99": late[len(late) * 99 // 100], "max": late[-1],
            "gathered": sum(a == b for a, b in zip(came, came[1:]))}


def shown(d):
    """For the table."""
    return "%.1f / %.1f / %.1f" % (d["median"], d["p99"], d["max"])


# ---- a client that leaves -----------------------------------------------------------------------

PHASES = ("queued", "prefill", "decode", "decode, not streamed")
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
    prompt = [81] * 3000 if phase == "prefill" else "x"
    body = force(AB, prompt=prompt, max_tokens=1000, stream="not streamed" not in phase)
    c = front.conn()
    c.send(request("POST", COMP, body, [f"X-Request-Id: {rid}"]))
    count = "requests_waiting" if phase == "queued" else "requests_running"
    check(until(lambda: server.metric(count) == 1), f"{rid}: it is there")
    if phase == "decode":
        c.head()
        until(lambda: c.more() and c.buf.count(b"data: {") > 3)
    time.sleep(0.3)  # no clock of a proxy is that fine: it must stand still by now
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

def silence(port, seconds, server_us_per_token, headers=(), stream=True):
    """A prompt that takes `seconds`; whole: the answer came to its end; what: how it ended otherwise;
    after: seconds until then; beats: keep-alives."""
    n = max(1, int(seconds * 1e6 / server_us_per_token))
    begin, c = time.monotonic(), Conn(port, wait=seconds + WAIT)
    out = {"whole": False, "what": "", "beats": 0}
    try:
        c.send(request("POST", COMP, force(AB, prompt=[81] * n, max_tokens=3, stream=stream), headers))
        status, _, h = c.head()
        out["status"] = status
        body = b""
        if h.get("transfer-encoding") == "chunked":
            while (part := c.chunk()):
                body += part
        else:
            body = c.take(int(h["content-length"]))
        out["beats"] = body.count(b": keepalive")
        out["whole"] = status == 200 and (body.endswith(b"data: [DONE]\n\n") if stream else b'"usage"' in body)
        out["what"] = "" if out["whole"] else f"{status} {body[-200:]!r}"
    except (OSError, EOFError, ValueError) as e:
        out["what"] = f"cut: {e}"
    c.close()
    out["after"] = time.monotonic() - begin
    return out


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
