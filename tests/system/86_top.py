# SPDX-License-Identifier: Apache-2.0
"""tokenring top and the control socket: figures of a known load, who may look, what a look cannot do."""
import fcntl
import mmap
import pty
import termios

from lib import *

COMP = "/v1/completions"
WORDS = "marmalade under the bridge"
NOBODY = 65534
TINY = dict(TINY, control_socket="auto")  # where top looks by itself


def top(s, *flags, port=True):
    """One run of top: (exit status, stdout, stderr)."""
    where = ["--port", str(s.port)] if port else []
    p = subprocess.run([BIN, "top", *where, *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                       timeout=2 * WAIT)
    return p.returncode, p.stdout, p.stderr


def look(s, *flags):
    """One object of --json."""
    rc, out, err = top(s, "--once", "--json", "--interval", "0.3", *flags)
    if rc != 0:
        raise RuntimeError(f"top: {rc} {err}")
    return strict_json(out)


def endless(s, n=7000, **kw):
    st = s.stream(COMP, {"model": MODEL, "prompt": WORDS, "max_tokens": n, "ignore_eos": True, "stream": True},
                  headers=["X-Request-Id: id-that-nobody-must-see"], **kw)
    equal(st.headers(), 200, "the stream began")
    return st


def read_on(*streams):
    """To the end, which may be that somebody hangs up."""
    threading.Thread(target=together, args=([st.rest for st in streams],), daemon=True).start()


def hang_up(*streams):
    for st in streams:
        with contextlib.suppress(OSError):
            st.conn.sock.shutdown(socket.SHUT_RDWR)
        st.close()


def path_of(s):
    return os.path.join(os.environ.get("RUNTIME_DIRECTORY", os.environ.get("XDG_RUNTIME_DIR", "/tmp")),
                        f"tokenring-{s.port}.sock")


def take(path):
    """What an observer is sent: (message, descriptors)."""
    with socket.socket(socket.AF_UNIX) as c:
        c.settimeout(WAIT)
        c.connect(path)
        msg, fds, _, _ = socket.recv_fds(c, 4096, 253)
        check(c.recv(1) == b"", "after the message the connection ends")
    return msg, fds


# ---- figures ------------------------------------------------------------------------------------

@test
def a_known_load_shows():
    with Server(TINY, frontends=2, ctx_size=8192, sim_step_us=10000) as s:
        streams = [endless(s) for _ in range(5)]
        for st in streams:
            until(lambda st=st: st.next()[0] == "data" and len(st.events) > 8)
        read_on(*streams)
        seen = [look(s)]

        def settled():
            """An interval in which nobody was kept from his turn: gauges are of now, rates of one time."""
            a = seen[-1]
            rates = sum(x["tokens_per_s"] for x in a["live"])
            if (a["streams"], a["connections"]) == (5, 5) and a["slots"]["running"] == 5 and \
                    a["latency"]["token_gap"]["last"]["n"] > 0 and \
                    abs(a["tokens"]["generated_per_s"] - rates) < 0.3 * a["tokens"]["generated_per_s"]:
                return True
            seen.append(look(s))
        until(settled)
        a = seen[-1]
        equal((a["slots"]["running"], a["slots"]["waiting"], a["slots"]["parked"]), (5, 0, 0), "states")
        equal(sum(v for k, v in a["slots"].items() if k != "total"), a["slots"]["total"], "every slot has a state")
        equal(a["live_slots"], 5, "live slots")
        check(all(x["state"] == "running" and x["max_tokens"] == 7000 and x["tokens_per_s"] > 0 and x["age_s"] > 0
                  and x["prompt_tokens"] == a["live"][0]["prompt_tokens"] > 0 and 0 <= x["window_fill"] <= 1 and
                  x["frontend"] in (0, 1) for x in a["live"]), "each live slot", a["live"])
        check(abs(a["tokens"]["generated_per_s"] - sum(x["tokens_per_s"] for x in a["live"])) <
              0.3 * a["tokens"]["generated_per_s"], "the sum of the slots is the rate of the whole", a["tokens"])
        check(a["kv_blocks"]["used"] >= 5 and a["kv_blocks"]["free"] > 0, "blocks", a["kv_blocks"])
        equal((a["streams"], a["connections"]), (5, 5), "streams and connections")
        t = a["latency"]
        equal(t["first_token"]["all"]["n"], 5, "first tokens since the start")
        check(t["token_gap"]["last"]["n"] > 0 and 0 < t["token_gap"]["last"]["p50_s"] <=
              t["token_gap"]["last"]["p90_s"] <= t["token_gap"]["last"]["p99_s"], "gaps of the interval", t)
        roles = sorted(p["role"] for p in a["processes"])
        equal(roles, ["engine", "frontend", "frontend", "ledger", "supervisor"], "processes")
        check(all(p["state"] == "serving" and p["beat_age_s"] < WAIT for p in a["processes"]), "they beat",
              a["processes"])
        pids = {p["pid"] for p in a["processes"]}
        equal(pids, set(s.all_pids()), "by their pids")
        b = look(s)
        check(b["tokens"]["generated"] > a["tokens"]["generated"], "it goes on")
        hang_up(*streams)
        s.idle()
        until(lambda: look(s)["live_slots"] == 0)
        c = look(s)
        m = s.metrics()
        equal(c["tokens"]["generated"], m["published_tokens_total"], "the same figures as /metrics")
        equal(c["tokens"]["generated"], m['tokens_total{kind="completion"}'] + m['tokens_total{kind="overrun"}'],
              "in the end the records say the same sum")
        equal(c["ended"]["client_disconnected"]["total"], 5, "how they ended")
        equal(c["live_slots"], 0, "all slots are back")


@test
def one_who_does_not_read_is_on_top():
    with Server(TINY, window=64, ctx_size=8192, sim_step_us=5000) as s:
        reader = endless(s)
        read_on(reader)
        stuck = endless(s, rcvbuf=4096)
        check(until(lambda: look(s)["slots"]["parked"] == 1), "it is parked", look(s)["slots"])
        a = look(s, "--sort", "window")
        equal((a["live"][0]["state"], a["live"][0]["window_fill"] >= 1), ("parked", True), "the fullest comes first")
        check(a["buffered_bytes"]["kernel"] > 0 and a["buffered_bytes"]["ring"] > 0, "what waits for it",
              a["buffered_bytes"])
        a = look(s, "--sort", "tokens", "--slots", "1")
        equal((len(a["live"]), a["live"][0]["state"]), (1, "running"), "the fastest comes first")
        equal(look(s, "--sort", "age")["live"][0]["state"], "running", "so does the oldest")
        rc, out, err = top(s, "--once", "--interval", "0.3")
        equal((rc, err), (0, ""), "as text")
        for word in ("tokenring ", "tokens ", "slots ", "kv  ", "buffered ", "first token", "delivered gap", "engine ",
                     "supervisor", "frontend 1", "parked", "100%"):
            check(word in out, f"text has {word!r}", out)
        check("\033" not in out and all(len(line) <= 120 for line in out.splitlines()), "plain", out)
        hang_up(stuck)
        hang_up(reader)


@test
def no_content_leaves():
    with Server(TINY, ctx_size=8192) as s:
        st = endless(s)
        until(lambda: st.next()[0] == "data" and len(st.events) > 20)
        msg, fds = take(path_of(s))
        held = msg
        for fd in fds:
            with mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ) as m:
                held += m[:]
            os.close(fd)
        text = "".join(c["text"] for e in st.events for c in e["choices"])
        check(len(held) > 10000 and len(text) > 10, "something to look through", len(held), text)
        for what, word in (("prompt", WORDS), ("answer", text[:12]), ("request id", "id-that-nobody"),
                           ("stream id", st.id)):
            check(word.encode() not in held, f"no {what} in it", word)
        _, out, _ = top(s, "--once", "--json", "--interval", "0.1")
        check(st.id not in out and "nobody-must" not in out and WORDS not in out, "nor in what is shown", out)
        hang_up(st)


