# SPDX-License-Identifier: Apache-2.0
"""One request in any framing, on HTTP/1.1 and 1.0, with a parser that knows nothing but its rules."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
FRAMINGS = {  # path, extra headers, streamed
    "chat": (CHAT, [], True),
    "completions": (COMP, [], True),
    "native": (NATIVE, [], True),
    "ndjson": (NATIVE, ["Accept: application/x-ndjson"], True),
    "chat whole": (CHAT, [], False),
    "completions whole": (COMP, [], False),
}
MESSAGES = "/v1/messages"
DIALECTS = {  # others than OpenAI's and ours: the same, for tests that know how each of them ends
    "messages": (MESSAGES, [], True),
    "messages whole": (MESSAGES, [], False),
}
ALL = {**FRAMINGS, **DIALECTS}
VERSIONS = {"1.1": ("1.1", []), "1.0": ("1.0", []), "1.0 kept": ("1.0", ["Connection: keep-alive"])}


class Wire:
    """One request, its bytes, and how they came to an end."""

    def __init__(self, server, framing, version, body, slow=False, conn=None, headers=()):
        path, own, streamed = ALL[framing]
        http, more = VERSIONS[version]
        self.framing, self.version, self.streamed = framing, version, streamed
        self.rid = f"{framing}-{version}-{random.getrandbits(48):x}".replace(" ", "-")
        body = dict(body, stream=streamed) if path != NATIVE else dict(body)
        body.update(messages=chat("x")["messages"]) if path in (CHAT, MESSAGES) else body.update(prompt="x")
        if path == MESSAGES:
            body.setdefault("max_tokens", 8192)
            if "stop" in body:
                body["stop_sequences"] = [body.pop("stop")]
        if slow:  # large events, so that few of them fill what the kernel takes
            body.update({"logprobs": True, "top_logprobs": 20} if path == CHAT else {"logprobs": 5})
        self.conn = conn or server.conn(rcvbuf=4096 if slow else 0)
        self.conn.send(request("POST", path, body, [*own, *more, *headers, f"X-Request-Id: {self.rid}"], http))
        self.status, self.head, self.body, self.end = 0, {}, b"", None

    def __str__(self):
        return f"{self.framing} on {self.version}"

    def start(self):
        """Up to the first content; what is not streamed has none."""
        if self.streamed:
            self.status, _, self.head = self.conn.head()
            mark = {"chat": b'"content":"', "completions": b'"text":', "messages": b"text_delta"}.get(self.framing, b"output_text")
            while mark not in self.conn.buf:
                if not self.conn.more():
                    raise EOFError("no content")
        return self

    def read(self):
        """To the end; self.end: chunk, length, fin (an end that may be meant), cut, reset."""
        try:
            if not self.status:
                self.status, _, self.head = self.conn.head()
            if "content-length" in self.head:
                self.body = self.conn.take(int(self.head["content-length"]))
                self.end = "length"
            elif self.head.get("transfer-encoding") == "chunked":
                while (c := self.conn.chunk()):
                    self.body += c
                self.end = "chunk"
            else:
                while self.conn.more():
                    pass
                self.body, self.conn.buf = self.conn.buf, b""
                self.end = "fin"
        except EOFError:
            self.end = "cut"
        except ConnectionResetError:
            self.end = "reset"
        return self

    def events(self):
        """The events, by a parser that knows nothing but the framing's rules."""
        text = self.body.decode("utf-8")
        if self.framing == "ndjson":
            lines = [strict_json(x) for x in text.splitlines()]
            return [x for x in lines if x["type"] != "keepalive"]
        out = []
        for block in text.split("\n\n")[:-1]:
            fields = [x for x in block.split("\n") if not x.startswith(":")]
            names = [x.split(": ", 1)[0] for x in fields]
            want = {"native": [["event", "data"], ["id", "event", "data"]], "messages": [["event", "data"]]}.get(
                self.framing, [[], ["data"]])
            if names not in want:
                raise ValueError(f"a block of {names}: {block!r}")
            if fields:
                data = fields[-1][6:]
                out.append(data if data == "[DONE]" else strict_json(data))
        if text and not text.endswith("\n\n"):
            raise ValueError("half a block")
        return out
