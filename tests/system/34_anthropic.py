# SPDX-License-Identifier: Apache-2.0
"""Anthropic's Messages: the exact order of events, each shape whole, the same text, usage and end as the
chat request it stands for, counts that are right before the request is made, errors in their shape."""
from lib import *

S = None
CHAT, MESSAGES, COUNT = "/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"
AB, EOS = 369, 2  # " ab"-like token of SmolLM2's vocabulary, its end of turn
VERSION = ["anthropic-version: 2023-06-01"]
USAGE = {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens",
         "output_tokens_details", "server_tool_use"}
MESSAGE = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "stop_details",
           "container", "usage"}
TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
         404: "not_found_error", 405: "invalid_request_error", 410: "invalid_request_error",
         413: "request_too_large", 415: "invalid_request_error", 503: "overloaded_error",
         504: "timeout_error"}


def ask(text="Hi", **kw):
    return dict({"model": MODEL, "max_tokens": 8, "messages": [{"role": "user", "content": text}]}, **kw)


def forced(token, **kw):
    return ask(logit_bias={str(token): 100}, temperature=0, **kw)


class Reader:
    """A streamed message: one event of two lines in each chunk, and nothing else."""

    def __init__(self, server, body, headers=(), conn=None):
        self.conn = conn or server.conn()
        self.conn.send(request("POST", MESSAGES, dict(body, stream=True), [*VERSION, *headers]))
        self.status, _, self.head = self.conn.head()
        self.events, self.pings, self.ended = [], 0, False

    @property
    def id(self):
        return self.head["x-tokenring-stream"]

    def next(self):
        chunk = self.conn.chunk().decode("utf-8")
        if not chunk:
            self.ended = True
            return None
        m = re.fullmatch(r"event: (\w+)\ndata: ([^\n]+)\n\n", chunk)
        if not m:
            raise ValueError(f"not one typed event in one chunk: {chunk!r}")
        v = strict_json(m[2])
        check(v["type"] == m[1], "the event's name is its type", chunk)
        if v["type"] == "ping":
            check(v == {"type": "ping"}, "a ping has nothing else", v)
            self.pings += 1
        else:
            self.events.append(v)
        return v

    def read(self, n):
        want = len(self.events) + n
        while len(self.events) < want and not self.ended:
            self.next()
        return self

    def rest(self):
        while not self.ended:
            self.next()
        self.conn.close()
        return self

    # -- what it said --

    def text(self):
        return "".join(e["delta"]["text"] for e in self.events if e["type"] == "content_block_delta")

    def of(self, kind):
        found = [e for e in self.events if e["type"] == kind]
        return found[0] if len(found) == 1 else None

    def message(self):
        """What a client that adds the events up has in the end."""
        m = dict(self.of("message_start")["message"])
        d = self.of("message_delta")
        m["usage"] = dict(m["usage"], **d["usage"])
        m.update(d["delta"])
        m["content"] = ([{"type": "text", "text": self.text(), "citations": []}]
                        if self.of("content_block_start") else [])
        return m


def in_order(r, claim, text=True):
    kinds = [e["type"] for e in r.events]
    deltas = kinds.count("content_block_delta")
    want = ["message_start"]
    if text:
        want += ["content_block_start"] + ["content_block_delta"] * deltas + ["content_block_stop"]
    equal(kinds, want + ["message_delta", "message_stop"], f"{claim}: the order of events")
    start = r.events[0]["message"]
    equal((set(start), start["content"], start["stop_reason"], start["stop_sequence"],
           start["usage"]["output_tokens"]), (MESSAGE, [], None, None, 0), f"{claim}: message_start")
    check(USAGE < set(start["usage"]), f"{claim}: its usage", start["usage"])
    if text:
        equal(r.of("content_block_start"), {"type": "content_block_start", "index": 0, "content_block": {
            "type": "text", "text": "", "citations": []}}, f"{claim}: content_block_start")
        for e in r.events[2:2 + deltas]:
            check(set(e) == {"type", "index", "delta"} and e["index"] == 0 and
                  set(e["delta"]) == {"type", "text"} and e["delta"]["type"] == "text_delta" and
                  e["delta"]["text"], f"{claim}: a delta", e)
        equal(r.of("content_block_stop"), {"type": "content_block_stop", "index": 0}, f"{claim}: its stop")
    d = r.of("message_delta")
    equal((set(d), set(d["delta"]), set(d["usage"])),
          ({"type", "delta", "usage"}, {"stop_reason", "stop_sequence", "stop_details", "container"}, USAGE),
          f"{claim}: message_delta")
    equal(r.events[-1], {"type": "message_stop"}, f"{claim}: message_stop")


