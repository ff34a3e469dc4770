# SPDX-License-Identifier: Apache-2.0
"""A stream that is cut behind any of its events goes on with the next one: whatever was read before and
what is read afterwards is together what an undisturbed reader gets, by number, text, count of tokens and
end.  For every event of streams of every kind and end, in every shape, while they run and when they are
over, at the same frontend and at another one.

TOKENRING_TEST_LONG: 50 streams of the real model as well; how many cuts and how many differences."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
RESUME = ["X-Tokenring-Resume: 1"]
NDJSON = ["Accept: application/x-ndjson"]
EOS = 257  # of the small vocabulary
KEEP = dict(resume_window_s=600, frontends=2)
DIFFERENCES, CUTS = [], []


class Kind:
    """A request whose answer is cut.  `same`: asked again, it is answered with the same tokens."""

    def __init__(self, name, shape, body, same=True):
        self.name, self.shape, self.same = name, shape, same
        self.path = {"chat": CHAT, "completions": COMP}.get(shape, NATIVE)
        self.body = dict(body, stream=True) if self.path != NATIVE else dict(body, on_disconnect="hold")
        self.accept = NDJSON if shape == "ndjson" else []

    def __str__(self):
        return self.name

    def number(self, e):
        """Of an event; None: it takes none."""
        name = e.get("id") if self.path == NATIVE else e["tokenring"]["cursor"]
        return int(name.rsplit(":", 1)[1]) if name else None

    def events(self, block):
        """Those of one chunk, with numbers."""
        lines = [x for x in block.decode("utf-8").split("\n") if x and not x.startswith(":")]
        if self.shape != "ndjson":
            lines = [x[6:] for x in lines if x.startswith("data: ")]
        objects = [strict_json(x) for x in lines if x != "[DONE]"]
        return [(n, e) for e in objects if (n := self.number(e)) is not None]

    @staticmethod
    def text(e):
        if "choices" not in e or not isinstance(e["choices"], list):
            return e.get("text", "")
        return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in e["choices"])


class Part:
    """Events that one reader got, from the one after `after` on."""

    def __init__(self, kind, after=-1, whole=False):
        self.kind, self.after, self.events, self.whole = kind, after, [], whole

    def read(self, conn, upto=None):
        """To the end, or up to an event with this number."""
        while True:
            chunk = conn.chunk()
            if not chunk:
                self.whole = True
                return self
            self.events += self.kind.events(chunk)
            if upto is not None and self.events and self.events[-1][0] >= upto:
                return self

    @property
    def last(self):
        return self.events[-1][0] if self.events else self.after


def begin(server, kind, conn):
    conn.send(request("POST", kind.path, kind.body, RESUME + kind.accept))
    status, _, head = conn.head()
    if status != 200:
        raise RuntimeError(f"{kind}: {status}")
    return head["x-tokenring-stream"]


def ask_for_rest(conn, kind, stream, after, header, upto=None):
    """Status, and the rest (or its beginning) or the answer's text."""
    fmt = {"chat": "chat", "completions": "completions"}.get(kind.shape, "native")
    place = f"&after={after}" if after >= 0 and not header else ""
    more = [f"Last-Event-ID: {stream}:{after}"] if after >= 0 and header else []
    conn.send(request("GET", f"{NATIVE}/{stream}?format={fmt}{place}", None, kind.accept + more))
    status, _, head = conn.head()
    if status == 200:
        return status, Part(kind, after).read(conn, upto)
    return status, conn.take(int(head.get("content-length", 0)))


def resume(conn, kind, stream, after, header=False, upto=None):
    """The rest for a reader who has the events up to `after`.  503: a frontend may be asked for a stream
    that the engine has not seen yet."""
    end = time.monotonic() + WAIT
    while True:
        status, rest = ask_for_rest(conn, kind, stream, after, header, upto)
        if status in (200, 204):
            CUTS.append(1)
            return rest if status == 200 else Part(kind, after, whole=True)
        if status != 503 or time.monotonic() > end:
            raise RuntimeError(f"{kind} after {after}: {status} {rest[:300]}")
        time.sleep(0.01)


