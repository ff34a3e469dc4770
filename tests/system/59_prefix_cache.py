# SPDX-License-Identifier: Apache-2.0
"""--prefix-cache: the same answers from the cache and without, counts that tell what was spared, and a
pool that is never stuck with what it keeps."""
from lib import *

COMP, CHAT = "/v1/completions", "/v1/chat/completions"
BLOCK = 32
WORDS = list(range(1000, 1400))  # token ids of the real model


def ask(s, path, body, rid=None):
    c = s.conn()
    c.send(request("POST", path, body, [f"X-Request-Id: {rid}"] if rid else []))
    r = c.response()
    c.close()
    check(r.status == 200, "an answer", r.status, r.text)
    return r.json


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def plain(answer):
    return json.dumps([answer["choices"], answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]])


def prompts():
    """B21: one less, one more and exactly some blocks; the same with another second half."""
    out = [WORDS[:n] for n in (1, BLOCK, 5 * BLOCK - 1, 5 * BLOCK, 5 * BLOCK + 1)]
    return out + [WORDS[:80] + WORDS[200:280]]


@test
def the_same_answers():
    want, tokens = [], 32 if LONG else 8
    body = dict(model=MODEL, max_tokens=tokens, temperature=0, logprobs=5)
    with Server(REAL, ctx_size=512, prefix_cache="off") as s:
        for p in prompts():
            a = ask(s, COMP, dict(body, prompt=p))
            equal(cached(a), 0, "off: nothing is cached")
            want.append(plain(a))
        equal(s.metric('kv_blocks{state="cached"}'), 0, "off: nothing is kept")
    with Server(REAL, ctx_size=512) as s:
        for i, p in enumerate(prompts()):
            for round in range(4):
                rid = f"same-{i}-{round}"
                a = ask(s, COMP, dict(body, prompt=p), rid)
                equal(plain(a), want[i], f"{rid}: the answer without a cache")
                most = (len(p) - 1) // BLOCK * BLOCK
                check(cached(a) == most if round else cached(a) <= most, f"{rid}: cached", cached(a), most)
                row = s.row(rid)
                check(row and row["cached_tokens"] == cached(a) and row["prompt_tokens"] == len(p),
                      f"{rid}: the ledger says so, too", row)
        half = ask(s, COMP, dict(body, prompt=WORDS[:70] + WORDS[300:350]))
        equal(cached(half), 64, "a prompt that shares two blocks takes two")
        m = s.metrics()
        equal(m["prefix_cache_hits_total"], m['tokens_total{kind="cached"}'], "hits are what usage says")
        check(m["prefix_cache_queries_total"] == m['tokens_total{kind="prompt"}'], "all prompts were looked up",
              m["prefix_cache_queries_total"])
        check(s.idle(), "nothing is held")