def counts(usage):
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]


def settled(m):
    """A message without what another run of the same request need not share."""
    u = m["usage"]
    return dict(m, id=None, usage=dict(u, input_tokens=sum(counts(u)[:1]), cache_read_input_tokens=0))


def both(body, claim, reason, stop=None, chat_body=None, server=None):
    """Streamed, in one piece, and as a chat: the same answer."""
    s = server or S
    r = Reader(s, body).rest()
    w = s.post(MESSAGES, body, headers=VERSION)
    if not check(w.status == 200 and r.status == 200, f"{claim}: 200", w.status, w.text, r.status):
        return None
    m = w.json
    in_order(r, claim, bool(m["content"]))
    equal(set(m), MESSAGE, f"{claim}: the whole message")
    equal(settled(r.message()), settled(m), f"{claim}: streamed and in one piece")
    equal((m["stop_reason"], m["stop_sequence"], m["type"], m["role"], m["model"]),
          (reason, stop, "message", "assistant", MODEL), f"{claim}: its end")
    check(m["id"].startswith("msg_") and m["id"] != r.events[0]["message"]["id"], f"{claim}: its id", m["id"])
    if chat_body:
        c = s.post(CHAT, chat_body).json
        text = "".join(b["text"] for b in m["content"])
        equal((text, counts(m["usage"])),
              (text_of_chat(c), (c["usage"]["prompt_tokens"], c["usage"]["completion_tokens"])), f"{claim}: as a chat")
        equal(s.post(COUNT, {k: v for k, v in body.items() if k != "max_tokens"}).json,
              {"input_tokens": c["usage"]["prompt_tokens"]}, f"{claim}: counted before")
    return m


def text_of_chat(c):
    return c["choices"][0]["message"]["content"]


def as_chat(body, **kw):
    """The chat request that a simple one stands for."""
    out = dict(body, **kw)
    if "system" in out:
        out["messages"] = [{"role": "system", "content": out.pop("system")}, *out["messages"]]
    if "stop_sequences" in out:
        out["stop"] = out.pop("stop_sequences")
    return out


def wrong(r, status, claim, param=None, code=None, kind=None):
    """An error answer in Anthropic's shape."""
    try:
        e = r.json
    except ValueError:
        return check(False, f"{claim}: JSON", r.status, r.text)
    d = e.get("error", {}).get("details", {})
    good = (r.status == status and set(e) == {"type", "error", "request_id"} and e["type"] == "error" and
            set(e["error"]) == {"type", "message", "details"} and bool(e["error"]["message"]) and
            e["error"]["type"] == (kind or TYPES[status]) and
            e["request_id"] == r.header("request-id") == r.header("x-request-id") and
            (param is None or (d.get("param") == param and e["error"]["message"].startswith(param))) and
            (code is None or d.get("error_code") == code))
    return check(good, f"{claim}: {status} {param or ''} {code or ''}", r.status, r.text, r.headers)


# ---- answers ------------------------------------------------------------------------------------

