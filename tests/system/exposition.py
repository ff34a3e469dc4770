# SPDX-License-Identifier: Apache-2.0
"""A strict reader of what /metrics says: the text format 0.0.4 and OpenMetrics 1.0.

parse(page, open) gives the families by name, or raises Wrong with the line.  Stricter than the formats
where they are lenient: every family has HELP and TYPE, in this order, once, and its samples together."""
import collections
import math
import re

Family = collections.namedtuple("Family", "name kind help unit samples")
Sample = collections.namedtuple("Sample", "name labels value")

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(r"(%s)(?:\{(.*)\})? (\S+)" % NAME)
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|Inf)|NaN")
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "info": ("_info",), "histogram": ("_bucket", "_sum", "_count")}


class Wrong(Exception):
    pass


def need(condition, *what):
    if not condition:
        raise Wrong(*what)


def read_labels(text, line):
    out, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        need(m and m[1] not in out, "labels", line)
        out[m[1]] = re.sub(r'\\(.)', lambda e: "\n" if e[1] == "n" else e[1], m[2])
        at = m.end()
        need(m[3] != "," or at < len(text), "a comma with nothing behind it", line)
    return out


def read_sample(line):
    m = SAMPLE.fullmatch(line)
    need(m, "no sample", line)
    need(NUMBER.fullmatch(m[3]), "no number", line)
    return Sample(m[1], read_labels(m[2] or "", line), float(m[3]))


def is_canonical(le):
    """With a point or an exponent: 1.0, not 1 (OpenMetrics, "Numbers")."""
    return le == "+Inf" or bool(re.fullmatch(r"\d+\.\d+|\d+(\.\d+)?e-\d+", le))


def check_histogram(f):
    series = {}
    for s in f.samples:
        key = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
        series.setdefault(key, []).append(s)
    for rows in series.values():
        buckets = [(s.labels["le"], s.value) for s in rows if s.name.endswith("_bucket")]
        rest = {s.name: s.value for s in rows if not s.name.endswith("_bucket")}
        bounds = [float(le) for le, _ in buckets]
        need(bounds == sorted(set(bounds)) and bounds[-1] == math.inf, "bounds do not rise to +Inf", f.name)
        need(all(is_canonical(le) for le, _ in buckets), "bounds are not canonical", f.name)
        counts = [n for _, n in buckets]
        need(counts == sorted(counts), "buckets are not cumulative", f.name)
        need(rest.get(f.name + "_count") == counts[-1], "_count is not the last bucket", f.name)
        need(rest.get(f.name + "_sum", -1) >= 0, "_sum", f.name)


def check_family(f, is_open):
    suffixes = SUFFIXES[f.kind] if is_open or f.kind != "counter" else ("",)
    allowed = {f.name + s for s in suffixes}
    seen = set()
    for s in f.samples:
        need(s.name in allowed, "a sample that is none of its family", f.name, s.name)
        key = (s.name, tuple(sorted(s.labels.items())))
        need(key not in seen, "twice", key)
        seen.add(key)
        need(("le" in s.labels) == s.name.endswith("_bucket"), "le", s)
        need(f.kind == "gauge" or (s.value >= 0 and s.value < math.inf), "a count", s)
    if f.kind == "counter":
        need(f.name.endswith("_total") != is_open, "_total is of samples in OpenMetrics and of the name in text", f.name)
    if f.kind == "histogram":
        check_histogram(f)
    if f.unit:
        need(f.name.endswith("_" + f.unit), "a unit that the name does not end with", f.name)


def parse(page, is_open):
    need(page.endswith("\n") and "\r" not in page, "the page is lines")
    lines = page.split("\n")[:-1]
    if is_open:
        need(lines[-1] == "# EOF" and lines.count("# EOF") == 1, "# EOF is the last line")
        lines = lines[:-1]
    families, now = {}, None
    for line in lines:
        m = re.fullmatch(r"# (HELP|TYPE|UNIT) (%s) (.+)" % NAME, line)
        if m and m[1] == "HELP":
            need(m[2] not in families, "a family twice", line)
            need(not re.search(r'(?<!\\)(?:\\\\)*\\[^\\n"]' if is_open else r"(?<!\\)(?:\\\\)*\\[^\\n]", m[3]), "escapes", line)
            now = {"name": m[2], "help": m[3], "kind": None, "unit": "", "samples": []}
            families[m[2]] = now
        elif m:
            need(now and now["name"] == m[2] and not now["samples"], "metadata before samples, after HELP", line)
            if m[1] == "TYPE":
                need(now["kind"] is None and m[3] in SUFFIXES and (is_open or m[3] != "info"), "type", line)
                now["kind"] = m[3]
            else:
                need(is_open and not now["unit"], "unit", line)
                now["unit"] = m[3]
        else:
            need(not line.startswith("#"), "a comment of no kind", line)
            need(now and now["kind"], "a sample before HELP and TYPE", line)
            now["samples"].append(read_sample(line))
    out = {name: Family(**f) for name, f in families.items()}
    for f in out.values():
        check_family(f, is_open)
    return out


def samples(families):
    """{(name, labels as sorted pairs): value}"""
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families.values() for s in f.samples}