@test
def a_chat():
    """Each turn computes what is new: the answer before it is in the cache as well."""
    talk = [{"role": "user", "content": "Tell me about rivers, " + "and the sea, " * 60}]
    with Server(REAL, ctx_size=1024) as s:
        before = 0
        for turn in range(3):
            rows = s.metric("step_prompt_rows_total")
            a = ask(s, CHAT, dict(model=MODEL, messages=talk, max_tokens=40, temperature=0, ignore_eos=True))
            u = a["usage"]
            if turn:
                check(cached(a) > before - BLOCK, f"turn {turn}: all of the last one's prompt", u, before)
                check(s.metric("step_prompt_rows_total") - rows <= u["prompt_tokens"] - cached(a),
                      f"turn {turn}: no other row was computed", s.metric("step_prompt_rows_total") - rows, u)
            before = u["prompt_tokens"]
            talk.append({"role": "assistant", "content": text_of_answer(a)})
            talk.append({"role": "user", "content": f"And then? ({turn})"})
        # A stream reports the same as a whole answer, and the chunk before the end has it.
        st = s.stream(CHAT, dict(model=MODEL, messages=talk[:-2], max_tokens=2, stream=True,
                                 stream_options={"include_usage": True})).rest()
        got = st.usage()["prompt_tokens_details"]["cached_tokens"]
        equal(got, (st.usage()["prompt_tokens"] - 1) // BLOCK * BLOCK, "a stream's usage")
        check(s.idle(), "nothing is held")


def text_of_answer(a):
    return a["choices"][0]["message"]["content"]


@test
def choices():
    with Server(TINY, max_seqs=8, sim_step_us=2000) as s:
        p = [70 + i % 40 for i in range(300)]
        rows = s.metric("step_rows_total")
        a = ask(s, COMP, dict(model=MODEL, prompt=p, n=4, max_tokens=5, ignore_eos=True, seed=1))
        equal(len(a["choices"]), 4, "four choices")
        equal(a["usage"]["prompt_tokens"], 300, "one prompt")
        equal(cached(a), 0, "which was computed")
        equal(s.metric("step_rows_total") - rows, 300 + 3 * (300 - 288) + 4 * 4, "once")
        a = ask(s, COMP, dict(model=MODEL, prompt=p, n=4, max_tokens=5, ignore_eos=True, seed=1))
        equal(cached(a), 288, "one of them is billed")


@test
def aborts():
    """B23 (a)"""
    with Server(TINY, max_seqs=8, sim_step_us=500, sim_prefill_us=100, kv_memory="64K") as s:
        free = s.kv_free()
        rnd = random.Random(3)
        for i in range(300 if LONG else 60):
            p = [70 + (i * 7 + k * (i % 5 + 1)) % 60 for k in range(500)]
            st = s.stream(COMP, dict(model=MODEL, prompt=p, max_tokens=400, ignore_eos=True, stream=True))
            time.sleep(rnd.random() * (0.4 if LONG else 0.1))
            st.conn.reset()
        check(s.idle(), "nothing is held")
        equal(s.kv_free(), free, "free and cached blocks")
        check(s.metric('kv_blocks{state="cached"}') > 0, "some of them are kept")
        s.alive("aborts", None)


@test
def a_pool_full_of_cached_blocks():
    """B23 (b)"""
    with Server(TINY, ctx_size=2560, max_seqs=4, sim_step_us=0, kv_memory="48K") as s:
        m = s.metrics()
        blocks = m['kv_blocks{state="free"}']
        for i in range(int(3 * blocks / 16) + 1):
            p = [70 + (i + k * (i % 7 + 1)) % 60 for k in range(500)]
            p[0], p[1] = 70 + i % 60, 70 + i // 60
            ask(s, COMP, dict(model=MODEL, prompt=p, max_tokens=1))
        check(s.metric('kv_blocks{state="free"}') <= 1, "the pool is full", s.metrics()['kv_blocks{state="free"}'])

        def long(k):
            return ask(s, COMP, dict(model=MODEL, prompt=[80 + k] * 40, max_tokens=2000, ignore_eos=True,
                                     temperature=1, seed=k))
        for a in together([lambda k=k: long(k) for k in range(4)]):
            equal((a["usage"]["completion_tokens"], a["choices"][0]["finish_reason"]), (2000, "length"), "a long answer")
            equal(s.get("/health").status, 200, "healthy")
        check(s.idle(), "nothing is held")
        equal(s.kv_free(), blocks, "free and cached blocks")


@test
def after_an_engine_died():
    with Server(TINY, max_seqs=4, sim_step_us=2000, ctx_size=1024) as s:
        p = [70 + i % 50 for i in range(300)]
        body = dict(model=MODEL, prompt=p, max_tokens=200, ignore_eos=True, temperature=0)
        want = ask(s, COMP, body)
        st = s.stream(COMP, dict(body, stream=True, stream_options={"include_usage": True})).read(20)
        os.kill(s.pids["engine"][0], signal.SIGKILL)
        st.rest()
        equal(st.text(), want["choices"][0]["text"], "the same answer")
        equal(st.usage()["prompt_tokens_details"]["cached_tokens"], 288, "what the first one was spared")
        again = ask(s, COMP, body)
        check(cached(again) in (0, 288), "an empty cache, or what the stream has left", cached(again))
        equal(again["choices"], want["choices"], "and the same once more")


main()
