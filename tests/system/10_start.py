# SPDX-License-Identifier: Apache-2.0
"""Starting: options, the ready line, failures in one sentence, health, models, hostile files."""
import atexit
import os
import re
import resource
import shutil
import socket
import struct
import subprocess
import tempfile

from lib import *

TMP = tempfile.mkdtemp(prefix="tokenring-test-")
atexit.register(shutil.rmtree, TMP, True)
LINE = re.compile(r"^\S+ (error|warn|info) ")


def one_sentence(claim, args, *words, status=None, **how):
    """Starting fails: no signal, one line of error that says why, the port never opened."""
    code, err, seconds = fails_to_start(args, **how)
    lines = [line for line in err.splitlines() if " info " not in line]
    check(code is not None and code > 0 and (status is None or code == status),
          f"{claim}: exits non-zero", code, err)
    check(len(lines) == 1 and all(w in lines[0] for w in words), f"{claim}: one clear sentence",
          words, err)
    check(not SANITIZER.search(err), f"{claim}: no sanitizer report", err)
    return seconds


@test
def bad_flags():
    sim = dict(TINY, port=0)
    one_sentence("unknown flag", ["serve", "--nonsense", "1"], "--nonsense")
    one_sentence("flag without value", ["serve", "--model"], "--model")
    one_sentence("no model", dict(port=0), "--model")
    one_sentence("port out of range", dict(sim, port=65536), "--port")
    one_sentence("port that is no number", dict(sim, port="80x"), "--port")
    one_sentence("negative count", dict(sim, max_seqs="-1"), "--max-seqs")
    for value in ("0x10", "nan", "inf", "1e400", "1 ", "", "-1", "5s"):
        one_sentence(f"--timeout-s '{value}'", dict(sim, timeout_s=value), "--timeout-s")
    for value in ("0x10", "5 ", "+5", "18446744073709551617", "1e3", ""):
        one_sentence(f"--max-seqs '{value}'", dict(sim, max_seqs=value), "--max-seqs")
    one_sentence("unknown choice", dict(sim, backend="gpu"), "--backend")
    one_sentence("bad size", dict(sim, max_body="4Q"), "--max-body")
    one_sentence("context too large", dict(SIM, port=0, ctx_size=100000), "--ctx-size")
    one_sentence("pool smaller than a context", dict(SIM, port=0, kv_memory=128 * 20), "KV")
    one_sentence("weights that do not exist", dict(sim, backend="cpu"), "--model sim")
    one_sentence("no GPU, or no program for one", dict(SIM, port=0, backend="cuda"), "--backend cuda")
    one_sentence("a GPU for the sim model", dict(sim, backend="cuda"), "--model sim")
    one_sentence("arithmetic of the CPU on a GPU", dict(SIM, port=0, backend="cuda", cpu_math="f32"),
                 "--cpu-math f32", "--deterministic")
    one_sentence("the same tokens from blas", dict(SIM, port=0, backend="cpu", cpu_math="blas", deterministic="on"),
                 "--deterministic", "--cpu-math blas")
    one_sentence("bad host", dict(sim, host="no.such.host.invalid"), "--host")
    one_sentence("template that is missing", dict(SIM, port=0, chat_template=TMP + "/none.jinja"),
                 "none.jinja")
    with open(TMP + "/bad.jinja", "w", encoding="utf-8") as f:
        f.write("{% for x in %}")
    one_sentence("template that does not parse", dict(SIM, port=0, chat_template=TMP + "/bad.jinja"),
                 "template")
    code, err, _ = fails_to_start(["nonsense"])
    check(code == 2 and "nonsense" in err, "unknown command", code, err)


@test
def the_smallest_time_is_not_none():
    """A time that rounds to nothing is still a time, where 0 is none."""
    with Server(TINY, timeout_s="1e-12", ledger=False) as s:
        r = s.post("/v1/completions", force(97, prompt="x", max_tokens=500))
        check(is_error(r, 504, code="deadline_exceeded"), "the shortest deadline", r.status, r.text[:200])