def let_go(conn, stream):
    conn.send(request("DELETE", f"{NATIVE}/{stream}"))
    conn.response()


# ---- what an undisturbed reader gets --------------------------------------------------------------

def bare(e):
    """Without what only a first reader is told, and without the names of this one request."""
    e = {k: v for k, v in e.items() if k not in ("id", "logprobs", "tokenring", "stream_id", "created", "request_id")}
    if isinstance(e.get("choices"), list):
        e["choices"] = [{k: v for k, v in c.items() if k != "logprobs"} for c in e["choices"]]
    return e


class Whole:
    """What stands behind each number: the text and the tokens that come after it, the last events.  Every
    part that is looked at must say the same; events that were joined in one part say it for their last."""

    def __init__(self, kind):
        self.kind, self.rest, self.single, self.lp, self.last = kind, {}, {}, {}, None

    def agrees(self, part, after):
        """What is wrong with this part of an answer, None if nothing is."""
        numbers = [n for n, _ in part.events]
        if not part.whole or not numbers:
            return f"it is not whole: {numbers[-3:]}"
        if numbers != sorted(set(numbers)) or numbers[0] <= after:
            return f"numbers {numbers}"
        if self.last is None:
            self.last = numbers[-1]
        if numbers[-1] != self.last:
            return f"the last is {numbers[-1]}, not {self.last}"
        return self._behind(part, after) or self._one_by_one(part, after)

    def _behind(self, part, after):
        text, tokens = "", 0
        for i in range(len(part.events) - 1, -2, -1):
            n = part.events[i][0] if i >= 0 else after
            if (was := self.rest.setdefault(n, (text, tokens))) != (text, tokens):
                return f"behind {n}: {(text, tokens)}, before {was}"
            if i >= 0:
                text = self.kind.text(part.events[i][1]) + text
                tokens += part.events[i][1].get("tokens", 0)
        return None

    def _one_by_one(self, part, after):
        before = after
        for n, e in part.events:
            if n == before + 1 and (was := self.single.setdefault(n, bare(e))) != bare(e):
                return f"number {n}: {bare(e)}, before {was}"
            before = n
        return None


def compare(whole, part, after, how):
    fault = whole.agrees(part, after)
    if fault:
        DIFFERENCES.append(fault)
    return check(not fault, f"{whole.kind} after {after}, {how}", fault)


# ---- cuts -----------------------------------------------------------------------------------------

def frontends(server):
    """A connection to each frontend, for many requests.  One caller at a time: others stand still."""
    return [server.conn_at(pid) for pid in server.processes()["frontend"]]


