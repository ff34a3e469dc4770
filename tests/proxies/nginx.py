# SPDX-License-Identifier: Apache-2.0
"""nginx of Debian, with deploy/nginx/tokenring.conf and with nothing but proxy_pass (HTTP/1.0 to us,
buffering: case B64 (b))."""
from passing import *


class Nginx(Front):
    name, ports = "nginx", ("http", "https")

    def write(self):
        temp = "".join(f"{k}_temp_path {self.dir}/{k};\n" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        http = self.ours() if self.setting == "ours" else self.plain()
        conf = self.put("conf", f"""daemon off; master_process off; pid {self.dir}/pid; error_log {self.dir}/log;
events {{}}
http {{ access_log off; {temp}
{self.options.get("http", "")}
{http}
}}
""")
        return ["nginx", "-p", self.dir, "-c", conf]

    def ours(self):
        server = "server 127.0.0.1:8080 max_fails=0;"
        return shipped("nginx/tokenring.conf", {
            server: " ".join(server.replace("8080", str(p)) for p in self.up),
            "server 127.0.0.1:9000;": f"server 127.0.0.1:{self.options.get('grpc', self.up[0])};",
            "listen 80;": f"listen 127.0.0.1:{self.at['http']};", "listen 443 ": f"listen 127.0.0.1:{self.at['https']} ",
            "/etc/tokenring/tls/cert.pem": TLS["cert"], "/etc/tokenring/tls/key.pem": TLS["key"],
            **self.options.get("changes", {})})

    def plain(self):
        """As Debian's nginx.conf, gzip on, and a server with one line."""
        servers = " ".join(f"server 127.0.0.1:{p};" for p in self.up)
        return f"""gzip on;
upstream up {{ {servers} }}
server {{ listen 127.0.0.1:{self.at['http']}; listen 127.0.0.1:{self.at['https']} ssl http2;
ssl_certificate {TLS['cert']}; ssl_certificate_key {TLS['key']};
location / {{ proxy_pass http://up; {self.options.get('location', '')} }} }}"""


@test
def measured():
    for setting, make in makers(Nginx):
        figures(make, "nginx", setting)


@test
def conducted():
    """Its default cuts after 60 s between two reads; ours leaves that to tokenring."""
    want = {"ours": [True] * 3, "default": [True, False, False]}
    both = makers(Nginx)
    ends = together([lambda s=setting, m=make: conduct(m, "nginx", s) for setting, make in both])
    for (setting, _), end in zip(both, ends):
        equal(end, want[setting], f"nginx, {setting}: which silences it bears")


@test
def further_ways():
    carriers(Nginx, "nginx", "ours")


@test
def traps():
    """Compression and buffering take events together, where they are switched on for them."""
    gzip = "gzip_types text/event-stream; gzip_proxied any;"
    with Server(SLOW) as s:
        with Nginx(s, http="gzip on; " + gzip) as front:
            equal(compressed(front)[0], "none", "nginx: our configuration does not compress streams, whatever stands above it")
        with Nginx(s, setting="default", http=gzip) as front:
            encoding, reads = compressed(front)
            equal(encoding, "gzip", "nginx: it compresses in spite of no-transform")
            tell("nginx", "default", "gzip for text/event-stream", f"compressed; 102 events in {reads} reads")
        with Nginx(s, setting="default", location="proxy_ignore_headers X-Accel-Buffering;") as front:
            _, reads = compressed(front)
            check(reads < 50, "nginx: it gathers events where our header is ignored", reads)
            tell("nginx", "default", "X-Accel-Buffering ignored", f"102 events in {reads} reads")
        with Nginx(s, setting="default") as front:
            r = front.post("/tokenize", {"prompt": "a " * 600000})
            equal(r.status, 413, "nginx: its own limit of bodies is 1 MiB")
        with Nginx(s) as front:
            equal(front.post("/tokenize", {"prompt": "a " * 600000}).status, 200, "nginx: ours is that of tokenring")
            held = [f for f in os.listdir(f"{front.dir}/client_body")]
            equal(held, [], "nginx: prompts are not written to files")


if __name__ == "__main__":
    main()
