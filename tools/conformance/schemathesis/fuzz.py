# SPDX-License-Identifier: Apache-2.0
"""schemathesis: requests made from OpenAI's own OpenAPI (as llm-comply carries it), right and wrong ones, on
the routes that are served.  No answer is a 5xx, and each has the shape that the OpenAPI gives it."""
# serve: --sim-step-us 0 --max-seqs 16 --max-queue 64
import copy
import subprocess
from importlib import resources
from importlib.metadata import version

from claims import *

ROUTES = {"/chat/completions": "post", "/completions": "post", "/models": "get", "/models/{model}": "get"}
# Fields that are refused by name: with one of them in most bodies nothing else would be asked.  30_api and
# 39_fields ask for each.
REFUSED = {"functions", "function_call", "audio", "modalities", "store", "suffix", "web_search_options",
           "best_of", "stream_options"}  # the last one unless there is a stream
LENGTHS = {"max_tokens", "max_completion_tokens"}


def properties(schema):
    """Each object of properties in a schema and its parts."""
    for part in [schema, *schema.get("allOf", ())]:
        if "properties" in part:
            yield part["properties"]


def cut(spec):
    """The OpenAPI as far as it is served here."""
    spec = copy.deepcopy(spec)
    spec["paths"] = {path: {method: spec["paths"][path][method]} for path, method in ROUTES.items()}
    for path in ("/chat/completions", "/completions"):
        # What an event holds is told for one and not for the other, and not as the suite understands it; the
        # clients that parse strictly look at that.
        spec["paths"][path]["post"]["responses"]["200"]["content"]["text/event-stream"] = {"schema": {}}
    spec["servers"] = [{"url": V1}]
    spec["security"] = []
    schemas = spec["components"]["schemas"]
    schemas["ModelIdsShared"] = {"type": "string", "enum": [MODEL]}
    for name in ("CreateChatCompletionRequest", "CreateCompletionRequest", "CreateModelResponseProperties"):
        for props in properties(schemas[name]):
            for field in REFUSED & set(props):
                del props[field]
            for field in LENGTHS & set(props):
                props[field] = {"type": "integer", "minimum": 0, "maximum": 8}
            if "model" in props:
                props["model"] = {"type": "string", "enum": [MODEL]}
    schemas["ChatCompletionRequestMessage"] = {
        "type": "object", "required": ["role", "content"],
        "properties": {"role": {"type": "string", "enum": ["system", "user", "assistant"]}, "content": {"type": "string"}}}
    return spec


client("schemathesis (OpenAI's OpenAPI)", version("schemathesis"))
whole = json.loads(resources.files("llm_comply").joinpath("specs/openai_chat.json").read_text(encoding="utf-8"))
with open("spec.json", "w", encoding="utf-8") as f:
    json.dump(cut(whole), f)
with open("schemathesis.toml", "w", encoding="utf-8") as f:
    f.write("[phases.coverage]\nunexpected-methods = []\n")  # 501 is the answer to a method that HTTP does not know
p = subprocess.run(["schemathesis", "run", "spec.json", "--url", V1, "--phases", "coverage,fuzzing", "-n", "100", "--seed", "7",
                    "--checks", "not_a_server_error,response_schema_conformance,content_type_conformance", "--continue-on-failure",
                    "--request-timeout", "60", "--warnings", "off", "--report", "ndjson", "--report-ndjson-path", "events.ndjson"],
                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=250, check=False)
check("other", p.returncode == 0, "no check of the suite fails", p.stdout[-1500:])
statuses = {}
with open("events.ndjson", encoding="utf-8") as f:
    for event in (json.loads(line) for line in f):
        for one in event.get("ScenarioFinished", {}).get("recorder", {}).get("interactions", {}).values():
            status = (one.get("response") or {}).get("status_code")
            route = one["request"]["uri"].removeprefix(V1)
            statuses[route, status] = statuses.get((route, status), 0) + 1
for route in ("/chat/completions", "/completions"):
    good, bad = statuses.get((route, 200), 0), statuses.get((route, 400), 0)
    check("whole", good >= 30, f"{route}: answers among them", good, statuses)
    check("error", bad >= 30, f"{route}: refusals among them", bad)
check("other", until(lambda: metrics()["requests_running"] == 0), "nothing runs any more")
