#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regenerate the golden reference data.

    python make_golden.py --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf \\
                          [--gemma3 gemma-3-270m-q4_k_m.gguf] --out . [--only STAGE,...]

Stages: meta, tokenizer, detok, templates, corners, forward, tolerance, sampling, manifest
(`forward` and `tolerance` need torch and transformers and take some minutes each
on two cores; `tolerance` and `sampling` read logits files that `forward` writes).
Without --gemma3 only the files of smollm2 are made, and `templates` is left out:
some of its rows hold token ids of Gemma.  `corners` records the outcome of the
rows of jinja_corners.jsonl anew; which rows are `refused` is kept.

The oracles are independent of any C or C++ inference engine:
  GGUF reading and dequantisation  gguf (Python package)
  forward pass                     PyTorch + transformers, float32, eager attention
  SmolLM2 tokenizer                tokenizers (BPE, Digits + ByteLevel)
  Gemma 3 tokenizer                sentencepiece, on a model built from the GGUF's vocabulary;
                                   cross-checked with tokenizers (BPE with byte fallback)
  chat templates                   jinja2, through transformers' own environment
  sampling, detokenisation         short float64 / quadratic reference code below

See README.md for the file formats.
"""
import argparse
import base64
import hashlib
import json
import math
import os
import platform
import re
import sys

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import gguf
from gguf import GGUFReader

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.dont_write_bytecode = True
import golden_inputs as gi
import jinja_cases as jc
from jinja_render import render

N_GREEDY = 48
N_TOP = 20
T_NORMAL, T_UNKNOWN, T_CONTROL, T_USER, T_UNUSED, T_BYTE = 1, 2, 3, 4, 5, 6


# ---------------------------------------------------------------------------
# small helpers
# ---------------------------------------------------------------------------
def f32(x):
    """A float32 as the shortest decimal which gives the same float32 back."""
    return float(str(np.float32(x)))


def f32l(a):
    return [f32(v) for v in np.asarray(a).ravel()]


def dumps(o):
    return json.dumps(o, ensure_ascii=True, allow_nan=False, separators=(", ", ": "))


def write_json(path, obj, **kw):
    with open(path, "w", encoding="ascii", newline="\n") as f:
        json.dump(obj, f, ensure_ascii=True, allow_nan=False, **kw)
        f.write("\n")


def write_jsonl(path, rows):
    with open(path, "w", encoding="ascii", newline="\n") as f:
        for r in rows:
            f.write(dumps(r) + "\n")


def write_f32(path, a):
    np.ascontiguousarray(np.asarray(a, dtype="<f4")).tofile(path)


def sha256_file(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        for b in iter(lambda: f.read(1 << 20), b""):
            h.update(b)
    return h.hexdigest()


def log(*a):
    print(*a, flush=True)


# ---------------------------------------------------------------------------
# GGUF
# ---------------------------------------------------------------------------
class Gguf:
    def __init__(self, path):
        self.path = path
        self.reader = GGUFReader(path)
        self.kv = {k: f.contents() for k, f in self.reader.fields.items()}
        self.arch = self.kv["general.architecture"]
        self.tokens = self.kv["tokenizer.ggml.tokens"]
        self.types = self.kv["tokenizer.ggml.token_type"]

    def get(self, name, default=None):
        return self.kv.get(self.arch + "." + name, default)

    def tensors(self):
        """name -> float32 array, in the row-major (torch) orientation."""
        out = {}
        for t in self.reader.tensors:
            shape = tuple(int(x) for x in reversed(t.shape))
            a = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32, copy=False)
            out[t.name] = np.ascontiguousarray(a).reshape(shape)
        return out


def stage_meta(models, out):
    for name, g in models.items():
        kv = {}
        for k, f in g.reader.fields.items():
            if k.startswith("GGUF."):
                continue
            v = g.kv[k]
            types = [gguf.GGUFValueType(int(t)).name for t in f.types]
            if isinstance(v, list):
                h = hashlib.sha256()
                for x in v:
                    h.update((x if isinstance(x, str) else repr(x)).encode("utf-8") + b"\n")
                kv[k] = {"type": types, "length": len(v), "first": v[:4], "last": v[-4:], "sha256_lines": h.hexdigest()}
            else:
                kv[k] = {"type": types, "value": f32(v) if types == ["FLOAT32"] else v}
        tensors = []
        arrays = g.tensors()
        for t in g.reader.tensors:
            a = arrays[t.name].ravel()
            d = a.astype(np.float64)
            tensors.append({
                "name": t.name, "type": t.tensor_type.name, "ne": [int(x) for x in t.shape],
                "offset": int(t.data_offset - g.reader.data_offset), "bytes": int(t.n_bytes),
                "sum": float("%.9g" % d.sum()), "l2": float("%.9g" % math.sqrt((d * d).sum())),
                "min": f32(a.min()), "max": f32(a.max()),
                "first": f32l(a[:8]), "last": f32l(a[-8:]),
            })
        types = {}
        for t in g.types:
            types[str(t)] = types.get(str(t), 0) + 1
        with open(os.path.join(out, name, "gguf_meta.json"), "w", encoding="ascii", newline="\n") as f:
            f.write('{"file_sha256": %s, "file_bytes": %d, "version": %d, "alignment": %d, "data_offset": %d,\n' % (
                dumps(sha256_file(g.path)), os.path.getsize(g.path), int(g.kv["GGUF.version"]), int(g.reader.alignment), int(g.reader.data_offset)))
            f.write('"token_type_counts": %s,\n"kv": {\n' % dumps(types))
            f.write(",\n".join("%s: %s" % (dumps(k), dumps(v)) for k, v in kv.items()))
            f.write('\n},\n"tensors": [\n')
            f.write(",\n".join(dumps(t) for t in tensors))
            f.write("\n]}\n")
        log("meta", name, len(kv), "kv", len(tensors), "tensors")


# ---------------------------------------------------------------------------
# Tokenizers
# ---------------------------------------------------------------------------
def byte_to_unicode():
    """The GPT-2 byte <-> printable character table."""
    bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    cs = bs[:]
    n = 0
    for b in range(256):
        if b not in bs:
            bs.append(b)
            cs.append(256 + n)
            n += 1
    return dict(zip(bs, map(chr, cs)))


class TokBase:
    def bytes_of(self, ids, skip_special=False):
        return b"".join(self.token_bytes(i, skip_special) for i in ids)

    def is_special(self, i):
        return self.types[i] in (T_CONTROL, T_UNKNOWN)


class SmolTok(TokBase):
    """tokenizers BPE from the GGUF's vocabulary and merges (tokenizer.ggml.pre = smollm)."""

    def __init__(self, g):
        from tokenizers import Tokenizer, models, pre_tokenizers, decoders, AddedToken
        self.name = "smollm2"
        self.tokens, self.types = g.tokens, g.types
        self.bos, self.eos = g.kv["tokenizer.ggml.bos_token_id"], g.kv["tokenizer.ggml.eos_token_id"]
        self.add_bos = bool(g.kv["tokenizer.ggml.add_bos_token"])
        vocab = {t: i for i, t in enumerate(g.tokens)}
        merges = [tuple(m.split(" ")) for m in g.kv["tokenizer.ggml.merges"]]
        tk = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tk.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
        tk.decoder = decoders.ByteLevel()
        tk.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, ty in zip(g.tokens, g.types) if ty == T_CONTROL])
        assert tk.get_vocab_size() == len(g.tokens)
        self.tk = tk
        b2u = byte_to_unicode()
        self.u2b = {c: b for b, c in b2u.items()}
        self.byte_id = {b: vocab[c] for b, c in b2u.items() if c in vocab}
        self.vocab = vocab

    def encode(self, text, parse_special):
        self.tk.encode_special_tokens = not parse_special
        return self.tk.encode(text, add_special_tokens=False).ids

    def token_bytes(self, i, skip_special=False):
        t = self.tokens[i]
        if self.types[i] == T_CONTROL:
            return b"" if skip_special else t.encode("utf-8")
        return bytes(self.u2b[c] for c in t)

    def lib_decode(self, ids):
        return self.tk.decode(ids, skip_special_tokens=False)

    def id_of_bytes(self, b):
        """The single token with exactly these bytes, or None."""
        b2u = byte_to_unicode()
        return self.vocab.get("".join(b2u[x] for x in b))


