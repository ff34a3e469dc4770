# SPDX-License-Identifier: Apache-2.0
"""A service under load and random faults for a while: nothing grows, nothing is lost, nobody is told
wrong text.

Rounds of load and faults, each followed by a pause in which everything must be back: KV blocks, places
in the queue, descriptors, memory.  TOKENRING_SOAK_S: how long (default 20); TOKENRING_SOAK_SEED: which
faults (printed, so that a run can be repeated)."""
import contextlib
import os
import random
import signal
import socket
import threading
import time

from lib import (SANITIZED, SIM, Server, Stream, chat, check, completion, equal, fd_count, force, main,
                 request, rss, test, title, until, zombies)

SECONDS = float(os.environ.get("TOKENRING_SOAK_S", "20"))
SEED = int(os.environ.get("TOKENRING_SOAK_SEED", random.randrange(1 << 30)))
ROUND_S = min(20.0, SECONDS / 4)
SEQS, QUEUE = 6, 6
GROWTH = 8 << 20  # of one process between two pauses: heaps settle, leaks go on
LENGTH = 120


class Tally:
    """What clients saw; one lock, since all of them write."""

    def __init__(self):
        self.lock = threading.Lock()
        self.kinds = {}
        self.wrong = []
        self.finished = set()  # request ids whose end was seen

    def add(self, kind, outcome, request_id=None):
        with self.lock:
            self.kinds[kind, outcome] = self.kinds.get((kind, outcome), 0) + 1
            if request_id and outcome == "whole":
                self.finished.add(request_id)

    def bad(self, what):
        with self.lock:
            self.wrong.append(what)


# ---- clients: each returns its outcome ----------------------------------------------------------

def body(n=LENGTH, **kw):
    return force(369, prompt="x", max_tokens=n, stream=True,
                 stream_options={"include_usage": True}, **kw)


