# SPDX-License-Identifier: Apache-2.0
"""Every dialect on every carrier, through every way a request ends: text, usage, ending and ledger row are
those of the native run of the same request."""
from carriers import *
from dialects import *
from tls import TlsServer, make_files

SLOW = dict(TINY, grpc_port=0, sim_step_us=3000, max_seqs=64, log_level="debug")
# Columns of the row that must be the native run's.
COUNTS = ("status", "reason", "choices", "prompt_tokens", "completion_tokens")
ENDLESS = 6000


class Cell:
    def __init__(self, name, carrier, dialect):
        self.name, self.carrier, self.dialect = name, carrier, dialect

    def __str__(self):
        return self.name


CELLS = [Cell(f"{d.name} on {c}", cls, d) for c, cls in CARRIERS.items() for d in DIALECTS
         if cls.carries(d)]
REFERENCE = {True: CELLS[0], False: CELLS[1]}


def open_all(server, ask, cells, what, slow=False):
    """One call for each cell; those of the reference are among them."""
    return [c.carrier(server, c.dialect, ask, f"{what.replace(' ', '-')}-{i}-{random.getrandbits(40):x}", slow)
            for i, c in enumerate(cells)]


def rows_of(server, calls):
    ids = {c.rid for c in calls}

    def mine():
        return {r["request_id"]: r for r in server.rows() if r["request_id"] in ids}
    check(until(lambda: len(mine()) >= len(calls)), "each has its row", sorted(ids - set(mine())))
    return mine()


def each(cells, calls):
    return zip(cells, calls, strict=True)


def compare(server, what, cells, calls, counts=COUNTS, text=True, cut=False):
    """Each as the native one of its prompt; `cut`: there is no end, and that shows."""
    rows = rows_of(server, calls)
    told = {c.name: (call, call.said()) for c, call in each(cells, calls)}
    for c, call in each(cells, calls):
        claim = f"{what}: {c}"
        ref, want = told[REFERENCE[c.dialect.messages].name]
        got = told[c.name][1]
        row, base = rows.get(call.rid, {}), rows.get(ref.rid, {})
        equal({k: row.get(k) for k in counts}, {k: base.get(k) for k in counts}, f"{claim}: its row")
        natural = want.finish is not None and not cut
        if text:
            same = got.text == want.text if natural or c.dialect.streamed else got.text == ""
            check(same, f"{claim}: its text", got, want)
        if cut or (not c.dialect.says_end and want.finish != "stop"):
            equal(call.end, "cut", f"{claim}: the cut shows")
            check(not got.terminals, f"{claim}: and nothing that looks like an end", got)
            continue
        equal(call.end, "whole", f"{claim}: the carrier has its end")
        if not c.dialect.says_end:
            continue
        equal((got.terminals, got.finish), (1, want.finish), f"{claim}: one end")
        if natural:
            equal(got.usage, want.usage, f"{claim}: its usage")
        else:
            equal(got.code, c.dialect.codes.get(want.code, want.code), f"{claim}: its code")
    for call in calls:
        call.drop()


def natural(what, ask, make=Server):
    with make(SLOW) as s:
        calls = open_all(s, ask, CELLS, what)
        together([c.read for c in calls])
        compare(s, what, CELLS, calls)
        check(s.idle(), f"{what}: nothing is left")


def native_said(server, ask):
    call = Http1(server, CELLS[0].dialect, ask, f"look-{random.getrandbits(40):x}").read()
    call.drop()
    return call.said()


@test
def length(make=Server):
    natural("length", Ask(seed=3, n=40), make)


@test
def completed():
    """By an end-of-turn token, behind some text."""
    with Server(**dict(SLOW, sim_step_us=100)) as s:
        for seed in range(1, 200):
            ask = Ask(seed=seed, n=600)
            ask.more["ignore_eos"] = False
            said = native_said(s, ask)
            if said.finish == "stop" and len(said.text) > 8:
                break
    natural("completed", ask)