class GemmaTok(TokBase):
    """sentencepiece on a model proto made from the GGUF's pieces, scores and types."""

    def __init__(self, g):
        import sentencepiece as spm
        from sentencepiece import sentencepiece_model_pb2 as pb
        self.name = "gemma3"
        self.tokens, self.types = g.tokens, g.types
        scores = g.kv["tokenizer.ggml.scores"]
        self.bos, self.eos = g.kv["tokenizer.ggml.bos_token_id"], g.kv["tokenizer.ggml.eos_token_id"]
        self.add_bos = bool(g.kv["tokenizer.ggml.add_bos_token"])
        unk = g.kv["tokenizer.ggml.unknown_token_id"]
        m = pb.ModelProto()
        for i, (t, s, ty) in enumerate(zip(g.tokens, scores, g.types)):
            p = m.pieces.add()
            # the GGUF stores user-defined runs of spaces as plain spaces; sentencepiece wants U+2581
            p.piece = t.replace(" ", "\u2581") if ty == T_USER else t
            p.score = s
            p.type = T_UNKNOWN if i == unk else ty
        m.trainer_spec.model_type = pb.TrainerSpec.BPE
        m.trainer_spec.vocab_size = len(g.tokens)
        m.trainer_spec.byte_fallback = True
        m.trainer_spec.unk_id, m.trainer_spec.bos_id, m.trainer_spec.eos_id, m.trainer_spec.pad_id = unk, self.bos, self.eos, 0
        m.trainer_spec.unk_piece, m.trainer_spec.bos_piece = g.tokens[unk], g.tokens[self.bos]
        m.trainer_spec.eos_piece, m.trainer_spec.pad_piece = g.tokens[self.eos], g.tokens[0]
        m.normalizer_spec.name = "identity"
        m.normalizer_spec.add_dummy_prefix = bool(g.kv["tokenizer.ggml.add_space_prefix"])
        m.normalizer_spec.remove_extra_whitespaces = False
        m.normalizer_spec.escape_whitespaces = True
        self.sp = spm.SentencePieceProcessor(model_proto=m.SerializeToString())
        self.vocab = {t: i for i, t in enumerate(g.tokens)}
        control = sorted((t for t, ty in zip(g.tokens, g.types) if ty == T_CONTROL), key=len, reverse=True)
        self.control_re = re.compile("(" + "|".join(map(re.escape, control)) + ")")
        self.byte_id = {int(t[3:5], 16): i for i, (t, ty) in enumerate(zip(g.tokens, g.types)) if ty == T_BYTE}
        self.id_byte = {i: b for b, i in self.byte_id.items()}
        assert len(self.byte_id) == 256
        self._hf = None

    def encode(self, text, parse_special):
        if not parse_special:
            return self.sp.encode(text) if text else []
        ids = []
        for k, part in enumerate(self.control_re.split(text)):
            if k % 2:
                ids.append(self.vocab[part])
            elif part:
                ids += self.sp.encode(part)
        return ids

    def token_bytes(self, i, skip_special=False):
        t, ty = self.tokens[i], self.types[i]
        if ty == T_CONTROL:
            return b"" if skip_special else t.encode("utf-8")
        if ty == T_BYTE:
            return bytes([self.id_byte[i]])
        if ty == T_USER:
            return t.encode("utf-8")
        return t.replace("\u2581", " ").encode("utf-8")

    def lib_decode(self, ids):
        return self.sp.decode(ids)

    def id_of_bytes(self, b):
        try:
            t = b.decode("utf-8")
        except UnicodeDecodeError:
            return self.byte_id[b[0]] if len(b) == 1 else None
        i = self.vocab.get(t)
        if i is not None and self.types[i] == T_USER:
            return i
        i = self.vocab.get(t.replace(" ", "\u2581"))
        return i if i is not None and self.types[i] == T_NORMAL else None

    def hf(self):
        """A second implementation, for cross-checking only: tokenizers BPE with derived merges."""
        if self._hf is None:
            from tokenizers import Tokenizer, models, normalizers, AddedToken
            normal = {t: i for t, i in self.vocab.items() if self.types[i] == T_NORMAL}
            merges = []
            for t, i in normal.items():  # ids of normal pieces ascend as their scores descend
                local = []
                for k in range(1, len(t)):
                    l, r = t[:k], t[k:]
                    if l in normal and r in normal:
                        local.append((normal[l], normal[r], l, r))
                merges += [(l, r) for _, _, l, r in sorted(local)]
            tk = Tokenizer(models.BPE(vocab=dict(self.vocab), merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
            tk.normalizer = normalizers.Replace(" ", "\u2581")
            tk.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, ty in zip(self.tokens, self.types) if ty == T_CONTROL])
            tk.add_tokens([AddedToken(t, special=False, normalized=False) for t, ty in zip(self.tokens, self.types) if ty == T_USER])
            self._hf = tk
        return self._hf

    def hf_encode(self, text, parse_special):
        tk = self.hf()
        tk.encode_special_tokens = not parse_special
        return tk.encode(text, add_special_tokens=False).ids


def make_tokenizer(name, g):
    return SmolTok(g) if name == "smollm2" else GemmaTok(g)


def decode_text(b):
    return b.decode("utf-8", errors="replace")


def stage_tokenizer(models, toks, out):
    import random
    seen, strings = set(), []
    for group, text in gi.tokenizer_strings():
        if text not in seen:
            seen.add(text)
            strings.append((group, text))
    for name, tok in toks.items():
        rows, disagreements = [], []
        stats = {"lossy": 0, "special": 0}
        for n, (group, text) in enumerate(strings):
            plain = tok.encode(text, False)
            spec = tok.encode(text, True)
            row = {"n": n, "group": group, "text": text, "ids": plain}
            if spec != plain:
                row["ids_parse_special"] = spec
                stats["special"] += 1
            dec = tok.bytes_of(plain)
            raw = text.encode("utf-8")
            if dec != raw:
                row["roundtrip"] = False
                row["decoded"] = decode_text(dec)
                stats["lossy"] += 1
            rows.append(row)
            # the library's own decoder must agree wherever the bytes are valid UTF-8
            # (sentencepiece prints control tokens as "" and <unk> as " ?? ", so compare the plain ids)
            try:
                want = dec.decode("utf-8")
                assert tok.lib_decode(plain) == want, (name, text, tok.lib_decode(plain), want)
            except UnicodeDecodeError:
                pass
            if name == "gemma3":
                for ps, ref in ((False, plain), (True, spec)):
                    alt = tok.hf_encode(text, ps)
                    if alt != ref:
                        disagreements.append({"n": n, "text": text, "parse_special": ps, "reference": "sentencepiece", "ids": ref, "other": "tokenizers-bpe", "other_ids": alt})
        write_jsonl(os.path.join(out, name, "tokenizer.jsonl"), rows)
        log("tokenizer", name, len(rows), "strings", stats, len(disagreements), "disagreements with the second implementation")
        if name == "gemma3":
            write_jsonl(os.path.join(out, name, "tokenizer_second_opinion.jsonl"), disagreements)

        # id sequences -> bytes
        rng = random.Random(7)
        dec = []

        def add(group, ids):
            b0, b1 = tok.bytes_of(ids), tok.bytes_of(ids, True)
            r = {"group": group, "ids": ids, "bytes_b64": base64.b64encode(b0).decode(), "text": decode_text(b0)}
            if b1 != b0:
                r["bytes_skip_special_b64"] = base64.b64encode(b1).decode()
                r["text_skip_special"] = decode_text(b1)
            dec.append(r)

        add("empty", [])
        special = [i for i, t in enumerate(tok.types) if t == T_CONTROL]
        for i in (special if len(special) < 40 else special[:12] + [105, 106] + special[-3:]):
            add("special", [i])
        user = [i for i, t in enumerate(tok.types) if t == T_USER]
        for i in user[:3] + user[30:34] + user[60:64] + user[-40:-36] + user[-3:]:
            add("user_defined", [i])
        for b in sorted(tok.byte_id):
            add("byte", [tok.byte_id[b]])
        n = len(tok.tokens)
        for _ in range(60):
            add("random", [rng.randrange(n) for _ in range(rng.choice([1, 2, 4, 8, 16]))])
        normal_hi = [i for i, t in enumerate(tok.types) if t == T_NORMAL]
        for _ in range(30):
            add("random_normal", [rng.choice(normal_hi) for _ in range(12)])
        for i in (0, 1, 2, 3, 4, 5, 17, 100, 255, 256, 257, 300, 493, 494, 1000, n // 2, n - 2, n - 1):
            add("single", [i])
        write_jsonl(os.path.join(out, name, "decode.jsonl"), dec)
        log("decode", name, len(dec))


# ---------------------------------------------------------------------------
# Incremental detokenisation and stop strings
# ---------------------------------------------------------------------------
def utf8_valid_len(b, i):
    """Length of the complete, valid UTF-8 character at b[i], or 0."""
    for n in (1, 2, 3, 4):
        if i + n <= len(b):
            try:
                b[i:i + n].decode("utf-8")
                return n
            except UnicodeDecodeError:
                pass
    return 0


def safe_prefix(b):
    """End of the last complete valid character: what follows is incomplete or invalid and is held."""
    i = end = 0
    while i < len(b):
        n = utf8_valid_len(b, i)
        if n:
            i += n
            end = i
        else:
            i += 1
    return end


def safe_text(b):
    return decode_text(b[:safe_prefix(b)])


def eager_text(b):
    """Like safe_text, but bytes that can never become valid are shown as U+FFFD at once."""
    import codecs
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b, False)