@test
def deaths_and_replacements_show():
    with Server(TINY, frontends=2, ctx_size=8192, sim_step_us=10000) as s:
        os.kill(s.pids["frontend"][0], signal.SIGKILL)
        check(until(lambda: look(s)["restarts"]["frontend"]["total"] == 1), "a restart is counted")
        check(until(lambda: [p["state"] for p in look(s)["processes"]].count("serving") == 5), "and all serve again",
              look(s)["processes"])
        st = endless(s)
        read_on(st)
        os.kill(s.pid, signal.SIGHUP)
        check(until(lambda: "retired" in [p["state"] for p in look(s)["processes"]]),
              "a frontend that ends its streams is shown as retired", look(s)["processes"])
        hang_up(st)
        check(until(lambda: [p["state"] for p in look(s)["processes"]] == ["serving"] * 5), "until it has gone",
              look(s)["processes"])
        s.pids = s.processes()
        os.kill(s.pids["engine"][0], signal.SIGSTOP)
        check(until(lambda: look(s)["processes"][0]["state"] == "silent"), "an engine that stands still is silent")
        os.kill(s.pids["engine"][0], signal.SIGCONT)
        check(until(lambda: look(s)["processes"][0]["state"] == "serving"), "and serves again")


# ---- the end of what is observed ----------------------------------------------------------------

