# SPDX-License-Identifier: Apache-2.0
"""The service manager: what it is told and when, whether the watchdog is fed, the sockets it passes."""
import shutil

from lib import *

COMP = "/v1/completions"
BODY = {"model": MODEL, "prompt": "x", "max_tokens": 2}
WATCHDOG_US = 600000  # a third of it is the time between two meals


class Manager:
    """A notify socket that keeps what it was told, in order."""

    def __init__(self, abstract=False):
        self.dir = tempfile.mkdtemp(prefix="tokenring-test-")
        self.name = "@tokenring-test-%d-%d" % (os.getpid(), id(self)) if abstract else os.path.join(self.dir, "notify")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind("\0" + self.name[1:] if abstract else self.name)
        self.told, self.lock = [], threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            text = self.sock.recv(65536).decode()
            with self.lock:
                self.told.append((time.monotonic(), text))

    def lines(self, word):
        with self.lock:
            return [line for _, text in self.told for line in text.splitlines() if line.startswith(word)]

    def meals(self):
        return len(self.lines("WATCHDOG=1"))

    def eats(self, n=2):
        """Whether it is fed from now on."""
        now = self.meals()
        return until(lambda: self.meals() >= now + n)

    def starves(self):
        """Whether it is not fed for ten times as long as two meals are apart."""
        def hungry():
            now = self.meals()
            time.sleep(10 * WATCHDOG_US / 3e6)
            return self.meals() == now
        return until(hungry)


@contextlib.contextmanager
def environment(**more):
    old = {k: os.environ.get(k) for k in more}
    os.environ.update(more)
    try:
        yield
    finally:
        for k, v in old.items():
            if v is None:
                del os.environ[k]
            else:
                os.environ[k] = v


def served(m=None, watchdog=False, **flags):
    more = {"NOTIFY_SOCKET": m.name} if m else {}
    if watchdog:
        more["WATCHDOG_USEC"] = str(WATCHDOG_US)
    with environment(**more):
        return Server(TINY, **flags)


@test
def it_is_told_start_reload_and_stop_in_order():
    for abstract in (False, True):
        m = Manager(abstract)
        with served(m) as s:
            check(until(lambda: m.lines("READY=1")), "READY came")
            equal(s.post(COMP, BODY).status, 200, "and a request is served")
            os.kill(s.pid, signal.SIGHUP)
            check(until(lambda: len(m.lines("READY=1")) == 2), "READY came again after SIGHUP", m.told)
            os.kill(s.pid, signal.SIGTERM)
            equal(s.wait_exit(), 0, "it ended")
        states = [line.partition("=")[0] for _, text in m.told for line in text.splitlines()]
        order = [w for w in states if w in ("READY", "RELOADING", "MONOTONIC_USEC", "STOPPING")]
        equal(order, ["READY", "RELOADING", "MONOTONIC_USEC", "READY", "STOPPING"], "the order of what it was told")
        check(re.match("STATUS=(Loading|The ledger process starts|[01] of 2 frontends)", m.lines("STATUS=")[0]), "the first line", m.told)
        check(any(re.fullmatch(r"STATUS=Serving smollm2 on port \d+, 2 frontends", x) for x in m.lines("STATUS=")), "status of serving", m.told)
        check(m.lines("STATUS=")[-1].startswith("STATUS=Draining"), "status at the end", m.told)
        check(int(m.lines("EXTEND_TIMEOUT_USEC=")[-1].partition("=")[2]) > 30 * 10**6, "the end may take as long as --drain-s")


@test
def ready_waits_for_every_role():
    m = Manager()
    with contextlib.suppress(RuntimeError):
        s = served(m, chat_template="/nonexistent")
        check(False, "a service without its template started", s.ready)
    check(not m.lines("READY=1"), "no READY from a service that could not start", m.told)


@test
def children_have_no_way_to_the_manager():
    m = Manager()
    with served(m, watchdog=True) as s:
        check(m.eats(), "the watchdog is fed")
        for pid in s.all_pids():
            if pid != s.pid:
                links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
                check(m.name not in str(links), "no descriptor", links)
        check(m.eats(), "and goes on")


