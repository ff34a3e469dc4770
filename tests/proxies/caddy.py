# SPDX-License-Identifier: Apache-2.0
"""Caddy, with deploy/caddy/Caddyfile and with the reverse_proxy of one line that its documentation begins with."""
from passing import *


class Caddy(Front):
    name, ports = "caddy", ("http", "https")

    def write(self):
        self.env = dict(os.environ, HOME=self.dir, XDG_DATA_HOME=self.dir, XDG_CONFIG_HOME=self.dir)
        if self.setting == "ours":
            text = shipped("caddy/Caddyfile", {"http://:80": f"http://localhost:{self.port}", "https://:443": f"https://localhost:{self.at['https']}",
                                               "/etc/tokenring/tls/cert.pem": TLS["cert"], "/etc/tokenring/tls/key.pem": TLS["key"],
                                               "127.0.0.1:8081 127.0.0.1:8082": " ".join(f"127.0.0.1:{p}" for p in self.up)})
        else:
            proxy = f"reverse_proxy {' '.join(f'127.0.0.1:{p}' for p in self.up)}"
            text = (f"{{\nadmin off\n}}\nhttp://localhost:{self.port} {{\n{proxy}\n}}\n"
                    f"https://localhost:{self.at['https']} {{\ntls {TLS['cert']} {TLS['key']}\n{proxy}\n}}\n")
        return [f"{PLACE}/bin/caddyserver", "run", "--config", self.put("Caddyfile", text), "--adapter", "caddyfile"]


@test
def timed():
    for setting, make in makers(Caddy):
        figures(make, "caddy", setting)


@test
def conducted():
    """It has no limit of its own on silence."""
    both = makers(Caddy)
    ends = together([lambda s=setting, m=make: conduct(m, "caddy", s) for setting, make in both])
    for (setting, _), end in zip(both, ends):
        equal(end, [True] * 3, f"caddy, {setting}: it bears every silence")


if __name__ == "__main__":
    main()