@test
def stop_string():
    with Server(**dict(SLOW, sim_step_us=100)) as s:
        text = native_said(s, Ask(seed=5, n=60)).text
    natural("stop string", Ask(seed=5, n=60, stop=text[len(text) // 2:][:3]))


@test
def stop_string_shown():
    """`include_stop_str_in_output`: the same tokens, counted the same, and the string itself."""
    with Server(**dict(SLOW, sim_step_us=100)) as s:
        stop = native_said(s, Ask(seed=5, n=60)).text[30:33]
        hidden, shown = (native_said(s, Ask(seed=5, n=60, stop=stop, **more))
                         for more in ({}, {"include_stop_str_in_output": True}))
        equal((shown.text, shown.finish, shown.usage), (hidden.text + stop, "stop", hidden.usage), "with it, and without")
    natural("stop string shown", Ask(seed=5, n=60, stop=stop, include_stop_str_in_output=True))


@test
def control_tokens_shown():
    """`skip_special_tokens` false: names of control tokens are text, in which stop strings are looked for."""
    often = {"logit_bias": {"258": 8}}  # of the small vocabulary: <|im_start|>
    ask = Ask(seed=3, n=100, skip_special_tokens=False, **often)
    cut = Ask(seed=3, n=100, skip_special_tokens=False, **often, stop="<|im_", include_stop_str_in_output=True)
    with Server(**dict(SLOW, sim_step_us=100)) as s:
        shown, hidden, said = (native_said(s, a) for a in (ask, Ask(seed=3, n=100, **often), cut))
    check(shown.text.count("<|im_start|>") > 5 and "<|" not in hidden.text, "shown and hidden", shown, hidden)
    equal(hidden.usage, shown.usage, "the same tokens")
    equal((said.text, said.finish), (shown.text[:shown.text.index("<|im_") + 5], "stop"), "a stop string in a name")
    natural("control tokens shown", ask)
    natural("stop string in a control token", cut)


@test
def many_and_long_stops():
    """As many and as long as may be: one of them occurs."""
    with Server(**dict(SLOW, sim_step_us=100)) as s:
        text = native_said(s, Ask(seed=5, n=600)).text
        long = text[20:400]
        stops = [chr(97 + i) * 3 + "#" * 1021 for i in range(15)]
        while len(long.encode()) < 1024:
            long += "?"  # never whole: it is held, and comes with the end
        stops.append(long[:1024].encode()[:1024].decode("utf-8", "ignore"))
        said = native_said(s, Ask(seed=5, n=300, stop=stops))
        equal((said.text, said.finish), (native_said(s, Ask(seed=5, n=300)).text, "length"), "held to the end")
    natural("many and long stops", Ask(seed=5, n=300, stop=stops))
    natural("many stops, one of them", Ask(seed=5, n=300, stop=stops[1:] + [text[50:60]]))


@test
def client_gone(make=Server):
    with make(SLOW) as s:
        ask = Ask(seed=7, n=ENDLESS)
        calls = open_all(s, ask, CELLS, "gone")
        together([c.begin for c in calls])
        check(until(lambda: s.metric("requests_running") == len(calls)), "all run", s.metrics())
        together([c.leave for c in calls])
        rows = rows_of(s, calls)
        for c, call in each(CELLS, calls):
            row = rows.get(call.rid, {})
            equal((row.get("status"), row.get("reason")), ("cancelled", "client_disconnected"), f"gone: {c}")
            check(0 < row.get("completion_tokens", 0) < ENDLESS, f"gone: {c}: counted", row)
        for call in calls:
            call.drop()
        check(s.idle(), "gone: nothing is left")


def cancelled(what, flags, end, code, n=ENDLESS, timeout=None, streamed=False, make=Server, **how):
    """All at work, then `end`; what was published until then differs, so only the ends are compared."""
    cells = [c for c in CELLS if c.dialect.streamed or not streamed]
    with make(dict(SLOW, **flags)) as s:
        calls = open_all(s, Ask(seed=9, n=n, timeout=timeout), cells, what, **how)
        if not timeout and not how:
            together([c.begin for c in calls])
            check(until(lambda: s.metric("requests_running") == len(calls)), f"{what}: all run", s.metrics())
        end(s, calls)
        together([c.read for c in calls])
        compare(s, what, cells, calls, counts=("status", "reason", "choices", "prompt_tokens"), text=False,
                cut=code is None)
        for c, call in each(cells, calls):
            if code and c.dialect.says_end:
                equal(call.said().code, c.dialect.codes.get(code, code), f"{what}: {c}")


@test
def cancelled_by_request(make=Server):
    def end(s, calls):
        for c in calls:
            r = s.ask("DELETE", f"/v1/streams/{c.stream_id}", None)
            check(r.status == 200 and r.json["completion_tokens"] > 0, "DELETE", r.text)
    cancelled("cancelled", {}, end, "cancelled", streamed=True, make=make)


@test
def deadline():
    cancelled("deadline", {}, lambda s, calls: None, "deadline_exceeded", timeout=0.5)


@test
def drained(make=Server):
    cancelled("drained", {"drain_s": 0.3}, lambda s, calls: s.child.send_signal(signal.SIGTERM), "drain_limit",
              make=make)


@test
def slow_client(make=Server):
    """Nothing could be written for --write-deadline-s."""
    def end(s, calls):
        rows_of(s, calls)
    cancelled("slow client", {"sim_step_us": 200, "write_deadline_s": 1, "stream_buffer": "4K"}, end, None,
              streamed=True, slow=True, make=make)


@test
def frontend_killed(make=Server):
    def end(s, calls):
        for pid in s.pids["frontend"]:
            os.kill(pid, signal.SIGKILL)
    cancelled("frontend killed", {}, end, None, make=make)


@test
def engine_killed(make=Server):
    """Nobody notices: the same text, usage and row as undisturbed."""
    ask = Ask(seed=11, n=200)
    with make(SLOW) as s:
        calls = open_all(s, ask, CELLS, "engine")
        together([c.begin for c in calls])
        os.kill(s.pids["engine"][0], signal.SIGKILL)
        together([c.read for c in calls])
        compare(s, "engine killed", CELLS, calls)
        want = native_said(s, ask)
        equal(calls[0].said().text, want.text, "engine killed: as undisturbed")


@test
def invalid():
    with Server(**SLOW) as s:
        calls = open_all(s, Ask(seed=1, n=5, temperature="hot"), CELLS, "invalid")
        together([c.read for c in calls])
        for c, call in each(CELLS, calls):
            equal((call.status, call.end), (400, "whole"), f"invalid: {c}")
            check(b"temperature" in call.body, f"invalid: {c}: the field is named", call.body)
            call.drop()
        equal(s.rows(), [], "invalid: nothing was admitted")


@test
def over_tls():
    """The same carriers, with TLS below them."""
    for ending in (length, client_gone, drained, frontend_killed):
        ending(TlsServer)


if __name__ == "__main__":
    make_files()
    main()
