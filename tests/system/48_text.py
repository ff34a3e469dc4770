# SPDX-License-Identifier: Apache-2.0
"""Accept: text/plain, on chat, completions and native streams: just the words, and an end that is no
completed one is a cut that shows."""
import shutil

from lib import *
from wire import VERSIONS

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/streams")
TEXT = "Accept: text/plain"
EOS, STOP = 257, 65  # of the small vocabulary: the end of a turn, and "A"


def body(path, **kw):
    return dict(chat("x") if "chat" in path else completion("x"), **kw)


def same(path, **kw):
    """The text of the same request in one piece."""
    b = body("/v1/completions" if "streams" in path else path, **kw)
    return text_of(S.post(PATHS[1] if "streams" in path else path, b))


def row_of(server, rid):
    """Its row of the ledger, when it is known what the client has."""
    until(lambda: (row := server.row(rid)) and row["delivered_tokens"] is not None)
    return server.row(rid)


class Read:
    """One answer: status, head, body, and how it ended (chunk, fin, cut, reset, length)."""

    def __init__(self, path, fields, version="1.1", accept=TEXT, server=None, slow=False, more=()):
        http, own = VERSIONS[version]
        self.rid = f"{random.getrandbits(64):x}"
        self.conn = (server or S).conn(rcvbuf=4096 if slow else 0)
        self.conn.send(request("POST", path, fields, [accept, f"X-Request-Id: {self.rid}", *own, *more], http))
        self.status, self.head, self.body, self.end = 0, {}, b"", None

    def until_text(self):
        self.status, _, self.head = self.conn.head()
        if self.head.get("transfer-encoding") == "chunked":
            self.body += self.conn.chunk()
        else:
            while not self.conn.buf:
                self.conn.more()
        return self

    def rest(self):
        try:
            if not self.status:
                self.status, _, self.head = self.conn.head()
            if "content-length" in self.head:
                self.body, self.end = self.conn.take(int(self.head["content-length"])), "length"
            elif self.head.get("transfer-encoding") == "chunked":
                while (c := self.conn.chunk()):
                    self.body += c
                self.end = "chunk"
            else:
                while self.conn.more():
                    pass
                self.end = "fin"
        except EOFError:
            self.end = "cut"
        except ConnectionResetError:
            self.end = "reset"
        if not self.head.get("content-length"):
            self.body += b"" if self.head.get("transfer-encoding") else self.conn.buf
        self.conn.close()
        return self


def cut_in(version):
    return "cut" if version == "1.1" else "reset"


@test
def the_words_and_nothing_else():
    for path in PATHS:
        for version in VERSIONS:
            fields = dict(seed=5, max_tokens=60, stop=["7"], logit_bias={str(EOS): 8})
            want = same(path, **fields)
            r = Read(path, body(path, **fields), version).rest()
            check((r.status, r.head.get("content-type"), r.body.decode()) == (200, "text/plain; charset=utf-8", want),
                  f"{path} on {version}: the text", r.status, r.head, r.body, want)
            equal(r.end, "chunk" if version == "1.1" else "fin", f"{path} on {version}: a good end")
            row = row_of(S, r.rid)
            check(row["status"] == "completed" and row["delivered_tokens"] == row["completion_tokens"], f"{path}: its row", row)
    r = Read(PATHS[1], body(PATHS[1], echo=True, max_tokens=9, logit_bias={str(EOS): 100})).rest()
    equal(r.body, b"x", "an echoed prompt, and an answer without text")
    r = Read(PATHS[1], force(EOS, prompt="x")).rest()
    equal((r.status, r.body, r.end), (200, b"", "chunk"), "no text at all")


