# SPDX-License-Identifier: Apache-2.0
"""gRPC and the Open Inference Protocol by hand, on frames.py: messages, calls, statuses."""
import json
import re
import struct
import urllib.parse

from frames import *

INFER = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/"
OK, CANCELLED, UNKNOWN, INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND = range(6)
RESOURCE_EXHAUSTED, ABORTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 8, 10, 12, 13, 14


def port_of(server):
    """The port for gRPC of a Server that has one."""
    return int(re.search(r"gRPC on [^ ]*:(\d+)", server.ready).group(1))


# ---- protobuf ---------------------------------------------------------------------------------------


def varint(n):
    out = b""
    while n >= 128:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    """A field: bytes and str with their length, int and bool as a varint."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    """The fields of a message, strictly: [(number, value)]."""
    def number(at):
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value, at
    out, at = [], 0
    while at < len(data):
        key, at = number(at)
        if key & 7 == 0:
            value, at = number(at)
        elif key & 7 == 2:
            n, at = number(at)
            value, at = data[at:at + n], at + n
            if len(value) != n:
                raise ValueError("a field that is cut")
        else:
            raise ValueError(f"wire type {key & 7}")
        out.append((key >> 3, value))
    return out


def one(data, number, default=None):
    found = [v for k, v in fields(data) if k == number]
    if len(found) > 1:
        raise ValueError(f"field {number} comes {len(found)} times")
    return found[0] if found else default


def every(data, number):
    return [v for k, v in fields(data) if k == number]


def element(value):
    """The raw contents of a tensor of one element."""
    if isinstance(value, bool):
        return bytes([value])
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<I", len(value)) + value


def parameter(value):
    if isinstance(value, bool):
        return field(1, int(value))
    return field(2, value) if isinstance(value, int) else field(3, value)


def infer_request(text="x", sampling=None, stream=None, id="", model="smollm2", version="", raw=True,
                  parameters=None, outputs=(), more=b""):
    """A ModelInferRequest; sampling: a dict or a text."""
    tensors = [("text_input", "BYTES", text)]
    if stream is not None:
        tensors.append(("stream", "BOOL", stream))
    if sampling is not None:
        tensors.append(("sampling_parameters", "BYTES", sampling if isinstance(sampling, str) else json.dumps(sampling)))
    out = field(1, model) + (field(2, version) if version else b"") + (field(3, id) if id else b"")
    for k, v in (parameters or {}).items():
        out += field(4, field(1, k) + field(2, parameter(v)))
    contents = b""
    for name, kind, value in tensors:
        tensor = field(1, name) + field(2, kind) + field(3, b"\1")
        if raw:
            contents += field(7, element(value))
        elif kind == "BOOL":
            tensor += field(5, field(1, bytes([value])))
        else:
            tensor += field(5, field(8, value))
        out += field(5, tensor)
    for name in outputs:
        out += field(6, field(1, name))
    return out + contents + more


class Answer:
    """A ModelInferResponse, taken apart."""

    def __init__(self, data, error=""):
        self.error = error
        self.model = one(data, 1, b"").decode()
        self.version = one(data, 2, b"").decode()
        self.id = one(data, 3, b"").decode()
        self.parameters, self.outputs = {}, {}
        for entry in every(data, 4):
            (kind, value), = fields(one(entry, 2))
            self.parameters[one(entry, 1).decode()] = bool(value) if kind == 1 else value.decode() if kind == 3 else value
        raw = every(data, 6)
        tensors = every(data, 5)
        if len(raw) != len(tensors):
            raise ValueError("raw contents for every output, or for none")
        for tensor, r in zip(tensors, raw):
            name, kind, shape = one(tensor, 1).decode(), one(tensor, 2).decode(), one(tensor, 3)
            if shape != b"\1":
                raise ValueError(f"shape {shape!r}")
            if kind == "BYTES":
                n, = struct.unpack_from("<I", r)
                if n + 4 != len(r):
                    raise ValueError("not one element")
                value = r[4:].decode("utf-8")
            else:
                value, = struct.unpack("<q", r)
            self.outputs[name] = value

    @property
    def last(self):
        return self.parameters.get("triton_final_response")

    @property
    def text(self):
        return self.outputs.get("text_output")


def stream_answer(data):
    return Answer(one(data, 2, b""), one(data, 1, b"").decode())


# ---- calls --------------------------------------------------------------------------------------------

def prefixed(message, flag=0):
    return struct.pack(">BI", flag, len(message)) + message


class Call:
    """One gRPC call: write(), half-close by done(); read messages; then status and message."""

    def __init__(self, session, path, timeout=None, headers=(), credit=None, content_type="application/grpc"):
        head = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
                ("te", "trailers"), ("content-type", content_type), *headers]
        if timeout:
            head.append(("grpc-timeout", timeout))
        self.flow = session.request(head, end=False, credit=credit)
        self.answers = []

    def write(self, message, flag=0):
        self.flow.send(prefixed(message, flag))
        return self

    def done(self):
        self.flow.session.send(frame(DATA, END_STREAM, self.flow.number))
        return self

    def message(self, limit=60.0):
        """The next message; None: there is none any more."""
        f = self.flow
        if not f.wait(lambda: len(f.data) >= 5, limit):
            return None
        flag, n = struct.unpack(">BI", f.data[:5])
        if flag:
            raise ValueError("a compressed message that nobody asked for")
        if not f.wait(lambda: len(f.data) >= 5 + n, limit):
            raise EOFError("a message that is cut")
        f.take(5)
        return f.take(n)

    def infer(self, message):
        return self.write(message)

    def answer(self, limit=60.0):
        """The next response of ModelStreamInfer; None: none."""
        m = self.message(limit)
        if m is None:
            return None
        self.answers.append(stream_answer(m))
        return self.answers[-1]

    def read(self, n):
        while n and self.answer() is not None:
            n -= 1
        return self

    def until_last(self, id=None):
        """Answers up to the last one of a request (of any, without an id)."""
        while (a := self.answer()) is not None:
            if a.last and id in (None, a.id):
                return a
        return None

    def end(self, limit=60.0):
        """(status, message); (None, code): it was reset."""
        f = self.flow
        f.wait(f.over, limit)
        if f.reset is not None and not f.ended:
            return None, f.reset
        got = dict(f.trailers or f.headers or [])
        status = got.get("grpc-status")
        return (int(status) if status else None), urllib.parse.unquote(got.get("grpc-message", ""))

    def cancel(self):
        self.flow.cancel()

    def of(self, id):
        return [a for a in self.answers if a.id == id]


def unary(session, path, message=b"", **kw):
    """(answer or None, status, message)"""
    c = Call(session, path, **kw)
    c.write(message).done()
    m = c.message()
    status, text = c.end()
    return m, status, text
