# SPDX-License-Identifier: Apache-2.0
"""Who is served when: prompts beside streams, short prompts beside long ones, priorities, an engine that dies
under load.  All by counts of steps and by the order in which things came, nothing by the clock."""
from lib import *

COMP = "/v1/completions"
AB = 65  # a token of the small vocabulary that is text
LONG_PROMPT = [81] * 6000


def forced(n, prompt="x", **kw):
    return force(AB, prompt=prompt, max_tokens=n, ignore_eos=True, stream=True, **kw)


def steps(s):
    return s.metrics()["step_seconds_count"]


@contextlib.contextmanager
def standing(s):
    """The engine stands still: what is sent meanwhile it finds all at once, in the order of the one queue of
    the one frontend."""
    pid = s.pids["engine"][0]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def ask(s, body, name):
    q = s.stream(COMP, body, headers=[f"X-Request-Id: {name}"])
    equal(q.headers(), 200, f"{name} is admitted")
    return q


def began(s, n):
    """Requests in the order of their first tokens, by the engine's clock, once all n have ended."""
    check(until(lambda: len(s.rows()) == n), f"{n} records")
    return [r["request_id"] for r in sorted(s.rows(), key=lambda r: r["first_token_at"])]


def in_background(stream):
    t = threading.Thread(target=stream.rest, daemon=True)
    t.start()
    return t


@test
def a_stream_has_a_token_in_each_step_whatever_prompts_come():
    """Case B32 without a clock: a gap is a step."""
    with Server(TINY, frontends=1, sim_step_us=1000, sim_prefill_us=20, itl_target_ms=20, prefix_cache="off") as s:
        a = s.stream(COMP, forced(1500)).read(5)
        seen, begun = len(a.events), steps(s)
        with standing(s):
            longs = [ask(s, forced(4, prompt=LONG_PROMPT), f"long {k}") for k in range(3)]
        reader = in_background(a)
        for q in longs:
            q.rest()
        made = steps(s) - begun
        check(until(lambda: len(a.events) - seen >= made - 5), "a token in each step",
              len(a.events) - seen, made)
        check(made >= 3 * 6000 * 20 // 20000, "the prompts were cut by time", made)
        m = s.metrics()
        check(m["step_prompt_rows_total"] >= 18000, "rows of prompts are counted", m["step_prompt_rows_total"])
        equal(m["step_predicted_seconds_count"], m["step_seconds_count"], "each step was predicted")
        reader.join(WAIT)
        equal(len(a.text()), 1500, "the stream is whole")


@test
def a_short_prompt_passes_a_long_one_that_came_before():
    with Server(TINY, frontends=1, sim_step_us=1000, sim_prefill_us=50) as s:
        with standing(s):
            qs = [ask(s, forced(2, prompt=LONG_PROMPT), "long"), ask(s, forced(2, prompt=[81] * 900), "middle"),
                  ask(s, forced(2), "short")]
        for q in qs:
            equal(q.rest().finishes(), ["length"], "whole")
        equal(began(s, 3), ["short", "middle", "long"], "the order of their first tokens")


@test
def without_chunks_a_prompt_is_one_step():
    with Server(TINY, sim_step_us=1000, sim_prefill_us=10, prefill_chunk=0, itl_target_ms=5) as s:
        before = steps(s)
        equal(s.post(COMP, completion(LONG_PROMPT, max_tokens=1, ignore_eos=True)).status, 200, "an answer")
        equal(steps(s) - before, 1, "one step")


@test
def the_lower_number_goes_first():
    """One place: whoever waits comes in by priority, then by age."""
    with Server(TINY, frontends=1, max_seqs=1, sim_step_us=1000) as s:
        with standing(s):
            qs = [ask(s, forced(3, priority=priority), name)
                  for name, priority in (("low", 7), ("a", 0), ("b", 0), ("high", -7))]
            native = s.conn()
            native.send(request("POST", "/v1/streams", forced(3, priority=-9), ["X-Request-Id: native"]))
            equal(native.head()[0], 200, "a native stream takes it too")
        for q in qs:
            q.rest()
        while native.chunk():
            pass
        equal(began(s, 5), ["native", "high", "a", "b", "low"], "the order of their first tokens")
        native.close()
        r = s.post(COMP, completion("x", priority=40000))
        check(is_error(r, 400, "priority"), "out of range", r.status, r.text)
        r = s.post(COMP, completion("x", priority="high"))
        check(is_error(r, 400, "priority"), "not a number", r.status, r.text)


@test
def recovery_is_cut_by_the_same_time():
    """An engine dies with long prompts in its KV: the next one reads them again in pieces, and a stream has
    its token in each step once it is back."""
    with Server(TINY, sim_step_us=1000, sim_prefill_us=50, itl_target_ms=20, kv_memory="4M") as s:
        longs = [s.stream(COMP, forced(400, prompt=LONG_PROMPT)).read(2) for _ in range(3)]
        os.kill(s.pids["engine"][0], signal.SIGKILL)
        check(until(lambda: s.metrics()['process_restarts_total{role="engine"}'] == 1), "it was replaced")
        texts = [q.rest().text() for q in longs]
        equal([len(t) for t in texts], [400] * 3, "every answer is whole")
        m = s.metrics()
        most = m['step_with_prompt_seconds_bucket{le="+Inf"}']
        check(most >= 3 * 6000 * 50 // 250000, "in many steps", most)
        equal(m["preemptions_total"], 0, "nobody was put back")


@test
def who_is_put_back_makes_a_token_before_the_next_time():
    """A pool for one and a half: all end, and there are fewer preemptions than tokens."""
    with Server(TINY, sim_step_us=0, max_seqs=8, kv_memory="6K", ctx_size=512) as s:
        with standing(s):
            qs = [ask(s, forced(300, prompt=[81] * (20 + 25 * k), priority=k % 3), k) for k in range(8)]
        readers = [in_background(q) for q in qs]
        for t in readers:
            t.join(WAIT)
        equal([len(q.text()) for q in qs], [300] * 8, "all are whole")
        m = s.metrics()
        check(0 < m["preemptions_total"] < m["published_tokens_total"], "some were put back, none without end",
              m["preemptions_total"])


main()
