# SPDX-License-Identifier: Apache-2.0
"""gRPC: the Open Inference Protocol with Triton's decoupled stream, health, deadlines, cancellation.

The client is oip.py on frames.py: nothing of it is the server's."""
from lib import *
from oip import *

S = None
AB = 369
COMP = "/v1/completions"
AFTER = "tokens_after_disconnect_total"
INFER_ONE, STREAM = INFER + "ModelInfer", INFER + "ModelStreamInfer"


@contextlib.contextmanager
def session(server=None, **kw):
    s = Session(port_of(server or S), **kw)
    try:
        yield s
    finally:
        equal(s.broken, [], "the server kept the rules of HTTP/2")
        s.close()


def forced(token=AB, n=5, **kw):
    """sampling_parameters of which every token is this one."""
    return dict(logit_bias={str(token): 100}, temperature=0, max_tokens=n, **kw)


def native(server, rid, prompt="x", **kw):
    """The same request as a native stream: (text, finish reason, usage, ledger row)."""
    body = dict(model=MODEL, prompt=prompt, **kw)
    r = server.post("/v1/streams", body, headers=[f"X-Request-Id: {rid}"])
    events = [e for _, _, e in native_events(r.body)]
    usage = [e["usage"] for e in events if e["type"] == "usage"][0]
    text = "".join(e["text"] for e in events if e["type"] == "output_text.delta")
    return text, events[-1].get("finish_reason"), usage, server.row(rid)


COLUMNS = ("status", "reason", "prompt_tokens", "completion_tokens", "choices", "last_token")


def like_native(server, claim, text, finish, outputs, rid, native_run):
    want_text, want_finish, usage, want_row = native_run
    equal(text, want_text, f"{claim}: text")
    equal(finish, want_finish, f"{claim}: finish reason")
    equal((outputs.get("prompt_tokens"), outputs.get("completion_tokens")),
          (usage["prompt_tokens"], usage["completion_tokens"]), f"{claim}: usage")
    row = server.row(rid)
    if check(row is not None, f"{claim}: one row"):
        equal({k: row[k] for k in COLUMNS}, {k: want_row[k] for k in COLUMNS}, f"{claim}: row")
        row = until(lambda: (r := server.row(rid)) and r["delivered_tokens"] is not None and r)
        equal(row and row["delivered_tokens"], want_row["completion_tokens"], f"{claim}: delivered")


def flagged(answers, most):
    """One response is the last, and it is; those before it, at most so many, are not (some joined)."""
    flags = [a.last for a in answers]
    return 2 <= len(flags) <= most + 1 and flags == [False] * (len(flags) - 1) + [True]


def quiet_again(server, free, claim):
    check(server.idle(), f"{claim}: nothing runs", server.metrics())
    equal(server.kv_free(), free, f"{claim}: KV blocks are back")


# ---- answers ----------------------------------------------------------------------------------------

@test
def short_calls():
    """Live, ready, metadata; what is unknown."""
    with session() as s:
        for method, message in (("ServerLive", b""), ("ServerReady", b""), ("ModelReady", field(1, MODEL)),
                                ("ModelReady", field(1, MODEL) + field(2, "1"))):
            m, status, text = unary(s, INFER + method, message)
            equal((status, one(m, 1)), (OK, 1), method)
        for message in (field(1, "other"), field(1, MODEL) + field(2, "2")):
            m, status, _ = unary(s, INFER + "ModelReady", message)
            equal((status, m), (OK, b""), "another model is not ready")
        m, status, _ = unary(s, INFER + "ServerMetadata")
        equal((status, one(m, 1)), (OK, b"tokenring"), "ServerMetadata")
        m, status, _ = unary(s, INFER + "ModelMetadata", field(1, MODEL))
        names = [[one(t, 1).decode() for t in every(m, k)] for k in (4, 5)]
        equal((status, one(m, 1), names),
              (OK, MODEL.encode(), [["text_input", "stream", "sampling_parameters"],
                                    ["text_output", "finish_reason", "prompt_tokens", "completion_tokens"]]),
              "ModelMetadata")
        m, status, text = unary(s, INFER + "ModelMetadata", field(1, "other"))
        equal((m, status), (None, NOT_FOUND), "metadata of another model")
        c = Call(s, INFER + "ModelConfig").write(field(1, MODEL)).done()
        status, text = c.end()
        check(status == UNIMPLEMENTED and text and c.flow.trailers is None and c.flow.received == 0,
              "an unknown method: trailers only", status, text, c.flow.headers)
        equal(unary(s, "/nothing", b"")[1], UNIMPLEMENTED, "an unknown service")
        equal(unary(s, HEALTH + "Check", b"\xff")[1], INVALID_ARGUMENT, "no message of this method")


