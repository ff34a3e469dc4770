# SPDX-License-Identifier: Apache-2.0
"""Every event of native streams, however they end, is what docs/events.v1.schema.json says, and nothing
that it does not say (native.py, which looks at whatever any test reads); what the events of waiting and
of a cancel tell; and what version 1 has promised its readers."""
from lib import *
from native import ENDS, RULES, SCHEMA, Reader, event_faults

NATIVE = "/v1/streams"
NDJSON = ["Accept: application/x-ndjson"]
SEEN = set()
EOS = 257  # of the small vocabulary
# Version 1 as readers know it: fields that each type has had from the beginning, and what its end means in
# the ledger.  Rows are added, never changed: that would be version 2.
V1 = {
    "response.started": "id stream_id schema model created request_id choices",
    "response.queued": "position",
    "response.prefill": "done total",
    "output_text.delta": "id index text tokens",
    "reasoning.delta": "id index text tokens",
    "tool_call.delta": "id index call arguments tokens",
    "tool_call.done": "id index call tokens",
    "choice.finished": "id index finish_reason",
    "usage": "id usage",
    "response.completed": "id finish_reason",
    "response.incomplete": "id reason finish_reason",
    "response.cancelled": "id reason last_token",
    "error": "id code message retryable",
    "keepalive": "",
}
V1_ENDS = {"response.completed": "completed", "response.incomplete": "incomplete", "response.cancelled": "cancelled",
           "error": "error"}


def events(data, ndjson):
    """Events of a whole body."""
    if ndjson:
        return [strict_json(x) for x in data.decode("utf-8").splitlines()]
    return [e for _, _, e in native_events(data)]


def valid(evs, claim, server):
    """Each was looked at as it was read; here, whether all of it was, and the row of the ledger."""
    SEEN.update(e["type"] for e in evs)
    check(not any(SCHEMA.faults(e) for e in evs), f"{claim}: of all alternatives one fits", evs)
    equal(evs[0]["type"], "response.started", f"{claim}: the first")
    row = server.row(evs[0]["request_id"])
    if check(evs[-1]["type"] in ENDS and row, f"{claim}: an end and a row", evs[-1], row):
        equal(row["status"], V1_ENDS[evs[-1]["type"]], f"{claim}: what its end means")
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
        ends.append(valid(w.rest(), claim, server or S)[-1])
    return ends


def body(**kw):
    return dict(completion("some words"), **kw)


@test
def the_checker_finds_what_is_wrong():
    sid = "tr-0-1-0123456789abcdef"
    good = {"type": "output_text.delta", "id": f"{sid}:3", "index": 0, "text": "x", "tokens": 1}
    equal(SCHEMA.faults(good) + event_faults(good), [], "a good event")
    for bad in ({}, {"type": "output_text"}, dict(good, id=f"{sid}:03"), dict(good, id=f"{sid}"),
                dict(good, tokens=-1), dict(good, tokens=True), dict(good, text=None), dict(good, new=1),
                dict(good, logprobs={"tokens": ["x"]}), dict(good, type="usage"), [good], "x",
                {k: v for k, v in good.items() if k != "index"}):
        check(SCHEMA.faults(bad) and event_faults(bad), "a bad event", bad)


@test
def the_documented_stream_is_one():
    """The stream that docs/events.md shows, as a reader would take it."""
    with open(os.path.join(ROOT, "docs/events.md"), encoding="utf-8") as f:
        shown = re.search(r"^```\n(id: .*?)^```$", f.read(), re.M | re.S)[1]
    faults = []
    Reader(False, True, lambda *what: faults.append(what)).feed(shown.encode())
    evs = events(shown.encode(), False)
    equal([faults, [SCHEMA.faults(e) + event_faults(e) for e in evs]], [[], [[]] * len(evs)], "no fault in it")
    equal(evs[-1]["type"], "response.incomplete", "it has an end")


