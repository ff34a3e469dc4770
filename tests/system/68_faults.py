# SPDX-License-Identifier: Apache-2.0
"""Faults at named places: a process is killed, or stands still, at a point of base/fault.def while a
request is in a known phase.  What must survive is then as in an undisturbed run: text, end, usage, one
row, and nothing is left behind: KV blocks, slots, descriptors, zombies.

Four tables make the matrix.  A row more in one of them is a dimension more in all cells:
  KINDS    what a client asks for: a dialect, a transport, a tool call
  SHAPES   what its request is like: plain, a long prompt, a stop string
  PHASES   how far the target is when the fault comes, and how it is kept there
  CELLS    which points can be reached in which phases
One run takes each point once, with phase, action and kind in turn; TOKENRING_TEST_LONG takes all of
them.  CELL: a word that the names of the cells to run contain."""
import itertools
import queue

import fault_carriers as carriers
import oip
from fault_carriers import Left
from lib import *
from lib import _servers

COMP, CHAT, NATIVE = "/v1/completions", "/v1/chat/completions", "/v1/streams"
RESPONSES, MESSAGES, INFER = "/v1/responses", "/v1/messages", oip.INFER
FORMAT = {CHAT: "?format=chat", MESSAGES: "?format=anthropic"}
KILLS, STOP = ("kill", "segv", "abort"), ("stop",)
SERVICES = 6  # at the same time: a cell mostly waits
BESIDE = 11   # requests beside the target, of kinds in turn; TOKENRING_TEST_LONG: one of every other kind
FRONTENDS = 2
FLAGS = dict(TINY, sim_step_us=1000, sim_prefill_us=50, prefill_chunk=64, max_seqs=4, max_queue=24,
             frontends=FRONTENDS, ledger_wait_ms=60000, grpc_port=0, tool_format="hermes")

# ---- what clients ask for and how they read it --------------------------------------------------


class Answer:
    """What a client has of an answer so far."""

    def __init__(self):
        self.text, self.ends, self.usage, self.numbers, self.whole = {}, {}, None, [], False

    def add(self, index, text):
        self.text[index] = self.text.get(index, "") + text

    def said(self):
        u = self.usage or {}
        return {"text": self.text, "ends": self.ends,
                "usage": (u.get("prompt_tokens"), u.get("completion_tokens"))}


def take_native(a, v):
    if "id" in v:
        a.numbers.append(int(v["id"].rpartition(":")[2]))
    kind = v["type"]
    if kind == "output_text.delta":
        a.add(v["index"], v["text"])
    elif kind == "usage":
        a.usage = v["usage"]
    elif kind in ("response.completed", "response.incomplete"):
        a.ends[0] = v["finish_reason"]
    elif kind in ("response.cancelled", "error"):
        a.ends["error"] = v.get("reason") or v.get("code")


def take_openai(a, v):
    if "tokenring" in v:
        a.numbers.append(int(v["tokenring"]["cursor"].rpartition(":")[2]))
    if "error" in v:
        a.ends["error"] = v["error"]["code"]
    for c in v.get("choices", ()):
        text = c.get("text") or c.get("delta", c.get("message", {})).get("content") or ""
        a.add(c["index"], text)
        if c["finish_reason"]:
            a.ends[c["index"]] = c["finish_reason"]
    a.usage = v.get("usage") or a.usage


def take_calls(a, v):
    take_openai(a, v)
    for c in v.get("choices", ()):
        for k in c.get("delta", c.get("message", {})).get("tool_calls", ()):
            a.add(c["index"], f"{k['function'].get('name', '')}{k['function']['arguments']}")


def take_responses(a, v):
    """An event, or the object of an answer in one piece; all that repeat the text say the same."""
    if "sequence_number" in v:
        a.numbers.append(v["sequence_number"])
    kind, r = v.get("type"), v if v.get("object") == "response" else v.get("response")
    if kind == "response.output_text.delta":
        a.add(0, v["delta"])
    elif kind == "error":
        a.ends["error"] = v["code"]
    if r and r["usage"]:
        a.usage = {"prompt_tokens": r["usage"]["input_tokens"], "completion_tokens": r["usage"]["output_tokens"]}
    if r and r["output"]:
        text = r["output"][0]["content"][0]["text"]
        if not kind:
            a.add(0, text)
        a.ends[0] = {"incomplete": "length", "completed": "stop"}[r["status"]]
        if text != a.text.get(0, ""):
            raise ValueError(f"the object says {text!r}, the deltas {a.text!r}")


