# SPDX-License-Identifier: Apache-2.0
"""Faults met in the field, on the real model where it matters: characters in pieces, determinism in a
crowd, long prompts beside streams, overload, KV memory, request ids, deaths under the real engine."""
from lib import *

CHAT, COMP, NATIVE = "/v1/chat/completions", "/v1/completions", "/v1/streams"
AB, E_ACUTE = 369, 2756
R = None
# Where a sanitizer makes computing take minutes, the same paths are walked with sim.
test_of_the_product = (lambda fn: fn) if SANITIZED else test


@test_of_the_product
def emoji_on_the_model():
    """Case B12: for each length the stream is whole characters, and one text is the next's prefix."""
    body = completion("😀" * 20, temperature=0, ignore_eos=True)
    last = ""
    for k in range(1, 10):
        st = R.stream(COMP, dict(body, max_tokens=k, stream=True,
                                 stream_options={"include_usage": True})).rest()
        r = R.post(COMP, dict(body, max_tokens=k))
        t = st.text()
        check(t == text_of(r), f"k={k}: deltas joined are the text", t, r.text)
        equal((st.usage()["completion_tokens"], st.usage()["prompt_tokens"]), (k, 60), f"k={k}: usage")
        check(t.count("\ufffd") <= 1 and ("\ufffd" not in t or t.endswith("\ufffd")),
              f"k={k}: U+FFFD at most once, at the end", t)
        check(t.rstrip("\ufffd").startswith(last), f"k={k}: the shorter text is a prefix", last, t)
        last = t.rstrip("\ufffd")
    check("😀" in last, "the model goes on with the pattern", last)


@test
def model_answers():
    """The real model speaks, stops by itself, and says the same streamed, whole and natively."""
    ask = chat("What is the capital of France? Answer with one word.", temperature=0, max_tokens=24)
    r = R.post(CHAT, ask)
    check(r.status == 200 and "Paris" in text_of(r), "the capital of France", r.text)
    st = R.stream(CHAT, dict(ask, stream=True)).rest()
    equal(st.text(), text_of(r), "the same streamed")
    ev = native_events(R.post(NATIVE, ask).body)
    equal("".join(e["text"] for _, t, e in ev if t == "output_text.delta"), text_of(r), "natively")
    for prompt in ("def add(a, b):\n    ", "1. apples\n2. ", "日本の首都は", '"To be, or not to be, '):
        body = completion(prompt, temperature=0, max_tokens=16)
        st = R.stream(COMP, dict(body, stream=True)).rest()
        equal(st.text(), text_of(R.post(COMP, body)), f"{prompt!r}: stream and whole")
    r = R.post(COMP, completion("The sky is", temperature=0, max_tokens=3, logprobs=3))
    lp = r.json["choices"][0]["logprobs"]
    check(all(x <= 0 for x in lp["token_logprobs"]) and
          all(t[k] >= x - 1e-5 for t, k, x in zip(lp["top_logprobs"], lp["tokens"],
                                                  lp["token_logprobs"])),
          "greedy tokens are the most probable", lp)


@test_of_the_product
def temperatures_on_the_model():
    """Case B51 with real logits: a tiny temperature is greedy, and its neighbours do not notice."""
    ban = {"logit_bias": {"28": -100, "30": -100, "198": -100}, "ignore_eos": True, "max_tokens": 6}
    greedy = completion("The sea is", temperature=0, **ban)
    want = text_of(R.post(COMP, greedy))
    for t in ("1e-4", "1e-38", "5e-324", "-0.0"):
        tiny = json.dumps(completion("The sea is", **ban))[:-1] + f',"temperature":{t}}}'
        got = together([lambda tiny=tiny: text_of(R.post(COMP, tiny.encode()))] +
                       [lambda: text_of(R.post(COMP, greedy))] * 3)
        equal(got, [want] * 4, f"temperature {t}")


@test_of_the_product
def crowd_on_the_model():
    """P10 on the real engine: 32 streams in parallel, each with the text it has alone."""
    words = ["sea", "fire", "stone", "cloud", "river", "music", "bread", "light"]

    def body(i):
        kw = dict(temperature=0) if i % 2 else dict(temperature=1.0, top_p=0.95, seed=i)
        return chat(f"Write about the {words[i % 8]} ({i}).", max_tokens=10, ignore_eos=True, **kw)

    n = 32
    alone = [text_of(R.post(CHAT, body(i))) for i in range(n)]
    crowd = together([lambda i=i: R.stream(CHAT, dict(body(i), stream=True), wait=600).rest().text()
                      for i in range(n)], 900)
    wrong = [i for i in range(n) if crowd[i] != alone[i]]
    check(not wrong, "each as alone", wrong, [(alone[i], crowd[i]) for i in wrong[:2]])


