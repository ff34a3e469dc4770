# SPDX-License-Identifier: Apache-2.0
"""Counting: one number of tokens for a request, whoever tells it: the usage of every framing, the events,
the metrics and the ledger; also for requests that were left, cancelled or too late.  And the way from a
disconnect to the last token, by the times and numbers of one row."""
from lib import *
from wire import CHAT, COMP, FRAMINGS, NATIVE, VERSIONS, Wire

A, EOG = 97, 259  # of the small vocabulary: "a", an end of turn
CONTROL = 258  # shows nothing and ends nothing
MANY = 6000
KINDS = {"prompt": "prompt_tokens", "cached": "cached_tokens", "completion": "completion_tokens",
         "overrun": "overrun_tokens"}


# ---- what each says -----------------------------------------------------------------------------

def asked(body, framing):
    """With the usage chunk, where it has to be asked for."""
    path, _, streamed = FRAMINGS[framing]
    return dict(body, stream_options={"include_usage": True}) if streamed and path != NATIVE else body


def wires(server, body, only=None, versions=VERSIONS, **kw):
    return [Wire(server, f, v, asked(body, f), **kw) for f in FRAMINGS for v in versions
            if not only or only(f)]


def streamed(framing):
    return FRAMINGS[framing][2]


def completions(framing):
    return FRAMINGS[framing][0] == COMP


def objects(w):
    """What was told, as objects."""
    if not w.streamed:
        return [strict_json(w.body.decode("utf-8"))] if w.body else []
    return [e for e in w.events() if e != "[DONE]"]


def usage(w):
    """(prompt, completion) as the client is told, or None."""
    found = [o["usage"] for o in objects(w) if o.get("usage")]
    return (found[-1]["prompt_tokens"], found[-1]["completion_tokens"]) if found else None


def letters(w):
    """How many tokens' text came, where each is one letter."""
    n = 0
    for o in objects(w):
        n += len(o["text"]) if o.get("type") == "output_text.delta" else 0
        for c in o["choices"] if isinstance(o.get("choices"), list) else ():
            n += len(c["text"] if "text" in c else
                     c["delta"].get("content", "") if "delta" in c else c["message"]["content"])
    return n


def delta_tokens(w):
    """What the deltas of native events say that they hold."""
    return sum(o["tokens"] for o in objects(w) if o.get("type") == "output_text.delta")


def rows_of(server, ids):
    """The one row of each, with what became of its bytes."""
    ids = set(ids)

    def mine():
        return {r["request_id"]: r for r in server.rows() if r["request_id"] in ids and r["closed_at"]}
    until(lambda: len(mine()) == len(ids))
    got = mine()
    missing = ids - set(got)
    check(not missing, "each request has its row, and its delivery", missing)
    return got


class Sums:
    """The claim that metrics have risen by what the rows of a test add up to."""

    def __init__(self, server):
        self.s, self.m = server, server.metrics()
        self.rows = {r["stream_id"] for r in server.rows()}

    def agree(self, claim, most, lives=1, held=False):
        """The rows; `most`: max_tokens by request id, or one for all; `lives` of the engine meanwhile; `held`:
        these were to go on without a reader."""
        s = self.s
        check(s.idle(), f"{claim}: idle", s.metrics())
        until(lambda: s.metric("ledger_lag_seconds") == 0)
        m = s.metrics()
        rows = [r for r in s.rows() if r["stream_id"] not in self.rows]

        def rise(name):
            return int(m.get(name, 0) - self.m.get(name, 0))
        for kind, column in KINDS.items():
            equal(rise(f'tokens_total{{kind="{kind}"}}'), sum(r[column] for r in rows), f"{claim}: {kind} tokens")
        # An engine that is killed may have published a step that it had not counted yet.
        check(lives > 1 or rise("published_tokens_total") ==
              sum(r["completion_tokens"] + r["overrun_tokens"] for r in rows), f"{claim}: what the engine published",
              rise("published_tokens_total"))
        for reason in {r["reason"] for r in rows}:
            equal(rise(f'streams_ended_total{{reason="{reason}"}}'), sum(r["reason"] == reason for r in rows),
                  f"{claim}: ended by {reason}")
        equal(sum(int(m[k] - self.m.get(k, 0)) for k in m if k.startswith("streams_ended_total")), len(rows),
              f"{claim}: a row for each that ended")
        left = [r for r in rows if r["status"] == "cancelled"]
        avoided = sum((most[r["request_id"]] if isinstance(most, dict) else most) * r["choices"] -
                      r["completion_tokens"] - r["overrun_tokens"] for r in left)
        equal(rise("cancelled_tokens_avoided_total"), avoided, f"{claim}: tokens that were not made")
        equal(rise("abort_seconds_count"), sum(r["choices"] for r in left if r["disconnect_at"] and not held),
              f"{claim}: every disconnect that cancels is timed")
        after = rise("tokens_after_disconnect_total")
        check(0 <= after <= sum(r["completion_tokens"] for r in left if r["disconnect_at"]),
              f"{claim}: tokens after a disconnect are among them", after)
        return rows


