# SPDX-License-Identifier: Apache-2.0
"""--speculate ngram: answers, log-probabilities and all counts are those of a service without it, and
several tokens in a step are several events, each of them counted."""
from lib import *
from wire import FRAMINGS, NATIVE, Wire

A = 97  # of the small vocabulary: "a"
TEXT = ("The harbour was built in three stages. First came the long stone pier, which still carries the old "
        "lighthouse. Then the town added a basin for fishing boats, with a narrow gate that is closed in storms.")
ASKS = [  # on the real model
    dict(messages=[{"role": "user", "content": "Repeat this text word for word: " + TEXT}], max_tokens=60,
         temperature=0),
    dict(messages=[{"role": "user", "content": "Write this again in capital letters: " + TEXT}], max_tokens=40,
         temperature=0.7, seed=11, logprobs=True, top_logprobs=3),
    dict(messages=[{"role": "user", "content": "Sum this up: " + TEXT}], max_tokens=50, temperature=0.9, seed=5,
         top_p=0.9, frequency_penalty=0.4, n=2),
    dict(messages=[{"role": "user", "content": "Say la la la, many times."}], max_tokens=60, stop=["! la", "."],
         presence_penalty=0.2, seed=2),
    dict(prompt="one two three four one two three four one two", max_tokens=33, temperature=0, logprobs=2),
    dict(prompt="a b c a b c a b", max_tokens=24, temperature=1, seed=3, echo=True, logprobs=1),
    dict(prompt="yes no yes no yes", max_tokens=70, repetition_penalty=1.1, ignore_eos=True, min_tokens=70,
         temperature=0),
]


def drafted(server):
    return server.metric('speculated_tokens_total{kind="drafted"}'), server.metric(
        'speculated_tokens_total{kind="accepted"}')


def plain(o):
    """An answer without what differs by its nature."""
    o.get("usage", {}).pop("prompt_tokens_details", None)  # what the prefix cache had
    return {k: v for k, v in o.items() if k not in ("id", "created")}


def answers(server, asks):
    def one(body):
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        c = server.conn()
        c.send(request("POST", path, dict(body, model=MODEL)))
        r = c.response()
        c.close()
        return plain(strict_json(r.body.decode("utf-8")))
    return together([lambda b=b: one(b) for b in asks])


@test
def same_answers_on_the_real_model():
    """One after the other and all at once, with and without: texts, log-probabilities, reasons, usage."""
    with Server(REAL, ctx_size=512, speculate="off") as off:
        want = [answers(off, [a])[0] for a in ASKS]
        equal(drafted(off), (0, 0), "nothing is guessed without the flag")
    with Server(REAL, ctx_size=512, speculate="ngram") as on:
        check("guessed tokens in a step" in on.log(), "the start tells what guesses need", on.log()[-600:])
        for how, got in (("alone", [answers(on, [a])[0] for a in ASKS]), ("together", answers(on, ASKS))):
            for i, (g, w) in enumerate(zip(got, want)):
                equal(g, w, f"{how}: answer {i}")
        d, a = drafted(on)
        check(0 < a <= d, "some guesses were right", d, a)
        check(on.idle(), "idle", on.metrics())
        equal(sum(r["completion_tokens"] for r in on.rows()), sum(2 * w["usage"]["completion_tokens"] for w in want),
              "the rows say the same")
        equal(on.metric("published_tokens_total"), sum(r["completion_tokens"] + r["overrun_tokens"] for r in on.rows()),
              "each token was published once")


@test
def several_tokens_in_a_step():
    """A step makes several tokens: each framing tells the same number, an event for each, and the row as well."""
    with Server(TINY, speculate="ngram", sim_step_us=20000) as s:
        begin = s.metrics()
        ws = [Wire(s, f, "1.1", dict(force(A, max_tokens=120), **({"stream_options": {"include_usage": True}}
                                     if FRAMINGS[f][2] and FRAMINGS[f][0] != NATIVE else {}))) for f in FRAMINGS]
        together([w.read for w in ws])
        rows = until(lambda: (lambda r: r if len(r) == len(ws) else None)([r for r in s.rows() if r["closed_at"]]))
        for w in ws:
            row = next((r for r in rows or [] if r["request_id"] == w.rid), None)
            if not check(row, f"{w}: has its row"):
                continue
            equal((row["completion_tokens"], row["overrun_tokens"], row["delivered_tokens"]), (120, 0, 120),
                  f"{w}: the row")
            if w.streamed and FRAMINGS[w.framing][0] == NATIVE:
                deltas = [e for e in w.events() if e != "[DONE]" and e.get("type") == "output_text.delta"]
                equal(sum(e["tokens"] for e in deltas), 120, f"{w}: tokens of the events")
                equal("".join(e["text"] for e in deltas), "a" * 120, f"{w}: text")
            w.conn.close()
        m = s.metrics()
        n = len(ws) * 120
        equal(m["published_tokens_total"] - begin.get("published_tokens_total", 0), n, "published")
        check(m["step_seconds_count"] - begin.get("step_seconds_count", 0) < n / 4, "in far fewer steps", m["step_seconds_count"])
        equal(m["inter_token_seconds_count"] - begin.get("inter_token_seconds_count", 0), n - len(ws), "a gap for each but the first")
        equal(m["time_to_first_token_seconds_count"] - begin.get("time_to_first_token_seconds_count", 0), len(ws),
              "a first token for each")
        equal(m['tokens_total{kind="completion"}'] - begin.get('tokens_total{kind="completion"}', 0), n, "billed")


@test
def stop_strings_in_a_run():
    """A stop string that ends inside the tokens of one step: what came behind it is overrun."""
    with Server(TINY, speculate="ngram", sim_step_us=20000) as s:
        for n in range(60, 72):
            c = s.conn()
            c.send(request("POST", "/v1/completions", dict(force(A, max_tokens=400, stop="a" * n), prompt="x", model=MODEL)))
            got = strict_json(c.response().body.decode("utf-8"))
            c.close()
            equal((got["usage"]["completion_tokens"], got["choices"][0]["text"], got["choices"][0]["finish_reason"]),
                  (n, "", "stop"), f"stopped at {n}")
        rows = until(lambda: (lambda r: r if len(r) == 12 else None)(s.rows()))
        equal(sorted(r["completion_tokens"] for r in rows or []), list(range(60, 72)), "the rows say so")


@test
def an_engine_dies():
    """A stream goes on with the same text when its engine is killed."""
    with Server(TINY, speculate="ngram", sim_step_us=20000) as s:
        w = Wire(s, "native", "1.1", force(A, max_tokens=2000)).start()
        os.kill(s.processes()["engine"][0], signal.SIGKILL)
        w.read()
        deltas = [e for e in w.events() if e.get("type") == "output_text.delta"]
        equal("".join(e["text"] for e in deltas), "a" * 2000, "the text")
        equal(sum(e["tokens"] for e in deltas), 2000, "the tokens")
        equal(s.metric('process_restarts_total{role="engine"}'), 1, "it was another engine")
        w.conn.close()


if __name__ == "__main__":
    main()
