# SPDX-License-Identifier: Apache-2.0
"""What each dialect says, brought to one form: a Said has the text, how it ended and the usage, whatever
the words for them.  A row of DIALECTS makes the request from one Ask and reads the answer's body."""
import oip
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"


class Said:
    """An answer in no dialect's words: text, finish (stop, length or None), code (of an error or a cancel,
    None if it has none), usage ((prompt, completion), or None if this dialect does not say it then)."""

    def __init__(self):
        self.text, self.finish, self.code, self.usage, self.terminals = "", None, None, None, 0

    def __repr__(self):
        return f"{self.text[:60]!r} {self.finish} {self.code} {self.usage} {self.terminals}"

    def ends(self, finish=None, code=None):
        self.finish, self.code, self.terminals = finish, code, self.terminals + 1


def sse(body):
    """(names of fields, event's name, data) of each block that is no comment."""
    out = []
    for block in body.decode("utf-8").split("\n\n")[:-1]:
        fields = [x.split(": ", 1) for x in block.split("\n") if not x.startswith(":")]
        if fields:
            told = dict(fields)
            out.append((list(told), told.get("event"), told["data"]))
    return out


def bare(body):
    """Objects of a bare stream; exactly one [DONE], the last."""
    data = [d for names, _, d in sse(body) if names == ["data"] or fail(names)]
    if data.count("[DONE]") > 1 or "[DONE]" in data[:-1]:
        raise ValueError(f"[DONE] before the end: {data[-3:]}")
    return [strict_json(d) for d in data if d != "[DONE]"], data[-1:] == ["[DONE]"]


def fail(what):
    raise ValueError(what)


def openai_usage(u):
    return (u["prompt_tokens"], u["completion_tokens"]) if u else None


# ---- readers: body of a streamed answer, body of a whole one ------------------------------------------

def read_openai(body, said):
    objects, done = bare(body)
    for o in objects:
        for c in o.get("choices", ()):
            said.text += c["text"] if "text" in c else c["delta"].get("content") or ""
            if c["finish_reason"]:
                said.finish = c["finish_reason"]
        said.usage = openai_usage(o.get("usage")) or said.usage
        if "error" in o:
            said.code = o["error"]["code"]
    said.terminals = int(done)


def whole_openai(body, said):
    o = strict_json(body)
    if "error" in o:
        said.ends(code=o["error"]["code"])
        return
    c = o["choices"][0]
    said.text = c["text"] if "text" in c else c["message"]["content"]
    said.usage = openai_usage(o["usage"])
    said.ends(c["finish_reason"])


def take_native(events, said):
    for e in events:
        kind = e["type"]
        if kind == "output_text.delta":
            said.text += e["text"]
        elif kind == "usage":
            said.usage = openai_usage(e["usage"])
        elif kind in ("response.completed", "response.incomplete"):
            said.ends(e["finish_reason"])
        elif kind == "response.cancelled":
            said.ends(code=e["reason"])
        elif kind == "error":
            said.ends(code=e["code"])


def read_native(body, said):
    take_native([strict_json(d) for _, _, d in sse(body)], said)


def read_ndjson(body, said):
    take_native([strict_json(x) for x in body.decode("utf-8").split("\n")[:-1]], said)


def read_responses(body, said):
    for names, name, data in sse(body):
        if data == "[DONE]":
            continue
        e = strict_json(data)
        if names != ["event", "data"] or name != e["type"]:
            raise ValueError(f"{names} {name} {data:.200}")
        kind = e["type"]
        if kind == "response.output_text.delta":
            said.text += e["delta"]
        elif kind == "response.output_text.done" and e["text"] != said.text:
            raise ValueError(f"done {e['text']!r:.200} is not {said.text!r:.200}")
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            take_response(e["response"], said)


def take_response(o, said):
    u = o["usage"]
    said.usage = (u["input_tokens"], u["output_tokens"]) if u else None
    if o["status"] in ("completed", "incomplete"):
        said.text = "".join(p["text"] for i in o["output"] if i["type"] == "message" for p in i["content"])
        said.ends("stop" if o["status"] == "completed" else
                  {"max_output_tokens": "length"}[o["incomplete_details"]["reason"]])
    else:
        said.ends(code=o["error"]["tokenring"]["code"] if o["error"] else o["status"])


def whole_responses(body, said):
    o = strict_json(body)
    if o.get("object") == "response":
        take_response(o, said)
    else:
        said.ends(code=o["error"]["code"])


STOPS = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length"}


def read_messages(body, said):
    for names, name, data in sse(body):
        e = strict_json(data)
        if names != ["event", "data"] or name != e["type"]:
            raise ValueError(f"{names} {name} {data:.200}")
        if name == "message_start":
            u = e["message"]["usage"]
            said.usage = (sum(u.get(k) or 0 for k in ("input_tokens", "cache_read_input_tokens",
                                                      "cache_creation_input_tokens")), 0)
        elif name == "content_block_delta":
            said.text += e["delta"]["text"]
        elif name == "message_delta":
            said.finish = STOPS[e["delta"]["stop_reason"]]
            u = e["usage"]
            said.usage = (sum(u.get(k) or 0 for k in ("input_tokens", "cache_read_input_tokens",
                                                      "cache_creation_input_tokens")) or said.usage[0],
                          u["output_tokens"])
        elif name == "message_stop":
            said.terminals += 1
        elif name == "error":
            said.usage = None
            said.ends(code=e["error"]["type"])


