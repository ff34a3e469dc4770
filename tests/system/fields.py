# SPDX-License-Identifier: Apache-2.0
"""Rows of the tables of fields as the source has them: frontend/params.def, and the TR_FIELD rows of the
dialects' own files (frontend/fields.h)."""
import ast
import glob
import os
import re
from collections import namedtuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|[(),]|[^\s"(),]+|\s+', re.S)
Param = namedtuple("Param", "name who kind min max values fallback words")
Field = namedtuple("Field", "theirs ours range fallback effect")
Never = namedtuple("Never", "theirs what why")
Ignored = namedtuple("Ignored", "theirs why")


def calls(text, names):
    """(name, arguments) of each use of these macros; literals that stand side by side are one."""
    for m in re.finditer(r"^\s*(%s)\(" % "|".join(names), text, re.M):
        args, depth, now = [], 1, ""
        for w in WORD.finditer(text, m.end()):
            w = w.group()
            depth += (w == "(") - (w == ")")
            if depth == 0 or (w == "," and depth == 1):
                args.append(now)
                now = ""
                if depth == 0:
                    break
            elif w[0] == '"':
                now += ast.literal_eval(w)
            elif not w.isspace() and not w.startswith("/*"):
                now += w
        yield m[1], args


def params():
    """Rows of params.def, those of the documentation alone as well, in its order."""
    with open(os.path.join(ROOT, "frontend/params.def"), encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/|^#.*?$", "", f.read(), flags=re.S | re.M)
    return [Param(*args) for _, args in calls(text, ("X", "ALSO"))]


def dialect(name):
    """Rows of frontend/api_NAME.c, or frontend/NAME.c."""
    kinds = {"TR_FIELD": Field, "TR_FIELD_NEVER": Never, "TR_FIELD_IGNORED": Ignored}
    for file in ("api_" + name, name):
        path = os.path.join(ROOT, "frontend", file + ".c")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                return [kinds[kind](*args) for kind, args in calls(f.read(), sorted(kinds, reverse=True))]
    raise FileNotFoundError(name)


def dialects():
    """Those that have rows."""
    names = (os.path.basename(p)[:-2].removeprefix("api_") for p in sorted(glob.glob(os.path.join(ROOT, "frontend/*.c"))))
    return [n for n in names if dialect(n)]