def take_anthropic(a, v):
    if "tokenring" in v:
        a.numbers.append(int(v["tokenring"]["cursor"].rpartition(":")[2]))
    kind = v["type"]
    if kind == "content_block_delta":
        a.add(0, v["delta"]["text"])
    elif kind == "message":
        a.add(0, "".join(b["text"] for b in v["content"]))
    elif kind == "error":
        a.ends["error"] = v["error"]["details"]["error_code"]
    if kind in ("message", "message_delta"):
        end, u = v.get("delta", v), v["usage"]
        a.ends[0] = [end["stop_reason"], end["stop_sequence"]]
        a.usage = {"prompt_tokens": u["input_tokens"] + u["cache_read_input_tokens"],
                   "completion_tokens": u["output_tokens"]}


def take_oip(a, v):
    a.add(0, v.text or "")
    if v.error:
        a.ends["error"] = v.parameters["error_code"]
    elif v.last in (True, None):
        a.usage = v.outputs
        a.ends[0] = v.outputs["finish_reason"]


# How the events of a streamed answer come: what `take` gets of each, from the pieces of the carrier.

def events(pieces, mark):
    """The text between two marks."""
    buf = b""
    for piece in pieces:
        buf += piece
        while mark in buf:
            event, buf = buf.split(mark, 1)
            yield event.decode("utf-8")


def sse(pieces):
    for event in events(pieces, b"\n\n"):
        data = [line[6:] for line in event.split("\n") if line.startswith("data: ")]
        if data:
            yield data[0] if data[0] == "[DONE]" else strict_json(data[0])


def ndjson(pieces):
    yield from map(strict_json, events(pieces, b"\n"))


def messages(pieces):
    yield from pieces


def answers(pieces):
    yield from map(oip.stream_answer, pieces)


class Kind:
    """A row of KINDS.  `frames` reads the events of a streamed answer (None: it comes in one piece),
    `take` understands one, `resume` is what a GET of a stream that was cut needs (None: it is lost),
    `carrier` is one of fault_carriers.py."""

    def __init__(self, name, path, take, frames=None, resume=None, headers=(), carrier=carriers.Http1, **body):
        self.carrier = carrier
        self.early = frames and carrier.early  # its head is there before its first token
        self.name, self.path, self.take, self.frames = name, path, take, frames
        self.resume, self.headers, self.body = resume, list(headers), body
        self.seed = 7000 + sum(name.encode())

    def __repr__(self):
        return self.name

    def request(self, shape, stop=None):
        body = dict(self.body, model=MODEL, seed=self.seed, ignore_eos=True, **SHAPES[shape])
        prompt = body.pop("prompt")
        if self.path == RESPONSES:
            body["max_output_tokens"] = body.pop("max_tokens")
        body.update({"messages": [{"role": "user", "content": prompt}]} if self.path in (CHAT, MESSAGES) else
                    {"input" if self.path == RESPONSES else "prompt": prompt})
        if body.pop("stops", False):
            body["stop_sequences" if self.path == MESSAGES else "stop"] = [stop]
        return body


GREEDY, SEEDED = {"temperature": 0}, {"temperature": 0.9}
# One call after the other, each with whatever arguments, for as long as it may.
CALLS = {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}
GBNF = "root ::= [a-z ]+ rest\nrest ::= [^0-9]*\n"
NUMBERS = {"type": "array", "minItems": 2000, "items": {"type": "integer", "minimum": 100}}
NDJSON = ["Accept: application/x-ndjson"]
KINDS = [
    Kind("native", NATIVE, take_native, sse, resume=[], on_disconnect="hold", **SEEDED),
    Kind("native with a grammar", NATIVE, take_native, sse, resume=[], on_disconnect="hold", grammar=GBNF, **SEEDED),
    Kind("native ndjson", NATIVE, take_native, ndjson, resume=NDJSON, headers=NDJSON,
         on_disconnect="hold", **GREEDY),
    Kind("chat resumable", CHAT, take_openai, sse, resume=[], headers=["X-Tokenring-Resume: 1"],
         **USAGE, **SEEDED),
    Kind("chat", CHAT, take_openai, sse, **USAGE, **GREEDY),
    Kind("completion", COMP, take_openai, **SEEDED),
    Kind("completions of two", COMP, take_openai, sse, n=2, **USAGE, **SEEDED),
    Kind("responses in background", RESPONSES, take_responses, sse, resume=[], stream=True, background=True, **SEEDED),
    Kind("responses", RESPONSES, take_responses, sse, stream=True, **GREEDY),
    Kind("responses in one piece", RESPONSES, take_responses, **SEEDED),
    Kind("chat with a schema", CHAT, take_openai, sse, guided_json=NUMBERS, **USAGE, **SEEDED),
    Kind("calls", CHAT, take_calls, sse, resume=[], headers=["X-Tokenring-Resume: 1"], **CALLS, **USAGE, **SEEDED),
    Kind("calls in one piece", CHAT, take_calls, **CALLS, **GREEDY),
    Kind("chat in one piece", CHAT, take_openai, logprobs=True, **GREEDY),
    Kind("messages resumable", MESSAGES, take_anthropic, sse, resume=[], headers=["X-Tokenring-Resume: 1"],
         stream=True, **SEEDED),
    Kind("messages", MESSAGES, take_anthropic, sse, stream=True, **GREEDY),
    Kind("WebSocket resumable", NATIVE, take_native, messages, resume=[], carrier=carriers.Socket,
         on_disconnect="hold", **SEEDED),
    Kind("WebSocket", NATIVE, take_native, messages, carrier=carriers.Socket, **GREEDY),
    Kind("HTTP/2 resumable", NATIVE, take_native, sse, resume=[], carrier=carriers.Http2,
         on_disconnect="hold", **SEEDED),
    Kind("HTTP/2", CHAT, take_openai, sse, carrier=carriers.Http2, **USAGE, **GREEDY),
    Kind("HTTP/2 in one piece", COMP, take_openai, carrier=carriers.Http2, **SEEDED),
    Kind("gRPC", INFER + "ModelStreamInfer", take_oip, answers, carrier=carriers.Grpc, **SEEDED),
    Kind("gRPC in one piece", INFER + "ModelInfer", take_oip, carrier=carriers.Grpc, **GREEDY),
]
SHAPES = {
    "plain": {"prompt": "The sea ", "max_tokens": 60},
    "long prompt": {"prompt": "The sea and the wind. " * 20, "max_tokens": 20},
    "stop string": {"prompt": "The sea ", "max_tokens": 60, "stops": True},
    "endless": {"prompt": "The sea ", "max_tokens": 4000},
}


