# SPDX-License-Identifier: Apache-2.0
"""--backend cuda through the whole service, with CUDA on the CPU (tests/lib/cuda_on_cpu.h): the answers are those
of --backend cpu; a device that fails costs no stream a token; one that cannot be used is told in one sentence.

TOKENRING_BIN is here the program of the tests, tokenring_cuda_on_cpu, which has both backends."""
from lib import *
from tiny import *

COMP, CHAT = "/v1/completions", "/v1/chat/completions"
NAME = "qwen3"
# cudaError_t
ILLEGAL_ADDRESS, LAUNCH_FAILURE, ECC, INSUFFICIENT_DRIVER = 700, 719, 214, 35


class Machine:
    """struct machine of tests/lib/cuda_runtime_on_cpu.h: the GPU that the service finds, which can be changed
    while it serves."""
    FIELDS = ("n_devices", "major", "minor", "n_sm", "memory", "guard", "lazy", "hang", "fail", "code", "skip",
              "times", "fired")
    LAYOUT = "=IIIIQIIIIIIII9Q"
    COUNT, MALLOC, HOST, COPY, LAUNCH, GRAPH, INSTANTIATE, SYNC = range(1, 9)

    def __init__(self):
        self.path = os.path.join(TMP, "machine")
        with open(self.path, "w+b") as f:
            f.truncate(struct.calcsize(self.LAYOUT))
            self.map = mmap.mmap(f.fileno(), struct.calcsize(self.LAYOUT))
        os.environ["TOKENRING_CUDA_ON_CPU"] = self.path
        self.set()

    def set(self, **fields):
        """A device that works, but for what is said."""
        all_of = dict(dict.fromkeys(self.FIELDS, 0), n_devices=1, major=9, n_sm=4, memory=1 << 30, guard=1, lazy=1)
        all_of.update(fields)
        struct.pack_into(self.LAYOUT, self.map, 0, *(all_of[f] for f in self.FIELDS), *[0] * 9)

    def arm(self, call, code, skip):
        self.set(fail=call, code=code, skip=skip, times=1)

    def fired(self):
        return struct.unpack_from(self.LAYOUT, self.map)[self.FIELDS.index("fired")]

    def calls(self, call):
        """Since it was set last."""
        return struct.unpack_from(self.LAYOUT, self.map)[len(self.FIELDS) + call]


GPU = Machine()
FLAGS = dict(model=with_vocabulary(NAME), served_name=MODEL, ctx_size=256, max_seqs=4, threads=1, frontends=1)


def serve(backend, **more):
    return Server(dict(FLAGS, backend=backend), **more)


def asks():
    """Requests of every kind that a sampler tells apart; some together, so that batches have several rows."""
    prompt = [1 + 7 * i % 250 for i in range(70)]
    base = dict(model=MODEL, max_tokens=12, ignore_eos=True)
    return [(COMP, dict(base, prompt=prompt, temperature=0)),
            (COMP, dict(base, prompt=prompt[:40] + [9], temperature=1, seed=5, top_p=0.9, logprobs=3)),
            (COMP, dict(base, prompt="he said", temperature=0.8, seed=6, top_k=20, frequency_penalty=0.5, logit_bias={"70": 4, "90": -20})),
            (CHAT, dict(base, messages=[{"role": "user", "content": "he said the"}], temperature=1.2, seed=7, min_p=0.05, n=2)),
            (COMP, dict(base, prompt=prompt[3:20], temperature=0, echo=True, logprobs=1))]


def choices(r):
    return r.json["choices"] if check(r.status == 200, "it is answered", r.status, r.text) else None


def all_answers(s):
    return together([lambda p=p, b=b: choices(s.post(p, b)) for p, b in asks()])


WANT = []


def wanted():
    if not WANT:
        with serve("cpu") as s:
            WANT.extend(all_answers(s))
    return WANT


def restarts(s):
    return s.metric('process_restarts_total{role="engine"}')


