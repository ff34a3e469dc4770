# SPDX-License-Identifier: Apache-2.0
"""HAProxy of Debian, with deploy/haproxy/haproxy.cfg and with Debian's defaults."""
from passing import *


class Haproxy(Front):
    name, ports = "haproxy", ("http", "https")

    def write(self):
        return ["haproxy", "-db", "-f", self.put("cfg", self.ours() if self.setting == "ours" else self.plain())]

    def ours(self):
        server = "    server a 127.0.0.1:8080 check inter 1s fall 1 rise 1"
        lines = "\n".join(server.replace("server a 127.0.0.1:8080", f"server s{i} 127.0.0.1:{p}") for i, p in enumerate(self.up))
        if self.options.get("h2"):
            lines = lines.replace(" check ", " proto h2 check check-proto h1 ")
        grpc = self.options.get("grpc", self.up[0])
        return shipped("haproxy/haproxy.cfg", {
            "bind :80": f"bind 127.0.0.1:{self.at['http']}", "bind :443": f"bind 127.0.0.1:{self.at['https']}",
            "/etc/tokenring/tls/both.pem": TLS["both"], server: lines,
            "server a 127.0.0.1:9000 proto h2 check port 8080": f"server a 127.0.0.1:{grpc} proto h2 check port {self.up[0]}",
            **self.options.get("changes", {})})

    def plain(self):
        """The defaults of Debian's file, a frontend and a backend."""
        lines = "\n".join(f"    server s{i} 127.0.0.1:{p}" for i, p in enumerate(self.up))
        return f"""defaults
    mode http
    timeout connect 5000
    timeout client  50000
    timeout server  50000
frontend f
    bind 127.0.0.1:{self.at['http']}
    bind 127.0.0.1:{self.at['https']} ssl crt {TLS['both']} alpn h2,http/1.1
    default_backend b
    {self.options.get("frontend", "")}
backend b
{lines}
"""


@test
def measured():
    for setting, make in makers(Haproxy):
        figures(make, "haproxy", setting)


@test
def conducted():
    """Its default cuts after 50 s of silence; ours leaves that to tokenring."""
    want = {"ours": [True] * 3, "default": [True, False, False]}
    both = makers(Haproxy)
    ends = together([lambda s=setting, m=make: conduct(m, "haproxy", s) for setting, make in both])
    for (setting, _), end in zip(both, ends):
        equal(end, want[setting], f"haproxy, {setting}: which silences it bears")


@test
def further_ways():
    for way in (carriers, clear_http2, upstream_http2):
        way(Haproxy, "haproxy", "ours")


@test
def traps():
    """Compression where it is switched on for streams: the answer says no-transform."""
    with Server(SLOW) as s, Haproxy(s, setting="default", frontend="compression algo gzip\n    compression type text/event-stream") as front:
        encoding, reads = compressed(front)
        tell("haproxy", "default", "gzip for text/event-stream", f"encoding: {encoding}; 102 events in {reads} reads")
        equal(encoding, "none", "haproxy: no-transform is respected")


if __name__ == "__main__":
    main()
