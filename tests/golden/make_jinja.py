# SPDX-License-Identifier: Apache-2.0
"""Makes jinja_generated.jsonl: templates by chance, from a fixed seed, and what Jinja makes of them in the
environment that transformers sets up.

    python make_jinja.py [--rows N] [--seed N] [--out FILE]

Expressions are put together by the types of their parts, so most of them mean something; one in a few has a
part of another type, so that errors are compared too.  Rows whose outcome holds an address are left out.  With another seed and more rows it searches for differences: golden_templates takes a
file of rows as its argument.

Needs transformers 5.24.0 and jinja2 3.1.6, nothing of the models."""
import argparse
import json
import os
import random
import re

CONTEXT = {
    "s": "Hello, World", "u": " héllo ß\n", "e": "", "q": "a'b\"c<&>", "k": "a,b,,c", "n": 7, "z": 0, "m": -3, "f": 2.5,
    "g": -0.125, "b": True, "no": None, "L": [3, 1, 2], "W": ["b", "A", "c", "a"], "X": [1, "a", None, 2.0, True],
    "P": "Well-known words -- and self-made-ones, long: Donaudampfschifffahrt --flag --x-y it's--so\n\ta-b  ab-cd 12-34 --\n \u00a0 é-ü-xx.",
    "D": {"b": 1, "a": "x", "C": None}, "N": {"x": {"y": [1, {"z": "deep"}]}, "l": []},
    "M": [{"role": "system", "content": " be \n"}, {"role": "user", "content": "Hi", "n": 2},
          {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
          {"role": "tool", "content": "42", "n": 1}],
    "T": [{"type": "function", "function": {"name": "get", "description": "d\"q\"", "parameters": {
        "type": "object", "properties": {"c": {"type": "string", "enum": ["x", "y"]}, "i": {"type": "integer"}},
        "required": ["c"]}}}],
}
STR, INT, FLOAT, BOOL, LIST, DICT, ANY = "str", "int", "float", "bool", "list", "dict", "any"
KINDS = (STR, INT, FLOAT, BOOL, LIST, DICT)
WORDS = ("'a'", "'l'", "','", "' '", "'\\n'", "''", "'é'", "'Hello'", "'ab'", "'%s'", "'0'", "'-7'", "'1.5'", "'x y'")
ATOMS = {
    STR: ("s", "u", "e", "q", "k", "M[0].role", "M[1]['content']", "T[0].function.name", "W[0]", "D.a") + WORDS,
    INT: ("n", "z", "m", "0", "1", "2", "5", "-1", "10", "L[0]", "D['b']", "1000000"),
    FLOAT: ("f", "g", "1.0", "0.5", "1e3", "2.25", "1e16", "100.0"),
    BOOL: ("b", "true", "false", "True", "not b"),
    LIST: ("L", "W", "X", "M", "T", "[]", "[1, 2]", "('a', 'b')", "[s, n]", "[[1, 2], [3]]", "N.l"),
    DICT: ("D", "N", "M[1]", "T[0].function", "{}", "{'k': n, 'j': s}", "dict(a=1, b=s)", "N.x"),
}
# What makes a value of a type: {a} a part of that type; alternatives stand as often as they should come.
RULES = {
    STR: ("{str} ~ {any}", "{str} + {str}", "{str} * {small}", "{str}[{int}]", "{str}[{small}:]", "{str}[:{int}]", "{str}[::-1]",
          "{str}[{int}:{int}]", "({str} if {bool} else {str})", "{str} | upper", "{str} | lower", "{str} | title",
          "{str} | capitalize", "{str} | trim", "{str} | trim({str})", "{str} | replace({str}, {str})",
          "{str} | replace({str}, {str}, {small})", "{any} | string", "{any} | tojson", "{any} | tojson(indent={small})",
          "{list} | join", "{list} | join({str})", "{any} | default({str})", "{any} | default({str}, true)",
          "{str} | center({width})", "{str} | indent({small})", "{str} | indent({small}, true)", "{str} | indent(width={small}, blank=true)",
          "{str} | truncate({width})", "{str} | truncate({width}, true)", "{str} | truncate({width}, false, {str}, 0)",
          "{str} | wordwrap({width})", "{str} | wordwrap({width}, false)", "P | wordwrap({width})", "P | wordwrap({width}, {bool}, {str})",
          "P | wordwrap({width}, {bool}, none, {bool})", "(P + {str} + P)[{int}:] | wordwrap({width})",  "{any} | escape", "{str} | e",
          "{str} | forceescape", "{str} | urlencode", "'%s-%s' | format({any}, {any})", "'%d|%5.1f|%x' | format({int}, {float}, {int})",
          "'%s' % {str}", "{list} | first | string", "{list} | last | string", "{int} | filesizeformat", "{int} | filesizeformat(true)",
          "{str}.strip()", "{str}.strip({str})", "{str}.lstrip()", "{str}.rstrip({str})", "{str}.upper()", "{str}.lower()",
          "{str}.title()", "{str}.capitalize()", "{str}.swapcase()", "{str}.casefold()", "{str}.replace({str}, {str})",
          "{str}.replace({str}, {str}, {int})", "{str}.join({list})", "{str}.zfill({width})", "{str}.ljust({width})",
          "{str}.rjust({width}, '*')", "{str}.center({width})", "{str}.removeprefix({str})", "{str}.removesuffix({str})",
          "{str}.expandtabs({small})", "'{{}}-{{}}'.format({any}, {any})", "'{{0:>8}}|{{1:<5}}|{{2:^7}}'.format({str}, {int}, {str})",
          "'{{:05d}}|{{:x}}|{{:+}}'.format({int}, {int}, {int})", "'{{:.2f}}|{{:8.3f}}|{{:e}}'.format({float}, {float}, {float})",
          "'{{a}}{{b!r}}'.format(a={any}, b={any})", "{dict} | string", "{list} | string", "{dict}.keys() | join({str})",
          "strftime_now('%d %b %Y')", "{str}.split({str}) | last", "{str}.partition({str}) | join('/')"),
    INT: ("{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} // {int}", "{int} % {int}", "{int} ** {small}", "-{int}",
          "{list} | length", "{str} | length", "{dict} | count", "{str} | int", "{str} | int({int})", "{float} | int", "{any} | int",
          "{str} | int(0, 16)", "{int} | string | int({int}, {small})", "('0x1f', '-0b11', 'z_9', '017', '0_0')[{small}] | int({int}, {base})", "{int} | abs", "{list} | sum", "{list} | sum(start={int})", "{list} | map('length') | sum", "{str} | wordcount",
          "{str}.find({str})", "{str}.rfind({str})", "{str}.count({str})", "{str}.index({str})", "{list}.index({any})",
          "{list}.count({any})", "L | max", "L | min", "({int} if {bool} else {int})", "range({small}) | length",
          "{list} | map(attribute='n', default=0) | sum", "({bool}) + {int}", "{str} | float | int"),
    FLOAT: ("{int} / {int}", "{float} + {int}", "{float} * {float}", "{float} - {float}", "{float} // {float}", "{float} % {float}",
            "{str} | float", "{any} | float({float})", "{float} | round", "{float} | round({small})", "{float} | round(1, 'ceil')",
            "{float} | round(0, 'floor')", "{int} | round", "{float} | abs", "{float} ** 2", "-{float}"),
    BOOL: ("{any} == {any}", "{any} != {any}", "{int} < {int}", "{str} <= {str}", "{float} > {int}", "{list} < {list}", "{any} in {list}",
           "{str} in {str}", "{str} not in {dict}", "{bool} and {bool}", "{bool} or {bool}", "not {any}", "{any} is defined",
           "{any} is string", "{any} is number", "{any} is integer", "{any} is float", "{any} is boolean", "{any} is none",
           "{any} is mapping", "{any} is sequence", "{any} is iterable", "{any} is callable", "{int} is odd", "{int} is even",
           "{int} is divisibleby({int})", "{str} is upper", "{str} is lower", "{any} is true", "{any} is false", "{any} is sameas({any})",
           "{any} is in({list})", "{any} is eq({any})", "{int} is gt({int})", "{int} is le({int})", "{any} is not none", "{any} is escaped",
           "'upper' is filter", "'odd' is test", "missing is defined", "D.missing is undefined", "{str}.startswith({str})",
           "{str}.endswith({str})", "{str}.startswith(('a', 'b'))", "{str}.isdigit()", "{str}.isalpha()", "{str}.isalnum()",
           "{str}.isspace()", "{str}.isupper()", "{str}.islower()", "{str}.istitle()", "{str}.isdecimal()",
           "{str}.isascii()",  "{int} < {int} < {int}", "{any} and {any}", "{any} or {any}"),
    LIST: ("{list} + {list}", "{list} * {small}", "{list}[{small}:]", "{list}[:{int}]", "{list}[::-1]", "{list}[{int}:{int}:2]",
           "{str} | list", "{dict} | list", "range({small}) | list", "range({small}, {width}, 2) | list", "range(9)[{small}:{int}] | list",
           "{list} | sort", "W | sort(case_sensitive=true)", "{list} | sort(reverse=true)", "M | sort(attribute='role')",
           "M | sort(attribute='n,role')", "{list} | unique | list", "{list} | reverse | list", "{list} | map('upper') | list",
           "{list} | map(attribute='role') | list", "{list} | map(attribute='x', default='?') | list", "{list} | select | list",
           "{list} | select('string') | list", "{list} | select('gt', {int}) | list", "{list} | reject('none') | list", "{list} | reject | list",
           "{list} | selectattr('role', 'equalto', 'user') | list", "{list} | selectattr('n') | list", "M | selectattr('n', 'defined') | list",
           "{list} | rejectattr('role', 'in', ['user', 'tool']) | list", "{list} | batch({small}) | list", "{list} | batch(3, '-') | list",
           "{list} | slice(2) | list", "{list} | slice(3, 'x') | list", "{dict} | items | list", "{dict}.items() | list",
           "{dict}.values() | list", "{dict}.keys() | list", "{dict} | dictsort", "{dict} | dictsort(false, 'value')",
           "{dict} | dictsort(reverse=true)", "{str}.split()", "{str}.split({str})", "{str}.split({str}, {int})", "{str}.rsplit({str}, 1)",
           "{str}.splitlines()", "{str}.splitlines(true)", "({list} if {bool} else {list})", "{list} | groupby('role') | list",
           "M | groupby('n', default=0) | list", "{list} | map('int') | list", "{list} | map('default', 'd') | list", "L | map('string') | map('upper') | list",
           "{str}.partition({str})", "{list} | list"),
    DICT: ("dict({dict}, z={any})", "dict(D, a=n)", "({dict} if {bool} else {dict})", "{{'a': {any}, 'b': {any}}}", "{{{str}: {any}}}",
           "dict([['a', 1]])", "M | first", "T[0]['function']['parameters']", "M | selectattr('n') | first", "{dict}.get('x', {dict})"),
}
STATEMENTS = (
    "{{{{ {any} }}}}", "{{{{ {any} }}}}", "{{{{ {str} }}}}", "{{{{ {any} }}}}|{{{{ {any} }}}}",
    "{{% if {any} %}}A{{% elif {bool} %}}B{{% else %}}C{{% endif %}}",
    "{{% for x in {list} %}}{{{{ loop.index }}}}:{{{{ x }}}}{{% if not loop.last %}},{{% endif %}}{{% else %}}none{{% endfor %}}",
    "{{%- for x in {list} if x is string -%}}\n  {{{{ x | upper }}}}/{{{{ loop.length }}}}\n{{%- endfor %}}",
    "{{% for a, b in {dict}.items() %}}{{{{ a }}}}={{{{ b | tojson }}}};{{% endfor %}}",
    "{{% for x in {list} %}}{{% if loop.index0 == 1 %}}{{% continue %}}{{% endif %}}{{% if loop.index > 3 %}}{{% break %}}{{% endif %}}{{{{ x }}}}{{{{ loop.cycle('-', '+') }}}}{{% endfor %}}",
    "{{% set x = {any} %}}{{{{ x }}}}{{% if x %}}{{% set x = {any} %}}{{% endif %}}[{{{{ x }}}}]",
    "{{% set ns = namespace(a={any}, c=0) %}}{{% for x in {list} %}}{{% set ns.c = ns.c + 1 %}}{{% set ns.a = x %}}{{% endfor %}}{{{{ ns.c }}}}{{{{ ns.a }}}}",
    "{{% macro f(p, r={any}) %}}<{{{{ p }}}}|{{{{ r }}}}{{{{ varargs | length }}}}>{{% endmacro %}}{{{{ f({any}) }}}}{{{{ f({any}, {any}) }}}}{{{{ f(r=1, p={any}) }}}}",
    "{{% macro w() %}}({{{{ caller() }}}}){{% endmacro %}}{{% call w() %}}{{{{ {any} }}}}{{% endcall %}}",
    "{{% filter upper %}}a{{{{ {str} }}}}b{{% endfilter %}}", "{{% set t %}}  {{{{ {str} }}}}\n{{% endset %}}[{{{{ t | trim }}}}]",
    "{{% with x = {any}, y = {any} %}}{{{{ x }}}}{{{{ y }}}}{{% endwith %}}",
    "  {{% if {bool} %}}\n  x\n  {{% endif %}}\n{{{{- {str} -}}}}  \n y",
    "{{% for m in M %}}{{{{ '<' + m.role + '>' + m.content | trim }}}}{{% if m.tool_calls is defined %}}{{{{ m.tool_calls[0].function | tojson }}}}{{% endif %}}{{% if loop.first %}}{{{{ {str} }}}}{{% endif %}}{{% endfor %}}",
    "{{% for x in {list} recursive %}}{{{{ loop.depth }}}}{{% if x is sequence and x is not string and x %}}[{{{{ loop(x) }}}}]{{% endif %}}{{% endfor %}}",
    "{{% for x in {list} %}}{{{{ loop.previtem | default('-') }}}}<{{{{ loop.nextitem | default('-') }}}}{{% if loop.changed(x) %}}!{{% endif %}}{{{{ loop.revindex }}}} {{% endfor %}}",
    "{{{{ D.{word} }}}}{{{{ D['{word}'] }}}}{{{{ s.{word} }}}}{{{{ M[0] | attr('role') }}}}",
    "{{{{ {list} | map('{filter}') | list }}}}", "{{{{ {list} | select('{test}') | list }}}}", "{{{{ {list} | selectattr('role', '{test}') | list }}}}",
)
FILTERS = ("upper", "lower", "length", "string", "int", "float", "trim", "first", "last", "tojson", "abs", "title", "escape", "list", "sum")
TESTS = ("string", "number", "none", "defined", "mapping", "sequence", "odd", "even", "lower", "true", "iterable", "integer")


# Rows of the default seed that the interpreter refuses: macros and generators that are printed, methods of Markup.
REFUSED = {10024, 10045, 10057, 10077, 10113, 10289, 10318, 10355, 10419, 10523, 10563}


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def fill(self, pattern, depth):
        return re.sub(r"\{\{|\}\}|\{(\w+)\}", lambda m: m[0][0] if m[1] is None else self.part(m[1], depth), pattern)

    def part(self, kind, depth):
        r = self.r
        if kind == "small":
            return str(r.randint(0, 4))
        if kind == "base":
            return r.choice(("0", "2", "8", "10", "16", "36", "1"))
        if kind == "width":
            return str(r.choice((1, 3, 5, 8, 12, 20)))
        if kind == "word":
            return r.choice(("a", "b", "missing", "items", "keys", "upper", "__class__", "format"))
        if kind in ("filter", "test"):
            return r.choice(FILTERS if kind == "filter" else TESTS)
        if kind == ANY or r.random() < 0.04:
            kind = r.choice(KINDS) if r.random() < 0.95 else "odd"
        if kind == "odd":
            return r.choice(("no", "missing", "D.missing", "none", "L | first", "W | map('upper')", "range(3)", "s.upper", "namespace(a=1)"))
        if depth <= 0 or r.random() < 0.25:
            return r.choice(ATOMS[kind])
        text = self.fill(r.choice(RULES[kind]), depth - 1)
        return text if depth == 3 and r.random() < 0.7 else "(" + text + ")"

    def template(self):
        return self.fill(self.r.choice(STATEMENTS), self.r.choice((1, 2, 2, 3)))


def is_stable(text):
    """No address in it."""
    return not re.search(r"0x[0-9a-f]{6,}|object at|lipsum", text) and len(text) < 2000


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=600)
    ap.add_argument("--seed", type=int, default=8)
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "jinja_generated.jsonl"))
    args = ap.parse_args()
    from jinja_render import render
    refused = REFUSED if args.seed == 8 and args.rows == 600 else ()
    maker, rows, seen = Maker(args.seed), [], set()
    while len(rows) < args.rows:
        template = maker.template()
        if template in seen:
            continue
        seen.add(template)
        got = render(template, json.loads(json.dumps(CONTEXT)))
        got.pop("error_class", None)
        if is_stable(got.get("expected", "")) and is_stable(got.get("error_message", "")):
            n = 10000 + len(rows)
            rows.append({"n": n, "group": "generated", "template": template, **got, **({"refused": True} if n in refused else {})})
    with open(args.out, "w", encoding="ascii") as f:
        f.write(json.dumps({"context": CONTEXT}) + "\n")
        for row in rows:
            f.write(json.dumps(row) + "\n")
    errors = [r["error"] for r in rows if "error" in r]
    print(len(rows), "rows,", len(errors), "errors:", {e: errors.count(e) for e in set(errors)})


if __name__ == "__main__":
    main()