@test
def help_and_environment():
    out = subprocess.run([BIN, "serve", "--help"], capture_output=True, text=True, check=False)
    equal(out.returncode, 0, "--help exits 0")
    for flag in ("--model", "--port", "--frontends", "--ledger", "--window", "--drain-s",
                 "--heartbeat-s", "--max-choices", "--sim-step-us"):
        check(flag + " " in out.stdout, f"--help names {flag}")
    os.environ["TOKENRING_MAX_CHOICES"] = "many"
    one_sentence("environment twin", dict(TINY, port=0), "--max-choices")
    os.environ["TOKENRING_MAX_CHOICES"] = "3"
    try:
        with Server(TINY, ledger=False) as s:
            r = s.post("/v1/chat/completions", chat("Hi", n=4))
            check(is_error(r, param="n"), "the environment twin has an effect", r.text)
    finally:
        del os.environ["TOKENRING_MAX_CHOICES"]
    v = subprocess.run([BIN, "version"], capture_output=True, text=True, check=False)
    check(v.returncode == 0 and v.stdout.startswith("tokenring "), "version", v.stdout)


@test
def places_that_cannot_be_used():
    with contextlib.closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        one_sentence("port in use", dict(TINY, port=port), "cannot listen", str(port))
    one_sentence("ledger in a missing folder", dict(TINY, port=0, ledger=TMP + "/none/l.db"),
                 "/none/l.db")
    one_sentence("ledger that is a folder", dict(TINY, port=0, ledger=TMP), TMP)
    one_sentence("ledger on a full or read-only place", dict(TINY, port=0, ledger="/proc/l.db"),
                 "/proc/l.db")
    with Server(TINY) as s:
        one_sentence("ledger of another service", dict(TINY, port=0, ledger=s.ledger), "in use")
        s.alive("a second service wanted the same ledger", None)


