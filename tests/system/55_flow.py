# SPDX-License-Identifier: Apache-2.0
"""Flow control: readers that do not read park their own requests within fixed bounds, lose nothing when
they read again, and take nothing from the others: no place in a step, no KV block somebody waits for."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
A, END = 97, 257  # of the small vocabulary
WINDOW, BUFFER = 256, 16 << 10
KERNEL = 2 * 4 * BUFFER + (16 << 10)  # what the service lets the kernel keep, and the reader's own


def narrow(server, body, path=COMP, rid=None, rcvbuf=4096):
    """A stream whose reader reads nothing for now."""
    return server.stream(path, dict(body, stream=True), rcvbuf=rcvbuf, wait=300,
                         headers=[f"X-Request-Id: {rid}"] if rid else [])


def widen(st):
    """4 KB at a time would wait for delayed acknowledgements."""
    st.conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)


def parked(server, n):
    return until(lambda: server.metric("requests_parked") == n, 120)


def free_text(seed, tokens, prompt="x", **kw):
    """Text that nobody can guess, so that a lost or repeated token shows."""
    return completion(prompt, seed=seed, temperature=1.0, ignore_eos=True, max_tokens=tokens, **kw)


def answer(st):
    return st.text(), st.finishes(), st.usage(), st.done, st.ended


@test
def nobody_reads():
    """2,000 tokens that nobody reads: parked within window and buffers, cancelled at the deadline."""
    with Server(TINY, write_deadline_s=6, sim_step_us=200) as s:
        body = force(A, prompt="x", max_tokens=2000)
        event = len(s.stream(COMP, dict(body, max_tokens=2, stream=True)).rest().chunks[0]) + 8
        bound = WINDOW + (BUFFER + KERNEL) // event + 2
        st = narrow(s, body, rid="nobody")
        check(parked(s, 1), "parked", s.metrics())
        pending = s.metric('buffered_bytes{layer="pending"}')
        # A frontend tells its gauges at its own pace.
        kernel = until(lambda: s.metric('buffered_bytes{layer="kernel"}'))
        check(pending <= BUFFER + event, "unsent bytes are bounded", pending)
        check(0 < kernel <= KERNEL, "so are the kernel's", kernel)
        row = s.row("nobody", 120)
        check(row and (row["status"], row["reason"]) == ("cancelled", "slow_client"), "the row", row)
        check(row and WINDOW <= row["completion_tokens"] <= bound < 2000,
              "decoded: window and buffers, no more", row and row["completion_tokens"], bound)
        check(s.idle(), "nothing is left of it")
        st.close()


@test
def nothing_to_read():
    """Clocks of slow readers run while bytes wait, and not while there are none."""
    with Server(TINY, write_deadline_s=0.5, min_drain_bps=10 ** 9, sim_step_us=1000) as s:
        streams = [s.stream(path, dict(force(A, max_tokens=60, stream=True), **body)).read(3)
                   for path, body in ((COMP, {"prompt": "x"}), (CHAT, {"messages": chat("x")["messages"]}))]
        os.kill(s.pids["engine"][0], signal.SIGSTOP)
        time.sleep(2)
        os.kill(s.pids["engine"][0], signal.SIGCONT)
        for st in streams:
            equal(st.rest().finishes(), ["length"], "a silent engine is not a slow reader")


@test
def read_again():
    """A reader that reads again gets what an undisturbed one gets, byte for byte, in order."""
    with Server(TINY, write_deadline_s=0, sim_step_us=200) as s:
        for path, more in ((COMP, {}), (COMP, {"logprobs": 3}), (COMP, {"n": 2}), (NATIVE, {})):
            ask = free_text(11, 1200, **more)
            if path == NATIVE:
                out = []
                for slow in (False, True):
                    with contextlib.closing(s.conn(rcvbuf=4096 if slow else 0, wait=300)) as c:
                        c.send(request("POST", NATIVE, ask))
                        if slow:
                            check(parked(s, 1), "native: parked")
                            c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                        ev = native_events(c.response().body)
                    numbers = [int(i.rsplit(":", 1)[1]) for i, t, _ in ev if i and "prefill" not in t
                               and "queued" not in t]
                    check(numbers == sorted(set(numbers)), "native: numbers rise", numbers[:5])
                    out.append(("".join(e["text"] for _, t, e in ev if t == "output_text.delta"),
                                sum(e["tokens"] for _, t, e in ev if t == "output_text.delta"),
                                ev[-1][1], numbers[-1]))
                equal(out[1], out[0], "native: text, tokens, end and last number")
                continue
            ask["stream_options"] = {"include_usage": True}
            quick = s.stream(path, dict(ask, stream=True)).rest()
            slow = narrow(s, ask)
            check(parked(s, more.get("n", 1)), f"{more}: parked", s.metric("requests_parked"))
            widen(slow)
            slow.rest()
            for k in range(more.get("n", 1)):
                check(slow.text(k) == quick.text(k) and slow.finishes(k) == quick.finishes(k),
                      f"{more}: the same text [{k}]", len(slow.text(k)), len(quick.text(k)))
            check(slow.usage() == quick.usage() and slow.done == 1 and slow.ended, f"{more}: the same end")
            if "logprobs" in more:
                entries = [[x for e in st.events for c in e["choices"] if c["logprobs"]
                            for x in c["logprobs"]["token_logprobs"]] for st in (quick, slow)]
                check(entries[0] == entries[1] and len(entries[0]) == 1200, "the same log-probabilities",
                      len(entries[0]), len(entries[1]))
            check(len(slow.events) < len(quick.events), f"{more}: what had to wait came in fewer events")
        check(s.idle(), "idle")


@test
def tokens_without_text():
    """Entries of tokens that show nothing are bounded as text is."""
    with Server(TINY, write_deadline_s=0, sim_step_us=100) as s:
        st = narrow(s, force(END, prompt="x", max_tokens=2500, ignore_eos=True, logprobs=5))
        check(parked(s, 1), "parked", s.metrics())
        pending = s.metric('buffered_bytes{layer="pending"}')
        check(pending <= BUFFER + (64 << 10), "unsent bytes are bounded", pending)
        widen(st)
        st.rest()
        n = sum(len(c["logprobs"]["tokens"]) for e in st.events for c in e["choices"] if c["logprobs"])
        equal((n, st.finishes()), (2500, ["length"]), "every entry comes")


@test
def parked_kv_is_taken_and_made_again():
    """KV of parked requests goes to a waiting one; what they say afterwards is the same."""
    with Server(TINY, max_seqs=8, kv_memory=128 * 300, write_deadline_s=0, sim_step_us=300) as s:
        asks = [free_text(20 + i, 1200, prompt=[70 + i] * 1500) for i in range(4)]
        want = [text_of(s.post(COMP, a)) for a in asks]
        slow = [narrow(s, a) for a in asks]
        check(parked(s, 4), "four are parked", s.metrics())
        used = s.metric('kv_blocks{state="used"}')
        rows = s.metric("step_rows_total")
        big = s.post(COMP, force(A, prompt=[90] * 7000, max_tokens=20), wait=300)
        check(big.status == 200 and text_of(big) == "a" * 20, "a large prompt is served meanwhile",
              big.status, big.text[:200])
        check(until(lambda: s.metric('kv_blocks{state="used"}') < used), "with the blocks of parked ones", used)
        for st in slow:
            widen(st)
        together([st.rest for st in slow])
        check([st.text() for st in slow] == want, "then they go on, byte for byte the same",
              [len(st.text()) for st in slow])
        again = s.metric("step_rows_total") - rows - 7020
        check(again > 4 * 1200 / 2 + 1500, "some prompts were computed again", again)
        check(s.idle(), "idle")


@test
def parked_ones_take_no_place():
    """Nine times as many parked as may run: good ones all run at once, as if they were alone."""
    good, bad = 4, 36
    with Server(TINY, max_seqs=good, max_queue=64, max_streams=128, write_deadline_s=0, sim_step_us=500) as s:
        slow = [narrow(s, force(A, prompt="x", max_tokens=4000, logprobs=5)) for _ in range(bad)]
        check(parked(s, bad), "all slow ones are parked", s.metric("requests_parked"))
        ask = free_text(5, 400)
        os.kill(s.pids["engine"][0], signal.SIGSTOP)  # so that it finds all of them at once
        try:
            streams = [s.stream(COMP, dict(ask, stream=True), headers=[f"X-Request-Id: good-{i}"])
                       for i in range(good)]
            equal([st.headers() for st in streams], [200] * good, "good ones are admitted")
        finally:
            os.kill(s.pids["engine"][0], signal.SIGCONT)
        together([st.rest for st in streams])
        check(len({st.text() for st in streams}) == 1 and streams[0].finishes() == ["length"],
              "and end well", [len(st.text()) for st in streams])
        rows = [s.row(f"good-{i}") for i in range(good)]
        check(all(rows) and max(r["first_token_at"] for r in rows) < min(r["finished_at"] for r in rows),
              "all good ones ran at once", rows)
        equal(s.metric("requests_parked"), bad, "nobody else moved")
        # Nor do they count against what may wait: max_seqs + max_queue are still to be had.
        queue = [s.stream(COMP, dict(ask, stream=True)) for _ in range(good + 64)]
        equal({st.headers() for st in queue}, {200}, "the queue has its full length")
        for st in queue + slow:
            st.conn.reset()
        check(s.idle(), "idle")


@test
def parked_ones_come_first():
    """One that was parked and whose reader has caught up goes before those that wait."""
    with Server(TINY, max_seqs=1, write_deadline_s=0, sim_step_us=1000) as s:
        ask = force(A, prompt="x", logprobs=5)
        first = narrow(s, dict(ask, max_tokens=4000))
        check(parked(s, 1), "the first is parked")
        length = int(s.metric("published_tokens_total")) + 100  # not enough to be parked a second time
        first.conn.reset()
        check(s.idle(), "and gone")
        a = narrow(s, dict(ask, max_tokens=length), rid="a")
        check(parked(s, 1), "a is parked")
        b = s.conn()  # not streamed, so that nobody can be behind
        b.send(request("POST", COMP, force(A, prompt="x", max_tokens=8000)))
        check(until(lambda: s.metric("requests_running") == 1), "b has the only place")
        c = s.stream(COMP, force(A, prompt="x", max_tokens=5, stream=True), headers=["X-Request-Id: c"])
        equal(c.headers(), 200, "c is admitted")
        check(until(lambda: s.metric("requests_waiting") == 1), "c waits")
        widen(a)
        reader = threading.Thread(target=a.rest, daemon=True)
        reader.start()

        def caught_up():
            m = s.metrics()
            return not any(m[f'buffered_bytes{{layer="{x}"}}'] for x in ("ring", "pending", "kernel"))
        check(until(caught_up), "a has caught up", s.metrics())
        passes = s.metric("step_seconds_count")
        check(until(lambda: s.metric("step_seconds_count") > passes + 2), "which the engine has seen")
        check(s.metric("requests_running") == 1 and s.metric("requests_parked") == 1, "b still has the place")
        b.reset()
        c.rest()
        reader.join(WAIT)
        rows = {x: s.row(x) for x in "ac"}
        check(a.text() == "a" * length and rows["a"] and rows["c"] and
              rows["a"]["finished_at"] <= rows["c"]["first_token_at"], "a before c", rows)


if __name__ == "__main__":
    main()
