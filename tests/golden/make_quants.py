#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of every quantised type, and what the Python package `gguf` reads in them.

    python make_quants.py [--out .]

Writes quants.jsonl.  Needs gguf==0.19.0 and numpy; the same bytes every time.  README.md has the format."""
import argparse
import json
import os

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

# Where a block's F16 scale is, and its minimum, if it has one: everything else may be any bits.
TYPES = {
    T.Q8_0: (0, None), T.Q4_0: (0, None), T.Q4_1: (0, 2), T.Q5_0: (0, None), T.Q5_1: (0, 2),
    T.Q2_K: (80, 82), T.Q3_K: (108, None), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208, None),
}
BLOCKS = {32: 6, 256: 3}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    out = ap.parse_args().out
    rng = np.random.default_rng(20)
    with open(os.path.join(out, "quants.jsonl"), "w", encoding="ascii", newline="\n") as f:
        for t, (d, m) in TYPES.items():
            elements, size = GGML_QUANT_SIZES[t]
            n = BLOCKS[elements]
            rows = rng.integers(0, 256, (n, size), dtype=np.uint8)
            # One scale of each kind: ordinary, subnormal, negative; then what comes.
            scales = np.concatenate([[0.0078, 3e-6, -0.5], rng.normal(0, 0.05, n)])[:n].astype("<f2")
            rows[:, d:d + 2] = scales.view(np.uint8).reshape(n, 2)
            if m is not None:
                rows[:, m:m + 2] = rng.normal(0, 0.2, n).astype("<f2").view(np.uint8).reshape(n, 2)
            values = dequantize(rows.reshape(1, -1), t).ravel()
            assert len(values) == n * elements
            f.write(json.dumps({"type": t.name, "row": rows.tobytes().hex(),
                                "values": [float(str(v)) for v in values]}) + "\n")


if __name__ == "__main__":
    main()
