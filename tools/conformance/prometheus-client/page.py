# SPDX-License-Identifier: Apache-2.0
"""prometheus-client's parsers, the strict one of OpenMetrics too, on /metrics under load.

serve: --compat-metrics on
"""
import threading
import urllib.request
from importlib.metadata import version

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client import parser as text

from claims import *

OPEN = "application/openmetrics-text; version=1.0.0"


def page(accept):
    with urllib.request.urlopen(urllib.request.Request(URL + "/metrics", headers={"Accept": accept}), timeout=WAIT_S) as r:
        return r.headers["Content-Type"], r.read().decode()


def families(is_open):
    kind, body = page(OPEN if is_open else "text/plain")
    equal("other", kind.partition(";")[0], "application/openmetrics-text" if is_open else "text/plain", "the type")
    parse = openmetrics if is_open else text
    return list(parse.text_string_to_metric_families(body))


def series(found):
    return {(s.name, tuple(sorted(s.labels.items()))) for f in found for s in f.samples}


client("prometheus-client", version("prometheus-client"))
with trying("other", "both formats parse and tell the same"):
    plain, strict = families(False), families(True)
    equal("other", series(strict) - series(plain), set(), "the same series in both")
    check("other", len(strict) > 70, "all families", len(strict))
    kinds = {f.name: (f.type, f.unit) for f in strict}
    equal("other", kinds.get("tokenring"), ("info", ""), "tokenring_info")
    equal("other", kinds.get("tokenring_tokens"), ("counter", ""), "a counter")
    equal("other", kinds.get("tokenring_inter_token_seconds"), ("histogram", "seconds"), "a histogram")
    equal("other", kinds.get("vllm:kv_cache_usage_perc"), ("gauge", ""), "vLLM's")

with trying("other", "while figures change"):
    job = threading.Thread(target=lambda: [words(max_tokens=64) for _ in range(3)])
    job.start()
    n = 0
    while job.is_alive() or n < 10:
        list(openmetrics.text_string_to_metric_families(page(OPEN)[1]))
        n += 1
    job.join()
    check("other", n >= 10, "each page under load parses", n)
