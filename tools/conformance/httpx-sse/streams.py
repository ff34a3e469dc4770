# SPDX-License-Identifier: Apache-2.0
"""httpx-sse and sseclient-py: readers of server-sent events, on the three shapes there are, and resuming by
the id of the last event."""
from importlib.metadata import version

import httpx
import requests
from httpx_sse import connect_sse
from sseclient import SSEClient

from claims import *

CHAT, NATIVE = URL + "/v1/chat/completions", URL + "/v1/streams"


def httpx_events(method, url, **kw):
    with httpx.Client(timeout=WAIT_S) as http, connect_sse(http, method, url, **kw) as src:
        src.response.raise_for_status()
        yield from ((e.event, e.id, e.data) for e in src.iter_sse())


def requests_events(method, url, json=None, headers=None):
    r = requests.request(method, url, json=json, headers=dict(headers or {}, Accept="text/event-stream"), stream=True, timeout=WAIT_S)
    r.raise_for_status()
    try:
        yield from ((e.event, e.id, e.data) for e in SSEClient(r).events())
    finally:
        r.close()


def of(events):
    """What each reader is asked."""
    text, _ = words(max_tokens=40)

    def chat():
        got = list(events("POST", CHAT, json=dict(SAID, max_tokens=40, stream=True)))
        equal("stream", got[-1][2], "[DONE]", "chat: the end")
        equal("stream", "".join(json.loads(d)["choices"][0]["delta"].get("content", "") for _, _, d in got[:-1]), text, "chat: the text")
        check("stream", all(e == "message" and not i for e, i, _ in got), "chat: neither names nor ids")

    def native():
        got = list(events("POST", NATIVE, json=dict(SAID, max_tokens=40)))
        said = [json.loads(d) for _, _, d in got]
        check("stream", all(e == x["type"] for (e, _, _), x in zip(got, said)), "native: names")
        check("stream", all(x.get("id", i) == i for (_, i, _), x in zip(got, said)), "native: ids")
        equal("stream", "".join(x.get("text", "") for x in said), text, "native: the text")
        equal("stream", said[-1]["type"], "response.incomplete", "native: the end")

    def resume():
        head = []
        it = events("POST", NATIVE, json=dict(SAID, max_tokens=40, on_disconnect="hold"))
        for e in it:
            head.append(e)
            if len(head) == 9:
                break
        it.close()
        last = head[-1][1]
        rest = list(events("GET", f"{NATIVE}/{last.rpartition(':')[0]}", headers={"Last-Event-ID": last}))
        said = [json.loads(d) for _, _, d in head + rest]
        equal("retry", "".join(x.get("text", "") for x in said), text, "goes on where it was cut")
        ids = [x["id"] for x in said if "id" in x]
        equal("retry", len(set(ids)), len(ids), "and nothing twice")

    def cancel():
        with cancels("left in the middle"):
            it = events("POST", CHAT, json=dict(SAID, max_tokens=LONG, stream=True))
            for _ in zip(range(5), it):
                pass
            it.close()

    def error():
        said = [json.loads(d) for _, _, d in events("POST", NATIVE, json=dict(SAID, max_tokens=LONG, timeout_s=0.3))]
        equal("error", (said[-1]["type"], said[-1]["reason"]), ("response.cancelled", "deadline_exceeded"), "why it ended")
        raises("error", (httpx.HTTPStatusError, requests.HTTPError), lambda: list(events("POST", NATIVE, json=dict(SAID, max_tokens=-1))), "a bad value")

    for fn in (chat, native, resume, cancel, error):
        with trying("stream", f"{fn.__name__}: no exception"):
            fn()


client("httpx-sse", version("httpx-sse"))
of(httpx_events)
client("sseclient-py", version("sseclient-py"))
of(requests_events)
