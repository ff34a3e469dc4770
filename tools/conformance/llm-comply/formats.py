# SPDX-License-Identifier: Apache-2.0
"""llm-comply: its tests of each format we speak, with the schemas that it carries."""
# serve: --sim-step-us 1000
import subprocess
from importlib.metadata import version

from claims import *

# Format: its route below its base URL, and tests of what is not supported here, which must be refused with 400.
FORMATS = {
    "anthropic": (V1, "/v1/messages", {"anth-image-input"}),
    "open-responses": (V1, "/v1/responses", {"image-input"}),
    "openai-chat": (V1, "/v1/chat/completions", {"chat-image-input"}),
}

# The scripted answers to its questions are longer than it lets them be.
LONGER = {f"stop_reason: expected '{end}', got 'max_tokens'" for end in ("end_turn", "tool_use")}

for name, (base, route, refused) in FORMATS.items():
    client(f"llm-comply ({name})", version("llm-comply"))
    p = subprocess.run(["llm-comply", "--format", name, "-u", base, "-k", "none", "-m", MODEL, "--json"], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, encoding="utf-8", timeout=240, check=False)
    report = json.loads(p.stdout)
    for t in report["results"]:
        area = "stream" if "stream" in t["id"] else "error" if "error" in t["id"] else "whole"
        if t["id"] in refused:
            check("error", "HTTP 400" in str(t.get("errors")), f"{t['name']}: refused, not dropped", t)
        elif t["status"] == "skipped":
            check("other", t.get("errors"), f"{t['name']}: skipped, and why", t)
        else:
            faults = [e for e in t.get("errors") or () if e not in LONGER]
            check(area, not faults and (t["status"] == "passed" or t.get("errors")), t["name"], t)
    equal("other", len(report["results"]), report["summary"]["total"], "all of them")
