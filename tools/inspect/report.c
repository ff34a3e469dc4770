/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/report.h"

#include "inspect/shown.h"

#include <inttypes.h>
#include <string.h>

enum { EOG_SHOWN = 12, NAME_SHOWN = 64 };

static void line(FILE *to, const char *name)
{
    fprintf(to, "%-13s ", name);
}

static struct tr_str string_of(const struct tr_gguf *g, const char *key)
{
    struct tr_str s = {"", 0};
    (void)tr_gguf_str(g, key, &s);
    return s;
}

static void put_container(FILE *to, const struct tr_facts *f, const char *path)
{
    char shown[TR_SHOWN_BYTES], size[32];
    size_t n = strlen(path), cut = n > 80 ? n - 80 : 0;

    line(to, "file");
    fprintf(to, "%s%s, %s\n", cut ? "..." : "",
            tr_shown(shown, (struct tr_str){path + cut, n - cut}, 80),
            tr_shown_bytes(size, f->about.bytes));
    line(to, "container");
    fprintf(to,
            "GGUF version %" PRIu32 ", %" PRIu64 " keys, %" PRIu64 " tensors, alignment %" PRIu64
            "\n",
            f->about.version, f->about.n_keys, tr_gguf_n_tensors(f->g), f->about.alignment);
    struct tr_str name = string_of(f->g, "general.name");
    line(to, "name");
    fprintf(to, "%s\n", name.len ? tr_shown(shown, name, 80) : "none");
    line(to, "architecture");
    fprintf(to, "%s, ", tr_shown(shown, string_of(f->g, "general.architecture"), 40));
    fprintf(to, "%.1f M weights\n", (double)f->n_weights / 1e6);
}

static void put_numbers(FILE *to, const struct tr_hparams *hp)
{
    static const char *const scalings[] = {"", ", linear", ", yarn", ", longrope"};
    bool scaled = hp->rope.factor != 1 || hp->rope.scaling == TR_ROPE_LONG;
    uint32_t n_local = 0;

    line(to, "context");
    fprintf(to, "%" PRIu32 " tokens\n", hp->n_ctx);
    line(to, "layers");
    fprintf(to, "%" PRIu32 " of %" PRIu32 ", feed-forward %" PRIu32 " (%s)\n", hp->n_layer,
            hp->n_embd, hp->n_ff, hp->ffn_act == TR_FFN_GELU ? "gelu" : "silu");
    line(to, "attention");
    fprintf(to,
            "%" PRIu32 " heads of %" PRIu32 ", %" PRIu32 " of keys and values; RoPE over %" PRIu32
            ", base %g%s",
            hp->n_head, hp->head_dim, hp->n_head_kv, hp->n_rot, hp->rope.base,
            scaled ? scalings[hp->rope.scaling] : "");
    for (uint32_t i = 0; i < hp->n_layer; i++)
        n_local += hp->local[i];
    if (hp->window)
        fprintf(to, "; a window of %" PRIu32 " in %" PRIu32 " layers", hp->window, n_local);
    fprintf(to, "\n");
}

static void put_token(FILE *to, const struct tr_vocab *v, int32_t id)
{
    char shown[TR_SHOWN_BYTES];
    size_t len;
    const char *p = tr_vocab_bytes(v, id, &len);

    fprintf(to, "%" PRId32 " \"%s\"", id, tr_shown(shown, (struct tr_str){p ? p : "", len}, 40));
}

static void put_special(FILE *to, const struct tr_vocab *v)
{
    int32_t eog[EOG_SHOWN];
    size_t n = tr_vocab_eog_ids(v, eog, EOG_SHOWN);

    line(to, "special");
    fprintf(to, "begin ");
    if (tr_vocab_bos(v) < 0)
        fprintf(to, "none");
    else
        put_token(to, v, tr_vocab_bos(v));
    fprintf(to, "%s; end", tr_vocab_add_bos(v) ? ", put before prompts" : "");
    for (size_t i = 0; i < n && i < EOG_SHOWN; i++) {
        fprintf(to, "%s ", i ? "," : "");
        put_token(to, v, eog[i]);
    }
    fprintf(to, "%s\n", n > EOG_SHOWN ? ", ..." : n ? "" : " none");
}

static void put_vocab(FILE *to, const struct tr_facts *f)
{
    char shown[TR_SHOWN_BYTES];
    struct tr_str pre = string_of(f->g, "tokenizer.ggml.pre");

    line(to, "vocabulary");
    if (!f->vocab) {
        fprintf(to, "refused\n");
        return;
    }
    fprintf(to, "%" PRIu32 " tokens, %s", tr_vocab_size(f->vocab), tr_vocab_model(f->vocab));
    if (pre.len && strcmp(tr_vocab_model(f->vocab), "gpt2") == 0)
        fprintf(to, ", pre-tokeniser %s", tr_shown(shown, pre, 40));
    fprintf(to, "\n");
    put_special(to, f->vocab);
}

