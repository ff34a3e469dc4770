# SPDX-License-Identifier: Apache-2.0
"""What is installed: the units as systemd reads them, the program under the units' filter of system calls, the
package.  Runs in the build folder of TOKENRING_BIN."""
import ctypes
import ctypes.util
import glob
import shutil

from lib import *

BUILD = os.path.dirname(os.path.dirname(os.path.abspath(BIN)))
UNITS = "lib/systemd/system"
SERVICES = ("tokenring.service", "tokenring@one.service")
EXPOSURE = 20  # of systemd-analyze, in tenths


def run(*argv, **kw):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False, timeout=10 * WAIT, **kw)


@contextlib.contextmanager
def installed():
    with tempfile.TemporaryDirectory(prefix="tokenring-test-") as folder:
        prefix = os.path.join(folder, "usr")
        p = run("cmake", "--install", BUILD, "--prefix", prefix)
        check(p.returncode == 0, "cmake --install", p.stdout[-500:])
        yield prefix


def values(unit, key):
    with open(unit, encoding="utf-8") as f:
        return re.findall(r"^%s=(.*)$" % key, f.read(), re.M)


def port_of_its_own(prefix, name, port):
    """What `systemctl edit` would write."""
    folder = os.path.join(prefix, UNITS, name + ".d")
    os.makedirs(folder)
    with open(os.path.join(folder, "override.conf"), "w", encoding="utf-8") as f:
        f.write("[Socket]\nListenStream=127.0.0.1:%d\n" % port)


@test
def units_are_what_systemd_understands():
    with installed() as prefix:
        port_of_its_own(prefix, "tokenring@one.socket", 8090)
        names = [*SERVICES, "tokenring.socket", "tokenring-grpc.socket", "tokenring@one.socket"]
        p = run("systemd-analyze", "verify", "--man=no", *("./" + n for n in names), cwd=os.path.join(prefix, UNITS))
        check(p.returncode == 0 and not p.stdout, "systemd-analyze verify says nothing", p.stdout)
        for name in ("tokenring.service", "tokenring@.service"):
            p = run("systemd-analyze", "security", "--offline=true", "--threshold=%d" % EXPOSURE, "./" + name, cwd=os.path.join(prefix, UNITS))
            check(p.returncode == 0, "%s is exposed by at most %.1f" % (name, EXPOSURE / 10), p.stdout[-200:])


@test
def both_services_are_one_but_for_the_instance():
    with installed() as prefix:
        texts = []
        for name in ("tokenring.service", "tokenring@.service"):
            with open(os.path.join(prefix, UNITS, name), encoding="utf-8") as f:
                text = f.read().partition("[Service]")[2]
            texts.append(text.replace("%i.env", "tokenring.env").replace("tokenring-%i", "tokenring"))
        equal(texts[0], texts[1], "the same directives")


@test
def the_watchdog_is_slower_than_the_supervisor():
    with installed() as prefix:
        unit = os.path.join(prefix, UNITS, "tokenring.service")
        told = run(BIN, "serve", "--help").stdout
        limits = [int(x) for x in re.findall(r"--(?:engine|frontend)-stall-s .*\((\d+)\)", told)]
        check(len(limits) == 2 and int(values(unit, "WatchdogSec")[0]) > max(limits) + 30, "WatchdogSec", limits)


# ---- the filter of system calls -------------------------------------------------------------------

def expand(name, seen=()):
    if not name.startswith("@"):
        return {name}
    lines = [x.strip() for x in run("systemd-analyze", "syscall-filter", name).stdout.splitlines()]
    return set().union(*(expand(x) for x in lines if x and x != name and not x.startswith("#")))


def allowed(unit):
    """As systemd.exec(5) reads it: the first list allows, ~ takes away, what follows adds again."""
    calls = expand("@default")
    for row in values(unit, "SystemCallFilter"):
        for word in row.lstrip("~").split():
            calls = calls - expand(word) if row.startswith("~") else calls | expand(word)
    return calls


def filtered(calls):
    """In the child: whatever else it or its children call kills them."""
    lib = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p
    numbers = [lib.seccomp_syscall_resolve_name(c.encode()) for c in sorted(calls)]

    def enter():
        ctx = ctypes.c_void_p(lib.seccomp_init(0x80000000))  # SCMP_ACT_KILL_PROCESS
        for n in numbers:
            if n >= 0:
                lib.seccomp_rule_add(ctx, ctypes.c_uint(0x7FFF0000), ctypes.c_int(n), ctypes.c_uint(0))
        if lib.seccomp_load(ctx):
            os._exit(99)
    return enter


