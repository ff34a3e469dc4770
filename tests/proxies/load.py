# SPDX-License-Identifier: Apache-2.0
"""Clients without a pause that count what they get, replicas that come and go, and what ledgers say of it."""
from passing import *
from database import quiet_port

CLIENTS = 40
TRIES = 100  # a tenth of a second apart


# ---- a replica ----------------------------------------------------------------------------------

class Replica:
    """A place at which a service runs, is stopped and started again: its port and its spool stay."""

    def __init__(self, name, grace_s, ledger=None, flags=TINY):
        """ledger: an address of PostgreSQL; else a file of its own."""
        place = tempfile.mkdtemp(prefix="tokenring-test-")
        self.name, self.port = name, quiet_port()
        self.ledger = ledger or os.path.join(place, "usage.db")
        self.flags = dict(flags, ledger=self.ledger, ledger_spool=os.path.join(place, "spool"), max_seqs=64,
                          drain_grace_s=grace_s)
        self.start()

    def start(self):
        self.server = Server(self.flags, ledger=False, port=self.port)

    def restart(self):
        """Seconds from SIGTERM to the end, and from there until it is ready again."""
        begin = time.monotonic()
        self.server.child.send_signal(signal.SIGTERM)
        equal(self.server.wait_exit(), 0, f"{self.name}: a drain ends with status 0")
        gone = time.monotonic()
        self.server.stop()
        self.start()
        return gone - begin, time.monotonic() - gone

    def kill(self):
        self.server.kill_all()
        self.server.stop()
        self.start()


# ---- the clients --------------------------------------------------------------------------------

class Early(Exception):
    """Nothing of an answer has come: it may be asked again."""


class Load:
    """Clients that ask one thing after the other, most of it streamed, and count what they get."""

    def __init__(self, port, name):
        self.port, self.name, self.over = port, name, False
        self.lock = threading.Lock()
        self.answered = {}  # request id: completion tokens of what came to its end
        self.broken = {}    # request id: what was seen of a stream that did not
        self.early = {}     # request id of a try that gave nothing: why
        self.waited = 0.0   # the longest time from the first try to the head of a stream
        self.threads = [threading.Thread(target=self._client, args=(i,), daemon=True) for i in range(CLIENTS)]
        for t in self.threads:
            t.start()

    def _client(self, who):
        rng, n, conn = random.Random(who), 0, None
        while not self.over:
            n += 1
            body = {"model": MODEL, "prompt": "".join(rng.choice("abc ") for _ in range(rng.randrange(1, 99))),
                    "max_tokens": rng.randrange(1, 400), "ignore_eos": True, "stream": n % 4 > 0}
            if body["stream"]:
                body["stream_options"] = {"include_usage": True}
            conn = self._until_answered(f"{self.name}-{who}-{n}", body, conn)
            if conn and n % 5 == 0:  # most requests come on a connection that was used before
                conn.close()
                conn = None

    def _until_answered(self, name, body, conn):
        """Asks until something comes; the connection, if it can be used again."""
        begin = time.monotonic()
        for k in range(TRIES):
            try:
                conn = conn or Conn(self.port)
                tokens = self._ask(conn, f"{name}-{k}", body, begin)
                with self.lock:
                    self.answered[f"{name}-{k}"] = tokens
                return conn
            except (Early, OSError, EOFError, ValueError) as e:
                if conn:
                    conn.close()
                conn = None
                with self.lock:
                    (self.early if isinstance(e, Early) else self.broken)[f"{name}-{k}"] = repr(e)
                if not isinstance(e, Early):
                    return None
            time.sleep(0.1)
        self.broken[name] = f"{TRIES} tries"
        return None

    def _ask(self, conn, name, body, begin):
        """The completion tokens of a whole answer."""
        try:
            conn.send(request("POST", COMP, body, [f"X-Request-Id: {name}"]))
            status, _, headers = conn.head()
        except (OSError, EOFError) as e:
            raise Early(repr(e)) from e
        if body["stream"]:
            with self.lock:
                self.waited = max(self.waited, time.monotonic() - begin)
        data = b""
        if headers.get("transfer-encoding") == "chunked":
            while (part := conn.chunk()):
                data += part
        else:
            data = conn.take(int(headers["content-length"]))
        if status in (429, 502, 503, 504):
            raise Early(f"{status} {data[:150]!r}")
        if status != 200:
            raise ValueError(f"{status} {data[:300]!r}")
        if not body["stream"]:
            return json.loads(data)["usage"]["completion_tokens"]
        events = data.split(b"\n\n")
        said = [json.loads(e[6:]) for e in events if e.startswith(b"data: {")]
        if events[-2:] != [b"data: [DONE]", b""] or any("error" in e for e in said):
            raise ValueError(f"no good end: {data[-300:]!r}")
        tokens = said[-1]["usage"]["completion_tokens"]
        if tokens != body["max_tokens"]:
            raise ValueError(f"{tokens} tokens of {body['max_tokens']}")
        return tokens

    def more(self, n):
        want = len(self.answered) + n
        return check(until(lambda: len(self.answered) >= want), f"{self.name}: requests go on and end", len(self.answered), want)

    def end(self):
        self.over = True
        for t in self.threads:
            t.join(3 * WAIT)
        check(not any(t.is_alive() for t in self.threads), f"{self.name}: every client comes to an end")


# ---- the sums -----------------------------------------------------------------------------------

def exact(find, load, cut=False):
    """The ledgers have what the clients have; find() gives the rows [(request id, stream id, status, completion
    tokens)].  cut: tries that were cut may have a row or not: they were admitted or not, and nobody saw which.
    Returns the tokens of all rows, and how many rows are of streams that were cut."""
    until(lambda: len(find()) >= len(load.answered))
    rows = find()
    check(len(rows) == len({r[0] for r in rows}) == len({r[1] for r in rows}), f"{load.name}: nothing is there twice", len(rows))
    got = {name: tokens for name, _, _, tokens in rows if name in load.answered}
    differ = {name: (got.get(name), n) for name, n in load.answered.items() if got.get(name) != n}
    check(not differ, f"{load.name}: every answer has its row, with the tokens its client counted", len(differ), list(differ.items())[:3])
    more = [r for r in rows if r[0] not in load.answered]
    strange = [r for r in more if not cut or r[0] not in {**load.broken, **load.early} or r[2] == "completed"]
    check(not strange, f"{load.name}: every other row is of a stream that was cut", len(strange), strange[:3])
    return sum(r[3] for r in rows), len(more)


def reasons(load):
    """What was seen of tries that gave nothing, for a look."""
    return sorted({re.sub(r"\d+", "N", v)[:150] for v in [*load.early.values(), *load.broken.values()]})
