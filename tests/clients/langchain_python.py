# SPDX-License-Identifier: Apache-2.0
"""LangChain's ChatOpenAI against the server at BASE: prints one JSON object, what each scenario gave."""
import json
import sys

import openai
from langchain_openai import ChatOpenAI

LONG = "a " * 7000


def model(**kw):
    return ChatOpenAI(base_url=sys.argv[1], api_key="none", model="smollm2", temperature=0, max_retries=0,
                      logit_bias={"369": 100}, **kw)


def stream(m, text="x"):
    return "".join(part.content for part in m.stream(text))


def usage():
    parts = list(model(max_tokens=3, stream_usage=True).stream("Hi"))
    u = [p.usage_metadata for p in parts if p.usage_metadata]
    return [sum(x["input_tokens"] for x in u), sum(x["output_tokens"] for x in u)]


def refused():
    try:
        stream(model(max_tokens=-1))
    except openai.BadRequestError as e:
        return [e.status_code, e.param]


def cut():
    """The end of a stream that the server cannot finish is an exception, no answer."""
    try:
        return stream(model(max_tokens=8000, extra_body={"timeout_s": 0.3}))
    except openai.APIError as e:
        return e.code


def left():
    parts = model(max_tokens=8000).stream("x")
    text = "".join(part.content for part, _ in zip(parts, range(4)))
    parts.close()
    return text


print(json.dumps({
    "queued": stream(model(max_tokens=20)), "prefill": stream(model(max_tokens=20), LONG), "whole": model(max_tokens=20).invoke("x").content,
    "stop": stream(model(max_tokens=20, stop=["bab"])), "usage": usage(), "refused": refused(), "cut": cut(), "left": left()}))
