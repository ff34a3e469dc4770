# SPDX-License-Identifier: Apache-2.0
"""kosoku: the server cases of the Autobahn suite, against an echo over the frontend's own sessions.  No
compression is offered (12 and 13)."""
import re
import subprocess

from importlib.metadata import version

from claims import *

EXCLUDED = ("12.*", "13.*")


def echo():
    """Beside the binary, in the same build."""
    build = os.path.dirname(os.path.dirname(os.environ["TOKENRING_BIN"]))
    return os.path.join(build, "tests/system_ws_echo")


def verdicts(port):
    """{case: verdict} of the suite's report."""
    args = ["kosoku", f"127.0.0.1:{port}", "-o", "out"]
    for x in EXCLUDED:
        args += ["-x", x]
    p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", timeout=250, check=False)
    for folder, _, names in os.walk("out"):
        if "index.json" in names:
            with open(os.path.join(folder, "index.json"), encoding="utf-8") as f:
                (cases,) = json.load(f).values()
                return cases
    raise RuntimeError(p.stdout[-2000:])


client("kosoku (Autobahn)", version("kosoku"))
with subprocess.Popen([echo()], stdout=subprocess.PIPE, encoding="ascii") as server:
    try:
        found = verdicts(int(server.stdout.readline()))
        check("other", len(found) > 200, "as many cases as the suite has", len(found))
        for case, v in sorted(found.items(), key=lambda kv: [int(n) for n in re.findall(r"\d+", kv[0])]):
            check("other", v["behavior"] in ("OK", "INFORMATIONAL", "NON-STRICT") and
                  v["behaviorClose"] in ("OK", "INFORMATIONAL"), f"case {case}", v)
        strict = [c for c, v in found.items() if v["behavior"] == "NON-STRICT"]
        equal("other", strict, [], "none is told later than it could be")
    finally:
        server.terminate()