@test
def cancels_on_the_model():
    """Case B01 and B23 on the real engine: closes in prefill and decode give every block back."""
    free = R.kv_free()
    rnd = random.Random(5)
    before = R.metrics()

    def one(i):
        c = R.conn()
        c.send(request("POST", COMP, completion([81 + i] * rnd.choice([5, longer]), max_tokens=400,
                                                stream=True, ignore_eos=True)))
        if i % 2:
            with contextlib.suppress(EOFError, ConnectionResetError):
                c.head()
                c.chunk()
        time.sleep(rnd.random() * 0.3)
        (c.reset if i % 3 else c.close)()

    clients, longer = (8, 150) if SANITIZED else (16, 600)
    together([lambda i=i: one(i) for i in range(clients)])
    check(R.idle(), "nothing runs", R.metrics())
    equal(R.kv_free(), free, "KV blocks are back")
    after = R.metrics()
    check(after["tokens_after_disconnect_total"] - before["tokens_after_disconnect_total"] <= 2 * clients,
          "at most the step in flight was decoded after each close")
    R.alive("cancels on the model")


@test_of_the_product
def engine_death_on_the_model():
    """Case B07 with weights: a new engine loads and goes on where the last one was, byte for byte."""
    asks = [completion("Once upon a time", max_tokens=40, ignore_eos=True, **kw)
            for kw in ({"temperature": 0}, {"temperature": 1, "seed": 7, "frequency_penalty": 0.5})]
    want = [text_of(R.post(COMP, a)) for a in asks]
    old = R.processes()["engine"]
    streams = [R.stream(COMP, dict(a, stream=True)).read(2) for a in asks]
    whole = R.conn()
    whole.send(request("POST", COMP, asks[0]))
    os.kill(old[0], signal.SIGKILL)
    for st, text in zip(streams, want):
        st.rest()
        equal((st.text(), st.finishes(), st.done), (text, ["length"], 1), "the stream is whole")
    equal(text_of(whole.response()), want[0], "and so is an answer that is not streamed")
    R.pids = R.processes()
    check(R.pids["engine"] != old, "by another engine")
    equal(text_of(R.post(COMP, asks[1])), want[1], "which says the same from the start")


@test
def long_prompts_beside_a_stream():
    """Case B32: while long prompts are read in chunks, a running stream gets a token in each step."""
    with Server(sim_step_us=2000, sim_prefill_us=100, prefill_chunk=256, prefix_cache="off") as s:
        b_body = completion([81] * 7000, temperature=0, max_tokens=8, ignore_eos=True)
        alone = text_of(s.post(COMP, b_body))
        for n in (1, 4):
            a = s.stream(COMP, force(AB, prompt="x", max_tokens=2000, stream=True)).read(20)
            steps0, seen0 = s.metrics()["step_seconds_count"], None
            bs = [s.stream(COMP, dict(b_body, stream=True)) for _ in range(n)]
            for b in bs:
                b.headers()
            seen0 = len(a.text()) / 2
            drained = threading.Event()

            def reader(a=a, drained=drained):
                while not drained.is_set() and not a.ended:
                    a.next()
            t = threading.Thread(target=reader, daemon=True)
            t.start()
            for b in bs:
                b.rest()
            steps = s.metrics()["step_seconds_count"] - steps0
            until(lambda: len(a.text()) / 2 >= steps)  # what is still on its way
            drained.set()
            t.join(WAIT)
            # 27 chunks for each prompt; what came before the steps were counted is not its due.
            check(steps >= 27 * n and len(a.text()) / 2 - seen0 >= steps - 25,
                  f"{n} long prompts: a token in each step", len(a.text()) / 2 - seen0, steps)
            check(all(b.text() == alone for b in bs), f"{n} long prompts: the text as alone")
            a.close()
            check(s.idle(), "idle")