@test
def the_end_of_the_service_ends_it_with_a_sentence():
    with Server(TINY) as s:
        p = subprocess.Popen([BIN, "top", "--port", str(s.port), "--json", "--interval", "0.1"], text=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3):
            strict_json(p.stdout.readline())
        s.child.send_signal(signal.SIGTERM)
        s.wait_exit()
        out, err = p.communicate(timeout=WAIT)
        check(p.returncode == 1 and "has ended" in err and str(s.pid) in err, "a sentence, status 1", p.returncode, err)
        check(all(strict_json(line) for line in out.splitlines()), "whole lines to the end")
        rc, _, err = top(s, "--once")
        check(rc == 1 and "no service" in err, "then there is none", rc, err)


@test
def wrong_flags_have_a_sentence():
    for flags, word in ((["--interval", "0"], "--interval"), (["--port", "x"], "--port"), (["--nope"], "--nope"),
                        (["--sort", "name"], "--sort"), (["--socket"], "value"), ([], "terminal")):
        p = subprocess.run([BIN, "top", *flags], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT)
        check(p.returncode == 2 and word in p.stderr and p.stderr.count("\n") == 1, f"top {flags}", p.returncode,
              p.stderr)
    p = subprocess.run([BIN, "top", "--help"], capture_output=True, text=True, timeout=WAIT)
    check(p.returncode == 0 and "--socket" in p.stdout, "--help", p.stdout)


# ---- the socket ---------------------------------------------------------------------------------

@test
def the_socket_comes_and_goes():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.sock")
        with Server(TINY, control_socket=path) as s:
            equal(os.stat(path).st_mode & 0o777, 0o600, "for its owner alone")
            equal(os.listdir(d), ["x.sock"], "and nothing beside it")
            equal(top(s, "--once", "--interval", "0.05", "--socket", path, port=False)[0], 0, "by its path")
            rc, err, _ = fails_to_start(dict(TINY, port=free_port(), control_socket=path))
            check(rc == 1 and path in err and "runs" in err, "a second service does not take it", rc, err)
            equal(top(s, "--once", "--interval", "0.05", "--socket", path, port=False)[0], 0, "it is still the first's")
        check(not os.path.exists(path), "gone at the end")

        s = Server(TINY, control_socket=path)
        s.child.kill()
        s.child.wait()
        check(until(lambda: not children(s.pid)) is True, "its children are gone")
        check(os.path.exists(path), "a dead service leaves it")
        with Server(TINY, control_socket=path) as t:
            equal(top(t, "--once", "--interval", "0.05", "--socket", path, port=False)[0], 0, "it is replaced")
            os.unlink(path)
            with open(path, "w", encoding="ascii") as f:
                f.write("mine")
        with open(path, encoding="ascii") as f:
            equal(f.read(), "mine", "what is not its own is not removed")
        rc, err, _ = fails_to_start(dict(TINY, port=free_port(), control_socket=path))
        check(rc == 1 and "not a socket" in err, "nor replaced", rc, err)
        with open(path, encoding="ascii") as f:
            equal(f.read(), "mine", "it is left alone")
        s.stop()
    rc, err, _ = fails_to_start(dict(TINY, port=free_port(), control_socket="/x" * 80))
    check(rc == 1 and "too long" in err, "a path that no socket can have", rc, err)


