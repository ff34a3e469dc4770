# SPDX-License-Identifier: Apache-2.0
"""TLS on the port of clients: the same service, over certificates made for the test."""
import ssl
import warnings

import frames
import oip
from lib import *
from tls import FILES, TlsConn, TlsServer, make_files
from websocket import WebSocket

CHAT, COMP = "/v1/chat/completions", "/v1/completions"
A = 97  # of the small vocabulary
def fields(method, path, *more):
    return [(":method", method), (":scheme", "https"), (":path", path), (":authority", "localhost"), *more]


@test
def answers():
    """HTTP/1.1 over TLS 1.2 and 1.3, with both kinds of keys: whole answers and streams."""
    for key in ("ec", "rsa"):
        with TlsServer(TINY, key, ledger=False) as s:
            check(s.ready.startswith("tokenring ready on https://"), "the ready line says it", s.ready)
            equal(s.get("/health").status, 200, f"{key}: health")
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                context = ssl.create_default_context(cafile=FILES[key]["tls_cert"])
                context.minimum_version = context.maximum_version = version
                c = s.conn(context=context)
                for _ in range(3):  # kept between requests
                    c.send(request("POST", COMP, completion("x" * 70000, max_tokens=1)))
                    equal(c.response().status, 400, f"{key} {version.name}: a large body that is refused")
                    c.send(request("POST", COMP, completion("x" * 3000, max_tokens=4)))
                    equal(c.response().status, 200, f"{key} {version.name}: whole")
                st = s.stream(COMP, force(A, prompt="x", max_tokens=50, stream=True), conn=c).rest()
                equal((st.text(), st.finishes(), st.done), ("a" * 50, ["length"], 1), f"{key} {version.name}: stream")
                equal(c.sock.version(), {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name], "version")
                c.close()


