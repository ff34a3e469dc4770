# SPDX-License-Identifier: Apache-2.0
"""What the benches share: a service on a free port, its processes, readers, tables.

TOKENRING_BIN names the binary (default: build/release/supervisor/tokenring, then build/dev)."""
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def binary():
    named = os.environ.get("TOKENRING_BIN")
    if named:
        return named
    for preset in ("release", "dev"):
        path = os.path.join(ROOT, "build", preset, "supervisor/tokenring")
        if os.path.exists(path):
            return path
    sys.exit("no binary: cmake --workflow --preset release, or set TOKENRING_BIN")


def title(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode("latin-1").strip()
    return ""


def children(pid):
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            return [int(p) for p in f.read().split()]
    return []


def metric(port, name):
    """The sum of a metric's samples."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as r:
        text = r.read().decode()
    return sum(float(v) for v in re.findall(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.M))


def status_kib(pid, field):
    """A line of /proc/PID/status in KiB."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        m = re.search(rf"^{field}:\s+(\d+) kB", f.read(), re.M)
    return int(m.group(1)) if m else 0


class Service:
    """A service, by default on the sim backend; `log`: a file for what it writes to stderr."""

    def __init__(self, log=os.devnull, **flags):
        argv = [binary(), "serve", "--port", "0"]
        for k, v in {"model": "sim", **flags}.items():
            argv += [f"--{k.replace('_', '-')}", str(v)]
        with open(log, "w", encoding="utf-8") as err:
            self.child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, text=True)
        line = self.child.stdout.readline()
        m = re.search(r"http://[^ ]+:(\d+)", line)
        if not m:
            sys.exit(f"the service does not start: {' '.join(argv)}")
        self.port = int(m.group(1))
        self.engine = (self.processes()["engine"] or [0])[0]
        self.frontends = self.processes()["frontend"]

    def processes(self):
        """{"engine": [pid], "ledger": [pid], "frontend": [pid, ...]} of this moment."""
        out = {"engine": [], "ledger": [], "frontend": []}
        for pid in children(self.child.pid):
            m = re.match(r"tokenring: (engine|ledger|frontend)", title(pid))
            if m:
                out[m.group(1)].append(pid)
        return out

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(0.3)
        self.child.terminate()  # the second one does not wait for streams
        self.child.wait()
        self.child.stdout.close()


def readers(port, watch=(), **flags):
    """`tokenring bench readers` as a dict of its report; "exit" is its status."""
    argv = [binary(), "bench", "readers", "--port", str(port)]
    for k, v in flags.items():
        argv += [f"--{k.replace('_', '-')}", str(v)]
    for pid in watch:
        argv += ["--watch", str(pid)]
    p = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    return dict(json.loads(p.stdout or "{}"), exit=p.returncode)


def bare(reader_flags, **flags):
    """The same reader against `tokenring bench bare`."""
    argv = [binary(), "bench", "bare"]
    for k, v in flags.items():
        argv += [f"--{k.replace('_', '-')}", str(v)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as p:
        port = int(p.stdout.readline())
        return readers(port, watch=[p.pid], **reader_flags)


def machine():
    with open("/proc/loadavg", encoding="ascii") as f:
        load = f.read().split()[0]
    return f"{time.strftime('%Y-%m-%d')}, {len(os.sched_getaffinity(0))} cores, {os.uname().machine}, load {load}"


def median(values):
    v = sorted(values)
    return v[len(v) // 2] if len(v) % 2 else (v[len(v) // 2 - 1] + v[len(v) // 2]) / 2


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for r in rows:
        print("| " + " | ".join(str(c) for c in r) + " |", flush=True)