class Reader:
    """One request of a cell, read in a thread of its own.  It leaves when told to (`leave`); a stream
    that can be resumed it then, or when it was cut, takes up again once it may (`back`)."""

    def __init__(self, s, kind, shape, rid, stop=None, comes_back=True):
        self.s, self.kind, self.shape, self.rid = s, kind, shape, rid
        self.comes_back = comes_back and kind.resume is not None
        self.answer, self.id, self.cut, self.resumed, self.odd = Answer(), None, False, 0, None
        self.headers, self.leave = threading.Event(), threading.Event()
        self.left, self.back = threading.Event(), threading.Event()
        self.home, self.at = None, None  # the frontend that had it; the one to come back to, once
        self.wire = kind.carrier(s)
        self.port = self.wire.port
        self.wire.ask(kind, kind.request(shape, stop), rid)
        self.rid = self.wire.row_of(rid)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self._try(self._begin)
            while self.comes_back and self.id and not self.answer.whole:
                self.back.wait(WAIT)
                self._try(self._resume)
            if self.comes_back and self.id:
                until(self._let_go)
        except Exception as e:  # told by the cell, with all else that it saw
            self.odd = repr(e)
        try:
            self.wire.close()
        except ValueError as e:
            self.odd = self.odd or repr(e)
        self.left.set()
        self.headers.set()

    def _let_go(self):
        """Nobody comes back for it.  Whoever takes the connection may be killed."""
        with contextlib.suppress(EOFError, ConnectionResetError, BrokenPipeError):
            return self.s.ask("DELETE", f"{NATIVE}/{self.id}", None).status in (200, 404, 410)

    def _try(self, what):
        try:
            what()
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self.cut = True
        except Left:
            self.leave.clear()
            self.wire.go()
            self.left.set()

    def _begin(self):
        if not self.kind.frames:
            self.kind.take(self.answer, self.wire.whole())
            self.answer.whole = True
            return
        status, self.id = self.wire.begin()
        if status != 200:
            raise ValueError(f"{status} {self.wire.refused()}")
        self.headers.set()
        self._events()

    def _events(self):
        whole = self.kind.take not in (take_openai, take_responses)  # the others have no [DONE]
        for v in self.kind.frames(self.wire.pieces(self.leave)):
            if v == "[DONE]":
                whole = True
            elif self.kind.take is take_oip or v.get("type") != "keepalive":
                self.kind.take(self.answer, v)
        self.answer.whole = whole

    def _resume(self):
        """From the last event on, at whichever frontend takes the connection."""
        self.resumed += 1
        if self.resumed > 100:
            raise ValueError("resumed again and again")
        last = self.answer.numbers[-1:]
        self.wire.close()
        self.wire, self.at = self.kind.carrier(self.s, self.at), None
        status, _ = self.wire.resume(self.kind, *self._way(last))
        if status == 503:
            time.sleep(0.05)
        elif status != 200:
            raise ValueError(f"resumed: {status} {self.wire.refused()}")
        else:
            self._events()

    def _way(self, last):
        """What resume() of the carrier is told besides."""
        if self.kind.carrier is carriers.Socket:
            return self.id, {"after": n for n in last}
        if self.kind.path == RESPONSES:
            after = "".join(f"&starting_after={n}" for n in last)
            return f"{RESPONSES}/resp_{self.id[3:]}?stream=true{after}", self.kind.resume
        return (f"{NATIVE}/{self.id}{FORMAT.get(self.kind.path, '')}",
                self.kind.resume + [f"Last-Event-ID: {self.id}:{n}" for n in last])


