# SPDX-License-Identifier: Apache-2.0
"""API keys: who may come in over every carrier, what a key may, and what a change of the file does."""
import hashlib

import frames
import oip
from lib import *
from websocket import WebSocket

CHAT, COMP, NATIVE, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/streams", "/v1/messages"
INFER_ONE, INFER_STREAM = oip.INFER + "ModelInfer", oip.INFER + "ModelStreamInfer"
ANN, BEN, BOSS = "tr-ann-0123456789", "tr-ben-0123456789", "tr-boss-0123456789"
PATH = os.path.join(tempfile.mkdtemp(prefix="tokenring-keys-"), "keys.json")


def row(name, key, **limits):
    return dict(name=name, sha256=hashlib.sha256(key.encode()).hexdigest(), **limits)


def write_keys(*rows, text=None):
    """The file of --api-keys; whole in one step, as an editor does it."""
    with open(PATH + ".new", "w", encoding="utf-8") as f:
        f.write(text or json.dumps({"keys": rows}))
    os.rename(PATH + ".new", PATH)
    return PATH


def serve(*rows, **more):
    return Server(TINY, api_keys=write_keys(*rows), frontends=2, **more)


def bearer(key):
    return [f"Authorization: Bearer {key}"]


def say(tokens=3, prompt="x", **more):
    return completion(prompt, max_tokens=tokens, ignore_eos=True, **more)


def reload(s, *rows, text=None):
    """SIGHUP, and every frontend has been replaced."""
    n = s.log().count("is new (pid")
    write_keys(*rows, text=text)
    os.kill(s.pid, signal.SIGHUP)
    check(until(lambda: s.log().count("is new (pid") == n + 2), "the frontends are replaced", s.log()[-500:])


@test
def who_may_come_in():
    with serve(row("ann", ANN), row("ben", BEN), admin_key=BOSS) as s:
        for fields in (bearer(ANN), [f"authorization: bearer {ANN}"], [f"X-Api-Key: {ANN}"], [f"api-key: {ANN}"],
                       [f"X-Api-Key: {ANN}", "Authorization: Basic Og=="], bearer(BOSS)):
            r = s.post(COMP, say(), headers=fields)
            equal((fields[0], r.status), (fields[0], 200), "a key in a field that clients use")
        for fields in ([], bearer("wrong"), bearer(ANN + "x"), bearer(ANN[:-1]), ["Authorization: " + ANN],
                       bearer(ANN) + [f"X-Api-Key: {BEN}"], bearer("ann"), bearer("")):
            r = s.post(COMP, say(), headers=fields)
            check(is_error(r, 401, code="invalid_api_key") and r.header("www-authenticate") == "Bearer",
                  f"{fields}: no key", r.status, r.headers, r.text)
        r = s.post(MESSAGES, chat("x", max_tokens=1))
        check(r.status == 401 and r.json["type"] == "error" and r.json["error"]["type"] == "authentication_error" and
              r.json["request_id"] == r.header("request-id"), "Anthropic's words", r.text)
        for path in ("/", "/health", "/readyz", "/livez", "/startupz", "/ping", "/v2/health/live", "/v2/health/ready",
                     "/version", "/server_info", "/model_info", "/metrics"):
            r = s.get(path)
            equal((path, r.status), (path, 200), "open to everybody")
            check(not any(name.encode() in r.body for name in ("ann", "ben")), f"{path} names no key") \
                if path != "/" else None
        for path in ("/v1/models", "/v1/models/" + MODEL, "/v1/responses/resp_x", "/v1/streams/st_x"):
            equal((path, s.get(path).status), (path, 401), "closed")
        equal(s.get("/nothing").status, 404, "what is not there is not hidden")
        equal(s.ask("OPTIONS", CHAT, None).status, 204, "a browser asks without a key")


@test
def a_refused_body_is_not_read_as_a_request():
    with serve(row("ann", ANN)) as s:
        body = json.dumps(say()).encode()
        out, rest = s.responses(request("POST", COMP, body, bearer("wrong")) + request("GET", "/health"))
        equal(([r.status for r in out], rest), ([401, 200], b""), "the next request is read where it begins")
        late = request("POST", COMP, None, bearer("wrong") + ["Expect: 100-continue"])
        late = late.replace(b"Content-Length: 0", b"Content-Length: 40000")
        out, rest = s.responses(late, n=2)
        check([r.status for r in out] == [401] and not rest, "no 100 for a stranger", out and out[0].status, rest)