@test
def a_limit_is_a_cut():
    for path in PATHS:
        for version in VERSIONS:
            for n in (0, 1, 60):
                fields = dict(seed=5, max_tokens=n, ignore_eos=True)
                r = Read(path, body(path, **fields), version).rest()
                check((r.status, r.body.decode(), r.end) == (200, same(path, **fields), cut_in(version)),
                      f"{path} on {version}, {n} tokens: all of the text, then a cut", r.status, r.body, r.end)
                row = row_of(S, r.rid)
                check(row["status"] == "incomplete" and row["delivered_tokens"] == row["completion_tokens"] == n, f"{path}: its row", row)


@test
def a_limit_after_more_than_the_kernel_holds():
    """Its end is known while much of it is not written yet; all of it arrives before the cut."""
    text = "".join(chr(97 + i * i % 26) for i in range(7000))
    for version in VERSIONS:
        with Server(TINY, stream_buffer=1024, sim_prefill_us=0) as s:
            r = Read(PATHS[1], completion(text, max_tokens=0, echo=True), version, slow=True, server=s)
            until(lambda: s.metric('streams_ended_total{reason="length"}') == 1 or r.conn.sock.recv(1, socket.MSG_PEEK))
            time.sleep(0.2)
            r.rest()
            equal((r.body.decode() == text, r.end), (True, cut_in(version)), f"{version}: all of it")
            row = row_of(s, r.rid)
            equal((row["reason"], row["delivered_tokens"]), ("length", 0), f"{version}: its row")


@test
def other_ends():
    """DELETE and deadline: a cut in the middle; nobody is told that it is whole."""
    for path in PATHS:
        for version in VERSIONS:
            r = Read(path, body(path, max_tokens=4000, ignore_eos=True), version).until_text()
            equal(S.ask("DELETE", f"/v1/streams/{r.head['x-tokenring-stream']}", None).status, 200, "DELETE")
            equal(r.rest().end, cut_in(version), f"{path} on {version}: cancelled")
            row = row_of(S, r.rid)
            check(row["reason"] == "cancelled" and row["delivered_tokens"] == row["completion_tokens"], f"{path}: its row", row)
            r = Read(path, body(path, max_tokens=4000, ignore_eos=True, timeout_s=0.3), version).until_text().rest()
            equal((r.end, row_of(S, r.rid)["reason"]), (cut_in(version), "deadline_exceeded"), f"{path} on {version}: deadline")


@test
def before_the_first_byte_an_error_is_a_status():
    for path in PATHS:
        r = Read(path, body(path, max_tokens=-1)).rest()
        check(r.status == 400 and json.loads(r.body)["error"]["param"] == "max_tokens", f"{path}: a bad value", r.status, r.body)
        for field, value, name in (("n", 2, "n"), ("logprobs", True if "chat" in path else 1, "logprobs"),
                                   ("stream_options", {"include_usage": True}, "stream_options.include_usage")):
            r = Read(path, body(path, stream=True, **{field: value})).rest()
            check(r.status == 400 and json.loads(r.body)["error"]["param"] == name, f"{path}: no room for {field}", r.status, r.body)
    r = Read(PATHS[1], dict(completion(["x", "y"]))).rest()
    equal((r.status, json.loads(r.body)["error"]["param"]), (400, "prompt"), "two prompts")
    r = Read(PATHS[2], dict(completion("x"), on_disconnect="hold")).rest()
    equal((r.status, json.loads(r.body)["error"]["param"]), (400, "on_disconnect"), "held")
    r = Read(PATHS[0], dict(chat("x"), stream=True), more=["X-Tokenring-Resume: 1"]).rest()
    equal((r.status, json.loads(r.body)["error"]["param"]), (400, "X-Tokenring-Resume"), "held by the header")
    # The same when it is found later: the request waits, and its time runs out.
    with Server(TINY, max_seqs=1) as s:
        first = Read(PATHS[1], dict(completion("x"), max_tokens=4000, ignore_eos=True), server=s).until_text()
        for path in PATHS:
            r = Read(path, body(path, timeout_s=0.3), server=s).rest()
            check(r.status == 504 and json.loads(r.body)["error"]["code"] == "deadline_exceeded", f"{path}: in the queue", r.status, r.body)
            equal(row_of(s, r.rid)["reason"], "deadline_exceeded", f"{path}: its row")
        first.conn.close()