# ---- how far a request is -----------------------------------------------------------------------

class Phase:
    """A row of PHASES: the shape of the target, the point at which a process is made to stand when the
    target is there, until the fault is armed (None: it is armed before the target comes), and `how`:
      blocked   others take every place in the batch
      gated     the ledger stands, so that no end is durable
      leaves    the client goes for good when the fault is armed
      away      the reader has left before, and comes back when the fault has happened
      returns   it comes back before, at the frontend that holds its stream
      elsewhere the same, at another one
      orphan    the frontend that has the target is killed first
      crash     the engine is killed first"""

    def __init__(self, name, shape, hold=None, skip=0, kinds=None, how=""):
        self.name, self.shape, self.hold, self.skip = name, shape, hold, skip
        self.kinds, self.how = kinds or KINDS, how


RESUMABLE = [k for k in KINDS if k.resume is not None]
STREAMED = [k for k in KINDS if k.frames]
LOST = [k for k in KINDS if k.resume is None]
DECODE = dict(hold="engine.step.pushed", skip=10)
PHASES = {p.name: p for p in (
    # Before the client has an answer nobody could resume: kinds that end with their frontend.
    Phase("arriving", "plain", kinds=LOST),
    Phase("queued", "plain", "engine.admit.claim", how="blocked"),
    Phase("prefill", "long prompt", "engine.pass.sequence", skip=1),
    Phase("decode", "plain", **DECODE),
    Phase("stop found", "stop string"),
    Phase("finishing", "plain", "engine.end.fields"),
    Phase("gated", "plain", how="gated"),
    Phase("settled", "plain", "engine.end.fields"),
    # Endless: it does not come to its end before somebody has seen that a frontend is dead.
    Phase("leaving", "endless", kinds=[k for k in STREAMED if k in LOST], how="leaves", **DECODE),
    Phase("detaching", "plain", kinds=RESUMABLE, how="leaves", **DECODE),
    Phase("held", "plain", kinds=RESUMABLE, how="away", **DECODE),
    Phase("returning", "plain", kinds=RESUMABLE, how="returns", **DECODE),
    Phase("elsewhere", "plain", kinds=RESUMABLE, how="elsewhere", **DECODE),
    Phase("orphaned", "plain", kinds=RESUMABLE, how="orphan", **DECODE),
    Phase("recovering", "plain", how="crash", **DECODE),
)}

# ---- which points, where ------------------------------------------------------------------------

ENGINE_STEP = ["engine.plan.made", "engine.plan.moved", "engine.pass.begin", "engine.pass.sequence",
               "engine.pass.end", "engine.step.sampled", "engine.news.before", "engine.news.posted"]
ENGINE_TOKEN = ["engine.step.push", "engine.step.pushed", "engine.step.published",
                "engine.step.counted"]
