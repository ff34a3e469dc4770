# SPDX-License-Identifier: Apache-2.0
"""instructor on the real model: its ways that bind the answer to a schema give objects of the class, streamed
in part and whole; a limit that cuts one is told."""
# serve: --backend cpu --ctx-size 2048
from importlib.metadata import version
from typing import Literal

import instructor
import openai
from instructor.core import IncompleteOutputException, InstructorRetryException
from pydantic import BaseModel, Field

from claims import *

client("instructor", version("instructor"))


class Ring(BaseModel):
    name: str = Field(max_length=40)
    metal: Literal["gold", "silver", "iron"]
    weight: int = Field(ge=1, le=500)


def ask(mode, model=Ring, **kw):
    c = instructor.from_openai(openai.OpenAI(base_url=V1, api_key="none", max_retries=0), mode=mode)
    return c.chat.completions.create(response_model=model, max_retries=0, **dict(dict(SAID, max_tokens=200), **kw))


for temperature in (0, 1.5):
    with trying("whole", f"JSON_SCHEMA at {temperature}"):
        ring = ask(instructor.Mode.JSON_SCHEMA, temperature=temperature, seed=1)
        check("whole", isinstance(ring, Ring), f"JSON_SCHEMA at {temperature}: an object of the class", ring)
with trying("stream", "JSON_SCHEMA in part"):
    parts = list(ask(instructor.Mode.JSON_SCHEMA, instructor.Partial[Ring], stream=True))
    whole = ask(instructor.Mode.JSON_SCHEMA)
    check("stream", len(parts) > 3 and parts[-1].model_dump() == whole.model_dump(), "JSON_SCHEMA: parts grow to the whole", parts[-1:], whole)
raises("error", (IncompleteOutputException, InstructorRetryException), lambda: ask(instructor.Mode.JSON_SCHEMA, max_tokens=4),
       "JSON_SCHEMA: one that is cut is incomplete")
with trying("whole", "JSON"):
    e = None
    try:
        ask(instructor.Mode.JSON, max_tokens=120)
    except (IncompleteOutputException, InstructorRetryException) as wrong:
        e = wrong  # an object, of whatever keys the model likes
    check("whole", e is None or "unsupported" not in str(e), "JSON: any object", str(e)[-300:])
