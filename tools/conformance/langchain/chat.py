# SPDX-License-Identifier: Apache-2.0
"""LangChain's ChatOpenAI and OpenAI (completions)."""
import asyncio
from functools import reduce
from importlib.metadata import version
from operator import add
from typing import Literal

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel

from claims import *

client("langchain-openai", version("langchain-openai"))


class Ring(BaseModel):
    """A ring"""
    metal: Literal["gold", "silver", "iron"]
    polished: bool


@tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """Weather of a city"""
    return f"It rains in {city}."


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


def tools():
    """A call that is forced, in one piece and as chunks that add up; what the tool gave, and the answer to that."""
    m = model(max_tokens=300)
    for choice in ("weather", "any"):
        forced = m.bind_tools([weather], tool_choice=choice, parallel_tool_calls=False)
        got = forced.invoke(PROMPT)
        equal("whole", [(t["name"], got.response_metadata["finish_reason"]) for t in got.tool_calls], [("weather", "tool_calls")], f"{choice}: a call alone")
        chunks = list(forced.stream(PROMPT))
        summed = reduce(add, chunks)
        equal("stream", [(t["name"], t["args"]) for t in summed.tool_calls], [(t["name"], t["args"]) for t in got.tool_calls], f"{choice}: the same call")
        check("stream", len([c for c in chunks if c.tool_call_chunks]) > 1 and summed.tool_calls[0]["id"], f"{choice}: in pieces", chunks)
    result = weather.invoke(got.tool_calls[0])
    check("whole", isinstance(result, ToolMessage) and result.content.startswith("It rains in "), "arguments that the tool takes", result)
    history = [HumanMessage(PROMPT), got, result]
    free = m.bind_tools([weather])
    text = free.invoke(history).content
    check("whole", text and not text.startswith("{"), "an answer to what it gave", text)
    equal("stream", "".join(c.content for c in free.stream(history)), text, "an answer to what it gave")


def objects():
    for method in ("json_schema", "function_calling"):
        bound = model(max_tokens=300).with_structured_output(Ring, method=method)
        got = bound.invoke(PROMPT)
        check("whole", isinstance(got, Ring), f"an object by {method}", got)
        equal("stream", list(bound.stream(PROMPT))[-1], got, f"an object by {method}")


for fn in (whole, stream, cancel, error, retry, tools, objects):
    with trying(fn.__name__, "no exception"):
        fn()
