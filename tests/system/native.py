# SPDX-License-Identifier: Apache-2.0
"""Whatever a test reads of a native stream, by whatever parser, is looked at here as well: each event is
what docs/events.v1.schema.json says and nothing that it does not say, and they come in its order."""
import json
import os
import re

from schema import Schema

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
with open(os.path.join(ROOT, "docs/events.v1.schema.json"), encoding="utf-8") as _f:
    SCHEMA = Schema(json.load(_f), closed=True)
# Which alternative an event must be is told by its type: ten times as fast as trying all.
RULES = {rule["properties"]["type"]["const"]: rule for rule in
         (SCHEMA.root["$defs"][r["$ref"].rsplit("/", 1)[1]] for r in SCHEMA.root["oneOf"])}
ENDS = {"response.completed", "response.incomplete", "response.cancelled", "error"}
UNNUMBERED = {"response.queued", "response.prefill", "keepalive"}
FRESH = re.compile(rb"POST /v1/streams(\?\S*)? HTTP/")
AGAIN = re.compile(rb"GET /v1/streams/(?!\S*format=(?!native))\S+ HTTP/")


def event_faults(event):
    """What is wrong with one event."""
    kind = event.get("type") if isinstance(event, dict) else None
    if kind not in RULES:
        return [f"{kind!r} is no type of the schema: {event!r:.200}"]
    return SCHEMA.faults(event, RULES[kind], kind)


class Order:
    """The events of one reader, one by one: faults(event) is what is wrong with the next."""

    def __init__(self, fresh):
        self.first = self.fresh = fresh  # it must begin with response.started
        self.number, self.before = -1, None
        self.calls = {}  # choice: number of its call that is open, or of the next
        self.open = set()  # choices in the midst of a call

    def faults(self, event):
        out = event_faults(event)
        kind = event.get("type") if isinstance(event, dict) else None
        if kind == "keepalive":
            return out
        if self.first and kind != "response.started":
            out.append(f"{kind} before response.started")
        if self.before in ENDS:
            out.append(f"{kind} after {self.before}")
        resumed = self.before is None and not self.first  # maybe behind the usage
        if not resumed and (kind in ENDS) != (self.before == "usage"):
            out.append(f"{kind} after {self.before}: usage and the end belong together")
        out += self._calls(kind, event) if not out else []
        if kind not in UNNUMBERED and not out:
            number = int(event["id"].rpartition(":")[2])
            if number <= self.number:
                out.append(f"{kind} is number {number}, after {self.number}")
            self.number = number
        self.first, self.before = False, kind
        return out

    def _calls(self, kind, event):
        choice, call = event.get("index"), event.get("call")
        if not self.fresh and choice not in self.calls and kind in ("tool_call.delta", "tool_call.done"):
            self.calls[choice] = call  # resumed, maybe in the midst of one
            if "name" not in event:
                self.open.add(choice)
        if kind == "tool_call.delta" and "name" in event:
            begun = choice in self.open
            self.open.add(choice)
            if self.calls.setdefault(choice, call) != call or begun or "call_id" not in event:
                return [f"call {call} begins, with {self.calls[choice]} open or due"]
        elif kind in ("tool_call.delta", "tool_call.done"):
            if choice not in self.open or call != self.calls[choice]:
                return [f"{kind} of call {call}, which is not open"]
            if kind == "tool_call.done":
                self.open.discard(choice)
                self.calls[choice] = call + 1
        elif kind in ("output_text.delta", "reasoning.delta") and choice in self.open:
            return [f"{kind} within call {self.calls[choice]}"]
        return []


class Reader:
    """Bytes of a body as they come; wrong(claim, *seen) is called for each fault."""

    def __init__(self, ndjson, fresh, wrong):
        self.ndjson, self.order, self.wrong, self.buf = ndjson, Order(fresh), wrong, b""

    def feed(self, data):
        *whole, self.buf = (self.buf + data).split(b"\n" if self.ndjson else b"\n\n")
        for block in whole:
            try:
                faults = self._line(block) if self.ndjson else self._block(block)
            except ValueError as e:
                faults = [str(e)]
            if faults:
                self.wrong("a native event", block[:300], faults)

    def _line(self, line):
        return self.order.faults(json.loads(line))

    def _block(self, block):
        fields = [x.split(": ", 1) for x in block.decode("utf-8").split("\n") if not x.startswith(":")]
        if not fields:
            return []
        names = [f[0] for f in fields]
        if names not in (["event", "data"], ["id", "event", "data"]):
            return [f"fields {names}"]
        event = json.loads(fields[-1][1])
        told = dict(zip(names, (f[1] for f in fields)))
        beside = (told.get("id"), told["event"])
        out = [] if beside == (event.get("id"), event.get("type")) else [f"{beside} beside {event}"]
        return out + self.order.faults(event)


def reader_of(request, headers, wrong):
    """A Reader for the body of this answer, None if it holds no native events."""
    kind = headers.get("content-type", "")
    fresh = bool(FRESH.match(request))
    if not fresh and not AGAIN.match(request):
        return None
    if kind.startswith("text/event-stream") or kind == "application/x-ndjson":
        return Reader(kind == "application/x-ndjson", fresh, wrong)
    return None
