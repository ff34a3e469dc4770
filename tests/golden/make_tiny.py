#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make small random models of each architecture, and what another implementation computes with them.

    python make_tiny.py [--out tiny]

Writes NAME.gguf, NAME.f32 and expected.jsonl.  Weights are drawn with a fixed seed, stored in the
types of TYPES and read back, so that both sides hold the same numbers; the oracle is transformers in
float32 (eager attention, no cache).  Needs torch, transformers, gguf and numpy.  README.md has the
formats.  The files come out byte for byte the same, the recorded floats but for their last bits."""
import argparse
import json
import math
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as T

VOCAB, EMBD, FF, HEADS = 256, 64, 96, 4
N_GREEDY = 16
F32, F16, BF16, Q8_0, Q4_0 = T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0

LONG = [1.0 + 0.35 * i for i in range(8)]
SHORT = [1.0 + 0.05 * i for i in range(8)]


def rope(kind, **kw):
    return {"rope_type": kind, "rope_theta": 10000.0, **kw}


# name -> architecture, class, configuration, keys of the file beside the usual ones, and more:
# kv: heads of K and V; head: elements of one; types: of the matrices in turn; tied; ctx; runs: how
# many tokens of the prompt go in, and the context that is served then.
MODELS = {
    "llama_linear": dict(
        arch="llama", kv=2, types=[F16, Q8_0, F32, Q8_0], tied=True, ctx=256, runs=[(70, 256)],
        config=dict(rope_parameters=rope("linear", factor=4.0)),
        keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "llama_yarn": dict(
        arch="llama", kv=4, head=32, types=[Q8_0, Q8_0, BF16], tied=False, ctx=4096, runs=[(100, 256)],
        config=dict(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=1024, beta_fast=16.0, beta_slow=2.0)),
        keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 1024,
              "rope.scaling.yarn_beta_fast": 16.0, "rope.scaling.yarn_beta_slow": 2.0}),
    "llama_yarn_plain": dict(  # the values that nobody says
        arch="llama", kv=2, head=32, types=[F16, Q8_0], tied=True, ctx=4096, runs=[(100, 256)],
        config=dict(rope_parameters=rope("yarn", factor=4.0, original_max_position_embeddings=1024)),
        keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 1024}),
    "llama3": dict(
        arch="llama", kv=2, types=[Q8_0, F16, BF16], tied=True, ctx=256, runs=[(100, 256)], biases="qkvo",
        config=dict(attention_bias=True,
                    rope_parameters=rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
        keys={}),
    "llama_longrope": dict(
        arch="llama", kv=1, types=[Q8_0], tied=True, ctx=256, runs=[(40, 64), (90, 256)],
        config=dict(rope_parameters=rope("longrope", long_factor=LONG, short_factor=SHORT, factor=4.0, original_max_position_embeddings=64)),
        keys={"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 64,
              "rope.scaling.attn_factor": math.sqrt(1 + math.log(4.0) / math.log(64))}),
    "qwen2": dict(
        arch="qwen2", kv=2, types=[F16, Q8_0], tied=True, ctx=256, runs=[(70, 256)], biases="qkv", config=dict(rope_parameters=rope("default")), keys={}),
    "qwen3": dict(
        arch="qwen3", kv=2, head=32, types=[BF16, Q8_0, Q4_0], tied=False, ctx=256, runs=[(70, 256)], norms=True,
        config=dict(rope_parameters=rope("default")), keys={}),
    "gemma3": dict(
        arch="gemma3", kv=1, head=32, layers=6, types=[Q8_0, Q4_0], tied=True, ctx=256, runs=[(100, 256)], norms=True, post=True,
        config=dict(sliding_window=24, query_pre_attn_scalar=32, sliding_window_pattern=3, hidden_activation="gelu_pytorch_tanh",
                    rope_parameters={"full_attention": dict(rope("linear", factor=8.0), rope_theta=1e6), "sliding_attention": rope("default")}),
        keys={"attention.sliding_window": 24, "attention.sliding_window_pattern": 3, "rope.scaling.type": "linear",
              "rope.scaling.factor": 8.0, "rope.freq_base": 1e6}),
    "gemma3_untied": dict(  # the pattern that no file says: with seven layers one is global
        arch="gemma3", kv=4, head=16, layers=7, ff=64, types=[Q8_0, Q4_0, Q4_0], tied=False, ctx=256, runs=[(60, 256)], norms=True, post=True,
        config=dict(sliding_window=40, query_pre_attn_scalar=16, hidden_activation="gelu_pytorch_tanh",
                    rope_parameters={"full_attention": dict(rope("default"), rope_theta=1e6), "sliding_attention": rope("default")}),
        keys={"attention.sliding_window": 40, "rope.freq_base": 1e6}),
}
CLASSES = {"llama": ("LlamaConfig", "LlamaForCausalLM"), "qwen2": ("Qwen2Config", "Qwen2ForCausalLM"),
           "qwen3": ("Qwen3Config", "Qwen3ForCausalLM"), "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM")}


def tensors_of(m):
    """Name in the file, name in transformers, shape [out, in] or [n]; in the order of the file."""
    head = m.get("head", EMBD // HEADS)
    q, kv, ff = head * HEADS, head * m["kv"], m.get("ff", FF)
    out = [("token_embd.weight", "model.embed_tokens.weight", (VOCAB, EMBD)), ("output_norm.weight", "model.norm.weight", (EMBD,))]
    if not m["tied"]:
        out.append(("output.weight", "lm_head.weight", (VOCAB, EMBD)))
    for i in range(m.get("layers", 2)):
        b, h = "blk.%d." % i, "model.layers.%d." % i
        rows = [("attn_norm.weight", "input_layernorm.weight", (EMBD,)), ("attn_q.weight", "self_attn.q_proj.weight", (q, EMBD)),
                ("attn_k.weight", "self_attn.k_proj.weight", (kv, EMBD)), ("attn_v.weight", "self_attn.v_proj.weight", (kv, EMBD)),
                ("attn_output.weight", "self_attn.o_proj.weight", (EMBD, q)), ("ffn_gate.weight", "mlp.gate_proj.weight", (ff, EMBD)),
                ("ffn_up.weight", "mlp.up_proj.weight", (ff, EMBD)), ("ffn_down.weight", "mlp.down_proj.weight", (EMBD, ff))]
        for c, n, s in (("q", "q", q), ("k", "k", kv), ("v", "v", kv), ("o", "output", EMBD)):
            if c in m.get("biases", ""):
                rows.append(("attn_%s.bias" % n, "self_attn.%s_proj.bias" % c, (s,)))
        if m.get("norms"):
            rows += [("attn_%s_norm.weight" % c, "self_attn.%s_norm.weight" % c, (head,)) for c in "qk"]
        if m.get("post"):
            rows += [("post_attention_norm.weight", "post_attention_layernorm.weight", (EMBD,)), ("ffn_norm.weight", "pre_feedforward_layernorm.weight", (EMBD,)),
                     ("post_ffw_norm.weight", "post_feedforward_layernorm.weight", (EMBD,))]
        else:
            rows.append(("ffn_norm.weight", "post_attention_layernorm.weight", (EMBD,)))
        out += [(b + n, h + t, s) for n, t, s in rows]
    return out


def neighbours(x, n_head):
    """Rows as the llama architecture stores them: what turns together stands together."""
    return x.reshape(n_head, 2, x.shape[0] // n_head // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def write_model(path, m, rng):
    """Writes the file; returns the weights as transformers wants them."""
    state, w, k = {}, gguf.GGUFWriter(path, m["arch"]), 0
    head = m.get("head", EMBD // HEADS)
    w.add_name("tiny random " + os.path.basename(path)[:-5])
    w.add_block_count(m.get("layers", 2))
    w.add_context_length(m["ctx"])
    w.add_embedding_length(EMBD)
    w.add_feed_forward_length(m.get("ff", FF))
    w.add_head_count(HEADS)
    w.add_head_count_kv(m["kv"])
    w.add_layer_norm_rms_eps(1e-6)
    if "head" in m:
        w.add_key_length(head)
        w.add_value_length(head)
    for key, v in {"rope.freq_base": 10000.0, **m["keys"]}.items():
        key = m["arch"] + "." + key
        w.add_string(key, v) if isinstance(v, str) else w.add_float32(key, v) if isinstance(v, float) else w.add_uint32(key, v)
    for name, theirs, shape in tensors_of(m):
        x = rng.standard_normal(shape, dtype=np.float32)
        if len(shape) == 1:
            x = (1 + 0.3 * x if "norm" in name else 0.5 * x).astype(np.float32)
            w.add_tensor(name, neighbours(x, HEADS if "_q" in name else m["kv"]) if m["arch"] == "llama" and name.endswith(("_q.bias", "_k.bias")) else x)
            state[theirs] = x - 1 if m["arch"] == "gemma3" and "norm" in name else x
            continue
        # What the layers add is about as large as what was embedded, so that each part shows.
        x *= 1.6 / math.sqrt(shape[1]) if "token_embd" not in name else 0.1 if m["arch"] == "gemma3" else 0.3
        kind = m["types"][k % len(m["types"])]
        k += 1
        packed = gguf.quants.quantize(x, kind)
        state[theirs] = gguf.quants.dequantize(packed, kind).astype(np.float32)
        if m["arch"] == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            packed = neighbours(packed, HEADS if "_q" in name else m["kv"])
        w.add_tensor(name, packed, raw_dtype=kind)
    p = m["config"].get("rope_parameters", {})
    if p.get("rope_type") == "llama3":
        plain = 10000.0 ** (-np.arange(0, head, 2) / head)
        turns = p["original_max_position_embeddings"] * plain / (2 * math.pi)
        smooth = np.clip((turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"]), 0, 1)
        w.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / p["factor"] + smooth)).astype(np.float32))
    if p.get("rope_type") == "longrope":
        w.add_tensor("rope_factors_long.weight", np.array(p["long_factor"], dtype=np.float32))
        w.add_tensor("rope_factors_short.weight", np.array(p["short_factor"], dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return {n: torch.from_numpy(np.ascontiguousarray(x)) for n, x in state.items()}


def oracle(m, state):
    config, model = CLASSES[m["arch"]]
    c = getattr(transformers, config)(
        vocab_size=VOCAB, hidden_size=EMBD, intermediate_size=m.get("ff", FF), num_hidden_layers=m.get("layers", 2), num_attention_heads=HEADS,
        num_key_value_heads=m["kv"], head_dim=m.get("head", EMBD // HEADS), max_position_embeddings=m["ctx"], rms_norm_eps=1e-6,
        tie_word_embeddings=m["tied"], attn_implementation="eager", **m["config"])
    net = getattr(transformers, model)(c).eval()
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    net.tie_weights()
    return net


def logits(net, ids):
    with torch.no_grad():
        return net(torch.tensor([ids]), use_cache=False).logits[0].numpy().astype(np.float32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny"))
    out = ap.parse_args().out
    os.makedirs(out, exist_ok=True)
    rows = []
    for seed, (name, m) in enumerate(MODELS.items()):
        rng = np.random.default_rng(1000 + seed)
        net = oracle(m, write_model(os.path.join(out, name + ".gguf"), m, rng))
        with open(os.path.join(out, name + ".f32"), "wb") as f:
            for n, ctx in m["runs"]:
                ids = [int(i) for i in rng.integers(0, VOCAB, n)]
                x = logits(net, ids)
                positions = sorted({*range(0, n, 9), n - 1})
                f.write(x[positions].astype("<f4").tobytes())
                more, margins = [], []
                for _ in range(N_GREEDY):
                    last = logits(net, ids + more)[-1]
                    order = np.sort(last)
                    more.append(int(last.argmax()))
                    margins.append(round(float(order[-1] - order[-2]), 6))
                rows.append(dict(model=name, arch=m["arch"], n_vocab=VOCAB, n_ctx=ctx, ids=ids, positions=positions, greedy_ids=more, greedy_margins=margins))
                print(name, n, "std", x.std(), "margin", min(margins), os.path.getsize(os.path.join(out, name + ".gguf")), more[:8])
    with open(os.path.join(out, "expected.jsonl"), "w", encoding="ascii", newline="\n") as f:
        for r in rows:
            f.write(json.dumps(r) + "\n")


if __name__ == "__main__":
    main()