@test
def the_reader_finds_what_is_wrong():
    """In what order events came, and what stands beside them."""
    sid = "tr-0-1-0123456789abcdef"
    start = {"type": "response.started", "id": f"{sid}:0", "stream_id": sid, "schema": "tokenring.events.v1",
             "model": "m", "created": 1, "request_id": "r", "choices": 1}
    text = {"type": "output_text.delta", "id": f"{sid}:1", "index": 0, "text": "x", "tokens": 1}
    wait = {"type": "response.queued", "position": 0}
    counts = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
    usage = {"type": "usage", "id": f"{sid}:2", "usage": counts}
    end = {"type": "response.completed", "id": f"{sid}:3", "finish_reason": "stop"}

    def faults(evs, ndjson, fresh=True, name=None):
        seen = []
        r = Reader(ndjson, fresh, lambda *what: seen.append(what))
        for e in evs:
            told = f"id: {name or e['id']}\n" if "id" in e else ""
            r.feed((json.dumps(e) + "\n" if ndjson else f": c\n{told}event: {e['type']}\ndata: {json.dumps(e)}\n\n").encode())
        return seen

    for ndjson in (True, False):
        equal(faults([start, wait, text, usage, end], ndjson), [], "a good stream")
        for rest in ([text, usage, end], [usage, end], [end]):
            equal(faults(rest, ndjson, fresh=False), [], "the rest of one")
        for bad in ([text], [start, text, text], [start, dict(text, id=f"{sid}:2"), text], [start, usage, wait, end], [start, usage, text],
                    [start, text, end], [start, usage, end, text], [start, start], [start, {"type": "new"}], [start, dict(text, new=1)]):
            check(faults(bad, ndjson), "a bad stream", bad)
    check(faults([start, text], False, name=f"{sid}:7"), "another id beside the object")


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
    """The event, the answer to the DELETE, usage and ledger name the same last token."""
    said = []

    def delete(w):
        said.append(S.ask("DELETE", f"{NATIVE}/{w.head['x-tokenring-stream']}", None).json)
    for ndjson in (False, True):
        w = Watch(S, body(max_tokens=4000, ignore_eos=True), NDJSON if ndjson else [])
        delete(w.until_seen(b"output_text.delta"))
        evs = valid(w.rest(), "DELETE", S)
        usage, end = evs[-2]["usage"], evs[-1]
        equal((end["type"], end["reason"]), ("response.cancelled", "cancelled"), "its reason")
        equal((end["last_token"], said[-1]["last_token"], said[-1]["completion_tokens"], S.row(evs[0]["request_id"])["completion_tokens"]),
              (usage["completion_tokens"] - 1, end["last_token"], usage["completion_tokens"], usage["completion_tokens"]), "the last token")
    for e in both(body(max_tokens=4000, ignore_eos=True, timeout_s=0.3), "deadline"):
        equal((e["type"], e["reason"]), ("response.cancelled", "deadline_exceeded"), "its reason")


@test
def queued_in_prefill_and_in_silence():
    with Server(TINY, max_seqs=1, sim_step_us=20000, sim_prefill_us=2000, prefill_chunk=16,
                heartbeat_s=1) as s:
        first = Watch(s, body(max_tokens=100, ignore_eos=True), NDJSON)
        first.until_seen(b"output_text.delta")
        waiting = []
        for i, h in enumerate(([], NDJSON)):
            waiting.append(Watch(s, dict(body(max_tokens=1), prompt=f"{i}" + "word " * 30), h))
            until(lambda: s.metric("requests_waiting") == i + 1)
        valid(first.rest(), "the one before", s)
        for i, w in enumerate(waiting):
            evs = valid(w.rest(), "a queue", s)
            places = [e["position"] for e in evs if e["type"] == "response.queued"]
            check(places and places[0] == i and places == sorted(places, reverse=True), f"{i} before it, then fewer", places)
            steps = [(e["done"], e["total"]) for e in evs if e["type"] == "response.prefill"]
            done = [d for d, _ in steps]
            check(len(done) > 1 and done == sorted(set(done)) and
                  {t for _, t in steps} == {evs[-2]["usage"]["prompt_tokens"]} and done[-1] <= steps[0][1],
                  "progress in its prompt", steps, evs[-2])


@test
def an_error():
    """The engine dies of this request, again and again."""
    with Server(TINY, faults=True) as s:
        s.faults.arm("engine.pass.sequence", "segv", left=ALWAYS, skip=3, match=777)
        for e in both(body(max_tokens=4000, seed=777), "engine_crashed", server=s):
            equal(e["code"], "engine_crashed", "its code")


@test
def what_version_1_promised():
    for kind, fields in V1.items():
        rule = RULES.get(kind)
        if check(rule, f"{kind} is still a type"):
            gone = {"type", *fields.split()} - set(rule["required"])
            check(not gone, f"{kind} still has what it had", gone)
    equal(set(V1), set(RULES), "each type is promised")
    equal(set(V1_ENDS), ENDS, "each end is promised")


@test
def what_is_thought():
    """The prompt of this template ends inside reasoning."""
    with open(os.path.join(S.dir, "template"), "w", encoding="utf-8") as f:
        f.write("{% for m in messages %}{{ m.content }}{% endfor %}<think>{# </think> #}")
    with Server(TINY, chat_template=f.name) as s:
        for headers in ([], NDJSON):
            kinds = [e["type"] for e in valid(Watch(s, chat("Hi", max_tokens=9), headers).rest(), "reasoning", s)]
            check("reasoning.delta" in kinds and "output_text.delta" not in kinds, "all of it is thought", kinds)


@test
def what_is_called():
    tool = {"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}}}
    ask = dict(chat("Hi", max_tokens=200), tools=[tool], tool_choice="required", parallel_tool_calls=False)
    for headers in ([], NDJSON):
        evs = valid(Watch(S, ask, headers).rest(), "a call", S)
        equal([e for e in evs if e["type"] == "tool_call.delta"][0]["name"], "f", "its name")
        equal(evs[-1]["finish_reason"], "tool_calls", "its end")


@test
def nothing_of_the_schema_is_unseen():
    equal(SEEN, set(RULES), "every type of the schema was seen")


S = Server(TINY)
main()
