/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/facts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CTX_MIN = 8, CTX_MAX = 1 << 24 /* what a service takes */ };

const char *const tr_fact_kv_word[TR_FACT_KV_TYPES] = {
    [TR_KV_F16] = "f16", [TR_KV_Q8_0] = "q8_0", [TR_KV_F32] = "f32"};

static struct tr_errbuf *refusal(struct tr_facts *f)
{
    return &f->refusal[f->n_refusals < TR_FACT_REFUSALS ? f->n_refusals++ : TR_FACT_REFUSALS - 1];
}

static struct tr_fact_type *row_of(struct tr_facts *f, enum tr_tensor_type type)
{
    unsigned i = 0;
    while (i < f->n_types && f->type[i].type != type)
        i++;
    if (i == f->n_types && i < TR_FACT_TYPES)
        f->type[f->n_types++].type = type;
    return &f->type[i < TR_FACT_TYPES ? i : TR_FACT_TYPES - 1];
}

static int by_bytes(const void *a, const void *b)
{
    const struct tr_fact_type *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static void count_tensors(struct tr_facts *f)
{
    for (uint64_t i = 0; i < tr_gguf_n_tensors(f->g); i++) {
        const struct tr_gguf_tensor *t = tr_gguf_tensor_at(f->g, i);
        struct tr_fact_type *row = row_of(f, t->type);
        row->n++;
        row->bytes += t->bytes;
        f->n_weights += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; /* checked: fits in the file */
    }
    qsort(f->type, f->n_types, sizeof(f->type[0]), by_bytes);
}

static void open_chat(struct tr_facts *f)
{
    struct tr_errbuf why = {""};
    size_t len;
    const char *text = tr_vocab_chat_template(f->vocab, &len);
    bool known;

    if (!text)
        return;
    f->tools = tr_tool_format_of(text, len, &known);
    f->reasoning = tr_reasoning_format_of(text, len);
    f->chat = tr_chat_open(text, len, &why);
    if (f->chat)
        tr_chat_traits(f->chat, &f->traits);
    else
        tr_errf(refusal(f), -EINVAL,
                "the chat template cannot be used: %s (--chat-template FILE gives another one, "
                "--chat-template none serves without)",
                why.msg);
}

static void open_vocab(struct tr_facts *f)
{
    struct tr_errbuf err = {""};

    f->vocab = tr_vocab_open(f->g, &err);
    if (f->vocab)
        open_chat(f);
    else
        *refusal(f) = err;
}

static void measure_model(struct tr_facts *f, const char *path)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = tr_cpu_open(
        &(struct tr_cpu_config){.math = TR_OPS_INT8, .level_max = TR_CPU_AVX512, .n_threads = 1},
        &err);

    if (dev)
        f->model = tr_model_measure(f->g, path, &tr_ops_cpu, dev, &err);
    tr_ops_cpu.close(dev);
    if (!f->model) {
        *refusal(f) = err;
        return;
    }
    const struct tr_hparams *hp = &f->model->hp;
    for (unsigned t = 0; t < TR_FACT_KV_TYPES; t++)
        f->kv_block[t] = hp->n_layer * (uint64_t)tr_kv_block_bytes((enum tr_ops_kv)t, hp->n_head_kv,
                                                                   hp->head_dim);
}

/* What only shows when the parts are put together. */
static void compare(struct tr_facts *f, const char *path)
{
    struct tr_str arch = {"", 0};

    if (!f->model)
        return;
    if (f->vocab && tr_vocab_size(f->vocab) != f->model->hp.n_vocab)
        tr_errf(refusal(f), -EINVAL, "the vocabulary has %u tokens, the model %u",
                tr_vocab_size(f->vocab), f->model->hp.n_vocab);
    (void)tr_gguf_str(f->g, "general.architecture", &arch); /* it is there: there is a model */
    if (f->model->hp.n_ctx < CTX_MIN || f->model->hp.n_ctx > CTX_MAX)
        tr_errf(refusal(f), -EINVAL, "%s: %.*s.context_length is missing or out of range", path,
                (int)arch.len, arch.p);
    if (!f->kv_block[TR_KV_F16])
        tr_errf(refusal(f), -EINVAL, "KV type f16 cannot hold heads of %u elements",
                f->model->hp.head_dim);
}

int tr_facts_open(struct tr_facts *f, const char *path, struct tr_errbuf *err)
{
    memset(f, 0, sizeof(*f));
    f->g = tr_gguf_open(path, err);
    if (!f->g)
        return -EINVAL;
    f->about = tr_gguf_about(f->g);
    count_tensors(f);
    open_vocab(f);
    measure_model(f, path);
    compare(f, path);
    return 0;
}

void tr_facts_close(struct tr_facts *f)
{
    tr_model_free(f->model);
    tr_chat_close(f->chat);
    tr_vocab_close(f->vocab);
    tr_gguf_close(f->g);
}
