# SPDX-License-Identifier: Apache-2.0
"""nginx, HAProxy and, where PLACE has it, Envoy take what deploy/ ships for them without a complaint."""
from rig import *
from envoy import Envoy
from haproxy import Haproxy
from nginx import Nginx


@test
def accepted():
    for cls, more in ((Nginx, ["-t"]), (Haproxy, ["-c"])) + (((Envoy, ["--mode", "validate"]),) if PLACE else ()):
        with cls(1024, 1025, start=False, grpc=1026) as front:
            p = subprocess.run(front.argv + more, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False)
            told = [line for line in p.stdout.splitlines() if re.search(r"warn|alert|emerg|error|deprecated", line, re.I) and "initializ" not in line]
            check(p.returncode == 0 and not told, f"{cls.name} takes its configuration", p.stdout[-600:])


if __name__ == "__main__":
    import lib
    lib._tests[:] = [accepted]  # not those of the proxies' own scripts
    main()