CELLS = [  # points, phases, actions
    (["engine.admit.copied", "engine.admit.state", "engine.admit.claim", "engine.admit.head"],
     ["arriving"], KILLS + STOP),
    (["engine.step.published", "engine.pass.end", "engine.news.posted"], ["queued"], KILLS),
    (ENGINE_STEP, ["prefill", "decode"], KILLS + STOP),
    (["engine.step.logprob"], ["decode"], KILLS),
    (ENGINE_TOKEN, ["decode", "held"], KILLS + STOP),
    (["engine.command.taken"], ["stop found", "leaving"], KILLS + STOP),
    (["engine.end.fields", "engine.end.state"], ["decode", "stop found", "held", "leaving"], KILLS),
    (["engine.end.state", "engine.bill.number", "engine.bill.record"], ["finishing"], KILLS + STOP),
    (["engine.release.due", "engine.release.reset", "engine.release.closed", "engine.offer.open",
      "engine.reset.generation"], ["settled"], KILLS + STOP),
    (["engine.give.before", "engine.give.owner"], ["orphaned", "elsewhere"], KILLS + STOP),
    (["engine.dead.dealt"], ["orphaned"], KILLS + STOP),
    (["engine.recover.begin", "engine.recover.found", "engine.recover.request",
      "engine.recover.done", "engine.ready"], ["recovering"], KILLS + STOP),
    (["frontend.admit.claimed", "frontend.admit.written", "frontend.admit.pushed",
      "frontend.headers"], ["arriving"], KILLS + STOP),
    (["frontend.scanned", "frontend.framed", "frontend.cursor"], ["decode", "recovering"],
     KILLS + STOP),
    (["frontend.stop.found", "frontend.stop.posted"], ["stop found"], KILLS + STOP),
    (["frontend.gate.wait"], ["gated"], KILLS + STOP),
    (["frontend.end.begin", "frontend.end.told", "frontend.end.released", "frontend.delivery.before",
      "frontend.delivery.pushed"], ["settled"], KILLS + STOP),
    (["frontend.gone.seen", "frontend.gone.posted"], ["leaving"], KILLS + STOP),
    (["frontend.hold.before", "frontend.held"], ["detaching"], KILLS + STOP),
    (["frontend.resumed"], ["returning", "elsewhere"], KILLS + STOP),
    (["frontend.given"], ["orphaned"], KILLS + STOP),
    (["frontend.adopt.asked", "frontend.adopted"], ["orphaned", "elsewhere"], KILLS + STOP),
    (["ledger.taken", "ledger.spool.before", "ledger.spool.written", "ledger.spool.synced",
      "ledger.durable"], ["finishing"], KILLS + STOP),
    (["ledger.sink.taken", "ledger.sink.rows", "ledger.sink.committed", "ledger.sink.done",
      "ledger.delivery.taken"], ["settled"], KILLS + STOP),
    (["engine.end.state", "engine.bill.number", "engine.bill.record", "engine.release.due"],
     ["recovering"], KILLS),
]
# What only some kinds of request get to.
ONLY = {"frontend.framed": STREAMED, "frontend.headers": STREAMED,
        "frontend.end.released": [k for k in KINDS if k.resume is None],  # the others are held
        "engine.step.logprob": [k for k in KINDS if k.body.get("logprobs")]}


def kinds_of(point, phase):
    kinds = PHASES[phase].kinds
    return [k for k in kinds if k in ONLY.get(point, kinds)]


class Cell:
    def __init__(self, phase, point, action, kind, turn):
        self.phase, self.point, self.action, self.kind = PHASES[phase], point, action, kind
        at = KINDS.index(kind) + 1 + 5 * turn
        others = [k for i in range(at, at + len(KINDS)) if (k := KINDS[i % len(KINDS)]) is not kind]
        self.others = others if LONG else others[:BESIDE]
        self.name = f"{action} at {point}, {phase}, {kind}"
        self.role = point.split(".")[0]


def matrix():
    """Every point once, or in full.  Neighbours have different victims, so that each lives for a while:
    who dies young is replaced later."""
    out, turn = [], itertools.count()
    for points, phases, actions in CELLS:
        for point in points:
            i = next(turn)
            for phase in phases if LONG else [phases[i % len(phases)]]:
                kinds = kinds_of(point, phase)
                out += [Cell(phase, point, a, k, i)
                        for a in (actions if LONG else [actions[i % len(actions)]])
                        for k in (kinds if LONG else [kinds[i % len(kinds)]])]
    n = len(out) // 3 + 1
    return [c for three in itertools.zip_longest(out[:n], out[n:2 * n], out[2 * n:]) for c in three if c]


# ---- a cell -------------------------------------------------------------------------------------

