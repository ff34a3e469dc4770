# SPDX-License-Identifier: Apache-2.0
"""What people ask and are answered, and what they prove themselves with, is on its way and nowhere else: not
in a log, the ledger, a metric, a file, a core file, the list of processes, or shared memory once the
answer is over.  docs/security.md, "What is written down"."""
import base64
import hashlib
import resource

from lib import *
from websocket import WebSocket

COMP, CHAT, NATIVE = "/v1/completions", "/v1/chat/completions", "/v1/streams"
FLAGS = dict(TINY, frontends=2, log_level="debug", sim_step_us=1000, ctx_size=4096, max_seqs=2, max_queue=2, max_streams=6)


class Marks:
    """Words that stand nowhere by chance, each named for where a client put it."""

    def __init__(self):
        self.word = {}

    def __call__(self, where):
        word = f"zq{len(self.word)}" + "".join(random.choices("bcdfghjklmnpqrstvwxz", k=18))
        return self.word.setdefault(where, word)

    def forms(self, ids_of):
        """(where, form, bytes) of each as it could be written: text, base64, token ids."""
        for where, word in self.word.items():
            yield where, "text", word.encode()
            yield where, "base64", base64.b64encode(b"xx" + word.encode())[4:-4]
            ids = ids_of(word)
            yield where, "ids", struct.pack(f"<{len(ids)}I", *ids)[8:-8]
            yield where, "ids as text", ", ".join(map(str, ids[2:-2])).encode()
            yield where, "ids as text", ",".join(map(str, ids[2:-2])).encode()


def ids_with(s, headers=()):
    return lambda text: s.post("/tokenize", {"model": MODEL, "prompt": text, "add_special_tokens": False}, headers=headers).json["tokens"]


def everywhere(m):
    """Requests with a mark in every place that a client can fill: (path, body or bytes, headers)."""
    head = [f"Authorization: Bearer {m('API key')}", f"X-Api-Key: {m('x-api-key')}", f"Cookie: s={m('cookie')}",
            f"X-Other: {m('a header')}", f"User-Agent: {m('user agent')}", f"Referer: http://x/{m('referer')}"]
    tool = {"type": "function", "function": {
        "name": m("tool name"), "description": m("tool description"),
        "parameters": {"type": "object", "properties": {m("tool parameter"): {"type": "string"}}}}}
    talk = [{"role": "system", "content": m("system message")}, {"role": "user", "content": m("user message")},
            {"role": "assistant", "content": m("earlier answer")}, {"role": "user", "content": "go on"}]
    more = dict(max_tokens=12, user=m("user"), metadata={"k": m("metadata")})
    yield CHAT, dict(model=MODEL, messages=talk, stop=[m("stop string")], **more), head
    yield CHAT, dict(model=MODEL, messages=talk, tools=[tool], tool_choice="none", stream=True, **more), head
    yield COMP, completion(m("prompt"), ignore_eos=True, logprobs=2, **more), head
    yield NATIVE, dict(model=MODEL, prompt=m("native prompt"), ignore_eos=True, **more), head
    yield "/v1/responses", dict(model=MODEL, input=m("input"), instructions=m("instructions"), max_output_tokens=12,
                                metadata={"k": m("metadata of a response")}), head
    yield "/v1/messages", dict(model=MODEL, max_tokens=12, system=m("system"), messages=talk[1:2]), head
    yield CHAT, dict(model=MODEL, messages=talk[1:2], max_tokens=40, response_format={"type": "json_schema", "json_schema": {
        "name": "x", "schema": {"type": "string", "enum": [m("schema")]}}}), head
    yield "/tokenize", dict(model=MODEL, prompt=m("tokenize")), head
    yield COMP, completion("x", max_tokens=1), head + [f"Idempotency-Key: {m('Idempotency-Key')}"]
    yield COMP, completion("x", max_tokens=1), [f"Authorization: Bearer {m('wrong API key')}"]
    # what is refused, and says in its answer what was wrong with it
    yield COMP, completion("x", max_tokens=m("a number")), head
    yield COMP, dict(model=m("model"), prompt="x"), head
    yield COMP, b'{"prompt": "' + m("broken JSON").encode(), head
    yield f"/v1/{m('path')}", {}, head
    yield f"{COMP}?key={m('query')}", completion("x", max_tokens=1), head
    yield f"{NATIVE}/{m('stream id')}", {}, head
    yield COMP, completion("x", max_tokens=1), [f"X-Request-Timeout: {m('wrong header')}"]