@test
def what_is_no_call_gets_a_status_of_http():
    with session() as s:
        head = [(":method", "POST"), (":scheme", "http"), (":path", STREAM), (":authority", "x")]
        for fields_, want in (([*head, ("content-type", "application/json")], "415"), (head, "415"),
                              ([*head, ("content-type", "application/grpc-web")], "415"),
                              ([(":method", "GET"), *head[1:], ("content-type", "application/grpc")], "405")):
            f = s.request(fields_, body=b"x" if want == "415" else None)
            f.wait(f.over)
            equal(f.header(":status"), want, f"{fields_[-1]}")
        for kind in ("application/grpc+proto", "application/grpc; charset=utf-8", "Application/gRPC"):
            m, status, _ = unary(s, INFER + "ServerLive", content_type=kind)
            equal(status, OK, kind)
        r = S.get("/livez")
        equal(r.status, 200, "the other port")


@test
def a_whole_answer_is_that_of_the_native_stream():
    want = native(S, "native-whole", **forced(n=7))
    with session() as s:
        for raw in (True, False):
            rid = f"grpc-whole-{raw}"
            m, status, text = unary(s, INFER_ONE, infer_request(sampling=forced(n=7), id=rid, raw=raw))
            if check(status == OK, f"ModelInfer, raw {raw}", status, text):
                a = Answer(m)
                equal((a.model, a.version, a.id, a.parameters), (MODEL, "1", rid, {}), "frame of the answer")
                like_native(S, rid, a.text, a.outputs["finish_reason"], a.outputs, rid, want)
        rid = "by-header"
        m, status, _ = unary(s, INFER_ONE, infer_request(sampling=forced(n=2)), headers=[("x-request-id", rid)])
        equal((status, S.row(rid) is not None), (OK, True), "x-request-id")
        m, status, _ = unary(s, INFER_ONE, infer_request(sampling=forced(n=2), outputs=["text_output"]))
        equal(list(Answer(m).outputs), ["text_output"], "only what was asked for")


@test
def a_stream_is_that_of_the_native_one():
    """Case D11 and contracts 1.7: a response for each delta, the last one flagged, once."""
    want = native(S, "native-stream", **forced(n=9))
    with session() as s:
        c = Call(s, STREAM)
        for i, stream in enumerate((None, True)):
            rid = f"grpc-stream-{i}"
            c.write(infer_request(sampling=forced(n=9), id=rid, stream=stream))
            last = c.until_last(rid)
            mine = c.of(rid)
            check(flagged(mine, 9), "the flag is on every response, true on one", [a.last for a in mine])
            equal((last.text, last.error), ("", ""), "the last one has no text")
            check(all(list(a.outputs) == ["text_output"] for a in mine[:-1]), "counts come with the last one")
            like_native(S, rid, "".join(a.text for a in mine), last.outputs["finish_reason"], last.outputs, rid,
                        want)
        c.done()
        equal(c.end(), (OK, ""), "half-closed with nothing under way: OK")
        equal(dict(c.flow.headers), {":status": "200", "content-type": "application/grpc"}, "head")


@test
def numbers_as_strings_and_stop_strings():
    with session() as s:
        sampling = {"max_tokens": "4", "temperature": "0", "logit_bias": {str(AB): 100}, "ignore_eos": "true"}
        m, status, text = unary(s, INFER_ONE, infer_request(sampling=sampling))
        equal((status, text, m and Answer(m).outputs["completion_tokens"]), (OK, "", 4), "as clients of Triton send them")
        sampling = forced(n=50, stop=["".join(native(S, "one-token", **forced(n=1))[0])])
        m, status, text = unary(s, INFER_ONE, infer_request(sampling=sampling))
        a = Answer(m)
        equal((a.text, a.outputs["finish_reason"], a.outputs["completion_tokens"]), ("", "stop", 1), "stop string")