@test
def ends():
    b = forced(AB, max_tokens=5)
    both(b, "max_tokens", "max_tokens", chat_body=as_chat(b))
    b = forced(AB, max_tokens=9, stop_sequences=["zz", "baba", "abababab"])
    m = both(b, "a stop sequence", "stop_sequence", "baba", chat_body=as_chat(b))
    equal(m["content"][0]["text"], "a", "nothing of it is shown")
    b = forced(AB, max_tokens=9, stop_sequences=["ab"])
    m = both(b, "a stop sequence at once", "stop_sequence", "ab", chat_body=as_chat(b))
    equal(m["content"], [], "no text, no block")
    b = forced(AB, max_tokens=9, stop_sequences=[])
    both(b, "no stop sequence", "max_tokens", chat_body=as_chat(b))
    b = forced(EOS)
    m = both(b, "an empty answer", "end_turn", chat_body=as_chat(b))
    equal((m["content"], m["usage"]["output_tokens"]), ([], 1), "no text, no block")
    both(forced(AB, max_tokens=0), "no token at all", "max_tokens")
    b = forced(AB, max_tokens=9, stop_token_ids=[AB])
    both(b, "a stop token", "end_turn")


@test
def full_context():
    """max_tokens beyond the context is no fault; what ended the answer is said."""
    n = S.post(COUNT, ask("a " * 8000)).json["input_tokens"]
    body = forced(AB, max_tokens=20000, messages=ask("a " * 8000)["messages"])
    m = both(body, "the context is full", "model_context_window_exceeded")
    equal(sum(counts(m["usage"])), 8192, "prompt and answer fill it")
    both(dict(body, max_tokens=8192 - n - 1), "one less", "max_tokens")


@test
def prompts():
    """System prompts, blocks and histories are the chat's; each is counted before it is asked."""
    b = forced(AB, max_tokens=2, system="Be brief.")
    both(b, "a system prompt", "max_tokens", chat_body=as_chat(b))
    blocks = [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]
    both(dict(b, system=blocks), "blocks of a system prompt", "max_tokens", chat_body=as_chat(dict(b, system="Be\nbrief.")))
    b = forced(AB, max_tokens=2)
    b["messages"] = [{"role": "user", "content": [{"type": "text", "text": "One"}, {"type": "text", "text": "two"}]},
                     {"role": "assistant", "content": [{"type": "text", "text": "Three"}]},
                     {"role": "user", "content": "four <|im_end|>"}]
    flat = [dict(m, content="\n".join(x["text"] for x in m["content"]) if isinstance(m["content"], list) else m["content"])
            for m in b["messages"]]
    both(b, "a history", "max_tokens", chat_body=dict(b, messages=flat))
    b["messages"] = [{"role": "user", "content": "Weather?"},
                     {"role": "assistant", "content": [
                         {"type": "thinking", "thinking": "Hm", "signature": "x"}, {"type": "text", "text": "I look."},
                         {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}}]},
                     {"role": "user", "content": [
                         {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}]},
                         {"type": "text", "text": "And now?"}]}]
    told = [{"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Hm", "tool_calls": [
                {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}]},
            {"role": "tool", "tool_call_id": "t1", "content": "rain"}, {"role": "user", "content": "And now?"}]
    both(b, "tools in the history", "max_tokens", chat_body=dict(b, messages=told))


@test
def counting():
    n = S.post(COUNT, {"model": MODEL, "messages": ask("a " * 9000)["messages"]}, headers=VERSION)
    check(n.status == 200 and n.json["input_tokens"] > 9000, "a prompt beyond the context is counted", n.text)
    wrong(S.post(MESSAGES, ask("a " * 9000)), 400, "and refused", "messages", "context_length_exceeded")
    wrong(S.post(COUNT, {"messages": ask()["messages"]}), 400, "count without a model", "model")
    wrong(S.post(COUNT, {"model": MODEL}), 400, "count without messages", "messages")
    wrong(S.post(COUNT, {"model": "x", "messages": ask()["messages"]}), 404, "count for another model", "model",
          "model_not_found")
    equal(S.metric("requests_running"), 0, "nothing runs for it")


