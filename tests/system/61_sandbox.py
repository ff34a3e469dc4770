# SPDX-License-Identifier: Apache-2.0
"""docs/security.md on a running service: what the kernel says of every process and every thread of
it, at the start and after each has been replaced.  What a sandbox forbids is tests/unit/sandbox."""
from lib import *


def has_filters():
    """Whether this kernel has seccomp filters: it is asked, not the service."""
    return os.path.exists("/proc/sys/kernel/seccomp/actions_avail")


def confined(s, when):
    """docs/security.md, what each process may do, as the kernel shows it for every thread."""
    want = {"NoNewPrivs": "1", "CapEff": "0" * 16, "CapPrm": "0" * 16}
    if has_filters():
        want["Seccomp"] = "2"
    else:
        check("this kernel lacks" in s.log(), "no filters in this kernel, and the log says so", s.log()[-500:])
    for p in s.all_pids():
        check(re.search(rb"Max core file size\s+([01])\s+\1 ", proc_read(p, "limits")) and
              int(proc_read(p, "coredump_filter"), 16) == 0, f"{when}: {title(p)} leaves no core file, and none with memory")
    for p in s.all_pids()[1:]:
        seen = set()
        for t in os.listdir(f"/proc/{p}/task"):
            status = dict(line.split(":\t", 1) for line in
                          proc_read(p, f"task/{t}/status").decode().splitlines() if ":\t" in line)
            if title(p) == "tokenring: engine" and t != str(p):
                # Threads that started while the model was read: no filter lets them use it.
                status = {k: v.replace("0" * 15 + "4", "0" * 16) for k, v in status.items()}
            seen.add(tuple(status.get(k) for k in want))
        equal(seen, {tuple(want.values())}, f"{when}: {title(p)}: rights of every thread")
    for p in s.processes()["frontend"]:
        equal([os.readlink(f"/proc/{p}/fd/{n}") for n in (0, 1)], ["/dev/null"] * 2,
              f"{when}: a frontend has no standard input and output")
        others = {n: k for n in os.listdir(f"/proc/{p}/fd") if int(n) > 2
                  for k in [os.readlink(f"/proc/{p}/fd/{n}")]
                  if not re.match(r"socket:|pipe:|anon_inode:\[event", k)}
        check(not others, f"{when}: a frontend has no file open", others)
        equal(len(os.listdir(f"/proc/{p}/task")), 3, f"{when}: a frontend and its two workers")


def whole(s, n):
    """As many processes as there should be, and every frontend with its workers."""
    def full():
        p = s.processes()
        return ({r: len(v) for r, v in p.items()} == {"engine": 1, "ledger": 1, "frontend": n} and
                all(len(os.listdir(f"/proc/{f}/task")) == 3 for f in p["frontend"]) and
                s.get("/health").status == 200)

    def asked():
        with contextlib.suppress(OSError, EOFError):
            return full()
    if check(until(asked), "every process is there", s.processes()):
        s.pids = s.processes()


@test
def everybody_is_confined():
    with Server(frontends=3) as s:
        confined(s, "at the start")
        s.alive("looking")


@test
def on_the_model():
    """With weights mapped, threads of the kernels running and, in blas mode, a library loaded."""
    for math in ("int8", "blas"):
        with Server(REAL, frontends=1, cpu_math=math, threads=2, ledger=False) as s:
            confined(s, math)
            told = f'deterministic="{int(math != "blas")}"'
            check(told in s.get("/metrics").text, f"{math}: tokenring_info says {told}")
            s.alive(math)


@test
def replacements_are_confined():
    """Whoever takes the place of a dead process, or of one that was asked to go, has its sandbox too."""
    with Server(frontends=2) as s:
        killed = s.all_pids()[1:]
        for p in killed:
            os.kill(p, signal.SIGKILL)
        # Until then one that is about to die may be taken for the one that follows it.
        check(until(lambda: not any(living(p) for p in killed)), "everybody is dead")
        whole(s, 2)
        confined(s, "after everybody's death")
        old = set(s.pids["frontend"])
        os.kill(s.pid, signal.SIGHUP)
        check(until(lambda: not old & set(s.processes()["frontend"])), "SIGHUP replaces frontends")
        whole(s, 2)
        confined(s, "after a replacement in turn")
        s.alive("replacements")


@test
def a_forbidden_call_is_told():
    """A frontend that makes a call its sandbox does not have is killed; the log names the cause."""
    with Server(frontends=2) as s:
        os.kill(s.pids["frontend"][0], signal.SIGSYS)  # what the kernel sends
        s.forbidden = 1
        check(until(lambda: FORBIDDEN in s.log()),
              "the supervisor says why", s.log()[-300:])
        whole(s, 2)
        s.alive("a forbidden call")


@test
def clock_of_a_template():
    """The C library has read the file of the time zone before it may open nothing."""
    with tempfile.TemporaryDirectory() as folder:
        zone, template = os.path.join(folder, "zone"), os.path.join(folder, "clock.jinja")
        with open(zone, "wb") as f:  # one type of time: 9 h east, called XYZ
            f.write(b"TZif" + b"\0" * 16 + struct.pack(">6I", 0, 0, 0, 0, 1, 4) +
                    struct.pack(">iBB", 9 * 3600, 0, 0) + b"XYZ\0")
        with open(template, "w", encoding="utf-8") as f:
            f.write("{{ strftime_now('%H') }}")
        os.environ["TZ"] = ":" + zone
        try:
            with Server(TINY, chat_template=template, ledger=False) as s:
                want = {time.strftime("%H", time.gmtime(time.time() + 9 * 3600))}
                ids = s.post("/tokenize", {"model": MODEL, "messages": chat("Hi")["messages"]}).json
                text = s.post("/detokenize", {"model": MODEL, "tokens": ids["tokens"]}).json["prompt"]
                want.add(time.strftime("%H", time.gmtime(time.time() + 9 * 3600)))
                check(text in want, "the hour of that zone", text, want)
                s.alive("the time", None)
        finally:
            del os.environ["TZ"]


if __name__ == "__main__":
    main()
