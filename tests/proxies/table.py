# SPDX-License-Identifier: Apache-2.0
"""Puts what the scripts here told into the tables of docs/proxies.md: table.py FILE.

A table stands between "<!-- measured: PROXY -->" and "<!-- end of measured -->"; rows that were not told
this time stay as they are."""
import json
import os
import re
import sys

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs/proxies.md")
COLUMNS = {"rolling": ("HTTP/1.1", "HTTP/2", "no grace", "kill -9"), "routers": ("vllm-router", "sglang-router")}
SETTINGS = ("ours", "default")  # of all others


def table(rows, columns):
    out = "| | %s |\n|%s\n" % (" | ".join(columns), "---|" * (len(columns) + 1))
    return out + "".join("| %s | %s |\n" % (row, " | ".join(cells.get(c, "") for c in columns)) for row, cells in rows.items())


def main():
    told = {}
    with open(sys.argv[1], encoding="utf-8") as f:
        for proxy, setting, row, words in map(json.loads, f):
            told.setdefault(proxy, {}).setdefault(row, {})[setting] = str(words)
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()

    def put(m):
        rows, columns, at = {}, COLUMNS.get(m[2], SETTINGS), 0
        for line in m[3].splitlines()[2:]:
            name, *cells = (x.strip() for x in line.split("|")[1:-1])
            rows[name] = dict(zip(columns, cells))
        order = list(rows)
        for name, cells in told.pop(m[2], {}).items():
            if name not in rows:  # behind what was told before it
                order.insert(at, name)
            rows.setdefault(name, {}).update(cells)
            at = order.index(name) + 1
        rows = {name: rows[name] for name in order}
        return m[1] + table(rows, columns) + m[4]

    page = re.sub(r"(<!-- measured: (\S+) -->\n)(.*?)(<!-- end of measured -->)", put, page, flags=re.S)
    if told:
        sys.exit("docs/proxies.md has no table for %s" % ", ".join(told))
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(page)


if __name__ == "__main__":
    main()