@test
def every_carrier():
    with serve(row("ann", ANN), grpc_port=0) as s:
        for key, status in ((ANN, "200"), ("wrong", "401"), (None, "401")):
            h2 = frames.Session(s.port)
            head = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", COMP),
                    ("content-type", "application/json")] + ([("authorization", f"Bearer {key}")] if key else [])
            f = h2.request(head, body=json.dumps(say()).encode())
            f.wait(f.over)
            equal((key, f.header(":status")), (key, status), "HTTP/2")
            h2.close()
        for headers, status in ((bearer(ANN), 101), ([f"X-Api-Key: {ANN}"], 101), ([], 401), (bearer("no"), 401),
                                (["Sec-WebSocket-Protocol: tokenring.events.v1, tokenring.key." + ANN], 101),
                                (["Sec-WebSocket-Protocol: tokenring.events.v1, tokenring.key.no"], 401)):
            ws = WebSocket(s, headers=headers)
            equal((headers, ws.status), (headers, status), "WebSocket")
            if status == 401:
                check(is_error(ws.response, 401, code="invalid_api_key"), "its refusal", ws.response.text)
                continue
            if "Protocol" in headers[0]:
                equal(ws.head.get("sec-websocket-protocol"), "tokenring.events.v1", "the key is not answered")
            ws.start("a", say())
            ws.end("a")
            equal(ws.events["a"][-1]["type"], "response.incomplete", "a stream of that WebSocket")
            ws.conn.close()
        h2 = frames.Session(oip.port_of(s))
        ask = oip.infer_request("x", dict(max_tokens=3, ignore_eos=True), model=MODEL)
        for key, want in ((ANN, 0), ("wrong", 16), (None, 16)):
            meta = [("authorization", f"Bearer {key}")] if key else []
            m, code, _ = oip.unary(h2, INFER_ONE, ask, headers=meta)
            equal((key, code, m is not None), (key, want, not want), "ModelInfer")
            c = oip.Call(h2, INFER_STREAM, headers=meta)
            c.infer(ask).done() if not want else None
            equal((key, c.until_last() is not None, c.end()[0]), (key, not want, want), "ModelStreamInfer")
        for path, ask in (("/grpc.health.v1.Health/Check", b""), (oip.INFER + "ServerLive", b""),
                          (oip.INFER + "ServerReady", b""), (oip.INFER + "ServerMetadata", b"")):
            equal((path, oip.unary(h2, path, ask)[1]), (path, 0), "open to everybody")
        h2.close()


@test
def rows_and_streams_are_a_keys_own():
    with serve(row("ann", ANN), row("ben", BEN)) as s:
        for name, key in (("ann", ANN), ("ben", BEN)):
            r = s.post(COMP, say(), headers=bearer(key))
            equal((s.row(r.header("x-request-id")) or {}).get("key"), name, "the row names the key")
        body = say(2000, on_disconnect="hold")
        st = s.conn()
        st.send(request("POST", NATIVE, body, bearer(ANN)))
        st.head()
        event = json.loads(st.chunk().split(b"data: ", 1)[1])
        path = f"{NATIVE}/{event['stream_id']}"
        st.close()
        # Until the engine has come to it nobody knows whose it is.
        check(until(lambda: s.ask("GET", path, None, headers=bearer(BEN)).status != 503), "it is there")
        for headers, status in ((bearer(BEN), 404), ([], 401)):
            for method in ("GET", "DELETE"):
                equal((method, s.ask(method, path, None, headers=headers).status), (method, status),
                      "another's stream is not there")
        with contextlib.closing(s.conn()) as c:
            c.send(request("GET", path, None, bearer(ANN)))
            equal(c.head()[0], 200, "its own key resumes it")
        equal(s.ask("DELETE", path, None, headers=bearer(ANN)).status, 200, "and cancels it")
        r = s.post("/v1/responses", dict(model=MODEL, input="x", background=True, max_output_tokens=2), headers=bearer(ANN))
        path = "/v1/responses/" + r.json["id"]
        equal((s.get(path, headers=bearer(BEN)).status, s.get(path, headers=bearer(ANN)).status), (404, 200),
              "a response in the background")


