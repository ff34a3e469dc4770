# SPDX-License-Identifier: Apache-2.0
"""openai-python with API keys: what it raises, what it reads of limits, and that it waits as it is told.
serve: KEYS
"""
import os

import openai

from claims import *

client("openai-python " + openai.__version__.split(".")[0] + ".x", openai.__version__)


def ask(key):
    return openai.OpenAI(base_url=V1, api_key=key, max_retries=0).chat.completions.with_raw_response.create(**SAID, max_tokens=2)


with trying("error", "keys"):
    equal("whole", ask(os.environ["TOKENRING_KEY"]).parse().usage.completion_tokens, 2, "a key is sent and taken")
    try:
        ask("wrong")
        check("error", False, "a wrong key is refused")
    except openai.AuthenticationError as e:
        equal("error", (e.code, e.status_code), ("invalid_api_key", 401), "AuthenticationError")
    azure = openai.OpenAI(base_url=V1, api_key="placeholder", default_headers={"api-key": os.environ["TOKENRING_KEY"]})
    equal("whole", len(azure.models.list().data), 1, "Azure's field")

with trying("error", "limits"):
    limited = os.environ["TOKENRING_KEY_LIMITED"]
    left = [ask(limited).headers["x-ratelimit-remaining-requests"] for _ in range(2)]
    equal("whole", left, ["1", "0"], "what is left is told")
    try:
        ask(limited)
        check("error", False, "a third is refused")
    except openai.RateLimitError as e:
        wait = int(e.response.headers["retry-after"])
        check("error", e.code == "rate_limit_exceeded" and 0 < wait <= 61 and "in a minute: at most 2." in e.message, "RateLimitError",
              e.message, wait)
