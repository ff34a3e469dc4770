# SPDX-License-Identifier: Apache-2.0
"""Proxies that others wrote, in front of services of ours: the process, a tap behind it, what is told.

    client -> Front (the proxy) -> Tap (stamps, counts, cuts) -> Server (lib.py)

A script here makes a subclass of Front for its proxy, starts it with the configuration that deploy/ ships
("ours") and with the one its package or its documentation begins with ("default"), asks passing.py for
claims and figures, and tells each figure with tell(proxy, setting, row, words); `run --write` puts them
into docs/proxies.md.  PLACE is the venv of requirements.txt."""
import atexit
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))
from lib import *  # noqa: E402
from tls import TlsSession  # noqa: E402

PLACE = os.environ.get("PLACE", "")
TLS = {}  # paths of a certificate for localhost that signs itself, its key, and both in one file
_making = threading.Lock()
AB = 369  # a token of the default model whose text is "ab"
SLOW = dict(SIM, sim_step_us=10000)  # a hundred events a second


def free():
    """A port that nobody has at this moment."""
    with contextlib.closing(socket.socket()) as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def certificate():
    with _making:
        if not TLS:
            d = tempfile.mkdtemp(prefix="tokenring-tls-")
            os.chmod(d, 0o755)
            made = {name: f"{d}/{name}.pem" for name in ("cert", "key", "both")}
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout",
                            made["key"], "-out", made["cert"], "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"], check=True, stderr=subprocess.DEVNULL)
            with open(made["both"], "w", encoding="ascii") as out:
                for name in ("cert", "key"):
                    with open(made[name], encoding="ascii") as f:
                        out.write(f.read())
            os.chmod(made["key"], 0o644)
            TLS.update(made)
    return TLS


def shipped(path, changes):
    """A file of deploy/ with other words in the place of its addresses; each of them must be in it."""
    with open(os.path.join(ROOT, "deploy", path), encoding="utf-8") as f:
        text = f.read()
    for old, new in changes.items():
        if old not in text:
            raise RuntimeError(f"deploy/{path} has no {old!r}")
        text = text.replace(old, str(new))
    return text


def tell(proxy, setting, row, words):
    """A cell of the table of a proxy: setting is "ours" or "default"."""
    print(f"  {proxy}, {setting}: {row}: {words}", flush=True)
    if os.environ.get("PROXIES_TOLD"):
        with open(os.environ["PROXIES_TOLD"], "a", encoding="utf-8") as f:
            f.write(json.dumps([proxy, setting, row, words]) + "\n")


class Front:
    """One process of a proxy.  A subclass has `name`, `ports` (names of the ports it listens on; "http" is
    what conn() and the others of lib.py use) and write(), which puts its configuration into self.dir, with
    self.at[NAME] for its ports and self.up for those of its services, and returns the command.  start=False:
    only the files; argv is the command."""
    name, ports, env = "", ("http",), None

    def __init__(self, *upstreams, setting="ours", start=True, **options):
        self.up = [u if isinstance(u, int) else u.port for u in upstreams]
        self.setting, self.options, self.child = setting, options, None
        self.args = {"tls_cert": certificate()["cert"]}  # what tls.py looks for
        if not start:
            self.argv = self._prepare()
            return
        atexit.register(self.stop)
        for _ in range(5):  # another process may take a port before the proxy does
            if self._start():
                return
            self.stop()
        raise RuntimeError(f"{self.name} does not start: {self.log()[-3000:]}")

    def _prepare(self):
        self.dir = tempfile.mkdtemp(prefix=f"tokenring-{self.name}-")
        os.chmod(self.dir, 0o755)  # a proxy may drop its rights before it reads
        self.at = {name: free() for name in self.ports}
        self.port = self.at["http"]
        return self.write()

    def write(self):
        raise NotImplementedError

    def _start(self):
        argv = self._prepare()
        with open(f"{self.dir}/log", "w", encoding="utf-8") as log:
            self.child = subprocess.Popen(argv, cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                          start_new_session=True)
        return until(lambda: self.answers() or self.child.poll() is not None) and self.child.poll() is None

    def answers(self):
        """Whether the proxy passes a request on."""
        with contextlib.suppress(OSError, EOFError, ValueError):
            return self.get("/livez").status == 200
        return False

    def put(self, name, text):
        """A file of its folder; its path."""
        path = os.path.join(self.dir, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def log(self):
        with open(f"{self.dir}/log", encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self):
        if not self.child:
            return
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)  # workers that outlive it

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
        subprocess.run(["rm", "-rf", self.dir], check=False)

    def h2(self):
        """A session of HTTP/2 over TLS."""
        return TlsSession(self, self.at["https"])

    conn, ask, get, post, stream = Server.conn, Server.ask, Server.get, Server.post, Server.stream