@test
def a_changed_file():
    with serve(row("ann", ANN), row("ben", BEN)) as s:
        st = s.stream(COMP, say(4000, stream=True), headers=bearer(ANN))
        st.read(3)
        reload(s, row("ben", BEN), row("carl", "tr-carl"))
        st.read(3)
        check(not st.ended and len(st.events) >= 6, "the stream of a removed key goes on")
        st.close()
        # The old frontend may have taken a connection in the moment before it retired.
        check(until(lambda: s.post(COMP, say(), headers=bearer(ANN)).status == 401), "a removed key")
        equal([s.post(COMP, say(), headers=bearer(k)).status for k in (BEN, "tr-carl")], [200, 200], "a kept and a new one")
        check("2 API keys in" in s.log() and ": 1 new, 1 gone" in s.log(), "it is told", s.log()[-400:])
        reload(s, text='{"keys":[{"name":"x"}]}')
        check(re.search(r"error +tokenring: the API keys stay as they were: .*keys\[0\]: name and sha256", s.log()),
              "what is wrong is told", s.log()[-600:])
        equal([s.post(COMP, say(), headers=bearer(k)).status for k in (ANN, BEN, "tr-carl")], [401, 200, 200],
              "and changes nothing")


@test
def starting():
    good = write_keys(row("ann", ANN))
    for flags, says in (({"api_keys": PATH + ".no"}, "cannot be read: No such file"),
                        ({"api_keys": write_keys(row("a", ANN), row("b", ANN))}, "another row is of the same key"),
                        ({"admin_key": "sha256:1"}, "--admin-key: behind sha256: are 64"),
                        ({"admin_key": "x" * 300}, "--admin-key is longer than")):
        status, err, _ = fails_to_start(dict(TINY, port=0, **flags))
        check(status in (1, 2) and says in err and "Traceback" not in err, f"{flags}: one sentence", status, err)
    good = write_keys(row("ann", ANN))
    warning = "listens on more than loopback"
    for more, warned in (({}, True), ({"api_keys": good}, False)):
        with Server(TINY, ledger=False, host="0.0.0.0", frontends=1, **more) as s:
            equal(warning in s.log(), warned, f"{more}: a warning that anybody may use it")
    with Server(TINY, ledger=False, frontends=1, admin_key=BOSS) as s:
        check(warning not in s.log(), "none on loopback")
        check(all(BOSS.encode() not in proc_read(p, what) for p in s.all_pids() for what in ("cmdline", "environ")),
              "the admin key is not in the list of processes")
        equal(s.post(COMP, say()).status, 200, "without --api-keys the admin key locks nothing else")
    hashed = "sha256:" + hashlib.sha256(BOSS.encode()).hexdigest().upper()
    for given in BOSS, hashed:
        with serve(row("ann", ANN), admin_key=given) as s:
            check("1 API key in" in s.log(), "that of --admin-key is in no file", s.log()[-400:])
            reload(s, row("ann", ANN), row("ben", BEN))
            check(re.search(r"2 API keys in .*: 1 new, 0 gone", s.log()), "nor later", s.log()[-400:])
            equal(s.get("/debug/streams", headers=bearer(BOSS)).status, 200, f"{given:.6}: it outlives a reload")


@test
def making_keys():
    path = os.path.join(os.path.dirname(PATH), "made.json")

    def make(*args):
        return subprocess.run([BIN, "key", *args], capture_output=True, text=True, check=False)
    one = make("ann", "--file", path, "--max-streams", "4", "--weight=3")
    two = make("ben", "--file", path, "--admin")
    keys = [p.stdout.strip() for p in (one, two)]
    check(one.returncode == two.returncode == 0 and all(re.fullmatch(r"tr-[\w-]{32}", k) for k in keys) and
          keys[0] != keys[1], "a key each", one, two)
    with open(path, encoding="utf-8") as f:
        text = f.read()
    equal(json.loads(text)["keys"], [row("ann", keys[0], weight=3, max_streams=4), row("ben", keys[1], admin=True)],
          "the file has their hashes")
    check(all(k not in text for k in keys) and os.stat(path).st_mode & 0o777 == 0o600, "and is nobody's but ours")
    many = together([lambda i=i: make(f"n{i}", "--file", path) for i in range(8)])
    with open(path, encoding="utf-8") as f:
        kept = json.load(f)["keys"]
    check(all(p.returncode == 0 for p in many) and len(kept) == 10, "none is lost of those that come at once", many, kept)
    p = make("carl")
    key, line = p.stdout.split("\n")[:2]
    equal(json.loads(line), row("carl", key), "without a file the row is printed")
    for args in (("ann", "--file", path), (), ("a", "b"), ("a b",), ("x", "--weight", "0"), ("x", "--what", "1"),
                 ("x", "--weight", "1x"), ("x", "--file"), ("admin",), ("x", "--file", "/no/such/folder/f")):
        p = make(*args)
        check(p.returncode in (1, 2) and not p.stdout and p.stderr.count("\n") == 1, f"{args}: refused", p)
    with Server(TINY, ledger=False, api_keys=path) as s:
        equal([s.post(COMP, say(), headers=bearer(k)).status for k in keys], [200, 200], "the service knows them")