@test
def overload():
    """Case B67: exactly as many as may run and wait; the rest is refused at once, with Retry-After."""
    with Server(max_seqs=4, max_queue=16, sim_step_us=10000) as s:
        def forced(n):
            return s.stream(COMP, force(AB, prompt="x", max_tokens=n, stream=True))
        hold = [forced(300) for _ in range(4)]  # for 3 s
        check(until(lambda: s.metrics()["requests_running"] == 4), "4 run")
        hold += [forced(20) for _ in range(16)]
        equal([st.headers() for st in hold], [200] * 20, "4 run and 16 wait")
        check(until(lambda: s.metrics()["requests_waiting"] == 16), "16 wait", s.metrics()["requests_waiting"])
        equal(s.metrics()["requests_running"], 4, "beside 4")
        before = sum(rss(p) for p in s.all_pids())
        big = "word " * 6500
        os.kill(s.pids["engine"][0], signal.SIGSTOP)  # however long they take, no place comes free
        try:
            statuses = together([lambda i=i: s.post(COMP, completion(big, max_tokens=5,
                                                                    stream=bool(i % 2)))
                                 for i in range(180)])
        finally:
            os.kill(s.pids["engine"][0], signal.SIGCONT)
        bad = [r for r in statuses if isinstance(r, Exception) or not (
            is_error(r, 503, code="engine_overloaded") and r.header("retry-after"))]
        check(not bad, "the rest: 503 JSON with Retry-After",
              [(getattr(b, "status", b), getattr(b, "text", "")) for b in bad[:2]])
        grown = sum(rss(p) for p in s.all_pids()) - before
        check(grown < 64 << 20 or SANITIZED, "memory does not follow refused requests", grown)
        for st in hold:
            st.rest()
        check(all(st.text() == "ab" * (300 if i < 4 else 20) and st.done == 1 for i, st in enumerate(hold)),
              "accepted ones finish right")
        equal(s.post(COMP, completion("x", max_tokens=1)).status, 200, "then it serves at once")
        equal(len(s.rows()), 21, "no row for refused ones")
        equal(s.metrics()['requests_refused_total{reason="overloaded"}'], 180, "refusals are counted")


@test
def overload_goes_on():
    """Case B67: 50 long prompts a second, which are more than it can do: each is answered right or refused
    at once, memory and the queue stay as they are, and when the load ends it serves at once."""
    seconds, rate = (60, 50) if LONG else (4, 30 if SANITIZED else 50)
    with Server(max_seqs=4, max_queue=16, sim_step_us=5000, prefix_cache="off") as s:
        big = "word " * 6500
        want = token_count(s, big)
        seen, lock, most = {"right": 0, "refused": 0, "odd": []}, threading.Lock(), [0, 0]

        def one(i):
            body = force(AB, prompt=big, max_tokens=5, stream=bool(i % 2))
            try:
                if i % 2:
                    st = s.stream(COMP, body).rest()
                    r, good = st.response, st.status == 200 and (st.text(), st.done) == ("ab" * 5, 1)
                    st.close()
                else:
                    r = s.post(COMP, body)
                    good = r.status == 200 and text_of(r) == "ab" * 5 and r.json["usage"]["prompt_tokens"] == want
                kind = "right" if good else "refused" if is_error(r, 503, code="engine_overloaded") and \
                    r.header("retry-after") else "odd"
            except Exception as e:
                kind, r = "odd", e
            with lock:
                seen[kind] = seen[kind] + (1 if kind != "odd" else [getattr(r, "text", repr(r))])

        def size():
            return sum(rss(p) for p in s.all_pids())
        threads, middle, begin = [], 0, time.monotonic()
        for i in range(seconds * rate):
            time.sleep(max(0.0, begin + i / rate - time.monotonic()))
            threads.append(threading.Thread(target=one, args=(i,), daemon=True))
            threads[-1].start()
            if i % 20 == 0:
                m = s.metrics()
                running, waiting = m["requests_running"], m["requests_waiting"]
                most = [max(most[0], running), max(most[1], running + waiting)]
            if i == seconds * rate // 2:
                middle = size()
        end = size()
        for t in threads:
            t.join(WAIT)
        check(not any(t.is_alive() for t in threads) and not seen["odd"], "each is right or refused",
              len(seen["odd"]), seen["odd"][:2])
        check(seen["right"] >= 20 and seen["refused"] > 0 and most[0] <= 4 and most[1] <= 20,
              "never more than may run and wait", seen, most)
        check(end - middle < 32 << 20 or SANITIZED, "memory does not follow the load", middle, end)
        check(s.idle(), "idle afterwards")
        s.alive("after the load")
        rows = [r for r in s.rows() if r["completion_tokens"] == 5]
        equal((len(s.rows()), len(rows)), (seen["right"] + 1, seen["right"]), "rows for what was served only")
        equal(sum(r["prompt_tokens"] for r in rows), seen["right"] * want, "and its tokens")
        print(f"    {seconds} s of {rate}/s: {seen['right']} served, {seen['refused']} refused, "
              f"memory {(end - middle) / 1e6:+.1f} MB in the second half")


