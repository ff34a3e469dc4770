# SPDX-License-Identifier: Apache-2.0
"""websockets: the client that Python programs use, threads and asyncio, on /v1/ws."""
import asyncio

import websockets
import websockets.sync.client as sync

from claims import *

WS = URL.replace("http:", "ws:") + "/v1/ws"
ENDS = ("response.completed", "response.incomplete", "response.cancelled", "error", "stream.reset")


class Client:
    """events[label] of one connection."""

    def __init__(self, **kw):
        self.ws, self.events = sync.connect(WS, open_timeout=WAIT_S, **kw), {}

    def say(self, **message):
        self.ws.send(json.dumps(message))

    def start(self, label, **more):
        self.say(type="start", stream=label, request=dict(SAID, **more))

    def next(self):
        m = json.loads(self.ws.recv(WAIT_S))
        self.events.setdefault(m.get("stream", ""), []).append(m)
        return m

    def until(self, label, *kinds):
        while not self.events.get(label) or self.events[label][-1]["type"] not in kinds:
            self.next()
        return self.events[label][-1]

    def text(self, label):
        return "".join(m["text"] for m in self.events[label] if m["type"] == "output_text.delta")


client("websockets", websockets.__version__)
text, usage = words(max_tokens=40)

with trying("stream", "one stream"):
    c = Client(compression="deflate")  # asked for, and not given
    equal("stream", c.ws.protocol.extensions, [], "no extension")
    c.start("a", max_tokens=40)
    equal("stream", c.until("a", *ENDS)["type"], "response.incomplete", "the end")
    equal("stream", c.text("a"), text, "the text")
    used = next(m["usage"] for m in c.events["a"] if m["type"] == "usage")
    equal("stream", used["completion_tokens"], usage["completion_tokens"], "the usage")
    c.ws.close()
    equal("stream", c.ws.protocol.close_code, 1000, "closed as it should be")

with trying("stream", "several at a time, and the subprotocol"):
    c = Client(subprotocols=["tokenring.events.v1"])
    equal("stream", c.ws.subprotocol, "tokenring.events.v1", "the subprotocol")
    for label in "abcd":
        c.start(label, max_tokens=40)
    for label in "abcd":
        c.until(label, *ENDS)
    equal("stream", {c.text(x) for x in "abcd"}, {text}, "four texts")
    c.ws.close()

with trying("stream", "a message in fragments, and pings"):
    c = Client(ping_interval=0.2)
    raw = json.dumps({"type": "start", "stream": "f", "request": dict(SAID, max_tokens=40)})
    c.ws.send(raw[i:i + 7] for i in range(0, len(raw), 7))
    pong = c.ws.ping()
    c.until("f", *ENDS)
    equal("stream", c.text("f"), text, "the text of a request in fragments")
    check("stream", pong.wait(WAIT_S), "a ping has its pong")
    c.ws.close()


async def with_asyncio():
    async with websockets.connect(WS) as ws:
        await ws.send(json.dumps({"type": "start", "stream": "a", "request": dict(SAID, max_tokens=40)}))
        got = ""
        async for raw in ws:
            m = json.loads(raw)
            got += m.get("text", "")
            if m["type"] in ENDS:
                return got, m["type"]


with trying("stream", "asyncio"):
    equal("stream", asyncio.run(with_asyncio()), (text, "response.incomplete"), "asyncio: text and end")

with trying("cancel", "by message"):
    c = Client()
    c.start("a", ignore_eos=True, max_tokens=2000)
    c.until("a", "output_text.delta")
    c.say(type="cancel", id=c.events["a"][0]["stream_id"])
    end = c.until("a", *ENDS)
    used = next(m["usage"]["completion_tokens"] for m in c.events["a"] if m["type"] == "usage")
    equal("cancel", (end["type"], end["reason"], end["last_token"] + 1), ("response.cancelled", "cancelled", used), "acknowledged with the last token")
    c.ws.close()

with trying("cancel", "by leaving"):
    c = Client()
    c.start("a", ignore_eos=True, max_tokens=2000)
    c.until("a", "output_text.delta")
    with cancels("closing the connection"):
        c.ws.close()

with trying("error", "refusals"):
    c = Client()
    c.start("a", max_tokens=-1)
    m = c.next()
    equal("error", (m["stream"], m["type"], m["code"], m["param"], m["status"]), ("a", "error", "invalid_value", "max_tokens", 400), "a bad parameter")
    c.ws.send("{")
    equal("error", c.next()["code"], "invalid_json", "what is not JSON")
    c.events.clear()
    c.start("a", max_tokens=40)
    c.until("a", *ENDS)
    equal("error", c.text("a"), text, "the connection goes on")
    c.ws.send(b"{}")
    raises("error", websockets.ConnectionClosedError, c.next, "binary ends it")
    equal("error", c.ws.protocol.close_code, 1003, "with its code")
    e = raises("error", websockets.InvalidStatus, lambda: sync.connect(WS, origin="http://evil.example"), "another page's origin")
    equal("error", e and e.response.status_code, 403, "403")

with trying("retry", "resume"):
    c = Client()
    c.start("a", max_tokens=40, on_disconnect="hold")
    while len(c.text("a") if "a" in c.events else "") < 20:
        c.next()
    head, last = c.text("a"), next(m["id"] for m in reversed(c.events["a"]) if "id" in m)
    c.ws.socket.shutdown(socket.SHUT_RDWR)
    sid, number = last.split(":")
    c = Client()
    c.say(type="resume", id=sid, stream="r", after=int(number))
    equal("retry", c.until("r", *ENDS)["type"], "response.incomplete", "resumed: the end")
    equal("retry", head + c.text("r"), text, "resumed: the text")
    c.ws.close()

with trying("retry", "no place"):
    c = Client()
    for k in range(7):
        c.start(f"s{k}", ignore_eos=True, max_tokens=2000)
    refused = None
    while not refused:
        m = c.next()
        refused = m if m["type"] == "error" else None
    equal("retry", (refused["code"], refused["status"], refused["retryable"]), ("engine_overloaded", 503, True), "no place: may be tried again")
    c.ws.close()