def statuses(answers):
    out = {}
    for a in answers:
        out[getattr(a, "status", repr(a))] = out.get(getattr(a, "status", repr(a)), 0) + 1
    return out


def is_limited(r):
    """429 in OpenAI's words, and a wait that its clients obey (they give up above 120 s)."""
    return (is_error(r, 429, code="rate_limit_exceeded") and r.error["type"] == "rate_limit_error" and
            1 <= int(r.header("retry-after")) <= 61)


FRONTENDS = 4  # a limit is passed by three at most


@test
def a_burst_over_frontends():
    with Server(TINY, ledger=False, frontends=FRONTENDS, api_keys=write_keys(
            row("ann", ANN, requests_per_min=20), row("ben", BEN, max_streams=5), row("carl", "tr-carl"))) as s:
        conns = [s.conn() for _ in range(60)]  # taken by all frontends before anything is asked
        for c in conns:
            c.send(request("GET", "/livez"))
            c.response()
        holders = [len(clients_of(p, s.port)) for p in s.processes()["frontend"]]
        check(all(holders), "every frontend has some", holders)

        def burst(body, key, path=COMP):
            """All at once; who read the whole answer, or its head when it is a stream."""
            data = request("POST", path, body, bearer(key))
            for c in conns:
                c.send(data)
            return together([c.response for c in conns]) if not body.get("stream") else [c.head() for c in conns]
        got = burst(say(2), ANN)
        n = statuses(got)
        check(set(n) <= {200, 429} and 20 <= n[200] <= 20 + FRONTENDS - 1, "requests a minute, over all frontends", n)
        check(all(is_limited(r) for r in got if r.status == 429), "and how it is told",
              [(r.headers, r.text) for r in got if r.status == 429][:1])
        heads = [r.headers for r in got]
        check(all(h["x-ratelimit-limit-requests"] == "20" and 0 <= int(h["x-ratelimit-remaining-requests"]) < 20 and
                  re.fullmatch(r"(1m)?\d+s", h["x-ratelimit-reset-requests"]) for h in heads), "on every answer", heads[0])
        equal(statuses(burst(say(2), "tr-carl")), {200: 60}, "another key has none of it")
        got = burst(say(5000, stream=True), BEN)
        n = {code: sum(h[0] == code for h in got) for code in {h[0] for h in got}}
        check(set(n) == {200, 429} and 5 <= n[200] <= 5 + FRONTENDS - 1, "streams at a time, over all frontends", n)
        r = s.post(COMP, say(2), headers=bearer(BEN))
        check(is_limited(r) and "at a time: at most 5." in r.error["message"], "one more", r.text)
        for c in conns:
            c.close()
        check(until(lambda: s.post(COMP, say(2), headers=bearer(BEN)).status == 200), "when they are gone there is room")
        r = s.post(COMP, say(2, n=6), headers=bearer(BEN))
        check(is_limited(r) and "asks for 6." in r.error["message"], "each choice is a stream", r.text)