class Bench:
    """A service with what it looks like when nothing happens."""

    def __init__(self, flags, truth, stops):
        self.s = Server(flags, faults=True)
        self.truth, self.stops, self.n, self.own_faults = truth, stops, 0, 0
        self.values = {p for p, what in Faults.names().items() if "value:" in what}
        warm = self.s.post(COMP, completion("x", max_tokens=1), headers=["X-Request-Id: warm"])
        check(warm.status == 200 and self.s.row("warm") and self.s.idle(), "the service works", warm.text)
        ended = 'slots{state="ended"}'
        check(until(lambda: self.look()[ended] == 0), "its slot is given back")
        self.gauges, self.fds = self.look(), self.descriptors()

    def look(self):
        m = self.s.metrics()
        names = ["requests_running", "requests_waiting", "requests_parked", "streams", "streams_held"]
        names += [f'slots{{state="{x}"}}' for x in ("free", "open", "busy", "ended")]
        kv = {x: m.get(f'kv_blocks{{state="{x}"}}') for x in ("free", "cached", "used")}
        return {**{n: m.get(n) for n in names}, "used KV blocks": kv["used"],
                "free and cached KV blocks": kv["free"] + kv["cached"]}

    def descriptors(self):
        """How many each process has; segments of the spool, and files of the database, come and go."""
        def count(pid):
            n = 0
            with contextlib.suppress(OSError):
                for fd in os.listdir(f"/proc/{pid}/fd"):
                    n += self.s.ledger not in os.readlink(f"/proc/{pid}/fd/{fd}")
            return n
        return {role: max((count(p) for p in pids), default=0)
                for role, pids in self.s.processes().items()}

    def stop_of(self, kind):
        return self.stops.get(kind.name)

    def start(self, kind, shape, name):
        self.n += 1
        return Reader(self.s, kind, shape, f"{name}-{self.n}", self.stop_of(kind))

    def abandon(self):
        """After a cell that broke somebody may stand for ever."""
        os.killpg(self.s.pid, signal.SIGKILL)
        self.s.child.wait()
        _servers.remove(self.s)

    def unrest(self):
        """What is not as it was before the first request: processes, health, gauges, descriptors,
        zombies."""
        s = self.s
        now, was = self.look(), self.gauges
        fds = self.descriptors()
        out = [f"{k} {now[k]}, not {was[k]}" for k in was if now[k] != was[k]]
        out += [f"descriptors of {r}: {fds[r]}, not {n}" for r, n in self.fds.items() if fds[r] > n]
        out += [f"zombie: {title(p)}" for p in children(s.pid) if parent_and_state(p)[1] == "Z"]
        there = {r: len(p) for r, p in s.processes().items()}
        if there != {"engine": 1, "ledger": 1, "frontend": FRONTENDS}:
            out.append(f"processes: {there}")
        if s.get("/health").status != 200:
            out.append("not ready")
        return out

    def forgive(self, cell):
        """Ten faults of its own in a row that are no request's, and the service gives up: a death from
        outside comes between."""
        self.own_faults += cell.role == "engine" and cell.action in ("segv", "abort")
        if self.own_faults == 8:
            self.own_faults = 0
            os.kill(self.s.processes()["engine"][0], signal.SIGKILL)
            check(not self.at_rest(), "an engine that died idle is replaced")

    def at_rest(self):
        """[] once all is as it was; else what is not."""
        last = [None]

        def rest():
            last[0] = self.unrest()
            return not last[0]
        until(rest, pause=0.1)
        return last[0]


def block(bench, n):
    """Requests that take every place in the batch until they are let go."""
    s, out = bench.s, []
    for _ in range(n):
        bench.n += 1
        st = s.stream(COMP, force(97, prompt="x", max_tokens=8000, stream=True, ignore_eos=True),
                      headers=[f"X-Request-Id: block-{bench.n}"])
        out.append(st.read(1))
    return out


def owners(s):
    """{port of a client: the frontend that has it}"""
    out = {}
    for pid, ours in itertools.product(s.processes()["frontend"], (s.port, oip.port_of(s))):
        with contextlib.suppress(OSError):
            out.update({port: pid for port in clients_of(pid, ours)})
    return out


def stand(cell, bench):
    """The target is sent and is where the phase says: it, and the process that stands there."""
    f, phase, seed = bench.s.faults, cell.phase, cell.kind.seed
    if phase.how == "gated":
        f.arm("ledger.spool.before", "stop")
    if not phase.hold:
        return None, None
    f.arm(phase.hold, "stop", skip=phase.skip, match=seed)
    if phase.how in AWAY:
        f.arm("frontend.held", "count", match=seed)
    target = bench.start(cell.kind, phase.shape, "target")
    stands = f.wait_stopped(phase.hold)
    if not stands:
        raise RuntimeError(f"the target did not come to its phase: {target.odd} {target.answer.said()}")
    target.home = owners(bench.s).get(target.port)
    if phase.how in AWAY:
        target.leave.set()
        if not until(lambda: f.hits("frontend.held") == 1):
            raise RuntimeError(f"the stream is not held: {target.odd} {target.answer.said()}")
    return target, stands


AWAY = ("away", "returns", "elsewhere")


def set_off(cell, bench, target, stands, dead):
    """What leads to the point; who is killed for it goes into `dead`."""
    s, f, how = bench.s, bench.s.faults, cell.phase.how
    if not target:
        return bench.start(cell.kind, cell.phase.shape, "target")
    if how == "orphan":
        dead.append(target.home)
        os.kill(target.home, signal.SIGKILL)
    elif how == "crash":
        dead.append(stands)
        os.kill(stands, signal.SIGKILL)
    elif how == "leaves":
        target.leave.set()
    elif how == "elsewhere":
        target.at = next(p for p in s.processes()["frontend"] if p != target.home)
    f.go_on(stands)
    if how in ("returns", "elsewhere"):
        target.back.set()
    return target


