/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/report.h"

#include "base/emit.h"
#include "inspect/shown.h"

#include <errno.h>

static void put_str(struct tr_emit *e, const char *key, const struct tr_gguf *g, const char *from)
{
    struct tr_str s;

    if (tr_gguf_str(g, from, &s) == 0)
        tr_emit_kstrn(e, key, s.p, s.len);
    else
        tr_emit_knull(e, key);
}

static void put_numbers(struct tr_emit *e, const struct tr_model *m)
{
    const struct tr_hparams *hp = &m->hp;
    const struct {
        const char *key;
        uint64_t v;
    } rows[] = {{"context", hp->n_ctx},
                {"layers", hp->n_layer},
                {"embedding", hp->n_embd},
                {"feed_forward", hp->n_ff},
                {"heads", hp->n_head},
                {"heads_kv", hp->n_head_kv},
                {"head_dim", hp->head_dim},
                {"rope_dim", hp->n_rot},
                {"window", hp->window},
                {"vocabulary", hp->n_vocab},
                {"weight_bytes", m->weights_len},
                {"step_bytes", m->step_bytes}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        tr_emit_ku64(e, rows[i].key, rows[i].v);
    tr_emit_key(e, "rope_base");
    tr_emit_f64(e, hp->rope.base);
    tr_emit_kbool(e, "output_tied", m->output_tied);
}

static void put_kv(struct tr_emit *e, const struct tr_facts *f)
{
    uint64_t blocks = (f->model->hp.n_ctx + TR_KV_BLOCK - 1) / TR_KV_BLOCK;

    tr_emit_key(e, "kv");
    tr_emit_obj(e);
    for (unsigned t = 0; t < TR_FACT_KV_TYPES; t++) {
        tr_emit_key(e, tr_fact_kv_word[t]);
        if (!f->kv_block[t]) {
            tr_emit_null(e);
            continue;
        }
        tr_emit_obj(e);
        tr_emit_ku64(e, "token_bytes", f->kv_block[t] / TR_KV_BLOCK);
        tr_emit_ku64(e, "context_bytes", f->kv_block[t] * blocks);
        tr_emit_obj_end(e);
    }
    tr_emit_obj_end(e);
}

static void put_model(struct tr_emit *e, const struct tr_facts *f)
{
    tr_emit_key(e, "model");
    if (!f->model) {
        tr_emit_null(e);
        return;
    }
    tr_emit_obj(e);
    put_numbers(e, f->model);
    put_kv(e, f);
    tr_emit_obj_end(e);
}

static void put_token(struct tr_emit *e, const struct tr_vocab *v, int32_t id)
{
    size_t len;
    const char *p = tr_vocab_bytes(v, id, &len);

    if (!p) {
        tr_emit_null(e);
        return;
    }
    tr_emit_obj(e);
    tr_emit_ki64(e, "id", id);
    tr_emit_kstrn(e, "text", p, len);
    tr_emit_obj_end(e);
}

static void put_vocab(struct tr_emit *e, const struct tr_facts *f)
{
    int32_t eog[64];

    tr_emit_key(e, "vocabulary");
    if (!f->vocab) {
        tr_emit_null(e);
        return;
    }
    tr_emit_obj(e);
    tr_emit_ku64(e, "tokens", tr_vocab_size(f->vocab));
    tr_emit_kstr(e, "model", tr_vocab_model(f->vocab));
    put_str(e, "pre", f->g, "tokenizer.ggml.pre");
    tr_emit_key(e, "begin");
    put_token(e, f->vocab, tr_vocab_bos(f->vocab));
    tr_emit_kbool(e, "begin_before_prompts", tr_vocab_add_bos(f->vocab));
    size_t n = tr_vocab_eog_ids(f->vocab, eog, 64);
    tr_emit_key(e, "end");
    tr_emit_arr(e);
    for (size_t i = 0; i < n && i < 64; i++)
        put_token(e, f->vocab, eog[i]);
    tr_emit_arr_end(e);
    tr_emit_obj_end(e);
}

static void put_template(struct tr_emit *e, const struct tr_facts *f)
{
    static const char *const roles[TR_CHAT_ROLES] = {"system", "user", "assistant", "tool"};
    size_t len;

    tr_emit_key(e, "template");
    if (!f->vocab || !tr_vocab_chat_template(f->vocab, &len)) {
        tr_emit_null(e);
        return;
    }
    tr_emit_obj(e);
    tr_emit_ku64(e, "bytes", len);
    tr_emit_kstr(e, "tool_format", tr_tool_syntax[f->tools].name);
    tr_emit_kstr(e, "reasoning", tr_reasoning_syntax[f->reasoning].name);
    if (f->chat) {
        tr_emit_kbool(e, "shows_tools", f->traits.shows_tools);
        tr_emit_kbool(e, "shows_calls", f->traits.shows_calls);
        tr_emit_kbool(e, "shows_results", f->traits.shows_results);
        tr_emit_key(e, "content");
        tr_emit_obj(e);
        for (unsigned i = 0; i < TR_CHAT_ROLES; i++)
            tr_emit_kstr(e, roles[i], tr_inspect_content(f->traits.content[i]));
        tr_emit_obj_end(e);
    }
    tr_emit_obj_end(e);
}

static void put_types(struct tr_emit *e, const struct tr_facts *f)
{
    char name[24];

    tr_emit_key(e, "tensor_types");
    tr_emit_arr(e);
    for (unsigned i = 0; i < f->n_types; i++) {
        tr_emit_obj(e);
        tr_emit_kstr(e, "type", tr_tensor_type_name(f->type[i].type, name));
        tr_emit_ku64(e, "tensors", f->type[i].n);
        tr_emit_ku64(e, "bytes", f->type[i].bytes);
        tr_emit_obj_end(e);
    }
    tr_emit_arr_end(e);
}

static void put_tensors(struct tr_emit *e, const struct tr_facts *f)
{
    char name[24];

    tr_emit_key(e, "tensors");
    tr_emit_arr(e);
    for (uint64_t i = 0; i < tr_gguf_n_tensors(f->g); i++) {
        const struct tr_gguf_tensor *t = tr_gguf_tensor_at(f->g, i);
        tr_emit_obj(e);
        tr_emit_kstrn(e, "name", t->name.p, t->name.len);
        tr_emit_kstr(e, "type", tr_tensor_type_name(t->type, name));
        tr_emit_ku64(e, "bytes", t->bytes);
        tr_emit_key(e, "shape");
        tr_emit_arr(e);
        for (uint32_t d = 0; d < t->n_dims; d++)
            tr_emit_u64(e, t->ne[d]);
        tr_emit_arr_end(e);
        tr_emit_obj_end(e);
    }
    tr_emit_arr_end(e);
}

static void put_value(struct tr_emit *e, const struct tr_gguf_entry *k)
{
    switch (k->type) {
    case TR_GGUF_STRING:
        tr_emit_strn(e, k->s.p, k->s.len);
        break;
    case TR_GGUF_ARRAY: /* as long as a vocabulary */
        tr_emit_obj(e);
        tr_emit_ku64(e, "length", k->a.len);
        tr_emit_obj_end(e);
        break;
    case TR_GGUF_BOOL:
        tr_emit_bool(e, k->b);
        break;
    case TR_GGUF_F32:
    case TR_GGUF_F64:
        tr_emit_f64(e, k->f);
        break;
    case TR_GGUF_U64:
        tr_emit_u64(e, k->u);
        break;
    default:
        tr_emit_i64(e, k->i);
    }
}

static void put_metadata(struct tr_emit *e, const struct tr_facts *f)
{
    char type[32];

    tr_emit_key(e, "metadata");
    tr_emit_arr(e);
    for (uint64_t i = 0; i < f->about.n_keys; i++) {
        struct tr_gguf_entry k = tr_gguf_entry_at(f->g, i);
        tr_emit_obj(e);
        tr_emit_kstrn(e, "key", k.key.p, k.key.len);
        tr_emit_kstr(e, "type", tr_shown_type(type, &k));
        tr_emit_key(e, "value");
        put_value(e, &k);
        tr_emit_obj_end(e);
    }
    tr_emit_arr_end(e);
}

static void put_all(struct tr_emit *e, const struct tr_facts *f, const struct tr_inspect_wish *r)
{
    tr_emit_obj(e);
    tr_emit_kstr(e, "file", r->path);
    tr_emit_ku64(e, "bytes", f->about.bytes);
    tr_emit_ku64(e, "version", f->about.version);
    tr_emit_ku64(e, "alignment", f->about.alignment);
    tr_emit_ku64(e, "n_keys", f->about.n_keys);
    tr_emit_ku64(e, "n_tensors", tr_gguf_n_tensors(f->g));
    tr_emit_ku64(e, "n_weights", f->n_weights);
    put_str(e, "name", f->g, "general.name");
    put_str(e, "architecture", f->g, "general.architecture");
    put_model(e, f);
    put_vocab(e, f);
    put_template(e, f);
    put_types(e, f);
    tr_emit_kbool(e, "serve", f->n_refusals == 0);
    tr_emit_key(e, "refusals");
    tr_emit_arr(e);
    for (unsigned i = 0; i < f->n_refusals; i++)
        tr_emit_str(e, f->refusal[i].msg);
    tr_emit_arr_end(e);
    if (r->metadata)
        put_metadata(e, f);
    if (r->tensors)
        put_tensors(e, f);
    tr_emit_obj_end(e);
}

int tr_inspect_json(FILE *to, const struct tr_facts *f, const struct tr_inspect_wish *r)
{
    struct tr_emit e;

    tr_emit_init(&e);
    put_all(&e, f, r);
    int ret = e.failed ? -ENOMEM : 0;
    if (!ret) {
        fwrite(e.buf, 1, e.len, to); /* the caller looks for errors of `to` */
        fputc('\n', to);
    }
    tr_emit_fini(&e);
    return ret;
}
