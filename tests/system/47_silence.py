# SPDX-License-Identifier: Apache-2.0
"""Silence: keep-alives of every framing while a request waits, its prompt is computed, the engine stands
still or is replaced; they are no data, they never stand inside an event, and no client stumbles."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
A = 97  # of the small vocabulary
FRAMINGS = {"chat": (CHAT, []), "completions": (COMP, []), "native": (NATIVE, []),
            "ndjson": (NATIVE, ["Accept: application/x-ndjson"])}
BEAT = 0.4


class OpenAI:
    """The decoder of OpenAI's Python client: a block without data is an event with empty data as soon
    as an id has been seen, and then its JSON parser fails."""

    def __init__(self):
        self.event, self.data, self.id, self.retry = None, [], None, None
        self.events = []

    def line(self, text):
        if not text:
            if not self.event and not self.data and not self.id and self.retry is None:
                return
            data = "\n".join(self.data)
            self.event, self.data, self.retry = None, [], None
            if not data.startswith("[DONE]"):
                self.events.append(strict_json(data))
            return
        if text.startswith(":"):
            return
        name, _, value = text.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "event":
            self.event = value
        elif name == "data":
            self.data.append(value)
        elif name == "id":
            self.id = value
        elif name == "retry":
            self.retry = int(value)


class Silent:
    """A stream read chunk by chunk in a thread of its own."""

    def __init__(self, server, framing, body):
        path, headers = FRAMINGS[framing]
        self.framing = framing
        self.beats, self.rest, self.error, self.status = 0, b"", None, 0
        body = dict(body, stream=True) if path != NATIVE else dict(body)
        prompt = body.pop("prompt", "x")
        if path == CHAT:  # the prompt is then a little longer
            body["messages"] = [{"role": "user", "content": prompt}]
        else:
            body["prompt"] = prompt
        self.conn = server.conn()
        self.conn.send(request("POST", path, body, headers))
        self.status, _, head = self.conn.head()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        beat = {"ndjson": b'{"type":"keepalive"}\n', "native": b": keepalive\n"}.get(
            self.framing, b": keepalive\n\n")
        try:
            while (c := self.conn.chunk()):
                if c == beat:
                    self.beats += 1
                elif b"keepalive" in c:
                    raise ValueError(f"a keep-alive within something: {c!r}")
                self.rest += c
        except (OSError, EOFError, ValueError) as e:
            self.error = e

    def end(self):
        self.thread.join(WAIT)
        self.conn.close()
        return self

    def text(self):
        if self.framing == "ndjson":
            return "".join(e.get("text", "") for e in map(strict_json, self.rest.decode().splitlines()))
        d = OpenAI()
        for line in self.rest.decode("utf-8").splitlines():
            d.line(line)
        if self.framing != "native" and (d.id is not None or d.retry is not None):
            raise ValueError("id or retry in a bare stream")
        return "".join(e.get("text", "") if not isinstance(e.get("choices"), list) else
                       "".join(c["text"] if "text" in c else c["delta"].get("content", "")
                               for c in e["choices"]) for e in d.events)


def all_framings(server, body):
    return [Silent(server, f, body) for f in FRAMINGS]


def good(streams, want, least, claim):
    for st in streams:
        st.end()
        check(st.error is None and st.status == 200, f"{claim}: {st.framing}: no client stumbles", st.error)
        equal(st.text(), want, f"{claim}: {st.framing}: the same text")
        check(st.beats >= least, f"{claim}: {st.framing}: keep-alives", st.beats)


@test
def queued():
    with Server(TINY, max_seqs=1, heartbeat_s=BEAT, sim_step_us=5000, ledger=False) as s:
        first = s.conn()  # not streamed: nobody can be behind
        first.send(request("POST", COMP, force(A, prompt="x", max_tokens=8000)))
        until(lambda: s.metric("requests_running") == 1)
        streams = all_framings(s, force(A, max_tokens=7))
        check(until(lambda: all(st.beats >= 4 for st in streams)), "they come while it waits",
              [st.beats for st in streams])
        equal(s.metric("requests_waiting"), 4, "all wait")
        first.reset()
        good(streams, "a" * 7, 4, "queued")
        check(until(lambda: s.metric("keepalives_total") >= 16), "counted")


@test
def long_prefill():
    """Whole prompts in one pass of 2 s, so that nothing can be told between."""
    with Server(TINY, max_seqs=4, heartbeat_s=BEAT, sim_prefill_us=500, prefill_chunk=0,
                prefix_cache="off", ledger=False) as s:
        streams = all_framings(s, force(A, prompt="y" * 1000, max_tokens=7))
        good(streams, "a" * 7, 2, "prefill")


@test
def engine_stopped():
    """SIGSTOP for 5 s in a prefill and in a decode (case B47)."""
    with Server(TINY, heartbeat_s=BEAT, sim_step_us=5000, sim_prefill_us=1000, prefix_cache="off", ledger=False,
                max_seqs=16) as s:
        decode = all_framings(s, force(A, max_tokens=1000))
        check(until(lambda: s.metric("requests_running") == 4), "four decode", s.metrics())
        prefill = all_framings(s, force(A, prompt="y" * 1000, max_tokens=7))
        check(until(lambda: s.metric("requests_running") >= 5), "one is in prefill", s.metrics())
        os.kill(s.pids["engine"][0], signal.SIGSTOP)
        r = s.post(COMP, completion("x", max_tokens=-5))
        check(is_error(r), "refusals are real 4xx meanwhile", r.status, r.text)
        time.sleep(5)
        os.kill(s.pids["engine"][0], signal.SIGCONT)
        good(prefill, "a" * 7, 5, "stopped in prefill")
        good(decode, "a" * 1000, 5, "stopped in decode")


@test
def engine_replaced():
    """Streams of a hung engine are kept alive, and go on with the one that replaces it."""
    with Server(TINY, heartbeat_s=BEAT, engine_stall_s=3, sim_step_us=5000, ledger=False) as s:
        streams = all_framings(s, force(A, max_tokens=1000))
        check(until(lambda: s.metric("requests_running") == 4), "all run")
        os.kill(s.pids["engine"][0], signal.SIGSTOP)
        good(streams, "a" * 1000, 3, "replaced")
        equal(s.metric('process_restarts_total{role="engine"}'), 1, "by another engine")


@test
def none_where_nobody_asked():
    """--heartbeat-s 0, answers that are not streamed, and streams that talk: not a byte of them."""
    with Server(TINY, heartbeat_s=0, max_seqs=1, sim_step_us=1000, ledger=False) as s:
        first = s.stream(COMP, force(A, prompt="x", max_tokens=2000, stream=True)).read(1)
        streams = all_framings(s, force(A, max_tokens=7))
        first.rest()
        good(streams, "a" * 7, 0, "off")
        check(all(st.beats == 0 for st in streams), "none", [st.beats for st in streams])
    with Server(TINY, heartbeat_s=0.2, sim_step_us=3000, ledger=False) as s:
        r = s.post(COMP, force(A, prompt="x", max_tokens=300))
        check(r.status == 200 and text_of(r) == "a" * 300, "a whole answer is only itself", r.status)
        begin = time.monotonic()
        st = s.stream(COMP, force(A, prompt="x", max_tokens=300, stream=True)).rest()
        silent = time.monotonic() - begin - 300 * 0.003  # at most: somebody had no turn
        check(st.comments <= 2 + silent / 0.2, "a stream that talks needs none", st.comments, silent)


if __name__ == "__main__":
    main()