@test
def a_role_that_stands_still_stops_the_watchdog_and_a_replacement_feeds_it():
    """Its own limit is short enough to see both: silent for 5 s, replaced after 12 s."""
    m = Manager()
    with served(m, watchdog=True, engine_stall_s=12, frontend_stall_s=12) as s:
        check("watchdog" in s.log(), "a watchdog shorter than the limits is warned of")
        check(m.eats(), "fed while all serve")
        for role in ("engine", "frontend", "ledger") if LONG else ("engine",):
            pid = s.processes()[role][0]
            os.kill(pid, signal.SIGSTOP)
            hungry = m.starves()
            check(hungry and living(pid), "the watchdog is not fed while the %s stands still" % role, hungry)
            check(until(lambda: not living(pid)), "the %s is replaced" % role)
            check(m.eats(), "it is fed in the recovery and after it")
            check(until(lambda: len(s.processes()[role]) >= 1), "a new %s" % role)
        equal(until(lambda: s.post(COMP, BODY).status == 200), True, "it serves")


@test
def a_role_that_cannot_be_replaced_stops_the_watchdog():
    m = Manager()
    template = os.path.join(m.dir, "template")

    def write(text):
        with open(template, "w", encoding="ascii") as f:
            f.write(text)

    write("{{ messages[0].content }}")
    with served(m, watchdog=True, frontend_stall_s=1, chat_template=template) as s:
        check(m.eats(), "fed while all serve")
        write("{% if %}")
        for pid in s.processes()["frontend"]:
            os.kill(pid, signal.SIGKILL)
        check(m.starves(), "not fed while no frontend gets to serve")
        write("{{ messages[0].content }}")
        check(m.eats(), "fed again")


def activated(script, **flags):
    """The program as a manager starts it: LISTEN_PID is its own; `script` sets the rest."""
    args = command(dict(TINY, port=0, control_socket="off", **flags))
    return ["bash", "-c", 'export LISTEN_PID=$$ LISTEN_FDS LISTEN_FDNAMES; %s exec "$0" "$@"' % script] + args


@test
def sockets_are_taken_by_name():
    with socket.create_server(("127.0.0.1", 0)) as grpc, socket.create_server(("127.0.0.1", 0)) as http:
        script = "LISTEN_FDS=2 LISTEN_FDNAMES=grpc:http; exec 3<&%d 4<&%d;" % (grpc.fileno(), http.fileno())
        child = subprocess.Popen(activated(script), stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL,
                                 pass_fds=(grpc.fileno(), http.fileno()))
        try:
            ready = child.stdout.readline()
            check(":%d " % http.getsockname()[1] in ready, "the socket is the one that was passed", ready)
            check("gRPC on 127.0.0.1:%d" % grpc.getsockname()[1] in ready, "and that of gRPC", ready)
        finally:
            child.terminate()
            equal(child.wait(WAIT), 0, "it ended")


@test
def a_socket_that_is_none_is_refused():
    p = subprocess.run(activated("LISTEN_FDS=1; exec 3</dev/null;"), stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                       text=True, timeout=WAIT, check=False)
    check("not a TCP socket that listens" in p.stderr and p.returncode == 2, "one sentence", p.returncode, p.stderr)


@test
def systemd_socket_activate_starts_it():
    """The tool accepts nothing itself: the first connection starts the service, which serves it, although
    it waited since before the engine was there."""
    tool = shutil.which("systemd-socket-activate")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    p = subprocess.Popen([tool, "--fdname=http", "-l", "127.0.0.1:%d" % port] + command(dict(TINY, port=0, control_socket="off")),
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        def answer():
            with contextlib.suppress(OSError):
                c = socket.create_connection(("127.0.0.1", port), timeout=WAIT)
                c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return c.recv(4096)
        got = until(answer)
        check(got and got.startswith(b"HTTP/1.1 200"), "the connection that started it is served", got)
    finally:
        p.terminate()
        equal(p.wait(WAIT), 0, "it ended")


main()