@test
def whole_answers_in_a_stream():
    """stream false: one response; with an empty last one two, as Triton's clients ask for it."""
    with session() as s:
        c = Call(s, STREAM)
        c.write(infer_request(sampling=forced(n=3), id="one", stream=False))
        a = c.until_last("one")
        equal([len(c.of("one")), a.outputs["completion_tokens"], bool(a.text)], [1, 3, True], "one response")
        c.write(infer_request(sampling=forced(n=3), id="two", stream=False,
                              parameters={"triton_enable_empty_final_response": True}))
        b = c.until_last("two")
        equal([x.last for x in c.of("two")], [False, True], "two responses")
        equal((c.of("two")[0].text, b.text, b.outputs["completion_tokens"]), (a.text, "", 3), "text, then the rest")
        c.done()
        equal(c.end()[0], OK, "end")


@test
def many_requests_on_one_call():
    """Answers are told apart by id; each has its own end; errors between them change nothing."""
    with session() as s:
        c = Call(s, STREAM)
        lengths = {f"r{i}": 3 + 5 * (i % 4) for i in range(16)}
        for rid, n in lengths.items():
            c.write(infer_request(sampling=forced(n=n), id=rid))
            c.write(infer_request(sampling=forced(n=-1), id="bad-" + rid))
        c.done()
        while c.answer() is not None:
            pass
        equal(c.end(), (OK, ""), "when the last one has ended: OK")
        for rid, n in lengths.items():
            mine = c.of(rid)
            check(flagged(mine, n) and mine[-1].outputs["completion_tokens"] == n, rid, [vars(a) for a in mine])
            bad = c.of("bad-" + rid)
            check(len(bad) == 1 and bad[0].last and bad[0].error and not bad[0].outputs and
                  bad[0].parameters.get("error_code") == "invalid_value" and
                  bad[0].parameters.get("error_param") == "max_tokens", f"bad-{rid}", [vars(b) for b in bad])


@test
def requests_that_are_not_valid():
    """In the stream an error for that request, in ModelInfer a status; the same words."""
    cases = {
        "another model": (infer_request(model="other", id="q"), NOT_FOUND, "model_not_found"),
        "another version": (infer_request(version="7", id="q"), NOT_FOUND, "model_not_found"),
        "no text": (field(1, MODEL) + field(3, "q"), INVALID_ARGUMENT, "invalid_value"),
        "an unknown output": (infer_request(outputs=["logits"], id="q"), INVALID_ARGUMENT, "invalid_value"),
        "no JSON": (infer_request(sampling="{", id="q"), INVALID_ARGUMENT, "invalid_json"),
        "a range": (infer_request(sampling={"temperature": 9}, id="q"), INVALID_ARGUMENT, "invalid_value"),
        "two answers": (infer_request(sampling={"n": 2}, id="q"), INVALID_ARGUMENT, "unsupported_parameter"),
        "too long": (infer_request(text="a b c " * 40000, id="q"), INVALID_ARGUMENT, "context_length_exceeded"),
    }
    with session() as s:
        c = Call(s, STREAM)
        for claim, (message, status, code) in cases.items():
            c.write(message)
            a = c.until_last()
            if not check(a is not None and a.error and a.id == "q" and
                         a.parameters.get("error_code") == code, f"{claim}: in the stream", a and vars(a)):
                return
            got = unary(s, INFER_ONE, message)
            equal(got, (None, status, a.error), f"{claim}: as a status")
        c.write(b"\xff\xff")
        a = c.until_last()
        check(a and a.error and a.last, "what is no request at all", a and vars(a))
        equal(unary(s, INFER_ONE, infer_request(stream=True))[1], INVALID_ARGUMENT, "ModelInfer does not stream")
        c.write(infer_request(sampling=forced(n=2), id="good"))
        equal(c.until_last("good").error, "", "the call lives on")
        c.done()
        equal(c.end(), (OK, ""), "and ends well")


