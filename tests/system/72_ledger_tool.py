# SPDX-License-Identifier: Apache-2.0
"""`tokenring ledger`: every request once from database and spool, also while the service writes; the columns
of the documentation; sums that agree with the rows; damage and impossible values are told; it only reads."""
import csv
import hashlib
import io
import sqlite3

from lib import *

COMP = "/v1/completions"
COLUMNS = ("request_id, stream_id, key, model, status, reason, created_at, first_token_at, finished_at, choices, "
           "prompt_tokens, cached_tokens, completion_tokens, overrun_tokens, last_token, disconnect_at, "
           "cancel_ack_at, first_byte_at, delivered_tokens, closed_at").split(", ")
COUNTS = ["choices", "prompt_tokens", "cached_tokens", "completion_tokens", "overrun_tokens"]
TIMES = [c for c in COLUMNS if c.endswith("_at")]
DELIVERY = ["first_byte_at", "delivered_tokens", "closed_at"]
NAME = 'sim, "the" métro'


def tool(*flags, **env):
    """(exit status, stdout, stderr)"""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TOKENRING_LEDGER")}
    p = subprocess.run([BIN, "ledger", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                       env=dict(clean, **env), check=False, timeout=3 * WAIT)
    return p.returncode, p.stdout.decode("utf-8"), p.stderr.decode("utf-8")


def rows_of(text):
    return [strict_json(line) for line in text.splitlines()]


def folder():
    return tempfile.mkdtemp(prefix="tokenring-test-")


def ask(s, name, tokens=5, cut=False):
    body = force(97, prompt="x", max_tokens=4000 if cut else tokens, stream=True)
    st = s.stream(COMP, dict(body, model=s.args["served_name"]), headers=[f"X-Request-Id: {name}"])
    (st.read(tokens) if cut else st.rest()).close()


def filled():
    """A ledger at rest: two models, three keys, two days, each status but error."""
    path = os.path.join(folder(), "usage.db")
    for name in (NAME, "other"):
        with Server(TINY, ledger=path, served_name=name, sim_step_us=500) as s:
            for i in range(4):
                ask(s, f"{name[:3]}-{i}", 3 + i)
            ask(s, f"{name[:3]}-left", 3, cut=True)
            s.post(COMP, dict(force(97, prompt="x", n=2, max_tokens=4, stop="aa"), model=name),
                   headers=[f"X-Request-Id: {name[:3]}-n"])
            check(until(lambda: len(s.rows()) >= 6 and all(r["closed_at"] for r in s.rows())), "rows", s.rows())
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE request SET key = 'alpha' WHERE request_id LIKE '%-1'")
        db.execute("UPDATE request SET key = 'be,ta' WHERE request_id LIKE '%-2'")
        db.execute("UPDATE request SET created_us = created_us - 86400000000 WHERE request_id LIKE '%-3'")
    return path


def day(row):
    return time.strftime("%Y-%m-%d", time.gmtime(row["created_at"]))


def sums(rows, by):
    out = {}
    for r in rows:
        words = tuple(day(r) if b == "day" else r[b] for b in by)
        total = out.setdefault(words, dict.fromkeys(["requests"] + COUNTS, 0))
        total["requests"] += 1
        for c in COUNTS:
            total[c] += r[c]
    return out


def table(text, by):
    """What the table for people says, by its words.  Model names have blanks: numbers are at the end."""
    lines = text.splitlines()
    out = {}
    for line in lines[1:]:
        cells = re.split(r"  +", line.strip())
        numbers = [int(c) for c in cells[len(cells) - 6:]]
        words = tuple("" if c == "-" else c for c in cells[:len(cells) - 6])
        out[words] = dict(zip(["requests"] + COUNTS, numbers))
    return re.split(r"  +", lines[0].strip()), out


def contents(path):
    """Everything in the folder of a ledger, as it lies there."""
    out = {}
    for where, _, names in os.walk(os.path.dirname(path)):
        for name in names:
            full = os.path.join(where, name)
            with open(full, "rb") as f:
                out[full] = (os.stat(full).st_mtime_ns, hashlib.sha256(f.read()).hexdigest())
    return out


@test
def formats_filters_and_sums():
    path = filled()
    before = contents(path)
    status, text, err = tool("export", "--ledger", path)
    rows = rows_of(text)
    equal((status, err, len(rows)), (0, "", 12), "export")
    check(all(list(r) == COLUMNS for r in rows), "columns of the documentation, in their order", rows[0])
    equal(rows, sorted(rows, key=lambda r: (r["created_at"], r["stream_id"])), "oldest first")
    check(all(r[c] is None or re.fullmatch(r"\d+\.\d{6}", repr(r[c]).ljust(17, "0")) for r in rows for c in TIMES),
          "times are seconds with a fraction", rows[0])
    equal({r["status"] for r in rows}, {"completed", "incomplete", "cancelled"}, "kinds of ends")

    status, text, err = tool("export", "--ledger", path, "--format", "csv")
    check(status == 0 and text.count("\r\n") == 13 == text.count("\n"), "CSV has lines as RFC 4180 wants them", text[:300])
    read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    equal(read[0], COLUMNS, "a header line")
    for cells, row in zip(read[1:], rows):
        values = ["" if row[c] is None else f"{row[c]:.6f}" if c in TIMES else str(row[c]) for c in COLUMNS]
        equal(cells, values, "CSV and JSON say the same")

    today, earlier = (time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86400 * n)) for n in (0, 1))
    wanted = [(["--key", "alpha"], lambda r: r["key"] == "alpha"), (["--key", ""], lambda r: r["key"] == ""),
              (["--model", NAME], lambda r: r["model"] == NAME), (["--status=cancelled"], lambda r: r["status"] == "cancelled"),
              (["--day", today], lambda r: day(r) == today), (["--day", earlier], lambda r: day(r) == earlier),
              (["--day", "1999-12-31"], lambda r: False),
              (["--model", "other", "--day", earlier, "--status", "incomplete"],
               lambda r: r["model"] == "other" and day(r) == earlier and r["status"] == "incomplete")]
    for flags, passes in wanted:
        status, text, _ = tool("export", "--ledger", path, *flags)
        equal((status, rows_of(text)), (0, [r for r in rows if passes(r)]), f"only {flags}")

    for by in ([], ["key"], ["model"], ["day"], ["status"], ["day", "model"], ["status", "key", "day", "model"]):
        flags = ["sum", "--ledger", path] + (["--by", ",".join(by)] if by else [])
        want = sums(rows, by)
        _, text, _ = tool(*flags, "--format", "jsonl")
        got = {tuple(r[b] for b in by): {c: r[c] for c in ["requests"] + COUNTS} for r in rows_of(text)}
        equal(got, want, f"sum by {by}")
        equal(list(got), sorted(want), f"sum by {by}: in order")
        _, text, _ = tool(*flags, "--format", "csv")
        read = list(csv.reader(io.StringIO(text, newline=""), strict=True))
        equal(read[0], by + ["requests"] + COUNTS, f"sum by {by}: header")
        equal({tuple(r[:len(by)]): [int(n) for n in r[len(by):]] for r in read[1:]},
              {k: list(v.values()) for k, v in want.items()}, f"sum by {by}: CSV")
        head, got = table(tool(*flags)[1], by)
        equal(head, by + ["requests"] + COUNTS, f"sum by {by}: head of the table")
        total = got.pop(("all",), None) if len(want) > 1 else None
        equal(got, want, f"sum by {by}: table")
        check(len(want) < 2 or total == sums(rows, [])[()], f"sum by {by}: the last line is all", total)
    _, text, _ = tool("sum", "--ledger", path, "--day", "1999-12-31", "--format", "jsonl")
    equal(rows_of(text), [dict.fromkeys(["requests"] + COUNTS, 0)], "the sum of nothing")

    status, text, _ = tool("verify", "--ledger", path)
    equal((status, text), (0, "12 requests, 0 of them not yet in the database; 0 anomalies\n"), "nothing is wrong")
    equal(contents(path), before, "nothing was made or changed")


