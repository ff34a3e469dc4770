# SPDX-License-Identifier: Apache-2.0
"""Tool calls (case B74) and reasoning: the same call in every dialect and in every way to read it, in each
way in which models write calls; cut, cancelled, resumed from every event, and across a new engine."""
from lib import *

CHAT, NATIVE, MESSAGES, COMP = "/v1/chat/completions", "/v1/streams", "/v1/messages", "/v1/completions"
RESPONSES = "/v1/responses"
SCHEMA = {"type": "object", "required": ["city", "unit", "days"], "additionalProperties": False, "properties": {
    "city": {"enum": ["Paris", "Ol\u00e9 \"q\" }", "\u6771\u4eac"]}, "unit": {"enum": ["C", "F"]},
    "days": {"type": "array", "items": {"enum": [1, 2, 30]}, "minItems": 1, "maxItems": 3}}}
FORMATS = ["hermes", "llama3", "mistral", "mistral11", "deepseek", "deepseek31", "gemma", "json"]
MARKERS = ("tool_call>", "TOOL_CALLS", "ARGS]", "tool\u2581", "```", "think>", "\"name\"")


def tool(name="get_weather", schema=SCHEMA, **kw):
    return {"type": "function", "function": {"name": name, "description": "Weather", "parameters": schema, **kw}}


def ask(seed=1, choice="required", **kw):
    return dict(chat("What is the weather in Paris?", max_tokens=200, seed=seed), tools=[tool()], tool_choice=choice,
                parallel_tool_calls=False, **kw)


class Said:
    """An answer: text, reasoning, calls [id, name, arguments, done], finish."""

    def __init__(self):
        self.text, self.thought, self.calls, self.finish, self.events = "", "", [], None, 0

    def key(self):
        return self.text, self.thought, [c[1:3] for c in self.calls], self.finish


def whole_chat(r, choice=0):
    a = Said()
    c = r.json["choices"][choice]
    m = c["message"]
    a.text, a.thought, a.finish = m["content"] or "", m.get("reasoning_content", ""), c["finish_reason"]
    for k in m.get("tool_calls", []):
        equal(k["type"], "function", "the type of a call")
        a.calls.append([k["id"], k["function"]["name"], k["function"]["arguments"], None])
    if a.calls and not a.text:
        equal(m["content"], None, "calls alone have no content")
    return a


def stream_chat(body, choice=0):
    a = Said()
    for line in body.decode("utf-8").split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for c in strict_json(line[6:])["choices"]:
            if c["index"] != choice:
                continue
            d = c["delta"]
            a.text += d.get("content") or ""
            a.thought += d.get("reasoning_content") or ""
            a.finish = c["finish_reason"] or a.finish
            for k in d.get("tool_calls", []):
                check(isinstance(k["index"], int) and 0 <= k["index"] <= len(a.calls), "an index", k)
                f = k["function"]
                if k["index"] == len(a.calls):
                    check(k.get("id") and k.get("type") == "function" and f.get("name"), "id, type, name", k)
                    a.calls.append([k["id"], f["name"], "", None])
                else:
                    check("id" not in k and "name" not in f, "id and name once", k)
                a.calls[k["index"]][2] += f["arguments"]
    return a


def of_native(events):
    a = Said()
    for e in events:
        a.events += 1
        t = e["type"]
        if t == "output_text.delta":
            a.text += e["text"]
        elif t == "reasoning.delta":
            a.thought += e["text"]
        elif t == "tool_call.delta":
            if "name" in e:
                a.calls.append([e["call_id"], e["name"], "", False])
            a.calls[e["call"]][2] += e["arguments"]
        elif t == "tool_call.done":
            a.calls[e["call"]][3] = True
        elif t in ("response.completed", "response.incomplete"):
            a.finish = e["finish_reason"]
        elif t == "response.cancelled":
            a.finish = e["reason"]
    return a