@test
def without_a_place_it_serves_all_the_same():
    with Server(TINY, control_socket="off") as s:
        check(not os.path.exists(path_of(s)), "off")
        rc, _, err = top(s, "--once")
        check(rc == 1 and "no service" in err, "top says so", err)
    saved = {k: os.environ.pop(k) for k in ("RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR") if k in os.environ}
    with tempfile.TemporaryDirectory() as d:
        os.environ["XDG_RUNTIME_DIR"] = d
        with Server(TINY) as s:
            check(os.path.exists(os.path.join(d, f"tokenring-{s.port}.sock")), "the user's directory")
            equal(top(s, "--once", "--interval", "0.05")[0], 0, "is where top looks")
        os.environ["RUNTIME_DIRECTORY"] = f"{d}:/nowhere"
        os.environ["XDG_RUNTIME_DIR"] = "/nowhere"
        with Server(TINY) as s:
            check(os.path.exists(os.path.join(d, f"tokenring-{s.port}.sock")), "the service manager's comes first")
        os.environ.pop("RUNTIME_DIRECTORY")
        with Server(TINY) as s:
            check(os.path.exists(f"/tmp/tokenring-{s.port}.sock"), "/tmp instead of one that is not there")
        os.environ.pop("XDG_RUNTIME_DIR")
    os.environ.update(saved)


