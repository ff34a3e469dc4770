# SPDX-License-Identifier: Apache-2.0
"""Running out: of descriptors, memory, processes, disk.  What runs goes on, what cannot be served is
told, and when there is room again everything works as before."""
import resource
import shutil

from lib import *

CHAT, COMP = "/v1/chat/completions", "/v1/completions"
AB = 369
TMP = tempfile.mkdtemp(prefix="tokenring-test-")


def forced(s, n=4000, rid=None):
    headers = [f"X-Request-Id: {rid}"] if rid else []
    return s.stream(COMP, force(AB, prompt="x", max_tokens=n, stream=True), headers=headers)


def soft_limit(pid, what, value):
    """Of a process that runs; the hard limit stays, so that it can be lifted again."""
    resource.prlimit(pid, what, (value, resource.prlimit(pid, what)[1]))


def unlimited(pid, what):
    soft_limit(pid, what, resource.prlimit(pid, what)[1])


def cannot_start(claim, args, before, *words):
    """One sentence and a status, no signal."""
    p = subprocess.Popen(command(args), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=before)
    try:
        _, err = p.communicate(timeout=3 * WAIT)
    except subprocess.TimeoutExpired:
        p.kill()
        err = "it runs: " + p.communicate()[1]
    lines = [line for line in err.splitlines() if " info " not in line and " warn " not in line]
    check(p.returncode > 0 and len(lines) == 1 and all(w in lines[0] for w in words), claim,
          p.returncode, err)


@contextlib.contextmanager
def small_disk(size, flags=""):
    """A file system of so many bytes, or None where mounting is not allowed."""
    path = tempfile.mkdtemp(dir=TMP)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}{flags}", "none", path],
                          stderr=subprocess.DEVNULL, check=False).returncode == 0
    if not done:
        print("  no right to mount: a limit of the file's size is tested alone", flush=True)
    try:
        yield path if done else None
    finally:
        if done:
            subprocess.run(["umount", "-l", path], check=False)


@test
def descriptors():
    """Accepting pauses; streams go on; when connections end the waiting ones are served."""
    most = 160
    with Server(frontends=1, sim_step_us=3000, ledger=False,
                before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))) as s:
        check("descriptors are allowed" in s.log(), "the start says that they are few", s.log())
        front = s.pids["frontend"][0]
        st = forced(s, 1500).read(2)
        crowd = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(300)]
        check(until(lambda: fd_count(front) >= most), "all descriptors are taken", fd_count(front))
        late = crowd[-1]
        late.sendall(request("GET", "/livez"))
        st.read(100)
        check(not select.select([late], [], [], 0)[0], "the last one is not accepted")
        check(len(st.events) >= 100 and not st.ended, "the stream goes on")
        for c in crowd[:-1]:
            c.close()
        late.settimeout(WAIT)
        check(late.recv(100).startswith(b"HTTP/1.1 200 "), "then it is served")
        late.close()
        st.rest()
        check(st.text() == "ab" * 1500 and st.done == 1, "the stream is whole", len(st.text()))
        s.alive("out of descriptors")


@test
def descriptors_at_the_start():
    for n in (8, 12, 20, 30):
        cannot_start(f"{n} descriptors are too few", dict(TINY, port=0),
                     lambda n=n: resource.setrlimit(resource.RLIMIT_NOFILE, (n, n)), "Too many open files")


@test
def memory_of_a_frontend():
    """Requests that find no memory are told so or cut, at worst that frontend is replaced; streams of
    the others do not notice."""
    if SANITIZED:
        print("  the sanitizer ends a process that finds no memory: not tested in this build",
              flush=True)
        return
    with Server(frontends=2, sim_step_us=3000, max_body="16M") as s:
        poor, other = s.pids["frontend"]
        st = s.stream(COMP, force(AB, prompt="x", max_tokens=1000, stream=True),
                      conn=s.conn_at(other)).read(2)
        conns = [s.conn_at(poor) for _ in range(8)]
        size = int(re.search(rb"VmSize:\s+(\d+) kB", proc_read(poor, "status")).group(1)) << 10
        soft_limit(poor, resource.RLIMIT_AS, size + (6 << 20))
        body = request("POST", COMP, completion("a b " * 2000000, max_tokens=1))

        def send(c):
            with contextlib.suppress(OSError, EOFError):
                c.send(body)
                return c.response().status
            return "cut"
        seen = together([lambda c=c: send(c) for c in conns])
        check(set(seen) <= {500, 503, 400, "cut"} and set(seen) & {500, 503, "cut"},
              "bodies without memory are refused or cut", seen)
        if living(poor):
            unlimited(poor, resource.RLIMIT_AS)
            c = s.conn_at(poor)
            c.send(request("POST", COMP, force(AB, prompt="x", max_tokens=2)))
            equal(text_of(c.response()), "abab", "with memory again it serves")
        st.rest()
        check(st.text() == "ab" * 1000 and st.done == 1, "the other's stream is whole", len(st.text()))
        check(until(lambda: len(s.processes()["frontend"]) == 2), "two frontends")
        s.pids = s.processes()
        s.alive("a frontend without memory")


