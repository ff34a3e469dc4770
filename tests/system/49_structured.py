# SPDX-License-Identifier: Apache-2.0
"""Answers that obey a schema, a pattern, a grammar or a choice, on the real model: whatever else is asked
for besides, and whatever happens meanwhile; and what cannot be obeyed is 400 and never dropped (case B73)."""
import oip
from lib import *
from schema import Schema

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
S = None

PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age", "city"],
          "properties": {"name": {"type": "string", "maxLength": 24}, "age": {"type": "integer", "minimum": 0,
                                                                               "maximum": 130},
                         "city": {"enum": ["Oslo", "Rome", "Kyiv"]}}}
SCHEMAS = {
    "person": PERSON,
    "nested": {"type": "object", "additionalProperties": False, "required": ["a", "list"],
               "properties": {"a": {"type": "object", "additionalProperties": False, "required": ["b"],
                                    "properties": {"b": {"type": "boolean"}}},
                              "list": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "integer"}}}},
    "either": {"anyOf": [{"type": "object", "additionalProperties": False, "required": ["kind"],
                          "properties": {"kind": {"const": "none"}}},
                         {"type": "object", "additionalProperties": False, "required": ["kind", "n"],
                          "properties": {"kind": {"const": "some"}, "n": {"type": "integer"}}}]},
    "pattern": {"type": "object", "additionalProperties": False, "required": ["id"],
                "properties": {"id": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}}},
    "tree": {"$ref": "#/$defs/node",
             "$defs": {"node": {"type": "object", "additionalProperties": False, "required": ["v", "next"],
                                "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9},
                                               "next": {"anyOf": [{"type": "null"},
                                                                  {"$ref": "#/$defs/node"}]}}}}},
    "word": {"enum": ["red", "green", "blue", 7, None]},
    "numbers": {"type": "array", "maxItems": 4, "items": {"type": "number"}},
}


def typed(schema, **more):
    return {"type": "json_schema", "json_schema": dict({"name": "answer", "schema": schema}, **more)}


def ask(text="Tell me about Ada, who is 36.", n=120, **kw):
    return chat(text, **dict(dict(max_tokens=n, temperature=0), **kw))


def fit(text, end, schema, claim):
    """A whole answer obeys; one that was cut by its limit is JSON no more."""
    if end == "length":
        return
    try:
        faults = Schema(schema).faults(strict_json(text))
    except ValueError as e:
        faults = [str(e)]
    check(not faults, f"{claim}: obeys", text, faults)


def said(r):
    c = r.json["choices"][0]
    return c["message"]["content"], c["finish_reason"]


def one(body, claim, path=CHAT):
    """Text and ending, the same streamed and not; None after a refusal, which no body here deserves."""
    r = S.post(path, body)
    if not equal(r.status, 200, f"{claim}: status {r.text[:300]}"):
        return None
    s = Stream(S, path, dict(body, stream=True, stream_options={"include_usage": True})).rest()
    c = r.json["choices"][0]
    text, end = c.get("text") if path == COMP else c["message"]["content"], c["finish_reason"]
    n = r.json["usage"]["completion_tokens"]
    equal((s.text(), s.finishes(), s.usage()["completion_tokens"]), (text, [end], n), f"{claim}: stream and not")
    s.close()
    return text, end


# ---- what is refused ----------------------------------------------------------------------------

def refused(body, param, claim, path=CHAT, exact=False):
    for stream in (False, True):
        r = S.post(path, dict(body, stream=stream) if path != NATIVE else body)
        got = r.error.get("param") or ""
        good = got == param if exact else got == param or got.startswith(param + ".") or got.startswith(param + "[")
        check(r.status == 400 and good, f"{claim}: 400 with {param}", r.status, r.text)