@test
def the_answers_are_those_of_the_cpu():
    GPU.set()
    with serve("cuda", deterministic="on") as s:
        equal(all_answers(s), wanted(), "the same tokens and log-probabilities")
        text = s.get("/metrics").text
        check(re.search(r'tokenring_info\{[^}]*backend="cuda"[^}]*deterministic="1"', text), "what computes is told", text[:600])
        check(re.search(r"engine: qwen3 .*cuda CPU in CUDA's place, 4 SMs, \d+ MB of 1074 free, weights \d", s.log()), "and in the log", s.log())
        told = re.search(r"KV f16 (\d+) x (\d+) kB", s.log())
        equal(int(told[1]), 4 * 256 // 32, "blocks for as many contexts as there may be requests")


@test
def without_deterministic_it_says_so():
    GPU.set()
    with serve("cuda", kv_memory="1M") as s:
        check(re.search(r'tokenring_info\{[^}]*backend="cuda"[^}]*deterministic="0"', s.get("/metrics").text), "in the metric")
        check("not deterministic" in s.log(), "and in the log", s.log())
        choices(s.post(*asks()[0]))


@test
def an_engine_that_dies_or_whose_device_fails_loses_nothing():
    """By a signal; a kernel that goes astray, which is a crash; memory that is broken, which is nobody's fault."""
    GPU.set()
    path, body = COMP, dict(model=MODEL, prompt=[5, 6, 7], temperature=1, seed=3, max_tokens=60, ignore_eos=True)
    with serve("cuda", deterministic="on") as s:
        whole = text_of(s.post(path, body))

        def through(what, words, at_first=lambda: None, in_between=lambda: None):
            before = restarts(s)
            at_first()  # counted from here: an answer may be over before its reader has a turn
            st = s.stream(path, dict(body, stream=True)).read(3)
            in_between()
            st.rest()
            equal((st.text(), st.finishes(), st.errors()), (whole, ["length"], []), f"{what}: nothing is missing")
            check(until(lambda: restarts(s) == before + 1), f"{what}: one new engine", s.log()[-600:])
            check(words in s.log(), f"{what}: the log says it", s.log()[-900:])

        through("SIGKILL", "was killed by signal 9",
                in_between=lambda: os.kill(s.processes()["engine"][0], signal.SIGKILL))
        through("a kernel", "has failed: an illegal memory access was encountered",
                at_first=lambda: GPU.arm(GPU.GRAPH, ILLEGAL_ADDRESS, 3))
        equal(GPU.fired(), 1, "it did fail")
        check("was killed by signal 6" in s.log(), "that is a crash", s.log()[-600:])
        through("memory", "has failed: uncorrectable ECC error encountered", at_first=lambda: GPU.arm(GPU.SYNC, ECC, 5))
        check("ended with status 1" in s.log(), "that is none", s.log()[-600:])
        GPU.set()
        equal(text_of(s.post(path, body)), whole, "and it serves")
        s.pids = s.processes()


@test
def who_makes_a_kernel_go_astray_is_found_and_who_meets_broken_memory_is_not_blamed():
    """Two engines die in passes that one request has for itself."""
    GPU.set()
    body = dict(model=MODEL, prompt=[5, 6, 7], temperature=1, seed=3, max_tokens=40, ignore_eos=True)
    with serve("cuda", deterministic="on", faults=True) as s:
        copies = GPU.calls(GPU.COPY)  # of an engine's start; the next is the plan of a pass
        whole = text_of(s.post(COMP, body))
        for code, guilty in ((ILLEGAL_ADDRESS, True), (ECC, False)):
            before = restarts(s)
            s.faults.arm("supervisor.reaped", "stop")
            GPU.arm(GPU.GRAPH, code, 3)
            st = s.stream(COMP, dict(body, stream=True))
            pid = s.faults.wait_stopped("supervisor.reaped")
            GPU.arm(GPU.COPY, code, copies)
            s.faults.go_on(pid)
            st.rest()
            if guilty:
                equal([e["code"] for e in st.errors()], ["engine_crashed"], "it is found")
            else:
                equal((st.text(), st.finishes(), st.errors()), (whole, ["length"], []), "nothing is missing")
            equal(GPU.fired(), 1, "the second engine failed, too")
            check(until(lambda: restarts(s) == before + 2), "two engines died", restarts(s))
        equal(text_of(s.post(COMP, body)), whole, "and it serves")
        s.pids = s.processes()


@test
def a_device_that_hangs_or_does_not_come_back():
    """The engine gives signs of life for 30 s of one pass, then none.  A device that is not found again ends the
    service after ten engines."""
    if not LONG:
        return
    GPU.set()
    body = dict(model=MODEL, prompt=[5, 6, 7], temperature=1, seed=3, max_tokens=60, ignore_eos=True)
    with serve("cuda", deterministic="on", engine_stall_s=2) as s:
        whole = text_of(s.post(COMP, body))
        st = s.stream(COMP, dict(body, stream=True)).read(3)
        began = time.monotonic()
        GPU.set(hang=1)
        check(until(lambda: "gave no sign of life" in s.log(), 3 * WAIT), "it is killed", s.log()[-600:])
        check(time.monotonic() - began > 25, "not before a pass may have taken its time")
        GPU.set()
        st.rest()
        equal((st.text(), st.finishes()), (whole, ["length"]), "nothing is missing")
        GPU.set(n_devices=0)
        os.kill(s.processes()["engine"][0], signal.SIGKILL)
        equal(s.wait_exit(2 * WAIT), 1, "exit code 1")
        equal((s.log().count("no GPU is to be seen"), s.log().count("giving up")), (10, 1), "ten have looked")


@test
def one_that_cannot_be_used_is_told_in_one_sentence():
    flags = dict(FLAGS, backend="cuda", port=0, control_socket="off")
    cases = (("no driver", dict(n_devices=0, fail=GPU.COUNT, code=INSUFFICIENT_DRIVER, times=1), {}, "there is no NVIDIA driver; install one, or serve with --backend cpu"),
             ("no device", dict(n_devices=0), {}, "no GPU is to be seen"),
             ("an old one", dict(major=7, minor=5), {}, "has compute capability 7.5, and 8.0 is the least"),
             ("no room for weights", dict(memory=50000), {}, "the weights take 0.2 MB, and the GPU"),
             ("none for KV", dict(memory=1500000), dict(), "MB left for KV blocks beside weights and scratch, and one context of 256 tokens takes"),
             ("too much asked for", {}, dict(kv_memory="2G"), "--kv-memory of 2147.5 MB: the GPU has"))
    for what, gpu, more, words in cases:
        GPU.set(**gpu)
        code, err, _ = fails_to_start(dict(flags, **more))
        lines = [line for line in err.splitlines() if " info " not in line]
        check(code == 1 and len(lines) == 1 and words in lines[0], f"{what}: one sentence", code, lines)


if __name__ == "__main__":
    main()