@test
def limits_outlive_a_frontend():
    with Server(TINY, ledger=False, frontends=2, api_keys=write_keys(
            row("ann", ANN, requests_per_min=6, max_streams=2))) as s:
        first, second = s.processes()["frontend"]
        a, b = s.conn_at(first), s.conn_at(second)
        for c in (a, b):
            c.send(request("POST", COMP, say(8000, stream=True), bearer(ANN)))
            equal(c.head()[0], 200, "a stream at each")
        equal(s.post(COMP, say(2), headers=bearer(ANN)).status, 429, "and no third")
        os.kill(first, signal.SIGKILL)
        check(until(lambda: first not in s.processes()["frontend"] and len(s.processes()["frontend"]) == 2), "it is replaced")
        check(until(lambda: s.post(COMP, say(2), headers=bearer(ANN)).status == 200), "what the dead had running is not running")
        got = [s.post(COMP, say(2), headers=bearer(ANN)) for _ in range(6)]
        check(got[-1].status == 429 and "in a minute: at most 6" in got[-1].error["message"],
              "what it was asked in the last minute counts", statuses(got))
        a.close(), b.close()


@test
def a_stream_that_is_taken_over_counts():
    with Server(TINY, ledger=False, frontends=2, resume_window_s=600, api_keys=write_keys(
            row("ann", ANN, max_streams=1))) as s:
        first, _ = s.processes()["frontend"]
        with contextlib.closing(s.conn_at(first)) as c:
            c.send(request("POST", NATIVE, say(8000, on_disconnect="hold"), bearer(ANN)))
            path = NATIVE + "/" + c.head()[2]["x-tokenring-stream"]
            os.kill(first, signal.SIGKILL)
        # Of nobody for a moment, then another's: it counts again.
        check(until(lambda: (r := s.post(COMP, say(1), headers=bearer(ANN))).status == 429 and
                    "Running: 1." in r.error["message"]), "it counts at the frontend that has it now")
        # 503: the engine has not come to it yet.
        check(until(lambda: s.ask("DELETE", path, None, headers=bearer(ANN)).status == 200), "it is cancelled")
        check(until(lambda: s.post(COMP, say(1), headers=bearer(ANN)).status == 200), "and counts no more")


@test
def prefix_caches_apart():
    words = "the sea and the wind and the rain " * 10

    def cached(s, key):
        r = s.post(COMP, say(1, words), headers=bearer(key))
        return r.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    with serve(row("ann", ANN), row("ben", BEN), prefix_cache="per-key") as s:
        equal((cached(s, ANN), cached(s, BEN)), (0, 0), "a key finds nothing of another's")
        check(cached(s, ANN) > 100 and cached(s, BEN) > 100, "and what it has left itself")
    with serve(row("ann", ANN), row("ben", BEN)) as s:
        equal(cached(s, ANN), 0, "the first")
        check(cached(s, BEN) > 100, "without per-key it is one cache for all")


@test
def pages_of_other_origins():
    with Server(TINY, ledger=False, cors="https://page.example", api_keys=write_keys(row("ann", ANN, requests_per_min=5))) as s:
        sent = "authorization, x-api-key, api-key, x-stainless-lang, x-stainless-retry-count"
        r = s.ask("OPTIONS", CHAT, None, headers=["Origin: https://page.example", "Access-Control-Request-Method: POST",
                                                  f"Access-Control-Request-Headers: {sent}"])
        equal((r.status, r.header("access-control-allow-headers")), (204, sent), "the fields that clients send are granted")
        for key, status in (("no", 401), (ANN, 200)):
            r = s.post(COMP, say(1), headers=bearer(key) + ["Origin: https://page.example", "X-Stainless-Lang: js"])
            equal((r.status, r.header("access-control-allow-origin")), (status, "https://page.example"), "the answer can be read")
            check("x-ratelimit-remaining-requests" in r.header("access-control-expose-headers"), "and its fields", r.headers)


