# SPDX-License-Identifier: Apache-2.0
"""nginx of Debian, with deploy/nginx/tokenring.conf and with nothing but proxy_pass."""
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
def ours():
    equal(everything(Nginx, "ours"), [True] * 3, "nginx: silence with our configuration")


@test
def further_ways():
    carriers(Nginx, "nginx", "ours")


@test
def default():
    everything(Nginx, "default")


if __name__ == "__main__":
    main()
