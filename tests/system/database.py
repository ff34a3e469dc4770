# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of one's own for tests: made, started, stopped at once, frozen, ended.

It lies in a folder of its own, listens on a UNIX socket there and on a free port of 127.0.0.1, has the
users `owner` (superuser, local only, no password) and `tokenring` (password PASSWORD), and the database
`ledger`.  Nothing of the machine's own PostgreSQL is touched.  The server refuses to run as root: it
then runs as another user.

As a program, `database.py FOLDER`: one for measurements, which syncs, with its data in FOLDER; it prints its
address and lives until its standard input ends."""
import glob
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from lib import check, until, living, WAIT

PASSWORD = "pa ss/w@rd'%"  # every kind of character that a URL or a connection string has to quote
QUOTED = "pa%20ss%2Fw%40rd%27%25"


def programs():
    """The newest folder of PostgreSQL's programs; None: it is not installed."""
    folders = glob.glob("/usr/lib/postgresql/*/bin") + [os.path.dirname(shutil.which("initdb") or "")]
    good = [f for f in folders if f and os.path.exists(os.path.join(f, "initdb")) and
            os.path.exists(os.path.join(f, "postgres"))]
    return max(good, key=lambda f: [int(x) for x in f.split("/") if x.isdigit()], default=None)


def unprivileged():
    """The words before a command that make it run as a user who may run PostgreSQL, and that user."""
    if os.getuid() != 0:
        return [], None
    for name in ("postgres", "nobody"):
        try:
            p = pwd.getpwnam(name)
        except KeyError:
            continue
        return ["setpriv", f"--reuid={p.pw_uid}", f"--regid={p.pw_gid}", "--clear-groups"], p
    raise RuntimeError("no user but root")