def in_order(row, claim):
    """Times of a row that was told to the end, or left."""
    def rises(*names):
        t = [row[n] for n in names if row[n] is not None]
        return t == sorted(t)
    check(rises("created_at", "first_token_at", "finished_at") and
          rises("created_at", "first_byte_at", "closed_at") and
          rises("created_at", "disconnect_at", "cancel_ack_at") and
          rises("first_token_at", "cancel_ack_at", "finished_at") and rises("first_token_at", "first_byte_at"),
          f"{claim}: times rise", row)
    check(0 <= row["delivered_tokens"] <= row["completion_tokens"], f"{claim}: no more arrived than was made", row)
    check((row["last_token"] is None) == (row["completion_tokens"] + row["overrun_tokens"] == 0) ==
          (row["first_token_at"] is None), f"{claim}: a last token if there was one", row)


# ---- ends by themselves -------------------------------------------------------------------------

ENDS = {  # body, reason, completion tokens, letters that are shown, the last token
    "an end of turn": (force(EOG, max_tokens=9), "stop", 1, 0, EOG),
    "a stop id": (force(A, max_tokens=9, stop_token_ids=[A]), "stop_id", 1, 0, A),
    "a stop string": (force(A, max_tokens=9, stop="aaa"), "stop_string", 3, 0, A),
    "a stop string at the limit": (force(A, max_tokens=3, stop=["aaa"]), "stop_string", 3, 0, A),
    "a stop string that is shown": (force(A, max_tokens=9, stop="aaa", include_stop_str_in_output=True),
                                    "stop_string", 3, 3, A),
    "a limit": (force(A, max_tokens=7), "length", 7, 7, A),
    "a limit of one": (force(A, max_tokens=1), "length", 1, 1, A),
    "a limit of none": (force(A, max_tokens=0), "length", 0, 0, None),
    "tokens that show nothing": (force(CONTROL, max_tokens=4), "length", 4, 0, CONTROL),
}


@test
def ends():
    """Every end by itself in every framing on every version: the number it must be, everywhere."""
    for name, (body, reason, n, shown, last) in ENDS.items():
        sums = Sums(S)
        ws = wires(S, body)
        together([w.read for w in ws])
        rows = rows_of(S, [w.rid for w in ws])
        prompts = {}
        for w in ws:
            claim, row = f"{name}: {w}", rows.get(w.rid)
            if not row:
                continue
            equal(usage(w), (row["prompt_tokens"], n), f"{claim}: usage")
            equal((row["reason"], row["completion_tokens"], row["last_token"], row["disconnect_at"],
                   row["cancel_ack_at"]), (reason, n, last, None, None), f"{claim}: the row")
            equal(row["delivered_tokens"], n, f"{claim}: all of it arrived")
            equal(letters(w), shown, f"{claim}: what is shown")
            in_order(row, claim)
            prompts.setdefault(FRAMINGS[w.framing][0] == CHAT, set()).add(row["prompt_tokens"])
            w.conn.close()
        check(all(len(p) == 1 for p in prompts.values()), f"{name}: one number of prompt tokens", prompts)
        sums.agree(name, 9)


