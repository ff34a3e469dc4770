#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The compilers of grammar/ beside jsonschema, Python's re and llguidance (tier 2: the first and the last are packages).

Makes schemas, values and patterns by chance from a seed and asks oracle_grammar what it takes:
  * a text that it takes obeys the schema, whatever the schema (so do texts that it was made to write itself);
  * a value that obeys the schema is taken, where the schema leaves no choice to us (see docs/structured-output.md);
  * a pattern takes what re takes.
llguidance is a third opinion: where it agrees with jsonschema, so do we; how often it does is printed.

    tests/oracle/run build/dev [--seed N] [--schemas N] [--record FILE]

--record writes a choice of the rows, with what they take, for the test that needs no packages."""
import argparse
import collections
import decimal
import itertools
import json
import random
import re
import subprocess
import sys

import jsonschema

decimal.getcontext().prec = 400
KEYS = ["a", "b", "c", "d", "key one", "é\"", "x_1"]
PATTERNS = ["^a", "b$", "^[a-c]+$", "^x_", "[0-9]", "^(foo|bar)?$", "^.{2,4}$", "o{2}", "^[^a]*$", "^\\d{2}-\\d{2}$", "\\w\\s\\w"]
STRINGS = ["", "a", "ab", "abc", "foo", "bar", "x_1", "12-34", "a b", "é", "zoo", "\"q\"", "back\\slash", "tab\t", "😀", "long " * 5]
FORMATS = {
    "date": ["2024-02-29", "2023-02-29", "2024-12-31", "24-1-1", "x", "1999-04-31"],
    "ipv4": ["1.2.3.4", "256.1.1.1", "0.0.0.0", "1.2.3", "a"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000", "123e4567", "123e4567-e89b-12d3-a456-42661417400g"],
    "ipv6": ["::1", "2001:db8::8", "1::2::3", "fe80:0:0:0:1:2:3:4", "12345::"],
}


class Maker:
    """Schemas and values from one source of chance."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.loose = False  # the schema leaves choices to us: not every value that obeys it is written
        self.names = []  # what a $ref may name here
        self.inside = []  # ... inside an object or array

    def number(self):
        r = self.r
        return r.choice([0, 1, -1, 2, 3, 5, 7, 10, 12, 99, 100, -3, -10, 1000, 0.5, -0.25, 1.5, 2.75, 10.01, 123456])

    def integer(self):
        s = {"type": "integer"}
        r = self.r
        if r.random() < .6:
            s[r.choice(["minimum", "exclusiveMinimum"])] = self.number()
        if r.random() < .5:
            s[r.choice(["maximum", "exclusiveMaximum"])] = self.number()
        if r.random() < .2:
            s["multipleOf"] = r.choice([1, 2, 3, 5, 7, 10, 12])
        return s

    def real(self):
        s = self.integer()
        s["type"] = "number"
        if "multipleOf" in s:
            s["multipleOf"] = self.r.choice([2, 0.5, 0.25, 0.01, 0.1, 2.5])
        return s

    def string(self):
        r = self.r
        s = {"type": "string"}
        if r.random() < .15:
            s["format"] = r.choice(list(FORMATS))
            return s
        if r.random() < .3:
            s["minLength"] = r.randint(0, 4)
        if r.random() < .4:
            s["maxLength"] = r.randint(0, 6)
        if r.random() < .4:
            s["pattern"] = r.choice(PATTERNS)
        return s

    def value_any(self, depth=2):
        r = self.r
        k = r.randint(0, 7 if depth else 5)
        if k < 2:
            return self.number()
        if k < 4:
            return r.choice(STRINGS)
        if k == 4:
            return r.choice([True, False])
        if k == 5:
            return None
        if k == 6:
            return [self.value_any(depth - 1) for _ in range(r.randint(0, 3))]
        return {k: self.value_any(depth - 1) for k in r.sample(KEYS, r.randint(0, 3))}

    def enum(self):
        r = self.r
        if r.random() < .3:
            return {"const": self.value_any(1)}
        v = []
        for _ in range(r.randint(1, 5)):
            x = self.value_any(1)
            if x not in v:
                v.append(x)
        return {"enum": v}

    def object(self, depth):
        r = self.r
        s = {"type": "object", "properties": {}}
        for k in r.sample(KEYS, r.randint(0, 4)):
            s["properties"][k] = self.schema(depth - 1)
        if r.random() < .7:
            s["required"] = r.sample(list(s["properties"]), r.randint(0, len(s["properties"])))
            if r.random() < .1:
                s["required"] = list(dict.fromkeys(s["required"] + [r.choice(KEYS)]))
        s["additionalProperties"] = r.choice([False, False, True, self.schema(depth - 1)])
        if r.random() < .15:
            s["patternProperties"] = {p: self.schema(depth - 1) for p in r.sample(PATTERNS[:6], r.randint(1, 2))}
        if r.random() < .1:
            s["propertyNames"] = r.choice([{"pattern": r.choice(PATTERNS)}, {"maxLength": 1}, {"enum": ["a", "b", "zz"]}, True])
        if r.random() < .15:
            s["minProperties"] = r.randint(0, 2)
        if r.random() < .15:
            s["maxProperties"] = r.randint(0, 4)
        if r.random() < .1:
            del s["additionalProperties"]
            self.loose = True
        return s

    def array(self, depth):
        r = self.r
        s = {"type": "array"}
        if r.random() < .3:
            s["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randint(1, 3))]
        s["items"] = r.choice([True, self.schema(depth - 1), self.schema(depth - 1), False])
        if r.random() < .4:
            s["minItems"] = r.randint(0, 3)
        if r.random() < .4:
            s["maxItems"] = r.randint(0, 4)
        return s

    def combination(self, depth):
        r = self.r
        k = r.random()
        if k < .5:
            s = {"anyOf": [self.schema(depth - 1) for _ in range(r.randint(1, 3))]}
        elif k < .75:
            kinds = r.sample([self.integer, self.string, lambda: {"type": "null"}, lambda: {"type": "boolean"},
                              lambda: self.object(depth - 1), lambda: self.array(depth - 1)], r.randint(2, 4))
            s = {"oneOf": [k() for k in kinds]}
            if r.random() < .2:
                s["oneOf"].append(self.schema(depth - 1))
        else:
            kind = r.choice([self.integer, self.string, self.real, lambda: self.object(depth - 1), lambda: self.array(depth - 1)])
            s = {"allOf": [kind() for _ in range(2)]}
        if r.random() < .2:
            s.update(self.r.choice([self.integer, self.string])())
        return s

    def schema(self, depth):
        r = self.r
        k = r.random()
        if depth > 0 and k < .4:
            names, self.names = self.names, self.inside or self.names
            s = self.object(depth) if k < .25 else self.array(depth)
            self.names = names
            return s
        if depth > 0 and k < .55:
            return self.combination(depth)
        if k < .6 and self.names:
            return {"$ref": "#/$defs/" + r.choice(self.names)}
        if k < .7:
            return self.integer()
        if k < .78:
            return self.real()
        if k < .9:
            return self.string()
        if k < .95:
            return self.enum()
        if k < .96:
            self.loose = True
            s = r.choice([self.integer, self.string])()
            del s["type"]
            return s
        return r.choice([{"type": "null"}, {"type": "boolean"}, {"type": ["integer", "null"]}, {}, True, False,
                         {"type": ["string", "boolean"], "maxLength": 2}])

    def whole(self):
        self.loose = False
        self.names, self.inside = ["p", "q"], []
        s = self.schema(3)
        if not isinstance(s, dict) or "$ref" in s:
            s = {"type": "object", "properties": {"a": s}, "required": ["a"], "additionalProperties": False}
        self.names = []
        s["$defs"] = {"p": self.schema(1)}
        self.names, self.inside = ["p"], ["p", "q"]  # q may contain itself, but not be itself
        s["$defs"]["q"] = self.schema(2)
        return s

    def value(self, s, root, depth=6):
        """A value that may obey the schema."""
        r = self.r
        if depth == 0 or not isinstance(s, dict) or r.random() < .06:
            return self.value_any(2)
        if "$ref" in s:
            return self.value(root["$defs"][s["$ref"][8:]], root, depth - 1)
        if "const" in s:
            return s["const"]
        if "enum" in s:
            return r.choice(s["enum"])
        for word in ("anyOf", "oneOf", "allOf"):
            if word in s:
                return self.value(r.choice(s[word]), root, depth - 1)
        t = s.get("type")
        t = r.choice(t) if isinstance(t, list) else t
        if t == "object":
            return self.object_value(s, root, depth)
        if t == "array":
            return self.array_value(s, root, depth)
        if t == "string":
            if "format" in s:
                return r.choice(FORMATS[s["format"]])
            return r.choice(STRINGS)
        if t in ("integer", "number"):
            near = [s.get(k) for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf") if k in s]
            x = r.choice(near + [self.number()])
            x = decimal.Decimal(str(x)) + r.choice([0, 0, 1, -1, decimal.Decimal("0.01"), decimal.Decimal("-0.5")])
            return int(x) if x == int(x) else x
        if t == "null":
            return None
        if t == "boolean":
            return r.choice([True, False])
        return self.value_any(2)

    def object_value(self, s, root, depth):
        r = self.r
        v = {}
        for k, p in s.get("properties", {}).items():
            if r.random() < (.97 if k in s.get("required", []) else .5):
                v[k] = self.value(p, root, depth - 1)
        for k in s.get("required", []):
            if k not in v and r.random() < .9:
                v[k] = self.value(s.get("additionalProperties", True), root, depth - 1)
        if r.random() < .25:
            k = r.choice(KEYS + ["zz", "foo", "abc"])
            if k not in v:
                more = list(s.get("patternProperties", {}).values()) + [s.get("additionalProperties", True)]
                v[k] = self.value(r.choice(more), root, depth - 1)
        return v

    def array_value(self, s, root, depth):
        r = self.r
        first = s.get("prefixItems", [])
        n = r.randint(s.get("minItems", 0), max(s.get("minItems", 0), min(s.get("maxItems", 4), 4)))
        n += r.choice([0, 0, 0, 0, 1, -1])
        return [self.value(first[i] if i < len(first) else s.get("items", True), root, depth - 1) for i in range(max(n, 0))]


# ---- texts ----

class Style:
    def __init__(self, r):
        self.kind = r.choice(["compact", "spaced", "pretty"])


def scalar(v):
    if isinstance(v, decimal.Decimal):
        return format(v, "f")
    if isinstance(v, float):
        return repr(v)
    return json.dumps(v, ensure_ascii=False)


def texts_of(v, style, order, indent=1):
    """The text of v; `order` gives the keys of an object in their order."""
    nl, end, comma, colon = {"compact": ("", "", ",", ":"), "spaced": ("", "", ", ", ": "),
                             "pretty": ("\n" + "  " * indent, "\n" + "  " * (indent - 1), ",\n" + "  " * indent, ": ")}[style.kind]
    if isinstance(v, dict):
        parts = [json.dumps(k, ensure_ascii=False) + colon + texts_of(v[k], style, order, indent + 1) for k in order(v)]
    elif isinstance(v, list):
        parts = [texts_of(x, style, order, indent + 1) for x in v]
    else:
        return scalar(v)
    a, b = "{}" if isinstance(v, dict) else "[]"
    return a + nl + comma.join(parts) + end + b if parts else a + b


def key_order(schema):
    """Keys as the schema names them first, in the order of its text."""
    seen = []

    def walk(s):
        if isinstance(s, dict):
            for w, x in s.items():
                if w == "properties":
                    seen.extend(x)
                if w == "required":
                    continue
                walk(x)
        elif isinstance(s, list):
            for x in s:
                walk(x)
    walk(schema)
    rank = {k: i for i, k in reversed(list(enumerate(seen)))}
    return lambda v: sorted(v, key=lambda k: rank.get(k, len(seen)))


def orders(v, r, n=120):
    """Other orders of the keys of all objects in v, by chance or all."""
    count = 1

    def each(x):
        nonlocal count
        if isinstance(x, dict):
            count *= len(list(itertools.permutations(range(len(x)))))
            for y in x.values():
                each(y)
        elif isinstance(x, list):
            for y in x:
                each(y)
    each(v)
    for _ in range(min(n, 6 * count)):
        yield lambda o: r.sample(list(o), len(o))


def load(text):
    return json.loads(text, parse_float=decimal.Decimal)


class Ours:
    def __init__(self, program):
        self.p = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, row):
        self.p.stdin.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            sys.exit("oracle_grammar died of " + json.dumps(row))
        return json.loads(line)


def third(schema, texts):
    """What llguidance takes, or None if it refuses the schema."""
    import llguidance
    if not hasattr(third, "tok"):
        third.tok = llguidance.LLTokenizer("byte")
    m = llguidance.LLMatcher(third.tok, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    if m.is_error():
        return None
    out = ""
    for t in texts:
        m = llguidance.LLMatcher(third.tok, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema)), log_level=0)
        ids = third.tok.tokenize_bytes(t.encode())
        out += str(int(m.try_consume_tokens(ids) == len(ids) and m.is_accepting()))
    return out


