# SPDX-License-Identifier: Apache-2.0
"""Varnish of Debian, as the kind of proxy that CDNs are: with deploy/varnish/tokenring.vcl, and with its built-in VCL."""
from passing import *


class Varnish(Front):
    name, ports = "varnish", ("http",)

    def write(self):
        if self.setting == "ours":
            up = (self.up * 2)[:2]
            vcl = shipped("varnish/tokenring.vcl", {'"8081"': f'"{up[0]}"', '"8082"': f'"{up[1]}"'})
        else:
            vcl = f'vcl 4.1;\nbackend default {{ .host = "127.0.0.1"; .port = "{self.up[0]}"; }}\n'
        return ["varnishd", "-F", "-f", self.put("conf.vcl", vcl), "-a", f"127.0.0.1:{self.port}", "-n", f"{self.dir}/n", "-s", "malloc,64m",
                "-T", "none", *(["-p", "pipe_timeout=3600"] if self.setting == "ours" else [])]


@test
def timed():
    for setting, make in makers(Varnish):
        figures(make, "varnish", setting)


@test
def conducted():
    """60 s between two reads, by default; for the first byte only on a connection that was not kept from an
    earlier request, as it happens.  Ours leaves all of that to tokenring."""
    want = {"ours": [True] * 3, "default": [True, False]}
    both = makers(Varnish)
    waits = [(setting, silences(make, setting, "varnish")) for setting, make in both]
    for setting, make in both:
        with Server(SIM) as s, Tap(s) as tap, make(tap) as front:
            whole(front, f"varnish {setting}")
            equal(passes(front, tap, f"varnish {setting}")["id"], True, f"varnish, {setting}: the name of a request is passed on")
    drain(both[0][1], "varnish", "ours")
    for setting, told in waits:
        ends = told()
        equal(ends if setting == "ours" else ends[::2], want[setting], f"varnish, {setting}: which silences it bears")


if __name__ == "__main__":
    main()