@test
def tokens_a_minute():
    with Server(TINY, ledger=False, frontends=2, api_keys=write_keys(row("ann", ANN, tokens_per_min=60)),
                grpc_port=0) as s:
        r = s.post(COMP, say(1, "x" * 80), headers=bearer(ANN))
        check(is_limited(r) and "the prompt alone has" in r.error["message"], "a prompt that can never fit", r.text)
        r = s.post(COMP, say(55, stream=True, stream_options={"include_usage": True}), headers=bearer(ANN))
        equal(r.status, 200, "the first fits, and is not cut")
        used = json.loads(r.text.split("data: ")[-2])["usage"]["total_tokens"]
        r = s.post(COMP, say(1, prompt="abcdefghij"), headers=bearer(ANN))
        check(is_limited(r) and f"has used {used}" in r.error["message"] and
              r.header("x-ratelimit-limit-tokens") == "60" and r.header("x-ratelimit-remaining-tokens") == str(60 - used),
              "prompt and answer count", r.text, r.headers)
        r = s.post(MESSAGES, chat("x" * 20, max_tokens=1), headers=[f"X-Api-Key: {ANN}"])
        check(r.status == 429 and r.json["error"]["type"] == "rate_limit_error" and r.header("retry-after") and
              r.header("anthropic-ratelimit-tokens-limit") == "60" and
              re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r.header("anthropic-ratelimit-tokens-reset") or ""),
              "Anthropic's words", r.text, r.headers)
        ws = WebSocket(s, headers=bearer(ANN))
        ws.start("a", say(1, prompt="abcdefghij"))
        ws.end("a")
        e = ws.events["a"][-1]
        equal((e["type"], e["code"], e["status"]), ("error", "rate_limit_exceeded", 429), "on a WebSocket")
        ws.conn.close()
        h2 = frames.Session(oip.port_of(s))
        ask = oip.infer_request("abcdefghij", dict(max_tokens=1), model=MODEL)
        _, code, text = oip.unary(h2, INFER_ONE, ask, headers=[("authorization", f"Bearer {ANN}")])
        check(code == 8 and "tokens in a minute" in text, "ModelInfer: RESOURCE_EXHAUSTED", code, text)
        c = oip.Call(h2, INFER_STREAM, headers=[("x-api-key", ANN)])
        c.infer(ask).done()
        equal(c.until_last().parameters.get("error_code"), "rate_limit_exceeded", "a request in ModelStreamInfer")
        h2.close()
        check(s.metric('requests_refused_total{reason="rate_limit"}') >= 6, "refusals are counted")


@test
def strangers_find_no_other_way_in():
    """Spellings of a path, a connection that had a key before, heads that HTTP/2 knows, and another key."""
    with serve(row("ann", ANN), row("ben", BEN)) as s:
        for path in ("/health/../v1/models", "/v1/models/..", "//v1//models", "/%76%31/models", "/v1/models%2f", "/v1/models/", "/v1/models;x",
                     "/health%2f..%2fv1%2fmodels", "/v1/./models", "http://x/v1/models", "/v1/models?key=" + ANN, "/debug//streams"):
            for method in ("GET", "HEAD"):
                r = s.ask(method, path, None)
                check(r.status in (401, 404), f"{method} {path}", r.status, r.text)
        with contextlib.closing(s.conn()) as c:
            c.send(request("GET", "/v1/models", None, bearer(ANN)) + request("GET", "/v1/models"))
            equal([c.response().status, c.response().status], [200, 401], "a key is of one request")
        h = frames.Session(s.port)

        def status(*fields, path="/v1/models", authority="x"):
            f = h.request([(":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", path), *fields])
            f.wait(f.over)
            return f.header(":status") or "reset"
        equal([status(("authorization", f"Bearer {ANN}")), status(), status(authority=f"{ANN}@x"), status(("Authorization", f"Bearer {ANN}")),
               status(("authorization", f"Bearer {ANN}"), ("authorization", f"Bearer {BEN}"))], ["200", "401", "400", "reset", "401"], "HTTP/2")
        h.close()
        st = s.stream(NATIVE, say(3000, on_disconnect="hold"), headers=bearer(ANN))
        st.headers()
        w = WebSocket(s, headers=bearer(BEN))
        w.cancel(st.id)
        w.say({"type": "resume", "stream": "x", "id": st.id, "after": 0})
        while len(told := w.events[""] + w.events.get("x", [])) < 2 and w.next():
            pass
        equal([e["status"] for e in told], [404, 404], "another key's stream is not there on a WebSocket")
        w.close()
        w.conn.close()
        r = s.post("/v1/responses", dict(model=MODEL, input="x", background=True, max_output_tokens=200), headers=bearer(ANN))
        at = "/v1/responses/" + r.json["id"]
        for method, path in (("GET", at), ("GET", at + "?stream=true"), ("GET", at + "/input_items"), ("POST", at + "/cancel"), ("DELETE", at)):
            equal((method, s.ask(method, path, None, headers=bearer(BEN)).status in (404, 405)), (method, True), f"nor {path}")
        equal(s.ask("DELETE", f"{NATIVE}/{st.id}", None, headers=bearer(ANN)).status, 200, "they have gone on")
        st.close()


