# SPDX-License-Identifier: Apache-2.0
"""Case B64 (b): behind nginx, as it comes (HTTP/1.0 to us, buffering) and with keep-alive upstream."""
from lib import *

S = None
PLAIN = "proxy_pass http://127.0.0.1:%d;"
KEPT = "proxy_pass http://up; proxy_http_version 1.1; proxy_set_header Connection '';"


class Nginx:
    """One nginx process of our own in front of a server."""

    def __init__(self, server, location):
        for _ in range(5):  # another one may take the port before nginx does
            if self.start(server, location):
                return
        raise RuntimeError(f"nginx does not start: {self.log()}")

    def start(self, server, location):
        self.dir = tempfile.mkdtemp(prefix="tokenring-nginx-")
        with contextlib.closing(socket.socket()) as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        temp = "".join(f"{k}_temp_path {self.dir}/{k};\n" for k in
                       ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(f"{self.dir}/conf", "w", encoding="utf-8") as f:
            f.write(f"""daemon off; master_process off; pid {self.dir}/pid; error_log {self.dir}/log;
events {{}}
http {{ access_log off; {temp}
upstream up {{ server 127.0.0.1:{server.port}; keepalive 4; }}
server {{ listen 127.0.0.1:{self.port};
location / {{ {location % server.port if '%d' in location else location} }} }} }}
""")
        os.chmod(self.dir, 0o755)
        self.child = subprocess.Popen(["nginx", "-p", self.dir, "-c", f"{self.dir}/conf"],
                                      stderr=subprocess.DEVNULL)

        def answers():
            with contextlib.suppress(OSError, EOFError, ValueError):
                r = Server.get(self, "/livez")
                return r.status == 200 and (r.header("server") or "").startswith("nginx")
        return until(lambda: answers() or self.child.poll() is not None) and self.child.poll() is None

    def log(self):
        with open(f"{self.dir}/log", encoding="utf-8") as f:
            return f.read()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.child.terminate()
        self.child.wait()
        subprocess.run(["rm", "-rf", self.dir], check=False)

    conn, ask, post, raw, responses = Server.conn, Server.ask, Server.post, Server.raw, Server.responses


def running():
    return S.metric("requests_running")


def streams(front, name):
    """Each event is passed on when it comes, in what order the chunks of nginx cut them."""
    body = force(369, prompt="x", max_tokens=300, stream=True)
    with contextlib.closing(front.conn()) as c:
        c.send(request("POST", "/v1/completions", body))
        status, _, h = c.head()
        check(status == 200 and h.get("content-type", "").split(";")[0] == "text/event-stream" and
              h.get("cache-control") == "no-cache, no-transform" and
              h.get("transfer-encoding") == "chunked", f"{name}: headers of a stream", status, h)
        data, seen, early = b"", 0, 0
        while (part := c.chunk()):
            data += part
            if data.count(b"\n\n") >= seen + 20:
                seen = data.count(b"\n\n")
                early += running() == 1
        events = data.split(b"\n\n")
        check(early >= 3, f"{name}: events arrive while others are still made", early)
        check(events[-1] == b"" and events[-2] == b"data: [DONE]" and len(events) == 303 and
              all(e.startswith(b"data: {") for e in events[:-2]), f"{name}: pure SSE, nothing mixed in",
              len(events), data[:300])


def leaving(front, name):
    with contextlib.closing(front.conn()) as c:
        c.send(request("POST", "/v1/completions", force(369, prompt="x", max_tokens=4000, stream=True),
                       [f"X-Request-Id: {name}-left"]))
        c.head()
        c.chunk()
    row = S.row(f"{name}-left")
    check(row and row["status"] == "cancelled" and row["completion_tokens"] < 2000,
          f"{name}: a client that leaves cancels", row)
    check(S.idle(), f"{name}: and nothing runs on")


def whole(front, name):
    """Answers and refusals in one piece, with small bodies and such as we do not read to the end."""
    r = front.post("/v1/chat/completions", chat("Hi", max_tokens=1))
    check(r.status == 200 and r.json["usage"]["prompt_tokens"] == 31, f"{name}: an answer", r.text)
    r = front.post("/tokenize", {"prompt": "a b " * 100000})
    check(r.status == 200 and r.json["count"] > 100000, f"{name}: a long body and a long answer", r.status)
    wrong = {}
    for status, path, data in ((404, "/nowhere", b"x" * 900000), (404, "/nowhere", b"x" * 100),
                               (405, "/v1/models", b"x" * 900000), (400, "/tokenize", b"x" * 900000)):
        for _ in range(10):
            r = front.post(path, data)
            if r.status != status or not r.error:
                wrong[path, len(data), r.status] = r.text[:200]
    equal(wrong, {}, f"{name}: each refusal is ours, none a 502")


@test
def behind_nginx():
    for name, location in (("plain", PLAIN), ("kept", KEPT)):
        with Nginx(S, location) as front:
            streams(front, name)
            leaving(front, name)
            whole(front, name)
    S.alive("behind nginx")


if __name__ == "__main__":
    S = Server(sim_step_us=10000)
    main()
