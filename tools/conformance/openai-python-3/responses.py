# SPDX-License-Identifier: Apache-2.0
"""openai-python: Responses, in the background too.  Every object is parsed as strictly as the client can."""
import asyncio

import openai

from claims import *

ASK = dict(model=MODEL, input=PROMPT, temperature=0)
DELTA = "response.output_text.delta"
STARTED = ["response.created", "response.queued", "response.in_progress", "response.output_item.added", "response.content_part.added"]
CLOSED = ["response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"]
LATE = dict(max_output_tokens=LONG, extra_body={"timeout_s": 0.3})

c = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, _strict_response_validation=True)
client("openai-python " + openai.__version__.split(".")[0] + ".x (responses)", openai.__version__)


def joined(events):
    return "".join(e.delta for e in events if e.type == DELTA)


def counted(usage):
    return usage.input_tokens, usage.output_tokens, usage.total_tokens


def begin(n=30, **kw):
    return c.responses.create(max_output_tokens=n, background=True, **dict(ASK, **kw))


def finished(rid):
    return until(lambda: (r := c.responses.retrieve(rid)).status not in ("queued", "in_progress") and r)


def whole():
    text, usage = words(max_tokens=40)
    got = c.responses.create(max_output_tokens=40, instructions=None, metadata={"a": "b"}, **ASK)
    equal("whole", got.output_text, text, "the text")
    equal("whole", counted(got.usage), tuple(usage[k] for k in ("prompt_tokens", "completion_tokens", "total_tokens")), "usage")
    equal("whole", (got.status, got.incomplete_details.reason, got.metadata), ("incomplete", "max_output_tokens", {"a": "b"}), "why it ended, and metadata")
    got = c.responses.create(max_output_tokens=1000, **ASK)
    check("whole", got.status == "completed" and got.completed_at and not got.incomplete_details, "an answer that ends by itself", got)
    raw = c.responses.with_raw_response.create(max_output_tokens=2, extra_headers={"X-Request-Id": "mine"}, **ASK)
    equal("whole", raw.headers["x-request-id"], "mine", "its request id comes back")
    got = c.responses.create(max_output_tokens=5, include=["message.output_text.logprobs"], top_logprobs=2, **ASK)
    equal("whole", [len(p.top_logprobs) for p in got.output[0].content[0].logprobs], [2] * 5, "log-probabilities")
    more = dict(ASK, input=[{"role": "user", "content": PROMPT}, *(x.to_dict() for x in got.output), {"role": "user", "content": "Go on."}])
    check("whole", c.responses.create(max_output_tokens=5, **more).output_text, "a second turn with the items of the first")
    got = c.responses.create(max_output_tokens=5, instructions="Be brief.", **ASK)
    plain = truth(messages=[{"role": "system", "content": "Be brief."}, *SAID["messages"]], max_tokens=5)
    equal("whole", (got.output_text, got.usage.input_tokens), (plain["choices"][0]["message"]["content"], plain["usage"]["prompt_tokens"]), "instructions")
    equal("whole", c.responses.input_tokens.count(model=MODEL, input=PROMPT).input_tokens, usage["prompt_tokens"], "input_tokens")


def stream():
    text, usage = words(max_tokens=40)
    events = list(c.responses.create(max_output_tokens=40, stream=True, **ASK))
    equal("stream", joined(events), text, "the text")
    equal("stream", [e.type for e in events if e.type != DELTA], STARTED + CLOSED, "the order of events")
    numbers = [e.sequence_number for e in events]
    check("stream", numbers[0] == 0 and all(a < b for a, b in zip(numbers, numbers[1:])), "their numbers grow from 0", numbers)
    equal("stream", counted(events[-1].response.usage)[:2], (usage["prompt_tokens"], usage["completion_tokens"]), "usage in the last one")
    equal("stream", {e.response.id for e in events if hasattr(e, "response")}, {events[0].response.id}, "one id")
    with c.responses.stream(max_output_tokens=1000, **ASK) as st:
        seen = joined(st)
        got = st.get_final_response()
    equal("stream", (got.status, got.output_text), ("completed", seen), "the helper's object")
    events = list(c.responses.create(max_output_tokens=4, stream=True, include=["message.output_text.logprobs"], top_logprobs=1, **ASK))
    equal("stream", len([p for e in events if e.type == DELTA for p in e.logprobs]), 4, "log-probabilities")