class Call:
    """One connection that a proxy opened to the tap: asked and answered are [(time, bytes)], by
    time.monotonic(); ended: "FIN" or "RST", how the proxy left it, with ended_at."""

    def __init__(self, near, far):
        self.near, self.far = near, far
        self.asked, self.answered = [], []
        self.first = []  # what was asked first, forget() or not
        self.before = 0  # pieces of answers that came before the last POST
        self.ended, self.ended_at = None, 0.0

    def requests(self):
        """The heads of the requests in it, when it speaks HTTP/1."""
        return re.findall(rb"(?:GET|POST|DELETE) [^\r\n]* HTTP/1\.[01]\r\n.*?\r\n\r\n", b"".join(b for _, b in self.asked), re.S)

    def posts(self):
        return sum(head.startswith(b"POST") for head in self.requests())

    def run(self, tap):
        """Passes bytes on in both directions until both have ended, or one is reset."""
        other = {self.near: self.far, self.far: self.near}
        try:
            while other:
                for s in select.select(list(other), [], [])[0]:
                    data = s.recv(65536)
                    if s is self.near:
                        self._asks(data)
                    elif self._answers(data) > (1 << 60 if tap.refuse is None else tap.refuse):
                        self.near.sendall(data[:tap.refuse])
                        raise ConnectionAbortedError
                    to = self.far if s is self.near else self.near
                    if data:
                        to.sendall(data)
                    else:
                        to.shutdown(socket.SHUT_WR)
                        del other[s]
        except (OSError, ValueError):  # one side is gone, or the tap is closed
            self.ended, self.ended_at = self.ended or "RST", self.ended_at or time.monotonic()
            for s in (self.near, self.far):
                with contextlib.suppress(OSError):
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.near.close()
        self.far.close()

    def _asks(self, data):
        now = time.monotonic()
        if not data:
            self.ended, self.ended_at = "FIN", now
            return
        self.asked.append((now, data))
        self.first = self.first or [(now, data)]
        if data.startswith(b"POST /v1/"):
            self.before = len(self.answered)

    def _answers(self, data):
        """Bytes of the answer to the last POST, with these."""
        self.answered.append((time.monotonic(), data))
        return sum(len(b) for _, b in self.answered[self.before:]) if self.posts() else 0


class Tap:
    """Passes connections on to a port, byte by byte as they come, and remembers them.  `refuse`: how many
    bytes of the answer to a POST go through before it resets the connection (None: all); 0: none, as with
    a service that dies with the request in its hands."""

    def __init__(self, service):
        self.service = service if isinstance(service, int) else service.port
        self.calls, self.refuse = [], None
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(64)
        self.port = self.sock.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.sock.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.service))
                except OSError:
                    near.close()
                    continue
                for s in (near, far):
                    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                call = Call(near, far)
                self.calls.append(call)
                threading.Thread(target=call.run, args=(self,), daemon=True).start()

    def forget(self):
        """Forgets what came before."""
        self.calls = [c for c in self.calls if not c.ended]
        for c in self.calls:
            c.asked, c.answered, c.before = [], [], 0

    def heads(self):
        """The heads of all requests that came through, those with POST."""
        return [head for c in self.calls for head in c.requests() if head.startswith(b"POST")]

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
