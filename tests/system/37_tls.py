# SPDX-License-Identifier: Apache-2.0
"""TLS on the port of clients: the same service, over certificates made for the test."""
import ssl
import warnings

import frames
from frames import Session
from lib import *

CHAT, COMP = "/v1/chat/completions", "/v1/completions"
A = 97  # of the small vocabulary
FILES = {}


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_files():
    """Two certificates for localhost that sign themselves, and files that are none."""
    d = FILES["dir"] = tempfile.mkdtemp(prefix="tokenring-tls-")
    for name, key in (("ec", ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]),
                      ("rsa", ["-newkey", "rsa:2048"])):
        openssl("req", "-x509", *key, "-nodes", "-keyout", f"{d}/{name}.key", "-out", f"{d}/{name}.pem", "-days", "2",
                "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        FILES[name] = {"tls_cert": f"{d}/{name}.pem", "tls_key": f"{d}/{name}.key"}
    openssl("ec", "-in", f"{d}/ec.key", "-out", f"{d}/locked.key", "-aes256", "-passout", "pass:x")
    with open(f"{d}/noise", "w", encoding="ascii") as f:
        f.write("no certificate\n")


class TlsServer(Server):
    """A service whose port speaks TLS; what the library asks it is asked over TLS too."""

    def __init__(self, flags, key="ec", **kw):
        self.context = ssl.create_default_context(cafile=FILES[key]["tls_cert"])
        super().__init__(flags, **FILES[key], **kw)

    def conn(self, rcvbuf=0, wait=WAIT, context=None):
        return TlsConn(self.port, context or self.context, rcvbuf, wait)


class TlsConn(Conn):
    def __init__(self, port, context, rcvbuf=0, wait=WAIT):
        super().__init__(port, rcvbuf, wait)
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost", suppress_ragged_eofs=False)


class TlsSession(Session):
    """HTTP/2 over TLS.  A thread reads and another one writes: the library takes one at a time."""

    def __init__(self, server, **kw):
        context = ssl.create_default_context(cafile=server.args["tls_cert"])
        context.set_alpn_protocols(["h2"])
        sock = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port)), server_hostname="localhost")
        sock.settimeout(0.05)
        self.lock = threading.Lock()
        self.protocol = sock.selected_alpn_protocol()
        super().__init__(server.port, sock=sock, **kw)

    def send(self, data):
        while data:
            with self.lock, contextlib.suppress(TimeoutError, BrokenPipeError, ConnectionResetError):
                n = self.sock.send(data)
                data = data[n:]
                continue
            if self.gone:
                return

    def _some(self):
        while not self.closing:
            with self.lock, contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                return self.sock.recv(65536)
            time.sleep(0.001)
        return b""


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
        h = TlsSession(s)
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
            ({"tls_cert": ec["tls_cert"], "tls_key": rsa["tls_key"]}, ["--tls-key", rsa["tls_key"]])):
        code, err, _ = fails_to_start(dict(TINY, port=0, control_socket="off", **flags), stdin=subprocess.DEVNULL)
        check(code not in (0, None) and all(w in err for w in words), f"{words}", code, err[-500:])


if __name__ == "__main__":
    make_files()
    main()
