# SPDX-License-Identifier: Apache-2.0
"""OpenAI's agents over chat completions and over Responses: an agent without tools, and one that
has to call a tool."""
import asyncio
from importlib.metadata import version
from typing import Literal

import openai
from agents import Agent, ModelBehaviorError, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled

from claims import *

set_tracing_disabled(True)
MODELS = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}
api = ""  # which of them
sent = []  # bodies, as they went out
asked = []  # cities that the tool was called with


def soon(messages=tuple(SAID["messages"])):
    """What ends the answer by itself after some text; over Responses one that was cut off is an error to this client."""
    return {"stop": [words(messages=messages, max_tokens=40)[0][20:23]]}


SOON = soon()


@function_tool
def weather(city: Literal["Paris", "Rome"]) -> str:
    """Weather of a city"""
    asked.append(city)
    return f"It rains in {city}."


async def keep(request):
    sent.append(request.content)


def agent(retries=0, tools=(), **settings):
    c = openai.AsyncOpenAI(base_url=V1, api_key="none", max_retries=retries, http_client=openai.DefaultAsyncHttpxClient(event_hooks={"request": [keep]}))
    # Without instructions: the same messages as a plain request.
    return Agent(name="a", model=MODELS[api](model=MODEL, openai_client=c), tools=list(tools),
                 model_settings=ModelSettings(**dict(dict(temperature=0, max_tokens=1000, extra_body=SOON), **settings)))


async def joined(a):
    text = ""
    r = Runner.run_streamed(a, PROMPT)
    async for e in r.stream_events():
        if e.type == "raw_response_event" and e.data.type == "response.output_text.delta":
            text += e.data.delta
    return text


async def whole():
    text, usage = words(**SOON)
    got = await Runner.run(agent(), PROMPT)
    equal("whole", got.final_output, text, "the text")
    u = got.context_wrapper.usage
    equal("whole", (u.input_tokens, u.output_tokens), (usage["prompt_tokens"], usage["completion_tokens"]), "usage")
    more = [{"role": "user", "content": "Go on."}]
    both = [*SAID["messages"], {"role": "assistant", "content": text}, *more]
    second = await Runner.run(agent(extra_body=soon(both)), got.to_input_list() + more)
    equal("whole", second.final_output, words(messages=both, **soon(both))[0], "a second turn")


async def stream():
    equal("stream", await joined(agent()), words(**SOON)[0], "the text")


async def cancel():
    with cancels("a task is cancelled"):
        t = asyncio.create_task(Runner.run(agent(max_tokens=LONG, extra_body=None), PROMPT))
        await asyncio.to_thread(until, lambda: metrics()["requests_running"] == 1)
        t.cancel()
        await asyncio.gather(t, return_exceptions=True)


async def error():
    e = await fails("error", openai.BadRequestError, Runner.run(agent(top_p=5), PROMPT), "a bad value")
    equal("error", e and e.param, "top_p", "its field")
    e = await fails("error", openai.APIError, joined(agent(max_tokens=LONG, extra_body={"timeout_s": 0.3})), "a stream that the server cannot finish")
    equal("error", e and e.code, "deadline_exceeded", "why")


async def cut_off():
    """An answer that the limit of tokens cuts off."""
    a = agent(max_tokens=5, extra_body=None)
    if api == "chat":
        equal("whole", (await Runner.run(a, PROMPT)).final_output, words(max_tokens=5)[0], "cut off")
    else:
        e = await fails("error", ModelBehaviorError, Runner.run(a, PROMPT), "cut off")
        check("error", "response.incomplete" in str(e) and "max_output_tokens" in str(e), "and why", e)


async def retry():
    with full():
        await fails("retry", openai.InternalServerError, Runner.run(agent(), PROMPT), "no place, without retries")
    with full():
        equal("retry", (await Runner.run(agent(4), PROMPT)).final_output, words(**SOON)[0], "tries again until there is one")


def said_again(body):
    """The text that a plain request of it gets."""
    if api == "chat":
        return again(body)["content"]
    items = truth("/v1/responses", **dict(json.loads(body), stream=False))["output"]
    return "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])


async def tools():
    """A call that is forced, what the tool gave, and the answer to that, for which the agent takes back the force."""
    for area, choice in (("whole", "weather"), ("stream", "required")):
        sent.clear()
        asked.clear()
        a = agent(tools=[weather], tool_choice=choice, extra_body=None)
        if area == "whole":
            r = await Runner.run(a, PROMPT)
        else:
            r = Runner.run_streamed(a, PROMPT)
            pieces = [e.data.delta async for e in r.stream_events()
                      if e.type == "raw_response_event" and e.data.type == "response.function_call_arguments.delta"]
            check("stream", asked and json.loads("".join(pieces)) == {"city": asked[0]}, "the arguments in pieces", pieces)
        check(area, len(asked) == 1 and asked[0] in ("Paris", "Rome"), f"{choice}: the tool is called once", asked)
        kinds = [i.type for i in r.new_items]
        equal(area, kinds, ["tool_call_item", "tool_call_output_item", "message_output_item"], f"{choice}: a call, its output and an answer")
        check(area, len(sent) == 2 and f"It rains in {asked[0]}.".encode() in sent[1], f"{choice}: the output was sent", sent)
        equal(area, r.final_output, said_again(sent[1]), f"{choice}: the answer is that of a plain request")


async def main():
    global api
    for api in MODELS:
        client(f"openai-agents ({api})", version("openai-agents"))
        for fn in (whole, stream, cancel, error, cut_off, retry, tools):
            with trying(fn.__name__, "no exception"):
                await fn()

asyncio.run(main())