@test
def what_cannot_be_obeyed_is_refused():
    """B73: each row, streamed and not."""
    prop = {"type": "object", "properties": {"x": "bar"}}
    rows = [("no schema", {"type": "json_schema"}, "response_format"),
            ("two quantifiers", typed({"type": "string", "pattern": "^+[a-z]$"}), "response_format"),
            ("lookbehind", typed({"type": "string", "pattern": "(?<=x)+"}), "response_format"),
            ("10 000 groups", typed({"type": "string", "pattern": "(" * 10000}), "response_format"),
            ("a schema that is a string", typed(prop), "response_format.json_schema.schema.properties.x"),
            ("the whole is a string", typed("bar"), "response_format.json_schema.schema"),
            ("itself", typed({"$ref": "#"}), "response_format.json_schema.schema"),
            ("a loop", typed({"type": "object", "required": ["x"],
                              "properties": {"x": {"$ref": "#/properties/x"}}}), "response_format.json_schema.schema"),
            ("no such type", typed({"type": "foo"}), "response_format.json_schema.schema.type"),
            ("no such format", {"type": "yaml"}, "response_format"),
            ("no type", {}, "response_format"), ("a number", {"type": 5}, "response_format"),
            ("a word", "json_object", "response_format"),
            ("a null schema", {"type": "json_schema", "json_schema": None}, "response_format"),
            ("a keyword that is not obeyed", typed({"not": {"type": "string"}}), "response_format.json_schema.schema")]
    for name, form, param in rows:
        refused(ask(response_format=form), param, name)
        refused(completion("x", max_tokens=4, response_format=form), param, name, COMP)
    for field, value in (("guided_regex", "^+[a-z]$"), ("guided_regex", "(a"), ("guided_regex", 5), ("guided_regex", ""),
                         ("guided_regex", "(?<=x)+"), ("guided_regex", "a{1,2000000000}"), ("guided_json", "{"),
                         ("guided_json", {"type": "foo"}), ("guided_json", 5), ("guided_json", '{"type":"foo"}'),
                         ("guided_grammar", "root = 1"), ("guided_grammar", "root ::= nowhere"), ("guided_grammar", 7),
                         ("guided_grammar", "root ::= root \"x\""), ("grammar", "x"), ("guided_choice", []),
                         ("guided_choice", [1]), ("guided_choice", ["a", ""]), ("structured_outputs", []),
                         ("structured_outputs", {"yaml": 1}), ("structured_outputs", {"regex": "("}),
                         ("structured_outputs", {"json_object": 1}), ("json_schema", [1])):
        refused(ask(**{field: value}), field, f"{field} {str(value)[:40]}")
    native = {k: v for k, v in ask(guided_regex="(").items() if k != "stream"}
    refused(native, "guided_regex", "native", NATIVE)
    S.alive("bad schemas")


@test
def a_length_without_end_is_refused_or_obeyed():
    r = S.post(CHAT, ask(n=40, response_format=typed({"type": "string", "maxLength": 2000000000})))
    if r.status == 200:
        fit(*said(r), {"type": "string"}, "maxLength 2000000000")
    else:
        check(r.status == 400 and r.error["param"].startswith("response_format"), "maxLength: 400", r.text)
    S.alive("a length")


@test
def several_wishes_are_one_too_many():
    for more in ({"guided_json": PERSON}, {"guided_regex": "a"}, {"guided_choice": ["a"]},
                 {"structured_outputs": {"regex": "a"}}, {"grammar": "root ::= \"a\""}, {"json_schema": PERSON}):
        refused(ask(response_format={"type": "json_object"}, **more), next(iter(more)), f"two with {more}")
    refused(ask(structured_outputs={"regex": "a", "choice": ["b"]}), "structured_outputs", "two in one")
    r = S.post(CHAT, ask(response_format={"type": "text"}, guided_choice=["a"], guided_regex=None))
    equal((r.status, said(r)[0]), (200, "a"), "text and null wish for nothing")


# ---- what is obeyed -----------------------------------------------------------------------------

