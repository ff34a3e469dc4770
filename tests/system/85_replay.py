# SPDX-License-Identifier: Apache-2.0
"""`tokenring replay`: what it says of a trace agrees with the service's own ledger and metrics."""
import atexit

from lib import *

S = None
DIR = tempfile.mkdtemp(prefix="tokenring-replay-")


def trace(name, *lines):
    """A trace file; each line is (at, fields) with what most requests have."""
    path = os.path.join(DIR, name)
    with open(path, "w", encoding="utf-8") as f:
        for at, fields in lines:
            e = dict(at=at, max_tokens=20)
            if "prompt" not in fields:
                e["prompt_tokens"] = 33
            f.write(json.dumps(dict(e, **fields)) + "\n")
    return path


def start(server, path, *flags, err=subprocess.DEVNULL):
    argv = [BIN, "replay", "--url", f"http://127.0.0.1:{server.port}", "--trace", path, "--json", *flags]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=err, text=True)


def end(p, limit=240):
    try:
        out, _ = p.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        p.kill()
        out, _ = p.communicate()
        check(False, "the replay ends", out[-500:])
    return p.returncode, strict_json(out) if out else None


def replay(server, path, *flags):
    return end(start(server, path, *flags))


def sockets(pid):
    n = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            n += os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
    return n


def consistent(run, claim):
    """Classes add up to the whole, the whole to the streams."""
    total, streams = run["all"], run["streams"]
    equal(sum(total["outcomes"].values()), total["requests"], f"{claim}: each request has one outcome")
    equal(len(streams), total["requests"], f"{claim}: each request is listed")
    for key in ("requests", "completion_tokens", "prompt_tokens", "content_events", "late"):
        equal(sum(c[key] for c in run["classes"].values()), total[key], f"{claim}: {key} of the classes")
    for name, n in total["outcomes"].items():
        equal(sum(s["outcome"] == name for s in streams), n, f"{claim}: {name} in the list")
        equal(sum(c["outcomes"][name] for c in run["classes"].values()), n, f"{claim}: {name} of the classes")
    equal(sum(s["completion_tokens"] or 0 for s in streams), total["completion_tokens"], f"{claim}: tokens")


@test
def every_kind_of_client_is_in_the_ledger_as_it_behaved():
    long = dict(max_tokens=4000)
    with Server(TINY, sim_step_us=5000, max_seqs=4, ctx_size=8192) as s:
        path = trace("kinds",
                     *[(0, dict(long, **{"class": "leaves", "abandon_after_first_s": 3})) for _ in range(4)],
                     *[(0.3, dict(long, **{"class": "impatient", "abandon_s": 0.3})) for _ in range(3)],
                     *[(0.4, {"class": "plain", "prompt_tokens": 10 + i, "priority": 3}) for i in range(6)],
                     (0.5, {"class": "text", "prompt": "Tell me about the sea."}),
                     (0.5, {"class": "whole", "stream": False}),
                     (0.6, dict(long, **{"class": "deaf", "read_bps": 0, "abandon_s": 4})),
                     (0.6, {"class": "slow", "read_bps": 3000}))
        before = s.metrics()
        status, r = replay(s, path, "--request-id", "kinds")
        if not check(status == 0 and r, "the replay is content", status, r):
            return
        run, = r["runs"]
        consistent(run, "kinds")
        c = {k: v["outcomes"] for k, v in run["classes"].items()}
        equal((c["leaves"]["abandoned"], c["impatient"]["abandoned"], c["deaf"]["abandoned"]), (4, 3, 1),
              "who leaves has left")
        equal((c["plain"]["complete"], c["text"]["complete"], c["whole"]["complete"], c["slow"]["complete"]),
              (6, 1, 1, 1), "who stays has read to the end")
        equal(run["classes"]["impatient"]["abandoned"]["before_content"], 3, "the impatient left the queue")
        equal(run["classes"]["leaves"]["abandoned"]["in_stream"], 4, "the others left their streams")
        equal((run["all"]["prompts_off"], run["all"]["lengths_off"]), (0, 0), "lengths are exact")
        equal(run["classes"]["plain"]["prompt_tokens"], sum(10 + i for i in range(6)), "prompt tokens are told")
        equal(run["all"]["completion_tokens"], 9 * 20, "answer tokens are told")
        equal(r["ignored_fields"], ["priority"], "a field that is not known is noted")
        check(r["exact_prompts"], "prompts are token ids")
        check(s.idle(), "nothing runs afterwards", s.metrics())
        for st in run["streams"]:
            row = s.row(st["id"])
            if not check(row is not None, f"one row for {st['id']}"):
                continue
            if st["outcome"] == "abandoned":
                check(row["status"] == "cancelled" and row["reason"] == "client_disconnected" and
                      st["content_events"] <= row["completion_tokens"] < 4000, f"row of {st['class']}", st, row)
            else:
                check(row["status"] == "incomplete" and row["reason"] == "length" and
                      row["completion_tokens"] == st["completion_tokens"] and
                      row["prompt_tokens"] == st["prompt_tokens"], f"row of {st['class']}", st, row)
        gone = 'streams_ended_total{reason="client_disconnected"}'
        equal(s.metrics()[gone] - before[gone], 8, "the server counts them, too")
        equal(run["counters"]["ended_client_disconnected"], 8, "and the replay has read that")
        equal(run["counters"]["completion_tokens"], sum(row["completion_tokens"] for row in s.rows()),
              "tokens of the run are those of the ledger")
        equal(run["server"]["e2e"]["n"], len(run["streams"]), "the server's histograms are of the run")
        check(run["concurrency"]["running"]["max"] == 4 and run["concurrency"]["waiting"]["max"] >= 3,
              "admitted and waiting over time", run["concurrency"])
        check(run["concurrency"]["open"]["max"] >= run["concurrency"]["streaming"]["max"] >= 4,
              "open streams over time", run["concurrency"])