def native(server, body):
    r = server.post(NATIVE, body)
    equal(r.status, 200, "a native stream")
    return of_native([e for _, _, e in native_events(r.body)])


def of_messages(r, streamed):
    a = Said()
    blocks = {}
    if not streamed:
        blocks = dict(enumerate(r.json["content"]))
        a.finish = r.json["stop_reason"]
        for b in blocks.values():
            if b["type"] == "tool_use":
                b["json"] = json.dumps(b["input"])
    else:
        for block in r.body.decode("utf-8").split("\n\n")[:-1]:
            e = strict_json(block.split("data: ", 1)[1])
            if e["type"] == "content_block_start":
                equal(e["index"], len(blocks), "blocks in order")
                blocks[e["index"]] = dict(e["content_block"], json="", open=True)
            elif e["type"] == "content_block_delta":
                b, d = blocks[e["index"]], e["delta"]
                check(b["open"], "within its block", e)
                if d["type"] == "input_json_delta":
                    b["json"] += d["partial_json"]
                elif d["type"] == "text_delta":
                    b["text"] += d["text"]
                else:
                    b["thinking"] += d["thinking"]
            elif e["type"] == "content_block_stop":
                blocks[e["index"]]["open"] = False
            elif e["type"] == "message_delta":
                a.finish = e["delta"]["stop_reason"]
        check(not any(b["open"] for b in blocks.values()), "every block ends", blocks)
    for b in blocks.values():
        if b["type"] == "tool_use":
            a.calls.append([b["id"], b["name"], b["json"], None])
        a.text += b.get("text", "")
        a.thought += b.get("thinking", "")
    return a


def as_responses(body, **kw):
    """The same request in the words of Responses."""
    out = {k: v for k, v in body.items() if k not in ("messages", "tools", "max_tokens")}
    return dict(out, input=body["messages"], max_output_tokens=body["max_tokens"],
                tools=[dict(t["function"], type="function") for t in body.get("tools", [])], **kw)


def of_output(response):
    """A whole response."""
    a = Said()
    for i, x in enumerate(response["output"]):
        if x["type"] == "function_call":
            a.calls.append([x["call_id"], x["name"], x["arguments"], x["status"] == "completed"])
        elif x["type"] == "reasoning":
            part, = x["content"]
            equal((part["type"], x["summary"]), ("reasoning_text", []), "what is thought")
            a.thought += part["text"]
        else:
            part, = x["content"]
            equal((x["type"], x["role"], part["type"]), ("message", "assistant", "output_text"), "a message")
            a.text += part["text"]
    calls = any(c[3] for c in a.calls)
    a.finish = {"completed": "tool_calls" if calls else "stop", "incomplete": "length"}.get(response["status"], response["status"])
    return a


DELTAS = {"message": "response.output_text", "reasoning": "response.reasoning_text",
          "function_call": "response.function_call_arguments"}


def events_of(body):
    return [strict_json(b.split("data: ", 1)[1]) for b in body.decode("utf-8").split("\n\n")[:-2] if "data: " in b]


def of_events(events):
    """A stream of them, all of which has to fit together; the response at its end."""
    items, texts, done = [], [], {}
    for e in events:
        t, i = e["type"], e.get("output_index")
        if t == "response.output_item.added":
            equal((i, e["item"]["status"]), (len(items), "in_progress"), "items in order")
            items.append(e["item"])
            texts.append("")
        elif t == "response.content_part.added":
            equal((e["item_id"], e["part"]["text"]), (items[i]["id"], ""), "a part of it")
        elif t.endswith(".delta"):
            equal((e["item_id"], t), (items[i]["id"], DELTAS[items[i]["type"]] + ".delta"), "a delta of it")
            texts[i] += e["delta"]
        elif t.endswith("_text.done") or t.endswith("_arguments.done"):
            equal((e["item_id"], t, e.get("text", e.get("arguments"))), (items[i]["id"], DELTAS[items[i]["type"]] + ".done", texts[i]),
                  "its text")
            equal(e.get("name"), items[i].get("name"), "its name")
        elif t == "response.content_part.done":
            equal(e["part"]["text"], texts[i], "its part")
        elif t == "response.output_item.done":
            x = e["item"]
            check(all(x[k] == items[i].get(k) for k in ("id", "type", "call_id", "name") if k in x), "the same item", x, items[i])
            equal(x["arguments"] if "arguments" in x else x["content"][0]["text"], texts[i], "what it says")
            equal(done.setdefault(len(done), x), items and x, "done in order")
    end = events[-1]["response"]
    equal(end["output"], [done[i] for i in range(len(items))], "the output is these items")
    return end