def token_count(s, text):
    return s.post("/tokenize", {"prompt": text}).json["count"]


@test
def kv_memory():
    """Case B23: aborted and finished prompts give their blocks back; a full pool does not wedge."""
    with Server(kv_memory=128 * 600, max_seqs=16, sim_step_us=500) as s:
        free = s.kv_free()
        equal(free, 600, "blocks of the pool")
        rnd = random.Random(11)

        def aborted(i):
            with contextlib.suppress(OSError, EOFError):
                c = s.conn()
                c.send(request("POST", COMP, completion([100 + i] * 500, max_tokens=500, stream=True)))
                time.sleep(rnd.random() * 0.4)
                c.reset()

        for turn in range(6):
            together([lambda i=i: aborted(50 * turn + i) for i in range(50)])
        check(s.idle(), "idle after 300 aborted prompts")
        equal(s.kv_free(), free, "every block is back")
        stop, still, health = threading.Event(), threading.Event(), set()

        def watch():
            while not stop.wait(0.05):
                stood = still.is_set()
                status = s.get("/health").status
                if not stood and not still.is_set():
                    health.add(status)
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        for i in range(120):  # 16 blocks each: three times the pool
            r = s.post(COMP, completion([1000 + i] * 500, max_tokens=1))
            equal(r.status, 200, "a distinct prompt")
        four = together([lambda i=i: s.post(COMP, force(1000 + i, prompt="x", max_tokens=2000, ignore_eos=True),
                                            wait=600) for i in range(4)], 900)
        check(all(not isinstance(r, Exception) and r.status == 200 and
                  r.json["usage"]["completion_tokens"] == 2000 for r in four), "four long decodes then",
              [getattr(r, "text", r)[-200:] for r in four])
        # Twelve that together want more than the pool holds: some are put back and recomputed.
        # They come while the engine stands still, so that it finds all of them at once.
        still.set()
        os.kill(s.pids["engine"][0], signal.SIGSTOP)

        def goes_on():
            try:
                return until(lambda: s.metric("streams") == 12)
            finally:
                os.kill(s.pids["engine"][0], signal.SIGCONT)
                if until(lambda: s.get("/health").status == 200):
                    still.clear()
        out = together([lambda i=i: s.post(COMP, force(1000 + i, prompt=[81] * 1000, max_tokens=1500),
                                           wait=600) for i in range(12)] + [goes_on], 900)
        check(out.pop() is True, "twelve were there at once")
        words = [text_of(s.post(COMP, force(1000 + i, prompt="x", max_tokens=1))) for i in range(12)]
        check(all(not isinstance(r, Exception) and r.status == 200 and text_of(r) == w * 1500
                  for r, w in zip(out, words)), "long decodes over a full pool are all whole",
              [getattr(r, "status", r) for r in out])
        check(s.metrics()["preemptions_total"] > 0, "preemption was needed")
        stop.set()
        watcher.join(WAIT)
        check(health == {200} and not still.is_set(), "ready throughout", health)
        check(s.idle() and s.kv_free() == free, "every block is back")
        r = s.post(COMP, completion([81] * 8000, max_tokens=150))
        equal(r.status, 200, "one request that nearly fills it")
        s.alive("KV memory")


@test
def one_request_fills_the_pool():
    """A pool of exactly one context serves a whole context, and one such request after another."""
    with Server(kv_memory=128 * 256, max_seqs=4, sim_step_us=200, ledger=False) as s:
        out = together([lambda: s.post(COMP, force(AB, prompt=[81] * 8000, max_tokens=500), wait=600)
                        for _ in range(3)], 900)
        check(all(not isinstance(r, Exception) and r.status == 200 and text_of(r) == "ab" * 192 and
                  r.json["choices"][0]["finish_reason"] == "length" for r in out),
              "each is whole, up to the end of the context", [getattr(r, "status", r) for r in out])
        check(s.idle() and s.kv_free() == 256, "every block is back")


