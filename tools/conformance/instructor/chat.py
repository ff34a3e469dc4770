# SPDX-License-Identifier: Apache-2.0
"""instructor: every way of it asks for a schema or a tool, which are refused by name; the way that only asks
in words gets its answer, which it then reads."""
from importlib.metadata import version

import instructor
import openai
from instructor.core import InstructorRetryException
from pydantic import BaseModel

from claims import *

client("instructor", version("instructor"))


class Ring(BaseModel):
    name: str


def ask(mode, **kw):
    c = instructor.from_openai(openai.OpenAI(base_url=V1, api_key="none", max_retries=0), mode=mode)
    return c.chat.completions.create(response_model=Ring, max_retries=0, **dict(dict(SAID, max_tokens=9), **kw))


for mode, field in ((instructor.Mode.TOOLS, "tools"), (instructor.Mode.JSON_SCHEMA, "response_format"), (instructor.Mode.JSON, "response_format")):
    e = raises("error", Exception, lambda mode=mode: ask(mode), f"{mode.name}: refused, not dropped")
    check("error", field in str(e) and "unsupported_parameter" in str(e), f"{mode.name}: by name", repr(e))
# Scripted tokens are no JSON; it says so of the answer that it was given.
e = raises("whole", InstructorRetryException, lambda: ask(instructor.Mode.MD_JSON, max_tokens=LONG), "MD_JSON: the answer is read")
check("whole", "unsupported" not in str(e) and "json" in str(e).lower(), "MD_JSON: it is no JSON", str(e)[-500:])