@test
def framing():
    """Messages cut anywhere, unknown fields, compressed ones, too large ones, cut ones."""
    with session() as s:
        c = Call(s, STREAM)
        data = prefixed(infer_request(sampling=forced(n=3), id="a", more=field(99, "x") + field(100, 5))) + \
            prefixed(infer_request(sampling=forced(n=2), id="b"))
        for i in range(0, len(data), 7):
            s.send(frame(DATA, 0, c.flow.number, data[i:i + 7]))
        c.done()
        while c.answer() is not None:
            pass
        equal((c.end(), flagged(c.of("a"), 3), flagged(c.of("b"), 2)), ((OK, ""), True, True), "pieces of seven bytes")
        for claim, raw, want in (("compressed", prefixed(b"x", 1), UNIMPLEMENTED),
                                 ("a flag", prefixed(b"x", 9), INTERNAL),
                                 ("too large", struct.pack(">BI", 0, (4 << 20) + 1), RESOURCE_EXHAUSTED),
                                 ("cut", prefixed(b"abcd")[:-1], INTERNAL)):
            c = Call(s, INFER_ONE)
            c.flow.send(raw)
            c.done()
            equal(c.end()[0], want, claim)
            if want == UNIMPLEMENTED:
                equal(c.flow.header("grpc-accept-encoding"), "identity", "what is taken instead")
        c = Call(s, INFER_ONE).done()
        equal(c.end()[0], INTERNAL, "no message")
        c = Call(s, INFER + "ServerLive").write(b"").write(b"").done()
        check(c.end()[0] in (OK, INTERNAL), "two messages", c.end())
        equal(unary(s, INFER + "ServerLive", timeout="soon")[1], INVALID_ARGUMENT, "no timeout")
        free = S.kv_free()
        c = Call(s, STREAM).write(infer_request(sampling=forced(n=4000), id="x")).read(2)
        c.flow.send(prefixed(b"x", 1))
        equal(c.end()[0], None if c.flow.reset else UNIMPLEMENTED, "a status ends all requests of a call")
    quiet_again(S, free, "a call that its client broke")


# ---- ends that come from outside ------------------------------------------------------------------------

@test
def b76_a_cancelled_call_goes_nowhere():
    """Case B76: cancel, reset, drop and deadline after five messages; other streams of the connection go on."""
    free, before = S.kv_free(), S.metrics()
    for way in ("cancel", "drop", "reset", "deadline"):
        with session() as s:
            ids = [f"{way}-{i}" for i in range(3)]
            c = Call(s, STREAM, timeout="300m" if way == "deadline" else None)
            for rid in ids:
                c.write(infer_request(sampling=forced(n=4000), id=rid))
            c.read(15)
            other = None
            if way in ("cancel", "deadline"):
                other = Call(s, STREAM).write(infer_request(sampling=forced(n=400), id="other")).read(1)
            if way == "cancel":
                c.cancel()
            elif way == "drop":
                s.close()
            elif way == "reset":
                s.abort()
            else:
                while c.answer() is not None:
                    pass
                equal(c.end()[0], DEADLINE_EXCEEDED, "the call says so")
                for rid in ids:
                    mine = c.of(rid)
                    check(mine and mine[-1].last and mine[-1].error and
                          mine[-1].parameters["error_code"] == "deadline_exceeded", f"{rid} says so", vars(mine[-1]))
            if other:
                other.until_last()
                other.done()
                equal((other.answers[-1].outputs.get("completion_tokens"), other.end()), (400, (OK, "")),
                      f"{way}: the other stream went on")
            quiet_again(S, free, way)
        for rid in ids:
            row = S.row(rid)
            want = ("cancelled", "deadline_exceeded" if way == "deadline" else "client_disconnected")
            equal((row["status"], row["reason"]) if row else None, want, f"row of {rid}")
    after = S.metrics()
    check(after[AFTER] - before[AFTER] <= 2 * 9, "at most the step in flight was decoded after the end was seen",
          after[AFTER] - before[AFTER])


@test
def b76_cancelled_at_the_last_message():
    """Case B76: 200 times, at any moment around it."""
    free = S.kv_free()
    rng = random.Random(7)
    with session() as s:
        for i in range(200):
            c = Call(s, STREAM).write(infer_request(sampling=forced(n=3), id=f"last-{i}"))
            if i % 2:
                c.read(rng.randrange(5))
            else:
                time.sleep(rng.random() * 0.012)
            c.cancel()
        equal(unary(s, INFER + "ServerLive")[1], OK, "the connection lives")
    quiet_again(S, free, "200 cancelled calls")
    rows = until(lambda: (r := [x for x in S.rows() if x["request_id"].startswith("last-")]) and len(r) == 200 and r)
    if check(rows, "200 rows", len([x for x in S.rows() if x["request_id"].startswith("last-")])):
        equal({(r["status"], r["reason"]) for r in rows} - {("incomplete", "length"), ("cancelled", "client_disconnected")},
              set(), "how they ended")


