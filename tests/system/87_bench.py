# SPDX-License-Identifier: Apache-2.0
"""tokenring bench: every bench tells its flags, and what it prints can be read by a program.  How fast
anything is, no test asks."""
import csv
import io

from lib import *

BENCHES = ("roofline", "kernels", "model", "selection", "grammar", "plan", "readers", "bare")


def bench(*args):
    p = subprocess.run([BIN, "bench", *args], capture_output=True, text=True, timeout=3 * WAIT, check=False)
    return p.returncode, p.stdout, p.stderr


@test
def help_of_all():
    status, out, _ = bench("--help")
    check(status == 0 and all(name in out for name in BENCHES), "--help names all", out)
    equal(bench()[0], 2, "without a name: a fault of the arguments")
    equal(bench("nonsense")[0], 2, "as with a wrong one")
    for name in BENCHES:
        status, out, _ = bench(name, "--help")
        check(status == 0 and f"bench {name}" in out, f"{name} --help", status, out)
        equal(bench(name, "--nonsense")[0], 2, f"{name}: an unknown flag")


@test
def roofline():
    status, out, err = bench("roofline", "--threads", "3", "--mib", "1", "--turn-ms", "1", "--json")
    equal(status, 0, "it measures" + err)
    told = json.loads(out)
    equal([line["threads"] for line in told["threads"]], [1, 2, 3], "by numbers of threads")
    for line in told["threads"]:
        check(all(line[k] > 0 for k in ("read_gb_s", "reread_gb_s", "fma_gmac_s", "region_ns")), "figures", line)
    status, out, _ = bench("roofline", "--threads", "1", "--mib", "1", "--turn-ms", "1", "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    check(status == 0 and len(rows) == 1 and float(rows[0]["reread_gb_s"]) > 0, "the same as CSV", out)


@test
def kernels_beside_the_limits():
    level = json.loads(bench("roofline", "--threads", "1", "--mib", "1", "--turn-ms", "1", "--json")[1])["level"]
    if level == "generic":
        print("  plain C alone would take minutes")
        return
    status, out, err = bench("kernels", "--turn-ms", "1", "--pool-mib", "1", "--max-rows", "2", "--level", level)
    rows = list(csv.DictReader(io.StringIO(out)))
    check(status == 0 and len(rows) > 10, "every operation", out, err)
    check(len({r["shape"] for r in rows if r["op"] == "attention_f16"}) == 4, "attention, all shapes of it", out)
    check(all(float(r["read_percent"]) >= 0 for r in rows if r["op"].startswith("product")), "per cent", out)
    equal({r["rows"] for r in rows}, {"1", "2"}, "no more rows than were asked for")
    equal(bench("kernels", "--level", "nonsense")[0], 2, "a level that is none")


@test
def selection_of_tokens():
    status, out, err = bench("selection")
    rows = list(csv.DictReader(io.StringIO(out)))
    check(status == 0 and all(float(r["us"]) > 0 for r in rows), "figures", out, err)
    equal(sorted({int(r["vocabulary"]) for r in rows}), [49152, 262144], "both vocabularies")


@test
def grammars():
    status, out, err = bench("grammar", "--model", MODEL_FILE)
    rows = list(csv.DictReader(io.StringIO(out)))
    check(status == 0 and len(rows) > 8 and all(int(r["tokens"]) > 5 for r in rows), "every schema, twice", out, err)
    equal({r["memory"] for r in rows}, {"first", "again"}, "with and without memory")
    equal(bench("grammar")[0], 2, "without a model")


@test
def a_model():
    status, out, err = bench("model", "--model", MODEL_FILE, "--prompt", "8", "--tokens", "2", "--sequences", "2",
                             "--repeat", "1")
    rows = list(csv.DictReader(io.StringIO(out)))
    equal([(r["what"], r["sequences"]) for r in rows], [("prefill", "1"), ("decode", "1"), ("decode", "2")],
          "what was measured" + err)
    check(all(int(r["threads"]) == len(os.sched_getaffinity(0)) for r in rows), "with serve's threads", out)
    check(float(rows[1]["read_percent"]) >= 0, "beside the limit", out)
    equal(bench("model")[0], 2, "without a model")


def plan(*args, text=None):
    p = subprocess.run([BIN, "bench", "plan", *args], input=text, capture_output=True, text=True, timeout=WAIT,
                       check=False)
    return p.returncode, p.stdout, p.stderr


@test
def plan_plays_traces():
    """Virtual time: a built-in trace, the same from a file and from standard input give the same figures, and
    so does the same once more."""
    own = plan("--trace", "mixed", "--limit", "40")
    equal(own[0], 0, "a built-in trace" + own[2])
    shown = subprocess.run([BIN, "replay", "--trace", "mixed", "--limit", "40", "--show-trace"], check=True,
                           capture_output=True, text=True, timeout=WAIT).stdout
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as f:
        f.write(shown)
        f.flush()
        equal(plan("--trace", f.name), own, "the same from a file")
    equal(plan("--trace", "-", text=shown), own, "the same from standard input")
    check(plan("--trace", "-", "--prefill-chunk", "0", text=shown)[1] != own[1], "flags count")
    for text, told in (('{"at":0', "standard input:1: not JSON"), ("", "no request"),
                       ('{"at":0,"prompt_tokens":-1,"max_tokens":5}\n', "prompt_tokens must be")):
        status, _, err = plan("--trace", "-", text=text)
        check(status == 1 and told in err, f"refused: {text}", status, err)
    equal(plan("--itl-target-ms", "soon")[0], 2, "a number that is none")


if __name__ == "__main__":
    main()