@test
def the_service_runs_under_its_filter():
    with installed() as prefix:
        calls = allowed(os.path.join(prefix, UNITS, "tokenring.service"))
        check("ptrace" not in calls and "mount" not in calls and "read" in calls, "the filter was read", len(calls))
        with open(os.path.join(ROOT, "sandbox/calls.def"), encoding="utf-8") as f:
            own = set(re.findall(r"^CALL\w*\([^,]*, (\w+),", f.read(), re.M))
        equal(own - calls, set(), "what a sandbox has is in the filter")
        with Server(REAL, before=filtered(calls)) as s:
            equal(s.post("/v1/completions", {"model": MODEL, "prompt": "The sea", "max_tokens": 4}).status, 200, "the engine, a frontend and the ledger work")
            old = s.processes()["frontend"]
            os.kill(s.pid, signal.SIGHUP)
            check(until(lambda: not set(old) & set(s.processes()["frontend"])), "frontends are replaced")
            os.kill(s.processes()["engine"][0], signal.SIGKILL)
            equal(until(lambda: s.post("/v1/completions", {"model": MODEL, "prompt": "The sea", "max_tokens": 4}).status == 200), True, "a new engine works")
            os.kill(s.pid, signal.SIGTERM)
            equal(s.wait_exit(), 0, "it ended")
            check("signal 31" not in s.log(), "nobody made a call that the filter lacks", s.log()[-800:])


# ---- the package ----------------------------------------------------------------------------------

@test
def the_package_is_whole():
    with tempfile.TemporaryDirectory(prefix="tokenring-test-") as folder:
        p = run("cpack", "-G", "DEB", "-B", folder, cwd=BUILD)
        debs = glob.glob(os.path.join(folder, "*.deb"))
        if not check(p.returncode == 0 and len(debs) == 1, "cpack makes one package", p.stdout[-500:]):
            return
        root = os.path.join(folder, "root")
        depends = run("dpkg-deb", "-f", debs[0], "Depends").stdout
        for library in ("libc6 ", "libevent", "libnghttp2", "libseccomp2", "libsqlite3", "libssl"):
            check(library in depends, "it depends on " + library, depends)
        run("dpkg-deb", "-x", debs[0], root)
        run("dpkg-deb", "-e", debs[0], os.path.join(folder, "control"))
        for path in ("usr/bin/tokenring", "usr/share/man/man1/tokenring.1", "usr/share/doc/tokenring/copyright",
                     "usr/share/doc/tokenring/docs/operations.md", "usr/share/doc/tokenring/deploy/nginx/tokenring.conf",
                     "usr/share/tokenring/prometheus/tokenring.rules.yml", "usr/share/tokenring/grafana/tokenring.json", "etc/tokenring/tokenring.env",
                     *("usr/%s/%s" % (UNITS, n) for n in ("tokenring.service", "tokenring@.service", "tokenring.socket", "tokenring@.socket"))):
            check(os.path.isfile(os.path.join(root, path)), path + " is there")
        unit = os.path.join(root, "usr", UNITS, "tokenring.service")
        equal(values(unit, "ExecStart"), ["/usr/bin/tokenring serve"], "the unit starts what is installed")
        equal(values(unit, "EnvironmentFile"), ["/etc/tokenring/tokenring.env"], "with its variables")
        with open(os.path.join(folder, "control/conffiles"), encoding="utf-8") as f:
            equal(f.read(), "/etc/tokenring/tokenring.env\n", "which are the administrator's")
        for script in ("postinst", "prerm", "postrm"):
            p = run("sh", os.path.join(folder, "control", script), "configure")
            check(p.returncode == 0, script + " runs", p.stdout)
        the_program_of(root)
        with_dpkg(debs[0], os.path.join(folder, "host"))


def the_program_of(root):
    """With the variables of the package, as its unit starts it; on another port."""
    with open(os.path.join(root, "etc/tokenring/tokenring.env"), encoding="utf-8") as f:
        env = dict(re.findall(r"^(TOKENRING_\w+)=(.*)$", f.read(), re.M))
    env.update(TOKENRING_PORT="0", TOKENRING_CONTROL_SOCKET="off", PATH=os.environ["PATH"])
    p = subprocess.Popen([os.path.join(root, "usr/bin/tokenring"), "serve"], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
    try:
        check("tokenring ready on http://127.0.0.1:" in p.stdout.readline(), "the program of the package serves")
    finally:
        p.terminate()
        equal(p.wait(WAIT), 0, "it ends")


def with_dpkg(deb, host):
    """Unpacked by dpkg into a root of its own and taken away again: a changed file of variables stays."""
    os.makedirs(os.path.join(host, "var/lib/dpkg/info"))
    os.makedirs(os.path.join(host, "var/lib/dpkg/updates"))
    open(os.path.join(host, "var/lib/dpkg/status"), "w", encoding="ascii").close()
    dpkg = ["fakeroot", "dpkg", "--root=" + host, "--force-not-root", "--force-script-chrootless", "--force-depends", "--log=/dev/null"]
    p = run(*dpkg, "-i", deb)
    if not check(p.returncode == 0, "dpkg installs it", p.stdout):
        return
    variables = os.path.join(host, "etc/tokenring/tokenring.env")
    with open(variables, "a", encoding="ascii") as f:
        f.write("TOKENRING_MAX_SEQS=8\n")
    p = run(*dpkg, "-r", "tokenring")
    check(p.returncode == 0 and not os.path.exists(os.path.join(host, "usr/bin/tokenring")), "dpkg removes it", p.stdout)
    check(os.path.exists(variables), "but for its variables")


if not shutil.which("systemd-analyze"):
    raise SystemExit("systemd-analyze is missing: apt install systemd")
main()
