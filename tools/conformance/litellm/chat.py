# SPDX-License-Identifier: Apache-2.0
"""LiteLLM, which is the strictest about streams without a finish."""
import os
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

from claims import *  # noqa: E402

litellm.suppress_debug_info = True
TOOL = {"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}}, "required": ["city"]}}}
client("litellm", version("litellm"))


def ask(**kw):
    return litellm.completion(**dict(dict(SAID, model="openai/" + MODEL, api_base=V1, api_key="none", max_retries=0), **kw))


def joined(parts):
    return "".join(p.choices[0].delta.content or "" for p in parts if p.choices)


def whole():
    text, usage = words(max_tokens=40)
    got = ask(max_tokens=40)
    equal("whole", (got.choices[0].message.content, got.choices[0].finish_reason), (text, "length"), "the text")
    equal("whole", (got.usage.prompt_tokens, got.usage.completion_tokens), (usage["prompt_tokens"], usage["completion_tokens"]), "usage")
    got = litellm.text_completion(model="text-completion-openai/" + MODEL, prompt=PROMPT, api_base=V1, api_key="none", max_tokens=9, temperature=0)
    equal("whole", got.choices[0].text, truth("/v1/completions", prompt=PROMPT, max_tokens=9, temperature=0)["choices"][0]["text"], "completions")


def stream():
    text, usage = words(max_tokens=40)
    parts = list(ask(max_tokens=40, stream=True, stream_options={"include_usage": True}))
    equal("stream", joined(parts), text, "the text")
    equal("stream", [p.usage.completion_tokens for p in parts if getattr(p, "usage", None)], [usage["completion_tokens"]], "usage")
    built = litellm.stream_chunk_builder(parts)
    equal("stream", (built.choices[0].message.content, built.choices[0].finish_reason), (text, "length"), "put together by its own builder")


def cancel():
    with cancels("left in the middle"):
        parts = ask(max_tokens=LONG, stream=True)
        for _, _ in zip(parts, range(5)):
            pass
        parts.completion_stream.close()
    with cancels("a time limit of the client's own"):
        raises("cancel", litellm.Timeout, lambda: ask(max_tokens=LONG, timeout=0.5), "it times out")


def error():
    e = raises("error", litellm.BadRequestError, lambda: ask(max_tokens=-1), "a bad value")
    check("error", e and e.status_code == 400 and "max_tokens" in str(e), "its field", e)
    raises("error", litellm.NotFoundError, lambda: ask(model="openai/other"), "another model")
    e = raises("error", litellm.exceptions.MidStreamFallbackError, lambda: joined(ask(max_tokens=LONG, stream=True, extra_body={"timeout_s": 0.3})),
               "a stream that the server cannot finish")
    check("error", "deadline" in str(e), "why", e)


def retry():
    with full():
        raises("retry", litellm.ServiceUnavailableError, lambda: ask(max_tokens=3), "no place, without retries")
    with full():
        equal("retry", ask(max_tokens=3, max_retries=4).choices[0].message.content, words(max_tokens=3)[0], "tries again until there is one")


def called(choice):
    """The one call of an answer."""
    if choice.finish_reason != "tool_calls" or len(choice.message.tool_calls) != 1:
        raise ValueError(f"no call alone: {choice}")
    f = choice.message.tool_calls[0].function
    return f.name, json.loads(f.arguments)


def tools():
    """A call that is forced, in one piece and put together by its own builder; what the tool gave, and the answer."""
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        kw = dict(max_tokens=300, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
        got = ask(**kw).choices[0]
        name, args = called(got)
        check("whole", name == "weather" and args["city"] in ("Paris", "Rome"), f"{choice}: a call alone, which obeys the schema", got)
        parts = list(ask(stream=True, **kw))
        equal("stream", called(litellm.stream_chunk_builder(parts).choices[0]), (name, args), f"{choice}: the same call")
        check("stream", sum(bool(p.choices[0].delta.tool_calls) for p in parts if p.choices) > 1, f"{choice}: in pieces", parts)
    history = [*SAID["messages"], got.message.model_dump(exclude_none=True),
               {"role": "tool", "tool_call_id": got.message.tool_calls[0].id, "content": "It rains."}]
    text = words(messages=history, tools=[TOOL], max_tokens=40)[0]
    equal("whole", ask(messages=history, tools=[TOOL], max_tokens=40).choices[0].message.content, text, "an answer to what it gave")
    equal("stream", joined(ask(messages=history, tools=[TOOL], max_tokens=40, stream=True)), text, "an answer to what it gave")


for fn in (whole, stream, cancel, error, retry, tools):
    with trying(fn.__name__, "no exception"):
        fn()
