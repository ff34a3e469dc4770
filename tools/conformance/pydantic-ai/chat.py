# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai over chat completions: an agent without tools, one that has to call a tool, and ones whose output
is an object, by a tool and by a schema."""
import asyncio
from importlib.metadata import version
from typing import Literal

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from claims import *

client("pydantic-ai", version("pydantic-ai-slim"))


sent = []  # bodies, as they went out
asked = []  # cities that the tool was called with


class Ring(BaseModel):
    metal: Literal["gold", "silver", "iron"]
    polished: bool


class ForcedOnce(AbstractCapability):
    """The first step of a run has to call a tool."""

    def get_model_settings(self):
        return lambda ctx: {"tool_choice": "required" if ctx.run_step <= 1 else "auto", "parallel_tool_calls": False}


def weather(city: Literal["Paris", "Rome"]) -> str:
    """Weather of a city"""
    asked.append(city)
    return f"It rains in {city}."


async def keep(request):
    sent.append(request.content)


def agent(retries=0, more=None, **settings):
    c = AsyncOpenAI(base_url=V1, api_key="none", max_retries=retries, http_client=DefaultAsyncHttpxClient(event_hooks={"request": [keep]}))
    return Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=c)), model_settings=dict(dict(temperature=0), **settings), retries=0,
                 **(more or {}))


async def joined(a):
    text = ""
    async with a.run_stream(PROMPT) as r:
        async for part in r.stream_text(delta=True):
            text += part
    return text


async def whole():
    text, usage = words(max_tokens=40)
    got = await agent(max_tokens=40).run(PROMPT)
    equal("whole", got.output, text, "the text")
    u = got.usage if not callable(got.usage) else got.usage()
    equal("whole", (u.input_tokens, u.output_tokens), (usage["prompt_tokens"], usage["completion_tokens"]), "usage")


async def stream():
    equal("stream", await joined(agent(max_tokens=40)), words(max_tokens=40)[0], "the text")


async def cancel():
    with cancels("a task is cancelled"):
        t = asyncio.create_task(agent(max_tokens=LONG).run(PROMPT))
        await asyncio.to_thread(until, lambda: metrics()["requests_running"] == 1)
        t.cancel()
        await asyncio.gather(t, return_exceptions=True)


async def error():
    e = await fails("error", ModelHTTPError, agent(top_p=5).run(PROMPT), "a bad value")
    check("error", e and e.status_code == 400 and "top_p" in str(e.body), "its field", e)
    e = await fails("error", Exception, joined(agent(max_tokens=LONG, extra_body={"timeout_s": 0.3})), "a stream that the server cannot finish")
    check("error", "deadline" in str(e), "why", repr(e))


async def retry():
    with full():
        await fails("retry", (ModelHTTPError, ModelAPIError), agent(max_tokens=3).run(PROMPT), "no place, without retries")
    with full():
        equal("retry", (await agent(4, max_tokens=3).run(PROMPT)).output, words(max_tokens=3)[0], "tries again until there is one")


async def tools():
    """A call that is forced, what the tool gave, and the answer to that."""
    for area in ("whole", "stream"):
        sent.clear()
        asked.clear()
        a = agent(max_tokens=300, more=dict(tools=[weather], capabilities=[ForcedOnce()]))
        got = await joined(a) if area == "stream" else (await a.run(PROMPT)).output
        check(area, len(asked) == 1 and asked[0] in ("Paris", "Rome"), "the tool is called once", asked)
        check(area, len(sent) == 2 and f"It rains in {asked[0]}.".encode() in sent[1], "what it gave was sent", sent)
        equal(area, got, again(sent[1])["content"], "the answer is that of a plain request")


async def objects():
    for name, kind in (("by a tool", Ring), ("by a schema", NativeOutput(Ring))):
        a = agent(max_tokens=300, more=dict(output_type=kind))
        got = (await a.run(PROMPT)).output
        check("whole", isinstance(got, Ring), f"an object, {name}", got)
        async with a.run_stream(PROMPT) as r:
            parts = [part async for part in r.stream_output(debounce_by=None)]
        check("stream", parts and parts[-1] == got, f"an object, {name}: the same", parts[-1:], got)


async def main():
    for fn in (whole, stream, cancel, error, retry, tools, objects):
        with trying(fn.__name__, "no exception"):
            await fn()

asyncio.run(main())