def ask_all(s, m):
    for path, body, head in everywhere(m):
        with contextlib.closing(s.conn()) as c:
            c.send(request("POST", path, body, head))
            status = c.response().status
            check(status in (200, 400, 401, 404, 405, 409), "an answer", path, status)
    s.raw(f"{m('method')} / HTTP/1.1\r\nHost: x\r\n\r\n".encode(), shut=True)
    s.raw(f"GET / HTTP/1.1\r\nHost: x\r\n{m('broken head')}\r\n\r\n".encode(), shut=True)
    w = WebSocket(s, headers=[f"Authorization: Bearer {m('API key')}"])
    w.start("a", dict(model=MODEL, prompt=m("websocket prompt"), max_tokens=4))
    w.end("a")
    w.say({"type": m("websocket message")})
    w.close()
    w.conn.close()


def files_below(folder):
    for at, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(at, name)
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    yield os.path.relpath(path, folder), f.read()


def shared_memory(pids):
    """{name of a region: its pages that are not empty}, as the first of these processes that maps it sees it."""
    out, empty = {}, bytes(4096)
    for p in pids:
        with open(f"/proc/{p}/maps", encoding="ascii") as f, open(f"/proc/{p}/mem", "rb") as mem:
            for line in f:
                name = re.search(r"/memfd:(tokenring-\d+-\d+) ", line)
                if name and name.group(1) not in out:
                    low, high = (int(x, 16) for x in line.split()[0].split("-"))
                    mem.seek(low)
                    pages = (mem.read(4096) for _ in range(low, high, 4096))
                    out[name.group(1)] = b"".join(x for x in pages if x != empty)
    return out


def endless(s, text, headers=(), **kw):
    st = s.stream(COMP, completion(text, max_tokens=3500, ignore_eos=True, stream=True, **kw), headers=headers)
    st.read(3)
    return st


@test
def nothing_of_it_is_written_down():
    for form in ("json", "text"):
        folder = tempfile.mkdtemp(prefix="tokenring-secrets-")

        m, places, admin = Marks(), {}, {}
        keys = os.path.join(folder, "..", os.path.basename(folder) + ".keys")
        with open(keys, "w", encoding="ascii") as f:
            json.dump({"keys": [{"name": "ann", "sha256": hashlib.sha256(m("API key").encode()).hexdigest()}]}, f)
        if form == "json":
            admin["admin_key"] = m("admin key")
        else:
            os.environ["TOKENRING_ADMIN_KEY"] = m("admin key")
        bearer = [f"Authorization: Bearer {m('API key')}"]

        def unlimited():
            os.chdir(folder)  # where a core file would be
            resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
        with Server(FLAGS, log_format=form, before=unlimited, api_keys=keys, **admin) as s:
            os.environ.pop("TOKENRING_ADMIN_KEY", None)
            ask_all(s, m)
            forms = list(m.forms(ids_with(s, bearer)))
            told = {path: s.get(path, headers=[f"Authorization: Bearer {m('admin key')}"]).body for path in (
                "/metrics", "/health", "/server_info", "/model_info", "/version", "/v1/models", "/debug/streams")}
            check(b'"ann"' in told["/debug/streams"], "the admin key is known", told["/debug/streams"])
            # Deaths with it in their hands, by a signal that asks for a core file.
            st = endless(s, m("prompt of a stream that dies"), bearer)
            forms += list(m.forms(ids_with(s, bearer)))[-5:]
            for role in ("engine", "ledger", "frontend", "frontend"):
                os.kill(s.processes()[role][0], signal.SIGABRT)
                until(lambda r=role: s.processes()[r] and s.processes() != s.pids)
            st.close()
            check(until(lambda: s.log().count("killed by signal 6") >= 4), "four deaths", s.log()[-600:])
            check(until(lambda: len(s.rows()) >= 10), "rows in the ledger", len(s.rows()))
            places.update({"log": s.log().encode(), **told, "rows": json.dumps(s.rows()).encode()})
            for what in ("cmdline", "environ"):
                places.update({f"{what} of {p}": proc_read(p, what) for p in s.all_pids()})
            places.update(files_below(s.dir))
            check(len(places["log"]) > 3000 and len(places) > 14, f"{form}: something to look through", list(places))
            check(not os.listdir(folder), f"{form}: no core file", os.listdir(folder))
            for where, how, data in forms:
                for place, held in places.items():
                    check(data not in held, f"{form}: {where} as {how} is not in {place}", held[max(0, held.find(data) - 200):][:400])
        subprocess.run(["rm", "-rf", folder, keys], check=False)


