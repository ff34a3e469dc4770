# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 by hand, as a client: frames, HPACK, flow control.  Knows nothing of what is carried.

A Session owns one socket and reads it in a thread of its own; a Flow is one HTTP/2 stream of it.  Every
rule that a server could break is checked where it shows; what it breaks is in Session.broken."""
import contextlib
import select
import socket
import struct
import threading

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, HAS_PRIORITY = 1, 1, 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3
REFUSED_STREAM, CANCEL, ENHANCE_YOUR_CALM = 7, 8, 11
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = range(1, 6)

# ---- HPACK (RFC 7541) -----------------------------------------------------------------------------

_STATIC = """:authority |:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200
:status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset |accept-encoding gzip, deflate
accept-language |accept-ranges |accept |access-control-allow-origin |age |allow |authorization |cache-control
content-disposition |content-encoding |content-language |content-length |content-location |content-range
content-type |cookie |date |etag |expect |expires |from |host |if-match |if-modified-since |if-none-match |if-range
if-unmodified-since |last-modified |link |location |max-forwards |proxy-authenticate |proxy-authorization |range
referer |refresh |retry-after |server |set-cookie |strict-transport-security |transfer-encoding |user-agent |vary
via |www-authenticate """
STATIC = [tuple(x.strip("\n").partition(" ")[::2]) for x in _STATIC.replace("\n", "|").split("|")]

# Lengths of the codes of the bytes 0 to 255 and of the end; the code is canonical.
_LENGTHS = [13, 23] + [28] * 7 + [24, 30, 28, 28, 30] + [28] * 8 + [30] + [28] * 9 + [
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6] + [7] * 22 + [8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5,
    5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24,
    24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24,
    21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22,
    25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24,
    20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30]


def _codes():
    out, code, before = {}, 0, 0
    for length, symbol in sorted((n, s) for s, n in enumerate(_LENGTHS)):
        code <<= length - before
        out[length, code] = symbol
        code, before = code + 1, length
    return out


_CODES = _codes()


def huffman(data):
    out, code, length = bytearray(), 0, 0
    for byte in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | (byte >> bit & 1), length + 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                if symbol == 256:
                    raise ValueError("the end symbol inside a string")
                out.append(symbol)
                code = length = 0
    if length > 7 or code != (1 << length) - 1:
        raise ValueError("a string that is not padded with ones")
    return bytes(out)


def integer(value, bits, first):
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def hpack(fields):
    """Literals that no table remembers."""
    out = b""
    for name, value in fields:
        name, value = (x.encode("latin-1") if isinstance(x, str) else x for x in (name, value))
        out += b"\0" + integer(len(name), 7, 0) + name + integer(len(value), 7, 0) + value
    return out


class Unpacker:
    def __init__(self, most=4096):
        self.table, self.most, self.size = [], most, most

    def _integer(self, data, at, bits):
        most = (1 << bits) - 1
        value, at, shift = data[at] & most, at + 1, 0
        if value < most:
            return value, at
        while True:
            byte, at = data[at], at + 1
            value, shift = value + ((byte & 127) << shift), shift + 7
            if byte < 128:
                return value, at

    def _string(self, data, at):
        coded = data[at] & 128
        n, at = self._integer(data, at, 7)
        text = data[at:at + n]
        if len(text) != n:
            raise ValueError("a string that is cut")
        return (huffman(text) if coded else text).decode("latin-1"), at + n

    def _field(self, index):
        if not index:
            raise ValueError("index 0")
        return STATIC[index - 1] if index <= len(STATIC) else self.table[index - len(STATIC) - 1]

    def _evict(self):
        while sum(len(n) + len(v) + 32 for n, v in self.table) > self.size:
            self.table.pop()

    def __call__(self, data):
        out, at = [], 0
        while at < len(data):
            byte = data[at]
            if byte & 128:
                index, at = self._integer(data, at, 7)
                out.append(self._field(index))
                continue
            if byte & 0xe0 == 0x20:
                self.size, at = self._integer(data, at, 5)
                if self.size > self.most or out:
                    raise ValueError("a table size that was not allowed")
                self._evict()
                continue
            remember = byte & 64
            index, at = self._integer(data, at, 6 if remember else 4)
            if index:
                name = self._field(index)[0]
            else:
                name, at = self._string(data, at)
            value, at = self._string(data, at)
            out.append((name, value))
            if remember:
                self.table.insert(0, (name, value))
                self._evict()
        return out


# ---- frames -----------------------------------------------------------------------------------------

def frame(kind, flags, flow, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", flow) + payload


def settings(**values):
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", globals()[k.upper()], v) for k, v in values.items()))


class Flow:
    """One HTTP/2 stream, as its client sees it."""

    def __init__(self, session, number, credit):
        self.session, self.number = session, number
        self.headers, self.trailers = None, None  # lists of pairs
        self.informational = []
        self.data = b""      # not yet taken
        self.received = 0    # bytes in all
        self.ended = False   # END_STREAM came
        self.reset = None    # code of RST_STREAM
        self.credit = credit  # bytes are acknowledged as they come
        self.window = session.peer_window  # what we may send

    def header(self, name):
        return dict(self.headers or []).get(name)

    def over(self):
        return self.ended or self.reset is not None or self.session.gone

    def wait(self, what, limit=60.0):
        """Until what() is true, or nothing can come any more."""
        with self.session.news:
            return self.session.news.wait_for(lambda: what() or self.over(), limit) and bool(what())

    def take(self, n, limit=60.0):
        """n bytes of data; fewer: it is over."""
        self.wait(lambda: len(self.data) >= n, limit)
        with self.session.news:
            out, self.data = self.data[:n], self.data[n:]
        return out

    def send(self, data, end=False):
        """As the peer's windows allow."""
        s = self.session
        while True:
            with s.news:
                s.news.wait_for(lambda: not data or (min(self.window, s.window) > 0) or self.over(), 60)
                n = max(0, min(self.window, s.window, len(data), s.peer_frame))
                if data and not n:
                    raise ConnectionError("the stream takes no data")
                self.window, s.window = self.window - n, s.window - n
            s.send(frame(DATA, END_STREAM if end and n == len(data) else 0, self.number, data[:n]))
            data = data[n:]
            if not data:
                return self

    def open_window(self, n):
        self.session.send(frame(WINDOW_UPDATE, 0, self.number, struct.pack(">I", n)))

    def cancel(self, code=CANCEL):
        self.session.send(frame(RST_STREAM, 0, self.number, struct.pack(">I", code)))