def same_output(a, b):
    """But for ids, which are the response's own."""
    strip = lambda r: [{k: v for k, v in x.items() if k not in ("id", "call_id")} for x in r["output"]]
    return strip(a) == strip(b)


def good(a, claim, finish="tool_calls", n=1):
    if not equal(len(a.calls), n, f"{claim}: so many calls"):
        return
    for _, name, args, _ in a.calls:
        equal(name, "get_weather", f"{claim}: the name")
        v = json.loads(args)
        p = SCHEMA["properties"]
        check(set(v) == set(p) and v["city"] in p["city"]["enum"] and v["unit"] in "CF", f"{claim}: obeys", args)
    equal(a.finish, finish, f"{claim}: the end")
    check(not any(m in a.text for m in MARKERS), f"{claim}: no marker in the text", a.text)


def as_messages(body):
    """The same request in Anthropic's words."""
    f = body["tools"][0]["function"]
    out = {k: v for k, v in body.items() if k not in ("tools", "tool_choice", "parallel_tool_calls")}
    return dict(out, tools=[{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]}],
                tool_choice={"type": "any", "disable_parallel_tool_use": True})


@test
def every_dialect_says_the_same_call():
    for seed in range(3):
        body = ask(seed)
        first = whole_chat(R.post(CHAT, body))
        good(first, f"seed {seed}")
        streamed = stream_chat(R.post(CHAT, dict(body, stream=True)).body)
        equal(streamed.key(), first.key(), "streamed")
        equal(native(R, body).key(), first.key(), "native")
        check(all(c[3] for c in native(R, body).calls), "native: complete")
        for stream in (False, True):
            m = of_messages(R.post(MESSAGES, dict(as_messages(body), stream=stream)), stream)
            equal(m.finish, "tool_use", "messages: the end")
            equal([(c[1], json.loads(c[2])) for c in m.calls], [(c[1], json.loads(c[2])) for c in first.calls],
                  "messages")
            check(all(c[0].startswith("toolu_") for c in m.calls), "messages: ids", m.calls)


@test
def responses_say_it_in_items():
    for seed in range(2):
        body = ask(seed)
        first = whole_chat(R.post(CHAT, body))
        r = R.post(RESPONSES, as_responses(body)).json
        equal(of_output(r).key(), first.key(), f"seed {seed}: in one piece")
        equal((r["tool_choice"], r["tools"]), ("required", [dict(as_responses(body)["tools"][0], strict=False)]), "repeated, with all keys")
        check(all(c[0].startswith("call_") for c in of_output(r).calls), "ids", r["output"])
        evs = events_of(R.post(RESPONSES, as_responses(body, stream=True)).body)
        equal([e["sequence_number"] for e in evs], sorted({e["sequence_number"] for e in evs}), "numbers")
        end = of_events(evs)
        check(same_output(end, r), "streamed", end["output"], r["output"])
        want = R.post(CHAT, body).json["usage"]
        equal((end["usage"]["input_tokens"], end["usage"]["output_tokens"]),
              (want["prompt_tokens"], want["completion_tokens"]), "usage of chat")
    flat = {"type": "function", "name": "get_weather"}
    for choice in (flat, {"type": "allowed_tools", "mode": "required", "tools": [flat]}):
        r = R.post(RESPONSES, as_responses(ask(choice=choice))).json
        good(of_output(r), f"{choice}")
        equal(r["tool_choice"], choice, "repeated")
    again = R.post(RESPONSES, dict(as_responses(body), tool_choice="none", input=body["messages"] + r["output"] + [
        {"type": "function_call_output", "call_id": r["output"][0]["call_id"], "output": "18 degrees"}])).json
    equal([x["type"] for x in again["output"]], ["message"], "the call and its result are taken as input")


