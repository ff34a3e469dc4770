# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: a service of one's own, HTTP by hand, metrics, ledger, processes.

A test is a function marked with @test; a script ends with main().  Claims go through check(), which
counts and goes on, so that one run tells all that is wrong.  Nothing may fail by the clock alone:
what must come "at once" is waited for generously, and promptness is proved by counts (tokens decoded
after a disconnect, bytes buffered), not by seconds.

Environment: TOKENRING_BIN (the binary), TOKENRING_TEST_MODEL (default .cache/smollm2.gguf below the
repository), TOKENRING_TEST_PORTS ("first-last"; default: the kernel chooses), TOKENRING_TEST_LONG
(set: every case at its full size, for minutes), TOKENRING_TEST_ROUNDS (faults under load in 60 and
65: 3, at full size 20), TEST (a word that the names of the tests to run contain)."""
import contextlib
import json
import mmap
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import native

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("TOKENRING_BIN", os.path.join(ROOT, "build/dev/supervisor/tokenring"))
MODEL_FILE = os.environ.get("TOKENRING_TEST_MODEL", os.path.join(ROOT, ".cache/smollm2.gguf"))
MODEL = "smollm2"
with open(BIN, "rb") as _f:
    SANITIZED = b"__asan_" in _f.read()  # memory and speed are then not those of the product
LONG = bool(os.environ.get("TOKENRING_TEST_LONG"))  # cases at their full size
WAIT = 60.0  # for anything that should be quick; a sanitizer build on a busy machine is not

# ---- counting -----------------------------------------------------------------------------------

_tests, _passed, _failed = [], 0, 0
_lock = threading.Lock()
_servers = []


def test(fn):
    _tests.append(fn)
    return fn


def check(good, claim, *seen):
    """Counts one claim; a false one is printed with what was seen instead."""
    global _passed, _failed
    with _lock:
        if good:
            _passed += 1
        else:
            _failed += 1
            print(f"FAILED {claim}" + "".join(f" | {str(s)[:600]}" for s in seen), flush=True)
    return bool(good)


def equal(got, want, claim):
    return check(got == want, claim, f"got {got!r}", f"want {want!r}")


def until(fn, limit=WAIT, pause=0.02):
    """The first true value of fn, or its last one after the limit."""
    end = time.monotonic() + limit
    while True:
        v = fn()
        if v or time.monotonic() > end:
            return v
        time.sleep(pause)


def ledger_rows(address, *more):
    """What `tokenring ledger export` says of it."""
    p = subprocess.run([BIN, "ledger", "export", "--ledger", address, *more], stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if p.returncode:
        raise RuntimeError(f"ledger export: status {p.returncode}: {p.stderr}")
    return [json.loads(line) for line in p.stdout.splitlines()]


def main():
    word = os.environ.get("TEST", "")
    for fn in _tests:
        if word not in fn.__name__:
            continue
        begin = time.monotonic()
        try:
            fn()
        except Exception:  # a test that breaks must not hide the others
            check(False, f"{fn.__name__} ran to its end", traceback.format_exc()[-1500:])
        print(f"  {fn.__name__} {time.monotonic() - begin:.1f} s", flush=True)
    for s in list(_servers):
        s.stop()
    print(f"{_passed} passed, {_failed} failed")
    sys.exit(1 if _failed or not _passed else 0)


def together(jobs, limit=300):
    """Runs functions at the same time; their results in order (an exception is a result)."""
    out = [None] * len(jobs)

    def run(i, fn):
        try:
            out[i] = fn()
        except Exception as e:
            out[i] = e

    threads = [threading.Thread(target=run, args=(i, fn), daemon=True) for i, fn in enumerate(jobs)]
    for t in threads:
        t.start()
    end = time.monotonic() + limit
    for t in threads:
        t.join(max(0.0, end - time.monotonic()))
    return out


# ---- processes ----------------------------------------------------------------------------------

def proc_read(pid, what):
    try:
        with open(f"/proc/{pid}/{what}", "rb") as f:
            return f.read()
    except OSError:
        return b""


def title(pid):
    return proc_read(pid, "cmdline").replace(b"\0", b" ").decode("latin-1").strip()


def parent_and_state(pid):
    s = proc_read(pid, "stat").decode("latin-1")
    if not s:
        return 0, "X"
    f = s[s.rindex(")") + 2:].split()
    return int(f[1]), f[0]


def children(pid):
    out = []
    for p in os.listdir("/proc"):
        if p.isdigit() and parent_and_state(p)[0] == pid:
            out.append(int(p))
    return sorted(out)


def living(pid):
    return parent_and_state(pid)[1] not in "XZ"


def zombies(pid):
    """Children that are dead and not yet taken note of; a moment later there must be none."""
    return [p for p in children(pid) if parent_and_state(p)[1] == "Z"]


def rss(pid):
    m = re.search(rb"VmRSS:\s+(\d+) kB", proc_read(pid, "status"))
    return int(m.group(1)) * 1024 if m else 0


def cpu_seconds(pid):
    s = proc_read(pid, "stat").decode("latin-1")
    if not s:
        return 0.0
    f = s[s.rindex(")") + 2:].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")


def fd_count(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def clients_of(pid, port):
    """The ports of the peers whose connections to our port this process holds."""
    inodes = set()
    with contextlib.suppress(OSError):  # it may be dead
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                link = os.readlink(f"/proc/{pid}/fd/{fd}")
                if link.startswith("socket:["):
                    inodes.add(link[8:-1])
    with open("/proc/net/tcp", encoding="ascii") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    return {int(r[2].split(":")[1], 16) for r in rows
            if r[9] in inodes and r[3] == "01" and int(r[1].split(":")[1], 16) == port}


# ---- faults -------------------------------------------------------------------------------------

ALWAYS = 1 << 62


class Faults:
    """The points of base/fault.def in one service (base/fault.h): a shared file, written here, read at
    each point by the process that gets there.  Only builds with TOKENRING_FAULTS have them."""
    ACTIONS = {"none": 0, "count": 1, "kill": 2, "segv": 3, "abort": 4, "stop": 5, "exit": 6}
    MAGIC, HEAD, POINT, NAME = 0x31544C5541465254, 64, 128, 48

    @staticmethod
    def names():
        """Every point in the order of the table, with what stands there."""
        with open(os.path.join(ROOT, "base/fault.def"), encoding="utf-8") as f:
            return dict(re.findall(r'^X\(\w+,\s*"([^"]+)",\s*"([^"]+)"\)', f.read(), re.M))

    def __init__(self, path):
        self.path = path
        self.index = {name: i for i, name in enumerate(self.names())}
        size = self.HEAD + self.POINT * len(self.index)
        with open(path, "w+b") as f:
            f.write(struct.pack("=QII", self.MAGIC, len(self.index), self.POINT))
            f.truncate(size)
            f.flush()
            self.map = mmap.mmap(f.fileno(), size)

    def _at(self, point):
        return self.HEAD + self.POINT * self.index[point] + self.NAME

    def _words(self, point):
        """match, skip, left, hits, fired, pid"""
        return struct.unpack_from("=QQQQQQ", self.map, self._at(point) + 8)

    def arm(self, point, action, left=1, skip=0, match=None):
        """From now on: after `skip` hits, `left` times (ALWAYS: each time).  match: only this value."""
        at = self._at(point)
        struct.pack_into("=I", self.map, at, 0)
        struct.pack_into("=IQQQQQQ", self.map, at + 4, match is not None, match or 0, skip, left,
                         0, 0, 0)
        struct.pack_into("=I", self.map, at, self.ACTIONS[action])

    def disarm(self, *points):
        for p in points or self.index:
            struct.pack_into("=I", self.map, self._at(p), 0)

    def hits(self, point):
        """How often somebody got there since it was armed, whether or not anything happened."""
        return self._words(point)[3]

    def fired(self, point):
        return self._words(point)[4]

    def pid(self, point):
        """Who took the action last; 0: nobody."""
        return self._words(point)[5]

    def wait_fired(self, point, n=1, limit=WAIT):
        return until(lambda: self.fired(point) >= n, limit)

    def wait_stopped(self, point, limit=WAIT):
        """The process that stands still there, or None."""
        def stopped():
            pid = self.pid(point)
            return pid if pid and parent_and_state(pid)[1] == "T" else None
        return until(stopped, limit)

    @staticmethod
    def go_on(pid):
        """Lets a process that stands go on."""
        with contextlib.suppress(ProcessLookupError):
            if pid:
                os.kill(pid, signal.SIGCONT)


# ---- a service ----------------------------------------------------------------------------------

def free_port():
    span = os.environ.get("TOKENRING_TEST_PORTS")
    if not span:
        return 0
    first, last = (int(x) for x in span.split("-"))
    for port in random.sample(range(first, last + 1), last - first + 1):
        with contextlib.closing(socket.socket()) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError(f"no free port in {span}")


def command(args):
    argv = [BIN, "serve"]
    for k, v in args.items():
        argv += [f"--{k.replace('_', '-')}", str(v)]
    return argv


SIM = {"model": MODEL_FILE, "backend": "sim", "sim_step_us": 2000, "served_name": MODEL}
TINY = {"model": "sim", "sim_step_us": 2000, "served_name": MODEL}
REAL = {"model": MODEL_FILE, "served_name": MODEL}
FORBIDDEN = "a system call its sandbox does not have"  # how the log names the death by it
SANITIZER = re.compile(r"(ERROR: \w+Sanitizer|runtime error:|LeakSanitizer).*", re.M)


class Server:
    """A running service.  Its ledger is self.ledger (True: a file of its own, False: none, or a
    path), its stderr self.log().  `before` runs in the child before the program: its limits.  With
    `faults` it has points that can be armed: self.faults."""

    def __init__(self, flags=SIM, ledger=True, before=None, faults=False, **more):
        self.dir = tempfile.mkdtemp(prefix="tokenring-test-")
        self.ledger = ledger if isinstance(ledger, str) else os.path.join(self.dir, "ledger.db")
        args = dict(flags, port=free_port(), **({"ledger": self.ledger} if ledger else {}))
        args.update(more)
        # Its own: one that is killed leaves it behind.  A socket's path has 107 bytes at most.
        path = os.path.join(self.dir, "control.sock")
        args.setdefault("control_socket", path if len(path) < 108 else "off")
        self.args = args
        self.err = open(os.path.join(self.dir, "stderr"), "w+")
        self.forbidden = 0  # deaths by a forbidden system call that the test brings about
        self.faults, env = None, None
        if faults:
            self.faults = Faults(os.path.join(self.dir, "faults"))
            env = dict(os.environ, TOKENRING_FAULT=self.faults.path)
        self.child = subprocess.Popen(command(args), stdout=subprocess.PIPE, stderr=self.err,
                                      start_new_session=True, text=True, preexec_fn=before, env=env)
        _servers.append(self)
        self.pid = self.child.pid
        self.status = None
        self.ready = self._ready_line()
        m = re.search(r"https?://([^ ]+):(\d+)", self.ready)
        if not m:
            raise RuntimeError(f"no ready line but {self.ready!r}; stderr: {self.log()[-800:]}")
        self.port = int(m.group(2))
        self.pids = self.processes()

    def _ready_line(self):
        ok, _, _ = select.select([self.child.stdout], [], [], 3 * WAIT)
        return self.child.stdout.readline() if ok else ""

    def log(self):
        with open(os.path.join(self.dir, "stderr"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def processes(self):
        """{"engine": [pid], "ledger": [pid], "frontend": [pid, ...]}"""
        out = {"engine": [], "ledger": [], "frontend": []}
        for pid in children(self.pid):
            m = re.match(r"tokenring: (engine|ledger|frontend)", title(pid))
            if m and living(pid):
                out[m.group(1)].append(pid)
        return out

    def all_pids(self):
        return [self.pid] + [p for ps in self.processes().values() for p in ps]

    def kill_all(self):
        """kill -9 of every process of the service, and the end of each."""
        pids = self.all_pids()
        os.killpg(self.pid, signal.SIGKILL)
        self.child.wait()
        check(until(lambda: not any(living(p) for p in pids)), "every process is gone")

    def wait_exit(self, limit=WAIT):
        try:
            self.status = self.child.wait(limit)
        except subprocess.TimeoutExpired:
            self.status = None
        return self.status

    def stop(self):
        """Ends the service and looks for what no test may leave behind."""
        if self not in _servers:
            return
        _servers.remove(self)
        kids = children(self.pid) if self.child.poll() is None else []
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGTERM)
            time.sleep(0.05)
            if self.wait_exit(0.5) is None:
                self.child.send_signal(signal.SIGTERM)
            if self.wait_exit() is None:
                check(False, "the service ends after two SIGTERM", self.log()[-600:])
                self.child.kill()
                self.child.wait()
        check(until(lambda: not any(living(p) for p in kids)), "no process is left behind",
              [title(p) for p in kids])
        for p in kids:
            with contextlib.suppress(OSError):
                os.kill(p, signal.SIGKILL)
        self.child.stdout.close()
        m = SANITIZER.search(self.log())
        check(not m, "no sanitizer report", m and self.log()[m.start():m.start() + 1500])
        told = [line for line in self.log().splitlines() if FORBIDDEN in line]
        check(len(told) == self.forbidden, "no forbidden system call", told)
        self.err.close()
        if not _failed:
            subprocess.run(["rm", "-rf", self.dir], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()

    # -- requests --

    def conn(self, rcvbuf=0, wait=WAIT):
        return Conn(self.port, rcvbuf, wait)

    def conn_at(self, pid, unused=False, **kw):
        """A connection that this frontend accepted: the others stand still meanwhile.  unused: nothing
        was said on it, since HTTP/2 can only begin one."""
        others = [p for p in self.processes()["frontend"] if p != pid]
        for p in others:
            os.kill(p, signal.SIGSTOP)
        try:
            c = self.conn(**kw)
            if unused:
                port = c.sock.getsockname()[1]
                check(until(lambda: port in clients_of(pid, self.port)), "a connection where it should be")
            else:
                c.send(request("GET", "/livez"))
                c.response()
        finally:
            for p in others:
                os.kill(p, signal.SIGCONT)
        return c

    def get(self, path, **kw):
        return self.ask("GET", path, None, **kw)

    def post(self, path, body, **kw):
        return self.ask("POST", path, body, **kw)

    def ask(self, method, path, body, headers=(), wait=WAIT):
        with contextlib.closing(self.conn(wait=wait)) as c:
            c.send(request(method, path, body, headers))
            return c.response(head_only=method == "HEAD")

    def raw(self, data, wait=WAIT, shut=False):
        """Everything that comes back for these bytes, up to the end of the connection."""
        with contextlib.closing(self.conn(wait=wait)) as c:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                c.send(data)
                if shut:
                    c.sock.shutdown(socket.SHUT_WR)
            return c.drain()

    def stream(self, path, body, **kw):
        s = Stream(self, path, body, **kw)
        return s

    def responses(self, data, n=2, shut=False):
        """What a strict client reads from these bytes sent in one go: up to n responses, and what is
        left over.  A response that says close must be the last thing on the connection."""
        out = []
        with contextlib.closing(self.conn()) as c:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                c.send(data)
                if shut:
                    c.sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(EOFError, ConnectionResetError):
                while len(out) < n and (not out or out[-1].header("connection") != "close"):
                    out.append(c.response())
            with contextlib.suppress(ConnectionResetError):
                if out and out[-1].header("connection") == "close":
                    while c.more():
                        pass
            return out, c.buf

    # -- what it says of itself --

    def metrics(self):
        r = self.get("/metrics")
        out = {}
        for line in r.text.splitlines():
            if not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                out[name.removeprefix("tokenring_")] = float(value)
        return out

    def metric(self, name):
        return self.metrics().get(name)

    def kv_free(self):
        m = self.metrics()
        return m['kv_blocks{state="free"}'] + m['kv_blocks{state="cached"}']

    def idle(self, limit=WAIT):
        """Waits until no request is in the engine and all KV blocks are free."""
        def quiet():
            m = self.metrics()
            return (m["requests_running"] == 0 and m["requests_waiting"] == 0 and
                    m["requests_parked"] == 0 and m['kv_blocks{state="used"}'] == 0)
        return until(quiet, limit)

    def rows(self):
        """The ledger, oldest first: what the database and the spool hold, also while the service runs."""
        return ledger_rows(self.ledger)

    def row(self, request_id, limit=WAIT):
        """The one row of a request, waited for."""
        def find():
            return [r for r in self.rows() if r["request_id"] == request_id]
        found = until(find, limit)
        return found[0] if len(found) == 1 else None

    def alive(self, what, model_tokens=31):
        """The claim ALIVE: the same processes, ready, and it answers."""
        h = self.get("/health")
        r = self.post("/v1/chat/completions", chat("Hi", max_tokens=1))
        good = (self.processes() == self.pids and h.status == 200 and r.status == 200 and
                (model_tokens is None or r.json["usage"]["prompt_tokens"] == model_tokens))
        check(good, f"{what}: alive afterwards", self.processes(), h.status, r.status, r.text)
        return good


def fails_to_start(args, limit=3 * WAIT, **how):
    """Runs a service that cannot start: (exit status, stderr, seconds).  None: it did not end."""
    begin = time.monotonic()
    p = subprocess.Popen(command(args) if isinstance(args, dict) else [BIN] + args,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)
    try:
        _, err = p.communicate(timeout=limit)
        return p.returncode, err, time.monotonic() - begin
    except subprocess.TimeoutExpired:
        p.kill()
        return None, p.communicate()[1], time.monotonic() - begin


# ---- HTTP ---------------------------------------------------------------------------------------

def request(method, path, body=None, headers=(), version="1.1"):
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost"]
    if data or method == "POST":
        lines += ["Content-Type: application/json", f"Content-Length: {len(data)}"]
    return ("\r\n".join(lines + list(headers)) + "\r\n\r\n").encode("latin-1") + data


def strict_json(text):
    """JSON without NaN, Infinity and double keys."""
    def pairs(items):
        d = dict(items)
        if len(d) != len(items):
            raise ValueError("double key")
        return d

    def constant(word):
        raise ValueError(f"{word} is not JSON")
    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


class Response:
    def __init__(self, status, reason, headers, body, whole=True):
        self.status, self.reason, self.headers, self.body = status, reason, headers, body
        self.whole = whole  # the body came to its framed end

    def header(self, name):
        return self.headers.get(name.lower())

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        return strict_json(self.body.decode("utf-8"))

    @property
    def error(self):
        try:
            return self.json.get("error") or {}
        except ValueError:
            return {}


class Conn:
    """A TCP connection with a parser that is as strict as a client can be."""

    def __init__(self, port, rcvbuf=0, wait=WAIT):
        self.sock = socket.socket()
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(wait)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buf = b""
        self.eof = False
        self.request = b""  # what was sent last
        self.native = None  # looks at the events of a native stream beside whoever reads them
        self.framed = False

    def send(self, data):
        if re.match(rb"[A-Z]+ /", data):
            self.request = data[:300]
        self.sock.sendall(data)

    def close(self):
        self.sock.close()

    def reset(self):
        """Ends the connection with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def more(self, most=65536):
        """One read; False at the end of the connection.  A reset is raised."""
        data = b"" if self.eof else self.sock.recv(most)
        self.eof = not data
        self.buf += data
        if self.native and not self.framed:
            self.native.feed(data)
        return bool(data)

    def drain(self):
        with contextlib.suppress(ConnectionResetError):
            while self.more():
                pass
        out, self.buf = self.buf, b""
        return out

    def take_until(self, mark):
        while mark not in self.buf:
            if not self.more():
                raise EOFError(f"connection ended inside {self.buf[-200:]!r}")
        part, self.buf = self.buf.split(mark, 1)
        return part

    def take(self, n):
        while len(self.buf) < n:
            if not self.more():
                raise EOFError("connection ended inside a body")
        part, self.buf = self.buf[:n], self.buf[n:]
        return part

    def head(self):
        lines = self.take_until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        m = re.fullmatch(r"HTTP/1\.1 (\d{3}) (.*)", lines[0])
        if not m:
            raise ValueError(f"status line {lines[0]!r}")
        headers = {}
        for line in lines[1:]:
            name, colon, value = line.partition(":")
            if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                raise ValueError(f"header line {line!r}")
            headers[name.lower()] = value.strip()
        self.framed = headers.get("transfer-encoding") == "chunked"
        self.native = native.reader_of(self.request, headers, lambda claim, *seen: check(False, claim, *seen))
        if self.native and not self.framed:
            self.native.feed(self.buf)
        return int(m.group(1)), m.group(2), headers

    def chunk(self):
        """The next chunk of a chunked body, b"" for the last one."""
        size = int(self.take_until(b"\r\n"), 16)
        data = self.take(size)
        if self.take(2) != b"\r\n":
            raise ValueError("chunk without its end")
        if self.native:
            self.native.feed(data)
        return data

    def response(self, head_only=False):
        status, reason, headers = self.head()
        if head_only or status in (204, 304) or status < 200:
            return Response(status, reason, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while (c := self.chunk()):
                body += c
            return Response(status, reason, headers, body)
        if "content-length" in headers:
            return Response(status, reason, headers, self.take(int(headers["content-length"])))
        while self.more():
            pass
        body, self.buf = self.buf, b""
        return Response(status, reason, headers, body)


class Stream:
    """A request whose answer is read event by event.

    After headers(): .response (an error answer read whole) or events.  next() gives
    (kind, value): ("data", object), ("done", None), ("comment", text), ("end", None)."""

    def __init__(self, server, path, body, headers=(), rcvbuf=0, wait=WAIT, conn=None):
        self.conn = conn or server.conn(rcvbuf, wait)
        self.conn.send(request("POST", path, body, headers))
        self.response = None
        self.status = None
        self.head = None
        self.events = []   # data objects
        self.times = []    # of their arrival
        self.comments = 0
        self.done = 0      # [DONE] seen
        self.ended = False  # the last chunk came
        self.chunks = []

    def headers(self):
        if self.status is None:
            self.status, _, self.head = self.conn.head()
            if self.head.get("transfer-encoding") != "chunked":
                n = int(self.head.get("content-length", 0))
                self.response = Response(self.status, "", self.head, self.conn.take(n))
                self.ended = True
        return self.status

    @property
    def id(self):
        return self.head["x-tokenring-stream"]

    def next(self):
        self.headers()
        if self.ended:
            return "end", None
        chunk = self.conn.chunk()
        self.chunks.append(chunk)
        if not chunk:
            self.ended = True
            return "end", None
        if chunk.startswith(b":"):
            self.comments += 1
            return "comment", chunk
        if not chunk.startswith(b"data: ") or not chunk.endswith(b"\n\n") or chunk.count(b"\n") != 2:
            raise ValueError(f"not one bare event in one chunk: {chunk!r}")
        data = chunk[6:-2].decode("utf-8")
        if data == "[DONE]":
            self.done += 1
            return "done", None
        v = strict_json(data)
        self.events.append(v)
        self.times.append(time.monotonic())
        return "data", v

    def read(self, n):
        """Up to n data events."""
        want = len(self.events) + n
        while len(self.events) < want and not self.ended:
            self.next()
        return self

    def rest(self):
        while not self.ended:
            self.next()
        return self

    def close(self):
        self.conn.close()

    # -- what it said --

    def text(self, index=0):
        out = ""
        for e in self.events:
            for c in e.get("choices", ()):
                if c["index"] == index:
                    out += c["text"] if "text" in c else c["delta"].get("content", "")
        return out

    def finishes(self, index=0):
        return [c["finish_reason"] for e in self.events for c in e.get("choices", ())
                if c["index"] == index and c["finish_reason"] is not None]

    def usage(self):
        u = [e["usage"] for e in self.events if e.get("usage")]
        return u[-1] if u else None

    def errors(self):
        return [e["error"] for e in self.events if "error" in e]

    def logprobs(self, index=0):
        return [p for e in self.events for c in e.get("choices", ())
                if c["index"] == index and c.get("logprobs") for p in c["logprobs"]["content"]]


def native_events(data):
    """The events of a native SSE body: (id or None, type, object)."""
    out = []
    for block in data.decode("utf-8").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n")
                      if line and not line.startswith(":"))
        if fields:
            out.append((fields.get("id"), fields["event"], strict_json(fields["data"])))
    return out


# ---- requests that say what they want -----------------------------------------------------------

def chat(text, **kw):
    return dict(model=MODEL, messages=[{"role": "user", "content": text}], **kw)


def completion(prompt, **kw):
    return dict(model=MODEL, prompt=prompt, **kw)


def force(token, **kw):
    """Each sampled token is this one, whatever the model."""
    return dict(model=MODEL, logit_bias={str(token): 100}, temperature=0, **kw)


def text_of(response):
    c = response.json["choices"][0]
    return c["text"] if "text" in c else c["message"]["content"]


def is_error(r, status=400, param=None, code=None):
    """The claim ERR400 and its kind: the whole error object, JSON, the right field named."""
    e = r.error
    return (r.status == status and (r.header("content-type") or "").startswith("application/json")
            and set(e) == {"message", "type", "param", "code"} and bool(e["message"])
            and (status != 400 or e["type"] == "invalid_request_error")
            and (param is None or e["param"] == param) and (code is None or e["code"] == code))