@test
def introspection():
    with Server(TINY, frontends=2, admin_key=BOSS, api_keys=write_keys(
            row("ann", ANN, max_streams=9, priority=4, weight=3), row("ops", BEN, admin=True))) as s:
        st = s.stream(NATIVE, say(8000, priority=2, on_disconnect="hold"), headers=bearer(ANN) + ["X-Request-Id: mine"])
        st.headers()
        equal([s.get("/debug/streams", headers=h).status for h in ([], bearer("no"), bearer(ANN), bearer(BOSS), bearer(BEN))],
              [401, 401, 403, 200, 200], "who may look")
        r = until(lambda: (r := s.get("/debug/streams", headers=bearer(BOSS)).json)["data"] and
                  r["data"][0]["completion_tokens"] > 3 and r)
        d = r["data"][0]
        equal((d["state"], d["key"], d["request_id"], d["priority"], d["resumable"], d["max_tokens"]),
              ("running", "ann", "mine", 6, True, 8000), "a stream")
        k = {k["name"]: k for k in r["keys"]}
        equal((k["ann"]["streams"], k["ann"]["requests"], k["ann"]["max_streams"], k["ann"]["weight"]), (1, 1, 9, 3), "a key")
        secret = st.id.split("-")[-1]
        check(len(secret) == 16 and secret not in json.dumps(r), "nothing that resumes or cancels it", st.id)
        equal(s.get("/debug/streams?from=5", headers=bearer(BOSS)).json["data"], [], "from a slot on")
        check(is_error(s.get("/debug/streams?from=x", headers=bearer(BOSS)), 400, "from"), "which is a number")
        equal(s.ask("DELETE", f"{NATIVE}/{st.id}", None, headers=bearer(BOSS)).status, 404, "an admin key is not its key")
        r = s.post(COMP, say(1, priority=-1), headers=bearer(ANN))
        check(is_error(r, 400, "priority"), "no request goes before its key", r.text)
        st.close()
    with Server(TINY, ledger=False) as s:
        equal(s.get("/debug/streams").status, 200, "without any keys everybody may")
        equal(s.post(COMP, say(1, priority=-1)).status, 200, "and say how urgent it is")


@test
def order_among_keys():
    """One place in the batch, taken until all others wait: then weights decide, and priorities before them."""
    with Server(TINY, frontends=2, max_seqs=1, admin_key=BOSS, api_keys=write_keys(
            row("ann", ANN, weight=4), row("ben", BEN), row("late", "tr-late", priority=7, weight=1000))) as s:
        first = s.stream(COMP, say(8000, stream=True), headers=bearer(BOSS)).read(1)
        conns = []
        for i in range(15):
            for key in ("tr-late", BEN, ANN) if i < 3 else (BEN, ANN):
                c = s.conn()
                c.send(request("POST", COMP, say(4), bearer(key)))
                conns.append(c)
        check(until(lambda: s.metric("requests_waiting") == len(conns)), "all wait", s.metric("requests_waiting"))
        first.close()
        equal({r.status for r in together([c.response for c in conns])}, {200}, "all are served")
        order = [r["key"] for r in sorted(s.rows(), key=lambda r: r["finished_at"]) if r["key"] != "admin"]
        check(11 <= order[:15].count("ann") <= 13 and order[:15].count("ben") >= 2, "four of five are of the key of weight 4", order)
        equal(order[-3:], ["late"] * 3, "a key of lower priority comes when nobody else waits")


@test
def clients_send_a_key():
    with serve(row("ann", ANN)) as s:
        url = f"http://127.0.0.1:{s.port}"
        for args, status in ((["probe", "--url", url, "--api-key", ANN, "--requests", "2", "--max-tokens", "3"], 0),
                             (["probe", "--url", url, "--requests", "1"], None)):
            p = subprocess.run([BIN, *args], capture_output=True, text=True, check=False)
            check(p.returncode == status if status is not None else p.returncode != 0, f"{args[3:]}", p.stdout, p.stderr)
        env = dict(os.environ, TOKENRING_PROBE_API_KEY=ANN)
        p = subprocess.run([BIN, "probe", "--url", url, "--requests", "1", "--max-tokens", "2"], capture_output=True,
                           text=True, check=False, env=env)
        equal(p.returncode, 0, "from the environment")
        equal({r["key"] for r in s.rows()}, {"ann"}, "its rows")


main()
