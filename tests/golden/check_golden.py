#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reload the golden files and check that they agree with each other.

    python check_golden.py [DIR] [--manifest | --write-manifest | --model SMOLLM2.gguf]

Needs numpy only; with --manifest, which checks sizes and sums and nothing else, not even that.
--write-manifest lists the files anew and keeps what is said of packages and models.
With --model (and the gguf package) it also checks the token bytes, the dequantised samples and
the model's hash.  Prints one line per check group and 'N passed, 0 failed' at the end.
"""
import argparse
import base64
import hashlib
import json
import math
import os
import sys

passed = failed = 0


def ok(cond, what):
    global passed, failed
    if cond:
        passed += 1
    else:
        failed += 1
        print("FAILED:", what)


def jsonl(path):
    with open(path, encoding="ascii") as f:
        return [json.loads(line) for line in f]


def sha256(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def data_files(top):
    out = []
    for root, dirs, names in os.walk(top):
        dirs[:] = sorted(d for d in dirs if not d.startswith((".", "__")))
        out += [os.path.relpath(os.path.join(root, n), top) for n in sorted(names) if n.endswith((".json", ".jsonl", ".f32", ".jinja", ".gguf"))]
    return [f for f in out if f not in ("MANIFEST.json", "MODELS.json")]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("dir", nargs="?", default=os.path.dirname(os.path.abspath(__file__)))
    ap.add_argument("--manifest", action="store_true")
    ap.add_argument("--write-manifest", action="store_true")
    ap.add_argument("--model")
    a = ap.parse_args()
    P = lambda *x: os.path.join(a.dir, *x)

    man = json.load(open(P("MANIFEST.json")))
    found = data_files(a.dir)
    if a.write_manifest:
        man["files"] = [{"file": f, "bytes": os.path.getsize(P(f)), "sha256": sha256(P(f))} for f in found]
        with open(P("MANIFEST.json"), "w") as f:
            json.dump(man, f, indent=1)
            f.write("\n")
    ok(found == [f["file"] for f in man["files"]], "manifest lists the files that are there")
    total = 0
    for f in man["files"]:
        total += os.path.getsize(P(f["file"]))
        ok(sha256(P(f["file"])) == f["sha256"], "manifest " + f["file"])
    ok(total < 12_000_000, "total size %d" % total)
    print("manifest:", len(man["files"]), "files,", total, "bytes")
    if a.manifest or a.write_manifest:
        print("%d passed, %d failed" % (passed, failed))
        return 1 if failed else 0
    import numpy as np

    vocab = {"smollm2": 49152}
    for m, V in vocab.items():
        rows = jsonl(P(m, "forward.jsonl"))
        ok(len(rows) >= 8, m + " prompts")
        for r in rows:
            n = m + " forward " + r["name"]
            ok(len(r["ids"]) == r["n_ids"] and max(r["ids"] + r["greedy_ids"]) < V, n + " ids")
            ok(len(r["greedy_ids"]) == len(r["greedy_margins"]) == len(r["greedy_logprobs"]) == 48, n + " greedy length")
            ok(all(x >= 0 for x in r["greedy_margins"]), n + " margins")
            ok(r["top_logits"] == sorted(r["top_logits"], reverse=True) and len(set(r["top_ids"])) == 20, n + " top")
            ok(r["greedy_ids"][0] == r["top_ids"][0] or r["greedy_margins"][0] < 1e-3, n + " first token")
            ok(abs(r["greedy_margins"][0] - (r["top_logits"][0] - r["top_logits"][1])) < 1e-3, n + " first margin")
            ok(abs(r["greedy_logprobs"][0] - (r["top_logits"][0] - r["logits_stats"]["logsumexp"])) < 1e-3, n + " first logprob")
            if "logits_file" in r:
                lg = np.fromfile(P(m, r["logits_file"]), dtype="<f4")
                ok(len(lg) == V and np.isfinite(lg).all(), n + " logits file")
                ok(np.argsort(-lg, kind="stable")[:20].tolist() == r["top_ids"], n + " top ids against file")
                ok(np.array_equal(lg[r["top_ids"]], np.array(r["top_logits"], dtype=np.float32)), n + " top values against file")
        print(m, "forward:", [(r["name"], r["n_ids"]) for r in rows])
        st = np.fromfile(P(m, "hidden_short.f32"), dtype="<f4")
        short = next(r for r in rows if r["name"] == "short")
        ok(len(st) == (1 + 30 + 1) * short["n_ids"] * 576 and np.isfinite(st).all(), m + " hidden shape")
        p = json.load(open(P(m, "perplexity.json")))
        nll = np.fromfile(P(m, p["nll_file"]), dtype="<f4")
        ok(len(nll) == p["n_scored"] == p["n_ids"] - 1, m + " nll length")
        ok(abs(nll.astype(np.float64).mean() - p["mean_nll"]) < 1e-5 and abs(math.exp(p["mean_nll"]) - p["perplexity"]) < 1e-3, m + " nll mean")
        print(m, "perplexity: %d scored, mean nll %.6f, ppl %.4f" % (p["n_scored"], p["mean_nll"], p["perplexity"]))

        toks = jsonl(P(m, "tokenizer.jsonl"))
        ok(len(toks) >= 300 and len({t["text"] for t in toks}) == len(toks), m + " tokenizer strings")
        ok(all(0 <= i < V for t in toks for i in t["ids"] + t.get("ids_parse_special", [])), m + " token ids in range")
        dec = jsonl(P(m, "decode.jsonl"))
        for d in dec:
            b = base64.b64decode(d["bytes_b64"])
            ok(b.decode("utf-8", "replace") == d["text"], m + " decode text")
        det = jsonl(P(m, "detok.jsonl"))
        ok(len(det) >= 60, m + " detok cases")
        for d in det:
            ok("".join(d["deltas"]) + d["flush"] == d["text"] and len(d["deltas"]) == d["consumed"], m + " detok " + d["name"])
            ok(not d["stopped"] or d["stop"] in d["stops"], m + " detok stop " + d["name"])
            ok(d["stopped"] or d["consumed"] == len(d["ids"]), m + " detok consumed " + d["name"])
            ok(not any(s in d["text"] for s in d["stops"]), m + " stop text leaked " + d["name"])
        print(m, "tokenizer: %d strings, decode: %d, detok: %d" % (len(toks), len(dec), len(det)))

        if a.model:
            from gguf import GGUFReader, quants
            path = a.model
            ok(sha256(path) == man["models"][m]["sha256"], m + " model hash")
            r = GGUFReader(path)
            meta = json.load(open(P(m, "gguf_meta.json")))
            by = {t.name: t for t in r.tensors}
            ok(set(by) == {t["name"] for t in meta["tensors"]}, m + " tensor names")
            for t in meta["tensors"][:: 9]:
                x = quants.dequantize(by[t["name"]].data, by[t["name"]].tensor_type).ravel()
                ok(np.array_equal(x[:8].astype(np.float32), np.array(t["first"], dtype=np.float32)), m + " tensor " + t["name"])
            tk = r.fields["tokenizer.ggml.tokens"].contents()
            ty = r.fields["tokenizer.ggml.token_type"].contents()
            bs = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
            u = {chr(b): b for b in bs}
            k = 0
            for b in range(256):
                if b not in bs:
                    u[chr(256 + k)] = b
                    k += 1
            tb = lambda i: tk[i].encode() if ty[i] == 3 else bytes(u[c] for c in tk[i])
            for t in toks:
                got = b"".join(map(tb, t["ids"]))
                ok((got == t["text"].encode()) == t.get("roundtrip", True), m + " roundtrip %d" % t["n"])
                if "ids_parse_special" in t:
                    ok(b"".join(map(tb, t["ids_parse_special"])) == t["text"].encode(), m + " special roundtrip %d" % t["n"])
            for d in dec:
                ok(b"".join(map(tb, d["ids"])) == base64.b64decode(d["bytes_b64"]), m + " decode bytes")
            for q in rows:
                ok(b"".join(map(tb, q["ids"][1 if q["add_bos"] else 0:])) == q["text"].encode(), m + " prompt roundtrip " + q["name"])
            ok(b"".join(map(tb, p["ids"][1 if p["add_bos"] else 0:])) == p["text"].encode(), m + " perplexity text roundtrip")

    ct = jsonl(P("chat_templates.jsonl"))
    for t in ct:
        ok(("expected" in t) != ("error" in t), "template " + t["name"])
        ok(os.path.exists(P("templates", t["template"] + ".jinja")), "template file")
    sn = jsonl(P("jinja_snippets.jsonl")) + jsonl(P("jinja_corners.jsonl"))
    ok(len(sn) >= 60, "snippets")
    for s in sn:
        ok(("expected" in s) != ("error" in s), "snippet %d" % s["n"])
        ok("refused" in s or " at 0x" not in s.get("expected", ""), "snippet %d has an address" % s["n"])
    print("templates:", len(ct), "renderings; snippets:", len(sn))

    sp = jsonl(P("sampling", "sampling.jsonl"))
    for r in sp:
        x = np.array(r["logits_inline"], dtype=np.float32) if "logits_inline" in r else np.fromfile(P("sampling" if r["logits_file"].startswith("sampling_") else "", r["logits_file"]), dtype="<f4")
        ok(len(x) == r["vocab"], "sampling vocab")
        pr = [q for _, q in r["probs"]]
        ok(abs(sum(pr) + r["tail_mass"] - 1) < 1e-9, "sampling sum %d" % r["n"])
        ok(pr == sorted(pr, reverse=True) and len(pr) == r["listed"] <= r["n_kept"], "sampling order %d" % r["n"])
        p = r["params"]
        if set(p) <= {"temperature"} and p.get("temperature", 1) > 0:
            y = x.astype(np.float64) / p.get("temperature", 1)
            e = np.exp(y - y.max())
            e /= e.sum()
            ok(np.allclose([e[i] for i, _ in r["probs"]], pr, rtol=1e-12), "sampling softmax %d" % r["n"])
        if p.get("temperature") == 0:
            ok(r["n_kept"] == 1, "sampling greedy %d" % r["n"])
        if 0 < p.get("top_k", 0) < r["vocab"] and not r.get("tie"):
            ok(r["n_kept"] <= p["top_k"], "sampling top_k %d" % r["n"])
    print("sampling:", len(sp), "cases")
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