@test
def responses_resume_at_every_event():
    """In background: polled, its items listed, read again from each event on, also cut in a call."""
    with Server(SIM, tool_format="hermes", sim_step_us=0, frontends=2) as s:
        for more in ({}, {"parallel_tool_calls": True, "max_output_tokens": 100}):
            body = dict(as_responses(ask(3, temperature=0.5)), **more)
            want = s.post(RESPONSES, body).json
            r = s.post(RESPONSES, dict(body, background=True, stream=True))
            evs = events_of(r.body)
            end = of_events(evs)
            check(same_output(end, want), f"{more}: as without", end["output"], want["output"])
            cut = end["status"] == "incomplete"
            equal([x["status"] for x in end["output"]], ["completed"] * (len(end["output"]) - cut) + ["incomplete"] * cut,
                  f"{more}: statuses")
            equal(s.get(f"{RESPONSES}/{end['id']}").json["output"], end["output"], f"{more}: polled")
            for e in evs[:-1]:
                got = events_of(s.get(f"{RESPONSES}/{end['id']}?stream=true&starting_after={e['sequence_number']}").body)
                rest = [x for x in evs if x["sequence_number"] > e["sequence_number"]]
                kinds = lambda l: [(x["type"], x.get("output_index")) for x in l if not x["type"].endswith(".delta")]
                equal(kinds(got), kinds(rest), f"{more}: after {e['sequence_number']}")
                equal([x for x in got if not x["type"].endswith(".delta")], [x for x in rest if not x["type"].endswith(".delta")],
                      f"{more}: after {e['sequence_number']}: the same")
                for i in range(len(end["output"])):
                    text = lambda l: "".join(x["delta"] for x in l if x["type"].endswith(".delta") and x["output_index"] == i)
                    equal(text(got), text(rest), f"{more}: after {e['sequence_number']}: text of {i}")


@test
def responses_with_logprobs():
    """Entries of tokens without text begin no item."""
    with Server(SIM, tool_format="hermes", sim_step_us=0) as s:
        for choice in ("auto", "required"):
            for seed in range(3):
                body = as_responses(ask(seed, choice, temperature=0.5), include=["message.output_text.logprobs"])
                r = s.post(RESPONSES, body).json
                evs = events_of(s.post(RESPONSES, dict(body, stream=True)).body)
                end = of_events([{k: v for k, v in e.items() if k != "logprobs"} for e in evs])
                equal(of_output(end).key(), of_output(r).key(), f"{choice}, {seed}: the same items")
                seen = [x for e in evs for x in e.get("logprobs") or []]
                check(seen and len(seen) <= end["usage"]["output_tokens"], f"{choice}, {seed}: entries", len(seen))


@test
def responses_cancelled_and_cut():
    """In a call: cancelled; and at every length."""
    whole = R.post(RESPONSES, as_responses(ask())).json
    for limit in range(1, whole["usage"]["output_tokens"], 7):
        body = as_responses(dict(ask(), max_tokens=limit))
        r = R.post(RESPONSES, body).json
        end = of_events(events_of(R.post(RESPONSES, dict(body, stream=True)).body))
        check(same_output(r, end), f"cut at {limit}", r["output"], end["output"])
        last = r["output"][-1]
        equal(r["status"], "incomplete", f"cut at {limit}: says so")
        check(last["status"] == "incomplete" or json.loads(last["arguments"]), f"cut at {limit}: the item too", last)
    with contextlib.closing(R.conn()) as c:
        c.send(request("POST", RESPONSES, as_responses(ask(), stream=True)))
        _, _, head = c.head()
        body = b""
        while b"arguments.delta" not in body:
            body += c.chunk()
        R.ask("DELETE", f"{NATIVE}/{head['x-tokenring-stream']}", None)
        while (more := c.chunk()):
            body += more
    end = events_of(body)[-1]["response"]
    check(end["status"] in ("cancelled", "completed") and (end["output"] == []) == (end["status"] == "cancelled"), "its end", end)