@test
def refused():
    """What is older, plain, or nonsense does not get in, and hurts nobody."""
    with TlsServer(TINY, ledger=False, header_timeout_s=0.5) as s:
        for data, claim in ((b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "plain HTTP"), (b"\x16\x03\x01\xff\xff", "noise"),
                            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 600, "a broken hello"),
                            (frames.PREFACE, "plain HTTP/2"), (b"", "silence")):
            with contextlib.closing(Conn(s.port)) as c:
                c.send(data)
                out = c.drain()  # to the end, or a reset
                check(not out or out[0] == 0x15, f"{claim}: closed, with no word but an alert", out[:80])
        context = ssl.create_default_context(cafile=FILES["ec"]["tls_cert"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        try:
            s.conn(context=context)
            check(False, "TLS 1.1 is refused")
        except OSError:
            check(True, "TLS 1.1 is refused")
        context = ssl.create_default_context(cafile=FILES["ec"]["tls_cert"])
        context.set_alpn_protocols(["spdy/3"])
        try:
            s.conn(context=context)
            check(False, "another protocol is refused")
        except OSError:
            check(True, "another protocol is refused")
        equal(s.get("/health").status, 200, "the service goes on")


@test
def http2():
    """ALPN: HTTP/2 over TLS, several streams, and a reset."""
    with TlsServer(TINY) as s:
        h = s.session()
        equal(h.protocol, "h2", "agreed")
        ask = json.dumps(force(A, prompt="x", max_tokens=80, stream=True)).encode()
        flows = [h.request(fields("POST", COMP, ("content-type", "application/json")), body=ask) for _ in range(8)]
        for f in flows:
            f.wait(lambda: False, 60)
            check(f.ended and f.data.count(b'"text":"a"') == 80 and f.data.endswith(b"data: [DONE]\n\n"), "a stream",
                  f.reset, f.data[-200:])
        f = h.request(fields("POST", COMP, ("content-type", "application/json"), ("x-request-id", "reset")),
                      body=json.dumps(force(A, prompt="x", max_tokens=4000, stream=True)).encode())
        check(f.wait(lambda: f.received > 1000), "another one runs")
        f.cancel()
        row = s.row("reset")
        check(row and row["reason"] == "client_disconnected", "its reset cancels", row)
        equal(h.broken, [], "no rule was broken")
        h.close()


@test
def tickets():
    """A session goes on at any frontend, also at one that took the place of another, until a SIGHUP."""
    with TlsServer(TINY, ledger=False, frontends=3) as s:
        def ask(context, session=None):
            """An answer over a new connection: (whether the session went on, the one it has now)."""
            with contextlib.closing(TlsConn(s.port, context, session=session)) as c:
                c.send(request("GET", "/health"))
                equal(c.response().status, 200, "an answer")
                at.add(next((p for p in s.processes()["frontend"] if c.sock.getsockname()[1] in clients_of(p, s.port)), 0))
                return c.sock.session_reused, c.sock.session

        at = set()
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=FILES["ec"]["tls_cert"])
            context.minimum_version = context.maximum_version = version
            for _ in range(60):  # a crowd spreads, single ones need not
                crowd = [s.conn() for _ in range(6)]
                reused, session = ask(context)
                check(not reused, f"{version.name}: the first one is new")
                at.clear()
                for _ in range(12):
                    check(ask(context, session)[0], f"{version.name}: it goes on", at)
                for c in crowd:
                    c.close()
                if len(at) > 1:
                    break
            check(len(at) > 1, f"{version.name}: at several frontends", at)
            os.kill(s.processes()["frontend"][0], signal.SIGKILL)
            check(until(lambda: len(s.processes()["frontend"]) == 3), "another frontend")
            check(all(ask(context, session)[0] for _ in range(12)), f"{version.name}: also after a death")
        old = set(s.processes()["frontend"])
        s.child.send_signal(signal.SIGHUP)
        check(until(lambda: not old & set(s.processes()["frontend"]) and len(s.processes()["frontend"]) == 3), "replaced")
        reused, session = ask(context, session)
        check(not reused, "after a SIGHUP keys are others")
        check(ask(context, session)[0], "and good again")


# ---- other carriers -------------------------------------------------------------------------------------

STREAM = oip.INFER + "ModelStreamInfer"


def forced(n):
    return dict(logit_bias={str(A): 100}, temperature=0, max_tokens=n)


def native_body(n):
    return force(A, prompt="x", max_tokens=n)


@test
def grpc():
    """On its own port, by ALPN: unary calls, a stream, a cancel that is nobody else's; plain bytes are no call."""
    with TlsServer(TINY, grpc_port=0) as s:
        h = s.session(oip.port_of(s))
        equal(h.protocol, "h2", "agreed")
        equal(oip.unary(h, oip.HEALTH + "Check")[1], oip.OK, "health")
        m, status, text = oip.unary(h, oip.INFER + "ModelInfer", oip.infer_request(sampling=forced(60)))
        if check(status == oip.OK, "ModelInfer", status, text):
            equal((oip.Answer(m).text, oip.Answer(m).outputs["completion_tokens"]), ("a" * 60, 60), "its answer")
        left = oip.Call(h, STREAM).write(oip.infer_request(sampling=forced(4000), id="left")).read(3)
        whole = oip.Call(h, STREAM).write(oip.infer_request(text="y" * 40000, id="long"))
        whole.write(oip.infer_request(sampling=forced(200), id="whole"))
        left.cancel()
        last = whole.until_last("whole")
        equal(("".join(a.text for a in whole.of("whole")), last.outputs["completion_tokens"]), ("a" * 200, 200),
              "a stream beside it")
        check([a for a in whole.of("long") if a.error] or whole.until_last("long").error, "a long prompt is refused")
        row = s.row("left")
        check(row and row["reason"] == "client_disconnected", "the cancel", row)
        whole.done()
        equal(whole.end(), (oip.OK, ""), "the end")
        equal(h.broken, [], "no rule was broken")
        h.close()
        plain = frames.Session(oip.port_of(s))
        check(plain.wait(lambda: plain.gone) and not plain.goaway, "without TLS nothing is said")
        plain.close()
        check(s.idle(), "nothing runs")


@test
def websocket():
    """Several streams, a cancel of one, a reader that goes, and a frontend that dies: a cut without close_notify."""
    with TlsServer(dict(TINY, frontends=1)) as s:
        w = WebSocket(s)
        for label, n in (("a", 4000), ("b", 300), ("c", 4000)):
            w.start(label, native_body(n))
        ids = {label: w.id(label) for label in "abc"}
        rid = w.event("c", "response.started")["request_id"]
        w.event("a", "output_text.delta")
        w.cancel(ids["a"])
        end = w.end("a")
        equal((end["type"], end["reason"], w.usage("a")["completion_tokens"]),
              ("response.cancelled", "cancelled", end["last_token"] + 1), "cancelled, to the last token")
        equal((w.end("b")["type"], w.text("b")), ("response.incomplete", "a" * 300), "another one goes on to its end")
        w.conn.reset()
        row = s.row(rid)
        check(row and row["reason"] == "client_disconnected", "a reader that goes", row)
        w = WebSocket(s)
        w.start("a", native_body(4000))
        w.event("a", "output_text.delta")
        os.kill(s.processes()["frontend"][0], signal.SIGKILL)
        w.drain()
        equal(w.closed, "reset", "a frontend that dies: the cut shows")
        check(until(lambda: s.processes()["frontend"] and quiet(s)), "replaced")
        check(s.idle(), "nothing runs")


def stop(s, limit=60):
    s.child.send_signal(signal.SIGTERM)
    return lambda: equal(s.wait_exit(limit), 0, "exit status")


@test
def drain_http2():
    """GOAWAY in two steps; what is open ends well, then close_notify, and the process ends with 0."""
    with TlsServer(TINY) as s:
        h, idle = s.session(), s.session()
        f = idle.request(fields("GET", "/health"))
        check(f.wait(f.over) and f.header(":status") == "200", "a connection is idle")
        f = h.request(fields("POST", COMP, ("content-type", "application/json"), ("x-request-id", "drained")),
                      body=json.dumps(force(A, prompt="x", max_tokens=600, stream=True)).encode())
        check(f.wait(lambda: f.received > 600), "a stream runs")
        ended = stop(s)
        check(idle.wait(lambda: idle.gone) and idle.goaways == 2, "the idle one ends", idle.goaways)
        f.wait(lambda: False)
        check(f.ended and f.data.count(b'"text":"a"') == 600 and f.data.endswith(b"data: [DONE]\n\n"), "whole",
              f.data[-200:])
        check(h.wait(lambda: h.gone) and not h.reset, "then the connection ends")
        equal((h.goaways, h.goaway[:2]), (2, (1, 0)), "the second GOAWAY names the last stream")
        ended()
        equal(s.row("drained")["completion_tokens"], 600, "the row")
        equal((h.broken, idle.broken), ([], []), "no rule was broken")


@test
def drain_grpc():
    """Health says so; a call with work goes on to its end, one that waits is ended."""
    with TlsServer(TINY, grpc_port=0) as s:
        h = s.session(oip.port_of(s))
        watch = oip.Call(h, oip.HEALTH + "Watch").write(b"").done()
        equal(oip.one(watch.message(), 1), 1, "serving")
        waits = oip.Call(h, STREAM).write(oip.infer_request(sampling=dict(max_tokens=1), id="w"))
        waits.until_last()
        works = oip.Call(h, STREAM).write(oip.infer_request(sampling=forced(60), id="d")).read(2)
        ended = stop(s)
        equal((oip.one(watch.message() or b"", 1), watch.end()[0]), (2, oip.UNAVAILABLE), "not serving, then no more")
        equal(waits.end()[0], oip.UNAVAILABLE, "a call that waits")
        works.until_last()
        equal((works.answers[-1].error, works.answers[-1].outputs.get("completion_tokens")), ("", 60), "one with work")
        check(h.wait(lambda: h.goaway and h.gone) and not h.reset, "GOAWAY, and the connection ends")
        equal((h.goaways, h.broken), (2, []), "in two steps")
        ended()


@test
def drain_websocket():
    """Its stream ends well, then a close with 1001; what the limit of a drain cuts is in 48_matrix.py."""
    with TlsServer(TINY) as s:
        w, other = WebSocket(s), WebSocket(s)
        w.start("short", native_body(200))
        w.event("short", "output_text.delta")
        ended = stop(s)
        equal(other.drain().closed, 1001, "who has nothing under way is told to go")
        equal((w.end("short")["type"], w.text("short")), ("response.incomplete", "a" * 200), "it ends well")
        equal(w.drain().closed, 1001, "then the connection ends")
        ended()


@test
def slow_reader():
    """Back-pressure is that of a plain socket: parked, bounded, cancelled; who reads again gets all."""
    with TlsServer(TINY, write_deadline_s=0, sim_step_us=200) as s:
        ask = completion("x", max_tokens=1500, seed=3, temperature=1.0, ignore_eos=True, stream=True)
        want = s.stream(COMP, ask).rest().text()
        st = s.stream(COMP, ask, rcvbuf=4096, wait=300, headers=["X-Request-Id: again"])
        check(until(lambda: s.metric("requests_parked") == 1, 120), "parked", s.metrics())
        pending = s.metric('buffered_bytes{layer="pending"}')
        check(pending <= (16 << 10) + 6 * 8200, "unsent bytes are bounded", pending)
        st.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        equal(st.rest().text(), want, "byte for byte")
        check(until(lambda: s.row("again")["delivered_tokens"] == 1500), "delivered is known", s.row("again"))
        check(until(lambda: s.metric('buffered_bytes{layer="kernel"}') == 0), "and nothing is owed")
    with TlsServer(TINY, write_deadline_s=1, sim_step_us=200) as s:
        st = s.stream(COMP, force(A, prompt="x", max_tokens=4000, stream=True), rcvbuf=4096,
                      headers=["X-Request-Id: shut"])
        row = s.row("shut", 120)
        check(row and row["reason"] == "slow_client", "cancelled", row)
        st.close()


@test
def ends():
    """An answer's end is close_notify and FIN; a cut has no close_notify; a client that goes cancels."""
    with TlsServer(TINY, frontends=1) as s:
        with contextlib.closing(s.conn()) as c:
            c.send(request("GET", "/health", headers=["Connection: close"]))
            equal(c.response().status, 200, "an answer")
            equal(c.sock.recv(10), b"", "its end is told by TLS")
        for way in ("close", "reset"):
            st = s.stream(COMP, force(A, prompt="x", max_tokens=4000, stream=True), headers=[f"X-Request-Id: {way}"])
            st.read(3)
            if way == "close":
                st.conn.sock.close()
            else:
                st.conn.reset()
            row = s.row(way)
            check(row and row["reason"] == "client_disconnected", f"{way}: cancelled", row)
        check(s.idle(), "nothing runs")
        for version in ("1.1", "1.0"):
            c = s.conn()
            c.send(request("POST", COMP, force(A, prompt="x", max_tokens=4000, stream=True), version=version))
            while b"text" not in c.buf:
                c.more()
            os.kill(s.processes()["frontend"][0], signal.SIGKILL)
            try:
                while c.sock.recv(65536):
                    pass
                check(False, f"{version}: a frontend that is killed does not end TLS")
            except OSError as e:
                check(True, f"{version}: the cut shows", e)
            c.close()
            check(until(lambda: s.processes()["frontend"] and quiet(s)), "replaced")


def quiet(s):
    with contextlib.suppress(OSError):
        return s.get("/health").status == 200
    return False


@test
def many_handshakes():
    """Handshakes that never end hold their place for the header timeout and nobody up."""
    with TlsServer(TINY, ledger=False, header_timeout_s=1, sim_step_us=2000) as s:
        idle = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(200)]
        st = s.stream(COMP, force(A, prompt="x", max_tokens=100, stream=True)).rest()
        equal(st.text(), "a" * 100, "a stream beside them")
        for c in idle:
            c.settimeout(WAIT)
        check(all(c.recv(1) == b"" for c in idle), "they are closed")
        for c in idle:
            c.close()