def whole_messages(body, said):
    o = strict_json(body)
    if o["type"] == "error":
        said.ends(code=o["error"]["type"])
        return
    u = o["usage"]
    said.text = "".join(b["text"] for b in o["content"])
    said.usage = (u["input_tokens"] + (u.get("cache_read_input_tokens") or 0), u["output_tokens"])
    said.ends(STOPS[o["stop_reason"]])


def take_oip(answers, said):
    for a in answers:
        said.text += a.text or ""
        if a.error:
            said.ends(code=a.parameters["error_code"])
        elif a.last or a.last is None:
            said.usage = (a.outputs["prompt_tokens"], a.outputs["completion_tokens"])
            said.ends(a.outputs["finish_reason"])


def read_oip(messages, said):
    take_oip([oip.stream_answer(m) for m in messages], said)


def whole_oip(messages, said):
    take_oip([oip.Answer(m) for m in messages], said)


def read_text(body, said):
    """The words alone: how they ended is told by the carrier."""
    said.text = body.decode("utf-8", "replace")
    said.finish = "stop"


# ---- requests ------------------------------------------------------------------------------------------

class Ask:
    """What is asked for, in no dialect: a seed and a length decide the text; more by keyword."""

    def __init__(self, seed=1, n=20, stop=None, timeout=None, **more):
        self.seed, self.n, self.stop, self.timeout, self.more = seed, n, stop, timeout, more

    def common(self):
        out = dict(dict(model=MODEL, seed=self.seed, ignore_eos=True, temperature=0.9), **self.more)
        if self.timeout:
            out["timeout_s"] = self.timeout
        return out


def as_chat(a, prompt=False, **kw):
    words = {"prompt": "x"} if prompt else {"messages": [{"role": "user", "content": "x"}]}
    stop = {"stop": a.stop} if a.stop else {}
    return dict(a.common(), **words, **stop, max_tokens=a.n, **kw)


def as_responses(a, **kw):
    stop = {"stop": a.stop} if a.stop else {}
    return dict(a.common(), input="x", **stop, max_output_tokens=a.n, **kw)


def as_messages(a, **kw):
    stop = {"stop_sequences": a.stop if isinstance(a.stop, list) else [a.stop]} if a.stop else {}
    return dict(a.common(), messages=[{"role": "user", "content": "x"}], **stop, max_tokens=a.n, **kw)


def as_oip(a, **kw):
    sampling = dict(a.common(), max_tokens=a.n, **({"stop": a.stop} if a.stop else {}))
    del sampling["model"]
    return oip.infer_request("x", sampling, model=MODEL, **kw)


class Dialect:
    """messages: whose template is the same as chat's, so the tokens are; else those of a prompt."""

    def __init__(self, name, path, make, read, messages=True, headers=(), streamed=True, says_end=True,
                 codes=None):
        self.name, self.path, self.make, self.read, self.messages = name, path, make, read, messages
        self.headers, self.streamed, self.says_end = list(headers), streamed, says_end
        self.codes = codes or {}  # its word for one of our codes, where it has words of its own

    def said(self, body):
        out = Said()
        if body:
            self.read(body, out)
        return out


# Anthropic's errors have a type and no code.
KINDS = {"cancelled": "invalid_request_error", "deadline_exceeded": "timeout_error",
         "drain_limit": "overloaded_error"}
# ModelInfer has the status of gRPC, and no other word.
STATUSES = {"cancelled": oip.ABORTED, "deadline_exceeded": oip.DEADLINE_EXCEEDED, "drain_limit": oip.UNAVAILABLE}
USAGE = {"stream_options": {"include_usage": True}}
DIALECTS = [
    Dialect("native", NATIVE, as_chat, read_native),
    Dialect("native of a prompt", NATIVE, lambda a: as_chat(a, prompt=True), read_native, messages=False),
    Dialect("native ndjson", NATIVE, as_chat, read_ndjson, headers=[("accept", "application/x-ndjson")]),
    Dialect("chat", CHAT, lambda a: as_chat(a, stream=True, **USAGE), read_openai),
    Dialect("chat whole", CHAT, as_chat, whole_openai, streamed=False),
    Dialect("completions", COMP, lambda a: as_chat(a, prompt=True, stream=True, **USAGE), read_openai,
            messages=False),
    Dialect("completions whole", COMP, lambda a: as_chat(a, prompt=True), whole_openai, messages=False,
            streamed=False),
    Dialect("responses", RESPONSES, lambda a: as_responses(a, stream=True), read_responses),
    Dialect("responses whole", RESPONSES, as_responses, whole_responses, streamed=False),
    Dialect("messages", MESSAGES, lambda a: as_messages(a, stream=True), read_messages, codes=KINDS),
    Dialect("messages whole", MESSAGES, as_messages, whole_messages, streamed=False, codes=KINDS),
    Dialect("oip", oip.INFER + "ModelStreamInfer", as_oip, read_oip, messages=False),
    Dialect("oip whole in a stream", oip.INFER + "ModelStreamInfer", lambda a: as_oip(a, stream=False), read_oip,
            messages=False, streamed=False),
    Dialect("oip whole", oip.INFER + "ModelInfer", as_oip, whole_oip, messages=False, streamed=False, codes=STATUSES),
    Dialect("text", NATIVE, as_chat, read_text, headers=[("accept", "text/plain")], says_end=False),
]