@test
def named_and_allowed():
    two = [tool(), tool("other", {"type": "object", "properties": {}, "additionalProperties": False})]
    one = {"type": "function", "function": {"name": "other"}}
    for choice in (one, {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [one]}}):
        a = whole_chat(R.post(CHAT, ask(choice=choice, temperature=1.5) | {"tools": two}))
        equal([(c[1], json.loads(c[2])) for c in a.calls], [("other", {})], f"{choice}")
    r = R.post(CHAT, ask(choice="none", temperature=0))
    a = whole_chat(r)
    check(not a.calls and a.text and a.finish != "tool_calls", "none: text", a.text)
    check(r.json["usage"]["prompt_tokens"] < R.post(CHAT, ask()).json["usage"]["prompt_tokens"],
          "none: the tools are not in the prompt")


@test
def choices_have_calls_of_their_own():
    body = dict(ask(n=3), stream=True)
    r, w = R.post(CHAT, body), R.post(CHAT, dict(body, stream=False))
    ids = set()
    for k in range(3):
        a = stream_chat(r.body, k)
        good(a, f"choice {k}")
        equal(a.key(), whole_chat(w, k).key(), f"choice {k}: in one piece")
        ids.update(c[0] for c in a.calls)
    equal(len(ids), 3, "ids differ")


@test
def a_call_that_is_cut():
    whole = whole_chat(R.post(CHAT, ask()))
    n = R.post(CHAT, ask()).json["usage"]["completion_tokens"]
    for limit in range(1, n, 3):
        body = dict(ask(), max_tokens=limit)
        a, b = whole_chat(R.post(CHAT, body)), native(R, body)
        equal(a.key(), b.key(), f"cut at {limit}: native says the same")
        equal(a.finish, "length", f"cut at {limit}")
        check(not any(c[3] for c in b.calls), f"cut at {limit}: not complete", b.calls)
        for c in a.calls:
            check(whole.calls[0][2].startswith(c[2]), f"cut at {limit}: the beginning", c)


@test
def from_every_event_on():
    body = dict(ask(), on_disconnect="hold")
    r = R.post(NATIVE, body)
    evs = [e for _, _, e in native_events(r.body)]
    sid = evs[0]["stream_id"]
    numbered = [e for e in evs if "id" in e]
    for i, e in enumerate(numbered[:-1]):
        got = R.get(f"{NATIVE}/{sid}?after={e['id'].rpartition(':')[2]}")
        equal([x for _, _, x in native_events(got.body)], numbered[i + 1:], f"after event {i}")


@test
def cancelled_inside_a_call():
    with contextlib.closing(R.conn()) as c:
        c.send(request("POST", NATIVE, dict(ask(), on_disconnect="hold"), ["Accept: application/x-ndjson"]))
        _, _, head = c.head()
        body = b""
        while b'"arguments":"{' not in body:
            body += c.chunk()
        equal(R.ask("DELETE", f"{NATIVE}/{head['x-tokenring-stream']}", None).status, 200, "cancelled")
        while (more := c.chunk()):
            body += more
    a = of_native([strict_json(x) for x in body.decode().splitlines()])
    check(a.finish in ("cancelled", "tool_calls"), "its end", a.finish)


