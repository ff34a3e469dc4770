/* SPDX-License-Identifier: Apache-2.0 */
/* text/vocab.c - the vocabulary, wherever it came from, and the one of the sim backend.  Reading
 * it from a file: vocab_gguf.c. */
#include "text/vocab.h"

#include "base/sim_vocab.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/spm.h"
#include "text/vocab_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Names under which models end a turn or a text; the file may name only one of several.  A name
 * counts only for a token that is not ordinary text. */
static const char *const EOG_NAMES[] = {
    "<|im_end|>",      "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>",
    "<|end_of_turn|>", "<end_of_turn>", "<|eot|>",         "<|eos|>",
};

/* In the format of ChatML. */
static const char SIM_TEMPLATE[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

struct tr_vocab *tr_vocab_new(const char *model, uint32_t n, size_t bytes)
{
    struct tr_vocab *v = calloc(1, sizeof(*v));

    if (!v)
        return NULL;
    v->model = model;
    v->size = n;
    v->bos = v->eos = v->unk = -1;
    v->blob = calloc(1, bytes ? bytes : 1);
    v->off = calloc((size_t)n + 1, sizeof(*v->off));
    v->flags = calloc((size_t)n + 1, sizeof(*v->flags));
    if (!v->blob || !v->off || !v->flags) {
        tr_vocab_close(v);
        return NULL;
    }
    return v;
}

int tr_vocab_seal(struct tr_vocab *v)
{
    int rc = tr_trie_init(&v->control, v, TR_PIECE_CONTROL, TR_PIECE_UNUSED);

    if (rc == 0)
        rc = tr_trie_init(&v->user, v, TR_PIECE_USER, TR_PIECE_UNUSED);
    if (rc < 0)
        return rc;
    for (uint32_t id = 0; id < v->size; id++)
        if (v->off[id + 1] - v->off[id] > v->longest)
            v->longest = v->off[id + 1] - v->off[id];
    for (size_t i = 0; i < sizeof(EOG_NAMES) / sizeof(EOG_NAMES[0]); i++) {
        int32_t id = tr_vocab_find(v, EOG_NAMES[i], strlen(EOG_NAMES[i]));
        if (id >= 0 && (v->flags[id] & (TR_PIECE_CONTROL | TR_PIECE_USER)))
            v->flags[id] |= TR_PIECE_EOG;
    }
    return 0;
}

struct tr_vocab *tr_vocab_sim(void)
{
    static const struct {
        enum tr_sim_piece_type type;
        uint32_t len;
        const char *bytes;
    } piece[] = {
#define X(type, bytes) {type, sizeof(bytes) - 1, bytes},
#include "base/sim_vocab.def"
#undef X
    };
    size_t total = 0;

    for (uint32_t i = 0; i < TR_SIM_VOCAB_SIZE; i++)
        total += piece[i].len;
    struct tr_vocab *v = tr_vocab_new("sim", TR_SIM_VOCAB_SIZE, total);
    if (!v)
        return NULL;
    for (uint32_t i = 0; i < TR_SIM_VOCAB_SIZE; i++) {
        memcpy(v->blob + v->off[i], piece[i].bytes, piece[i].len);
        v->off[i + 1] = v->off[i] + piece[i].len;
        v->flags[i] = piece[i].type == TR_SIM_CONTROL ? TR_PIECE_CONTROL : 0;
    }
    v->bos = TR_SIM_BOS;
    v->eos = TR_SIM_EOS;
    v->chat_template_len = sizeof(SIM_TEMPLATE) - 1;
    v->chat_template = strdup(SIM_TEMPLATE);
    if (!v->chat_template || tr_vocab_seal(v) < 0 ||
        tr_trie_init(&v->pieces, v, 0, TR_PIECE_CONTROL) < 0) {
        tr_vocab_close(v);
        return NULL;
    }
    return v;
}

void tr_vocab_close(struct tr_vocab *v)
{
    if (!v)
        return;
    tr_trie_fini(&v->control);
    tr_trie_fini(&v->user);
    tr_trie_fini(&v->pieces);
    tr_bpe_close(v->bpe);
    tr_spm_close(v->spm);
    tr_pretok_close(v->pretok);
    tr_nfc_close(v->nfc);
    free(v->chat_template);
    free(v->flags);
    free(v->off);
    free(v->blob);
    free(v);
}

static bool in_range(const struct tr_vocab *v, int32_t id)
{
    return id >= 0 && (uint32_t)id < v->size;
}

uint32_t tr_vocab_size(const struct tr_vocab *v)
{
    return v->size;
}

const char *tr_vocab_model(const struct tr_vocab *v)
{
    return v->model;
}

const char *tr_vocab_bytes(const struct tr_vocab *v, int32_t id, size_t *len)
{
    if (!in_range(v, id)) {
        *len = 0;
        return NULL;
    }
    *len = v->off[id + 1] - v->off[id];
    return v->blob + v->off[id];
}

bool tr_vocab_is_control(const struct tr_vocab *v, int32_t id)
{
    return in_range(v, id) && (v->flags[id] & TR_PIECE_CONTROL);
}

bool tr_vocab_is_eog(const struct tr_vocab *v, int32_t id)
{
    return in_range(v, id) && (v->flags[id] & TR_PIECE_EOG);
}

size_t tr_vocab_eog_ids(const struct tr_vocab *v, int32_t *ids, size_t cap)
{
    size_t n = 0;

    for (uint32_t id = 0; id < v->size; id++) {
        if (!(v->flags[id] & TR_PIECE_EOG))
            continue;
        if (n < cap)
            ids[n] = (int32_t)id;
        n++;
    }
    return n;
}

int32_t tr_vocab_bos(const struct tr_vocab *v)
{
    return v->bos;
}

int32_t tr_vocab_eos(const struct tr_vocab *v)
{
    return v->eos;
}

bool tr_vocab_add_bos(const struct tr_vocab *v)
{
    return v->add_bos;
}

bool tr_vocab_space_prefix(const struct tr_vocab *v)
{
    return v->spm && tr_spm_rules(v->spm).space_prefix;
}

const char *tr_vocab_chat_template(const struct tr_vocab *v, size_t *len)
{
    *len = v->chat_template_len;
    return v->chat_template;
}

int32_t tr_vocab_find(const struct tr_vocab *v, const char *bytes, size_t len)
{
    for (uint32_t id = 0; len > 0 && id < v->size; id++)
        if (v->off[id + 1] - v->off[id] == len && memcmp(v->blob + v->off[id], bytes, len) == 0)
            return (int32_t)id;
    return -1;
}