def schemas(args, ours, count, record, wrong):
    r = random.Random(args.seed)
    checker = jsonschema.FormatChecker()
    while count["pairs"] < args.pairs or count["schemas"] < args.schemas:
        m = Maker(r.random())
        s = m.whole()
        text = json.dumps(s, ensure_ascii=False)
        exact = load(text)
        judge = jsonschema.Draft202012Validator(exact, format_checker=checker)
        valid = lambda t: judge.is_valid(load(t))
        count["schemas"] += 1
        style = Style(r)
        values = [m.value(s, s) for _ in range(6)]
        texts = [texts_of(v, style, key_order(s)) for v in values]
        got = ours.ask({"schema": s, "texts": texts, "samples": 4, "seed": r.randrange(1 << 30)})
        if not got["ok"]:
            count["refused: " + re.sub(r"\d+", "N", got["why"])[:60]] += 1
            count["refused"] += 1
            if "no value obeys" in got["why"] or "could end" in got["why"]:
                # Then no value may be valid.
                for t in texts:
                    if valid(t) and not m.loose:
                        wrong("says that nothing obeys", s, t)
                continue
            continue
        for t in got.get("samples", []):
            count["samples"] += 1
            try:
                good = valid(t)
            except (ValueError, decimal.InvalidOperation) as e:
                good = False
            if not good:
                wrong("writes what is not valid", s, t)
        takes = ""
        for v, t, took in zip(values, texts, got["takes"]):
            good = valid(t)
            count["pairs"] += 1
            count["valid" if good else "invalid"] += 1
            if took == "1" and not good:
                wrong("takes what is not valid", s, t)
            if took != "1" and good and not m.loose:
                # The keys may have to stand in another order.
                again = [texts_of(v, style, o) for o in orders(v, r)]
                if not again or "1" not in ours.ask({"schema": s, "texts": again})["takes"]:
                    wrong("does not take what is valid", s, t)
                else:
                    count["other order"] += 1
            takes += took
        if args.third and style.kind == "compact" and not m.loose:
            other = third(s, texts)
            if other is None:
                count["third refuses"] += 1
            else:
                for a, b in zip(other, takes):
                    count["third agrees" if a == b else "third differs"] += 1
        if record is not None and len(text) < 400:
            record.append({"schema": s, "texts": texts, "takes": takes})