def find_stop(text, stops):
    """Match that ends first, as if the text arrived one character at a time; the longest on a tie."""
    best = None
    for s in stops:
        k = text.find(s)
        if k >= 0:
            key = (k + len(s), -len(s))
            if best is None or key < best[0]:
                best = (key, k, s)
    return None if best is None else (best[1], best[2])


def find_stop_earliest_start(text, stops):
    hits = [(text.find(s), -len(s), s) for s in stops if text.find(s) >= 0]
    return None if not hits else (min(hits)[0], min(hits)[2])


def hold_len(text, stops):
    """Length of the longest suffix of text which is a proper prefix of a stop string."""
    best = 0
    for s in stops:
        for k in range(min(len(s) - 1, len(text)), best, -1):
            if text.endswith(s[:k]):
                best = k
                break
    return best


def stream_oracle(tok, ids, stops=(), skip_special=True, view=safe_text, find=find_stop):
    """Quadratic: decode everything again at each step and compare with what was emitted."""
    emitted, deltas = "", []
    for i in range(len(ids)):
        text = view(tok.bytes_of(ids[:i + 1], skip_special))
        assert text.startswith(emitted)
        hit = find(text, stops) if stops else None
        if hit:
            start, which = hit
            assert start >= len(emitted) or find is not find_stop
            deltas.append(text[len(emitted):start])
            return {"deltas": deltas, "flush": "", "text": emitted + deltas[-1], "stopped": True, "stop": which, "consumed": i + 1}
        upto = len(text) - hold_len(text, stops)
        assert upto >= len(emitted)
        deltas.append(text[len(emitted):upto])
        emitted = text[:upto]
    full = decode_text(tok.bytes_of(ids, skip_special))
    assert full.startswith(emitted)
    hit = find(full, stops) if stops else None
    if hit:
        return {"deltas": deltas, "flush": full[len(emitted):hit[0]], "text": full[:hit[0]], "stopped": True, "stop": hit[1], "consumed": len(ids)}
    return {"deltas": deltas, "flush": full[len(emitted):], "text": full, "stopped": False, "stop": None, "consumed": len(ids)}


def detok_cases(tok):
    """(name, ids, skip_special, stops)"""
    B = lambda *bs: [tok.byte_id[b] for b in bs]
    spell = lambda s: [tok.byte_id[b] for b in s.encode("utf-8")]   # one token per byte

    def E(s):
        return tok.encode(s, False)

    def C(*chunks):
        """Chosen token boundaries: one token per chunk where the vocabulary has it."""
        ids = []
        for c in chunks:
            i = tok.id_of_bytes(c.encode("utf-8"))
            ids += [i] if i is not None else E(c)
        return ids

    eos, bos = tok.eos, tok.bos
    out = []
    add = lambda name, ids, skip=True, stops=(): out.append((name, ids, skip, list(stops)))
    for name, s in [
        ("ascii", "The quick brown fox, aged 42, jumps!"), ("newlines", "a\n\nb\n\n\n c\t\td  e"), ("leading_space", "  two leading spaces"),
        ("accents", "naïve café Ångström"), ("cjk", "今天天气很好，我们去公园。"), ("cjk_rare", "龘靐齉爩𠀀𠀁 end"), ("kana", "こんにちは、世界！カタカナ"), ("hangul", "안녕하세요 세계"),
        ("emoji", "ok 😀👍🏽 done 🫠"), ("emoji_zwj", "👨\u200d👩\u200d👧\u200d👦 and 🏳\ufe0f\u200d🌈"), ("flags", "🇨🇦🇯🇵🏴\U000E0067\U000E0062\U000E0065\U000E006E\U000E0067\U000E007F"),
        ("arabic", "مرحبا بالعالم"), ("hebrew_points", "בְּרֵאשִׁית"), ("combining", "Z\u0351\u036b\u0343a\u0301"), ("thai_hindi", "ภาษาไทย हिन्दी"),
        ("code", "def f(x):\n    return {'a': [x, \"y\"]}\n"), ("replacement_char", "a\ufffdb \ufffd"), ("noncharacters", "\uffff\ufffe\U0010FFFF"), ("nul", "a\x00b"), ("private_use", "\ue000 \U000F0000")]:
        add("text_" + name, E(s))
    for name, s in [("two_byte", "é"), ("three_byte", "中"), ("four_byte", "😀"), ("mixed", "aé中😀z"), ("zwj", "👩\u200d🚀"), ("fffd", "x\ufffdy"), ("fffd_last", "\ufffd")]:
        add("bytes_" + name, spell(s))
    # incomplete at the end of generation
    add("tail_two_byte", E("caf") + B(0xC3))
    add("tail_three_byte_1", E("x") + B(0xE4))
    add("tail_three_byte_2", E("x") + B(0xE4, 0xB8))
    add("tail_four_byte_1", B(0xF0))
    add("tail_four_byte_2", B(0xF0, 0x9F))
    add("tail_four_byte_3", E("hi ") + B(0xF0, 0x9F, 0x98))
    add("tail_after_complete", spell("中") + B(0xE4, 0xB8))
    add("tail_zwj_incomplete", spell("👩\u200d") + B(0xF0, 0x9F, 0x9A))
    # invalid bytes
    add("lone_continuation_last", E("a") + B(0x80))
    add("lone_continuation_then_text", E("a") + B(0x80) + E("b"))
    add("three_continuations_then_text", B(0x80, 0x81, 0xBF) + E("z"))
    add("three_continuations_last", B(0x80, 0x81, 0xBF))
    add("truncated_two_then_text", B(0xC3) + E("x"))
    add("truncated_three_then_text", B(0xE4, 0xB8) + E("x"))
    add("truncated_four_then_text", B(0xF0, 0x9F, 0x98) + E("x"))
    add("lead_then_lead", B(0xC3, 0xC3, 0xA9))
    add("truncated_then_complete", B(0xE4, 0xB8) + spell("中"))
    add("truncated_then_truncated", B(0xE4, 0xB8, 0xF0, 0x9F))
    add("surrogate_bytes", E("a") + B(0xED, 0xA0, 0x80) + E("b"))
    add("surrogate_pair_bytes", B(0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80) + E("."))
    add("overlong_three", B(0xE0, 0x80, 0x80) + E("x"))
    add("overlong_four", B(0xF0, 0x80, 0x80, 0x80) + E("x"))
    add("above_10ffff", B(0xF4, 0x90, 0x80, 0x80) + E("x"))
    add("extra_continuation", spell("é") + B(0xA9) + E(" ok"))
    add("good_bad_good_bad", spell("é") + B(0x80) + spell("中") + B(0xE4))
    if len(tok.byte_id) == 256:
        add("never_valid_ff", E("a") + B(0xFF) + E("b"))
        add("never_valid_fe_ff_last", B(0xFE, 0xFF))
        add("overlong_two_c0_80", B(0xC0, 0x80) + E("x"))
        add("f5_lead", B(0xF5, 0x80, 0x80, 0x80) + E("x"))
        add("five_byte_form", B(0xF8, 0x88, 0x80, 0x80, 0x80) + E("x"))
    # special tokens
    add("empty", [])
    add("only_eos", [eos])
    add("special_skipped", [bos] + E("hello") + [eos])
    add("special_shown", [bos] + E("hello") + [eos], False)
    add("special_middle_skipped", E("a b") + [eos] + E(" c"))
    add("special_middle_shown", E("a b") + [eos] + E(" c"), False)
    add("special_inside_char_skipped", B(0xE4) + [eos] + B(0xB8, 0xAD))
    add("special_inside_char_shown", B(0xE4) + [eos] + B(0xB8, 0xAD), False)
    # stop strings
    hw = C("Hello", " world", ",", " how", " are", " you", "?")
    add("stop_none_found", hw, True, ["XYZ"])
    add("stop_whole_token", hw, True, [" world"])
    add("stop_begins_inside_token", hw, True, ["world"])
    add("stop_ends_inside_token", hw, True, [", ho"])
    add("stop_spans_tokens", hw, True, ["lo world, h"])
    add("stop_at_start", hw, True, ["Hel"])
    add("stop_first_char", hw, True, ["H"])
    add("stop_at_end", hw, True, ["?"])
    add("stop_last_token_spans", hw, True, ["you?"])
    add("stop_longer_than_text", hw, True, ["Hello world, how are you? And"])
    add("stop_whole_text", hw, True, ["Hello world, how are you?"])
    add("stop_partial_at_end_flushed", C("abc", "ST", "O"), True, ["STOP"])
    add("stop_partial_then_fails", C("abc", "ST", "O", "RE"), True, ["STOP"])
    add("stop_partial_fails_then_matches", C("S", "T", "O", "S", "T", "O", "P", "x"), True, ["STOP"])
    add("stop_double_start", C("S", "S", "T", "O", "P"), True, ["STOP"])
    add("stop_self_overlap_aab", C("x", "a", "a", "a", "b", "y"), True, ["aab"])
    add("stop_self_overlap_abab", C("a", "b", "a", "a", "b", "a", "b", "c"), True, ["abab"])
    add("stop_self_overlap_ababc", C("ab", "ab", "ab", "c", "d"), True, ["ababc"])
    add("stop_self_overlap_aa", C("b", "a", "a", "a"), True, ["aa"])
    add("stop_self_overlap_newlines", C("x", "\n", "\n", "\n", "y"), True, ["\n\n"])
    add("stop_newline_pair_one_token", C("para", "\n\n", "next"), True, ["\n\n"])
    add("stop_single_newline", C("para", "\n\n", "next"), True, ["\n"])
    add("stop_prefix_pair_short_first", C("x", "a", "b", "c"), True, ["ab", "abc"])
    add("stop_prefix_pair_long_first", C("x", "a", "b", "c"), True, ["abc", "ab"])
    add("stop_prefix_pair_one_token", C("x", "abc", "d"), True, ["abc", "ab"])
    add("stop_prefix_pair_only_short", C("x", "a", "b", "d"), True, ["abc", "ab"])
    add("stop_prefix_pair_neither", C("x", "a", "c"), True, ["abc", "ab"])
    add("stop_suffix_pair", C("x", "a", "b", "c", "y"), True, ["bc", "abc"])
    add("stop_inner_pair", C("a", "b", "c", "d", "e", "f"), True, ["abcde", "bcd"])
    add("stop_inner_pair_one_chunk", C("x", "abc", "de", "f"), True, ["abcde", "bcd"])
    add("stop_inner_pair_same_token", C("x", "abcdef"), True, ["abcde", "bcd"])
    add("stop_two_first_wins", hw, True, ["are", "world"])
    add("stop_hold_of_other", C("a", "b", "c", "X"), True, ["abcd", "bc"])
    add("stop_hold_released", C("a", "b", "c", "X", "!"), True, ["abcd", "cXY"])
    add("stop_four", C("User", ":", " hi", "\n", "Assistant", ":"), True, ["\nUser:", "\nAssistant:", "###", "\n\n"])
    add("stop_after_stop_ignored", C("one", " two", " three", " two"), True, [" two"])
    add("stop_case_sensitive", C("stop", " STOP"), True, ["STOP"])
    add("stop_multibyte_split", E("caf") + spell("é") + E(" x"), True, ["é"])
    add("stop_multibyte_three", E("a") + spell("中文") + E("b"), True, ["文"])
    add("stop_multibyte_partial_no_match", E("a") + spell("丮") + E("b"), True, ["中"])   # shares two leading bytes
    add("stop_multibyte_incomplete_end", E("a") + B(0xE4, 0xB8), True, ["中"])
    add("stop_zwj_inside_family", spell("👨\u200d👩\u200d👧") + E("!"), True, ["\u200d"])
    add("stop_emoji_inside_sequence", E("go ") + spell("👩\u200d🚀") + E("!"), True, ["🚀"])
    add("stop_combining_mark", E("e") + spell("\u0301") + E("x"), True, ["\u0301"])
    add("stop_flag_half", spell("🇨🇦🇯🇵"), True, ["🇦"])
    add("stop_mixed_ascii_multibyte", E("x") + spell("é!") + E("y"), True, ["é!"])
    add("stop_after_invalid_bytes", B(0xE4, 0xB8) + C("ST", "OP"), True, ["STOP"])
    add("stop_invalid_inside_stop", C("ST") + B(0x80) + C("OP"), True, ["STOP"])
    add("stop_hold_then_invalid_tail", C("ST") + B(0xE4), True, ["STOP"])
    add("stop_special_text_hidden", E("a") + [eos] + E("b"), True, [tok.tokens[eos]])
    add("stop_special_text_shown", E("a") + [eos] + E("b"), False, [tok.tokens[eos]])
    add("stop_joined_over_special", C("ST") + [eos] + C("OP"), True, ["STOP"])
    add("stop_spaces", C("a", "   ", "b"), True, ["  "])
    add("stop_cjk_sentence", E("今天天气很好。明天"), True, ["。"])
    add("stop_unicode_partial_flush", E("天気"), True, ["気分"])
    # seeded random cases: bytes of a small alphabet which often form broken characters or stop strings
    import random
    rng = random.Random(99)
    usable = [b for b in (0x61, 0x62, 0x20, 0xC3, 0xA9, 0xE4, 0xB8, 0xAD, 0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xBF, 0xEF, 0xBD) if b in tok.byte_id]
    for k in range(24):
        ids = []
        while len(ids) < 14:
            ids += spell(rng.choice("a b é 中 😀 \ufffd".split() + [" "])) if rng.random() < 0.5 else B(rng.choice(usable))
        add("fuzz_bytes_%02d" % k, ids, True, [rng.choice(["ab", "é", "中", "b 中", " a"])] if k % 2 else [])
    for k in range(24):
        ids = C(*[rng.choice(["a", "b", "ab", "ba", "aa", "bb"]) for _ in range(12)])
        stops = ["".join(rng.choice("ab") for _ in range(rng.choice([3, 4, 5, 6, 7]))) for _ in range(rng.choice([1, 2, 3]))]
        add("fuzz_stops_%02d" % k, ids, True, sorted(set(stops)))
    return out


