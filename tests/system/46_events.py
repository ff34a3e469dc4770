# SPDX-License-Identifier: Apache-2.0
"""Every event of native streams, however they end, is what docs/events.v1.schema.json says, and nothing
that it does not say."""
from lib import *
from schema import Schema

NATIVE = "/v1/streams"
NDJSON = ["Accept: application/x-ndjson"]
with open(os.path.join(ROOT, "docs/events.v1.schema.json"), encoding="utf-8") as _f:
    SCHEMA = Schema(json.load(_f), closed=True)
ALL = {SCHEMA.root["$defs"][r["$ref"].rsplit("/", 1)[1]]["properties"]["type"]["const"]
       for r in SCHEMA.root["oneOf"]}
SEEN = set()
EOS = 257  # of the small vocabulary


def events(data, ndjson):
    """Events of a whole body; in SSE the fields say the same as the object."""
    if ndjson:
        return [strict_json(x) for x in data.decode("utf-8").splitlines()]
    out = []
    for name, kind, e in native_events(data):
        check((e.get("id"), e["type"]) == (name, kind), "id and type beside the object", name, kind, e)
        out.append(e)
    return out


def valid(evs, claim):
    for e in evs:
        faults = SCHEMA.faults(e)
        check(not faults, f"{claim}: {e['type']}", faults, e)
        SEEN.add(e["type"])
    kinds = [e["type"] for e in evs if e["type"] != "keepalive"]
    check(kinds[0] == "response.started" and kinds[-2] == "usage", f"{claim}: first and last but one", kinds)
    return evs


class Watch:
    """A native stream, read in pieces."""

    def __init__(self, server, body, headers):
        self.ndjson = headers == NDJSON
        self.conn = server.conn()
        self.conn.send(request("POST", NATIVE, body, headers))
        self.status, _, self.head = self.conn.head()
        self.body = b""

    def until_seen(self, word):
        while word not in self.body:
            self.body += self.conn.chunk()
        return self

    def rest(self):
        while (c := self.conn.chunk()):
            self.body += c
        self.conn.close()
        return events(self.body, self.ndjson)


def both(body, claim, act=None, server=None):
    """In both framings; `act` once it has begun.  The last events."""
    ends = []
    for headers in ([], NDJSON):
        w = Watch(server or S, body, headers)
        if act:
            act(w.until_seen(b"output_text.delta"))
        ends.append(valid(w.rest(), claim)[-1])
    return ends


def body(**kw):
    return dict(completion("some words"), **kw)


@test
def the_checker_finds_what_is_wrong():
    sid = "tr-0-1-0123456789abcdef"
    good = {"type": "output_text.delta", "id": f"{sid}:3", "index": 0, "text": "x", "tokens": 1}
    equal(SCHEMA.faults(good), [], "a good event")
    for bad in ({}, {"type": "output_text"}, dict(good, id=f"{sid}:03"), dict(good, id=f"{sid}"),
                dict(good, tokens=-1), dict(good, tokens=True), dict(good, text=None), dict(good, new=1),
                dict(good, logprobs={"tokens": ["x"]}), dict(good, type="usage"), [good], "x",
                {k: v for k, v in good.items() if k != "index"}):
        check(SCHEMA.faults(bad), "a bad event", bad)


@test
def natural_ends():
    for more in ({}, {"logprobs": 3}, {"echo": True, "logprobs": 1}, {"stop": ["a", " "]}, {"n": 3}):
        ends = both(body(max_tokens=40, seed=3, **more), f"an answer {more}")
        check(all(e["type"] in ("response.completed", "response.incomplete") for e in ends), "it ends well", ends)
    both(dict(chat("Hi"), max_tokens=20, logprobs=True, top_logprobs=2), "chat fields")
    for e in both(dict(force(EOS), prompt="x"), "end of turn"):
        equal(e["finish_reason"], "stop", "the model ended its turn")
    for e in both(body(max_tokens=3, ignore_eos=True), "length"):
        equal(e["reason"], "length", "as long as it may be")


@test
def cancelled():
    def delete(w):
        equal(S.ask("DELETE", f"{NATIVE}/{w.head['x-tokenring-stream']}", None).status, 200, "DELETE")
    for e in both(body(max_tokens=4000, ignore_eos=True), "DELETE", delete):
        equal((e["type"], e["reason"]), ("response.cancelled", "cancelled"), "its reason")
    for e in both(body(max_tokens=4000, ignore_eos=True, timeout_s=0.3), "deadline"):
        equal((e["type"], e["reason"]), ("response.cancelled", "deadline_exceeded"), "its reason")


@test
def queued_in_prefill_and_in_silence():
    with Server(TINY, max_seqs=1, sim_step_us=20000, sim_prefill_us=2000, prefill_chunk=16,
                heartbeat_s=1) as s:
        first = Watch(s, body(max_tokens=100, ignore_eos=True), NDJSON)
        waiting = [Watch(s, dict(body(max_tokens=1), prompt="word " * 30), h) for h in ([], NDJSON)]
        for w in [first] + waiting:
            valid(w.rest(), "a queue")


@test
def an_error():
    """The engine dies of this request, again and again."""
    with Server(TINY, faults=True) as s:
        s.faults.arm("engine.pass.sequence", "segv", left=ALWAYS, skip=3, match=777)
        for e in both(body(max_tokens=4000, seed=777), "engine_crashed", server=s):
            equal(e["code"], "engine_crashed", "its code")


@test
def nothing_of_the_schema_is_unseen():
    equal(SEEN, ALL, "every type of the schema was seen")


S = Server(TINY)
main()