@test
def every_output_obeys_its_schema():
    """All that a client may turn, none of which brings anything else about."""
    ways = [{}, {"temperature": 1, "seed": 1}, {"temperature": 2, "seed": 2}, {"temperature": 2, "top_k": 1, "seed": 3},
            {"temperature": 1.3, "top_p": 0.7, "min_p": 0.1, "seed": 4},
            {"temperature": 1, "seed": 5, "frequency_penalty": 2, "presence_penalty": 2, "repetition_penalty": 1.5},
            {"temperature": 1, "seed": 6, "logit_bias": {str(i): 100 for i in (2, 18, 50, 260)}},
            {"temperature": 1, "seed": 7, "ignore_eos": True, "min_tokens": 60}]
    wholes = 0
    for i, (name, schema) in enumerate(SCHEMAS.items()):
        for k, way in enumerate(ways):
            if not LONG and (i + k) % 2:
                continue
            got = one(ask(response_format=typed(schema, strict=True), **way), f"{name} {way}")
            if got:
                fit(*got, schema, f"{name} {way}")
                wholes += got[1] == "stop"
    check(wholes >= 12, "most are whole", wholes)


@test
def the_other_names_mean_the_same():
    want = one(ask(response_format=typed(PERSON)), "response_format")
    for more in ({"guided_json": PERSON}, {"guided_json": json.dumps(PERSON)}, {"json_schema": PERSON},
                 {"structured_outputs": {"json": PERSON}}, {"response_format": {"type": "json_schema", "schema": PERSON}},
                 {"response_format": {"type": "json_object", "schema": PERSON}}):
        equal(one(ask(**more), f"{more}"), want, f"{str(more)[:60]}: the same answer")
    for more in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        text, end = one(ask("Answer in JSON.", **more), f"{more}")
        if end == "stop":
            check(isinstance(strict_json(text), dict), f"{more}: an object", text)
        check(text.startswith("{"), f"{more}: begins as one", text)
    for field in ("guided_regex", "structured_outputs"):
        value = r"(yes|no), [a-z]{2,8}\."
        text, end = one(ask(**{field: {"regex": value} if field[0] == "s" else value}), field)
        check(end == "stop" and re.fullmatch(value, text), f"{field}: obeys", text, end)
    gbnf = 'root ::= "<" item ("," item){1,2} ">"\nitem ::= [a-z]+ | "[" root "]"\n'
    for more in ({"guided_grammar": gbnf}, {"grammar": gbnf}, {"structured_outputs": {"grammar": gbnf}}):
        text, end = one(ask(n=60, logit_bias={}, **more), f"{more}")
        check(text.startswith("<") and (end == "length" or text.endswith(">")), f"{more}: obeys", text, end)
    for more in ({"guided_choice": ["left", "right"]}, {"structured_outputs": {"choice": ["left", "right"]}}):
        text, end = one(ask(temperature=2, seed=8, **more), f"{more}")
        check(end == "stop" and text in ("left", "right"), f"{more}: one of them", text, end)


@test
def ends_are_what_they_say():
    schema = typed(PERSON)
    text, _ = one(ask(response_format=schema), "whole")
    r = S.post(CHAT, ask(response_format=schema)).json
    n = r["usage"]["completion_tokens"]
    for extra in ({"ignore_eos": True}, {"min_tokens": n + 5}, {"ignore_eos": True, "min_tokens": n + 5}):
        equal(one(ask(response_format=schema, **extra), f"{extra}"), (text, "stop"), f"{extra}: ends where it is whole")
    equal(one(ask(n=n, response_format=schema), "n tokens"), (text, "stop"), "the last token it may have is its last")
    cut, end = one(ask(n=n - 3, response_format=schema), "cut")
    check(end == "length" and text.startswith(cut) and cut != text, "cut by its limit", cut, end)
    stopped, end = one(ask(response_format=schema, stop=[text[3:6]]), "stop string")
    equal((stopped, end), (text[:3], "stop"), "a stop string cuts it")
    r = S.post(CHAT, ask(response_format=schema, logprobs=True, top_logprobs=1)).json["choices"][0]
    lp = r["logprobs"]["content"]
    equal("".join(e["token"] for e in lp), text, "log-probabilities of all its tokens")
    check(any(e["top_logprobs"][0]["token"] != e["token"] for e in lp),
          "they are the model's, which would say something else", text)
    rid = "structured-row"
    S.ask("POST", CHAT, ask(response_format=schema), [f"X-Request-Id: {rid}"])
    row = S.row(rid)
    equal((row["status"], row["reason"], row["completion_tokens"]), ("completed", "grammar", n), "its row")