def stage_detok(toks, out):
    for name, tok in toks.items():
        rows = []
        for case, ids, skip, stops in detok_cases(tok):
            r = stream_oracle(tok, ids, stops, skip)
            row = {"name": case, "ids": ids, "skip_special": skip, "stops": stops, **r}
            e = stream_oracle(tok, ids, stops, skip, view=eager_text)
            assert e["text"] == r["text"] or stops
            if e["deltas"] != r["deltas"]:
                row["deltas_eager"] = e["deltas"]
                row["flush_eager"] = e["flush"]
            if stops:
                a = stream_oracle(tok, ids, stops, skip, find=find_stop_earliest_start)
                if (a["text"], a["stop"], a["consumed"]) != (r["text"], r["stop"], r["consumed"]):
                    row["earliest_start"] = {k: a[k] for k in ("text", "stop", "stopped", "consumed")}
            assert "".join(r["deltas"]) + r["flush"] == r["text"]
            rows.append(row)
        write_jsonl(os.path.join(out, name, "detok.jsonl"), rows)
        log("detok", name, len(rows), "cases,", sum(bool(r["stops"]) for r in rows), "with stops,",
            sum("deltas_eager" in r for r in rows), "differ in the eager view,", sum("earliest_start" in r for r in rows), "differ by stop rule")


