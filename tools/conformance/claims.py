# SPDX-License-Identifier: Apache-2.0
"""What the Python programs of tools/conformance say and look at: claims on stdout, one JSON object a line,
and the truth by a plain request."""
import contextlib
import json
import os
import socket
import threading
import time
import urllib.error
import urllib.request

URL = os.environ["TOKENRING_URL"]  # http://127.0.0.1:PORT
V1 = URL + "/v1"
MODEL = "smollm2"
WAIT_S = 60
PROMPT = "Tell me about rings."
SAID = dict(model=MODEL, messages=[{"role": "user", "content": PROMPT}], temperature=0)
LONG = 100000  # more tokens than anybody waits for


def client(name, version):
    """Claims from here on are about this client."""
    print(json.dumps({"client": name, "version": version}), flush=True)


def check(area, good, claim, *seen):
    """area: whole, stream, cancel, error, retry, other."""
    print(json.dumps({"area": area, "claim": claim, "good": bool(good), "seen": [str(s)[:700] for s in seen]}), flush=True)
    return bool(good)


def equal(area, got, want, claim):
    return check(area, got == want, claim, f"got {got!r}", f"want {want!r}")


@contextlib.contextmanager
def trying(area, claim):
    """An exception that nobody expected is a failure, and no end."""
    try:
        yield
    except Exception as e:
        check(area, False, claim, repr(e))


def raises(area, kind, fn, claim):
    """What fn raises, which must be a `kind`; None otherwise."""
    try:
        out = fn()
    except kind as e:
        check(area, True, claim)
        return e
    except Exception as e:
        check(area, False, claim, f"raised {e!r}")
    else:
        check(area, False, claim, f"raised nothing, gave {out!r}")
    return None


async def fails(area, kind, what, claim):
    """The same of what is awaited."""
    try:
        out = await what
    except Exception as e:
        error = e

        def again():
            raise error
        return raises(area, kind, again, claim)
    return raises(area, kind, lambda: out, claim)


def post(path, body, headers=()):
    """(status, headers, body as text) of a plain request."""
    r = urllib.request.Request(URL + path, json.dumps(body).encode(), {"Content-Type": "application/json", **dict(headers)})
    try:
        with urllib.request.urlopen(r, timeout=WAIT_S) as a:
            return a.status, a.headers, a.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read().decode()


def truth(path="/v1/chat/completions", **kw):
    """What a plain request that is not streamed gets: the object."""
    status, _, text = post(path, dict(SAID, **kw) if "chat" in path else dict(kw, model=MODEL))
    if status != 200:
        raise RuntimeError(f"{path}: {status} {text}")
    return json.loads(text)


def again(sent, client_only=("stream", "stream_options")):
    """The message that a plain request of the body which a client sent gets, not streamed."""
    said = {k: v for k, v in json.loads(sent).items() if k not in client_only}
    return truth(**said)["choices"][0]["message"]


def words(**kw):
    """(text, usage) of the truth of a chat."""
    t = truth(**kw)
    return t["choices"][0]["message"]["content"], t["usage"]


def metrics():
    with urllib.request.urlopen(URL + "/metrics", timeout=WAIT_S) as a:
        rows = (line.rpartition(" ") for line in a.read().decode().splitlines() if not line.startswith("#"))
        return {name.removeprefix("tokenring_"): float(value) for name, _, value in rows}


def until(fn, limit=WAIT_S):
    end = time.monotonic() + limit
    while not (v := fn()) and time.monotonic() < end:
        time.sleep(0.02)
    return v


def ended(reason):
    return metrics().get('streams_ended_total{reason="%s"}' % reason, 0)


def refused():
    return metrics().get('requests_refused_total{reason="overloaded"}', 0)


@contextlib.contextmanager
def cancels(claim, area="cancel", reason="client_disconnected"):
    """What is done inside must end one request so, and leave nothing running."""
    before = ended(reason)
    yield
    check(area, until(lambda: ended(reason) == before + 1), f"{claim}: ended as {reason}", metrics())
    check(area, until(lambda: metrics()["requests_running"] == 0), f"{claim}: nothing runs any more")


@contextlib.contextmanager
def full():
    """The server has no place until it has refused somebody; then those who hold them leave."""
    port = int(URL.rsplit(":", 1)[1])
    body = json.dumps(dict(SAID, max_tokens=LONG, ignore_eos=True, stream=True)).encode()
    held = []
    for _ in range(6):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        s.recv(100)  # admitted
        held.append(s)

    before, over = refused(), threading.Event()

    def leave():
        until(lambda: over.is_set() or refused() > before)
        for s in held:
            s.close()
    leaver = threading.Thread(target=leave)
    leaver.start()
    try:
        yield
    finally:
        over.set()
        leaver.join()
        until(lambda: metrics()["requests_running"] == 0)