@test
def choices_and_seeds():
    body = ask(response_format=typed(PERSON), n=120, temperature=1, seed=9)
    body["n"] = 3
    r = S.post(CHAT, body).json
    texts = [c["message"]["content"] for c in r["choices"]]
    for c in r["choices"]:
        fit(c["message"]["content"], c["finish_reason"], PERSON, "a choice")
    check(len(set(texts)) > 1, "choices differ", texts)
    again = S.post(CHAT, body).json
    equal([c["message"]["content"] for c in again["choices"]], texts, "same seed, same answers")
    # Beside others, of other grammars and of none.
    jobs = [lambda b=ask(response_format=typed(s), temperature=1, seed=i): S.post(CHAT, b)
            for i, s in enumerate(SCHEMAS.values())]
    jobs += [lambda: S.post(CHAT, ask("Hi", n=60)), lambda: S.post(CHAT, body)]
    alone = [j() for j in jobs]
    for a, b in zip(alone, together(jobs)):
        equal([c["message"]["content"] for c in b.json["choices"]],
              [c["message"]["content"] for c in a.json["choices"]], "the same beside others")


@test
def the_vocabulary_that_masks_are_made_of_is_the_engines_and_cannot_be_changed():
    for role, pids in S.processes().items():
        for pid in pids:
            maps = [line for line in proc_read(pid, "maps").decode().splitlines() if "tokenring-pieces" in line]
            fds = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
            if role == "engine":
                check(maps and all(" r--s " in line for line in maps), "the engine reads it", maps)
            else:
                equal(maps, [], f"{role}: does not have it")
            check(not any("tokenring-pieces" in fd for fd in fds), f"{role}: no descriptor of it", fds)


# ---- other dialects -----------------------------------------------------------------------------

@test
def dialects():
    want = one(ask(response_format=typed(PERSON)), "chat")[0]
    user = [{"role": "user", "content": "Tell me about Ada, who is 36."}]
    base = {"model": MODEL, "temperature": 0}
    form = {"type": "json_schema", "name": "answer", "schema": PERSON}
    bad = dict(form, schema={"type": "object", "properties": {"x": {"type": "foo"}}})
    r = S.post(RESPONSES, dict(base, input=user, max_output_tokens=120, text={"format": form}))
    check(r.status == 200 and r.json["output"][0]["content"][0]["text"] == want, "Responses", r.text)
    equal(r.json["text"]["format"], form, "Responses repeats the format")
    r = S.post(RESPONSES, dict(base, input=user, max_output_tokens=120, text={"format": bad}))
    check(r.status == 400 and r.error["param"].startswith("text.format"), "Responses: its own name", r.text)
    r = S.post(MESSAGES, dict(base, messages=user, max_tokens=120, output_config={
        "format": {"type": "json_schema", "schema": PERSON}}), headers=["anthropic-version: 2023-06-01"])
    check(r.status == 200 and r.json["content"][0]["text"] == want, "Messages", r.text)
    equal(r.json["stop_reason"], "end_turn", "Messages: how it ends")
    r = S.post(MESSAGES, dict(base, messages=user, max_tokens=120, output_config={
        "format": {"type": "json_schema", "schema": bad["schema"]}}), headers=["anthropic-version: 2023-06-01"])
    check(r.status == 400 and "output_config" in r.text, "Messages: its own name", r.text)
    native = Stream(S, NATIVE, dict(base, messages=user, max_tokens=120, response_format=typed(PERSON)),
                    headers=["Accept: application/x-ndjson"])
    native.headers()
    lines = [strict_json(x) for x in native_lines(native)]
    equal("".join(e["text"] for e in lines if e["type"] == "output_text.delta"), want, "native")


