# SPDX-License-Identifier: Apache-2.0
"""anthropic (Python): Messages.  Every object is parsed as strictly as the client can."""
import asyncio

import anthropic

from claims import *

c = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0, _strict_response_validation=True)
client("anthropic-python", anthropic.__version__)
ASK = dict(model=MODEL, messages=SAID["messages"])
GREEDY = {"temperature": 0}
TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}}


def ask(max_tokens=40, body=None, **kw):
    return dict(ASK, max_tokens=max_tokens, extra_body=dict(GREEDY, **(body or {})), **kw)


def texts(message):
    return "".join(b.text for b in message.content)


def counts(usage):
    return usage.input_tokens + usage.cache_read_input_tokens, usage.output_tokens


def wanted(usage):
    return usage["prompt_tokens"], usage["completion_tokens"]


def streamed(**kw):
    """The text as it came, and the message that the client makes of the events."""
    with c.messages.stream(**kw) as st:
        text = "".join(st.text_stream)
        return text, st.get_final_message()


def whole():
    text, usage = words(max_tokens=40)
    got = c.messages.create(**ask())
    equal("whole", (texts(got), got.stop_reason, got.stop_sequence), (text, "max_tokens", None), "the text")
    equal("whole", counts(got.usage), wanted(usage), "usage")
    check("whole", got._request_id, "a request id")
    raw = c.messages.with_raw_response.create(**ask(2), extra_headers={"X-Request-Id": "mine"})
    equal("whole", (raw.headers["request-id"], raw.parse()._request_id), ("mine", "mine"), "its request id comes back")
    stop = text[len(text) // 2:][:3]
    got = c.messages.create(**ask(stop_sequences=["\0", stop]))
    equal("whole", (texts(got), got.stop_reason, got.stop_sequence), (words(max_tokens=40, stop=[stop])[0], "stop_sequence", stop), "a stop sequence")
    n = c.messages.count_tokens(**ASK)
    equal("whole", n.input_tokens, usage["prompt_tokens"], "counted before")
    said = [{"role": "system", "content": "Be brief."}, *SAID["messages"], {"role": "assistant", "content": "Yes?"}, *SAID["messages"]]
    got = c.messages.create(**dict(ask(9), system=[{"type": "text", "text": "Be brief."}], messages=said[1:]))
    equal("whole", texts(got), words(max_tokens=9, messages=said)[0], "a system prompt and a history")
    equal("whole", [m.id for m in c.models.list()], [MODEL], "models")
    m = c.models.retrieve(MODEL)
    equal("whole", (m.id, m.display_name, m.type), (MODEL, MODEL, "model"), "a model")


def stream():
    text, usage = words(max_tokens=40)
    got, message = streamed(**ask())
    equal("stream", (got, texts(message), message.stop_reason), (text, text, "max_tokens"), "the text")
    equal("stream", counts(message.usage), wanted(usage), "usage")
    kinds = [e.type for e in c.messages.create(stream=True, **ask())]
    n = kinds.count("content_block_delta")
    equal("stream", kinds, ["message_start", "content_block_start", *["content_block_delta"] * n, "content_block_stop", "message_delta", "message_stop"],
          "the order of events")
    stop = text[len(text) // 2:][:3]
    got, message = streamed(**ask(stop_sequences=[stop]))
    equal("stream", (got, message.stop_reason, message.stop_sequence), (words(max_tokens=40, stop=[stop])[0], "stop_sequence", stop), "a stop sequence")
    got, message = streamed(**ask(400))
    equal("stream", (got, message.stop_reason), (words(max_tokens=400)[0], "end_turn"), "an answer to its own end")
    got, message = streamed(**ask(0))
    equal("stream", (got, message.content, message.stop_reason), ("", [], "max_tokens"), "no token at all")
    asyncio.run(stream_task(text))


async def stream_task(text):
    a = anthropic.AsyncAnthropic(base_url=URL, api_key="none", max_retries=0)
    async with a.messages.stream(**ask()) as st:
        equal("stream", "".join([t async for t in st.text_stream]), text, "read by a task")
    await a.close()


def cancel():
    with cancels("left in the middle"):
        st = c.messages.create(stream=True, **ask(LONG, {"ignore_eos": True}))
        for _, _ in zip(st, range(5)):
            pass
        st.close()
    with cancels("the helper is left"):
        with c.messages.stream(**ask(LONG, {"ignore_eos": True})) as st:
            next(iter(st.text_stream))
    with cancels("a time limit of the client's own"):
        raises("cancel", anthropic.APITimeoutError, lambda: c.with_options(timeout=0.5).messages.create(**ask(LONG, {"ignore_eos": True})), "it times out")


def error():
    for claim, kw, kind, want in (
            ("a bad value", ask(-1), anthropic.BadRequestError, (400, "invalid_request_error", "invalid_value", "max_tokens")),
            ("another model", dict(ask(), model="other"), anthropic.NotFoundError, (404, "not_found_error", "model_not_found", "model"))):
        for stream in (False, True):
            e = raises("error", kind, lambda: c.messages.create(stream=stream, **kw), f"{claim}, stream={stream}")
            equal("error", e and (e.status_code, e.type, e.error_code, e.body["error"]["details"].get("param")), want, f"{claim}: what it says")
            check("error", e and e.request_id and e.body["error"]["message"].startswith(want[3]), f"{claim}: request id, and the field in the message", e)
    raises("error", anthropic.NotFoundError, lambda: c.models.retrieve("other"), "another model's entry")
    limited = ask(LONG, {"ignore_eos": True, "timeout_s": 0.3})
    e = raises("error", anthropic.APIStatusError, lambda: streamed(**limited), "a stream that the server cannot finish")
    equal("error", e and (e.type, e.error_code), ("timeout_error", "deadline_exceeded"), "why")
    limited["max_tokens"] = 4000  # of more than that the client would not wait for one piece
    e = raises("error", anthropic.APIStatusError, lambda: c.messages.create(**limited), "an answer in one piece that it cannot finish")
    equal("error", e and (e.status_code, e.type), (504, "timeout_error"), "why")


def retry():
    with full():
        e = raises("retry", anthropic.APIStatusError, lambda: c.messages.create(**ask(3)), "no place, without retries")
        check("retry", e and e.status_code == 503 and e.type == "overloaded_error" and 0 < int(e.response.headers["retry-after"]) <= 60,
              "503, overloaded_error, with a Retry-After that it obeys", e)
    with full():
        equal("retry", texts(c.with_options(max_retries=4).messages.create(**ask(3))), words(max_tokens=3)[0], "tries again until there is one")
    with full():
        with c.with_options(max_retries=4).messages.stream(**ask(3)) as st:
            equal("retry", "".join(st.text_stream), words(max_tokens=3)[0], "the same with a stream")


def tools():
    """A call that is forced, in one piece and by the helper that collects a stream."""
    kw = ask(300, tools=[TOOL], tool_choice={"type": "tool", "name": "f"})
    got = c.messages.create(**kw)
    equal("whole", (got.stop_reason, [b.type for b in got.content]), ("tool_use", ["tool_use"]), "a call alone")
    with c.messages.stream(**kw) as st:
        kinds = {e.type for e in st}
        again = st.get_final_message()
    check("stream", "input_json" in kinds, "the helper sees its input come", kinds)
    equal("stream", (again.stop_reason, again.content[0].name, again.content[0].input),
          ("tool_use", got.content[0].name, got.content[0].input), "the same call")
    check("stream", again.content[0].input["a"] in ("x", "y"), "an input that obeys the schema", again)


for fn in (whole, stream, cancel, error, retry, tools):
    with trying(fn.__name__, "no exception"):
        fn()