# ---------------------------------------------------------------------------
# Forward pass
# ---------------------------------------------------------------------------
def build_model(name, g):
    import torch
    w = g.tensors()
    n_head, n_kv = g.get("attention.head_count"), g.get("attention.head_count_kv")
    n_layer, dim = g.get("block_count"), g.get("embedding_length")
    T = lambda a: torch.from_numpy(np.array(a, dtype=np.float32))
    sd = {"model.embed_tokens.weight": T(w["token_embd.weight"])}
    sd["lm_head.weight"] = T(w["output.weight"]) if "output.weight" in w else sd["model.embed_tokens.weight"]
    eps = float(g.get("attention.layer_norm_rms_epsilon"))
    if name == "smollm2":
        from transformers import LlamaConfig, LlamaForCausalLM
        cfg = LlamaConfig(
            vocab_size=len(g.tokens), hidden_size=dim, intermediate_size=g.get("feed_forward_length"), num_hidden_layers=n_layer,
            num_attention_heads=n_head, num_key_value_heads=n_kv, head_dim=dim // n_head, max_position_embeddings=g.get("context_length"),
            rms_norm_eps=eps, hidden_act="silu", tie_word_embeddings=True, attention_bias=False, mlp_bias=False,
            rope_parameters={"rope_type": "default", "rope_theta": float(g.get("rope.freq_base"))},
            bos_token_id=None, eos_token_id=None, pad_token_id=None)
        cfg._attn_implementation = "eager"
        model = LlamaForCausalLM(cfg)

        def unpermute(a, heads):
            # the converter stores each head's rows as (x0, x_half), (x1, x_half+1), ... for interleaved RoPE
            return a.reshape(heads, a.shape[0] // heads // 2, 2, *a.shape[1:]).swapaxes(1, 2).reshape(a.shape)

        norm = lambda a: T(a)
        for i in range(n_layer):
            s, d = "blk.%d." % i, "model.layers.%d." % i
            sd[d + "self_attn.q_proj.weight"] = T(unpermute(w[s + "attn_q.weight"], n_head))
            sd[d + "self_attn.k_proj.weight"] = T(unpermute(w[s + "attn_k.weight"], n_kv))
            sd[d + "input_layernorm.weight"] = norm(w[s + "attn_norm.weight"])
            sd[d + "post_attention_layernorm.weight"] = norm(w[s + "ffn_norm.weight"])
    else:
        from transformers import Gemma3ForCausalLM, Gemma3TextConfig
        cfg = Gemma3TextConfig(
            vocab_size=len(g.tokens), hidden_size=dim, intermediate_size=g.get("feed_forward_length"), num_hidden_layers=n_layer,
            num_attention_heads=n_head, num_key_value_heads=n_kv, head_dim=g.get("attention.key_length"), max_position_embeddings=g.get("context_length"),
            rms_norm_eps=eps, hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True, query_pre_attn_scalar=g.get("attention.key_length"),
            sliding_window=g.get("attention.sliding_window"), sliding_window_pattern=6,
            rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": float(g.get("rope.freq_base"))},
                             "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
            bos_token_id=None, eos_token_id=None, pad_token_id=None)
        cfg._attn_implementation = "eager"
        model = Gemma3ForCausalLM(cfg)

        def norm(a):  # the file holds 1 + weight, the module adds the 1 itself
            r = T(a) - 1.0
            err = (1.0 + r - T(a)).abs().max().item()
            assert err < 5e-7 * float(np.abs(a).max()), err
            return r

        for i in range(n_layer):
            s, d = "blk.%d." % i, "model.layers.%d." % i
            sd[d + "self_attn.q_proj.weight"] = T(w[s + "attn_q.weight"])
            sd[d + "self_attn.k_proj.weight"] = T(w[s + "attn_k.weight"])
            sd[d + "self_attn.q_norm.weight"] = norm(w[s + "attn_q_norm.weight"])
            sd[d + "self_attn.k_norm.weight"] = norm(w[s + "attn_k_norm.weight"])
            sd[d + "input_layernorm.weight"] = norm(w[s + "attn_norm.weight"])
            sd[d + "post_attention_layernorm.weight"] = norm(w[s + "post_attention_norm.weight"])
            sd[d + "pre_feedforward_layernorm.weight"] = norm(w[s + "ffn_norm.weight"])
            sd[d + "post_feedforward_layernorm.weight"] = norm(w[s + "post_ffw_norm.weight"])
    for i in range(n_layer):
        s, d = "blk.%d." % i, "model.layers.%d." % i
        sd[d + "self_attn.v_proj.weight"] = T(w[s + "attn_v.weight"])
        sd[d + "self_attn.o_proj.weight"] = T(w[s + "attn_output.weight"])
        sd[d + "mlp.gate_proj.weight"] = T(w[s + "ffn_gate.weight"])
        sd[d + "mlp.up_proj.weight"] = T(w[s + "ffn_up.weight"])
        sd[d + "mlp.down_proj.weight"] = T(w[s + "ffn_down.weight"])
    sd["model.norm.weight"] = norm(w["output_norm.weight"])
    used = set(sd)
    want = set(model.state_dict())
    assert used == want, (want - used, used - want)
    model.load_state_dict(sd, strict=True)
    model.eval()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    if name == "gemma3":
        assert abs(float(model.model.embed_tokens.embed_scale) - dim ** 0.5) < 1e-5
        assert [t == "full_attention" for t in cfg.layer_types] == [(i + 1) % 6 == 0 for i in range(n_layer)]
    return model


def last_hidden(model, ids):
    """Final-norm output for every position, no cache."""
    import torch
    return model.model(input_ids=torch.tensor([ids]), use_cache=False).last_hidden_state[0]


def greedy(model, ids, n):
    """Greedy continuation with the KV cache; no token ends it."""
    import torch
    out, cache, x = [], None, torch.tensor([ids])
    for _ in range(n):
        r = model(input_ids=x, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = r.past_key_values
        t = int(r.logits[0, -1].argmax())
        out.append(t)
        x = torch.tensor([[t]])
    return out


def nll_chunks(model, hidden, targets, chunk=128):
    import torch
    out = []
    for i in range(0, len(targets), chunk):
        lg = model.lm_head(hidden[i:i + chunk]).float()
        out.append(torch.nn.functional.cross_entropy(lg.double(), torch.tensor(targets[i:i + chunk]), reduction="none"))
    return torch.cat(out).numpy()


def hidden_check(name, model, ids, tok):
    """Residual stream after every layer, and the inside of layer 0, for one short prompt."""
    import torch
    import importlib
    rec, hooks = {}, []
    keep = lambda key: (lambda m, i, o: rec.__setitem__(key, (o[0] if isinstance(o, tuple) else o).detach()[0].clone()))
    hooks.append(model.model.embed_tokens.register_forward_hook(keep("embed")))
    for i, layer in enumerate(model.model.layers):
        hooks.append(layer.register_forward_hook(keep("layer%d" % i)))
    hooks.append(model.model.norm.register_forward_hook(keep("final_norm")))
    detail_layers = (0,) if name == "smollm2" else (0, 5)
    for li in detail_layers:
        layer = model.model.layers[li]
        p = "L%d." % li
        subs = {"attn_norm": layer.input_layernorm, "q_proj": layer.self_attn.q_proj, "k_proj": layer.self_attn.k_proj, "v_proj": layer.self_attn.v_proj,
                "attn_output": layer.self_attn.o_proj, "ffn_gate": layer.mlp.gate_proj, "ffn_up": layer.mlp.up_proj, "ffn_down": layer.mlp.down_proj}
        if name == "smollm2":
            subs["ffn_norm"] = layer.post_attention_layernorm
        else:
            subs.update(q_norm=layer.self_attn.q_norm, k_norm=layer.self_attn.k_norm, post_attention_norm=layer.post_attention_layernorm,
                        ffn_norm=layer.pre_feedforward_layernorm, post_ffw_norm=layer.post_feedforward_layernorm)
        for k, m in subs.items():
            hooks.append(m.register_forward_hook(keep(p + k)))
        hooks.append(layer.self_attn.o_proj.register_forward_pre_hook(lambda m, i, p=p: rec.__setitem__(p + "attn_mix", i[0].detach()[0].clone())))
        hooks.append(layer.mlp.down_proj.register_forward_pre_hook(lambda m, i, p=p: rec.__setitem__(p + "ffn_act", i[0].detach()[0].clone())))
    mod = importlib.import_module(type(model).__module__)
    orig, calls = mod.apply_rotary_pos_emb, []

    def spy(q, k, *a, **kw):
        r = orig(q, k, *a, **kw)
        calls.append((r[0].detach()[0].clone(), r[1].detach()[0].clone()))   # [heads, T, d]
        return r

    mod.apply_rotary_pos_emb = spy
    try:
        h = last_hidden(model, ids)
    finally:
        mod.apply_rotary_pos_emb = orig
        for k in hooks:
            k.remove()
    assert torch.equal(h, rec["final_norm"])
    n_layer = len(model.model.layers)
    assert len(calls) == n_layer
    T = len(ids)

    def stat(t):
        t = t.reshape(t.shape[0], -1)
        return {"l2": f32l(t.norm(dim=1)), "first8": [f32l(r[:8]) for r in t]}

    def gguf_layout(t):  # [heads, T, d] from half-split to interleaved pairs, as the llama GGUF stores q and k
        hds, tt, d = t.shape
        return t.reshape(hds, tt, 2, d // 2).transpose(2, 3).reshape(hds, tt, d)

    res = {"prompt": gi.HIDDEN_PROMPT, "ids": ids, "tokens": [tok.tokens[i] for i in ids], "n_positions": T,
           "embed": stat(rec["embed"]), "layers": [stat(rec["layer%d" % i]) for i in range(n_layer)], "final_norm": stat(rec["final_norm"])}
    detail = {}
    for li in detail_layers:
        p = "L%d." % li
        d = {k[len(p):]: stat(v.transpose(0, 1) if v.dim() == 3 and v.shape[0] != T else v) for k, v in rec.items() if k.startswith(p) and not k.endswith(("q_proj", "k_proj", "q_norm", "k_norm"))}
        q, k = calls[li]
        heads = lambda t: {"l2_per_head": [f32l(x) for x in t.norm(dim=2).T], "first8_head0": [f32l(x[:8]) for x in t[0]]}
        if name == "smollm2":
            hd = model.config.head_dim
            for nm in ("q_proj", "k_proj"):
                t = rec[p + nm].reshape(T, -1, hd).transpose(0, 1)
                d[nm + "_gguf_layout"] = heads(gguf_layout(t))
            d["q_rope_gguf_layout"], d["k_rope_gguf_layout"] = heads(gguf_layout(q)), heads(gguf_layout(k))
        else:
            hd = model.config.head_dim
            for nm in ("q_proj", "k_proj"):
                d[nm] = heads(rec[p + nm].reshape(T, -1, hd).transpose(0, 1))
            d["q_norm"], d["k_norm"] = heads(rec[p + "q_norm"]), heads(rec[p + "k_norm"])
            d["q_rope"], d["k_rope"] = heads(q), heads(k)
        detail["layer%d" % li] = d
    res["detail"] = detail
    stack = torch.stack([rec["embed"]] + [rec["layer%d" % i] for i in range(n_layer)] + [rec["final_norm"]])
    return res, stack.numpy()


def tolerance_study(name, model, prompts, ref, ppl_ids, ppl_targets, ref_nll):
    """How far legitimate implementations move away from the float32 reference."""
    import copy
    import torch
    import torch.nn as nn
    rows = []

    def measure(label, m, note):
        row = {"variant": label, "note": note, "prompts": {}}
        for pname, ids in prompts.items():
            lg = m.lm_head(last_hidden(m, ids)[-1:])[0].double().numpy()
            r = ref[pname].astype(np.float64)
            d = np.abs(lg - r)
            lp, lq = r - np.logaddexp.reduce(r), lg - np.logaddexp.reduce(lg)
            row["prompts"][pname] = {"max_abs": float("%.4g" % d.max()), "mean_abs": float("%.4g" % d.mean()), "rms": float("%.4g" % math.sqrt((d * d).mean())),
                                     "kl": float("%.4g" % max(0.0, (np.exp(lp) * (lp - lq)).sum())), "same_top1": bool(lg.argmax() == r.argmax()),
                                     "top20_overlap": len(set(np.argsort(-lg)[:20]) & set(np.argsort(-r)[:20]))}
        nll = nll_chunks(m, last_hidden(m, ppl_ids), ppl_targets) if label != "float64" else None
        if nll is not None:
            row["nll"] = {"mean": float("%.6f" % nll.mean()), "delta_mean": float("%.3g" % (nll.mean() - ref_nll.mean())), "max_abs_token_delta": float("%.3g" % np.abs(nll - ref_nll).max())}
        rows.append(row)
        log("  tolerance", name, dumps(row))

    class Q8Linear(nn.Module):
        def __init__(self, lin):
            super().__init__()
            self.lin = lin

        def forward(self, x):
            s = x.shape
            b = x.reshape(-1, s[-1] // 32, 32)
            d = b.abs().amax(-1, keepdim=True) / 127.0
            d = d.half().float()   # block scales are stored as float16
            q = torch.where(d > 0, torch.round(b / d.clamp_min(1e-30)).clamp(-127, 127), torch.zeros_like(b))
            return self.lin((q * d).reshape(s))

    def replace(m, fn):
        for mod in list(m.modules()):
            for n, c in list(mod.named_children()):
                if isinstance(c, nn.Linear):
                    setattr(mod, n, fn(c))
        return m

    class Rope64(nn.Module):
        """cos and sin from float64 angles (the reference multiplies position and frequency in float32)."""

        def __init__(self, config):
            super().__init__()
            self.config = config

        def forward(self, x, position_ids, layer_type=None):
            rp = self.config.rope_parameters
            theta = (rp[layer_type] if layer_type else rp)["rope_theta"]
            d = self.config.head_dim
            inv = 1.0 / theta ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
            f = position_ids[..., None].double() * inv
            e = torch.cat((f, f), dim=-1)
            return e.cos().to(x.dtype), e.sin().to(x.dtype)

    measure("float64", copy.deepcopy(model).double(), "same weights and graph in float64, RoPE angles still in float32: the noise floor of the float32 reference")
    r64 = copy.deepcopy(model)
    r64.model.rotary_emb = Rope64(model.config)
    measure("rope_float64_angles", r64, "float32, but RoPE angles, cos and sin computed in float64 before rounding")
    del r64
    q8 = replace(copy.deepcopy(model), Q8Linear)
    measure("int8_activations", q8, "inputs of every matrix product, the output head included, rounded to int8 in blocks of 32 with a float16 scale; float32 accumulation")
    del q8
    h = copy.deepcopy(model)
    for p in h.parameters():
        p.data = p.data.half().float()
    measure("float16_weights", h, "dequantised weights rounded to float16, float32 arithmetic")
    del h

    class KVRound(nn.Module):
        def __init__(self, lin):
            super().__init__()
            self.lin = lin

        def forward(self, x):
            return self.lin(x).half().float()

    kv = copy.deepcopy(model)
    for layer in kv.model.layers:
        a = layer.self_attn
        a.v_proj = KVRound(a.v_proj)
        if name == "gemma3":
            a.k_norm = KVRound(a.k_norm)
        else:
            a.k_proj = KVRound(a.k_proj)
    measure("float16_kv", kv, "keys (before RoPE) and values rounded to float16, float32 elsewhere")
    del kv
    measure("bfloat16", copy.deepcopy(model).bfloat16(), "weights and activations in bfloat16")
    return rows


def stage_forward(models, toks, out):
    import torch
    torch.set_num_threads(2)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    for name, g in models.items():
        tok = toks[name]
        d = os.path.join(out, name)
        log("forward", name, "loading")
        model = build_model(name, g)
        extra = gi.PROMPTS_SMOLLM2 if name == "smollm2" else gi.PROMPTS_GEMMA3
        rows, ref, prompt_ids = [], {}, {}
        for pname, text, ps in gi.PROMPTS + extra:
            ids = ([tok.bos] if tok.add_bos else []) + tok.encode(text, ps)
            gen = greedy(model, ids, N_GREEDY)
            # one pass without the cache over prompt + continuation: logits of every step
            h = last_hidden(model, ids + gen[:-1])[len(ids) - 1:]
            lg = model.lm_head(h).float()
            top2 = lg.topk(2, dim=1)
            margins = (top2.values[:, 0] - top2.values[:, 1]).numpy()
            same = (top2.indices[:, 0] == torch.tensor(gen)).numpy()
            assert all(same[i] or margins[i] < 1e-3 for i in range(N_GREEDY)), (pname, same.tolist(), margins.tolist())
            lp = torch.log_softmax(lg.double(), 1)[torch.arange(N_GREEDY), torch.tensor(gen)].numpy()
            last = model.lm_head(last_hidden(model, ids)[-1:])[0].float()
            top = last.topk(N_TOP)
            ref[pname] = last.numpy().copy()
            prompt_ids[pname] = ids
            ended = [i for i, t in enumerate(gen) if t == tok.eos]
            row = {"name": pname, "text": text, "parse_special": ps, "add_bos": tok.add_bos, "n_ids": len(ids), "ids": ids,
                   "top_ids": top.indices.tolist(), "top_logits": f32l(top.values.numpy()),
                   "logits_stats": {"min": f32(last.min()), "max": f32(last.max()), "mean": float("%.8g" % last.double().mean()), "l2": float("%.8g" % last.double().norm()), "logsumexp": float("%.10g" % torch.logsumexp(last.double(), 0))},
                   "greedy_ids": gen, "greedy_margins": f32l(margins), "greedy_logprobs": [float("%.7g" % x) for x in lp], "greedy_first_eos": ended[0] if ended else None,
                   "greedy_text": decode_text(tok.bytes_of(gen)), "greedy_text_skip_special": decode_text(tok.bytes_of(gen, True))}
            if pname in gi.FULL_LOGITS:
                fn = "logits_%s.f32" % pname
                write_f32(os.path.join(d, fn), ref[pname])
                row["logits_file"] = fn
            rows.append(row)
            log("  %-7s %4d ids, min margin %.4f, max |cached-uncached| first step %.2g: %r" % (pname, len(ids), margins.min(), float((lg[0] - last).abs().max()), row["greedy_text"]))
        write_jsonl(os.path.join(d, "forward.jsonl"), rows)

        res, stack = hidden_check(name, model, prompt_ids[gi.HIDDEN_PROMPT], tok)
        fn = "hidden_%s.f32" % gi.HIDDEN_PROMPT
        res["file"] = fn
        res["file_shape"] = list(stack.shape)
        write_f32(os.path.join(d, fn), stack)
        write_json(os.path.join(d, "hidden.json"), res)

        ids = tok.encode(gi.PPL_TEXT, False)
        full = ([tok.bos] if tok.add_bos else []) + ids
        targets = full[1:]
        nll = nll_chunks(model, last_hidden(model, full[:-1]), targets)
        write_f32(os.path.join(d, "ppl_nll.f32"), nll)
        write_json(os.path.join(d, "perplexity.json"), {
            "text": gi.PPL_TEXT, "add_bos": tok.add_bos, "ids": full, "n_ids": len(full), "n_scored": len(targets),
            "mean_nll": float("%.9f" % nll.mean()), "perplexity": float("%.6f" % math.exp(nll.mean())), "nll_file": "ppl_nll.f32"})
        log("  perplexity", name, len(full), "ids, mean nll %.6f, ppl %.4f" % (nll.mean(), math.exp(nll.mean())))

        del model


def stage_tolerance(models, toks, out):
    import torch
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    for name, g in models.items():
        tok = toks[name]
        model = build_model(name, g)
        enc = lambda text, ps: ([tok.bos] if tok.add_bos else []) + tok.encode(text, ps)
        prompts = {n: enc(t, ps) for n, t, ps in gi.PROMPTS if n in ("short", "long", "cjk")}
        ref = {n: model.lm_head(last_hidden(model, ids)[-1:])[0].float().numpy() for n, ids in prompts.items()}
        for n in gi.FULL_LOGITS:
            stored = np.fromfile(os.path.join(out, name, "logits_%s.f32" % n), dtype="<f4")
            assert np.abs(stored - ref[n]).max() < 1e-4
        full = enc(gi.PPL_TEXT, False)
        nll = nll_chunks(model, last_hidden(model, full[:-1]), full[1:])
        rows = tolerance_study(name, model, prompts, ref, full[:-1], full[1:], nll)
        write_json(os.path.join(out, name, "tolerance_study.json"), rows, indent=1)
        del model


# ---------------------------------------------------------------------------
# Chat templates and Jinja snippets
# ---------------------------------------------------------------------------
def drop_none(messages):
    return [{k: v for k, v in m.items() if v is not None} if isinstance(m, dict) else m for m in messages]


def stage_templates(models, toks, out):
    td = os.path.join(out, "templates")
    os.makedirs(td, exist_ok=True)
    smol = models["smollm2"].kv["tokenizer.chat_template"]
    assert "tokenizer.chat_template" not in models["gemma3"].kv
    sources = {"smollm2": (smol, "smollm2")}
    for k, v in jc.TEMPLATES.items():
        sources[k] = (v, "gemma3" if k == "gemma_turns" else None)
    rows = []
    for tname, (src, model) in sources.items():
        with open(os.path.join(td, tname + ".jinja"), "w", encoding="utf-8", newline="\n") as f:
            f.write(src)
        tok = toks.get(model)
        special = {"bos_token": tok.tokens[tok.bos], "eos_token": tok.tokens[tok.eos]} if tok else {"bos_token": "<s>", "eos_token": "</s>"}
        cases = [(n, dict(messages=m), agp) for n, m in jc.BASIC_CHATS for agp in ((True, False) if n in ("user_only", "multi_turn_system", "ends_with_assistant") else (True,))]
        if tname not in ("smollm2", "gemma_turns"):
            cases += [(n, v, True) for n, v in jc.TOOL_CHATS]
        for n, v, agp in cases:
            variables = {"messages": None, "tools": None, "documents": None, "add_generation_prompt": agp, **special, **v}
            row = {"template": tname, "name": n, "variables": variables, **render(src, variables)}
            norm = {**variables, "messages": drop_none(variables["messages"])}
            r2 = render(src, norm)
            if r2 != {k: row[k] for k in r2 if k in row}:
                row["none_keys_dropped"] = r2
            if "expected" in row and tok:
                row["ids"] = tok.encode(row["expected"], True)
            rows.append(row)
    write_jsonl(os.path.join(out, "chat_templates.jsonl"), rows)
    by = {}
    for r in rows:
        a = by.setdefault(r["template"], [0, 0])
        a["error" in r] += 1
    log("templates", {k: "%d ok, %d errors" % tuple(v) for k, v in by.items()})
    snips = []
    for n, (group, src, ctx) in enumerate(jc.SNIPPETS):
        snips.append({"n": n, "group": group, "template": src, "context": ctx, **render(src, ctx)})
    write_jsonl(os.path.join(out, "jinja_snippets.jsonl"), snips)
    log("snippets", len(snips), sum("error" in s for s in snips), "errors")


def stage_corners(out):
    path = os.path.join(out, "jinja_corners.jsonl")
    rows = []
    with open(path, encoding="ascii") as f:
        for line in f:
            old = json.loads(line)
            row = {k: old[k] for k in ("n", "group", "template", "context")}
            got = render(row["template"], row["context"])
            got.pop("error_class", None)
            row.update(got)
            if "refused" in old:  # nobody compares these; an address would change with every run
                row["refused"] = old["refused"]
                row["expected"] = re.sub(r"0x[0-9a-f]+", "0x0", row["expected"])
            rows.append(row)
    write_jsonl(path, rows)
    log("corners", len(rows), sum("error" in r for r in rows), "errors")


# ---------------------------------------------------------------------------
# Sampling
# ---------------------------------------------------------------------------
def softmax64(x):
    m = x.max()
    e = np.exp(x - m)
    return e / e.sum()


def sample_dist(logits, p, prompt_ids, output_ids, min_p_first=False):
    """float64: penalties -> temperature -> top_k -> top_p -> min_p.  Returns (probs, margins)."""
    x = np.asarray(logits, dtype=np.float32).astype(np.float64)
    V = len(x)
    margins = {}
    rep, pres, freq = p.get("repetition_penalty", 1.0), p.get("presence_penalty", 0.0), p.get("frequency_penalty", 0.0)
    seen = sorted(set(prompt_ids) | set(output_ids))
    if rep != 1.0 and seen:
        s = x[seen]
        x[seen] = np.where(s > 0, s / rep, s * rep)
    if output_ids:
        ids, cnt = np.unique(output_ids, return_counts=True)
        x[ids] -= freq * cnt
        x[ids] -= pres
    temp = p.get("temperature", 1.0)
    if temp == 0.0:
        o = np.zeros(V)
        o[int(x.argmax())] = 1.0
        s = np.sort(x)
        margins["greedy_gap"] = float(s[-1] - s[-2]) if V > 1 else None
        return o, margins
    x = x / temp

    def do_min_p(x):
        mp = p.get("min_p", 0.0)
        if mp > 0:
            pr = softmax64(x)
            r = pr / pr.max()
            alive = r[np.isfinite(x)]
            margins["min_p_gap"] = float(np.abs(alive - mp).min())
            x = np.where(r >= mp, x, -np.inf)
        return x

    if min_p_first:
        x = do_min_p(x)
    k = p.get("top_k", 0)
    if 0 < k < V:
        s = np.sort(x)[::-1]
        if np.isfinite(s[k]):
            margins["top_k_gap"] = float(s[k - 1] - s[k])
        x = np.where(x >= s[k - 1], x, -np.inf)
    tp = p.get("top_p", 1.0)
    if tp < 1.0:
        pr = softmax64(x)
        order = np.argsort(-pr, kind="stable")
        larger = np.concatenate([[0.0], np.cumsum(pr[order])[:-1]])     # probability of all strictly earlier entries
        keep = larger < tp
        keep[0] = True
        margins["top_p_gap"] = float(np.abs(larger - tp).min())
        x[order[~keep]] = -np.inf
    if not min_p_first:
        x = do_min_p(x)
    return softmax64(x), margins


def stage_sampling(toks, out):
    V = 49152
    os.makedirs(os.path.join(out, "sampling"), exist_ok=True)
    rng = np.random.default_rng(1234)
    a = (rng.standard_normal(V) * 2.5).astype(np.float32)
    b = (rng.standard_normal(V) * 1.0 - 4.0).astype(np.float32)
    peak = rng.choice(V, 40, replace=False)
    b[peak] = (6.0 + 6.0 * rng.random(40)).astype(np.float32)
    write_f32(os.path.join(out, "sampling", "sampling_rand_a.f32"), a)
    write_f32(os.path.join(out, "sampling", "sampling_rand_b.f32"), b)
    model_file = "smollm2/logits_short.f32"
    c = np.fromfile(os.path.join(out, model_file), dtype="<f4")
    assert len(c) == V
    tiny8 = np.array([2.0, 1.0, 0.5, 0.25, -0.5, -1.0, -2.0, -4.0], dtype=np.float32)
    tiny5 = np.array([-3.0, 0.1, 2.5, 2.4, -0.7], dtype=np.float32)
    flat16 = np.zeros(16, dtype=np.float32)
    ties = np.array([1.0, 3.0, 1.0, 3.0, 2.0, 1.0, 0.0, 3.0], dtype=np.float32)
    huge = np.array([10000.0, 9999.0, -10000.0, 0.0, 9990.0], dtype=np.float32)
    vectors = {"tiny8": (tiny8, None), "tiny5": (tiny5, None), "flat16": (flat16, None), "ties8": (ties, None), "huge5": (huge, None), "one": (np.array([0.3], dtype=np.float32), None),
               "rand_a": (a, "sampling_rand_a.f32"), "rand_b": (b, "sampling_rand_b.f32"), "model": (c, model_file)}
    small = [
        {}, {"temperature": 0.0}, {"temperature": 0.5}, {"temperature": 2.0}, {"temperature": 0.01}, {"top_k": 1}, {"top_k": 3}, {"top_k": 100}, {"top_k": -1},
        {"top_p": 0.9}, {"top_p": 0.5}, {"top_p": 0.01}, {"top_p": 1.0}, {"min_p": 0.2}, {"min_p": 0.9}, {"min_p": 0.001},
        {"temperature": 0.7, "top_k": 4, "top_p": 0.85}, {"temperature": 1.5, "top_k": 6, "top_p": 0.95, "min_p": 0.05},
        {"repetition_penalty": 1.3}, {"repetition_penalty": 0.8}, {"presence_penalty": 0.6}, {"frequency_penalty": 0.4}, {"presence_penalty": -0.5, "frequency_penalty": -0.25},
        {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": 0.3, "temperature": 0.8, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
        {"temperature": 0.0, "repetition_penalty": 1.5, "frequency_penalty": 2.0}]
    big = [
        {"temperature": 0.0}, {}, {"temperature": 0.7}, {"temperature": 1.7}, {"top_k": 1}, {"top_k": 40}, {"top_k": 200}, {"top_p": 0.1}, {"top_p": 0.5, "temperature": 0.6}, {"top_p": 0.95, "temperature": 0.3},
        {"min_p": 0.05}, {"min_p": 0.3, "temperature": 1.5}, {"temperature": 0.8, "top_k": 50, "top_p": 0.9}, {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "min_p": 0.1},
        {"temperature": 1.2, "top_k": 100, "top_p": 0.7, "min_p": 0.02},
        {"repetition_penalty": 1.1}, {"repetition_penalty": 1.8, "top_k": 50}, {"presence_penalty": 1.5, "top_k": 50}, {"frequency_penalty": 1.0, "top_k": 50}, {"presence_penalty": -2.0, "frequency_penalty": -2.0, "top_k": 30},
        {"repetition_penalty": 1.15, "presence_penalty": 0.4, "frequency_penalty": 0.7, "temperature": 0.9, "top_k": 60, "top_p": 0.92, "min_p": 0.03},
        {"temperature": 0.0, "presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 1.9}]
    rows = []
    for vname, (x, fn) in vectors.items():
        order = np.argsort(-x.astype(np.float64), kind="stable")
        n = len(x)
        if n > 1000:
            prompt = [int(order[i]) for i in (0, 3, 3, 7, 20)] + [5, 9, 49151]
            output = [int(order[i]) for i in (1, 1, 1, 2, 7, 30)] + [11, 5]
            plist = big
        else:
            prompt = [0, 2 % n, 2 % n]
            output = [1 % n, 1 % n, 2 % n, 4 % n]
            plist = small
        for p in plist:
            pen = any(k.endswith("penalty") for k in p)
            pi, oi = (prompt, output) if pen else ([], [])
            pr, mg = sample_dist(x, p, pi, oi)
            keep = np.nonzero(pr > 0)[0]
            keep = keep[np.argsort(-pr[keep], kind="stable")]
            shown = keep if len(keep) <= 256 else keep[:64]
            row = {"n": len(rows), "logits": vname, "vocab": n, **({"logits_file": fn} if fn else {"logits_inline": f32l(x)}), "params": p, "prompt_ids": pi, "output_ids": oi,
                   "n_kept": int(len(keep)), "listed": int(len(shown)), "probs": [[int(i), float(pr[i])] for i in shown],
                   "tail_mass": float(pr.sum() - pr[shown].sum()) if len(shown) < len(keep) else 0.0,
                   "entropy": float(-(pr[keep] * np.log(pr[keep])).sum()), "margins": mg}
            if vname in ("ties8", "flat16") and any(mg.get(k) is not None and mg[k] < 1e-12 for k in ("top_k_gap", "top_p_gap", "greedy_gap")):
                row["tie"] = True
            elif vname in ("ties8", "flat16") and "top_p" in p and len(keep) < n:
                row["tie"] = True
            if "min_p" in p and p.get("top_p", 1.0) < 1.0:
                alt, _ = sample_dist(x, p, pi, oi, min_p_first=True)
                if ((alt > 0) != (pr > 0)).any():
                    row["order_sensitive"] = True
                    ka = np.nonzero(alt > 0)[0]
                    ka = ka[np.argsort(-alt[ka], kind="stable")]
                    row["min_p_first_probs"] = [[int(i), float(alt[i])] for i in ka[:256]]
                else:
                    assert np.allclose(alt, pr, rtol=1e-12, atol=0)
            rows.append(row)
    write_jsonl(os.path.join(out, "sampling", "sampling.jsonl"), rows)
    bad = [(r["n"], r["logits"], r["params"], r["margins"]) for r in rows if not r.get("tie") and any(v is not None and v < 1e-5 for v in r["margins"].values())]
    log("sampling", len(rows), "cases,", sum(bool(r.get("tie")) for r in rows), "with ties,", sum(bool(r.get("order_sensitive")) for r in rows), "order sensitive; narrow margins:", bad)


# ---------------------------------------------------------------------------
def stage_manifest(models, out):
    import importlib.metadata as im
    files = []
    for root, dirs, names in os.walk(out):
        dirs[:] = sorted(x for x in dirs if not x.startswith((".", "__")))
        for n in sorted(names):
            p = os.path.join(root, n)
            rel = os.path.relpath(p, out)
            if not n.endswith((".json", ".jsonl", ".f32", ".jinja")) or rel in ("MANIFEST.json", "MODELS.json"):
                continue
            files.append({"file": rel, "bytes": os.path.getsize(p), "sha256": sha256_file(p)})
    vers = {}
    for pkg in ("torch", "transformers", "tokenizers", "sentencepiece", "gguf", "numpy", "jinja2"):
        try:
            vers[pkg] = im.version(pkg)
        except im.PackageNotFoundError:
            pass
    man = {"python": platform.python_version(), "packages": vers,
           "models": {n: {"bytes": os.path.getsize(g.path), "sha256": sha256_file(g.path)} for n, g in models.items()}, "files": files}
    write_json(os.path.join(out, "MANIFEST.json"), man, indent=1)
    log("manifest", len(files), "files,", sum(f["bytes"] for f in files), "bytes")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--smollm2", required=True, help="SmolLM2-135M-Instruct Q4_1 GGUF")
    ap.add_argument("--gemma3", help="Gemma 3 270M Q4_K_M GGUF")
    ap.add_argument("--out", default=HERE)
    ap.add_argument("--only", default="", help="comma-separated stages")
    args = ap.parse_args()
    stages = [s for s in args.only.split(",") if s] or (
        ["meta", "tokenizer", "detok"] + (["templates"] if args.gemma3 else []) + ["corners", "forward", "tolerance", "sampling", "manifest"])
    if "templates" in stages and not args.gemma3:
        ap.error("the stage templates needs --gemma3")
    models = {"smollm2": Gguf(args.smollm2)}
    assert models["smollm2"].arch == "llama"
    if args.gemma3:
        models["gemma3"] = Gguf(args.gemma3)
        assert models["gemma3"].arch == "gemma3"
    for n in models:
        os.makedirs(os.path.join(args.out, n), exist_ok=True)
    toks = {}
    if set(stages) - {"meta", "corners", "sampling", "manifest"}:
        toks = {n: make_tokenizer(n, g) for n, g in models.items()}
    for s in stages:
        if s == "meta":
            stage_meta(models, args.out)
        elif s == "tokenizer":
            stage_tokenizer(models, toks, args.out)
        elif s == "detok":
            stage_detok(toks, args.out)
        elif s == "templates":
            stage_templates(models, toks, args.out)
        elif s == "corners":
            stage_corners(args.out)
        elif s == "forward":
            stage_forward(models, toks, args.out)
        elif s == "tolerance":
            stage_tolerance(models, toks, args.out)
        elif s == "sampling":
            stage_sampling(toks, args.out)
        elif s == "manifest":
            stage_manifest(models, args.out)
        else:
            ap.error("unknown stage " + s)


if __name__ == "__main__":
    main()
