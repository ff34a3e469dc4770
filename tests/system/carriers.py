# SPDX-License-Identifier: Apache-2.0
"""What carries a request and its answer: one Call for each, whatever the wire.

  begin()  until the first content of a streamed answer is there
  read()   to the end: status, body, and whether the end was `whole` or `cut`
  leave()  the client is gone, in the way of this carrier
  stalls:  made with slow=True, it takes as little as the wire lets it until read() is called"""
import frames
from lib import *
from websocket import CUT, RESET, WebSocket
import dialects
import oip


class Call:
    def __init__(self, dialect, rid):
        self.dialect, self.rid = dialect, rid
        self.status, self.body, self.end, self.stream_id = 0, b"", None, None

    @staticmethod
    def carries(dialect):
        return not dialect.path.startswith(oip.INFER)

    def said(self):
        return self.dialect.said(self.body)

    def drop(self):
        """Nothing more is wanted of it."""


def session_of(server):
    """What makes a connection of HTTP/2 to a port: that of a server with TLS (tls.py), or a plain one."""
    return getattr(server, "session", frames.Session)


def content_mark(dialect):
    """Bytes that come with the first content and not before."""
    return {"chat": b'"content":"', "completions": b'"text":', "responses": b"output_text.delta",
            "messages": b"content_block_delta", "text": b""}.get(dialect.name, b"output_text.delta")


class Http1(Call):
    def __init__(self, server, dialect, ask, rid, slow=False):
        super().__init__(dialect, rid)
        self.conn = server.conn(rcvbuf=4096 if slow else 0)
        self.conn.send(request("POST", dialect.path, dialect.make(ask),
                               [f"{k}: {v}" for k, v in dialect.headers] + [f"X-Request-Id: {rid}"]))

    def _head(self):
        if not self.status:
            self.status, _, self.headers = self.conn.head()
            self.stream_id = self.headers.get("x-tokenring-stream")

    def begin(self):
        if self.dialect.streamed:
            self._head()
            mark = content_mark(self.dialect)
            while mark not in self.conn.buf or not self.conn.buf:
                if not self.conn.more():
                    raise EOFError("no content")
        return self

    def read(self):
        try:
            self._head()
            if "content-length" in self.headers:
                self.body = self.conn.take(int(self.headers["content-length"]))
            else:
                while (c := self.conn.chunk()):
                    self.body += c
            self.end = "whole"
        except (EOFError, ConnectionResetError):
            self.end = "cut"
        return self

    def leave(self):
        self.conn.close()

    drop = leave


class Http2(Call):
    """Each on a connection of its own, so that a frontend that dies takes no other's."""

    def __init__(self, server, dialect, ask, rid, slow=False):
        super().__init__(dialect, rid)
        self.session = session_of(server)(server.port, window=8192 if slow else 1 << 20, credit=not slow)
        fields = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"),
                  (":path", dialect.path), ("content-type", "application/json"), ("x-request-id", rid),
                  *dialect.headers]
        self.flow = self.session.request(fields, body=json.dumps(dialect.make(ask)).encode())

    def begin(self):
        if self.dialect.streamed:
            mark = content_mark(self.dialect)
            if not self.flow.wait(lambda: self.flow.data and mark in self.flow.data):
                raise EOFError(f"no content: {self.flow.data[:200]!r}")
            self.stream_id = self.flow.header("x-tokenring-stream")
        return self

    def read(self):
        f = self.flow
        if not f.credit:
            f.credit = True
            with contextlib.suppress(OSError):
                f.open_window(1 << 20)
        f.wait(f.over)
        self.status = int(f.header(":status") or 0)
        self.stream_id = f.header("x-tokenring-stream")
        with self.session.news:
            self.body, f.data = self.body + f.data, b""
        self.end = "whole" if f.ended and f.reset is None else "cut"
        return self

    def leave(self):
        self.flow.cancel()

    def drop(self):
        self.session.close()
        check(not self.session.broken, f"{self.rid}: rules of HTTP/2", self.session.broken)


class Socket(Call):
    """A WebSocket with one stream.  The server names the request."""

    def __init__(self, server, dialect, ask, rid, slow=False):
        super().__init__(dialect, None)
        self.ws = WebSocket(server, rcvbuf=4096 if slow else 0)
        self.ws.start("a", dialect.make(ask))

    @staticmethod
    def carries(dialect):
        return dialect.name in ("native", "native of a prompt")

    @property
    def rid(self):
        if not self._rid:
            m = self.ws.event("a", "response.started")
            self._rid, self.stream_id = m["request_id"], m["stream_id"]
        return self._rid

    @rid.setter
    def rid(self, value):
        self._rid = value

    def begin(self):
        if not (self.rid and self.ws.event("a", "output_text.delta")):
            raise EOFError("no content")
        return self

    def read(self):
        w = self.ws
        w.end("a")
        events = w.events.get("a", [])
        if events and "status" in events[-1]:
            self.status, self.body = events[-1]["status"], json.dumps(events[-1]).encode()
        self.end = "cut" if w.closed in (CUT, RESET) else "whole"
        return self

    def said(self):
        out = dialects.Said()
        dialects.take_native(self.ws.events.get("a", []), out)
        return out

    def leave(self):
        self.ws.conn.close()

    drop = leave


class Grpc(Call):
    """A call of its own connection.  What comes is kept as a list: messages, then the status."""

    def __init__(self, server, dialect, ask, rid, slow=False):
        super().__init__(dialect, rid)
        self.session = session_of(server)(oip.port_of(server), **(dict(window=4096, credit=False) if slow else {}))
        self.call = oip.Call(self.session, dialect.path).write(dialect.make(ask) + oip.field(3, rid)).done()
        self.messages = []

    @staticmethod
    def carries(dialect):
        return dialect.path.startswith(oip.INFER)

    def _next(self):
        if (m := self.call.message()) is not None:
            self.messages.append(m)
        return m is not None

    def begin(self):
        if self.dialect.streamed:
            if not self._next():
                raise EOFError("no content")
            self.stream_id = oip.stream_answer(self.messages[0]).parameters["stream_id"]
        return self

    def read(self):
        with contextlib.suppress(EOFError):
            while self._next():
                pass
        code, text = self.call.end()
        self.end = "cut" if code is None else "whole"
        self.body = text.encode() + b"".join(self.messages)
        self.status = 400 if code == oip.INVALID_ARGUMENT or b"error_param" in self.body else 200
        self.code = code
        return self

    def said(self):
        out = dialects.Said()
        self.dialect.read(self.messages, out)
        if self.dialect.path.endswith("ModelInfer") and self.end == "whole" and not self.messages:
            out.ends(code=self.code)
        return out

    def leave(self):
        self.call.cancel()

    def drop(self):
        self.session.close()


CARRIERS = {"http/1.1": Http1, "http/2": Http2, "websocket": Socket, "grpc": Grpc}