def model_file(name, data):
    path = os.path.join(TMP, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


@test
def files_that_are_no_models():
    """Case B70: cut, empty, text, folder, missing, unreadable."""
    with open(MODEL_FILE, "rb") as f:
        start = f.read(2_500_000)
    size = os.path.getsize(MODEL_FILE)
    for backend in ("cpu", "sim"):
        flags = dict(port=0, backend=backend)
        one_sentence(f"empty file ({backend})", dict(flags, model=model_file("e.gguf", b"")),
                     "e.gguf")
        one_sentence(f"24 bytes ({backend})", dict(flags, model=model_file("h.gguf", start[:24])),
                     "h.gguf")
        one_sentence(f"cut in the metadata ({backend})",
                     dict(flags, model=model_file("m.gguf", start[:200_000])), "m.gguf")
        one_sentence(f"text ({backend})",
                     dict(flags, model=model_file("t.gguf", b"this is no model\n" * 100)), "t.gguf")
        one_sentence(f"folder ({backend})", dict(flags, model=TMP), TMP)
        one_sentence(f"missing ({backend})", dict(flags, model=TMP + "/no.gguf"), "no.gguf")
    path = os.path.join(TMP, "cut.gguf")
    subprocess.run(["cp", "--reflink=auto", MODEL_FILE, path], check=True)
    for cut in (size - 1, 50_000_000, size // 2, 5_000_000):
        os.truncate(path, cut)
        one_sentence(f"cut at {cut}", dict(model=path, port=0), "cut.gguf", "tensor ", str(cut))
    os.unlink(path)


@test
def file_that_may_not_be_read():
    """Case B70: mode 000, for a user who is not root."""
    path = model_file("closed.gguf", b"GGUF")
    os.chmod(path, 0)
    binary = shutil.copy(BIN, os.path.join(TMP, "tokenring"))  # where another user may execute it
    os.chmod(TMP, 0o755)
    user = {"user": 65534} if os.getuid() == 0 else {}
    for backend in ("cpu", "sim"):
        one_sentence(f"closed file ({backend})", dict(model=path, port=0, backend=backend), "closed.gguf",
                     "ermission", executable=binary, cwd=TMP, **user)


def hostile_files():
    """The files of case B71, by their field of fault: (what the sentence names, bytes)."""
    u32 = lambda v: struct.pack("<I", v)
    u64 = lambda v: struct.pack("<Q", v % (1 << 64))
    text = lambda b: u64(len(b)) + b
    pair = lambda key, kind, body: text(key) + u32(kind) + body
    arch = pair(b"general.architecture", 8, text(b"llama"))

    def head(tensors, pairs, magic=b"GGUF", version=3):
        return magic + u32(version) + u64(tensors) + u64(pairs)

    def tensor(name, dims, kind=0, offset=0, n_dims=None):
        n = len(dims) if n_dims is None else n_dims
        return text(name) + u32(n) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)

    return {
        "pairs-2^63": ("metadata count", head(0, 1 << 63)),
        "tensors-2^63": ("tensor count", head(1 << 63, 1) + arch),
        "string-2^63": ("metadata key at byte 32", head(0, 1) + u64(1 << 63) + b"x"),
        "array-2^62": ("tokenizer.ggml.tokens", head(0, 2) + arch + pair(
            b"tokenizer.ggml.tokens", 9, u32(8) + u64(1 << 62))),
        "nested": ("key x", head(0, 2) + arch + pair(
            b"x", 9, (u32(9) + u64(1)) * 200000 + u32(4) + u64(0))),
        "n_dims-2^32": ("tensor t: the number of dim", head(1, 1) + arch + tensor(b"t", [1], n_dims=(1 << 32) - 1)),
        "n_dims-9": ("tensor t: the number of dim", head(1, 1) + arch + tensor(b"t", [2] * 9)),
        "dims-wrap": ("token_embd.weight", head(1, 1) + arch + tensor(
            b"token_embd.weight", [1 << 32, (1 << 32) + 1])),
        "types": ("key y", head(1, 2) + arch + pair(b"y", 77, b"\0" * 8) + tensor(b"t", [4], kind=250)),
        "tensor-type": ("tensor t", head(1, 1) + arch + tensor(b"t", [4], kind=250)),
        "offset": ("tensor t: its offset", head(1, 1) + arch + tensor(b"t", [32], offset=(1 << 64) - 32)),
        "magic": ("magic", head(0, 1, magic=b"GGUX") + arch),
        "version": ("version", head(0, 1, version=0x03000000) + arch),
    }


@test
def hostile_models():
    """Case B71: counts, lengths and dimensions that are lies."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    for name, (field, data) in hostile_files().items():
        path = model_file(name + ".gguf", data + b"\0" * 64)
        for backend in ("cpu", "sim"):
            one_sentence(f"hostile file {name} ({backend})", dict(model=path, port=0, backend=backend),
                         name + ".gguf: ", field)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    check(peak <= max(before, 100 << 10) or SANITIZED, "no hostile file makes memory grow",
          peak)


@test
def file_replaced_while_serving():
    """Case B70, last part: the running service is not hurt, by another file nor by a cut in place; whoever
    has to read it again says what is wrong, and those who serve go on."""
    for flags in (SIM, REAL):
        for way in ("replaced", "cut"):
            path = os.path.join(TMP, "live.gguf")
            subprocess.run(["cp", "--reflink=auto", MODEL_FILE, path], check=True)
            with Server(dict(flags, model=path, ctx_size=512), ledger=False) as s:
                ask = completion("Once upon a time", temperature=0, max_tokens=5)
                want = text_of(s.post("/v1/completions", ask))
                if way == "replaced":
                    os.replace(model_file("short.gguf", b"GGUF"), path)
                else:
                    os.truncate(path, 24)
                s.alive(f"the model file was {way}")
                equal(text_of(s.post("/v1/completions", ask)), want, f"{way}: it says the same")
                if flags is SIM:
                    os.kill(s.pid, signal.SIGHUP)
                    check(until(lambda: "could not start" in s.log()), f"{way}: a new frontend says why not", s.log())
                    s.alive(f"{way}: new frontends could not start")
                if LONG:
                    os.kill(s.pids["engine"][0], signal.SIGKILL)
                    equal(s.wait_exit(), 1, f"{way}: no engine can be had of it, the service ends")
                    check("live.gguf: " in s.log().splitlines()[-3] and "giving up" in s.log().splitlines()[-1],
                          f"{way}: and says why", s.log()[-600:])


@test
def ready_line_and_health():
    with Server() as s:
        check("tokenring ready on http://127.0.0.1:" in s.ready, "ready line", s.ready)
        curl = s.child.stdout.readline()
        m = re.search(r"-d '(.*)'$", curl.strip())
        check("curl" in curl and m, "the ready line comes with a command to paste", curl)
        r = s.post("/v1/chat/completions", m.group(1).encode())
        check(r.status == 200 and r.header("content-type").startswith("text/event-stream"),
              "the command's body is a request that streams", r.status, r.text[:200])
        equal({k: len(v) for k, v in s.pids.items()}, {"engine": 1, "ledger": 1, "frontend": 2},
              "one engine, one ledger, two frontends")
        equal(len(os.listdir(f"/proc/{s.pid}/task")), 1, "the supervisor has one thread")
        for path in ("/health", "/readyz", "/livez", "/startupz", "/ping", "/v2/health/live",
                     "/v2/health/ready", "/server_info", "/model_info"):
            r = s.get(path)
            check(r.status == 200 and r.header("content-type") == "application/json" and r.json,
                  f"GET {path}", r.status, r.text)


@test
def health_while_the_engine_stands():
    """Readiness follows the engine's heartbeat, liveness does not, and neither waits."""
    with Server() as s:
        engine = s.pids["engine"][0]
        os.kill(engine, signal.SIGSTOP)
        check(until(lambda: s.get("/health").status == 503), "/health is 503 without a heartbeat")
        r = s.get("/health")
        check(is_error(r, 503, code="engine_unavailable"), "with the error object", r.text)
        equal(s.get("/livez").status, 200, "/livez stays 200")
        os.kill(engine, signal.SIGCONT)
        check(until(lambda: s.get("/health").status == 200), "/health is 200 again")
        s.alive("the engine was stopped")


@test
def full_queue_is_healthy():
    with Server(max_seqs=1, max_queue=1, sim_step_us=20000) as s:
        streams = [s.stream("/v1/completions", force(369, prompt="x", max_tokens=4000, stream=True))
                   for _ in range(2)]
        for st in streams:
            equal(st.headers(), 200, "one runs, one waits")
        r = s.post("/v1/completions", completion("x", max_tokens=1))
        equal(r.status, 503, "the third is refused")
        equal(s.get("/health").status, 200, "readiness is not about the queue")
        for st in streams:
            st.close()


@test
def models():
    with Server() as s:
        m = s.get("/v1/models").json
        check(m["object"] == "list" and len(m["data"]) == 1, "/v1/models", m)
        d = m["data"][0]
        entries = []
        for p in s.pids["frontend"]:
            with contextlib.closing(s.conn_at(p)) as c:
                c.send(request("GET", "/v1/models"))
                entries.append(c.response().json["data"][0])
        check(all(e == d for e in entries), "every frontend says the same", entries)
        check(d["id"] == MODEL and d["object"] == "model" and isinstance(d["created"], int)
              and d["owned_by"] and d["max_model_len"] == 8192, "the model's entry", d)
        check(abs(d["created"] - time.time()) < 86400, "created is in seconds", d)
        equal(s.get("/v1/models/" + MODEL).json, d, "/v1/models/{id} is the same object")
        r = s.get("/v1/models/other")
        check(is_error(r, 404, code="model_not_found"), "an unknown model is 404", r.text)
        r = s.post("/v1/chat/completions", dict(chat("Hi"), model="other"))
        check(is_error(r, 404, "model", "model_not_found"), "also in a request", r.text)


@test
def names_by_default():
    with Server({"model": "sim"}, ledger=False) as s:
        check("(model sim," in s.ready, "a model without a file is called sim", s.ready)
        equal(s.get("/v1/models").json["data"][0]["id"], "sim", "also to clients")
        r = s.post("/v1/completions", dict(model="sim", prompt="x", max_tokens=1))
        check(r.status == 200 and r.json["model"] == "sim", "it is served by that name", r.text)
    with Server({"model": MODEL_FILE, "backend": "sim"}, ledger=False) as s:
        stem = os.path.basename(MODEL_FILE).removesuffix(".gguf")
        equal(s.get("/v1/models").json["data"][0]["id"], stem, "a file's model has its stem")


@test
def threads_and_processors():
    """As many threads as the process may use processors, and where they may run; one more makes the masks of
    grammars."""
    def seen(before=None, **flags):
        with Server(REAL, ledger=False, before=before, ctx_size=64, max_seqs=1, **flags) as s:
            pid = s.processes()["engine"][0]
            return [os.sched_getaffinity(int(tid)) for tid in os.listdir(f"/proc/{pid}/task")]

    ours = os.sched_getaffinity(0)
    one = {min(ours)}
    equal(seen(before=lambda: os.sched_setaffinity(0, one)), [one] * 2, "one processor, one thread")
    free = seen(threads=3)
    equal(free, [ours] * 4, "without --pin-threads each may run anywhere")
    bound = seen(threads=3, pin_threads="on")
    equal(sorted(map(len, bound)), [1, 1, 1, len(ours)], "with it each has one; who makes masks runs anywhere")
    bound = sorted(bound, key=len)[:3]
    equal(len(set.union(*bound)), min(3, len(ours)), "not all the same one")


if __name__ == "__main__":
    main()