def judge(s, tally, n=LENGTH):
    """Text is right as far as it goes; a normal end is a whole answer."""
    text = s.text()
    if text != "ab" * (len(text) // 2) + "ab"[:len(text) % 2]:
        tally.bad(f"text {text[-80:]!r}")
    if s.finishes():
        usage = s.usage()
        if text != "ab" * n or s.done != 1 or not usage or usage["completion_tokens"] != n:
            tally.bad(f"a finished stream is not whole: {len(text)} {s.done} {usage}")
        return "whole"
    return "told" if s.errors() else "cut"


def reader(server, rng, tally, rid):
    s = Stream(server, "/v1/completions", body(), [f"X-Request-Id: {rid}"])
    try:
        if s.headers() != 200:
            return f"refused {s.status}"
        with contextlib.suppress(EOFError, ConnectionError):
            s.rest()
        return judge(s, tally)
    finally:
        s.close()


def leaver(server, rng, tally, rid):
    s = Stream(server, "/v1/completions", body(2000), [f"X-Request-Id: {rid}"])
    if s.headers() == 200:
        s.read(rng.randrange(20))
    rng.choice([s.close, s.conn.reset])()
    return "left"


def sleeper(server, rng, tally, rid):
    """Reads nothing for a while, then all or not at all."""
    s = Stream(server, "/v1/completions", body(1500, logprobs=5), [f"X-Request-Id: {rid}"],
               rcvbuf=4096)
    try:
        time.sleep(rng.random() * 2)
        if rng.random() < 0.5:
            return "left"
        if s.headers() != 200:
            return f"refused {s.status}"
        with contextlib.suppress(EOFError, ConnectionError):
            s.rest()
        return judge(s, tally, 1500)
    finally:
        s.close()


def whole(server, rng, tally, rid):
    r = server.post("/v1/chat/completions", chat("Hi", max_tokens=40, n=rng.choice([1, 3])),
                    headers=[f"X-Request-Id: {rid}"])
    return "whole" if r.status == 200 else f"refused {r.status}"


def long_prompt(server, rng, tally, rid):
    r = server.post("/v1/completions", completion([81] * rng.randrange(1000, 6000), max_tokens=2),
                    headers=[f"X-Request-Id: {rid}"])
    return "whole" if r.status == 200 else f"refused {r.status}"


def vandal(server, rng, tally, rid):
    with contextlib.closing(server.conn()) as c:
        with contextlib.suppress(OSError):
            c.send(rng.choice([bytes(rng.randrange(256) for _ in range(300)),
                               b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{",
                               request("POST", "/v1/completions", b'{"prompt":[[[['),
                               request("GET", "/" + "a" * 9000), b"GET / HTTP/1.1\r\n"]))
            c.sock.shutdown(socket.SHUT_WR)
            c.drain()
    return "answered"


CLIENTS = [reader] * 4 + [leaver] * 2 + [sleeper, whole, whole, long_prompt, vandal]


def client(server, number, stop, tally):
    rng, n = random.Random(SEED * 1000 + number), 0
    while not stop.is_set():
        kind = rng.choice(CLIENTS)
        rid = f"soak-{number}-{n}-{time.monotonic_ns()}"
        n += 1
        try:
            tally.add(kind.__name__, kind(server, rng, tally, rid), rid)
        except TimeoutError:
            tally.bad(f"{kind.__name__}: nothing came for a minute")
        except (OSError, EOFError):
            tally.add(kind.__name__, "cut")
            time.sleep(0.05)
        except ValueError as e:
            tally.bad(f"{kind.__name__}: {e}")


# ---- faults -------------------------------------------------------------------------------------

def youngest(server):
    return server.processes()["frontend"][-1:]


def kill_frontend(server, rng):
    for pid in youngest(server):
        os.kill(pid, signal.SIGKILL)


def stop_one(server, rng):
    """Any process stands still for a moment."""
    pids = [p for ps in server.processes().values() for p in ps]
    pid = rng.choice(pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.random())
        os.kill(pid, signal.SIGCONT)


def kill_ledger(server, rng):
    for pid in server.processes()["ledger"]:
        os.kill(pid, signal.SIGKILL)


def kill_engine(server, rng):
    for pid in server.processes()["engine"]:
        os.kill(pid, signal.SIGKILL)


def replace(server, rng):
    os.kill(server.pid, signal.SIGHUP)


def resize(server, rng):
    os.kill(server.pid, signal.SIGTTIN)
    time.sleep(rng.random())
    os.kill(server.pid, signal.SIGTTOU)


OFTEN = [kill_frontend, stop_one, stop_one, kill_ledger]
SELDOM = [kill_engine, replace, resize]


def disturb(server, rng, seconds, seldom):
    """Faults of one round.  The seldom ones make new processes of all: the rounds between let old ones
    show whether they grow."""
    end = time.monotonic() + seconds
    if seldom:
        rng.choice(SELDOM)(server, rng)
    while time.monotonic() < end:
        time.sleep(min(0.3 + rng.random(), max(0.0, end - time.monotonic())))
        with contextlib.suppress(ProcessLookupError):
            rng.choice(OFTEN)(server, rng)


# ---- the pauses ---------------------------------------------------------------------------------

def all_serve(server):
    p = server.processes()
    with contextlib.suppress(OSError, EOFError, ValueError):
        return (len(p["engine"]) == 1 and len(p["ledger"]) == 1 and len(p["frontend"]) == 2 and
                server.get("/health").status == 200)
    return False


def places(server):
    """All places can be taken at once: none is lost.  What finds none is told so, and tried again a
    few times, since a slot is free only when its record is written and its socket is done with."""
    for _ in range(20):
        streams = [Stream(server, "/v1/completions", body(60)) for _ in range(SEQS + QUEUE)]
        got = [s.headers() for s in streams]
        for s in streams:
            with contextlib.suppress(EOFError, ConnectionError):
                s.rest()
            s.close()
        if got == [200] * len(got):
            return True
        time.sleep(0.3)
    return got


def sample(server):
    return {p: (title(p), rss(p), fd_count(p)) for p in server.all_pids()}


def grown(before, after):
    """Processes that live in both samples and have more than they had."""
    out = []
    for p, (name, bytes_, fds) in after.items():
        if p in before and (fds > before[p][2] + 1 or
                            (bytes_ > before[p][1] + GROWTH and not SANITIZED)):
            out.append((name, before[p][1:], (bytes_, fds)))
    return out


def pause(server, seen, number):
    check(until(lambda: all_serve(server)), f"round {number}: everybody serves again",
          server.processes(), server.log()[-1500:])
    check(server.idle(), f"round {number}: no request is left and all KV blocks are free",
          server.metrics())
    equal(places(server), True, f"round {number}: every place in batch and queue can be taken")
    server.idle()
    check(until(lambda: not zombies(server.pid)), f"round {number}: no zombie", zombies(server.pid))
    until(lambda: not grown(seen, sample(server)))
    now = sample(server)
    equal(grown(seen, now), [], f"round {number}: no process has grown")
    for p, first in now.items():
        seen.setdefault(p, first)


@test
def soak():
    rng = random.Random(SEED)
    print(f"  seed {SEED}, {SECONDS:.0f} s")
    tally, seen = Tally(), {}
    with Server(SIM, frontends=2, max_seqs=SEQS, max_queue=QUEUE, write_deadline_s=3,
                sim_step_us=1000, sim_prefill_us=5, heartbeat_s=1) as s:
        end, number = time.monotonic() + SECONDS, 0
        while time.monotonic() < end:
            stop = threading.Event()
            clients = [threading.Thread(target=client, args=(s, number * 100 + i, stop, tally),
                                        daemon=True) for i in range(10)]
            for c in clients:
                c.start()
            disturb(s, rng, ROUND_S, number % 4 == 1)
            stop.set()
            for c in clients:
                c.join(120)
            check(not any(c.is_alive() for c in clients), f"round {number}: every client came to an end")
            pause(s, seen, number)
            number += 1
        equal(tally.wrong[:5], [], "no client was told anything wrong, and none waited in vain")
        check(tally.kinds.get(("reader", "whole"), 0) > 0, "some streams were whole", tally.kinds)
        check(s.metric("streams_without_terminal_total") == 0, "no stream ended without its event")
        rows = [r["request_id"] for r in s.rows()]
        equal(len(rows), len(set(rows)), "one row for each request")
        until(lambda: tally.finished <= {r["request_id"] for r in s.rows()})
        missing = tally.finished - {r["request_id"] for r in s.rows()}
        equal(sorted(missing)[:5], [], "every answer whose end was seen has its row")
        for (kind, outcome), n in sorted(tally.kinds.items()):
            print(f"    {kind:12} {outcome:12} {n}")
        s.pids = s.processes()


main()