@test
def who_asks_for_it():
    """Only who names it first."""
    for accept, plain in (("text/plain", True), ("TEXT/Plain; charset=utf-8", True), ("text/plain, */*;q=0.1", True),
                          ("application/json, text/plain, */*", False), ("*/*", False), ("text/*", False), ("text/plainer", False),
                          ("text/event-stream", False)):
        r = Read(PATHS[0], body(PATHS[0], max_tokens=1, stream=False), accept=f"Accept: {accept}").rest()
        equal(r.head.get("content-type", "").startswith("text/plain"), plain, accept)
    with Server(TINY, on_disconnect="hold") as s:
        r = Read(PATHS[2], body(PATHS[2], max_tokens=3, ignore_eos=True), server=s).rest()
        equal((r.status, r.end), (200, "cut"), "a default to hold says nothing about it")


@test
def who_leaves_is_gone():
    """With nothing to write there is no other way to see it: in the queue, and while it runs; a client that
    only closes its sending side as well."""
    with Server(TINY, max_seqs=1, heartbeat_s=1) as s:
        for how in ("close", "shut", "reset"):
            first = Read(PATHS[1], dict(completion("x"), max_tokens=4000, ignore_eos=True), server=s).until_text()
            waits = Read(PATHS[1], dict(completion("x"), max_tokens=4000), server=s)
            until(lambda: s.metric("requests_waiting") == 1)
            time.sleep(1.2)  # a heartbeat has nothing to write
            for r in (waits, first):
                r.conn.sock.shutdown(socket.SHUT_WR) if how == "shut" else getattr(r.conn, how)()
                equal(row_of(s, r.rid)["reason"], "client_disconnected", f"{how}: its row")
            check(s.idle(), f"{how}: nothing runs any more")


@test
def curl_says_so():
    if not check(shutil.which("curl"), "there is curl"):
        return
    ask = ["curl", "-sN", f"http://127.0.0.1:{S.port}/v1/completions", "-H", "Content-Type: application/json", "-H", TEXT, "-d"]
    p = subprocess.run([*ask, json.dumps(force(EOS, prompt="x", echo=True))], stdout=subprocess.PIPE, check=False)
    equal((p.returncode, p.stdout), (0, b"x"), "a completed answer")
    p = subprocess.run([*ask, json.dumps(completion("x", max_tokens=3, ignore_eos=True))], stdout=subprocess.PIPE, check=False)
    equal(p.returncode, 18, "one that is cut off")
    p = subprocess.run([*ask, json.dumps(completion("x", max_tokens=3, ignore_eos=True)), "--http1.0"], stdout=subprocess.PIPE, check=False)
    check(p.returncode in (18, 56), "the same on HTTP/1.0", p.returncode)
    p = subprocess.run([*ask, json.dumps(completion("x", n=0)), "--fail"], stdout=subprocess.PIPE, check=False)
    equal(p.returncode, 22, "a refusal")
    h2 = "--http2-prior-knowledge"
    p = subprocess.run([*ask, json.dumps(force(EOS, prompt="x", echo=True)), h2], stdout=subprocess.PIPE, check=False)
    equal((p.returncode, p.stdout), (0, b"x"), "HTTP/2: a completed answer")
    for n in (0, 3):
        fields = completion("x", max_tokens=n, ignore_eos=True, seed=5)
        p = subprocess.run([*ask, json.dumps(fields), h2], stdout=subprocess.PIPE, check=False)
        # curl forgets what it has when the cut comes with it, as it does on a busy machine.
        check(p.returncode == 92 and text_of(S.post(PATHS[1], fields)).startswith(p.stdout.decode()),
              f"HTTP/2: one that is cut off after {n} tokens", p.returncode, p.stdout)


S = Server(TINY)
main()
