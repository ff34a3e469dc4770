# SPDX-License-Identifier: Apache-2.0
"""openai-python: chat completions and completions.  Every object is parsed as strictly as the client can."""
import asyncio

import openai

from claims import *

c = openai.OpenAI(base_url=V1, api_key="none", max_retries=0, _strict_response_validation=True)
loose = openai.OpenAI(base_url=V1, api_key="none", max_retries=0)
TOOL = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {
    "type": "object", "properties": {"a": {"type": "string", "enum": ["x", "y"]}}, "required": ["a"],
    "additionalProperties": False}}}
client("openai-python " + openai.__version__.split(".")[0] + ".x", openai.__version__)


def joined(parts):
    return "".join(p.choices[0].delta.content or "" for p in parts if p.choices)


def whole():
    text, usage = words(max_tokens=40)
    got = c.chat.completions.create(max_tokens=40, **SAID)
    equal("whole", got.choices[0].message.content, text, "the text")
    equal("whole", (got.usage.prompt_tokens, got.usage.completion_tokens), (usage["prompt_tokens"], usage["completion_tokens"]), "usage")
    equal("whole", got.choices[0].finish_reason, "length", "finish_reason")
    raw = c.chat.completions.with_raw_response.create(max_tokens=2, extra_headers={"X-Request-Id": "mine"}, **SAID)
    equal("whole", raw.headers["x-request-id"], "mine", "its request id comes back")
    check("whole", got._request_id, "a request id of ours")
    two = c.chat.completions.create(max_tokens=5, n=2, **SAID)
    equal("whole", [x.index for x in two.choices], [0, 1], "two choices")
    got = c.chat.completions.create(max_tokens=5, logprobs=True, top_logprobs=2, **SAID)
    equal("whole", [len(x.top_logprobs) for x in got.choices[0].logprobs.content], [2] * 5, "log-probabilities")
    equal("whole", [m.id for m in c.models.list()], [MODEL], "models")
    equal("whole", c.models.retrieve(MODEL).id, MODEL, "a model")
    got = c.completions.create(model=MODEL, prompt=PROMPT, max_tokens=9, temperature=0)
    equal("whole", got.choices[0].text, truth("/v1/completions", prompt=PROMPT, max_tokens=9, temperature=0)["choices"][0]["text"], "completions")


def stream():
    text, usage = words(max_tokens=40)
    parts = list(c.chat.completions.create(max_tokens=40, stream=True, stream_options={"include_usage": True}, **SAID))
    equal("stream", joined(parts), text, "the text")
    equal("stream", (parts[-1].usage.completion_tokens, parts[-1].choices), (usage["completion_tokens"], []), "usage in the last one, without choices")
    equal("stream", len({(p.id, p.created) for p in parts}), 1, "one id, one time")
    equal("stream", [p.choices[0].finish_reason for p in parts if p.choices and p.choices[0].finish_reason], ["length"], "one finish_reason")
    stop = text[len(text) // 2:][:3]  # of an answer that was cut off the helper makes an exception
    with c.chat.completions.stream(max_tokens=40, stop=[stop], **SAID) as st:
        for _ in st:
            pass
        got = st.get_final_completion().choices[0]
        equal("stream", (got.message.content, got.finish_reason), (words(max_tokens=40, stop=[stop])[0], "stop"), "the helper's text")
    # Its type for a completion knows no chunk whose choice goes on, which OpenAI sends as well.
    parts = list(loose.completions.create(model=MODEL, prompt=PROMPT, max_tokens=9, temperature=0, stream=True))
    equal("stream", "".join(p.choices[0].text for p in parts),
          truth("/v1/completions", prompt=PROMPT, max_tokens=9, temperature=0)["choices"][0]["text"], "completions")
    seen = {}
    for p in c.chat.completions.create(max_tokens=9, n=3, stream=True, **SAID):
        for x in p.choices:
            seen[x.index] = seen.get(x.index, "") + (x.delta.content or "")
    equal("stream", sorted(seen), [0, 1, 2], "three choices")
    equal("stream", seen[0], words(max_tokens=9)[0], "text of the first")


def cancel():
    with cancels("left in the middle"):
        st = c.chat.completions.create(max_tokens=LONG, stream=True, **SAID)
        for _, _ in zip(st, range(5)):
            pass
        st.close()
    with cancels("a time limit of the client's own"):
        raises("cancel", openai.APITimeoutError, lambda: c.with_options(timeout=0.5).chat.completions.create(max_tokens=LONG, **SAID), "it times out")
    asyncio.run(cancel_task())


async def cancel_task():
    """A task that is cancelled while it reads."""
    a = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)

    async def read():
        async for _ in await a.chat.completions.create(max_tokens=LONG, stream=True, **SAID):
            pass
    with cancels("a task is cancelled"):
        t = asyncio.create_task(read())
        await asyncio.to_thread(until, lambda: metrics()["requests_running"] == 1)
        t.cancel()
        await asyncio.gather(t, return_exceptions=True)
        await a.close()