def background():
    text, _ = words(max_tokens=30)
    got = begin()
    equal("other", (got.status, got.background), ("queued", True), "in the background: it is told of at once")
    done = finished(got.id)
    equal("other", (done.status, done.output_text), ("incomplete", text), "retrieve: its text")
    events = list(c.responses.retrieve(got.id, stream=True))
    equal("other", joined(events), text, "retrieve as a stream: all events")
    for after in (0, 4, 12, events[-2].sequence_number):
        rest = list(c.responses.retrieve(got.id, stream=True, starting_after=after))
        equal("other", joined(rest), joined(e for e in events if e.sequence_number > after), f"starting_after {after}: the rest of the text")
        check("other", rest[0].sequence_number > after and rest[-1].type == "response.incomplete", f"starting_after {after}: later events, and the end", rest)
    items = list(c.responses.input_items.list(got.id))
    equal("other", [(i.role, i.content[0].text) for i in items], [("user", PROMPT)], "input_items")
    c.responses.delete(got.id)
    e = raises("other", openai.NotFoundError, lambda: c.responses.retrieve(got.id), "deleted")
    check("other", e and e.status_code == 404, "is 404", e)
    many = [{"role": "user", "content": f"{i}"} for i in range(7)]
    got = begin(3, input=many)
    pages = list(c.responses.input_items.list(got.id, limit=2, order="asc"))
    equal("other", [i.content[0].text for i in pages], [m["content"] for m in many], "input_items over four pages")
    c.responses.delete(got.id)


def resumed():
    """The connection of a background stream is lost, and another goes on where it ended."""
    text, _ = words(max_tokens=100)
    st = begin(100, stream=True)
    seen = [e for _, e in zip(range(12), st)]
    st.close()
    rest = list(c.responses.retrieve(seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number))
    equal("stream", joined(seen) + joined(rest), text, "left, and gone on with in the middle")
    with c.responses.stream(response_id=seen[0].response.id, starting_after=4) as helped:
        equal("stream", joined(helped), text, "the helper from event 4 on")
    c.responses.delete(seen[0].response.id)


def cancel():
    with cancels("left in the middle"):
        st = c.responses.create(max_output_tokens=LONG, stream=True, **ASK)
        for _, _ in zip(st, range(8)):
            pass
        st.close()
    with cancels("a time limit of the client's own"):
        raises("cancel", openai.APITimeoutError, lambda: c.with_options(timeout=0.5).responses.create(max_output_tokens=LONG, **ASK), "it times out")
    asyncio.run(cancel_task())
    with cancels("responses.cancel", reason="cancelled"):
        got = begin(LONG, extra_body={"ignore_eos": True})
        until(lambda: metrics()["requests_running"] == 1)
        equal("cancel", c.responses.cancel(got.id).status, "cancelled", "the object says so")
    equal("cancel", c.responses.cancel(got.id).status, "cancelled", "again")
    e = raises("cancel", openai.APIError, lambda: list(c.responses.retrieve(got.id, stream=True)), "its events end with an error")
    equal("cancel", e and e.code, "cancelled", "which says why")
    with cancels("cancelled beside its stream", reason="cancelled"):
        st = begin(LONG, stream=True, extra_body={"ignore_eos": True})
        seen = [e for _, e in zip(range(8), st)]
        c.responses.cancel(seen[0].response.id)
        e = raises("cancel", openai.APIError, lambda: list(st), "its stream ends with an error")
        equal("cancel", e and e.code, "cancelled", "which says why")


async def cancel_task():
    """A task that is cancelled while it reads."""
    a = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)

    async def read():
        async for _ in await a.responses.create(max_output_tokens=LONG, stream=True, **ASK):
            pass
    with cancels("a task is cancelled"):
        t = asyncio.create_task(read())
        await asyncio.to_thread(until, lambda: metrics()["requests_running"] == 1)
        t.cancel()
        await asyncio.gather(t, return_exceptions=True)
        await a.close()


