# SPDX-License-Identifier: Apache-2.0
"""TLS for tests: certificates made for them (make_files(), once), a service whose ports speak it, and
connections to it: HTTP/1.1 and WebSocket by conn(), HTTP/2 and gRPC by session()."""
import ssl

from frames import Session
from lib import *

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

    def session(self, port=None, **kw):
        return TlsSession(self, port, **kw)


class TlsConn(Conn):
    def __init__(self, port, context, rcvbuf=0, wait=WAIT, session=None):
        super().__init__(port, rcvbuf, wait)
        self.sock = context.wrap_socket(self.sock, server_hostname="localhost", suppress_ragged_eofs=False,
                                        session=session)

    def more(self, most=65536):
        try:
            return super().more(most)
        except ssl.SSLEOFError as e:  # a FIN without close_notify is no end
            raise ConnectionResetError("cut") from e


class TlsSession(Session):
    """HTTP/2 over TLS.  A thread reads and another one writes: the library takes one at a time."""

    def __init__(self, server, port=None, **kw):
        context = ssl.create_default_context(cafile=server.args["tls_cert"])
        context.set_alpn_protocols(["h2"])
        sock = socket.socket()
        if rcvbuf := kw.pop("rcvbuf", 0):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.connect(("127.0.0.1", port or server.port))
        sock = context.wrap_socket(sock, server_hostname="localhost")
        sock.settimeout(0.05)
        self.lock = threading.Lock()
        self.protocol = sock.selected_alpn_protocol()
        super().__init__(port or server.port, sock=sock, **kw)

    def send(self, data):
        while data and not self.gone:
            try:
                with self.lock:
                    n = self.sock.send(data)
                data = data[n:]
            except (TimeoutError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            except OSError:  # it has ended: who reads is told so
                return

    def _some(self):
        while not self.closing:
            with self.lock, contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
                return self.sock.recv(65536)
            time.sleep(0.001)
        return b""