@test
def one_id_twice():
    """Case B58: two live requests with one id share nothing."""
    with Server(sim_step_us=2000) as s:
        at = s.pids["frontend"]
        a = s.stream(COMP, force(AB, prompt="x", max_tokens=4000, stream=True),
                     headers=["X-Request-Id: dup"], conn=s.conn_at(at[0])).read(3)
        b = s.stream(COMP, force(E_ACUTE, prompt="x", max_tokens=200, stream=True),
                     headers=["X-Request-Id: dup"], conn=s.conn_at(at[1])).read(3)
        check(a.events[0]["id"] != b.events[0]["id"], "the ids in the bodies differ")
        equal(a.head["x-request-id"], "dup", "the id is echoed")
        a.conn.reset()
        b.rest()
        equal((b.text(), b.done), ("é" * 200, 1), "closing one leaves the other whole")
        check(set(a.text()) == {"a", "b"}, "each only has its own text")
        rows = until(lambda: [r for r in s.rows() if r["request_id"] == "dup"][1:] and s.rows())
        equal(sorted(r["status"] for r in rows), ["cancelled", "incomplete"], "two rows")


@test
def choices_dropped():
    """Case B56, last part: the client of several choices goes; all of them end, one row."""
    with Server(sim_step_us=2000) as s:
        free = s.kv_free()
        st = s.stream(CHAT, dict(chat("x"), **force(AB, n=4, max_tokens=3000, stream=True)),
                      headers=["X-Request-Id: four"]).read(12)
        st.conn.reset()
        check(s.idle() and s.kv_free() == free, "all four are gone")
        row = s.row("four")
        check(row and row["choices"] == 4 and row["status"] == "cancelled" and
              12 - 4 <= row["completion_tokens"] < 12000 and row["prompt_tokens"] == 31, "one row", row)


@test
def mixed_load():
    """Everything at once for a while: streams, whole answers, lists, refusals, resets, DELETEs."""
    with Server(frontends=3, max_seqs=16, max_queue=64, sim_step_us=500) as s:
        free = s.kv_free()
        words = {t: text_of(s.post(COMP, force(t, prompt="x", max_tokens=1))) for t in range(2000, 2030)}
        bad = []

        def client(k):
            rnd = random.Random(k)
            for _ in range(25):
                t, n = rnd.choice(list(words)), rnd.randrange(1, 60)
                kind = rnd.randrange(6)
                body = force(t, prompt="x", max_tokens=n)
                if kind == 0:
                    r = s.post(COMP, body)
                    if r.status != 503 and text_of(r) != words[t] * n:
                        bad.append((kind, t, n, r.text[:200]))
                elif kind == 1:
                    st = s.stream(COMP, dict(body, stream=True)).rest()
                    if st.status != 503 and (st.text() != words[t] * n or st.done != 1):
                        bad.append((kind, t, n, st.text()[:200]))
                elif kind == 2:
                    r = s.post(COMP, dict(body, prompt=["x", "y"], n=2))
                    if r.status != 503 and [c["text"] for c in r.json["choices"]] != [words[t] * n] * 4:
                        bad.append((kind, t, n, r.text[:200]))
                elif kind == 3:
                    if not is_error(s.post(COMP, dict(body, n=0)), param="n"):
                        bad.append((kind,))
                elif kind == 4:
                    c = s.conn()
                    c.send(request("POST", COMP, dict(body, max_tokens=2000, stream=True)))
                    time.sleep(rnd.random() * 0.03)
                    c.reset()
                else:
                    st = s.stream(COMP, dict(body, max_tokens=3000, stream=True))
                    if st.headers() == 200:
                        st.read(1)
                        r = s.ask("DELETE", f"/v1/streams/{st.id}", None)
                        st.rest()
                        if r.status != 200 or [e["code"] for e in st.errors()] != ["cancelled"]:
                            bad.append((kind, r.text, st.events[-1:]))

        out = together([lambda k=k: client(k) for k in range(24)], 600)
        check(not [o for o in out if o is not None], "every client came to its end",
              [o for o in out if o is not None][:2])
        check(not bad, "every answer is right", bad[:3])
        check(s.idle() and s.kv_free() == free, "KV blocks are back")
        check(until(lambda: s.metric("ledger_lag_seconds") == 0), "the ledger is up to date")
        m = s.metrics()
        rows = s.rows()
        equal(sum(r["completion_tokens"] for r in rows), int(m['tokens_total{kind="completion"}']),
              "rows and counter agree")
        equal(len(rows), int(sum(v for k, v in m.items() if k.startswith("streams_ended_total"))),
              "a row for each")
        equal((m["streams_without_terminal_total"], m["bad_submissions_total"]), (0, 0), "no fault counted")
        s.alive("mixed load")


if __name__ == "__main__":
    R = Server(REAL, threads=2)
    main()