def error():
    e = raises("error", openai.BadRequestError, lambda: c.responses.create(max_output_tokens=-1, **ASK), "a bad value")
    equal("error", e and (e.param, e.code, e.status_code), ("max_output_tokens", "invalid_value", 400), "its field")
    e = raises("error", openai.BadRequestError, lambda: c.responses.create(stream=True, top_p=9, **ASK), "before a stream")
    equal("error", e and e.param, "top_p", "its field")
    for field, value in (("previous_response_id", "resp_1"), ("store", True), ("tools", [{"type": "web_search"}]), ("truncation", "auto")):
        e = raises("error", openai.BadRequestError, lambda: c.responses.create(**ASK, **{field: value}), f"{field}: refused, not dropped")
        equal("error", e and (e.param or "").split("[")[0], field, "by name")
    raises("error", openai.NotFoundError, lambda: c.responses.create(**dict(ASK, model="other")), "another model")
    for fn in (c.responses.retrieve, c.responses.cancel, c.responses.delete, lambda rid: list(c.responses.input_items.list(rid)),
               lambda rid: list(c.responses.retrieve(rid, stream=True))):
        raises("error", openai.NotFoundError, lambda: fn("resp_none"), "a response that is not there")
    e = raises("error", openai.APIError, lambda: joined(c.responses.create(stream=True, **LATE, **ASK)), "a stream that the server cannot finish")
    equal("error", e and e.code, "deadline_exceeded", "why")
    raises("error", openai.APIStatusError, lambda: c.responses.create(**LATE, **ASK), "an answer in one piece that it cannot finish")
    got = until(lambda rid=begin(LONG, extra_body={"timeout_s": 0.3}).id: (r := c.responses.retrieve(rid)).status == "failed" and r)
    equal("error", got and (got.error.code, got.error.tokenring["code"]), ("server_error", "deadline_exceeded"), "one in the background that it cannot finish")


def retry():
    text = words(max_tokens=3)[0]
    with full():
        e = raises("retry", openai.InternalServerError, lambda: c.responses.create(max_output_tokens=3, **ASK), "no place, without retries")
        check("retry", e and e.status_code == 503 and 0 < int(e.response.headers["retry-after"]) <= 120, "503 with a Retry-After that it obeys", e)
    patient = c.with_options(max_retries=4)
    with full():
        equal("retry", patient.responses.create(max_output_tokens=3, **ASK).output_text, text, "tries again until there is one")
    with full():
        equal("retry", joined(patient.responses.create(max_output_tokens=3, stream=True, **ASK)), text, "the same with a stream")
    with full():
        got = patient.responses.create(max_output_tokens=3, background=True, **ASK)
        equal("retry", finished(got.id).output_text, text, "the same in the background")


def tools():
    """Case B74: a call that is forced, in one piece, by the helper that collects a stream, and its result."""
    tool = {"type": "function", "name": "f", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}}, "required": ["a"],
        "additionalProperties": False}}
    kw = dict(ASK, max_output_tokens=300, tools=[tool], parallel_tool_calls=False)
    got = c.responses.create(tool_choice="required", **kw)
    one, = got.output
    equal("whole", (got.status, one.type, one.name, one.status), ("completed", "function_call", "f", "completed"), "a call alone")
    check("whole", json.loads(one.arguments)["a"] in ("x", "y"), "arguments that obey the schema", one)
    with c.responses.stream(tool_choice={"type": "function", "name": "f"}, **kw) as st:
        kinds = [e.type for e in st]
        two, = st.get_final_response().output
    check("stream", "response.function_call_arguments.done" in kinds, "the helper sees the call end", kinds)
    equal("stream", (two.name, two.arguments), (one.name, one.arguments), "the same call")
    check("stream", two.parsed_arguments["a"] in ("x", "y"), "arguments parsed", two)
    more = [{"role": "user", "content": PROMPT}, one.to_dict(), {"type": "function_call_output", "call_id": one.call_id, "output": "done"}]
    text = c.responses.create(tool_choice="none", **dict(kw, input=more, max_output_tokens=5)).output_text
    check("whole", text, "an answer to the call's result", text)


for fn in (whole, stream, background, resumed, cancel, error, retry, tools):
    with trying(fn.__name__, "no exception"):
        fn()