const char *tr_inspect_content(enum tr_chat_content c)
{
    static const char *const words[] = {"string", "either", "parts"};
    return words[c];
}

static void put_template(FILE *to, const struct tr_facts *f)
{
    static const char *const roles[TR_CHAT_ROLES] = {"system", "user", "assistant", "tool"};
    size_t len;

    line(to, "template");
    if (!f->vocab || !tr_vocab_chat_template(f->vocab, &len)) {
        fprintf(to, "none\n");
        return;
    }
    fprintf(to, "%zu bytes", len);
    if (!f->chat) {
        fprintf(to, ", refused\n");
        return;
    }
    const struct tr_chat_traits *t = &f->traits;
    fprintf(to, "; shows tools: %s, calls: %s, results: %s; calls as %s, reasoning as %s\n",
            t->shows_tools ? "yes" : "no", t->shows_calls ? "yes" : "no",
            t->shows_results ? "yes" : "no", tr_tool_syntax[f->tools].name,
            tr_reasoning_syntax[f->reasoning].name);
    line(to, "");
    fprintf(to, "content as");
    for (unsigned i = 0; i < TR_CHAT_ROLES; i++)
        fprintf(to, "%s %s: %s", i ? "," : "", roles[i], tr_inspect_content(t->content[i]));
    fprintf(to, "\n");
}

static void put_types(FILE *to, const struct tr_facts *f)
{
    char name[24], size[32];

    line(to, "tensors");
    for (unsigned i = 0; i < f->n_types; i++)
        fprintf(to, "%s%" PRIu64 " %s (%s)", i ? ", " : "", f->type[i].n,
                tr_tensor_type_name(f->type[i].type, name), tr_shown_bytes(size, f->type[i].bytes));
    fprintf(to, "%s\n", f->n_types ? "" : "none");
}

static void put_memory(FILE *to, const struct tr_facts *f)
{
    char a[32], b[32];
    const struct tr_model *m = f->model;
    uint64_t blocks = (m->hp.n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK;

    line(to, "memory");
    fprintf(to, "weights %s (--cpu-math int8), of which each step reads %s%s\n",
            tr_shown_bytes(a, m->weights_len), tr_shown_bytes(b, m->step_bytes),
            m->output_tied ? "; output is the embedding again" : "");
    for (unsigned t = 0; t < TR_FACT_KV_TYPES; t++) {
        line(to, t ? "" : "KV");
        if (f->kv_block[t])
            fprintf(to, "--kv-type %-5s %s a token, %s a context of %" PRIu32 "\n",
                    tr_fact_kv_word[t], tr_shown_bytes(a, f->kv_block[t] / TR_KV_BLOCK),
                    tr_shown_bytes(b, f->kv_block[t] * blocks), m->hp.n_ctx);
        else
            fprintf(to, "--kv-type %-5s cannot hold heads of %" PRIu32 " elements\n",
                    tr_fact_kv_word[t], m->hp.head_dim);
    }
}

static void put_verdict(FILE *to, const struct tr_facts *f)
{
    line(to, "serve");
    fprintf(to, "%s\n", f->n_refusals ? "no" : "yes");
    for (unsigned i = 0; i < f->n_refusals; i++)
        fprintf(to, "              %s\n", f->refusal[i].msg);
}

static void put_tensors(FILE *to, const struct tr_facts *f)
{
    char shown[TR_SHOWN_BYTES], type[24], size[32];

    fprintf(to, "\n");
    for (uint64_t i = 0; i < tr_gguf_n_tensors(f->g); i++) {
        const struct tr_gguf_tensor *t = tr_gguf_tensor_at(f->g, i);
        fprintf(to, "%-32s %-6s %10s  [", tr_shown(shown, t->name, NAME_SHOWN),
                tr_tensor_type_name(t->type, type), tr_shown_bytes(size, t->bytes));
        for (uint32_t d = 0; d < t->n_dims; d++)
            fprintf(to, "%s%" PRIu64, d ? ", " : "", t->ne[d]);
        fprintf(to, "]\n");
    }
}

static void put_metadata(FILE *to, const struct tr_facts *f)
{
    char key[TR_SHOWN_BYTES], type[32], value[TR_SHOWN_BYTES];

    fprintf(to, "\n");
    for (uint64_t i = 0; i < f->about.n_keys; i++) {
        struct tr_gguf_entry e = tr_gguf_entry_at(f->g, i);
        fprintf(to, "%-44s %-15s %s\n", tr_shown(key, e.key, NAME_SHOWN), tr_shown_type(type, &e),
                tr_shown_value(value, &e));
    }
}

void tr_inspect_text(FILE *to, const struct tr_facts *f, const struct tr_inspect_wish *r)
{
    put_container(to, f, r->path);
    if (f->model)
        put_numbers(to, &f->model->hp);
    put_vocab(to, f);
    put_template(to, f);
    put_types(to, f);
    if (f->model)
        put_memory(to, f);
    put_verdict(to, f);
    if (r->metadata)
        put_metadata(to, f);
    if (r->tensors)
        put_tensors(to, f);
}