def cut_when_over(server, kind, conns, whole, numbers=None):
    """One stream, read again from behind each of its events, at one frontend and the other in turn."""
    conn = server.conn()
    stream = begin(server, kind, conn)
    own = Whole(kind)
    first = Part(kind).read(conn)
    compare(own, first, -1, "undisturbed")
    if kind.same:
        compare(whole, first, -1, "undisturbed")
    for i, n in enumerate(numbers or range(-1, own.last)):
        rest = resume(conns[i // 2 % len(conns)], kind, stream, n, header=i % 2)
        for w in (own, whole) if kind.same else (own,):
            compare(w, rest, n, "when it is over")
        if kind.body.get("logprobs"):
            check(all(not lps(e) for _, e in rest.events), f"{kind} after {n}: logprobs are not repeated")
    equal(resume(conns[0], kind, stream, own.last).events, [], f"{kind}: nothing comes after its end")
    let_go(conns[-1], stream)
    conn.close()
    return own.last


def lps(e):
    """Logprob entries of an event; some have none of their own, such as the end of held text."""
    of = e["choices"] if isinstance(e.get("choices"), list) else [e]
    return [x for c in of if c.get("logprobs") for x in c["logprobs"].get("content", c["logprobs"].get("tokens"))]


def cut_while_live(server, kind, conns, whole, numbers):
    """For each number a stream of its own: read up to there, cut, gone on with elsewhere."""
    def one(n, place):
        conn = server.conn()
        stream = begin(server, kind, conn)
        head = Part(kind).read(conn, upto=n)
        (conn.reset if n % 2 else conn.close)()
        own, other = Whole(kind), conns[place]
        after = min(n, head.last)
        rest = resume(other, kind, stream, after, header=n % 2)
        again = resume(other, kind, stream, -1)
        compare(own, again, -1, "again")
        if after == own.last:
            equal(rest.events, [], f"{kind} after {after}: nothing more")
        for w in (own, whole) if kind.same else (own,):
            if after < own.last:
                compare(w, rest, after, "while it runs")
            # What came before the cut, and the rest behind it, are one answer.
            joined = Part(kind)
            joined.events = [x for x in head.events if x[0] <= after] + rest.events
            joined.whole = True
            if head.last == after:
                compare(w, joined, -1, "joined")
        let_go(other, stream)

    def some(place):
        for n in numbers[place::len(conns)]:
            one(n, place)

    for r in together([lambda p=p: some(p) for p in range(len(conns))]):
        check(not isinstance(r, Exception), f"{kind}: cuts while it runs", repr(r))


def cut_in_a_chain(server, kind):
    """One stream, cut behind each event that comes, as long as it runs; each time somewhere."""
    conn, joined = server.conn(), Part(kind)
    stream = begin(server, kind, conn)
    part = Part(kind).read(conn, upto=0)
    while True:
        joined.events += part.events
        if part.whole:
            break
        (conn.reset if joined.last % 2 else conn.close)()
        conn = server.conn()
        part = resume(conn, kind, stream, joined.last, header=joined.last % 3, upto=joined.last + 1)
    joined.whole = True
    own = Whole(kind)
    compare(own, resume(conn, kind, stream, -1), -1, "again")
    compare(own, joined, -1, "in a chain of cuts")
    let_go(conn, stream)
    conn.close()


# ---- kinds ----------------------------------------------------------------------------------------

def words(**kw):
    return dict(model=MODEL, prompt="caf\u00e9 \u732b \U0001f600 x", **kw)


def talk(**kw):
    return chat("caf\u00e9 \u732b \U0001f600", **kw)


def usage(**kw):
    return dict(kw, stream_options={"include_usage": True})


KINDS = [  # the small vocabulary: words, emoji, CJK, characters in two tokens
    Kind("native, length", "native", words(max_tokens=40, seed=5, ignore_eos=True)),
    Kind("ndjson, stop string", "ndjson", words(max_tokens=60, seed=6, ignore_eos=True,
                                               stop=["the", "\u65e5\u672c", " of a", "e e"])),
    Kind("native, held text, logprobs", "native", words(max_tokens=40, seed=7, ignore_eos=True, logprobs=2,
                                                        stop=["\U0001f600\U0001f600\U0001f600", "nothing like it"])),
    Kind("ndjson, echo", "ndjson", words(max_tokens=20, seed=8, echo=True, logprobs=1)),
    Kind("chat, logprobs, usage", "chat", talk(**usage(max_tokens=40, seed=9, logprobs=True, top_logprobs=2))),
    Kind("chat, no token", "chat", talk(max_tokens=0)),
    Kind("chat, tokens without text", "chat", dict(talk(max_tokens=40, logprobs=True), temperature=0,
                                                   logit_bias={"258": 100})),
    Kind("completions, echo, stop", "completions", words(**usage(max_tokens=50, seed=10, echo=True, stop=["a"]))),
    Kind("completions, end of turn", "completions", words(max_tokens=300, seed=11, logprobs=0)),
    Kind("native, deadline", "native", words(max_tokens=4000, ignore_eos=True, timeout_s=0.15), same=False),
    Kind("chat, deadline", "chat", talk(max_tokens=4000, ignore_eos=True, timeout_s=0.15), same=False),
]


def cut_everywhere(server, kinds):
    """All of them: over, then live."""
    def one(kind, conns):
        whole = Whole(kind)
        return kind, whole, cut_when_over(server, kind, conns, whole)
    conns = [frontends(server) for _ in kinds]
    done = together([lambda k=k, c=c: one(k, c) for k, c in zip(kinds, conns)])
    for r in done:
        check(not isinstance(r, Exception), "cuts when it is over", repr(r))
    conns = [c for cs in conns for c in cs]
    for kind, whole, last in (r for r in done if not isinstance(r, Exception)):
        cut_while_live(server, kind, conns, whole, list(range(0, last, 1 if LONG else 3)))
    for c in conns:
        c.close()


@test
def every_cut_of_every_kind():
    with Server(TINY, sim_step_us=1000, **KEEP) as s:
        cut_everywhere(s, KINDS)


@test
def joined_events_are_cut_too():
    with Server(TINY, sim_step_us=1000, coalesce_ms=15, **KEEP) as s:
        cut_everywhere(s, KINDS[:5])


@test
def streams_that_end_with_an_error():
    """The engine dies of them; what was said before can be read again, and so can the error."""
    with Server(TINY, faults=True, **KEEP) as s:
        bad = dict(max_tokens=100, ignore_eos=True, seed=777)
        for kind in (Kind("native, error", "native", words(**bad), same=False),
                     Kind("chat, error", "chat", talk(**bad), same=False)):
            conns = frontends(s)
            s.faults.arm("engine.pass.sequence", "segv", left=ALWAYS, skip=20, match=777)
            check(cut_when_over(s, kind, conns, Whole(kind)) > 5, f"{kind}: it has said something")
            for c in conns:
                c.close()


@test
def streams_are_cut_behind_every_event():
    with Server(TINY, sim_step_us=8000, **KEEP) as s:
        for r in together([lambda k=k: cut_in_a_chain(s, k) for k in KINDS]):
            check(not isinstance(r, Exception), "a chain of cuts", repr(r))


def real_kinds(n):
    """Of a model that was not trained to say anything in particular: what it repeats, and what it dreams."""
    seeds = ["\U0001f680\U0001f525 \u732b\u304c\u597d\u304d \U0001f600\U0001f469\u200d\U0001f680", "Once upon a time",
             "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3002\u4eca\u65e5\u306f", "caf\u00e9 na\u00efve \u20ac5 \u041f\u0440\u0438\u0432\u0435\u0442"]
    more = [{}, {"stop": ["the", ". ", "\n\n\n"]}, {"logprobs": 2}, {"stop": ["not this one, not this"], "logprobs": 1},
            {"echo": True}, {"temperature": 0}]
    out = []
    for i in range(n):
        shape = ("native", "ndjson", "chat", "completions")[i % 4]
        body = dict(words(max_tokens=40 + i % 20, seed=i, temperature=1.2, ignore_eos=bool(i % 5)), **more[i % len(more)])
        body["prompt"] = seeds[i % len(seeds)]
        if shape == "chat":
            body["messages"] = [{"role": "user", "content": "Repeat: " + body.pop("prompt")}]
            body.pop("echo", None)
            if "logprobs" in body:
                body.update(logprobs=True, top_logprobs=2)
        if i % 3 == 0:
            body = usage(**body)
        out.append(Kind(f"{i}: {shape}", shape, body))
    return out


@test
def streams_of_the_real_model():
    if not LONG:
        return
    before = len(CUTS)
    with Server(REAL, **KEEP) as s:
        kinds = real_kinds(50)
        for i in range(0, len(kinds), 5):
            some = kinds[i:i + 5]
            conns = [frontends(s) for _ in some]
            jobs = [lambda k=k, c=c: cut_when_over(s, k, c, Whole(k)) for k, c in zip(some, conns)]
            jobs += [lambda k=k: cut_in_a_chain(s, k) for k in some]
            for r in together(jobs):
                check(not isinstance(r, Exception), "the real model", repr(r))
            for c in (c for cs in conns for c in cs):
                c.close()
    print(f"  {len(kinds)} streams of the real model, {len(CUTS) - before} cuts", flush=True)


@test
def what_was_compared():
    print(f"  {len(CUTS)} cuts, {len(DIFFERENCES)} differences", flush=True)
    equal(DIFFERENCES, [], "no difference")


main()
