# SPDX-License-Identifier: Apache-2.0
"""OpenAI's agents over chat completions: an agent without tools, which are refused by name."""
import asyncio
from importlib.metadata import version

import openai
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

from claims import *

set_tracing_disabled(True)
client("openai-agents", version("openai-agents"))


def agent(retries=0, tools=(), **settings):
    c = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=retries)
    # Without instructions: the same messages as a plain request.
    return Agent(name="a", model=OpenAIChatCompletionsModel(model=MODEL, openai_client=c), tools=list(tools),
                 model_settings=ModelSettings(**dict(dict(temperature=0), **settings)))


async def joined(a):
    text = ""
    r = Runner.run_streamed(a, PROMPT)
    async for e in r.stream_events():
        if e.type == "raw_response_event" and e.data.type == "response.output_text.delta":
            text += e.data.delta
    return text


async def fails(area, kind, what, claim):
    try:
        out = await what
    except kind as e:
        check(area, True, claim)
        return e
    except Exception as e:
        check(area, False, claim, repr(e))
    else:
        check(area, False, claim, f"gave {out!r}")
    return None


async def whole():
    text, usage = words(max_tokens=40)
    got = await Runner.run(agent(max_tokens=40), PROMPT)
    equal("whole", got.final_output, text, "the text")
    u = got.context_wrapper.usage
    equal("whole", (u.input_tokens, u.output_tokens), (usage["prompt_tokens"], usage["completion_tokens"]), "usage")
    first = await Runner.run(agent(max_tokens=5), PROMPT)
    second = await Runner.run(agent(max_tokens=5), first.to_input_list() + [{"role": "user", "content": "Go on."}])
    check("whole", second.final_output, "a second turn")


async def stream():
    equal("stream", await joined(agent(max_tokens=40)), words(max_tokens=40)[0], "the text")


async def cancel():
    with cancels("a task is cancelled"):
        t = asyncio.create_task(Runner.run(agent(max_tokens=LONG), PROMPT))
        await asyncio.to_thread(until, lambda: metrics()["requests_running"] == 1)
        t.cancel()
        await asyncio.gather(t, return_exceptions=True)


async def error():
    e = await fails("error", openai.BadRequestError, Runner.run(agent(top_p=5), PROMPT), "a bad value")
    equal("error", e and e.param, "top_p", "its field")

    @function_tool
    def tool() -> str:
        return "x"
    e = await fails("error", openai.BadRequestError, Runner.run(agent(tools=[tool]), PROMPT), "tools are refused, not dropped")
    equal("error", e and e.param, "tools", "by name")
    e = await fails("error", openai.APIError, joined(agent(max_tokens=LONG, extra_body={"timeout_s": 0.3})), "a stream that the server cannot finish")
    equal("error", e and e.code, "deadline_exceeded", "why")


async def retry():
    with full(2):
        await fails("retry", openai.InternalServerError, Runner.run(agent(max_tokens=3), PROMPT), "no place, without retries")
    with full(1.5):
        equal("retry", (await Runner.run(agent(4, max_tokens=3), PROMPT)).final_output, words(max_tokens=3)[0], "tries again until there is one")


async def main():
    for fn in (whole, stream, cancel, error, retry):
        with trying(fn.__name__, "no exception"):
            await fn()

asyncio.run(main())