@test
def most_places():
    """The longest queue that may be asked for: the engine ends by itself, it is not killed."""
    with Server(TINY, max_queue=65536 if LONG else 1024) as s:
        check(until(lambda: s.post(COMP, completion("x", max_tokens=1)).status == 200), "it serves")
        s.child.send_signal(signal.SIGTERM)
        equal(s.wait_exit(3 * WAIT), 0, "it drains")
        check("killed by signal" not in s.log(), "each process ends by itself", s.log()[-400:])


@test
def memory_at_the_start():
    """What does not fit ends the start with its reason."""
    if not SANITIZED:  # it needs more address space than there can be
        cannot_start("no address space for the regions", dict(TINY, port=0),
                     lambda: resource.setrlimit(resource.RLIMIT_AS, (96 << 20, 96 << 20)), "shared memory")
    cannot_start("a limit on sizes of files", dict(TINY, port=0),
                 lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)), "shared memory")


@test
def no_more_processes():
    """A fork that fails is tried again; the service that runs is not hurt."""
    exe = os.path.join(TMP, "tokenring")
    shutil.copy(BIN, exe)
    os.chmod(TMP, 0o755)
    os.chmod(exe, 0o755)

    def somebody():  # the limit does not bind root
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(23456)
            os.setuid(23456)

    def poor():
        somebody()
        resource.setrlimit(resource.RLIMIT_NPROC, (1, resource.getrlimit(resource.RLIMIT_NPROC)[1]))

    def allow(n):
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1] if n is None else n
        subprocess.run(["prlimit", "--pid", str(p.pid), f"--nproc={hard}:"], preexec_fn=somebody,
                       check=True)
    err = open(os.path.join(TMP, "stderr"), "w+", encoding="utf-8")
    p = subprocess.Popen([exe] + command(dict(TINY, port=0, frontends=1))[1:], stdout=subprocess.PIPE,
                         stderr=err, text=True, preexec_fn=poor, cwd="/")
    try:
        def said():
            with open(err.name, encoding="utf-8") as f:
                return "cannot fork" in f.read()
        check(until(said), "it says that it cannot fork")
        check(p.poll() is None, "and tries again")
        allow(None)
        ok, _, _ = select.select([p.stdout], [], [], 3 * WAIT)
        line = p.stdout.readline() if ok else ""
        check("ready" in line, "with processes it serves", line)
        port = int(re.search(r":(\d+) ", line).group(1))
        allow(1)
        fronts = [c for c in children(p.pid) if "frontend" in title(c)]
        os.kill(fronts[0], signal.SIGKILL)
        err.truncate(0)
        check(until(said), "a replacement that cannot be forked is told")
        check(any("engine" in title(c) for c in children(p.pid)), "the engine lives")
        allow(None)

        def served():
            with contextlib.suppress(OSError, EOFError), contextlib.closing(Conn(port, 0, WAIT)) as c:
                c.send(request("GET", "/health"))
                return c.response().status == 200
        check(until(served), "then it is replaced")
        p.send_signal(signal.SIGTERM)
        equal(p.wait(WAIT), 0, "and drains")
    finally:
        if p.poll() is None:
            p.kill()
        p.wait()
        err.close()


def written_again(s, fill, free, claim):
    """The same story for every way in which the disk takes no more."""
    s.post(COMP, force(AB, prompt="x", max_tokens=1), headers=["X-Request-Id: first"])
    check(s.row("first"), f"{claim}: a record before")
    st = forced(s, 600, "long").read(2)
    fill()
    rs = together([lambda i=i: s.post(COMP, force(AB, prompt="x", max_tokens=3),
                                      headers=[f"X-Request-Id: q{i}"]).status for i in range(8)])
    equal(rs, [200] * 8, f"{claim}: requests are served")
    short = forced(s, 3, "short").rest()
    check(short.finishes() == ["length"] and short.done == 1, f"{claim}: terminal events come")
    st.read(20)
    check(not st.ended, f"{claim}: a long stream goes on")
    m = s.metrics()
    check(m["ledger_unconfirmed_total"] >= 1 and m["ledger_errors_total"] >= 1, f"{claim}: counted", m)
    equal([r["request_id"] for r in s.rows()], ["first"], f"{claim}: nothing half is there")
    equal(s.get("/health").status, 200, f"{claim}: it is ready")
    free()
    check(until(lambda: len(s.rows()) >= 10), f"{claim}: records come when there is room", s.rows())
    st.rest()
    check(st.text() == "ab" * 600 and st.done == 1, f"{claim}: the long stream is whole", len(st.text()))
    s.row("long")
    equal(sorted(r["request_id"] for r in s.rows()),
          sorted(["first", "long", "short"] + [f"q{i}" for i in range(8)]), f"{claim}: each once")
    check(until(lambda: s.metric("ledger_lag_seconds") == 0), f"{claim}: no lag is left")
    check("written again" in s.log(), f"{claim}: the log says so again")
    s.alive(claim)