def as_nobody(fn):
    """What fn() returns (a word) in a process of another user."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            word = fn()
        except OSError as e:
            word = type(e).__name__
        os.write(w, word.encode())
        os._exit(0)
    os.close(w)
    os.waitpid(pid, 0)
    with os.fdopen(r, encoding="ascii") as f:
        return f.read()


@test
def only_its_user_and_root_may_look():
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "x.sock")
        os.chmod(d, 0o755)
        with Server(TINY, control_socket=path) as s:
            msg, fds = take(path)
            check(len(msg) > 100 and len(fds) > 4, "its own user is served", len(msg), len(fds))
            for fd in fds:
                os.close(fd)
            if os.geteuid() != 0:
                return

            def attempt():
                with socket.socket(socket.AF_UNIX) as c:
                    c.settimeout(WAIT)
                    c.connect(path)
                    data, got, _, _ = socket.recv_fds(c, 4096, 253)
                    return "served" if data or got else "nothing"
            equal(as_nobody(attempt), "PermissionError", "another user does not get to the socket")
            os.chmod(path, 0o666)
            equal(as_nobody(attempt), "nothing", "and if he does he is sent nothing")
            s.alive("after strangers", model_tokens=None)


@test
def descriptors_cannot_be_made_writable():
    with Server(TINY) as s:
        _, fds = take(path_of(s))
        bad = []
        for fd in fds:
            size = os.fstat(fd).st_size

            def attempt(what, fn):
                try:
                    fn()
                    bad.append(what)
                except (OSError, ValueError):
                    pass
            rw = mmap.PROT_READ | mmap.PROT_WRITE
            attempt("map", lambda: mmap.mmap(fd, size, mmap.MAP_SHARED, rw))
            attempt("write", lambda: os.write(fd, b"x"))
            with contextlib.suppress(OSError):
                os.fchmod(fd, 0o777)
            try:
                again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
            except OSError:
                continue
            attempt("map again", lambda: mmap.mmap(again, size, mmap.MAP_SHARED, rw))
            attempt("write again", lambda: os.pwrite(again, b"x", 0))
            attempt("cut", lambda: os.ftruncate(again, 0))
            attempt("grow", lambda: os.ftruncate(again, size + 4096))
            attempt("seal", lambda: fcntl.fcntl(again, 1033, 8))  # F_ADD_SEALS, F_SEAL_WRITE
            os.close(again)
        equal(bad, [], "no way to write")
        for fd in fds:
            os.close(fd)
        s.alive("after the attempts", model_tokens=None)


def connected(c, path):
    try:
        c.connect(path)
        return True
    except BlockingIOError:  # as many wait already as may
        return False


@test
def whoever_connects_hurts_nobody():
    with Server(TINY, ctx_size=8192, sim_step_us=10000) as s:
        st = endless(s)
        read_on(st)
        before = fd_count(s.pid)
        held = []
        for i in range(400):
            c = socket.socket(socket.AF_UNIX)
            c.settimeout(WAIT)
            check(until(lambda c=c: connected(c, path_of(s))), "it is let in")
            with contextlib.suppress(OSError):
                c.send(os.urandom(3000) if i % 2 else b"GET / HTTP/1.1\r\n\r\n")
            if i % 3 == 0:
                c.shutdown(socket.SHUT_RDWR)
            held.append(c)  # and never read
        check(until(lambda: fd_count(s.pid) <= before), "nothing is kept for them", fd_count(s.pid), before)
        equal(look(s)["slots"]["running"], 1, "others are served")
        for c in held:
            c.close()
        hang_up(st)
        s.alive("after 400 of them", model_tokens=None)


# ---- the terminal -------------------------------------------------------------------------------

class Terminal:
    """top in a terminal of its own, 24 x 80."""

    def __init__(self, s, *flags):
        self.master, self.slave = pty.openpty()
        self.size(24, 80)
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""

        def own():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        self.p = subprocess.Popen([BIN, "top", "--port", str(s.port), "--interval", "0.1", *flags], stdin=self.slave,
                                  stdout=self.slave, stderr=self.slave, start_new_session=True, preexec_fn=own)

    def size(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, limit=0.05):
        while select.select([self.master], [], [], limit)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            if not data:
                return
            self.seen += data
            limit = 0

    def until(self, word, claim):
        def there():
            self.read()
            return word in self.seen
        return check(until(there), claim, self.seen[-1500:])

    def ended(self):
        def over():
            self.read()
            return self.p.poll() is not None
        until(over)
        self.read()
        return self.p.returncode

    def restored(self, what):
        check(b"\033[?25h\033[?1049l" in self.seen, f"{what}: the screen is given back", self.seen[-200:])
        after = termios.tcgetattr(self.slave)
        equal(after, self.before, f"{what}: the keys are as before")
        os.close(self.master)
        os.close(self.slave)


@test
def it_draws_and_gives_the_terminal_back():
    with Server(TINY, ctx_size=8192, sim_step_us=10000) as s:
        st = endless(s)
        read_on(st)
        t = Terminal(s)
        t.until(b"\033[?1049h\033[?25l", "a screen of its own")
        t.until(b"running  ", "the live slot is drawn")
        check(b"delivered gap" in t.seen and b"supervisor" in t.seen, "all of it", t.seen)
        for key in (b"a", b"t", b"w", b"x"):
            os.write(t.master, key)
        t.seen = b""
        t.size(9, 30)
        os.kill(t.p.pid, signal.SIGWINCH)  # as the terminal would say in the foreground
        t.until(b"\033[H", "it is drawn again")

        def small():
            t.read()
            frame = t.seen.rpartition(b"\033[H")[0].rpartition(b"\033[H")[2]
            lines = re.sub(rb"\033\[[0-9]*[A-Za-z]", b"", frame).split(b"\r\n")
            return len(lines) == 9 and max(len(x.strip(b"\r")) for x in lines) <= 30
        check(until(small), "within the smaller screen", t.seen[-800:])
        t.size(40, 120)
        t.until(b"frontends 0", "and whole again in a larger one")
        os.write(t.master, b"q")
        equal(t.ended(), 0, "q ends it")
        t.restored("q")

        t = Terminal(s, "--sort", "age")
        t.until(b"running  ", "drawn")
        os.write(t.master, b"\003")
        equal(t.ended(), 0, "so does Ctrl-C")
        t.restored("Ctrl-C")

        t = Terminal(s)
        t.until(b"running  ", "drawn")
        t.p.send_signal(signal.SIGTERM)
        equal(t.ended(), 0, "and SIGTERM")
        t.restored("SIGTERM")

        t = Terminal(s)
        t.until(b"running  ", "drawn")
        hang_up(st)
        s.child.send_signal(signal.SIGTERM)
        s.wait_exit()
        equal(t.ended(), 1, "the end of the service ends it too")
        check(b"has ended" in t.seen.rpartition(b"\033[?1049l")[2], "with a sentence on the old screen",
              t.seen[-300:])
        t.restored("the service's end")


main()
