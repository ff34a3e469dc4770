# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses API: the exact order of its events, all keys of its object, background responses
that are polled, cancelled and resumed at any frontend, also when a process died.  Text, usage, ending and
ledger row are those of chat completions."""
from lib import *

PATH, CHAT = "/v1/responses", "/v1/chat/completions"
SLOW = dict(TINY, sim_step_us=10_000)
EOS = 257  # of the small vocabulary
KEYS = set("id object created_at completed_at status incomplete_details model previous_response_id instructions "
           "output error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty "
           "frequency_penalty top_logprobs temperature reasoning usage max_output_tokens max_tool_calls store "
           "background service_tier metadata safety_identifier prompt_cache_key".split())
BEGIN = ["response.created", "response.queued", "response.in_progress", "response.output_item.added",
         "response.content_part.added"]
DELTA = "response.output_text.delta"
CLOSING = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


def body(text="x", n=20, seed=1, **kw):
    """A text that depends on the seed alone."""
    return dict(dict(model=MODEL, input=text, seed=seed, max_output_tokens=n, ignore_eos=True), **kw)


def as_chat(text="x", n=20, seed=1, **kw):
    return chat(text, seed=seed, max_tokens=n, ignore_eos=True, **kw)


class Reader:
    """A reader of typed events, which may come in several chunks or several in one."""

    def __init__(self, server, ask=None, rid=None, after=None, headers=(), conn=None, **kw):
        self.conn = conn or server.conn(**kw)
        query = "?stream=true" + ("" if after is None else f"&starting_after={after}")
        self.conn.send(request("POST", PATH, dict(ask, stream=True), headers) if ask else
                       request("GET", f"{PATH}/{rid}{query}", None, headers))
        self.status, _, self.head = self.conn.head()
        self.events, self.done, self.ended, self.cut, self.left, self.chunks = [], 0, False, False, b"", []
        if self.status != 200:
            self.ended = True
            self.error = json.loads(self.conn.take(int(self.head["content-length"])))["error"]

    def more(self):
        """One chunk."""
        try:
            chunk = self.conn.chunk()
        except (EOFError, ConnectionResetError):
            self.cut = True
            return False
        self.chunks.append(len(chunk))
        self.ended = not chunk
        self.left += chunk
        *blocks, self.left = self.left.split(b"\n\n")
        for block in blocks:
            self.block(block.decode("utf-8"))
        return not self.ended

    def block(self, text):
        if text.startswith(":"):
            return
        if text == "data: [DONE]":
            self.done += 1
            return
        name, data = text.split("\n")
        e = strict_json(data.removeprefix("data: "))
        if name != "event: " + e["type"] or not data.startswith("data: ") or self.done:
            raise ValueError(f"not an event: {text!r:.300}")
        self.events.append(e)

    def read(self, n):
        """Until n events have come."""
        while len(self.events) < n and not self.ended and not self.cut:
            self.more()
        return self

    def rest(self):
        return self.read(1 << 30)

    def kinds(self):
        return [e["type"] for e in self.events]

    def numbers(self):
        return [e["sequence_number"] for e in self.events]

    def text(self):
        return "".join(e["delta"] for e in self.events if e["type"] == DELTA)

    @property
    def id(self):
        return self.events[0]["response"]["id"]

    @property
    def end(self):
        return self.events[-1].get("response")


def message(response):
    """The text of the one message of an object."""
    item, = response["output"]
    part, = item["content"]
    return part["text"]


def get(server, rid, conn=None, path=""):
    if not conn:
        return server.get(f"{PATH}/{rid}{path}")
    conn.send(request("GET", f"{PATH}/{rid}{path}"))
    return conn.response()


def background(server, conn=None, **kw):
    """The id of one that was begun."""
    c = conn or server.conn()
    c.send(request("POST", PATH, body(background=True, **kw)))
    r = c.response()
    check(r.status == 200 and r.json["status"] == "queued" and r.json["background"] and set(r.json) == KEYS,
          "a background response is begun", r.status, r.text)
    return r.json["id"]


def finished(server, rid, conn=None, path=""):
    """The object when it is no longer under way."""
    def look():
        r = get(server, rid, conn)
        return r if r.status != 200 or r.json["status"] not in ("queued", "in_progress") else None
    r = until(look)
    return r.json if r and r.status == 200 else {"status": r and r.status}


def no_slot(server, claim):
    check(until(lambda: server.metric('slots{state="busy"}') == 0 and server.metric('slots{state="ended"}') == 0),
          f"{claim}: slots are free")


# ---- events and objects -----------------------------------------------------------------------------

@test
def events_in_order():
    """Types, numbers, ids and texts of a stream; its body when it is not streamed; chat says the same."""
    with Server(dict(TINY, sim_step_us=1000), frontends=2) as s:
        r = Reader(s, body(headers=None, instructions="Be brief.", metadata={"a": "b"}),
                   headers=["X-Request-Id: order"]).rest()
        n = r.kinds().count(DELTA)
        equal(r.kinds(), BEGIN + [DELTA] * n + CLOSING + ["response.incomplete"], "the order of types")
        equal(r.numbers(), list(range(len(r.events))), "numbers from 0")
        equal((r.done, r.ended, r.cut), (1, True, False), "[DONE], and the end")
        check(len(r.chunks) >= len(r.events) + 2, "an event is a write of its own", r.chunks)
        equal({set(e["response"]) == KEYS for e in r.events if "response" in e}, {True}, "all keys")
        equal([e["response"]["status"] for e in r.events if "response" in e],
              ["queued", "queued", "in_progress", "incomplete"], "statuses")
        equal({e["response"]["instructions"] for e in r.events if "response" in e}, {"Be brief."}, "instructions")
        equal(r.end["metadata"], {"a": "b"}, "metadata")
        equal(r.end["incomplete_details"], {"reason": "max_output_tokens"}, "why it is incomplete")
        item = r.events[len(BEGIN) - 2]["item"]
        equal({e["item_id"] for e in r.events if "item_id" in e}, {item["id"]}, "one item")
        done, part, whole = (e for e in r.events if e["type"] in CLOSING)
        equal({done["text"], part["part"]["text"], whole["item"]["content"][0]["text"], message(r.end)}, {r.text()},
              "one text")
        equal([whole["item"]["status"], r.end["output"][0]["status"]], ["incomplete"] * 2, "the item's status")
        # In one piece, and as chat.
        whole = s.post(PATH, body(instructions="Be brief.", metadata={"a": "b"})).json
        same = dict(r.end, id=0, created_at=0, output=0, usage=dict(r.end["usage"], input_tokens_details=0))
        equal(dict(whole, id=0, created_at=0, output=0, usage=dict(whole["usage"], input_tokens_details=0)), same,
              "the same object")
        equal(message(whole), r.text(), "the same text")
        ask = as_chat()
        ask["messages"].insert(0, {"role": "system", "content": "Be brief."})
        c = s.post(CHAT, ask).json
        equal(c["choices"][0]["message"]["content"], r.text(), "the text of chat")
        u = r.end["usage"]
        equal((u["input_tokens"], u["output_tokens"], u["total_tokens"]),
              tuple(c["usage"][k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")), "usage of chat")
        row = s.row("order")
        check(row and (row["status"], row["prompt_tokens"], row["completion_tokens"]) ==
              ("incomplete", u["input_tokens"], u["output_tokens"]), "the row", row)


@test
def logprobs():
    """Asked for by `include` or top_logprobs: entries with the deltas, or in the body."""
    with Server(dict(TINY, sim_step_us=0)) as s:
        ask = body(n=6, include=["message.output_text.logprobs", "reasoning.encrypted_content"], top_logprobs=2)
        r = Reader(s, ask).rest()
        entries = [p for e in r.events if e["type"] == DELTA for p in e["logprobs"]]
        whole = s.post(PATH, ask).json
        equal(whole["output"][0]["content"][0]["logprobs"], entries, "streamed and whole")
        check(len(entries) == 6 and all(len(p["top_logprobs"]) == 2 for p in entries), "six with two each", entries)
        equal(Reader(s, body(n=3)).rest().events[5]["logprobs"], [], "not asked for: none")


@test
def endings():
    """Every end that a request can have, its object and its row."""
    with Server(dict(TINY, sim_step_us=2000), frontends=2) as s:
        def end(name, ask, cut=None):
            r = Reader(s, ask, headers=[f"X-Request-Id: {name}"])
            if cut:
                r.read(8)
                cut(r)
            r.rest()
            equal((r.done, r.numbers()), (1, list(range(len(r.events)))), f"{name}: [DONE] and numbers")
            row = s.row(name)
            check(row and row["completion_tokens"] == r.end["usage"]["output_tokens"], f"{name}: usage", row, r.end)
            return r, row and (row["status"], row["reason"])

        r, row = end("stop", dict(force(EOS), input="x"))
        equal(r.kinds(), BEGIN + CLOSING + ["response.completed"], "an empty answer has all its events")
        equal((r.end["status"], message(r.end), row), ("completed", "", ("completed", "stop")), "completed")
        check(r.end["completed_at"] >= r.end["created_at"], "completed_at", r.end)
        word = Reader(s, body(n=40)).rest().text()
        stop = word[20:23]
        r, row = end("string", body(n=40, stop=[stop]))
        equal((r.end["status"], message(r.end), row), ("completed", word[:word.index(stop)], ("completed", "stop_string")),
              "a stop string")
        equal(r.text(), message(r.end), "its deltas")
        r, row = end("length", body(n=3))
        equal((r.end["status"], row), ("incomplete", ("incomplete", "length")), "length")

        def failed(name, r, row, status, code):
            equal(r.kinds()[-2:], ["error", "response.failed"], f"{name}: how it ends")
            e = r.events[-2]
            equal((e["code"], e["error"]["code"], e["param"], e["error"]["message"]), (code, code, None, e["message"]),
                  f"{name}: flat and nested")
            error = None if status == "cancelled" else {"code": "server_error", "message": e["message"], "tokenring": {"code": code}}
            equal((r.end["status"], r.end["error"], row), (status, error, ("cancelled", code)), f"{name}: object and row")
            check(not set(CLOSING) & set(r.kinds()), f"{name}: nothing is said to be done", r.kinds())

        r, row = end("deadline", body(n=5000, timeout_s=0.2))
        failed("deadline", r, row, "failed", "deadline_exceeded")
        r, row = end("cancel", body(n=5000),
                     lambda r: s.ask("DELETE", f"/v1/streams/{r.head['x-tokenring-stream']}", None))
        failed("cancel", r, row, "cancelled", "cancelled")
        a = Reader(s, body(n=5000), headers=["X-Request-Id: gone"]).read(8)
        equal(get(s, a.id).status, 404, "who did not ask for background cannot come back")
        a.conn.reset()
        row = s.row("gone")
        check(row and row["reason"] == "client_disconnected", "a client that leaves cancels", row)
        no_slot(s, "endings")
        equal(s.metric("streams_without_terminal_total"), 0, "nobody was left without an end")


# ---- what is asked -----------------------------------------------------------------------------------

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"}
TOOL = {"type": "function", "name": "f"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}


@test
def input_becomes_messages():
    """Strings, parts, roles, calls and their output: as many tokens as the chat that says the same, and the
    same answer."""
    user, call = {"role": "user", "content": "Hi"}, [{"id": "c1", "type": "function",
                                                      "function": {"name": "f", "arguments": "{\"a\": 1}"}}]
    thought = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "one"},
                                                           {"type": "summary_text", "text": "two"}]}
    rows = [
        ("Hi", [user]),
        ([user], [user]),
        ([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}], [user]),
        ([{"role": "developer", "content": "Hi"}, user], [{"role": "system", "content": "Hi"}, user]),
        ([user, {"type": "message", "id": "m", "status": "completed", "role": "assistant",
                 "content": [{"type": "output_text", "text": "Yes", "annotations": []}]}, user],
         [user, {"role": "assistant", "content": "Yes"}, user]),
        ([user, {"type": "reasoning", "summary": []}, {"role": "assistant", "content": "Yes"}, user],
         [user, {"role": "assistant", "content": "Yes"}, user]),
        ([user, thought, {"role": "assistant", "content": "Yes"}, user],
         [user, {"role": "assistant", "reasoning_content": "one\ntwo", "content": "Yes"}, user]),
        ([user, thought, CALL, OUTPUT],
         [user, {"role": "assistant", "content": None, "reasoning_content": "one\ntwo", "tool_calls": call},
          {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]),
        ([user, dict(thought, content=[{"type": "reasoning_text", "text": "all"}]), {"role": "assistant", "content": "Yes"}],
         [user, {"role": "assistant", "reasoning_content": "all", "content": "Yes"}]),
        ([thought, user], [user]),
        ([user, CALL, OUTPUT], [user, {"role": "assistant", "content": None, "tool_calls": call},
                                {"role": "tool", "tool_call_id": "c1", "content": "sunny"}]),
        ([user, {"role": "assistant", "content": "Yes"}, CALL, OUTPUT],
         [user, {"role": "assistant", "content": "Yes", "tool_calls": call},
          {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "sunny"}]}]),
    ]
    shows_all = os.path.join(tempfile.mkdtemp(prefix="tokenring-test-"), "template")
    with open(shows_all, "w", encoding="utf-8") as f:
        f.write("{{ reasoning_effort }}{% for m in messages %}{{ m | tojson(sort_keys=true) }}{% endfor %}")
    with Server(dict(TINY, sim_step_us=0), chat_template=shows_all) as s:
        effort = {e: s.post(PATH, body(n=1, reasoning={"effort": e})).json["usage"]["input_tokens"] for e in ("low", "minimal")}
        want = s.post(CHAT, as_chat(n=1) | {"reasoning_effort": "minimal"}).json["usage"]["prompt_tokens"]
        check(effort["minimal"] == want > effort["low"], "the effort reaches the template", effort, want)
        for given, messages in rows:
            c = s.post(CHAT, dict(as_chat(n=4), messages=messages)).json
            r = s.post(PATH, body(given, n=4)).json
            equal((r["usage"]["input_tokens"], message(r)),
                  (c["usage"]["prompt_tokens"], c["choices"][0]["message"]["content"]), f"{given!r:.80}")
            r = s.post(PATH + "/input_tokens", {"model": MODEL, "input": given}).json
            equal(r, {"object": "response.input_tokens", "input_tokens": c["usage"]["prompt_tokens"]},
                  f"{given!r:.80}: counted")


@test
def refusals():
    """400, in the words of this API; nothing of it is admitted."""
    user = {"role": "user", "content": "Hi"}
    rows = [
        ({"store": True}, "store"), ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"), ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "auto"}, "truncation"), ({"truncation": 1}, "truncation"),
        ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 5}, "input"),
        ({"input": [5]}, "input[0]"), ({"input": [user, {"role": "user"}]}, "input[1]"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0].role"), ({"input": [{"content": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0]"),
        ({"input": [{"type": "web_search_call", "id": "w"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "w"}]}, "input[0]"),
        ({"input": [dict(CALL, arguments={})]}, "input[0].arguments"), ({"input": [{"type": "function_call"}]}, "input[0]"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]}, "input[0].output"),
        ({"instructions": 5}, "instructions"), ({"max_output_tokens": "5"}, "max_output_tokens"),
        ({"max_output_tokens": -1}, "max_output_tokens"), ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"temperature": 3}, "temperature"), ({"top_logprobs": 99}, "top_logprobs"), ({"stream": "yes"}, "stream"),
        ({"background": 1}, "background"), ({"tools": [{"type": "function", "name": "f g"}]}, "tools[0].name"),
        ({"tools": [{"type": "function"}]}, "tools[0]"), ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [dict(TOOL, parameters={"type": "string"})]}, "tools[0].parameters.type"),
        ({"tools": [TOOL, TOOL]}, "tools[1].name"), ({"tools": [TOOL], "tool_choice": "any"}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "any"}}, "tool_choice.mode"),
        ({"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [dict(TOOL, name="g")]}},
         "tool_choice.tools[0].name"),
        ({"tools": 5}, "tools"), ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format"), ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "foo"}}}}, "text.format.schema.type"), ({"text": 5}, "text"),
        ({"metadata": {"a": 5}}, "metadata.a"), ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"),
        ({"prompt_cache_key": "x" * 513}, "prompt_cache_key"), ({"stream_options": {}}, "stream_options"),
        ({"model": None}, "model"), ({"input": "x" * 40_000, "background": True}, "background"),
    ]
    with Server(dict(TINY, sim_step_us=0)) as s:
        for more, param in rows:
            r = s.post(PATH, dict(body(), **more))
            check(is_error(r, 400, param), f"{more!r:.80}: names {param}", r.status, r.text)
        r = s.post(PATH, dict(body(), model="other"))
        equal((r.status, r.error["code"]), (404, "model_not_found"), "another model")
        r = s.get("/v1/responses/resp_none")
        equal((r.status, r.json["error"]["param"]), (404, ""), "no field is to blame: still a string")
        r = s.post(PATH, dict(body(), input="x " * 5000))
        check(is_error(r, 400, "input", "context_length_exceeded"), "too long: input", r.status, r.text)
        # What asks for nothing, and what clients send by themselves.
        for more in ({"store": False}, {"previous_response_id": None}, {"tools": [], "tool_choice": "auto"},
                     {"parallel_tool_calls": False}, {"include": []}, {"truncation": "disabled"}, {"background": False},
                     {"text": {"format": {"type": "text"}, "verbosity": "low"}}, {"reasoning": {"effort": "low"}},
                     {"service_tier": "auto"}, {"user": "u"}, {"max_tool_calls": 3}, {"unknown": {"a": 1}}):
            r = s.post(PATH, dict(body(n=1), **more))
            equal(r.status, 200, f"{more} is taken")
            for name in ("text", "parallel_tool_calls", "max_tool_calls"):
                if name in more:
                    equal(r.json[name], more[name], f"{name} is repeated")
        equal(s.post(PATH + "/compact", body()).status, 404, "nothing is compacted")
        equal(s.post(PATH, body(n=1, reasoning={"effort": "low"})).json["reasoning"], {"effort": "low", "summary": None},
              "reasoning is repeated, with both keys")
        # Of what is long a response that does not stay repeats as much as has room.
        r = s.post(PATH, body(n=1, instructions="y" * 1000, metadata={"a": "b"})).json
        equal((r["instructions"], r["metadata"]), ("y" * 1000, {"a": "b"}), "instructions are repeated")


# ---- background --------------------------------------------------------------------------------------

@test
def polled():
    """Begun, polled at both frontends until it is there, with its items; then deleted."""
    with Server(SLOW, frontends=2) as s:
        here, there = (s.conn_at(p) for p in s.pids["frontend"])
        want = Reader(s, body(n=30)).rest().text()
        rid = background(s, here, n=30, instructions="", metadata={"k": "v"})
        for conn in (here, there):
            r = get(s, rid, conn).json
            check(r["status"] in ("queued", "in_progress") and r["output"] == [] and r["usage"] is None and
                  r["metadata"] == {"k": "v"} and set(r) == KEYS, "under way", r)
        objects = [finished(s, rid, conn) for conn in (there, here)]
        equal(objects[0], objects[1], "the same at both")
        equal((objects[0]["status"], objects[0]["usage"]["output_tokens"]), ("incomplete", 30), "how it ended")
        equal(message(objects[0]), want, "its text")
        equal(Reader(s, rid=rid, conn=there).rest().text(), want, "as events, at the other one")
        equal(finished(s, rid, here), objects[1], "and still there")
        r = there.send(request("DELETE", f"{PATH}/{rid}")) or there.response()
        equal(r.json, {"id": rid, "object": "response", "deleted": True}, "deleted at the other one")
        equal([get(s, rid, c).status for c in (here, there)], [404, 404], "it is gone")
        no_slot(s, "polled")


@test
def input_items():
    """What was sent, page by page, newest first."""
    items = [{"role": "user", "content": f"number {i}"} for i in range(25)] + [CALL, OUTPUT]
    with Server(dict(TINY, sim_step_us=0), ctx_size=1024) as s:
        rid = background(s, text=items, n=2)
        r = get(s, rid, path="/input_items").json
        equal((len(r["data"]), r["has_more"], r["object"]), (20, True, "list"), "a page of twenty")
        equal(r["data"][0]["output"], "sunny", "the last one first")
        check(all(d["id"] and d["status"] == "completed" and d["type"] for d in r["data"]), "members of every item", r)
        rest = get(s, rid, path=f"/input_items?after={r['last_id']}").json
        equal((len(rest["data"]), rest["has_more"], rest["last_id"]), (7, False, rest["data"][-1]["id"]), "the rest")
        equal(rest["data"][-1]["content"], [{"type": "input_text", "text": "number 0"}], "a string as a part")
        up = get(s, rid, path="/input_items?order=asc&limit=100").json
        equal([d["id"] for d in up["data"]], [d["id"] for d in reversed(r["data"] + rest["data"])], "ascending")
        for query, param in (("limit=0", "limit"), ("limit=101", "limit"), ("order=up", "order"), ("after=x", "after")):
            check(is_error(get(s, rid, path=f"/input_items?{query}"), 400, param), query)
        rid = background(s, text="Hello", n=2)
        r = get(s, rid, path="/input_items").json["data"]
        equal([(d["type"], d["role"], d["content"]) for d in r],
              [("message", "user", [{"type": "input_text", "text": "Hello"}])], "a string is a message")
        equal(get(s, "resp_0-1-0000000000000000", path="/input_items").status, 404, "of nothing")


@test
def resumed_after_every_event():
    """starting_after=N for each N, at both frontends: what follows, and nothing else."""
    with Server(dict(TINY, sim_step_us=500), frontends=2) as s:
        a = Reader(s, body(n=12, background=True)).rest()
        conns = [s.conn_at(p) for p in s.pids["frontend"]]
        for n in a.numbers():
            r = Reader(s, rid=a.id, after=n, conn=conns[n % 2]).rest()
            equal((r.events, r.done), (a.events[n + 1:], 1), f"after {n}")
        last = a.numbers()[-1]
        equal(Reader(s, rid=a.id).rest().events, a.events, "from the beginning")
        for query, param in ((f"stream=true&starting_after={last + 1}", "starting_after"),
                             ("stream=true&starting_after=x", "starting_after"), ("stream=2", "stream")):
            r = get(s, a.id, path="?" + query)
            check(is_error(r, 400, param), query, r.status, r.text)
        equal(get(s, a.id, path="?stream=true&include_obfuscation=false&starting_after=3").status, 200, "other words")
        # Cut in the middle of it, and while the text is repeated.
        want = Reader(s, body(n=60)).rest()
        for n in (3, 20, len(want.events) - 3):
            a = Reader(s, body(n=60, background=True)).read(n)
            got = list(a.events)
            a.conn.reset()
            b = Reader(s, rid=got[0]["response"]["id"], after=got[-1]["sequence_number"]).rest()
            equal([e["sequence_number"] for e in got + b.events], want.numbers(), f"cut after {n}: numbers")
            equal("".join(e["delta"] for e in got + b.events if e["type"] == DELTA), want.text(), f"cut after {n}: text")
            equal(message(b.end), want.text(), f"cut after {n}: object")


@test
def cancelled():
    """By request, at either frontend: the final object, again and again; it stays, and can be read."""
    with Server(SLOW, frontends=2) as s:
        conns = [s.conn_at(p) for p in s.pids["frontend"]]
        for i, conn in enumerate(conns):
            conns[0].send(request("POST", PATH, body(n=5000, background=True), [f"X-Request-Id: cancel-{i}"]))
            rid = conns[0].response().json["id"]
            until(lambda: get(s, rid).json["status"] == "in_progress")
            answers = []
            for c in (conn, conn, conns[1 - i]):
                c.send(request("POST", f"{PATH}/{rid}/cancel"))
                answers.append(c.response().json)
            check(answers[0] == answers[1] == answers[2] and answers[0]["status"] == "cancelled" and
                  answers[0]["error"] is None and answers[0]["output"] == [], f"{i}: cancelled, idempotent", answers)
            equal(get(s, rid).json, answers[0], f"{i}: it is still there")
            row = s.row(f"cancel-{i}")
            check(row and (row["status"], row["reason"], row["completion_tokens"]) ==
                  ("cancelled", "cancelled", answers[0]["usage"]["output_tokens"]), f"{i}: one row", row)
            r = Reader(s, rid=rid).rest()
            equal((r.kinds()[-2:], r.end["status"], r.done), (["error", "response.failed"], "cancelled", 1), f"{i}: events")
            conn.send(request("DELETE", f"{PATH}/{rid}"))
            equal(conn.response().status, 200, f"{i}: deleted")
            equal([get(s, rid, c).status for c in conns], [404, 404], f"{i}: gone")
        # Running, deleted at the other frontend.
        rid = background(s, conns[0], n=5000)
        conns[1].send(request("DELETE", f"{PATH}/{rid}"))
        equal(conns[1].response().json["deleted"], True, "deleted while it runs")
        equal([get(s, rid, c).status for c in conns], [404, 404], "and gone")
        # Done before: its own end.
        rid = background(s, n=3)
        want = finished(s, rid)
        equal(s.post(f"{PATH}/{rid}/cancel", None).json, want, "too late: as it is")
        a = Reader(s, body(n=5000)).read(8)
        equal(s.post(f"{PATH}/{a.id}/cancel", None).status, 404, "only background responses")
        a.conn.reset()
        for rid in ("x", "resp_", "resp_0-1-0000000000000000", "tr-0-1-0000000000000000", "resp_" + "f" * 90):
            equal([get(s, rid).status, s.post(f"{PATH}/{rid}/cancel", None).status,
                   s.ask("DELETE", f"{PATH}/{rid}", None).status], [404] * 3, f"{rid!r:.30} is not known")
        # What is no response has no object.
        n = Reader(s, body(n=1, background=True)).rest()
        equal(s.get(f"/v1/streams/{n.head['x-tokenring-stream']}").status, 200, "a response has native events too")
        sid = s.post("/v1/streams", completion("x", max_tokens=2, on_disconnect="hold")).header("x-tokenring-stream")
        equal(get(s, "resp_" + sid[3:]).status, 404, "a native stream is no response")


@test
def the_window():
    """Who asks keeps it, at whatever frontend; whom nobody asks about is let go.  No window: no background."""
    with Server(SLOW, frontends=2, resume_window_s=1.5) as s:
        conns = [s.conn_at(p) for p in s.pids["frontend"]]
        kept = [background(s, conns[0], n=5000) for _ in conns]
        conns[0].send(request("POST", PATH, body(n=5000, background=True), ["X-Request-Id: alone"]))
        alone = conns[0].response().json["id"]
        begin = time.monotonic()
        while time.monotonic() < begin + 4:
            for rid, conn in zip(kept, conns):
                equal(get(s, rid, conn).status, 200, "asked about in time")
            time.sleep(0.2)
        row = s.row("alone")
        check(row and row["reason"] == "client_disconnected", "nobody asked: cancelled", row)
        check(until(lambda: get(s, alone).status == 404), "and gone")
        for rid in kept:
            s.ask("DELETE", f"{PATH}/{rid}", None)
        no_slot(s, "the window")
    with Server(SLOW, resume_window_s=0) as s:
        r = s.post(PATH, body(background=True))
        check(is_error(r, 400, "background"), "nothing is kept here", r.status, r.text)
    with Server(SLOW, hold_slots=1) as s:
        background(s, n=5000)
        r = s.post(PATH, body(background=True))
        equal((r.status, r.error["code"]), (503, "engine_overloaded"), "no place for another one")


@test
def a_process_dies():
    """Frontend, then engine: the response goes on, and all that the request said is still told."""
    with Server(SLOW, frontends=2) as s:
        want = Reader(s, body(n=80)).rest().text()
        here = s.conn_at(s.pids["frontend"][0])
        rid = background(s, here, n=80, instructions="", metadata={"k": "v"}, max_tool_calls=7)
        until(lambda: get(s, rid).json["status"] == "in_progress")
        os.kill(s.pids["frontend"][0], signal.SIGKILL)
        until(lambda: len(s.processes()["frontend"]) == 2 and s.pids["frontend"][0] not in s.processes()["frontend"])
        a = Reader(s, rid=rid).read(20)
        os.kill(s.pids["engine"][0], signal.SIGKILL)
        a.rest()
        equal((message(a.end), a.text()), (want, want), "read over both deaths")
        r = finished(s, rid)
        equal((message(r), r["metadata"], r["max_tool_calls"], r["usage"]["output_tokens"]), (want, {"k": "v"}, 7, 80),
              "polled")
        equal([d["content"][0]["text"] for d in get(s, rid, path="/input_items").json["data"]], ["x"], "its input")


# ---- long answers ------------------------------------------------------------------------------------

@test
def long_answers():
    """The whole text four times over, in pieces: nothing of it waits in memory, slow readers get it all, and
    others go on meanwhile."""
    n = 8000
    with Server(dict(TINY, sim_step_us=0), frontends=1, write_deadline_s=60) as s:
        fe = s.pids["frontend"][0]
        want = s.post(PATH, body(n=n)).json
        Reader(s, body(n=n // 8)).rest()  # what every stream needs is there
        before = rss(fe)
        r = Reader(s, body(n=n), rcvbuf=4096).rest()
        size = len(json.dumps(want))
        equal((r.text(), message(r.end)), (message(want), message(want)), "its text")
        equal([e[k]["content"][0]["text"] if k == "item" else e[k] if k == "text" else e[k]["text"] for e, k in
               zip(r.events[-4:-1], ("text", "part", "item"))], [message(want)] * 3, "each time")
        check(max(r.chunks) < 64 * 1024, "in pieces", max(r.chunks))
        if not SANITIZED:
            check(rss(fe) - before < 3 * size, "memory", rss(fe) - before, size)
        # One that does not read stands still in the middle of the repetition; others do not notice.
        a = Reader(s, body(n=n), rcvbuf=4096)
        while "response.output_text.done" not in a.left.decode("utf-8", "replace") and a.more():
            pass
        for i in range(5):
            equal(message(s.post(PATH, body(n=50, seed=i)).json), Reader(s, body(n=50, seed=i)).rest().text(), "others")
        a.rest()
        equal((message(a.end), a.done), (message(want), 1), "and it gets the rest")
        # As an object.
        rid = background(s, n=n)
        equal(message(finished(s, rid)), message(want), "polled")


main()