@test
def choices_and_echo():
    """Several choices are one sum, a prompt counts once; an echoed prompt is no answer."""
    sums = Sums(S)
    ws = wires(S, force(A, max_tokens=5, n=2), only=lambda f: FRAMINGS[f][0] != NATIVE)
    ws += wires(S, force(A, max_tokens=5, n=2), only=lambda f: FRAMINGS[f][0] == NATIVE, versions=["1.1"])
    echo = wires(S, force(A, max_tokens=5, echo=True), only=completions)
    together([w.read for w in ws + echo])
    rows = rows_of(S, [w.rid for w in ws + echo])
    for w in ws + echo:
        n = 5 if w in echo else 10
        row = rows.get(w.rid)
        if row:
            equal(usage(w), (row["prompt_tokens"], n), f"{w}: usage")
            equal((row["choices"], row["completion_tokens"]), (n // 5, n), f"{w}: the row")
            equal(letters(w), n + (1 if w in echo else 0), f"{w}: letters, with the prompt's where it is echoed")
            in_order(row, str(w))
        w.conn.close()
    equal({rows[w.rid]["prompt_tokens"] for w in ws + echo if FRAMINGS[w.framing][0] == COMP and w.rid in rows},
          {1}, "the prompt is counted once")
    sums.agree("choices and echo", 5)


# ---- ended from outside -------------------------------------------------------------------------

def left_row(row, reason, claim, most=MANY):
    check(row["status"] == "cancelled" and row["reason"] == reason and row["cancel_ack_at"] and
          row["completion_tokens"] + row["overrun_tokens"] < most * row["choices"], f"{claim}: its row", row)
    in_order(row, claim)


@test
def cancelled():
    """By DELETE: what was published up to the acknowledgement is sent, told and billed."""
    sums = Sums(S)
    ws = wires(S, force(A, max_tokens=MANY), only=streamed)
    together([w.start for w in ws])
    answers = {w: S.ask("DELETE", f"/v1/streams/{w.head['x-tokenring-stream']}", None).json for w in ws}
    together([w.read for w in ws])
    rows = rows_of(S, [w.rid for w in ws])
    for w in ws:
        row, said = rows.get(w.rid), answers[w]
        if not row:
            continue
        left_row(row, "cancelled", str(w))
        n = row["completion_tokens"]
        equal((said["completion_tokens"], said["last_token"], letters(w)), (n, n - 1, n),
              f"cancelled: {w}: the answer to DELETE, and the text")
        check(row["disconnect_at"] is None and row["last_token"] == A and row["delivered_tokens"] == n,
              f"cancelled: {w}: nobody had left", row)
        if FRAMINGS[w.framing][0] == NATIVE:
            equal((usage(w), delta_tokens(w)), ((row["prompt_tokens"], n), n), f"cancelled: {w}: usage and deltas")
        w.conn.close()
    sums.agree("cancelled", MANY)


@test
def too_late():
    """Ended by their deadline: clients of streams have seen all that is billed."""
    sums = Sums(S)
    ws = wires(S, force(A, max_tokens=MANY, timeout_s=0.4))
    together([w.read for w in ws])
    rows = rows_of(S, [w.rid for w in ws])
    for w in ws:
        row = rows.get(w.rid)
        if not row:
            continue
        left_row(row, "deadline_exceeded", str(w))
        check(row["disconnect_at"] is None, f"too late: {w}: nobody had left", row)
        if w.streamed:
            equal((letters(w), row["delivered_tokens"]), (row["completion_tokens"],) * 2, f"too late: {w}: the text")
        if FRAMINGS[w.framing][0] == NATIVE:
            equal(usage(w), (row["prompt_tokens"], row["completion_tokens"]), f"too late: {w}: usage")
        w.conn.close()
    sums.agree("too late", MANY)


@test
def gone():
    """A client that leaves, by FIN or RST, in every framing: the whole way from there to the last token."""
    for way in ("close", "reset"):
        sums = Sums(S)
        ws = wires(S, force(A, max_tokens=MANY)) + wires(S, force(A, max_tokens=MANY, n=2), versions=["1.1"],
                                                        only=lambda f: FRAMINGS[f][0] != NATIVE)
        together([w.start for w in ws])
        until(lambda: S.metric("published_tokens_total") - sums.m["published_tokens_total"] > 100)
        for w in ws:
            getattr(w.conn, way)()
        rows = rows_of(S, [w.rid for w in ws])
        for w in ws:
            row = rows.get(w.rid)
            if row:
                left_row(row, "client_disconnected", f"{way}: {w}")
                check(row["disconnect_at"] and row["disconnect_at"] <= row["cancel_ack_at"] <= row["finished_at"],
                      f"{way}: {w}: seen, then acknowledged, then over", row)
                check(w.streamed or row["delivered_tokens"] == 0, f"{way}: {w}: nothing arrived of one piece", row)
        after = sums.agree(way, MANY)
        # At most the pass in flight, and one that was begun before the command could be seen: a token each,
        # with guesses (TOKENRING_SPECULATE) up to nine.
        most = 9 if os.environ.get("TOKENRING_SPECULATE") == "ngram" else 1
        n = S.metric("tokens_after_disconnect_total") - sums.m["tokens_after_disconnect_total"]
        check(n <= 2 * most * sum(r["choices"] for r in after), f"{way}: hardly a token was made for nobody", n)


@test
def trail():
    """What an operator reads of one request: the row by either id, and two lines of the log that say the
    same ids, times and numbers."""
    with Server(TINY, log_level="debug") as s:
        st = s.stream(COMP, force(A, prompt="x", max_tokens=MANY, stream=True), headers=["X-Request-Id: trail"])
        st.read(20)
        st.conn.reset()
        row = rows_of(s, ["trail"]).get("trail")
        if not row:
            return
        equal(row["stream_id"], st.id, "the row has both ids")
        when = {k: f"{row[k]:.6f}" for k in ("disconnect_at", "cancel_ack_at", "finished_at", "first_byte_at",
                                             "closed_at")}
        billed = (f"stream {st.id} billed: disconnect seen {when['disconnect_at']}, cancel acknowledged "
                  f"{when['cancel_ack_at']}, over {when['finished_at']}; tokens {row['completion_tokens']} and 0 "
                  f"behind the end, the last of all {A}; request trail")
        delivered = (f"stream {st.id} delivered: {row['delivered_tokens']} tokens, first byte "
                     f"{when['first_byte_at']}, closed {when['closed_at']}")
        for line in (billed, delivered, f"stream {st.id} ended: client_disconnected"):
            check(until(lambda line=line: line in s.log()), "the log has it", line, s.log()[-900:])


@test
def before_the_first_token():
    """Left, cancelled and too late in the queue: nothing was made, all of it was avoided."""
    with Server(TINY, max_seqs=1, sim_step_us=5000) as s:
        sums = Sums(s)
        other = s.conn()
        other.send(request("POST", COMP, force(A, prompt="x", max_tokens=MANY), ["X-Request-Id: other"]))
        check(until(lambda: s.metric("requests_running") == 1), "the only place is taken")
        ws = wires(s, force(A, max_tokens=500), versions=["1.1"])
        late = wires(s, force(A, max_tokens=500, timeout_s=0.2), versions=["1.1"])
        check(until(lambda: s.metric("requests_waiting") >= len(ws)), "the others wait")
        together([w.read for w in late])
        deleted = [w for w in ws if w.framing == "native"][0]
        deleted.status, _, deleted.head = deleted.conn.head()
        said = s.ask("DELETE", f"/v1/streams/{deleted.head['x-tokenring-stream']}", None).json
        equal((said["completion_tokens"], said["last_token"]), (0, None), "DELETE says that there is none")
        for w in ws:
            (w.read if w is deleted else w.conn.reset)()
        equal(usage(deleted), (1, 0), "nor does its usage")
        other.reset()
        most = {w.rid: 500 for w in ws + late}
        rows = rows_of(s, list(most) + ["other"])
        for w in ws + late:
            row = rows.get(w.rid)
            if row:
                in_order(row, f"queued: {w}")
                equal((row["completion_tokens"], row["last_token"], row["first_token_at"], row["delivered_tokens"]),
                      (0, None, None, 0), f"queued: {w}: nothing was made")
        sums.agree("queued", dict(most, other=MANY))


@test
def overrun():
    """What was published behind a stop string, before its reader found it, is counted apart: the answer
    ends with the same token, in every framing."""
    with Server(TINY, frontends=2, window=64, sim_step_us=1000) as s:
        slow, engine = s.pids["frontend"][0], s.pids["engine"][0]
        sums = Sums(s)
        conns = [s.conn_at(slow) for _ in FRAMINGS]
        os.kill(engine, signal.SIGSTOP)
        ws = [Wire(s, f, "1.1", asked(force(A, max_tokens=MANY, stop="a" * 50), f), conn=c)
              for f, c in zip(FRAMINGS, conns)]
        check(until(lambda: s.metric("streams") == len(ws)), "all are admitted")
        os.kill(slow, signal.SIGSTOP)  # before it can have scanned a token
        os.kill(engine, signal.SIGCONT)
        check(until(lambda: s.metric("requests_parked") == len(ws)), "each is as far ahead as it may be")
        os.kill(slow, signal.SIGCONT)
        together([w.read for w in ws])
        rows = rows_of(s, [w.rid for w in ws])
        for w in ws:
            row = rows.get(w.rid)
            if row:
                equal(usage(w), (row["prompt_tokens"], 50), f"overrun: {w}: usage")
                equal((row["completion_tokens"], row["delivered_tokens"], row["reason"]), (50, 50, "stop_string"),
                      f"overrun: {w}: the row")
                equal(row["overrun_tokens"], 64 - 50, f"overrun: {w}: what was made behind it")
                in_order(row, f"overrun: {w}")
        sums.agree("overrun", MANY)
        check(s.metric('tokens_total{kind="overrun"}') > 0, "and the counter has it")


@test
def slow():
    """Nothing could be written any more: billed is what was made, delivered what had arrived."""
    with Server(TINY, write_deadline_s=1, sim_step_us=500) as s:
        sums = Sums(s)
        ws = wires(s, force(A, max_tokens=MANY), only=streamed, versions=["1.1"], slow=True)
        rows = rows_of(s, [w.rid for w in ws])
        for w in ws:
            row = rows.get(w.rid)
            if row:
                left_row(row, "slow_client", str(w))
                check(0 < row["delivered_tokens"] < row["completion_tokens"] and row["disconnect_at"] is None,
                      f"slow: {w}: not all of it arrived", row)
            w.conn.close()
        sums.agree("slow", MANY)


@test
def frontend_lost():
    """A frontend that is killed: what was made for its clients is counted once, and nobody says what
    arrived."""
    with Server(TINY, frontends=1) as s:
        sums = Sums(s)
        ws = wires(s, force(A, max_tokens=MANY), versions=["1.1"])
        together([w.start for w in ws])
        check(until(lambda: s.metric("published_tokens_total") > 100), "they run")
        os.kill(s.pids["frontend"][0], signal.SIGKILL)
        check(until(lambda: len([r for r in s.rows() if r["reason"] == "frontend_lost"]) == len(ws)),
              "each has its row", s.rows())

        def up():
            with contextlib.suppress(OSError, EOFError):
                return s.get("/health").status == 200
        check(until(up), "a new one serves")
        for r in sums.agree("frontend lost", MANY):
            check(r["status"] == "cancelled" and r["delivered_tokens"] is None and r["closed_at"] is None and
                  r["first_byte_at"] is None and r["disconnect_at"] is None, "delivery is not known", r)
        for w in ws:
            w.conn.close()


# ---- ends of another life -----------------------------------------------------------------------

@test
def engine_killed():
    """The engine is killed in the middle: each answer has the number of an undisturbed one."""
    with Server(TINY, max_seqs=64, sim_step_us=2000, frontends=2) as s:
        sums = Sums(s)
        asks = [(force(A, max_tokens=400), "length", 400), (force(A, max_tokens=MANY, stop="a" * 350), "stop_string", 350)]
        ws = [(w, reason, n) for body, reason, n in asks for w in wires(s, body, versions=["1.1"])]
        lives = 1
        for at in (100, 250):
            check(until(lambda at=at: s.metric("published_tokens_total") - sums.m["published_tokens_total"] >=
                        at * len(ws)), "they run", s.metrics())
            for p in s.processes()["engine"]:
                os.kill(p, signal.SIGKILL)
                lives += 1
        together([w.read for w, _, _ in ws])
        rows = rows_of(s, [w.rid for w, _, _ in ws])
        for w, reason, n in ws:
            row = rows.get(w.rid)
            if row:
                equal(usage(w), (row["prompt_tokens"], n), f"killed: {w}: usage")
                equal((row["reason"], row["completion_tokens"], row["delivered_tokens"], row["last_token"]),
                      (reason, n, n, A), f"killed: {w}: the row")
                equal(letters(w), n if reason == "length" else 0, f"killed: {w}: the text")
                in_order(row, f"killed: {w}")
        equal(lives, 3, "two engines died")
        sums.agree("engine killed", MANY, lives)


@test
def resumed():
    """A stream whose reader left and came back: what its second reader is told, and the row, are those
    of a stream that was read in one go; nothing was cancelled, nothing avoided."""
    with Server(TINY, sim_step_us=5000, frontends=2) as s:
        sums = Sums(s)
        ws = [Wire(s, f, "1.1", dict(asked(force(A, max_tokens=200), f),
                                     **({"on_disconnect": "hold"} if FRAMINGS[f][0] == NATIVE else {})),
                   headers=[] if FRAMINGS[f][0] == NATIVE else ["X-Tokenring-Resume: 1"])
              for f in FRAMINGS if streamed(f)]
        together([w.start for w in ws])
        first = s.metric("published_tokens_total")
        for w in ws:
            w.conn.reset()
        check(until(lambda: s.metric("streams_held") == len(ws)), "each is held", s.metrics())
        check(until(lambda: s.metric("published_tokens_total") > first + 10 * len(ws)), "and goes on")
        for w in ws:
            sid, number = re.findall(rb'"(?:cursor|id)":"(tr-[^":]+):(\d+)"', w.conn.buf)[-1]
            shape = "native" if FRAMINGS[w.framing][0] == NATIVE else w.framing
            w.conn = s.conn()
            w.conn.send(request("GET", f"/v1/streams/{sid.decode()}?after={number.decode()}&format={shape}", None,
                                FRAMINGS[w.framing][1]))
            w.status = 0
        together([w.read for w in ws])
        rows = rows_of(s, [w.rid for w in ws])
        for w in ws:
            row = rows.get(w.rid)
            if row:
                equal(usage(w), (row["prompt_tokens"], 200), f"resumed: {w}: usage")
                equal([row[k] for k in ("reason", "completion_tokens", "delivered_tokens", "last_token", "disconnect_at",
                                        "cancel_ack_at")], ["length", 200, 200, A, None, None], f"resumed: {w}: the row")
                in_order(row, f"resumed: {w}")
            w.conn.close()
        sums.agree("resumed", MANY)


@test
def nobody_came_back():
    """A held stream whose time to be resumed is over is one that was left: then it is cancelled, and what
    it would have cost is avoided."""
    with Server(TINY, sim_step_us=5000, resume_window_s=1) as s:
        sums = Sums(s)
        ws = [Wire(s, f, "1.1", dict(force(A, max_tokens=MANY), on_disconnect="hold"))
              for f in ("native", "ndjson")]
        together([w.start for w in ws])
        for w in ws:
            w.conn.reset()
        rows = rows_of(s, [w.rid for w in ws])
        for w in ws:
            row = rows.get(w.rid)
            if row:
                left_row(row, "client_disconnected", f"nobody came back: {w}")
                check(row["disconnect_at"] and row["disconnect_at"] <= row["cancel_ack_at"], f"{w}: seen first", row)
        sums.agree("nobody came back", MANY, held=True)


if __name__ == "__main__":
    S = Server(TINY, max_seqs=64, sim_step_us=1000)
    main()