@test
def with_and_without_cancellation():
    """The same trace twice: who would leave reads to the end in the second run."""
    with Server(TINY, sim_step_us=5000, max_seqs=2) as s:
        path = trace("compare",
                     *[(0, {"class": "leaves", "max_tokens": 400, "abandon_after_first_s": 0.2}) for _ in range(4)],
                     *[(0.1, {"class": "stays"}) for _ in range(4)])
        status, r = replay(s, path, "--compare")
        equal(status, 0, "both runs are content")
        a, b = r["runs"]
        equal((a["abandon"], b["abandon"]), (True, False), "with leaving, then without")
        consistent(a, "leaving")
        consistent(b, "staying")
        equal((a["all"]["outcomes"]["abandoned"], a["all"]["outcomes"]["complete"]), (4, 4), "four leave")
        equal((b["all"]["outcomes"]["abandoned"], b["all"]["outcomes"]["complete"]), (0, 8), "nobody leaves")
        equal(b["counters"]["completion_tokens"], 4 * 400 + 4 * 20, "all is generated when nobody leaves")
        check(a["counters"]["completion_tokens"] < b["counters"]["completion_tokens"] and
              a["counters"]["tokens_avoided"] + a["counters"]["completion_tokens"] ==
              b["counters"]["completion_tokens"], "what was not generated is counted as avoided",
              a["counters"], b["counters"])
        equal(len({row["request_id"] for row in s.rows()}), 16, "each request of each run has its own id")


@test
def refusals_are_counted_and_are_no_failure():
    with Server(TINY, sim_step_us=20000, max_seqs=1, max_queue=1, max_streams=2) as s:
        path = trace("full", *[(0, {"max_tokens": 100}) for _ in range(10)])
        status, r = replay(s, path)
        run, = r["runs"]
        consistent(run, "full")
        refused = run["all"]["outcomes"]["refused"]
        check(status == 0 and refused >= 7 and run["all"]["outcomes"]["complete"] == 10 - refused,
              "those that found no place are refused", status, run["all"])
        equal(run["all"]["errors"], {"503 engine_overloaded": refused}, "by status and code")
        equal(run["all"]["without_retry_after"], 0, "each is told when to come again")


@test
def a_reader_of_nothing_is_cut_and_that_is_no_failure():
    with Server(TINY, sim_step_us=1000, write_deadline_s=1) as s:
        path = trace("deaf", (0, {"class": "deaf", "max_tokens": 4000, "read_bps": 0}), (0, {"class": "good"}))
        status, r = replay(s, path, "--timeout-s", "120")
        run, = r["runs"]
        check(status == 0 and run["classes"]["deaf"]["outcomes"]["unread"] == 1 and
              run["classes"]["good"]["outcomes"]["complete"] == 1, "cut by the server", status, run["classes"])
        row = s.row(run["streams"][0]["id"])
        check(row and row["reason"] == "slow_client" and row["completion_tokens"] < 4000, "as the ledger says", row)
        equal(run["streams"][0]["content_events"], 0, "it has read nothing")
        equal(run["streams"][0]["http_status"], 200, "but the head")


