# SPDX-License-Identifier: Apache-2.0
"""`tokenring inspect`: what it says of a real model agrees with the service that serves it; what would be refused is
refused with the sentence that `serve` says; files that are none end with a sentence and status 1."""
import struct

from lib import *

HEAD = 4 << 20  # of the model: all of its metadata


def inspect(*args, **kw):
    p = subprocess.run([BIN, "inspect", *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * WAIT, check=False, **kw)
    return p.returncode, p.stdout, p.stderr


def look(path, *flags):
    rc, out, err = inspect(path, "--json", *flags)
    equal((rc in (0, 1), err), (True, ""), "an object")
    return strict_json(out)


@contextlib.contextmanager
def variant(*changes, size=None):
    """The model with bytes of its metadata replaced by as many others, and weights of zeroes."""
    with open(MODEL_FILE, "rb") as f:
        head = f.read(HEAD)
    for old, new in changes:
        if len(old) != len(new) or old not in head:
            raise RuntimeError("no such bytes: %r" % old)
        head = head.replace(old, new, 1)
    with tempfile.NamedTemporaryFile(prefix="tokenring-test-", suffix=".gguf") as f:
        f.write(head)
        f.truncate(os.path.getsize(MODEL_FILE) if size is None else size)
        f.flush()
        yield f.name


@test
def a_real_model_is_told_as_it_is_served():
    rc, out, err = inspect(MODEL_FILE)
    equal((rc, err), (0, ""), "it would be served")
    check(re.search(r"^serve +yes$", out, re.M), "and says so", out)
    j = look(MODEL_FILE, "--tensors", "--metadata")
    equal((j["serve"], j["refusals"], j["architecture"], j["bytes"]), (True, [], "llama", os.path.getsize(MODEL_FILE)), "the same in JSON")
    equal((len(j["tensors"]), len(j["metadata"])), (j["n_tensors"], j["n_keys"]), "all are listed")
    equal(sum(t["bytes"] for t in j["tensors"]), sum(t["bytes"] for t in j["tensor_types"]), "types add up")
    keys = {k["key"]: k["value"] for k in j["metadata"]}
    equal(keys["llama.context_length"], j["model"]["context"], "the context")
    with Server({"model": MODEL_FILE, "backend": "cpu", "ctx_size": 256, "kv_memory": "64M", "threads": 1, "frontends": 1}) as s:
        log = s.log()
        said = re.search(r"weights (\d+\.\d) MB, ctx 256, KV f16 (\d+) x (\d+) kB", log)
        if check(said, "the engine tells its sizes", log[-500:]):
            equal("%.1f" % (j["model"]["weight_bytes"] / 1e6), said[1], "weights")
            equal(j["model"]["kv"]["f16"]["token_bytes"] * 32 // 1000, int(said[3]), "a block of KV")
        info = s.get("/model_info").json
        equal(info["vocab_size"], j["vocabulary"]["tokens"], "the vocabulary")


@test
def what_serve_refuses_is_refused_with_its_sentence():
    cases = (
        ("a tensor", [(b"blk.3.attn_q.weight", b"blk.3.attn_z.weight")], "tensor blk.3.attn_q.weight is missing"),
        ("a pre-tokeniser", [(b"tokenizer.ggml.pre\x08\0\0\0\x06\0\0\0\0\0\0\0smollm", b"tokenizer.ggml.pre\x08\0\0\0\x06\0\0\0\0\0\0\0smollX")], "smollX"),
        ("a template", [(b"{% for ", b"{% fro ")], "the chat template cannot be used"),
        ("a context", [(b"llama.context_length\x04\0\0\0" + struct.pack("<I", 8192), b"llama.context_length\x04\0\0\0" + struct.pack("<I", 4))], "context"),
    )
    for what, changes, want in cases:
        with variant(*changes) as path:
            j = look(path)
            equal(j["serve"], False, what)
            check(any(want in r for r in j["refusals"]), what + " is named", j["refusals"])
            rc, err, _ = fails_to_start({"model": path, "port": 0, "control_socket": "off", "threads": 1, "kv_memory": "512M"})
            check(rc not in (0, None), what + ": serve does not start", rc)
            sentence = j["refusals"][0]
            check(sentence in err, what + ": it says the same", sentence, err[-600:])
            rc, out, _ = inspect(path)
            check(rc == 1 and re.search(r"^serve +no$", out, re.M) and want in out, what + ": as text", rc, out)


@test
def the_word_for_the_default_model_is_that_of_serve():
    with tempfile.TemporaryDirectory(prefix="tokenring-test-") as d:
        env = dict(os.environ, TOKENRING_CACHE=d)
        rc, out, err = inspect("smollm2", env=env)
        equal((rc, out), (1, ""), "it is not there")
        check("run tools/fetch-model" in err, "what to do", err)
        os.symlink(os.path.abspath(MODEL_FILE), os.path.join(d, "smollm2.gguf"))
        rc, out, err = inspect("smollm2", env=env)
        equal((rc, err), (0, ""), "it is read")
        check(re.search(r"^file +\S*/smollm2.gguf, ", out, re.M), "from where tools/fetch-model keeps it", out)


@test
def another_architecture_still_shows_what_there_is():
    with variant((b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama", b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0mamba")) as path:
        j = look(path)
        equal((j["architecture"], j["model"], j["serve"]), ("mamba", None, False), "it is told")
        check('architecture "mamba" is not implemented' in j["refusals"][0], "and why not", j["refusals"])
        equal(j["vocabulary"]["tokens"], 49152, "its vocabulary is")


@test
def files_that_are_none_end_with_a_sentence():
    with tempfile.TemporaryDirectory(prefix="tokenring-test-") as d:
        rows = {"empty": b"", "text": b"hello, world, this is no model\n" * 4, "header": b"GGUF\x03\0\0\0" + b"\xff" * 16,
                "old": b"GGUF\x01\0\0\0" + b"\0" * 16}
        for name, data in rows.items():
            with open(os.path.join(d, name), "wb") as f:
                f.write(data)
        for path in [*(os.path.join(d, n) for n in rows), d, os.path.join(d, "nothing"), "/dev/null"]:
            rc, out, err = inspect(path)
            equal((rc, out), (1, ""), "no page of " + os.path.basename(path))
            check(re.fullmatch(r"tokenring inspect: [^\n]+\n", err), "one sentence", err)
    for size in (100, 10000, HEAD // 2, HEAD):
        with variant(size=size) as path:
            rc, out, err = inspect(path)
            equal((rc, out), (1, ""), "a file cut at %d" % size)
            check(re.fullmatch(r"tokenring inspect: [^\n]+\n", err), "one sentence", err)


@test
def random_damage_never_breaks_it():
    rng = random.Random(9)
    with open(MODEL_FILE, "rb") as f:
        head = bytearray(f.read(HEAD))
    with tempfile.NamedTemporaryFile(prefix="tokenring-test-") as f:
        for _ in range(30 if LONG else 6):
            bad = bytearray(head)
            for _ in range(rng.choice((1, 10, 1000))):
                bad[rng.randrange(1000) if rng.random() < 0.5 else rng.randrange(len(bad))] = rng.randrange(256)
            f.seek(0)
            f.write(bad)
            f.truncate(os.path.getsize(MODEL_FILE))
            f.flush()
            rc, out, err = inspect(f.name, "--tensors", "--metadata")
            check(rc in (0, 1) and (out or err), "it ends by itself", rc, err)
            check("\x1b" not in out and "\0" not in out, "a terminal obeys nothing in it")


@test
def flags_are_checked():
    for args in ((), ("--json",), ("--nothing", MODEL_FILE), (MODEL_FILE, "second")):
        rc, out, err = inspect(*args)
        equal((rc, out), (2, ""), "refused: " + " ".join(args))
        check(err.startswith("tokenring inspect: "), "with a sentence", err)
    rc, out, _ = inspect("--help")
    check(rc == 0 and "--metadata" in out, "help")
    equal(inspect("--json", MODEL_FILE)[0], 0, "flags may come first")
    p = subprocess.run([BIN, "inspect", MODEL_FILE, "--tensors"], stdout=open("/dev/full", "w"), stderr=subprocess.DEVNULL, check=False)
    equal(p.returncode, 1, "a page that could not be written is no success")


main()
