# SPDX-License-Identifier: Apache-2.0
"""What carries a request and its answer: one Call for each, whatever the wire.

  begin()  until the first content of a streamed answer is there
  read()   to the end: status, body, and whether the end was `whole` or `cut`
  leave()  the client is gone, in the way of this carrier
  stalls:  made with slow=True, it takes as little as the wire lets it until read() is called"""
from lib import *


class Call:
    def __init__(self, dialect, rid):
        self.dialect, self.rid = dialect, rid
        self.status, self.body, self.end, self.stream_id = 0, b"", None, None

    def said(self):
        return self.dialect.said(self.body)

    def drop(self):
        """Nothing more is wanted of it."""


def content_mark(dialect):
    """Bytes that come with the first content and not before."""
    return {"chat": b'"content":"', "completions": b'"text":', "responses": b"output_text.delta",
            "messages": b"content_block_delta"}.get(dialect.name, b"output_text.delta")


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
            while mark not in self.body + self.conn.buf or not self.conn.buf:
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


CARRIERS = {"http/1.1": Http1}
