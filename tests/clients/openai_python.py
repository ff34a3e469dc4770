# SPDX-License-Identifier: Apache-2.0
"""openai-python against the server at BASE: prints one JSON object, what each scenario gave."""
import json
import sys

import openai

LONG = "a " * 7000
FORCED = {"model": "smollm2", "temperature": 0, "logit_bias": {"369": 100}}
c = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0)


def ask(text="x"):
    return dict(FORCED, messages=[{"role": "user", "content": text}])


def chat(**kw):
    out = {}
    for part in c.chat.completions.create(stream=True, **kw):
        for choice in part.choices:
            out[choice.index] = out.get(choice.index, "") + (choice.delta.content or "")
    return out[0] if len(out) == 1 else [out[i] for i in sorted(out)]


def refused():
    try:
        chat(max_tokens=-1, **ask())
    except openai.BadRequestError as e:
        return [e.status_code, e.param]


def cut():
    """The end of a stream that the server cannot finish is an exception, no answer."""
    try:
        return chat(max_tokens=8000, extra_body={"timeout_s": 0.3}, **ask())
    except openai.APIError as e:
        return e.code


def helper():
    with c.chat.completions.stream(stop=["bab"], max_tokens=20, **ask()) as st:
        for _ in st:
            pass
        got = st.get_final_completion()
    return [got.choices[0].message.content, got.choices[0].finish_reason]


def usage():
    parts = list(c.chat.completions.create(stream=True, max_tokens=3, stream_options={"include_usage": True}, **ask("Hi")))
    return [parts[-1].usage.prompt_tokens, parts[-1].usage.completion_tokens, len({p.id for p in parts})]


def resumed():
    """Cut after a few chunks, gone on with where the cursor says."""
    st = c.chat.completions.create(stream=True, max_tokens=20, extra_headers={"X-Tokenring-Resume": "1"}, **ask())
    text, cursor = "", None
    for part, _ in zip(st, range(4)):
        text += part.choices[0].delta.content or ""
        cursor = part.tokenring["cursor"]
    st.close()
    stream, number = cursor.rsplit(":", 1)
    rest = c.get(f"/streams/{stream}?format=chat&after={number}", stream=True, cast_to=openai.types.chat.ChatCompletionChunk,
                 stream_cls=openai.Stream[openai.types.chat.ChatCompletionChunk])
    return text + "".join(part.choices[0].delta.content or "" for part in rest)


def left():
    st = c.chat.completions.create(stream=True, max_tokens=8000, **ask())
    text = "".join(part.choices[0].delta.content or "" for part, _ in zip(st, range(4)))
    st.close()
    return text


def tools():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    try:
        c.chat.completions.create(tools=[tool], tool_choice="required", **ask())
    except openai.BadRequestError as e:
        return [e.status_code, e.param]


print(json.dumps({
    "queued": chat(max_tokens=20, **ask()), "prefill": chat(max_tokens=20, **ask(LONG)), "two": chat(max_tokens=5, n=2, **ask()),
    "whole": c.chat.completions.create(max_tokens=20, **ask()).choices[0].message.content,
    "completions": "".join(p.choices[0].text for p in c.completions.create(prompt="x", max_tokens=20, stream=True, **FORCED)),
    "empty": chat(**dict(ask(), logit_bias={"2": 100})), "stop": chat(stop=["bab"], max_tokens=20, **ask()),
    "usage": usage(), "helper": helper(), "refused": refused(), "cut": cut(), "tools": tools(), "resumed": resumed(), "left": left()}))