def error():
    e = raises("error", openai.BadRequestError, lambda: c.chat.completions.create(max_tokens=-1, **SAID), "a bad value")
    equal("error", e and (e.param, e.code, e.status_code), ("max_tokens", "invalid_value", 400), "its field")
    e = raises("error", openai.BadRequestError, lambda: c.chat.completions.create(stream=True, temperature=9, **{k: v for k, v in SAID.items() if k != "temperature"}), "before a stream")
    equal("error", e and e.param, "temperature", "its field")
    raises("error", openai.NotFoundError, lambda: c.chat.completions.create(**dict(SAID, model="other")), "another model")
    raises("error", openai.NotFoundError, lambda: c.models.retrieve("other"), "another model's entry")
    e = raises("error", openai.APIError, lambda: list(c.chat.completions.create(max_tokens=LONG, stream=True, extra_body={"timeout_s": 0.3}, **SAID)),
               "a stream that the server cannot finish")
    equal("error", e and e.code, "deadline_exceeded", "why")
    raises("error", openai.APIStatusError, lambda: c.chat.completions.create(max_tokens=LONG, extra_body={"timeout_s": 0.3}, **SAID),
           "an answer in one piece that it cannot finish")


def retry():
    with full():
        e = raises("retry", openai.InternalServerError, lambda: c.chat.completions.create(max_tokens=3, **SAID), "no place, without retries")
        check("retry", e and e.status_code == 503 and 0 < int(e.response.headers["retry-after"]) <= 120, "503 with a Retry-After that it obeys", e)
    with full():
        got = c.with_options(max_retries=4).chat.completions.create(max_tokens=3, **SAID)
        equal("retry", got.choices[0].message.content, words(max_tokens=3)[0], "tries again until there is one")
    with full():
        got = c.with_options(max_retries=4).chat.completions.create(max_tokens=3, stream=True, **SAID)
        equal("retry", joined(got), words(max_tokens=3)[0], "the same with a stream")


def tools():
    """Case B74: a call that is forced, in one piece and by the helper that collects a stream."""
    kw = dict(max_tokens=300, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, **SAID)
    got = c.chat.completions.create(**kw).choices[0]
    equal("whole", (got.finish_reason, got.message.content, len(got.message.tool_calls)), ("tool_calls", None, 1), "a call alone")
    with c.chat.completions.stream(**kw) as st:
        kinds = {e.type for e in st}
        again = st.get_final_completion().choices[0]
    check("stream", "tool_calls.function.arguments.done" in kinds, "the helper sees the call end", kinds)
    equal("stream", again.finish_reason, "tool_calls", "finish_reason of the stream")
    one, two = got.message.tool_calls[0].function, again.message.tool_calls[0].function
    equal("stream", (two.name, two.arguments), (one.name, one.arguments), "the same call")
    check("stream", two.parsed_arguments["a"] in ("x", "y"), "arguments that obey the schema", two)


for fn in (whole, stream, cancel, error, retry, tools):
    with trying(fn.__name__, "no exception"):
        fn()