@test
def an_api_cancel_is_not_the_calls():
    """DELETE, and a deadline of one request: an error in the stream, and the call goes on."""
    with session() as s:
        c = Call(s, STREAM).write(infer_request(sampling=forced(n=4000), id="del")).read(2)
        check("stream_id" in c.answers[0].parameters and "stream_id" not in c.answers[1].parameters,
              "the first response has the stream's id", [a.parameters for a in c.answers])
        c.write(infer_request(sampling=forced(n=4000, timeout_s=0.05), id="short"))
        a = c.until_last("short")
        equal(a.parameters["error_code"], "deadline_exceeded", "the deadline of one request")
        c.write(infer_request(sampling=forced(n=4000), id="micro", parameters={"timeout": 50000}))
        a = c.until_last("micro")
        equal(a.parameters["error_code"], "deadline_exceeded", "Triton's timeout, in microseconds")
        c.read(1)
        check(not c.of("del")[-1].last, "the others go on")
        r = S.ask("DELETE", "/v1/streams/" + c.of("del")[0].parameters["stream_id"], None)
        equal(r.status, 200, "DELETE")
        a = c.until_last("del")
        equal(a.parameters["error_code"], "cancelled", "cancelled by somebody else")
        row = S.row("del")
        equal((row["reason"], row["completion_tokens"]), ("cancelled", a.outputs["completion_tokens"]), "its row")
        c.done()
        equal(c.end(), (OK, ""), "the call was not")
    with session() as s:
        m, status, _ = unary(s, INFER_ONE, infer_request(sampling=forced(n=4000, timeout_s=0.05)))
        equal((m, status), (None, DEADLINE_EXCEEDED), "ModelInfer: a status")
        m, status, _ = unary(s, INFER_ONE, infer_request(sampling=forced(n=4000)), timeout="50m")
        equal((m, status), (None, DEADLINE_EXCEEDED), "the deadline of the call")
    check(S.idle(), "nothing runs")


@test
def flow_control_is_the_back_pressure():
    """A call whose client opens no window is parked; the other calls of the connection are not."""
    free = S.kv_free()
    with session(window=2000) as s:
        slow = Call(s, STREAM, credit=False).write(infer_request(sampling=forced(n=1500), id="slow"))
        slow.flow.wait(lambda: slow.flow.received >= 1900)
        check(until(lambda: S.metric("requests_parked") == 1), "the reader that takes nothing is parked", S.metrics())
        quick = Call(s, STREAM, credit=True).write(infer_request(sampling=forced(n=300), id="quick"))
        quick.until_last()
        equal(quick.answers[-1].outputs.get("completion_tokens"), 300, "another call of the same connection is not")
        check(slow.flow.received <= 2000, "no more than the window", slow.flow.received)
        unsent = S.metric('buffered_bytes{layer="pending"}')
        check(unsent <= 64 << 10, "what waits is bounded", unsent)
        slow.flow.credit = True
        slow.flow.open_window(1 << 20)
        slow.until_last()
        text = "".join(a.text for a in quick.answers[:-1])
        equal(("".join(a.text for a in slow.answers), slow.answers[-1].error), (text * 5, ""),
              "when it reads it gets everything")
        row = until(lambda: (r := S.row("slow")) and r["delivered_tokens"] is not None and r)
        equal((row["completion_tokens"], row["delivered_tokens"]), (1500, 1500), "its row")
        slow.done()
    quiet_again(S, free, "flow control")


@test
def more_requests_than_a_call_may_have():
    with session() as s:
        c = Call(s, STREAM)
        for i in range(70):
            c.write(infer_request(sampling=forced(n=2000), id=f"m{i}"))
        got = until(lambda: (c.answer() and None) or [a for a in c.answers if a.error])
        check(got and got[0].parameters["error_code"] == "engine_overloaded", "one too many is told", got and vars(got[0]))
        check(not [a for a in c.answers if a.last and not a.error], "the others go on")
        c.cancel()
    check(S.idle(), "nothing runs")


