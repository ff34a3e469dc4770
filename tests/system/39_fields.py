# SPDX-License-Identifier: Apache-2.0
"""The tables of fields (frontend/params.def, and the TR_FIELD rows of other dialects), which docs/api.md
shows, against the program: what is in range is taken, what is not is 400 and named, what is refused says
why, what is ignored is."""
from lib import *
import fields

# The smallest good request of each dialect.
BODIES = {
    "chat": ("/v1/chat/completions", chat("x", max_tokens=1)),
    "completions": ("/v1/completions", completion("x", max_tokens=1)),
    "native": ("/v1/streams", completion("x", max_tokens=1)),
    "native chat": ("/v1/streams", chat("x", max_tokens=1)),
    "responses": ("/v1/responses", {"model": MODEL, "input": "x", "max_output_tokens": 1}),
    "anthropic": ("/v1/messages", chat("x", max_tokens=1)),
}
HAS = {"chat": ("SHARED", "CHAT"), "completions": ("SHARED", "COMPLETIONS"),
       "native": ("SHARED", "COMPLETIONS", "NATIVE"), "native chat": ("SHARED", "CHAT", "NATIVE")}
TYPES = {"BOOL": (True, False), "STRING": ("x",), "ARRAY": ([],), "OBJECT": ({},)}
ODD = ("x", "5", [], [1], {}, {"a": 1}, True, 1.5, -1e9, 1e30)
FULL = ("x", True, 5, ["x"], {"a": 1})  # a value that asks for something
EMPTY = (None, False, "", [], {})
# Together with these a value is one that the table has in range.
WITH = {"min_tokens": {"ignore_eos": True}, "top_logprobs": {"logprobs": True}}


def ask(dialect, name, value):
    """The answer; a stream is cut when its head is there."""
    path, body = BODIES[dialect]
    body = dict(body, **WITH.get(name, {}), **{name: value})
    with contextlib.closing(S.conn()) as c:
        c.send(request("POST", path, body))
        return c.response()


def taken(dialect, name, value):
    r = ask(dialect, name, value)
    check(r.status == 200, f"{dialect}: {name} = {value!r:.40} is taken", r.status, r.text)


def refused(dialect, name, value, code="invalid_value", words=""):
    r = ask(dialect, name, value)
    good = r.status == 400 and name in r.text and words in r.text
    if dialect in HAS:
        good = good and is_error(r, 400, name, code)
    check(good, f"{dialect}: {name} = {value!r:.40} is refused: {words}", r.status, r.text)


def bounds(p):
    """Values in range, and values out of it."""
    low, high = float(p.min), None if p.max == "INT64_MAX" else float(p.max)
    number = int if p.kind == "INT" else float
    step = 1 if p.kind == "INT" else 1e-3
    good = [] if p.values else [number(low)] + ([number(high)] if high is not None else [])
    bad = [number(low - step)] + ([number(high + step)] if high is not None else [])
    if p.name in ("max_tokens", "max_completion_tokens"):
        good.append(10 ** 30)
    return good, bad + ["5", True, [], {}] + ([1.5] if p.kind == "INT" else [])


@test
def what_the_table_says():
    for p in fields.params():
        for dialect, has in HAS.items():
            if p.who not in has:
                continue
            if p.fallback != "required":
                taken(dialect, p.name, None)
            elif (dialect, p.name) != ("native", "prompt"):  # there messages would do as well
                refused(dialect, p.name, None)
            if p.kind in ("NUM", "INT"):
                good, bad = bounds(p)
                for v in good:
                    taken(dialect, p.name, v)
                for v in bad:
                    refused(dialect, p.name, v)
            elif p.kind in TYPES:
                for v in TYPES[p.kind]:
                    taken(dialect, p.name, v)
                for v in ODD:
                    if not any(type(v) is type(x) for x in TYPES[p.kind]):
                        refused(dialect, p.name, v)
            elif p.kind == "WORD":
                for v in p.values.split():
                    taken(dialect, p.name, v)
                for v in ("required", "non", "none auto", 5, {"type": "function"}):
                    refused(dialect, p.name, v, "unsupported_parameter", p.words.replace('"', '\\"'))
            elif p.kind == "NEVER":
                for v in EMPTY:
                    taken(dialect, p.name, v)
                for v in FULL:
                    refused(dialect, p.name, v, "unsupported_parameter", p.words)
            elif p.kind == "IGNORED":
                for v in ODD:
                    taken(dialect, p.name, v)


@test
def fields_of_others_are_unknown():
    """What belongs to messages is nothing to a prompt, and the other way round."""
    for p in fields.params():
        if p.kind in TYPES and p.who in ("CHAT", "COMPLETIONS"):
            taken("completions" if p.who == "CHAT" else "chat", p.name, 5)


@test
def other_dialects():
    for name in fields.dialects():
        if not check(name in BODIES, f"{name} has a smallest body here"):
            continue
        for row in fields.dialect(name):
            if isinstance(row, fields.Never):
                for v in EMPTY:
                    taken(name, row.theirs, v)
                for v in FULL:
                    refused(name, row.theirs, v, words=row.why)
            elif isinstance(row, fields.Ignored):
                for v in ODD:
                    taken(name, row.theirs, v)
            elif row.fallback == "required":
                refused(name, row.theirs, None)
            else:
                taken(name, row.theirs, None)


S = Server(dict(TINY, sim_step_us=0))
main()
