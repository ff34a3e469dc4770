# SPDX-License-Identifier: Apache-2.0
"""As much of JSON Schema as docs/*.schema.json and 49_structured.py use.  A word that is not known here is an error: no rule
may stand in a schema without being checked."""
import re

TYPES = {"object": dict, "array": list, "string": str, "null": type(None), "boolean": bool,
         "integer": int, "number": (int, float)}
TOLD = {"$schema", "$id", "$defs", "title", "description", "required"}


def _is(value, name):
    return isinstance(value, TYPES[name]) and not (isinstance(value, bool) and name in ("integer", "number"))


class Schema:
    """faults(value): what is wrong with it, [] if nothing is.  With `closed`, a member that the schema
    does not name is wrong too: for what we write ourselves."""

    def __init__(self, root, closed=False):
        self.root, self.closed = root, closed

    def faults(self, value, rule=None, at="$"):
        rule = self.root if rule is None else rule
        if isinstance(rule, bool):
            return [] if rule else [f"{at}: nothing is allowed here"]
        out = []
        for word, arg in rule.items():
            if word not in TOLD:
                out += getattr(self, "_" + word.strip("$"))(value, arg, rule, at)
        missing = [k for k in rule.get("required", ()) if isinstance(value, dict) and k not in value]
        return out + [f"{at}: {k} is missing" for k in missing]

    def _ref(self, value, arg, rule, at):
        node = self.root
        for step in arg.removeprefix("#/").split("/"):
            node = node[step]
        return self.faults(value, node, at)

    def _oneOf(self, value, arg, rule, at):
        all_faults = [self.faults(value, r, at) for r in arg]
        n = sum(not f for f in all_faults)
        return [] if n == 1 else [f"{at}: {n} of the alternatives fit {value!r:.300}: {min(all_faults, key=len)}"]

    def _anyOf(self, value, arg, rule, at):
        all_faults = [self.faults(value, r, at) for r in arg]
        return [] if not all(all_faults) else min(all_faults, key=len)

    def _bound(self, value, kind, good, at, what):
        return [f"{at}: {what} of {value!r:.100}"] if isinstance(value, kind) and not good(value) else []

    def _minLength(self, value, arg, rule, at):
        return self._bound(value, str, lambda v: len(v) >= arg, at, f"minLength {arg}")

    def _maxLength(self, value, arg, rule, at):
        return self._bound(value, str, lambda v: len(v) <= arg, at, f"maxLength {arg}")

    def _minItems(self, value, arg, rule, at):
        return self._bound(value, list, lambda v: len(v) >= arg, at, f"minItems {arg}")

    def _maxItems(self, value, arg, rule, at):
        return self._bound(value, list, lambda v: len(v) <= arg, at, f"maxItems {arg}")

    def _type(self, value, arg, rule, at):
        names = [arg] if isinstance(arg, str) else arg
        return [] if any(_is(value, n) for n in names) else [f"{at}: {value!r:.100} is no {arg}"]

    def _const(self, value, arg, rule, at):
        return [] if value == arg and type(value) is type(arg) else [f"{at}: {value!r:.100} is not {arg!r}"]

    def _enum(self, value, arg, rule, at):
        return [] if value in arg else [f"{at}: {value!r:.100} is none of {arg}"]

    def _pattern(self, value, arg, rule, at):
        return [] if not isinstance(value, str) or re.search(arg, value) else [f"{at}: {value!r:.100} is not {arg}"]

    def _minimum(self, value, arg, rule, at):
        return [f"{at}: {value} < {arg}"] if _is(value, "number") and value < arg else []

    def _maximum(self, value, arg, rule, at):
        return [f"{at}: {value} > {arg}"] if _is(value, "number") and value > arg else []

    def _items(self, value, arg, rule, at):
        if not isinstance(value, list):
            return []
        return [f for i, v in enumerate(value) for f in self.faults(v, arg, f"{at}[{i}]")]

    def _properties(self, value, arg, rule, at):
        if not isinstance(value, dict):
            return []
        out = [f for k, v in value.items() if k in arg for f in self.faults(v, arg[k], f"{at}.{k}")]
        if self.closed and "additionalProperties" not in rule:
            out += [f"{at}: {k} is not in the schema" for k in value if k not in arg]
        return out

    def _additionalProperties(self, value, arg, rule, at):
        if not isinstance(value, dict):
            return []
        more = [(k, v) for k, v in value.items() if k not in rule.get("properties", {})]
        return [f for k, v in more for f in self.faults(v, arg, f"{at}.{k}")]
