# SPDX-License-Identifier: Apache-2.0
"""openai-python on the real model: parse() of chat and Responses with a pydantic class, streamed and whole."""
# serve: --backend cpu --ctx-size 2048
from enum import Enum

import openai
from pydantic import BaseModel, Field

from claims import *

client("openai-python " + openai.__version__.split(".")[0] + ".x (structured)", openai.__version__)
C = openai.OpenAI(base_url=V1, api_key="none", max_retries=0)


class Colour(str, Enum):
    red = "red"
    blue = "blue"


class Part(BaseModel):
    name: str = Field(max_length=30)
    count: int = Field(ge=0, le=999)


class Thing(BaseModel):
    title: str = Field(max_length=40)
    colour: Colour
    parts: list[Part] = Field(min_length=1, max_length=2)
    heavy: bool


def chat(**kw):
    return C.chat.completions.parse(response_format=Thing, **dict(dict(SAID, max_tokens=400), **kw))


with trying("whole", "parse"):
    got = chat().choices[0]
    check("whole", got.finish_reason == "stop" and isinstance(got.message.parsed, Thing), "parse: an object of the class", got)
    again = C.chat.completions.create(**dict(SAID, max_tokens=400), response_format={"type": "json_schema", "json_schema": {
        "name": "thing", "strict": True, "schema": Thing.model_json_schema()}}).choices[0].message.content
    check("whole", isinstance(Thing.model_validate_json(again), Thing), "create with the plain schema obeys it", again)
    names = [json.loads(C.chat.completions.create(**dict(SAID, temperature=2, seed=i, max_tokens=400), response_format={
        "type": "json_schema", "json_schema": {"name": "part", "schema": dict(Part.model_json_schema(), additionalProperties=False,
        properties={"name": {"type": "string", "maxLength": 20}, "count": {"type": "integer"}})}}).choices[0].message.content) for i in range(5)]
    check("whole", all(set(n) == {"name", "count"} and isinstance(n["count"], int) for n in names), "at temperature 2 as well", names)
with trying("stream", "stream of parse"):
    with C.chat.completions.stream(response_format=Thing, **dict(SAID, max_tokens=400)) as s:
        kinds = {e.type for e in s}
        end = s.get_final_completion().choices[0].message
    check("stream", isinstance(end.parsed, Thing) and "content.done" in kinds, "the stream ends with an object of the class", kinds, end)
    equal("stream", end.parsed, got.message.parsed, "which is that of parse")
with trying("whole", "Responses"):
    r = C.responses.parse(model=MODEL, input=PROMPT, temperature=0, max_output_tokens=400, text_format=Thing)
    check("whole", isinstance(r.output_parsed, Thing), "responses.parse: an object of the class", r.output_text)
raises("error", openai.LengthFinishReasonError, lambda: chat(max_tokens=5), "one that is cut says so")
e = raises("error", openai.BadRequestError, lambda: C.chat.completions.create(**SAID, response_format={
    "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object", "properties": {"a": {"type": "foo"}}}}}), "a schema that is none")
check("error", e is not None and e.param == "response_format.json_schema.schema.properties.a.type", "by its place", getattr(e, "param", None))
