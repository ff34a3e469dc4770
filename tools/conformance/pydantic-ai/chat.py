# SPDX-License-Identifier: Apache-2.0
"""pydantic-ai over chat completions: an agent without tools."""
import asyncio
from importlib.metadata import version

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from claims import *

client("pydantic-ai", version("pydantic-ai-slim"))


def agent(retries=0, **settings):
    c = AsyncOpenAI(base_url=V1, api_key="none", max_retries=retries)
    return Agent(OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=c)), model_settings=dict(dict(temperature=0), **settings), retries=0)


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


async def main():
    for fn in (whole, stream, cancel, error, retry):
        with trying(fn.__name__, "no exception"):
            await fn()

asyncio.run(main())