# ---- patterns ----

def pattern(r, depth=3):
    k = r.random()
    if depth == 0 or k < .35:
        return r.choice(["a", "b", "c", ".", "\\d", "[ab]", "[^a]", "x", "-", "\\.", "[a-c0-2]", "\\w", "\\s", "é"])
    if k < .6:
        return pattern(r, depth - 1) + pattern(r, depth - 1)
    if k < .75:
        return "(" + pattern(r, depth - 1) + "|" + pattern(r, depth - 1) + ")"
    q = r.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?"])
    return r.choice(["(?:", "("]) + pattern(r, depth - 1) + ")" + q


def patterns(args, ours, count, record, wrong):
    r = random.Random(args.seed + 1)
    alphabet = "aabbcx-. 012é_"
    for _ in range(args.schemas):
        p = pattern(r)
        if r.random() < .2:
            looks = [r.choice(["(?=", "(?!"]) + pattern(r, 2) + r.choice([")", "$)", ".*1)"]) for _ in range(r.randint(1, 2))]
            p = "^" + "".join(looks) + p
        elif r.random() < .4:
            p = "^" + p
        if r.random() < .4:
            p += "$"
        texts = ["".join(r.choice(alphabet) for _ in range(r.randint(0, 6))) for _ in range(8)]
        got = ours.ask({"regex": p, "texts": texts})
        search = ours.ask({"schema": {"type": "string", "pattern": p}, "texts": [json.dumps(t, ensure_ascii=False) for t in texts]})
        if not got["ok"] or not search["ok"]:
            count["patterns refused"] += 1
            continue
        py = re.compile(p, re.ASCII)
        for t, a, b in zip(texts, got["takes"], search["takes"]):
            count["pattern pairs"] += 2
            if (a == "1") != bool(py.fullmatch(t)):
                wrong("as a whole", p, t)
            if (b == "1") != bool(py.search(t)):
                wrong("as a search", p, t)
        if record is not None:
            record.append({"regex": p, "texts": texts, "takes": got["takes"]})


def main():
    a = argparse.ArgumentParser()
    a.add_argument("program")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--schemas", type=int, default=1000)
    a.add_argument("--pairs", type=int, default=6000)
    a.add_argument("--no-third", dest="third", action="store_false")
    a.add_argument("--record")
    args = a.parse_args()
    count = collections.Counter()
    faults = []

    def wrong(what, *about):
        faults.append(what)
        if len(faults) < 20:
            print("WRONG:", what, *[json.dumps(x, ensure_ascii=False) for x in about], flush=True)

    kept = [[], []] if args.record else [None, None]
    ours = Ours(args.program)
    schemas(args, ours, count, kept[0], wrong)
    patterns(args, ours, count, kept[1], wrong)
    for k, n in sorted(count.items()):
        print("%7d %s" % (n, k))
    if args.record:
        r = random.Random(0)
        with open(args.record, "w") as f:
            for row in r.sample(kept[0], min(200, len(kept[0]))) + r.sample(kept[1], min(80, len(kept[1]))):
                f.write(json.dumps(row, ensure_ascii=False) + "\n")
    good = count["pairs"] + count["samples"] + count["pattern pairs"] - len(faults)
    print("%d passed, %d failed" % (good, len(faults)))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