@test
def messages_that_do_not_come():
    """A message must come as fast as a body; a call that waits between messages may wait."""
    with Server(TINY, grpc_port=0, body_timeout_s=0.5) as server, session(server) as s:
        waits = Call(s, STREAM)
        half, none, later = Call(s, STREAM), Call(s, INFER_ONE), Call(s, INFER_ONE)
        half.flow.send(prefixed(infer_request())[:20])
        message = prefixed(infer_request(sampling=forced(5, n=3)))
        for part in (message[:9], message[9:]):
            later.flow.send(part)
        equal((half.end()[0], none.end()[0]), (ABORTED, ABORTED), "half a message, and none")
        later.done()
        equal(later.end()[0], OK, "a client that is slow to say that this was all")
        waits.write(infer_request(sampling=forced(5, n=3), id="w"))
        equal(waits.until_last().error, "", "a call that waited")
        waits.cancel()


@test
def cancelled_while_it_is_tokenised():
    free = S.kv_free()
    with session() as s:
        for _ in range(20):
            Call(s, STREAM).write(infer_request(text="some words " * 8000, sampling=dict(max_tokens=3))).cancel()
        equal(unary(s, INFER + "ServerLive")[1], OK, "the connection lives")
    quiet_again(S, free, "cancelled while tokenised")


@test
def a_client_that_takes_nothing():
    """Its call is reset after --write-deadline-s, its requests are slow_client; nobody else notices."""
    with Server(TINY, grpc_port=0, write_deadline_s=1) as server, session(server, window=3000) as s:
        c = Call(s, STREAM, credit=False)
        for rid in ("slow-1", "slow-2"):
            c.write(infer_request(sampling=forced(5, n=1000), id=rid))
        quick = Call(s, STREAM, credit=True).write(infer_request(sampling=forced(5, n=1000), id="quick"))
        c.end()
        check(c.flow.reset is not None and not c.flow.ended, "reset: what it has is no whole answer", c.flow.reset)
        for rid in ("slow-1", "slow-2"):
            row = server.row(rid)
            equal((row["status"], row["reason"]) if row else None, ("cancelled", "slow_client"), f"row of {rid}")
        equal(quick.until_last().outputs.get("completion_tokens"), 1000, "another call of the connection")


@test
def the_engine_dies():
    """The next one goes on with every request of the call; nothing shows."""
    with Server(TINY, grpc_port=0, sim_step_us=5000) as server, session(server) as s:
        c = Call(s, STREAM)
        for rid in ("a", "b"):
            c.write(infer_request(sampling=forced(5, n=200), id=rid))
        c.read(10)
        os.kill(server.pids["engine"][0], signal.SIGKILL)
        c.done()
        while c.answer() is not None:
            pass
        equal(c.end(), (OK, ""), "the call ends well")
        for rid in ("a", "b"):
            last = c.of(rid)[-1]
            equal((last.last, last.error, last.outputs.get("completion_tokens")), (True, "", 200), rid)


@test
def the_frontend_dies():
    """The cut shows: no status, and the rows say why."""
    with Server(TINY, grpc_port=0, frontends=1, sim_step_us=5000) as server, session(server) as s:
        c = Call(s, STREAM).write(infer_request(sampling=forced(5, n=2000), id="lost")).read(5)
        os.kill(server.pids["frontend"][0], signal.SIGKILL)
        check(s.wait(lambda: s.gone) and c.end() == (None, ""), "no end of the call")
        row = server.row("lost")
        equal(row and row["reason"], "frontend_lost", "its row")
        s.broken.clear()  # half a frame is what a death may leave


@test
def cut_by_the_shutdown():
    with Server(TINY, grpc_port=0, drain_s=0.5, sim_step_us=5000) as server, session(server) as s:
        c = Call(s, STREAM).write(infer_request(sampling=forced(5, n=2000), id="cut")).read(5)
        whole = Call(s, INFER_ONE).write(infer_request(sampling=forced(5, n=2000), id="whole")).done()
        check(until(lambda: server.metric("requests_running") == 2), "both are under way")
        os.kill(server.pid, signal.SIGTERM)
        c.until_last()
        equal(c.answers[-1].parameters.get("error_code"), "drain_limit", "an error in the stream")
        equal((c.end()[0], whole.end()[0]), (UNAVAILABLE, UNAVAILABLE), "and the status of both calls")
        until(lambda: server.child.poll() is not None)
        for rid in ("cut", "whole"):
            row = server.row(rid)
            equal(row and row["reason"], "drain_limit", f"row of {rid}")


