# SPDX-License-Identifier: Apache-2.0
"""nginx of Debian, with deploy/nginx/tokenring.conf and as it comes."""
from passing import *


class Nginx(Front):
    name = "nginx"

    def write(self):
        temp = "".join(f"{k}_temp_path {self.dir}/{k};\n" for k in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        site = f"server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_pass http://127.0.0.1:{self.up[0]}; }} }}"
        conf = self.put("conf", f"""daemon off; master_process off; pid {self.dir}/pid; error_log {self.dir}/log;
events {{}}
http {{ access_log off; {temp} {site} }}
""")
        return ["nginx", "-p", self.dir, "-c", conf]


@test
def default():
    with Server(SLOW) as s, Tap(s) as tap:
        with Nginx(tap, setting="default") as front:
            tell("nginx", "default", "delay", shown(delays(front.port, tap)))
            whole(front, "nginx default")
    with left_service() as s, Nginx(s, setting="default") as front:
        for phase in PHASES:
            for way in ("close", "reset"):
                tell("nginx", "default", f"{phase} {way}", seen(leaves(front, s, phase, way)))


if __name__ == "__main__":
    main()