@test
def beside_a_running_service():
    """A locked database keeps rows in the spool: they are read from there, each once, before and after."""
    path = os.path.join(folder(), "usage.db")
    with Server(TINY, ledger=path, sim_step_us=500) as s:
        for i in range(3):
            ask(s, f"early-{i}")
        check(until(lambda: tool("verify", "--ledger", path)[1].startswith("3 requests, 0 ")), "three are in the database")
        with contextlib.closing(sqlite3.connect(path, timeout=WAIT, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")  # nobody else writes
            for i in range(5):
                ask(s, f"late-{i}", 6)
            status, text, err = tool("verify", "--ledger", path)
            equal((status, text, err), (0, "8 requests, 5 of them not yet in the database; 0 anomalies\n", ""), "verify")
            check(until(lambda: all(r["closed_at"] for r in rows_of(tool("export", "--ledger", path)[1]))),
                  "the deliveries are in the spool as well")
            rows = rows_of(tool("export", "--ledger", path)[1])
            equal([r["request_id"] for r in rows], [f"early-{i}" for i in range(3)] + [f"late-{i}" for i in range(5)],
                  "each once, in order")
            by = rows_of(tool("sum", "--ledger", path, "--format", "jsonl")[1])
            equal((by[0]["requests"], by[0]["completion_tokens"]), (8, 45), "sum")
            equal(len(rows_of(tool("export", "--ledger", path, "--model", "none")[1])), 0, "filters hold in the spool")
            equal(db.execute("SELECT count(*) FROM request").fetchone(), (3,), "they are not in the database yet")
            db.execute("ROLLBACK")
        check(until(lambda: " 0 of them" in tool("verify", "--ledger", path)[1]), "later they are")
        equal(rows_of(tool("export", "--ledger", path)[1]), rows, "and say the same")

        # While it is written: what was told before is there, nothing is there twice.
        told, over = [], threading.Event()

        def load():
            while not over.is_set():
                name = f"load-{len(told)}"
                ask(s, name, 2)
                told.append(name)
        client = threading.Thread(target=load, daemon=True)
        client.start()
        for _ in range(30 if LONG else 8):
            until(lambda n=len(told): len(told) > n)
            sure = set(told)
            ids = [r["request_id"] for r in rows_of(tool("export", "--ledger", path)[1])]
            check(len(ids) == len(set(ids)) and sure <= set(ids), "each once, none missing", sure - set(ids))
            status, text, err = tool("verify", "--ledger", path)
            check(status == 0 and text.endswith(" 0 anomalies\n") and text.count("\n") == 1, "nothing is odd", text, err)
        over.set()
        client.join(WAIT)


def spool_of(path):
    names = [os.path.join(path + ".spool", n) for n in os.listdir(path + ".spool") if n.endswith(".spool")]
    return max(names, key=os.path.getsize)


@test
def verify_finds():
    path = filled()

    def verify(*flags):
        status, text, err = tool("verify", "--ledger", path, *flags)
        lines = text.splitlines()
        last = re.fullmatch(r"\d+ requests, \d+ of them not yet in the database; (\d+) anomalies", lines[-1]) if lines else None
        check(last and int(last.group(1)) == len(lines) - 1 and status == (1 if len(lines) > 1 else 0),
              "the last line counts the others", status, text, err)
        return "\n".join(lines[:-1])

    for change, words in (
            ("finished_us = created_us - 1", "its end is before its arrival"),
            ("first_token_us = created_us - 1000000", "its first token is before its arrival"),
            ("finished_us = NULL", "no time of its end"),
            ("last_token = NULL", "but no last one"),
            ("completion_tokens = 0, overrun_tokens = 0", "a last token, but none was counted"),
            ("overrun_tokens = -5", "overrun_tokens is -5"),
            ("choices = 0", "choices is 0"),
            ("delivered_tokens = 1000000", "1000000 tokens delivered of"),
            ("closed_us = first_byte_us - 1", "its close is before its first byte"),
            ("first_token_us = NULL", "tokens, but no time of the first"),
            ("status = 'completed'", "goes with status incomplete, not 'completed'"),
            ("reason = 'boredom'", "the reason 'boredom' is not known"),
            ("stream_id = 'x'", "x: no stream id")):
        with contextlib.closing(sqlite3.connect(path)) as db:
            with db:
                db.execute("CREATE TABLE kept AS SELECT * FROM request WHERE request_id = 'oth-3'")
                db.execute(f"UPDATE request SET {change} WHERE request_id = 'oth-3'")
            found = verify()
            check(words in found, f"{change} is found", found)
            with db:
                db.execute("DELETE FROM request WHERE request_id = 'oth-3'")
                db.execute("INSERT INTO request SELECT * FROM kept")
                db.execute("DROP TABLE kept")
    equal(verify(), "", "it is whole again")

    # What lies in the spool: a flipped byte, a cut end, a frame twice.
    with Server(TINY, ledger=path, sim_step_us=500) as s, contextlib.closing(sqlite3.connect(path, timeout=WAIT)) as db:
        db.execute("BEGIN IMMEDIATE")
        for i in range(6):
            ask(s, f"spool-{i}")
        until(lambda: all(r["closed_at"] for r in s.rows()))
        s.kill_all()
        db.execute("ROLLBACK")
    found = verify()
    check(not found, "a killed service leaves nothing odd", found)
    segment = spool_of(path)
    with open(segment, "rb") as f:
        data = f.read()
    n = len(rows_of(tool("export", "--ledger", path)[1]))
    equal(n, 18, "what is in the spool is read")

    def with_segment(new, what):
        with open(segment, "wb") as f:
            f.write(new)
        found, (status, text, err) = verify(), tool("export", "--ledger", path)
        equal(status, 0, f"{what}: it can be exported")
        return found, rows_of(text), err

    found, rows, _ = with_segment(data + data, "twice")
    equal((found, len(rows)), ("", n), "a frame that is there twice is one request")
    half = len(data) // 2
    found, rows, err = with_segment(data[:half] + bytes([data[half] ^ 0x10]) + data[half + 1:], "flipped")
    check("spool: " in found and os.path.basename(segment) in found and n - 1 <= len(rows) <= n, "a flipped byte costs one frame", found, len(rows))
    check("ledger verify" in err, "export says that something is missing", err)
    found, rows, _ = with_segment(data[:-7], "cut")
    check("cut short" in found and n - 1 <= len(rows) <= n, "a cut end is told", found, len(rows))
    with_segment(data, "as it was")

    # A page of the database itself.
    with open(path, "r+b") as f:
        f.seek(0, os.SEEK_END)
        size = f.tell()
        f.seek(4096)
        f.write(os.urandom(size - 4096 if size > 4096 else 16))
    status, text, err = tool("verify", "--ledger", path)
    check(status == 1 and ("malformed" in text + err or "SQLite" in text), "a broken database is told", status, text[-400:], err)


@test
def words_and_status():
    path = os.path.join(folder(), "none.db")
    for flags in (["export"], ["frobnicate", "--ledger", "x"], [], ["export", "--ledger", ""], ["export", "--ledger", "off"],
                  ["export", "--ledger", "postgre://u:p@h/d"],
                  ["sum", "--ledger", "x", "--by", "colour"], ["sum", "--ledger", "x", "--by", "key,key"],
                  ["sum", "--ledger", "x", "--by", "key,"], ["export", "--ledger", "x", "--by", "key"],
                  ["export", "--ledger", "x", "--format", "xml"], ["export", "--ledger", "x", "--format", "table"],
                  ["verify", "--ledger", "x", "--format", "csv"], ["verify", "--ledger", "x", "--key", "k"],
                  ["sum", "--ledger", "x", "--day", "2026-02-30"], ["sum", "--ledger", "x", "--day", "today"],
                  ["sum", "--ledger", "x", "--day", "2026-1-1"], ["sum", "--ledger", "x", "--status", "fine"],
                  ["sum", "--ledger", "x", "--none"], ["sum", "--ledger", "x", "more"], ["sum", "--ledger"]):
        status, out, err = tool(*flags)
        check(status == 2 and not out and err.startswith("tokenring ledger: ") and err.count("\n") == 1,
              f"{flags}: one sentence, status 2", status, out, err)
    for flags in (["--help"], ["export", "-h"], ["sum", "--by", "colour", "--help"]):
        status, out, err = tool(*flags)
        equal((status, err), (0, ""), f"{flags}")
        for word in ["verify", "sum", "export", "--ledger", "--ledger-spool", "--format", "--key", "--model", "--day",
                     "--status", "--by", "exit status"] + COLUMNS:
            check(word in out, f"--help tells of {word}", out)
    before = contents(path)
    for action in ("verify", "sum", "export"):
        status, out, err = tool(action, "--ledger", path)
        check(status == 1 and not out and "none.db" in err, f"{action}: no ledger", status, out, err)
    with open(path, "wb") as f:
        f.write(b"not a database at all, but long enough to be looked at " * 30)
    status, out, err = tool("export", "--ledger", path)
    check(status == 1 and not out and err, "not a ledger", status, out, err)
    equal(set(contents(path)) - set(before), {path}, "and nothing was made")

    with Server(TINY, sim_step_us=500) as s:
        ask(s, "one")
        ask(s, "two")
        equal(s.row("one")["status"], "incomplete", "there is a ledger")
        status, out, _ = tool("export", TOKENRING_LEDGER=s.ledger)
        equal((status, len(rows_of(out))), (0, 2), "the address comes from the environment")
        _, out, _ = tool("sum", TOKENRING_LEDGER=s.ledger, TOKENRING_LEDGER_BY="status", TOKENRING_LEDGER_FORMAT="jsonl")
        equal(rows_of(out)[0]["status"], "incomplete", "and the other flags")
        status, out, err = tool("export", "--ledger", s.ledger, TOKENRING_LEDGER_FORMAT="xml")
        check(status == 2 and "TOKENRING_LEDGER_FORMAT" in err, "a wrong value there is told", status, err)
        with open("/dev/full", "w", encoding="ascii") as full:
            p = subprocess.run([BIN, "ledger", "export", "--ledger", s.ledger], stdout=full, stderr=subprocess.PIPE, check=False)
        check(p.returncode == 1 and b"cannot write" in p.stderr, "an output that takes nothing is an error", p)


if __name__ == "__main__":
    main()