@test
def a_place_that_is_given_back_is_empty():
    """Every byte of shared memory that anybody maps is looked at, while an answer is under way and after."""
    with Server(FLAGS) as s:
        m, q = Marks(), ids_with(s)("Q")[0]
        st = endless(s, m("prompt"), stop=[m("stop string")], logit_bias={str(q): 100}, temperature=0)
        st.read(20)
        forms = [(w, how, data) for w, how, data in m.forms(ids_with(s)) if w == "prompt" and how == "ids"]
        forms.append(("answer", "ids", struct.pack("<I", q) * 16))
        pids = s.all_pids()

        def seen():
            regions = shared_memory(pids)
            check(len(regions) > 15, "regions to look through", list(regions))
            return {(w, how): [n for n, held in regions.items() if data in held] for w, how, data in forms}
        check(all(seen().values()), "prompt and answer are seen while they are needed", seen())
        st.close()
        ask_all(s, m)
        check(s.idle(), "all has ended")
        forms += m.forms(ids_with(s))
        until(lambda: not any(seen().values()), 10)
        equal({k: v for k, v in seen().items() if v}, {}, "nothing of a request is left")
        s.alive("looking", None)


# What a role writes, by the kind of the region (shm/layout.h); of areas and statistics a frontend has one each.
WRITES = {"supervisor": "0 5 6 7", "engine": "1 2 3 5 7 8", "ledger": "4 7", "frontend": "3 7 8"}
OF_CONTENT = "1 2 3 4 8".split()


@test
def memory_is_mapped_with_the_rights_of_its_role():
    with Server(FLAGS) as s:
        s.alive("one request", None)
        for p in s.all_pids():
            who = title(p)
            with open(f"/proc/{p}/smaps", encoding="ascii") as f:
                maps = re.findall(r"^[0-9a-f]+-[0-9a-f]+ (\S+) \S+ \S+ \d+ *(.*)((?:\n[A-Za-z_]+: .*)+)", f.read(), re.M)
            check(len(maps) > 20 and not any("w" in r and "x" in r for r, *_ in maps), f"{who}: nothing is writable and executable")
            shared = [(*re.match(r"/memfd:tokenring-(\d+)-(\d+)", name).groups(), rights, more)
                      for rights, name, more in maps if re.match(r"/memfd:tokenring-\d", name)]
            if who != "tokenring: supervisor":  # which keeps what it hands on
                written = sorted((kind, n) for kind, n, rights, _ in shared if "w" in rights)
                equal(sorted({kind for kind, _ in written}), WRITES[who.split()[1]].split(), f"{who}: what it writes")
                check(all([k for k, _ in written].count(kind) == 1 for kind in "78") or "engine" in who or "ledger" in who,
                      f"{who}: its own area and figures and no others", written)
                held = [os.readlink(f"/proc/{p}/fd/{n}") for n in os.listdir(f"/proc/{p}/fd")]
                check(not any("/memfd:tokenring-" in x and x[17].isdigit() for x in held), f"{who}: holds no descriptor of a region", held)
            check({k for k, *_ in shared} >= {"0", "1", "7"} and
                  all(" dd" in more for kind, *_, more in shared if kind in OF_CONTENT), f"{who}: regions with content are in no dump")


if __name__ == "__main__":
    main()