@test
def a_new_engine_goes_on():
    with Server(REAL) as s:
        with contextlib.closing(s.conn()) as c:
            want = s.post(RESPONSES, as_responses(ask())).json
            c.send(request("POST", RESPONSES, as_responses(ask(), stream=True)))
            c.head()
            body = b""
            while b"arguments.delta" not in body:
                body += c.chunk()
            os.kill(s.pids["engine"][0], signal.SIGKILL)
            while (more := c.chunk()):
                body += more
            end = of_events(events_of(body))
            check(same_output(end, want), "responses: the same call", end["output"], want["output"])
    with Server(REAL) as s:
        want = native(s, ask()).key()
        with contextlib.closing(s.conn()) as c:
            c.send(request("POST", NATIVE, ask(), ["Accept: application/x-ndjson"]))
            c.head()
            body = b""
            while b"tool_call.delta" not in body:
                body += c.chunk()
            os.kill(s.pids["engine"][0], signal.SIGKILL)
            while (more := c.chunk()):
                body += more
        equal(of_native([strict_json(x) for x in body.decode().splitlines()]).key(), want, "the same call")


@test
def every_format():
    """Forced, on the sim backend with the real vocabulary: tokens are random within the grammar."""
    for f in FORMATS:
        with Server(SIM, tool_format=f, sim_step_us=0) as s:
            for seed in range(2):
                body = ask(seed, temperature=1)
                a = whole_chat(s.post(CHAT, body))
                good(a, f)
                equal(stream_chat(s.post(CHAT, dict(body, stream=True)).body).key(), a.key(), f"{f}: streamed")
                equal(native(s, body).key(), a.key(), f"{f}: native")
                equal(of_output(s.post(RESPONSES, as_responses(body)).json).key(), a.key(), f"{f}: responses")
                end = of_events(events_of(s.post(RESPONSES, as_responses(body, stream=True)).body))
                equal(of_output(end).key(), a.key(), f"{f}: responses, streamed")
                if "mistral" in f:
                    check(len(a.calls[0][0]) == 9 and a.calls[0][0].isalnum(), "Mistral's ids", a.calls)
            many = whole_chat(s.post(CHAT, dict(ask(temperature=0.5), parallel_tool_calls=True, max_tokens=400)))
            check(many.calls and all(c[1] == "get_weather" for c in many.calls), f"{f}: several", many.calls)


@test
def deep_arguments():
    """Deeper than what is copied from requests."""
    defs = {"d0": {"enum": [7]}}
    for i in range(1, 90):
        defs[f"d{i}"] = {"type": "array", "items": {"$ref": f"#/$defs/d{i - 1}"}, "minItems": 1, "maxItems": 1}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d89"}}, "required": ["a"],
              "additionalProperties": False, "$defs": defs}
    with Server(SIM, sim_step_us=0) as s:
        body = ask() | {"tools": [tool(schema=schema)], "max_tokens": 1000, "temperature": 0}
        want = whole_chat(s.post(CHAT, body))
        v, n = json.loads(want.calls[0][2])["a"], 0
        while isinstance(v, list):
            v, n = v[0], n + 1
        equal((v, n), (7, 89), "all of it")
        for stream in (False, True):
            m = of_messages(s.post(MESSAGES, dict(as_messages(body), stream=stream)), stream)
            equal(json.loads(m.calls[0][2]), json.loads(want.calls[0][2]), "messages")