def quiet_port():
    """A free port that the kernel gives to nobody while the server is down for a while."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        first = int(f.read().split()[0])
    for port in random.sample(range(max(first - 12000, 1024), max(first, 13000)), 200):
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass
    raise RuntimeError("no free port")


class Postgres:
    """`durable`: it syncs what it commits (for measurements); `place`: where its data lies, else /tmp."""

    def __init__(self, tls=False, durable=False, place=None):
        self.bin, self.child = programs(), None
        if not self.bin:
            raise RuntimeError("PostgreSQL is not installed (packages postgresql, postgresql-NN)")
        self.dir = tempfile.mkdtemp(prefix="tokenring-pg-", dir="/tmp")  # a socket's path is short
        self.data, self.socket = os.path.join(place or self.dir, "data"), self.dir
        self.become, user = unprivileged()
        if user:
            for folder in {self.dir, place or self.dir}:
                os.chown(folder, user.pw_uid, user.pw_gid)
        os.chmod(self.dir, 0o755)
        self.log = open(os.path.join(self.dir, "log"), "w+", encoding="utf-8")
        self._run("initdb", "-D", self.data, "-U", "owner", "-A", "trust", "-E", "UTF8", "--no-sync",
                  "--no-instructions")
        with open(os.path.join(self.data, "pg_hba.conf"), "w", encoding="ascii") as f:
            f.write("local all owner trust\nlocal all all scram-sha-256\n"
                    f"{'hostssl' if tls else 'host'} all all 127.0.0.1/32 scram-sha-256\n")
        self.settings = ["-c", f"ssl={'on' if tls else 'off'}", "-c", f"fsync={'on' if durable else 'off'}"]
        if tls:
            self._certificate(user)
        self.port = quiet_port()
        self.start()
        self.sql("CREATE ROLE tokenring LOGIN PASSWORD '" + PASSWORD.replace("'", "''") + "'")
        self.sql("CREATE DATABASE ledger OWNER tokenring", into="postgres")

    def _run(self, name, *args, **how):
        """One of PostgreSQL's programs, to its end; its standard output."""
        p = subprocess.run([*self.become, os.path.join(self.bin, name), *args], cwd=self.dir,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False,
                           stdin=subprocess.DEVNULL, **how)
        if p.returncode:
            raise RuntimeError(f"{name}: {p.stderr[-800:]}")
        return p.stdout

    def _certificate(self, user):
        key, self.ca = os.path.join(self.data, "server.key"), os.path.join(self.dir, "ca.crt")
        crt = os.path.join(self.data, "server.crt")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", key, "-out", crt], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        os.chmod(key, 0o600)
        shutil.copy(crt, self.ca)
        for path in (key, crt):
            if user:
                os.chown(path, user.pw_uid, user.pw_gid)

    # -- its life --

    def start(self):
        # It ends with whoever called this, should that be killed.
        self.child = subprocess.Popen(
            [*(self.become or ["setpriv"]), "--pdeathsig=QUIT", os.path.join(self.bin, "postgres"), "-D", self.data, "-k", self.socket,
             "-c", "listen_addresses=127.0.0.1", "-c", f"port={self.port}",
             "-c", "shared_buffers=16MB", "-c", "max_connections=20", *self.settings],
            cwd=self.dir, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
            start_new_session=True)

        def answers():
            if self.child.poll() is not None:
                return True
            try:
                return self.sql("SELECT 1", into="postgres")
            except RuntimeError:
                return False
        if not until(answers, 3 * WAIT, 0.1) or self.child.poll() is not None:
            raise RuntimeError("PostgreSQL does not start: " + self.said()[-800:])

    def stop(self, how=signal.SIGQUIT):
        """At once (SIGQUIT, without a word to its clients) or when told otherwise."""
        self.freeze(False)
        self.child.send_signal(how)
        self.child.wait(3 * WAIT)

    def kill(self):
        """kill -9 of all its processes, frozen or not: what waits in its sockets is never looked at."""
        for p in self._processes():
            try:
                os.kill(p, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.child.wait(3 * WAIT)

    def _processes(self):
        """The postmaster and its children (each has a process group of its own)."""
        kids = [int(p) for p in os.listdir("/proc") if p.isdigit() and self._is_mine(p)]
        return [self.child.pid] + kids

    def _is_mine(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="latin-1") as f:
                s = f.read()
        except OSError:
            return False
        return int(s[s.rindex(")") + 2:].split()[1]) == self.child.pid

    def freeze(self, still=True):
        """Everything of it stands still, or goes on: connections stay, nothing is answered."""
        for p in self._processes():
            try:
                os.kill(p, signal.SIGSTOP if still else signal.SIGCONT)
            except ProcessLookupError:
                pass

    def close(self):
        if self.child and self.child.poll() is None:
            self.stop()
        self.log.close()
        check(not self.child or not living(self.child.pid), "PostgreSQL has ended")
        subprocess.run(["rm", "-rf", self.dir], check=False)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # -- what it is asked --

    def said(self):
        with open(os.path.join(self.dir, "log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def sql(self, text, into="ledger"):
        """Rows as lists of strings."""
        out = self._run("psql", "-X", "-q", "-A", "-t", "-F", "\t", "-v", "ON_ERROR_STOP=1", "-h",
                        self.socket, "-p", str(self.port), "-U", "owner", "-d",
                        into if "CREATE ROLE" not in text else "postgres", "-c", text)
        return [line.split("\t") for line in out.splitlines()]

    def url(self, password=QUOTED, host="127.0.0.1", port=None, database="ledger", more=""):
        return f"postgresql://tokenring:{password}@{host}:{port or self.port}/{database}{more}"

    def local_url(self, password=QUOTED):
        folder = self.socket.replace("/", "%2F")
        return f"postgresql://tokenring:{password}@/ledger?host={folder}&port={self.port}"


if __name__ == "__main__":
    with Postgres(durable=True, place=os.path.abspath(sys.argv[1])) as pg:
        print(pg.local_url(), flush=True)
        sys.stdin.read()
