# SPDX-License-Identifier: Apache-2.0
"""What carries a request of 68_faults.py: one carrier for each, on a connection of its own, so that a
process that dies takes no other's.  Where it differs from carriers.py: its reader can be told to go at
any moment, a cut is raised, and a stream is taken up again.

  ask()      sends the request; begin(): its head is there: (status, id of the stream, None: none yet)
  resume()   instead of ask(), for a stream that was cut; the same pair
  pieces()   the answer as it comes; EOFError or ConnectionResetError: it is cut, Left: `leave` was set
  whole()    an answer in one piece
  refused()  what came with a status other than 200
  go()       the client does not want it any more, in the way of this carrier; close(): after all"""
import frames
from lib import *
from websocket import CUT, RESET, WebSocket
import oip

POLL = 0.02


class Left(Exception):
    """The reader was told to go."""


class Carrier:
    early = True     # the head of a streamed answer is there before its first token

    def __init__(self, server, at=None):
        """at: the frontend to have it."""
        self.server = server
        self.conn = server.conn_at(at, unused=True) if at else server.conn()
        self.port = self.conn.sock.getsockname()[1]

    @staticmethod
    def row_of(rid):
        """The id in the ledger of a request that was sent with this one."""
        return rid

    def close(self):
        self.conn.close()


class Http1(Carrier):
    def ask(self, kind, body, rid):
        self.conn.send(request("POST", kind.path, body, kind.headers + [f"X-Request-Id: {rid}"]))

    def resume(self, kind, path, headers):
        self.conn.send(request("GET", path, headers=headers))
        return self.begin()

    def begin(self):
        status, _, head = self.conn.head()
        return status, head.get("x-tokenring-stream")

    def pieces(self, leave):
        c = self.conn
        while True:
            while not leave.is_set() and not c.buf and not select.select([c.sock], [], [], POLL)[0]:
                pass
            if leave.is_set():
                raise Left
            chunk = c.chunk()
            if not chunk:
                return
            yield chunk

    def whole(self):
        return self.conn.response().json

    def refused(self):
        return self.conn.drain()[-300:]

    def go(self):
        self.conn.reset()


class Flow(Carrier):
    """One stream of HTTP/2, and what HTTP/2 and gRPC have in common."""

    def __init__(self, server, at=None):
        super().__init__(server, at)
        self.session = frames.Session(server.port, sock=self.conn.sock)
        self.flow = None

    def _some(self, good, leave):
        """Waits for good(): true, or false at the end of the answer."""
        while not good() and not self.flow.over():
            if leave.is_set():
                raise Left
            self.flow.wait(good, POLL)
        if leave.is_set():
            raise Left
        if not good() and not self.flow.ended:
            raise EOFError("the stream is cut")
        return good()

    def go(self):
        self.flow.cancel()

    def close(self):
        self.session.close()
        if self.session.broken and self.flow and self.flow.ended:  # others may be cut inside a frame
            raise ValueError(f"rules of HTTP/2: {self.session.broken}")


class Http2(Flow):
    def _send(self, method, path, body, headers):
        fields = [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)]
        if body is not None:
            fields.append(("content-type", "application/json"))
            body = json.dumps(body).encode()
        pairs = [h.split(": ", 1) for h in headers]
        self.flow = self.session.request(fields + [(k.lower(), v) for k, v in pairs], body=body)

    def ask(self, kind, body, rid):
        self._send("POST", kind.path, body, kind.headers + [f"X-Request-Id: {rid}"])

    def resume(self, kind, path, headers):
        self._send("GET", path, None, headers)
        return self.begin()

    def begin(self):
        if not self.flow.wait(lambda: self.flow.headers):
            raise EOFError("no head")
        return int(self.flow.header(":status")), self.flow.header("x-tokenring-stream")

    def pieces(self, leave):
        while self._some(lambda: self.flow.data, leave):
            yield self.flow.take(len(self.flow.data))

    def whole(self):
        status, _ = self.begin()
        body = b"".join(self.pieces(threading.Event()))
        return Response(status, "", dict(self.flow.headers), body).json

    def refused(self):
        self.flow.wait(self.flow.over)
        return self.flow.data[-300:]


class Socket(Carrier):
    """A WebSocket with one stream, which says its own id."""
    LABEL = "a"

    def __init__(self, server, at=None):
        super().__init__(server, at)
        self.ws = None

    @staticmethod
    def row_of(rid):
        return f"{rid}.1"

    def ask(self, kind, body, rid):
        self.ws = WebSocket(self.server, self.conn, headers=[f"X-Request-Id: {rid}"])
        self.ws.start(self.LABEL, body)

    def resume(self, kind, id, after):
        """Its status is that of the first message; an event of the stream is the next that is read."""
        self.ws = WebSocket(self.server, self.conn)
        self.ws.say(dict(type="resume", id=id, stream=self.LABEL, **after))
        return self.begin()

    def _next(self):
        m = self.ws.next()
        if m is None:
            if self.ws.closed not in (CUT, RESET):
                raise ValueError(f"closed: {self.ws.closed} {self.ws.why}")
            raise EOFError("the connection is cut")
        return m

    def begin(self):
        self.first = self._next()
        return self.first.get("status", 200), self.first.get("stream_id")

    def pieces(self, leave):
        m, self.first = self.first, None
        while True:
            if m["type"] == "stream.reset":
                raise EOFError("the stream is cut")
            if m["type"] == "stream.done":
                return
            yield m
            if m["type"] in native.ENDS:
                return
            while not leave.is_set() and not self.conn.buf and not select.select([self.conn.sock], [], [], POLL)[0]:
                pass
            if leave.is_set():
                raise Left
            m = self._next()

    def refused(self):
        return self.first

    def go(self):
        self.conn.reset()


class Grpc(Flow):
    """A call with one request: of ModelStreamInfer, or ModelInfer for an answer in one piece."""
    early = False

    def __init__(self, server, at=None):
        self.server, self.flow = server, None
        self.session = oip.Session(oip.port_of(server))
        self.port = self.session.sock.getsockname()[1]

    def ask(self, kind, body, rid):
        prompt, model = body.pop("prompt"), body.pop("model")
        message = oip.infer_request(prompt, body, id=rid, model=model)
        self.call = oip.Call(self.session, kind.path)
        self.flow = self.call.flow
        self.call.write(message).done()

    def begin(self):
        return 200, None

    def pieces(self, leave):
        while self._some(lambda: len(self.flow.data) >= 5, leave):
            yield self.call.message()
        code, text = self.call.end()
        if code != oip.OK:
            raise ValueError(f"the call ends with {code} {text}")

    def whole(self):
        message, = self.pieces(threading.Event())
        return oip.Answer(message)