@test
def bad_files():
    """Files that cannot be used end the start with a sentence that names them."""
    d, ec, rsa = FILES["dir"], FILES["ec"], FILES["rsa"]
    for flags, words in (
            ({"tls_cert": ec["tls_cert"]}, ["--tls-cert and --tls-key"]),
            ({"tls_key": ec["tls_key"]}, ["--tls-cert and --tls-key"]),
            ({"tls_cert": d + "/none", "tls_key": ec["tls_key"]}, ["--tls-cert", d + "/none", "No such file"]),
            ({"tls_cert": ec["tls_cert"], "tls_key": d + "/none"}, ["--tls-key", d + "/none", "No such file"]),
            ({"tls_cert": d + "/noise", "tls_key": ec["tls_key"]}, ["--tls-cert", d + "/noise"]),
            ({"tls_cert": ec["tls_cert"], "tls_key": d + "/noise"}, ["--tls-key", d + "/noise"]),
            ({"tls_cert": ec["tls_cert"], "tls_key": d + "/locked.key"}, ["--tls-key", d + "/locked.key"]),
            ({"tls_cert": ec["tls_cert"], "tls_key": rsa["tls_key"]}, ["--tls-key", rsa["tls_key"], "not the key"])):
        code, err, _ = fails_to_start(dict(TINY, port=0, control_socket="off", **flags), stdin=subprocess.DEVNULL)
        check(code not in (0, None) and all(w in err for w in words), f"{words}", code, err[-500:])


if __name__ == "__main__":
    make_files()
    main()
