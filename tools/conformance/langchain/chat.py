# SPDX-License-Identifier: Apache-2.0
"""LangChain's ChatOpenAI and OpenAI (completions)."""
import asyncio
from importlib.metadata import version

import openai
from langchain_openai import ChatOpenAI, OpenAI

from claims import *

client("langchain-openai", version("langchain-openai"))


def model(**kw):
    return ChatOpenAI(**dict(dict(base_url=V1, api_key="none", model=MODEL, temperature=0, max_retries=0), **kw))


def joined(m, text=PROMPT):
    return "".join(p.text if isinstance(p.text, str) else p.text() for p in m.stream(text))


def whole():
    text, usage = words(max_tokens=40)
    got = model(max_tokens=40).invoke(PROMPT)
    equal("whole", (got.content, got.response_metadata["finish_reason"]), (text, "length"), "the text")
    equal("whole", (got.usage_metadata["input_tokens"], got.usage_metadata["output_tokens"]), (usage["prompt_tokens"], usage["completion_tokens"]), "usage")
    got = OpenAI(base_url=V1, api_key="none", model=MODEL, temperature=0, max_tokens=9, max_retries=0).invoke(PROMPT)
    equal("whole", got, truth("/v1/completions", prompt=PROMPT, max_tokens=9, temperature=0)["choices"][0]["text"], "completions")
    equal("whole", [m.content for m in model(max_tokens=3).batch([PROMPT] * 3)], [words(max_tokens=3)[0]] * 3, "three at a time")


def stream():
    text, usage = words(max_tokens=40)
    equal("stream", joined(model(max_tokens=40)), text, "the text")
    parts = [p.usage_metadata for p in model(max_tokens=40, stream_usage=True).stream(PROMPT) if p.usage_metadata]
    equal("stream", sum(p["output_tokens"] for p in parts), usage["completion_tokens"], "usage")
    got = "".join(OpenAI(base_url=V1, api_key="none", model=MODEL, temperature=0, max_tokens=9).stream(PROMPT))
    equal("stream", got, truth("/v1/completions", prompt=PROMPT, max_tokens=9, temperature=0)["choices"][0]["text"], "completions")


def cancel():
    with cancels("left in the middle"):
        parts = model(max_tokens=LONG).stream(PROMPT)
        for _, _ in zip(parts, range(4)):
            pass
        parts.close()

    async def task():
        async for _ in model(max_tokens=LONG).astream(PROMPT):
            await asyncio.sleep(0)

    async def cancelled():
        t = asyncio.create_task(task())
        await asyncio.to_thread(until, lambda: metrics()["requests_running"] == 1)
        t.cancel()
        await asyncio.gather(t, return_exceptions=True)
    with cancels("a task is cancelled"):
        asyncio.run(cancelled())


def error():
    e = raises("error", openai.BadRequestError, lambda: model(max_tokens=-1).invoke(PROMPT), "a bad value")
    check("error", e and e.status_code == 400 and e.param in ("max_tokens", "max_completion_tokens"), "its field", e)
    raises("error", openai.BadRequestError, lambda: joined(model(max_tokens=-1)), "before a stream")
    e = raises("error", openai.APIError, lambda: joined(model(max_tokens=LONG, extra_body={"timeout_s": 0.3})), "a stream that the server cannot finish")
    equal("error", e and e.code, "deadline_exceeded", "why")


def retry():
    with full():
        raises("retry", openai.InternalServerError, lambda: model(max_tokens=3).invoke(PROMPT), "no place, without retries")
    with full():
        equal("retry", model(max_tokens=3, max_retries=4).invoke(PROMPT).content, words(max_tokens=3)[0], "tries again until there is one")
    with full():
        equal("retry", joined(model(max_tokens=3, max_retries=4)), words(max_tokens=3)[0], "the same with a stream")


for fn in (whole, stream, cancel, error, retry):
    with trying(fn.__name__, "no exception"):
        fn()
