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


def say(n=3, **more):
    return completion("x", max_tokens=n, ignore_eos=True, **more)


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
        equal([s.post(COMP, say(), headers=bearer(k)).status for k in (ANN, BEN, "tr-carl")], [401, 200, 200],
              "a removed, a kept and a new key")
        check("2 API keys in" in s.log() and "1 are new, 1 are gone" in s.log(), "it is told", s.log()[-400:])
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
    p = make("carl")
    key, line = p.stdout.split("\n")[:2]
    equal(json.loads(line), row("carl", key), "without a file the row is printed")
    for args in (("ann", "--file", path), (), ("a", "b"), ("a b",), ("x", "--weight", "0"), ("x", "--what", "1"),
                 ("x", "--weight", "1x"), ("x", "--file"), ("admin",), ("x", "--file", "/no/such/folder/f")):
        p = make(*args)
        check(p.returncode in (1, 2) and not p.stdout and p.stderr.count("\n") == 1, f"{args}: refused", p)
    with Server(TINY, ledger=False, api_keys=path) as s:
        equal([s.post(COMP, say(), headers=bearer(k)).status for k in keys], [200, 200], "the service knows them")


main()