@test
def disk_of_the_ledger():
    """Full, or a limit of the file's size: records wait in the queue and are written once."""
    flags = dict(max_seqs=4, max_queue=8, max_streams=64, ledger_wait_ms=100, sim_step_us=3000)
    with Server(**flags) as s:
        ledger = s.pids["ledger"][0]
        written_again(s, lambda: soft_limit(ledger, resource.RLIMIT_FSIZE, 1),
                      lambda: unlimited(ledger, resource.RLIMIT_FSIZE), "no file may grow")
    with small_disk("4m") as disk:
        if not disk:
            return
        filler = os.path.join(disk, "filler")

        def fill():
            with contextlib.suppress(OSError), open(filler, "wb", buffering=0) as f:
                while f.write(b"x" * 4096):
                    pass
        with Server(ledger=os.path.join(disk, "ledger.db"), **flags) as s:
            st = forced(s, 600, "long").read(2)
            fill()
            served = 0
            while "No space left" not in s.log() and served < 500:
                rs = together([lambda i=i: s.post(COMP, force(AB, prompt="x", max_tokens=3),
                                                  headers=[f"X-Request-Id: q{served + i}"]).status for i in range(8)])
                equal(rs, [200] * 8, "a full disk: requests are served")
                served += 8
            check("No space left" in s.log(), "the log says so", served, s.log()[-500:])
            st.read(20)
            rows = [r["request_id"] for r in s.rows()]
            check(len(rows) < served and len(set(rows)) == len(rows), "some records wait, none is there half or twice",
                  len(rows), served)
            os.unlink(filler)
            st.rest()
            check(st.text() == "ab" * 600 and st.done == 1, "a full disk: the stream is whole")
            check(until(lambda: len(s.rows()) >= served + 1), "written when there is room")
            equal(sorted(r["request_id"] for r in s.rows()), sorted(["long"] + [f"q{i}" for i in range(served)]),
                  "a full disk: each once")
            s.alive("a full disk")


@test
def read_only_places():
    with small_disk("256k", ",ro") as disk:
        if disk:
            cannot_start("a ledger on a read-only file system",
                         dict(TINY, port=0, ledger=os.path.join(disk, "l.db")), None, "Read-only")
    folder = os.path.join(TMP, "empty")
    os.mkdir(folder, 0o555)
    with Server(TINY, ledger=False, before=lambda: os.chdir(folder)) as s:
        s.alive("a folder nobody may write", None)
    equal(os.listdir(folder), [], "the service leaves nothing in its folder")


def full_pipe():
    r, w = os.pipe()
    os.set_blocking(w, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(w, b"x" * 4096):
            pass
    os.set_blocking(w, True)  # as a service manager hands it over
    return r, w


@test
def ready_line_that_nobody_reads():
    """A full pipe as standard output: the line is left out, the supervisor goes on."""
    r, w = full_pipe()
    err = os.path.join(TMP, "ready-line")
    with open(err, "w", encoding="utf-8") as f:
        p = subprocess.Popen(command(dict(TINY, port=0, frontends=2)), stdout=w, stderr=f)
    os.close(w)
    try:
        def told():
            with open(err, encoding="utf-8") as f:
                return "ready; standard output has no room" in f.read()
        check(until(told), "the log says that it is ready")
        old = [c for c in children(p.pid) if "engine" in title(c)]
        os.kill(old[0], signal.SIGKILL)
        check(until(lambda: any("engine" in title(c) and c not in old and living(c)
                                for c in children(p.pid))), "the engine is replaced")
        p.send_signal(signal.SIGTERM)
        equal(p.wait(WAIT), 0, "it drains")
    finally:
        if p.poll() is None:
            p.kill()
        p.wait()
        os.close(r)


@test
def log_that_nobody_reads():
    """A full pipe as standard error: nobody waits for it."""
    r, w = full_pipe()
    p = subprocess.Popen(command(dict(SIM, port=0, frontends=2)), stdout=subprocess.PIPE, stderr=w,
                         text=True)
    os.close(w)
    try:
        ok, _, _ = select.select([p.stdout], [], [], 3 * WAIT)
        line = p.stdout.readline() if ok else ""
        check("ready" in line, "it starts", line)
        port = int(re.search(r":(\d+) ", line).group(1))

        def served():
            with contextlib.suppress(OSError, EOFError), contextlib.closing(Conn(port, 0, WAIT)) as c:
                c.send(request("POST", COMP, force(AB, prompt="x", max_tokens=5)))
                return text_of(c.response()) == "ab" * 5
        check(until(served), "it serves")
        for role in ("engine", "frontend 0"):
            old = [c for c in children(p.pid) if role in title(c)]
            os.kill(old[0], signal.SIGKILL)
            check(until(lambda role=role, old=old: any(role in title(c) and c not in old and living(c)
                                                       for c in children(p.pid))), f"{role} is replaced")
        check(until(served), "it serves again")
        p.send_signal(signal.SIGTERM)
        equal(p.wait(WAIT), 0, "it drains")
    finally:
        if p.poll() is None:
            p.kill()
        p.wait()
        os.close(r)


if __name__ == "__main__":
    try:
        main()
    finally:
        shutil.rmtree(TMP, True)