@test
def a_cut_stream_is_a_failure():
    with Server(TINY, sim_step_us=5000) as s:
        p = start(s, trace("cut", *[(0, {"max_tokens": 4000}) for _ in range(4)]))
        check(until(lambda: s.metric("requests_running") == 4), "all run")
        for pid in s.processes()["frontend"]:
            os.kill(pid, signal.SIGKILL)
        status, r = end(p)
        run, = r["runs"]
        equal((status, run["all"]["outcomes"]["truncated"]), (1, 4), "truncated streams make the status 1")


@test
def an_interrupt_prints_what_was_measured():
    with Server(TINY, sim_step_us=5000) as s:
        path = trace("stopped", (0, {}), (0, {"max_tokens": 4000}), (500, {}))
        p = start(s, path, "--no-metrics")
        check(until(lambda: s.metric('streams_ended_total{reason="length"}') == 1 and sockets(p.pid) == 1),
              "one has ended")
        p.send_signal(signal.SIGINT)
        status, r = end(p)
        run, = r["runs"]
        consistent(run, "stopped")
        o = run["all"]["outcomes"]
        equal((status, run["interrupted"], o["complete"], o["interrupted"], o["unsent"]), (130, True, 1, 1, 1),
              "one ended, one was open, one was not sent yet")
        check(s.idle(), "the open one is cancelled")


@test
def late_sends_are_told_and_hide_nothing():
    with Server(TINY, sim_step_us=1000) as s:
        p = start(s, trace("late", *[(i * 0.05, {"max_tokens": 5}) for i in range(80)]))
        check(until(lambda: s.metric('streams_ended_total{reason="length"}') >= 3), "it began")
        os.kill(p.pid, signal.SIGSTOP)
        time.sleep(1)
        os.kill(p.pid, signal.SIGCONT)
        status, r = end(p)
        run, = r["runs"]
        consistent(run, "late")
        ms = run["all"]["ms"]
        check(status == 0 and run["late"] >= 1 and run["late_max_ms"] >= 300, "late sends are counted", run["late"],
              run["late_max_ms"])
        check(ms["ttft"]["max"] >= run["late_max_ms"], "the lateness is in the times from the arrival", ms)


@test
def prompts_have_their_length_with_a_real_vocabulary():
    with Server(SIM) as s:
        path = trace("lengths", *[(0, {"prompt_tokens": n, "max_tokens": 3}) for n in (1, 2, 17, 1000)])
        status, r = replay(s, path)
        run, = r["runs"]
        equal(status, 0, "the replay is content")
        equal([x["prompt_tokens"] for x in run["streams"]], [1, 2, 17, 1000], "as the server counts them")


@test
def the_command_line_says_what_is_wrong():
    path = os.path.join(DIR, "bad")
    with open(path, "w", encoding="utf-8") as f:
        f.write('{"at":0,"prompt_tokens":1,"max_tokens":1}\n\n{"at":0,"prompt_tokens":1,"max_tokens":0}\n')
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        for args, status, words in (
                (["--trace", path], 2, f"{path}:3: max_tokens must be an integer"),
                (["--trace", "/nonexistent"], 2, "/nonexistent: No such file"),
                (["--speed", "0"], 2, "--speed"),
                (["--compare", "--no-abandon"], 2, "--compare"),
                (["--url", nowhere], 3, "cannot connect"),
                (["--url", nowhere, "--model", "m", "--limit", "2", "--speed", "100"], 3, "")):
            got, err, _ = fails_to_start(["replay", *args])
            check(got == status and words in err, f"replay {args[:1]}", got, err)
    shown = subprocess.run([BIN, "replay", "--trace", "mixed", "--limit", "5", "--show-trace"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    equal(len([strict_json(line) for line in shown.splitlines()]), 5, "a trace is shown as JSON lines")
    told = subprocess.run([BIN, "help"], check=True, stdout=subprocess.PIPE, text=True).stdout
    check("replay" in told, "help names it", told)


atexit.register(subprocess.run, ["rm", "-rf", DIR], check=False)
main()
