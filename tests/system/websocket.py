# SPDX-License-Identifier: Apache-2.0
"""A WebSocket client by hand: as strict as a client can be, and able to send what no client should."""
import base64
import hashlib

from lib import *

PATH = "/v1/ws"
GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
CUT, RESET = "cut", "reset"  # how a connection ends without a close


def handshake(path=PATH, key=b"dGhlIHNhbXBsZSBub25jZQ==", headers=(), leave_out=(), **instead):
    """The request; fields by their names with _ for -."""
    fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
              "Sec-WebSocket-Key": key.decode()}
    fields.update({k.replace("_", "-"): v for k, v in instead.items()})
    lines = [f"{k}: {v}" for k, v in fields.items() if k not in leave_out]
    return request("GET", path, None, [*lines, *headers])


def frame(op, data=b"", fin=1, rsv=0, mask=b"\x01\x02\x03\x04", say=None):
    """A frame as a client sends it; say: another length than it has."""
    n, m = len(data) if say is None else say, 0x80 if mask else 0
    head = bytes([fin << 7 | rsv << 4 | op])
    head += (bytes([m | n]) if n < 126 else bytes([m | 126]) + struct.pack(">H", n) if n < 65536 else
             bytes([m | 127]) + struct.pack(">Q", n))
    if not mask:
        return head + data
    key = (mask * (len(data) // 4 + 1))[:len(data)]
    masked = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(len(data), "big")
    return head + mask + masked


class WebSocket:
    """events[label]: what came for a label, "" for what has none; closed: the code of the close that
    came, CUT or RESET; pings are answered."""

    def __init__(self, server, conn=None, headers=(), rcvbuf=0, wait=WAIT, **instead):
        self.conn = conn or server.conn(rcvbuf, wait)
        key = base64.b64encode(os.urandom(16))
        self.conn.send(handshake(key=key, headers=headers, **instead))
        self.status, _, self.head = self.conn.head()
        self.response = None
        if self.status != 101:
            self.response = Response(self.status, "", self.head,
                                     self.conn.take(int(self.head["content-length"])))
            return
        want = base64.b64encode(hashlib.sha1(key + GUID).digest()).decode()
        equal(self.head.get("sec-websocket-accept"), want, "the key is answered")
        check("sec-websocket-extensions" not in self.head, "no extension is taken", self.head)
        self.events, self.orders = {"": []}, {}
        self.frames = 0
        self.pings, self.pongs = [], []
        self.closed, self.why = None, ""

    # -- out --

    def raw(self, *frames):
        self.conn.send(b"".join(frames))

    def say(self, message):
        self.raw(frame(TEXT, json.dumps(message).encode()))

    def start(self, label, body, **more):
        self.say(dict(type="start", stream=label, request=body, **more))
        return label

    def cancel(self, sid):
        self.say({"type": "cancel", "id": sid})

    def close(self, code=1000):
        """Our close, and the answer to it."""
        self.raw(frame(CLOSE, struct.pack(">H", code)))
        self.drain()
        return self.closed

    # -- in --

    def _frame(self):
        try:
            head = self.conn.take(2)
            n = head[1]
            if head[0] & 0x70 or n & 0x80 or not head[0] & 0x80:
                raise ValueError(f"frame head {head!r}")
            if n >= 126:
                n = int.from_bytes(self.conn.take(2 if n == 126 else 8), "big")
                if n < (126 if head[1] == 126 else 65536):
                    raise ValueError("a length that is too long")
            return head[0] & 15, self.conn.take(n)
        except EOFError:
            self.closed = CUT
        except ConnectionResetError:
            self.closed = RESET
        return None, b""

    def next(self):
        """The next message, or None when the connection has ended."""
        while self.closed is None:
            op, data = self._frame()
            self.frames += 1
            if op == TEXT:
                return self._message(strict_json(data.decode("utf-8")))
            if op == PING:
                self.pings.append(data)
                with contextlib.suppress(OSError):
                    self.raw(frame(PONG, data))
            elif op == PONG:
                self.pongs.append(data)
            elif op == CLOSE:
                self.closed = int.from_bytes(data[:2], "big") if data else 1005
                self.why = data[2:].decode("utf-8")
            elif op is not None:
                raise ValueError(f"a frame of kind {op}")
        return None

    def _message(self, m):
        label = m.get("stream", "")
        check(not label or next(iter(m)) == "stream", "the label is the first member", m)
        self.events.setdefault(label, []).append(m)
        if label and m["type"] != "stream.reset" and "status" not in m:
            event = {k: v for k, v in m.items() if k != "stream"}
            if m["type"] == "response.started":
                self.orders[label] = native.Order(True)
            order = self.orders.setdefault(label, native.Order(False))
            faults = order.faults(event)
            check(not faults, "a native event", m, faults)
        return m

    def until(self, good):
        """Reads until good(message); that message, or None at the end."""
        while (m := self.next()):
            if good(m):
                return m
        return None

    def event(self, label, kind):
        """The first event of this kind, which may have come already."""
        for m in self.events.get(label, ()):
            if m["type"] == kind:
                return m
        return self.until(lambda m: m.get("stream", "") == label and m["type"] == kind)

    def id(self, label):
        started = self.event(label, "response.started")
        return started["stream_id"]

    def end(self, *labels):
        """Reads until each label has its end, which is returned."""
        def ended(label):
            seen = self.events.get(label, [])
            return bool(seen) and (seen[-1]["type"] in native.ENDS or seen[-1]["type"] == "stream.reset")
        while not all(ended(x) for x in labels) and self.next():
            pass
        ends = [self.events[x][-1] if ended(x) else None for x in labels]
        return ends[0] if len(ends) == 1 else ends

    def drain(self):
        while self.next():
            pass
        return self

    def text(self, label):
        return "".join(m["text"] for m in self.events.get(label, ()) if m["type"] == "output_text.delta")

    def tokens(self, label):
        return sum(m["tokens"] for m in self.events.get(label, ()) if m["type"] == "output_text.delta")

    def usage(self, label):
        return next((m["usage"] for m in self.events.get(label, ()) if m["type"] == "usage"), None)