def happen(cell, bench, readers, blockers):
    """The fault: armed, reached, and for a stop: looked at and let go.  The target, and who died."""
    s, f, dead = bench.s, bench.s.faults, []
    target, stands = stand(cell, bench)
    before = owners(s)
    f.arm(cell.point, cell.action, match=cell.kind.seed if cell.point in bench.values else None)
    target = set_off(cell, bench, target, stands, dead)
    if not f.wait_fired(cell.point):
        raise RuntimeError(f"the point was not reached: {target.odd} {target.answer.said()}")
    pid = f.pid(cell.point)
    if cell.action == "stop":
        check(f.wait_stopped(cell.point), f"{cell.name}: the process stands")
        check(s.get("/livez").status == 200, f"{cell.name}: others go on meanwhile")
        f.go_on(pid)
    else:
        dead.append(pid)
    if cell.phase.how == "gated":
        f.go_on(f.wait_stopped("ledger.spool.before"))
    target.back.set()
    for st in blockers:
        st.close()
    hit = [r for r in readers + [target] if before.get(r.port) in dead]
    if cell.role == "frontend" and pid in dead and target.port not in before:
        hit.append(target)
    return target, dead, hit


def where_differs(got, want):
    a, b = repr(got), repr(want)
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    return f"at {at}: got {a[max(0, at - 30):at + 60]}, want {b[max(0, at - 30):at + 60]}"


def judge(cell, bench, r, may_be_lost, ledger):
    """What one client has, and its row."""
    rows = [x for x in ledger if x["request_id"] == r.rid]
    if cell.phase.how == "leaves" and r.rid.startswith("target") and r.kind in LOST:
        check(len(rows) == 1 and rows[0]["status"] == "cancelled" and
              rows[0]["reason"] in ("client_disconnected", "frontend_lost"),
              f"{cell.name}: who left has one row that says so", rows)
        return
    want = bench.truth[r.kind.name, r.shape]
    a = r.answer
    what = f"{cell.name}: {r.kind}{' (target)' if r.rid.startswith('target') else ''}"
    check(r.odd is None, f"{what}: read to its end", r.odd)
    lost = may_be_lost and not a.whole and r.kind.resume is None
    if lost:
        unsent = cell.point in ("frontend.admit.claimed", "frontend.admit.written")
        known = not (unsent and r.rid.startswith("target"))
        check(len(rows) == known, f"{what}: cut, one row if it was submitted", rows)
        for i, text in a.text.items():
            check(want.said["text"][i].startswith(text), f"{what}: what came is a beginning", text)
        check(all(x["reason"] == "frontend_lost" or x["status"] == want.row["status"] for x in rows),
              f"{what}: the row says why", rows)
        return
    said = a.said()
    check(said == want.said, f"{what}: text, end and usage as undisturbed",
          *(where_differs(said[k], v) for k, v in want.said.items() if said[k] != v))
    check(a.whole, f"{what}: whole", a.said(), r.cut)
    check(a.numbers == sorted(set(a.numbers)) and a.numbers[-1:] == want.numbers[-1:],
          f"{what}: event numbers", a.numbers, want.numbers)
    seen = [{k: x[k] for k in want.row} for x in rows]
    equal(seen, [want.row], f"{what}: one row, with the same counts")


def restarts(s):
    m = s.metrics()
    return sum(m[f'process_restarts_total{{role="{r}"}}'] for r in ("engine", "frontend", "ledger"))


def run_cell(cell, bench):
    s = bench.s
    bench.forgive(cell)
    before = restarts(s)
    blockers = block(bench, FLAGS["max_seqs"]) if cell.phase.how == "blocked" else []
    whole = [bench.start(k, "plain", "other") for k in cell.others if not k.early]
    n = sum(k.body.get("n", 1) for k in cell.others if not k.early) + len(blockers)
    until(lambda: s.metric("requests_running") + s.metric("requests_waiting") >= n or
          all(not r.thread.is_alive() for r in whole))
    readers = whole + [bench.start(k, "plain", "other") for k in cell.others if k.early]
    for r in readers:
        if r.kind.early:
            r.headers.wait(WAIT)
        r.back.set()
    target, dead, hit = happen(cell, bench, readers, blockers)
    for r in readers + [target]:
        r.thread.join(WAIT)
        check(not r.thread.is_alive(), f"{cell.name}: {r.kind} ends")
    rest = bench.at_rest()
    check(not rest, f"{cell.name}: at rest afterwards", rest, s.log()[-1500:])
    s.faults.disarm()
    ledger = s.rows()
    for r in readers + [target]:
        judge(cell, bench, r, r in hit, ledger)
    m = s.metrics()
    equal((m["streams_without_terminal_total"], m["ledger_unconfirmed_total"]), (0, 0),
          f"{cell.name}: no live reader without its end")
    equal(restarts(s) - before, len(dead), f"{cell.name}: who died was replaced")


# ---- the undisturbed run ------------------------------------------------------------------------

class Truth:
    def __init__(self, said, row, numbers):
        self.said, self.row, self.numbers = said, row, numbers


COUNTED = ("status", "reason", "choices", "prompt_tokens", "completion_tokens")