@test
def connections_of_all_ports_count():
    """--max-connections is of a frontend, whatever they carry; one too many is told so on either port."""
    with Server(TINY, grpc_port=0, max_connections=6, frontends=1, ledger=False) as server:
        crowd = [server.conn() for _ in range(3)]
        for c in crowd:
            c.send(request("GET", "/livez"))
            equal(c.response().status, 200, "HTTP within the limit")
        calls = [Session(port_of(server)) for _ in range(3)]
        for s in calls:
            equal(unary(s, INFER + "ServerLive")[1], OK, "gRPC within the limit")
        with contextlib.closing(server.conn()) as c:
            c.send(request("GET", "/livez"))
            check(is_error(c.response(), 503, code="too_many_connections"), "HTTP: one too many")
        for method in ("ServerLive", "ModelConfig"):
            with session(server) as s:
                equal(unary(s, INFER + method)[1:], (UNAVAILABLE, "The server has no room for another connection."),
                      "gRPC: one too many")
                check(s.wait(lambda: s.goaway and s.gone), "and the connection ends")
        equal([unary(s, INFER + "ServerLive")[1] for s in calls], [OK] * 3, "those within go on")
        calls.pop().close()

        def room():
            with session(server) as s:
                return unary(s, INFER + "ServerLive")[1] == OK
        check(until(room), "a place that a call gave back is another's")
        for c in crowd + calls:
            c.close()
        check(until(lambda: server.metric('requests_refused_total{reason="overloaded"}') >= 3), "counted")


# ---- health, draining -------------------------------------------------------------------------------------

@test
def health():
    with session() as s:
        for service in ("", "inference.GRPCInferenceService"):
            m, status, _ = unary(s, HEALTH + "Check", field(1, service))
            equal((status, one(m, 1)), (OK, 1), f"Check {service!r}")
        equal(unary(s, HEALTH + "Check", field(1, "other"))[1], NOT_FOUND, "Check of another service")
        w = Call(s, HEALTH + "Watch").write(field(1, "other")).done()
        equal(one(w.message(), 1), 3, "Watch of another service")
        w.cancel()
        equal(s.ping(), True, "PING is answered")


@test
def draining():
    """Health says so; calls with work go on to its end, calls that wait are ended; then the server ends."""
    with Server(TINY, grpc_port=0, sim_step_us=20000) as server:
        with session(server) as s:
            watch = Call(s, HEALTH + "Watch").write(b"").done()
            equal(one(watch.message(), 1), 1, "serving")
            waits = Call(s, STREAM).write(infer_request(sampling=dict(max_tokens=1), id="w"))
            waits.until_last()
            works = Call(s, STREAM).write(infer_request(sampling=forced(5, n=60), id="d")).read(2)
            os.kill(server.pid, signal.SIGTERM)
            equal(one(watch.message() or b"", 1), 2, "not serving")
            equal(watch.end()[0], UNAVAILABLE, "and nothing more to watch")
            equal(waits.end()[0], UNAVAILABLE, "a call that waits")
            check(s.wait(lambda: s.goaway), "GOAWAY")
            works.until_last()
            equal((works.answers[-1].error, works.answers[-1].outputs.get("completion_tokens")), ("", 60),
                  "a call with work ends it")
            check(s.wait(lambda: s.gone), "then the connection ends")
        equal(until(lambda: server.child.poll() is not None and [server.child.returncode]), [0], "and the server")


@test
def a_call_keeps_alive():
    """PING while nothing is to be said (queue, prefill), answered or not."""
    with Server(TINY, grpc_port=0, heartbeat_s=0.2, sim_prefill_us=20000) as server, session(server) as s:
        c = Call(s, STREAM).write(infer_request(text="a" * 60, sampling=dict(max_tokens=2), id="k"))
        c.until_last()
        check(s.pings >= 1, "PING instead of silence", s.pings)
        equal(c.answers[-1].error, "", "and the answer comes")


@test
def health_and_life_at_the_end():
    S.alive("gRPC")
    equal(S.metric("streams_without_terminal_total"), 0, "every stream had its end")


if __name__ == "__main__":
    S = Server(grpc_port=0)
    main()
