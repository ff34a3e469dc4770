# SPDX-License-Identifier: Apache-2.0
"""Small real models for system tests: the random ones of tests/golden/tiny, which have no vocabulary, with one
of byte-level BPE put in front, and what transformers says of them."""
import atexit
import json
import os
import shutil
import struct
import tempfile

from lib import ROOT

TMP = tempfile.mkdtemp(prefix="tokenring-test-")
atexit.register(shutil.rmtree, TMP, True)
TINY_DIR = os.path.join(ROOT, "tests/golden/tiny")
IM_START, END_OF_TEXT, IM_END = 252, 253, 255
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
# As a file writes them: newline and blank, the rest of ASCII, two that merges make, and names of their own.
PIECES = ["\u010a", "\u0120"] + [chr(c) for c in range(33, 127)] + ["he", "\u0120he"]
PIECES += [f"[{i}]" for i in range(len(PIECES), IM_START)] + ["<|im_start|>", "<|endoftext|>", "[254]", "<|im_end|>"]
MERGES = ["h e", "\u0120 he"]


def said(ids):
    return "".join(PIECES[i] for i in ids).replace("\u010a", "\n").replace("\u0120", " ")


# ---- a file with a vocabulary ----

STRING, ARRAY, U32, I32 = 8, 9, 4, 5


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def strings(rows):
    return struct.pack("<IIQ", ARRAY, STRING, len(rows)) + b"".join(text(r) for r in rows)


def with_vocabulary(name, pre="qwen2", **more):
    """Keys go in front of the file's own; one more makes their length a multiple of the alignment, so that
    everything behind keeps its place."""
    types = [3 if i in (IM_START, END_OF_TEXT, IM_END) else 1 for i in range(256)]
    keys = {"model": struct.pack("<I", STRING) + text("gpt2"), "pre": struct.pack("<I", STRING) + text(pre),
            "tokens": strings(PIECES), "merges": strings(MERGES),
            "token_type": struct.pack("<IIQ256i", ARRAY, I32, 256, *types),
            "eos_token_id": struct.pack("<II", U32, IM_END), "padding_token_id": struct.pack("<II", U32, END_OF_TEXT),
            **more}
    pairs = [text(f"tokenizer.ggml.{k}") + v for k, v in keys.items()]
    pairs.append(text("tokenizer.chat_template") + struct.pack("<I", STRING) + text(TEMPLATE))
    own = b"".join(pairs)
    filler = text("test.filler") + struct.pack("<I", STRING)
    own += filler + text("x" * (-(len(own) + len(filler) + 8) % 32))
    with open(os.path.join(TINY_DIR, name + ".gguf"), "rb") as f:
        head, rest = f.read(16), f.read()
    n_keys = struct.unpack("<Q", rest[:8])[0] + len(pairs) + 1
    path = os.path.join(TMP, f"{name}.gguf")
    with open(path, "wb") as f:
        f.write(head + struct.pack("<Q", n_keys) + own + rest[8:])
    return path


def expected(name):
    with open(os.path.join(TINY_DIR, "expected.jsonl"), encoding="ascii") as f:
        return next(r for r in map(json.loads, f) if r["model"] == name)