def middle(text):
    """A stop string that is first found in the middle of the text."""
    for at in range(len(text) // 3, len(text) - 3):
        if text.find(text[at:at + 3]) == at:
            return text[at:at + 3]
    raise ValueError(f"nothing stands out in {text!r}")


def undisturbed(flags):
    """({(kind, shape): Truth}, {kind: stop string})"""
    truth, stops = {}, {}
    with Server(flags) as s:
        for shape in ("plain", *sorted({p.shape for p in PHASES.values()} - {"plain", "endless"})):
            readers = [Reader(s, k, shape, f"{k.name}-{shape}".replace(" ", "-"), stops.get(k.name))
                       for k in KINDS]
            for r in readers:
                r.back.set()
                r.thread.join(WAIT)
                check(r.answer.whole and not r.odd, f"undisturbed: {r.kind}, {shape}", r.odd,
                      r.answer.said())
                row = s.row(r.rid)
                truth[r.kind.name, shape] = Truth(r.answer.said(), {k: row[k] for k in COUNTED},
                                                  r.answer.numbers)
                if shape == "plain":
                    stops[r.kind.name] = middle(r.answer.text[0])
    return truth, stops


# ---- tests --------------------------------------------------------------------------------------

def run_all(cells, flags, services):
    truth, stops = undisturbed(flags)
    todo = queue.Queue()
    for c in cells:
        todo.put(c)

    def work():
        bench = Bench(flags, truth, stops)
        while True:
            try:
                cell = todo.get_nowait()
            except queue.Empty:
                break
            begin = time.monotonic()
            try:
                run_cell(cell, bench)
            except Exception:
                check(False, f"{cell.name}: ran to its end", traceback.format_exc(limit=-3)[-590:],
                      bench.s.log()[-1500:])
                bench.abandon()
                bench = Bench(flags, truth, stops)
            if os.environ.get("TOKENRING_TEST_TELL"):
                print(f"    {cell.name} {time.monotonic() - begin:.1f} s", flush=True)
        bench.s.stop()

    for r in together([work] * services, 6000):
        check(r is None, "the cells were run", r)


@test
def matrix_on_sim():
    word = os.environ.get("CELL", "")
    run_all([c for c in matrix() if word in c.name], FLAGS, SERVICES)


@test
def sample_on_the_real_model():
    """Tier 2: a cell of each kind of point."""
    if LONG and not os.environ.get("CELL"):
        flags = {k: v for k, v in FLAGS.items() if not k.startswith("sim")}
        run_all(matrix()[::len(matrix()) // 40], dict(flags, **REAL), 1)


@test
def supervisor_dies():
    """Whatever it was about to do: nobody is left, and each request has its one row, also for a service
    that goes on with the same ledger."""
    def one(point):
        s = Server(FLAGS, faults=True)
        kids = children(s.pid)
        early = s.post(COMP, completion("x", max_tokens=3, ignore_eos=True), headers=["X-Request-Id: early"])
        s.faults.arm("engine.admit.head", "stop", skip=len(KINDS) - 1)
        readers = [Reader(s, k, "endless", f"r-{i}", comes_back=False) for i, k in enumerate(KINDS)]
        engine = s.faults.wait_stopped("engine.admit.head")
        check(engine, f"{point}: all are admitted")
        s.faults.arm(point, "kill")
        os.kill(engine, signal.SIGKILL)
        check(s.wait_exit() == -signal.SIGKILL, f"{point}: it was reached", s.log()[-800:])
        _servers.remove(s)
        check(until(lambda: not any(living(p) for p in kids + [engine])), f"{point}: nobody is left")
        for r in readers:
            r.thread.join(WAIT)
            check(r.cut and not r.answer.whole, f"{point}: {r.kind} is cut", r.odd, r.answer.said())
        rows = ledger_rows(s.ledger)
        equal(sorted(x["request_id"] for x in rows), sorted(["early"] + [r.rid for r in readers]),
              f"{point}: one row for each")
        check(early.status == 200 and all(x["status"] == ("incomplete" if x["request_id"] == "early" else
                                                          "error") for x in rows),
              f"{point}: what became of them", [(x["request_id"], x["status"]) for x in rows])
        with Server(FLAGS, ledger=s.ledger) as again:
            again.post(COMP, completion("x", max_tokens=3), headers=["X-Request-Id: late"])
            check(again.row("late") and len(again.rows()) == len(rows) + 1,
                  f"{point}: the next service adds to them", again.rows())
        subprocess.run(["rm", "-rf", s.dir], check=False)

    if not os.environ.get("CELL"):  # one cell was asked for
        for r in together([lambda p=p: one(p) for p in Faults.names() if p.startswith("supervisor.")]):
            check(r is None, "the cell ran to its end", r)


main()
