# SPDX-License-Identifier: Apache-2.0
"""The built-in page: what is served, under which policy, and that it needs nothing from elsewhere."""
import base64
import hashlib
import html.parser

from lib import *

S = None
with open(os.path.join(ROOT, "frontend/page/index.html"), "rb") as _f:
    PAGE = _f.read()


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and the text of script and style."""

    def __init__(self, text):
        super().__init__()
        self.all, self.inside, self._open = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data):
        if self._open in ("script", "style"):
            self.inside[self._open] = self.inside.get(self._open, "") + data

    def handle_endtag(self, tag):
        self._open = None


@test
def the_file():
    r = S.get("/")
    equal(r.status, 200, "the page is there")
    equal(r.body, PAGE, "it is the file as it is")
    equal(r.header("content-type"), "text/html; charset=utf-8", "its type")
    equal(r.header("cache-control"), "no-cache", "it is asked for anew each time")
    equal(r.header("x-content-type-options"), "nosniff", "its type is not guessed at")
    equal(r.header("referrer-policy"), "no-referrer", "its address is told to nobody")
    equal(S.get("/?x=1").body, PAGE, "with a query")
    equal(S.ask("POST", "/", {}).status, 405, "it takes GET and HEAD alone")


@test
def policy():
    """The policy runs exactly what is in the file, and reaches exactly this server."""
    rules = {}
    for rule in S.get("/").header("content-security-policy").split(";"):
        name, *values = rule.split()
        rules[name] = values
    inside = Elements(PAGE.decode()).inside
    for tag in ("script", "style"):
        told = base64.b64encode(hashlib.sha256(inside[tag].encode()).digest()).decode()
        equal(rules[f"{tag}-src"], [f"'sha256-{told}'"], f"the one {tag} is allowed by its hash, nothing else")
    equal(rules["connect-src"], ["'self'"], "it asks this server alone")
    equal(rules["img-src"], ["data:"], "no picture is loaded")
    for name in ("default-src", "base-uri", "form-action", "frame-ancestors"):
        equal(rules[name], ["'none'"], name)
    equal(len(rules), 8, "no rule besides")


@test
def nothing_from_elsewhere():
    page = Elements(PAGE.decode())
    equal(re.findall(rb"(?:https?:|wss?:)?//[A-Za-z0-9.-]+\.[a-z]", PAGE), [], "no address of another server")
    for tag, attrs in page.all:
        for name, value in attrs.items():
            if name in ("src", "href", "action", "data", "poster", "srcset"):
                check(value.startswith(("#", "data:")), f"<{tag} {name}> stays here", value)
            check(not name.startswith("on") and name != "style", f"<{tag}> has nothing that the policy refuses", name)
    check(b"@import" not in PAGE and b"url(" not in PAGE, "no style from elsewhere")
    for word in (b"innerHTML", b"outerHTML", b"insertAdjacentHTML", b"document.write", b"eval(", b"new Function"):
        check(word not in PAGE, "text is never made markup or code", word)


@test
def labels():
    """What can be checked of its use by keyboard and ear without a browser."""
    page = Elements(PAGE.decode())
    ids = {a["id"] for _, a in page.all if "id" in a}
    equal(len([1 for _, a in page.all if "id" in a]), len(ids), "each id once")
    for tag, attrs in page.all:
        for name in ("for", "aria-labelledby", "aria-controls", "aria-describedby"):
            check(attrs.get(name, "text") in ids, f"<{tag} {name}> is there", attrs)
        check(tag != "button" or attrs.get("type") in ("button", "submit"), "a button says what it does", attrs)
        check(int(attrs.get("tabindex") or 0) <= 0, "the order of the keyboard is that of the page", attrs)
    html_attrs = dict(page.all)["html"]
    equal(html_attrs.get("lang"), "en", "its language")


@test
def head_and_tag():
    g, h = S.get("/"), S.ask("HEAD", "/", None)
    equal(h.status, 200, "HEAD")
    for name in ("content-length", "content-type", "etag", "content-security-policy"):
        equal(h.header(name), g.header(name), f"HEAD has the same {name}")
    tag = g.header("etag")
    check(re.fullmatch('"[0-9a-f]{32}"', tag), "a strong tag", tag)
    for told in (tag, "W/" + tag, f'"other", {tag}', "*"):
        for method in ("GET", "HEAD"):
            r = S.ask(method, "/", None, headers=[f"If-None-Match: {told}"])
            equal((r.status, r.body, r.header("etag")), (304, b"", tag), f"{method}, If-None-Match: {told}")
            equal((r.header("content-length"), r.header("content-type")), (None, None), "304 tells of no body")
    for told in ('"other"', tag[1:-1], ""):
        equal(S.get("/", headers=[f"If-None-Match: {told}"]).status, 200, f"If-None-Match: {told}")
    out, rest = S.responses(request("GET", "/", headers=[f"If-None-Match: {tag}"]) + request("GET", "/livez"))
    equal([r.status for r in out] + [rest], [304, 200, b""], "the connection goes on after a 304")


@test
def same_everywhere():
    """A reload may come to another frontend."""
    tags = set()
    for pid in S.pids["frontend"]:
        with contextlib.closing(S.conn_at(pid)) as c:
            c.send(request("GET", "/"))
            r = c.response()
            tags.add((r.header("etag"), r.body))
    equal(len(tags), 1, "each frontend has the same page and tag")


if __name__ == "__main__":
    S = Server(TINY, ledger=False, frontends=2)
    main()
