# SPDX-License-Identifier: Apache-2.0
"""HTTP/3 as a client, by aioquic: one stream on one connection, read to its end or given up."""
import asyncio
import ssl
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

REQUEST_CANCELLED = 0x10c


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kw):
        super().__init__(*args, **kw)
        self.http, self.headers, self.pieces = H3Connection(self._quic), {}, []
        self.news, self.ended = asyncio.Event(), False

    def quic_event_received(self, event):
        for e in self.http.handle_event(event):
            if isinstance(e, HeadersReceived) and not self.headers:
                self.headers = {k.decode(): v.decode() for k, v in e.headers}
            elif isinstance(e, DataReceived) and e.data:
                self.pieces.append((time.monotonic(), e.data))
            self.ended = self.ended or getattr(e, "stream_ended", False)
            self.news.set()

    def body(self):
        return b"".join(b for _, b in self.pieces)


async def _post(port, ca, path, body, headers, enough):
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, is_client=True, cafile=ca, verify_mode=ssl.CERT_REQUIRED, server_name="localhost")
    async with connect("127.0.0.1", port, configuration=configuration, create_protocol=Client) as c:
        stream = c._quic.get_next_available_stream_id()
        fields = [(":method", "POST"), (":scheme", "https"), (":authority", "localhost"), (":path", path),
                  ("content-type", "application/json"), *headers]
        c.http.send_headers(stream, [(k.encode(), v.encode()) for k, v in fields])
        c.http.send_data(stream, body, end_stream=True)
        c.transmit()
        while not c.ended and not (enough and enough(c.body())):
            c.news.clear()
            await c.news.wait()
        if not c.ended:  # it is given up, its connection goes on for a moment
            c.left_at = time.time()
            c._quic.stop_stream(stream, REQUEST_CANCELLED)
            c.transmit()
            await asyncio.sleep(1)
        return c


def post(port, ca, path, body, headers=(), enough=None, limit=60):
    """The Client when the answer is whole, or was given up because enough(body) said so (left_at)."""
    return asyncio.run(asyncio.wait_for(_post(port, ca, path, body, headers, enough), limit))