def native_lines(s):
    data = b""
    while (c := s.conn.chunk()):
        data += c
    return data.decode().splitlines()


@test
def over_grpc():
    params = {"max_tokens": 60, "temperature": 0, "guided_choice": ["north", "south"]}
    with contextlib.closing(oip.Session(oip.port_of(S))) as session:
        m, _, _ = oip.unary(session, oip.INFER + "ModelInfer", oip.infer_request("Which way?", params, model=MODEL))
        got = oip.Answer(m)
        check(got.text in ("north", "south") and got.outputs["finish_reason"] == "stop", "gRPC", vars(got))
        bad = oip.infer_request("Which way?", dict(params, guided_choice=[7]), model=MODEL)
        _, status, text = oip.unary(session, oip.INFER + "ModelInfer", bad)
        check(status == oip.INVALID_ARGUMENT and "string" in text, "gRPC: refused", status, text)


# ---- what happens meanwhile ---------------------------------------------------------------------

LONG_LIST = {"type": "array", "minItems": 30, "maxItems": 30, "items": {"type": "integer", "minimum": 1000,
                                                                       "maximum": 9999}}


@test
def a_stream_is_taken_up_again():
    body = {k: v for k, v in ask(n=300, response_format=typed(LONG_LIST), on_disconnect="hold").items()}
    want, _ = one(ask(n=300, response_format=typed(LONG_LIST)), "undisturbed")
    fit(want, "stop", LONG_LIST, "undisturbed")
    c = S.conn()
    c.send(request("POST", NATIVE, body, ["Accept: application/x-ndjson"]))
    status, _, head = c.head()
    equal(status, 200, "a held stream")
    data = b""
    while data.count(b"\n") < 25:
        data += c.chunk()
    c.reset()
    first = [strict_json(x) for x in data.decode().splitlines()]
    last = [e["id"] for e in first if "id" in e][-1]
    r = S.ask("GET", f"{NATIVE}/{head['x-tokenring-stream']}", None,
              headers=["Accept: application/x-ndjson", f"Last-Event-ID: {last}"])
    rest = [strict_json(x) for x in r.text.splitlines()]
    equal("".join(e["text"] for e in first + rest if e["type"] == "output_text.delta"), want, "nothing is lost or repeated")
    S.ask("DELETE", f"{NATIVE}/{head['x-tokenring-stream']}", None)


@test
def a_cancel_inside():
    s = Stream(S, CHAT, ask(n=400, stream=True, response_format=typed(LONG_LIST))).read(10)
    s.conn.reset()
    check(S.idle(), "a cancelled one leaves nothing behind", S.metrics())


@test
def an_engine_that_dies_inside():
    body = ask(n=300, stream=True, temperature=1, seed=10, response_format=typed(LONG_LIST))
    want = Stream(S, CHAT, body).rest().text()
    s = Stream(S, CHAT, body).read(12)
    os.kill(S.processes()["engine"][0], signal.SIGKILL)
    equal((s.rest().text(), s.finishes()), (want, ["stop"]), "it goes on byte for byte")
    fit(want, "stop", LONG_LIST, "and obeys")
    check(until(lambda: S.get("/health").status == 200), "ready again")
    S.pids = S.processes()


S = Server(dict(REAL, frontends=2, max_seqs=8, ctx_size=2048, grpc_port=0))
main()