@test
def what_has_no_room_says_so():
    for path, body in ((COMP, completion("Hi")), (NATIVE, completion("Hi"))):
        r = R.post(path, dict(body, max_tokens=1, tools=[tool()]))
        check(is_error(r, 400, "tools", "unsupported_parameter"), f"{path}: refused", r.text)
    r = R.post(CHAT, ask() | {"tools": [tool(strict=True, schema={"type": "object", "not": {}})]})
    check(r.status == 400 and "tools[0].function.parameters" in r.text, "a strict schema that cannot be obeyed", r.text)
    for more, param in (({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
                        ({"tools": [{"name": "f", "strict": True, "input_schema":
                                     {"type": "object", "properties": {"a": {"uniqueItems": True}}}}]},
                         "tools[0].input_schema.properties.a.uniqueItems"),
                        ({"tool_choice": {"type": "tool", "name": "no"}}, "tool_choice.name")):
        r = R.post(MESSAGES, as_messages(ask()) | more)
        equal((r.status, r.error.get("details", {}).get("param")), (400, param), "messages: in its own words")
    deep = {}
    for _ in range(60):
        deep = {"type": "object", "properties": {"a": deep}}
    for field, value in (("tools", [tool(schema=deep)]), ("chat_template_kwargs", deep), ("documents", [deep])):
        r = R.post(CHAT, ask() | {field: value})
        check(is_error(r, 400, field, "invalid_value"), f"{field} too deep to be shown to a template: named", r.text)
    with Server(SIM, tool_format="none") as s:
        r = s.post(CHAT, ask())
        check(is_error(r, 400, "tools", "unsupported_parameter"), "--tool-format none", r.text)


@test
def earlier_turns_are_shown():
    """The template of this model shows neither tools nor calls; they are in the prompt all the same."""
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}
    turns = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"}]
    with_calls = R.post("/tokenize", {"model": MODEL, "messages": turns, "return_token_strs": True})
    text = "".join(with_calls.json.get("token_strs") or [])
    equal(with_calls.status, 200, "tokenized")
    check("get_weather" in text and "18" in text, "calls and results", text)
    r = R.post(CHAT, dict(model=MODEL, messages=turns, tools=[tool()], max_tokens=5))
    equal(r.status, 200, "answered")


@test
def reasoning_is_told_apart():
    with open(os.path.join(R.dir, "template"), "w", encoding="utf-8") as f:
        f.write("{% for m in messages %}{{ m.content }}{% endfor %}"
                "{% if not bare %}<think>\n{% endif %}{# </think> tools #}")
    with Server(TINY, chat_template=f.name) as s:
        for more in ({}, {"stream": True}):
            r = s.post(CHAT, chat("Hi", max_tokens=9, **more))
            a = stream_chat(r.body) if more else whole_chat(r)
            check(a.thought and not a.text, "all of it is thought", a.thought, a.text)
            r = s.post(CHAT, chat("Hi", max_tokens=9, include_reasoning=False, **more))
            a = stream_chat(r.body) if more else whole_chat(r)
            check(not a.thought and not a.text, "not shown", a.thought, a.text)
            r = s.post(CHAT, chat("Hi", max_tokens=9, separate_reasoning=False, **more))
            a = stream_chat(r.body) if more else whole_chat(r)
            check(a.text and not a.thought, "left in the text", a.text)
        own = dict(chat("Hi", max_tokens=9), continue_final_message=True)
        begun = lambda text: own | {"messages": own["messages"] + [{"role": "assistant", "content": text}]}
        for text, inside in (("<think>\nOkay, so", True), ("<think>hm</think>The", False), ("A <think", False)):
            a = whole_chat(s.post(CHAT, begun(text) | {"chat_template_kwargs": {"bare": 1}}))
            equal((bool(a.thought), bool(a.text)), (inside, not inside), f"{text!r} goes on")
        m = s.post(MESSAGES, chat("Hi", max_tokens=9)).json
        equal([b["type"] for b in m["content"]], ["thinking"], "a block of its own")
        body = {"model": MODEL, "input": "Hi", "max_output_tokens": 9, "seed": 1}
        r = s.post(RESPONSES, body).json
        end = of_events(events_of(s.post(RESPONSES, dict(body, stream=True)).body))
        check(same_output(r, end), "responses: streamed", r["output"], end["output"])
        equal([x["type"] for x in r["output"]], ["reasoning"], "responses: an item of its own")
        check(of_output(r).thought, "responses: what is thought", r["output"])


R = Server(REAL)
main()