@test
def cached_prompts():
    """What came from the cache is told apart, and together it is the prompt; message_start knows it too."""
    body = forced(AB, max_tokens=2, messages=ask("Once upon a time " * 40)["messages"])
    n = S.post(COUNT, body).json["input_tokens"]
    S.post(MESSAGES, body)
    u = S.post(MESSAGES, body).json["usage"]
    check(u["cache_read_input_tokens"] > 0 and counts(u) == (n, 2), "the second time", u, n)
    r = Reader(S, body).rest()
    at_start, at_end = r.events[0]["message"]["usage"], r.of("message_delta")["usage"]
    equal([at_start[k] for k in ("input_tokens", "cache_read_input_tokens")],
          [at_end[k] for k in ("input_tokens", "cache_read_input_tokens")], "start and end agree")
    equal(counts(at_end), (n, 2), "and are the prompt")


# ---- refusals -----------------------------------------------------------------------------------

@test
def refusals():
    say = {"role": "user", "content": "Hi"}
    tool = {"name": "f", "input_schema": {"type": "object"}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for body, param, code in (
            ({}, "messages", None), ({"model": MODEL, "messages": [say]}, "max_tokens", None),
            ({"max_tokens": 1, "messages": [say]}, "model", None),
            (ask(max_tokens="5"), "max_tokens", None), (ask(max_tokens=-1), "max_tokens", None),
            (ask(messages=[]), "messages", None), (ask(messages=[{"role": "tool", "content": "x"}]), "messages[0].role", None),
            (ask(system="s", messages=[say, {"role": "user", "content": [5]}]), "messages[1].content[0]", None),
            (ask(messages=[{"role": "user", "content": [image]}]), "messages[0].content[0].type", "unsupported_parameter"),
            (ask(messages=[say, {"role": "assistant", "content": "The"}]), "messages[1].role", "unsupported_parameter"),
            (ask(temperature=5), "temperature", None), (ask(top_k=-7), "top_k", None), (ask(stream=1), "stream", None),
            (ask(stop_sequences="x"), "stop_sequences", None), (ask(stop_sequences=[""]), "stop_sequences", None),
            (ask(stop_sequences=["x"] * 17), "stop_sequences", None), (ask(metadata="x"), "metadata", None),
            (ask(tools=[dict(tool, input_schema={"type": "string"})]), "tools[0].input_schema.type", "invalid_value"),
            (ask(tools=[{"type": "web_search_20250305", "name": "web_search"}]), "tools[0].type", "unsupported_parameter"),
            (ask(tool_choice={"type": "any"}), "tool_choice", "invalid_value"),
            (ask(output_config={"format": {"type": "json_schema", "schema": {"type": "foo"}}}),
             "output_config.format.schema.type", "invalid_value"),
            (ask(output_format={"type": "json_schema", "schema": {}}), "output_format", "unsupported_parameter"),
            (ask(mcp_servers=[{"type": "url"}]), "mcp_servers", "unsupported_parameter")):
        for stream in ({}, {"stream": True}):
            wrong(S.post(MESSAGES, dict(body, **{k: v for k, v in stream.items() if k not in body}), headers=VERSION), 400,
                  f"{str(body)[:90]} {stream}", param, code)
    wrong(S.post(MESSAGES, ask(model="other")), 404, "another model", "model", "model_not_found")
    wrong(S.post(MESSAGES, b'{"model":'), 400, "half a body", code="invalid_json")
    wrong(S.post(MESSAGES, b"[]"), 400, "no object", code="invalid_request")
    r = S.post(MESSAGES, ask(tools=[], tool_choice={"type": "auto"}, thinking={"type": "adaptive"}, service_tier="auto",
                             metadata={"user_id": "u"}, output_config={"effort": "low"}, mcp_servers=[],
                             cache_control={"type": "ephemeral"}, inference_geo="eu", zz=1, max_tokens=1))
    equal(r.status, 200, "fields without effect, and unknown ones, are let pass")


@test
def refusals_before_the_body():
    for method, path, status in (("GET", MESSAGES, 405), ("DELETE", MESSAGES, 405), ("GET", COUNT, 405),
                                 ("GET", MESSAGES + "/batches", 404), ("POST", MESSAGES + "/batches", 404)):
        wrong(S.ask(method, path, None, headers=VERSION), status, f"{method} {path}")
    head = b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nanthropic-version: 2023-06-01\r\n"
    for more, status in ((b"Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415),
                         (b"Content-Type: application/json\r\nContent-Length: 99999999\r\n\r\n", 413)):
        out, _ = S.responses(head + more, n=1)
        wrong(out[0], status, f"{status} from the head")


@test
def overload():
    with Server(SIM, max_seqs=1, max_queue=1, sim_step_us=20000) as s:
        runs = [Reader(s, forced(AB, max_tokens=4000)) for _ in range(2)]
        runs[0].read(3)
        until(lambda: s.metric("requests_waiting") == 1)
        r = s.post(MESSAGES, ask())
        wrong(r, 503, "all places are taken", code="engine_overloaded")
        check(int(r.header("retry-after")) >= 1, "when to come again", r.headers)
        s.child.send_signal(signal.SIGTERM)
        for x in runs:
            x.conn.close()


# ---- ends in the stream -------------------------------------------------------------------------

def failed(r, code, kind, claim):
    """Some content, then one error and the end."""
    e = r.events[-1]
    kinds = [x["type"] for x in r.events]
    check(r.ended and e["type"] == "error" and e["error"]["type"] == kind and
          e["error"]["details"]["error_code"] == code and e["request_id"] == r.head["request-id"] and
          "message_stop" not in kinds and "message_delta" not in kinds and kinds.count("error") == 1,
          f"{claim}: one error and the end", r.events[-2:], kinds[-3:])


@test
def cancelled():
    r = Reader(S, forced(AB, max_tokens=8000)).read(4)
    d = S.ask("DELETE", f"/v1/streams/{r.id}", None)
    equal((d.status, d.json["status"]), (200, "cancelled"), "DELETE")
    failed(r.rest(), "cancelled", "invalid_request_error", "cancelled")
    row = S.row(r.head["request-id"])
    equal((row["reason"], row["completion_tokens"]), ("cancelled", d.json["completion_tokens"]), "its row")
    r = Reader(S, forced(AB, max_tokens=8000, timeout_s=0.3)).rest()
    failed(r, "deadline_exceeded", "timeout_error", "a deadline")
    w = S.post(MESSAGES, forced(AB, max_tokens=8000, timeout_s=0.3))
    wrong(w, 504, "a deadline in one piece", code="deadline_exceeded")


@test
def left():
    r = Reader(S, forced(AB, max_tokens=8000)).read(4)
    r.conn.reset()
    row = S.row(r.head["request-id"])
    equal(row["reason"], "client_disconnected", "who leaves cancels")
    check(S.idle(), "and nothing is left")


@test
def pings():
    """The keep-alive is an event of its own; it comes before the first content too."""
    with Server(SIM, max_seqs=1, heartbeat_s=1, sim_step_us=10000) as s:
        first = Reader(s, forced(AB, max_tokens=8000)).read(3)
        r = Reader(s, forced(AB, max_tokens=3))
        until(lambda: s.metric("requests_waiting") == 1)
        while r.pings < 2:
            r.next()
        equal(r.events, [], "nothing but pings while it waits")
        first.conn.reset()
        r.rest()
        in_order(r, "after the pings")
        equal(r.text(), "ab" * 3, "its text")


@test
def half_closed():
    """A client that closed its sending side is asked by a ping, and gets its answer."""
    r = Reader(S, forced(AB, max_tokens=40)).read(3)
    r.conn.sock.shutdown(socket.SHUT_WR)
    r.rest()
    in_order(r, "half closed")
    equal((r.text(), r.pings), ("ab" * 40, 1), "all of it, and one ping")


@test
def other_carriers():
    """HTTP/1.0, and a stream that is slow to be read, end as they should."""
    data = request("POST", MESSAGES, dict(forced(AB, max_tokens=3), stream=True), version="1.0")
    out = S.raw(data)
    check(out.endswith(b'data: {"type":"message_stop"}\n\n') and b"[DONE]" not in out, "HTTP/1.0", out[-200:])


def parsed(r):
    return [strict_json(x.split("\ndata: ")[1]) for x in r.text.split("\n\n") if x]


def lasting(events):
    """Events without what another run of the same request need not share."""
    out = []
    for e in events:
        e = {k: v for k, v in e.items() if k != "tokenring"}
        if e["type"] == "message_start":
            e["message"] = settled(e["message"])
        if e["type"] == "message_delta":
            e["usage"] = counts(e["usage"])
        out.append(e)
    return out


@test
def resumed():
    """After some events, at the other frontend: what follows, with the stop sequence that was met."""
    hold = ["X-Tokenring-Resume: 1"]
    with Server(SIM, frontends=2, sim_step_us=1000) as s:
        body = ask("Tell me about rings.", temperature=0, max_tokens=60)
        text = s.post(MESSAGES, body).json["content"][0]["text"]
        stop = next(text[n:n + 3] for n in range(20, len(text)) if text.find(text[n:n + 3]) == n)
        body["stop_sequences"] = ["\0", stop]
        whole = Reader(s, body, hold).rest().events
        equal([int(e["tokenring"]["cursor"].rpartition(":")[2]) for e in whole], list(range(len(whole))), "numbered from 0")
        for n in (*range(5), len(whole) - 2):
            pid = s.pids["frontend"][n % 2]
            first = Reader(s, body, hold, conn=s.conn_at(pid)).read(n + 1)
            first.conn.close()
            with contextlib.closing(s.conn_at(s.pids["frontend"][1 - n % 2])) as c:
                c.send(request("GET", f"/v1/streams/{first.id}?format=anthropic&after={n}"))
                r = c.response()
            equal((r.status, lasting(parsed(r))), (200, lasting(whole[n + 1:])), f"what follows event {n}")
        equal(whole[-2]["delta"]["stop_sequence"], stop, "the stop sequence")
        for name, status in (("chat", 200), ("native", 200), ("anthropic", 200), ("completions", 400), ("no", 400)):
            equal(s.get(f"/v1/streams/{first.id}?format={name}").status, status, f"read as {name}")


# ---- models -------------------------------------------------------------------------------------

@test
def models():
    r = S.get("/v1/models", headers=VERSION).json
    equal(set(r), {"data", "has_more", "first_id", "last_id"}, "the list")
    equal((r["has_more"], r["first_id"], r["last_id"], len(r["data"])), (False, MODEL, MODEL, 1), "one model")
    m = r["data"][0]
    equal((m["type"], m["id"], m["display_name"], m["max_input_tokens"]), ("model", MODEL, MODEL, 8192), "the model")
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", m["created_at"]), "its date", m)
    equal(S.get(f"/v1/models/{MODEL}", headers=VERSION).json, m, "alone")
    for q in (f"after_id={MODEL}", f"before_id={MODEL}"):
        r = S.get(f"/v1/models?{q}", headers=VERSION).json
        equal((r["data"], r["has_more"]), ([], False), f"{q}: nothing more")
    wrong(S.get("/v1/models/other", headers=VERSION), 404, "another one", "model", "model_not_found")
    equal(S.get("/v1/models").json["object"], "list", "without the header it is OpenAI's")


if __name__ == "__main__":
    S = Server(SIM, sim_step_us=1000, log_level="debug")
    main()