class Session:
    """A connection with prior knowledge.  `window`: of each stream; `credit` False: it is never opened
    again unless the test does."""

    def __init__(self, port, window=1 << 20, credit=True, rcvbuf=0, sock=None, hello=True):
        self.sock = sock or socket.socket()
        if not sock:
            if rcvbuf:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.news = threading.Condition()
        self.out = threading.Lock()
        self.flows, self.next, self.credit = {}, 1, credit
        self.settings, self.acks, self.pongs, self.pings = {}, 0, [], 0
        self.goaway = None   # (last stream, code, text) of the last one
        self.goaways = 0
        self.gone = False    # the socket has ended
        self.reset = False   # by a reset
        self.closing = False  # by us
        self.broken = []     # rules that the server broke
        self.window = self.peer_window = 65535
        self.peer_frame = 16384
        self.unpack = Unpacker()
        self.block = None    # (flow, flags, bytes) of a header block under way
        self.own_window = window
        if hello:
            self.send(PREFACE + settings(enable_push=0, initial_window_size=window) +
                      frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", (1 << 30) - 65535)))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def send(self, data):
        with self.out, contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.sock.sendall(data)

    def request(self, fields, end=True, body=None, credit=None):
        """Opens a stream; its body may follow (Flow.send)."""
        with self.news:
            f = Flow(self, self.next, self.credit if credit is None else credit)
            self.flows[self.next] = f
            self.next += 2
        last = end and body is None
        block = hpack(fields)
        parts = [block[i:i + 16384] for i in range(0, len(block), 16384)]
        kinds = [(HEADERS, END_STREAM if last else 0)] + [(CONTINUATION, 0)] * (len(parts) - 1)
        self.send(b"".join(frame(kind, flags | (END_HEADERS if i == len(parts) - 1 else 0), f.number, parts[i])
                           for i, (kind, flags) in enumerate(kinds)))
        if body is not None:
            f.send(body, end)
        return f

    def ping(self, data=b"tokenrin"):
        self.send(frame(PING, 0, 0, data))
        with self.news:
            return self.news.wait_for(lambda: data in self.pongs or self.gone, 60) and data in self.pongs

    def close(self):
        """Ends the connection: FIN, or a reset if something unread lies here."""
        self.closing = True
        self.reader.join()
        self.sock.close()  # the reader does not if the end had come before

    def abort(self):
        """Ends the connection with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def wait(self, what, limit=60.0):
        with self.news:
            return self.news.wait_for(lambda: what() or self.gone, limit) and bool(what())

    # -- reading --

    def _read(self):
        buf = b""
        try:
            while (data := self._some()):
                buf += data
                while len(buf) >= 9 and len(buf) >= 9 + (n := int.from_bytes(buf[:3], "big")):
                    kind, flags = buf[3], buf[4]
                    flow = int.from_bytes(buf[5:9], "big")
                    payload, buf = buf[9:9 + n], buf[9 + n:]
                    with self.news:
                        try:
                            self._frame(kind, flags, flow, payload)
                        except Exception as e:  # whatever it is, the server sent it
                            self.broken.append(f"frame {kind} of stream {flow}: {e!r}")
                        self.news.notify_all()
        except ConnectionResetError:
            self.reset = True
        except OSError:
            pass
        with self.news:
            if buf and not self.reset and not self.closing:
                self.broken.append(f"half a frame: {buf[:40]!r}")
            self.gone = True
            self.news.notify_all()
        if self.closing:  # here: a close in another thread would wait for this one's recv
            self.sock.close()

    def _some(self):
        """What has come; nothing at the end."""
        while not self.closing:
            if select.select([self.sock], [], [], 0.05)[0]:
                return self.sock.recv(65536)
        return b""

    def _rule(self, good, claim):
        if not good:
            self.broken.append(claim)

    def _frame(self, kind, flags, number, p):
        f = self.flows.get(number)
        self._rule(len(p) <= 16384, "a frame of more than 16384 bytes")
        self._rule(self.block is None or kind == CONTINUATION, "a frame inside a header block")
        if kind in (DATA, HEADERS, RST_STREAM):
            self._rule(f is not None, f"frame {kind} for stream {number}, which is not open")
        if kind == SETTINGS and flags & ACK:
            self.acks += 1
        elif kind == SETTINGS:
            for i in range(0, len(p), 6):
                key, value = struct.unpack_from(">HI", p, i)
                self._setting(key, value)
            self.send(frame(SETTINGS, ACK, 0))
        elif kind == PING and flags & ACK:
            self.pongs.append(p)
        elif kind == PING:
            self.pings += 1
            self.send(frame(PING, ACK, 0, p))
        elif kind == GOAWAY:
            last, code = struct.unpack_from(">II", p)
            self.goaway, self.goaways = (last, code, p[8:]), self.goaways + 1
        elif kind == WINDOW_UPDATE:
            n, = struct.unpack(">I", p)
            self._rule(n > 0, "a window update of nothing")
            if number == 0:
                self.window += n
            elif f:
                f.window += n
        elif kind == RST_STREAM and f:
            f.reset, = struct.unpack(">I", p)
        elif kind == DATA and f:
            self._data(f, flags, p)
        elif kind in (HEADERS, CONTINUATION):
            self._headers(kind, flags, number, p)
        elif kind == PUSH:
            self._rule(False, "a push")

    def _setting(self, key, value):
        self.settings[key] = value
        if key == INITIAL_WINDOW_SIZE:
            for f in self.flows.values():
                f.window += value - self.peer_window
            self.peer_window = value
        elif key == MAX_FRAME_SIZE:
            self.peer_frame = value

    def _data(self, f, flags, p):
        n = len(p)
        if flags & PADDED:
            p = p[1:len(p) - p[0]]
        self._rule(f.headers is not None and not f.ended, "data outside of an answer")
        f.data, f.received = f.data + p, f.received + len(p)
        f.ended = bool(flags & END_STREAM)
        if n:
            self.send(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", n)))
        if n and f.credit and not f.ended:
            self.send(frame(WINDOW_UPDATE, 0, f.number, struct.pack(">I", n)))

    def _headers(self, kind, flags, number, p):
        if kind == HEADERS:
            if flags & PADDED:
                p = p[1:len(p) - p[0]]
            if flags & HAS_PRIORITY:
                p = p[5:]
            self.block = (number, flags, p)
        else:
            self._rule(self.block and self.block[0] == number, "a continuation of nothing")
            self.block = (number, self.block[1], self.block[2] + p)
        if not flags & END_HEADERS:
            return
        number, first, data = self.block
        self.block = None
        fields, f = self.unpack(data), self.flows.get(number)
        for name, _ in fields:
            self._rule(name == name.lower(), f"a field name that is not lower case: {name}")
            self._rule(name not in ("connection", "keep-alive", "transfer-encoding", "upgrade"),
                       f"a field of HTTP/1: {name}")
        if not f:
            return
        self._rule(not f.ended, "headers behind the end")
        status = dict(fields).get(":status")
        if status and status.startswith("1"):
            f.informational.append(fields)
        elif f.headers is None:
            self._rule(status is not None and fields[0][0] == ":status", "no status")
            f.headers = fields
        else:
            self._rule(f.trailers is None and first & END_STREAM and status is None, "trailers")
            f.trailers = fields
        if first & END_STREAM:
            f.ended = True
