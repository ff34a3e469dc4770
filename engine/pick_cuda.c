/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pick_cuda.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = TR_MAX_BIAS + TR_MAX_STOP_IDS, LISTED_WORDS = 2 * TR_MAX_BIAS + TR_MAX_STOP_IDS };

_Static_assert((int)TR_CUDA_PICK_BLOCK == (int)TR_DIST_BLOCK &&
                   (int)TR_CUDA_PICK_BLOCK == (int)TR_DIST_GROUP,
               "sums are made alike");
_Static_assert((int)TR_CUDA_PICK_TOP == (int)TR_MAX_TOP && TR_CUDA_PICK_NONE == TR_NO_TOKEN,
               "answers mean the same");
_Static_assert(sizeof(struct tr_bias) == 2 * sizeof(uint32_t), "copied as words");

struct tr_pick_cuda {
    const struct tr_ops *ops;
    struct tr_dev *dev;
    struct tr_pick_cuda_config c;
    struct tr_cuda_sampler sampler;
    void *room;                 /* of the device */
    char *stage, *staged;       /* picks, then words: the host's, the device's */
    struct tr_cuda_picked *out; /* [max_out], the host's */
    uint32_t *words;            /* in `stage`, behind the picks of this step */
    uint32_t n_words, n_touched, n_picks;
};

static uint32_t mask_words(const struct tr_pick_cuda_config *c)
{
    return (c->n_vocab + 31) / 32;
}

static uint64_t stage_bytes(const struct tr_pick_cuda_config *c)
{
    uint64_t words = (uint64_t)LISTED_WORDS + c->n_eog + mask_words(c);
    return c->max_out * (sizeof(struct tr_cuda_pick) + words * sizeof(uint32_t));
}

static uint64_t out_bytes(const struct tr_pick_cuda_config *c)
{
    return c->max_out * sizeof(struct tr_cuda_picked);
}

static size_t room_bytes(const struct tr_pick_cuda_config *c)
{
    return tr_cuda_sample_room(c->n_vocab, c->n_ctx, c->max_out, LISTED + c->n_eog);
}

uint64_t tr_pick_cuda_bytes(const struct tr_pick_cuda_config *c)
{
    return room_bytes(c) + stage_bytes(c);
}

uint64_t tr_pick_cuda_host_bytes(const struct tr_pick_cuda_config *c)
{
    return stage_bytes(c) + out_bytes(c);
}

struct tr_pick_cuda *tr_pick_cuda_open(const struct tr_ops *ops, struct tr_dev *dev,
                                       const struct tr_pick_cuda_config *c)
{
    struct tr_pick_cuda *k = calloc(1, sizeof(*k));
    if (!k)
        return NULL;
    *k = (struct tr_pick_cuda){.ops = ops, .dev = dev, .c = *c};
    k->room = ops->take(dev, room_bytes(c), false);
    k->staged = ops->take(dev, stage_bytes(c), false);
    k->stage = ops->take_host(dev, stage_bytes(c));
    k->out = ops->take_host(dev, out_bytes(c));
    if (!k->room || !k->staged || !k->stage || !k->out) {
        tr_pick_cuda_close(k);
        return NULL;
    }
    tr_cuda_sample_init(&k->sampler, c->n_vocab, c->n_ctx, c->max_out, LISTED + c->n_eog, k->room);
    return k;
}

void tr_pick_cuda_close(struct tr_pick_cuda *k)
{
    if (!k)
        return;
    if (k->room)
        k->ops->give(k->dev, k->room, room_bytes(&k->c));
    if (k->staged)
        k->ops->give(k->dev, k->staged, stage_bytes(&k->c));
    if (k->stage)
        k->ops->give_host(k->dev, k->stage, stage_bytes(&k->c));
    if (k->out)
        k->ops->give_host(k->dev, k->out, out_bytes(&k->c));
    free(k);
}

/* ---- there ---- */

/* Behind the words so far; returns where. */
static uint32_t add_words(struct tr_pick_cuda *k, const void *words, uint32_t n)
{
    uint32_t at = k->n_words;
    memcpy(k->words + at, words, n * sizeof(uint32_t));
    k->n_words += n;
    return at;
}

/* Ids that are not to be sampled yet, or at all. */
static void add_off(struct tr_pick_cuda *k, const struct tr_sample_in *in, struct tr_cuda_pick *to)
{
    bool early = in->n_out < in->params->min_tokens;
    to->off_at = k->n_words;
    if (early || (in->params->flags & TR_REQ_IGNORE_EOS))
        (void)add_words(k, in->eog, in->n_eog);
    if (early && in->extra)
        (void)add_words(k, in->extra->stop_ids, in->extra->n_stop);
    to->n_off = k->n_words - to->off_at;
}

/* Bias, penalties, ids that are off and the mask: engine/sample.h, steps 1 to 3. */
static void add_changes(struct tr_pick_cuda *k, const struct tr_sample_in *in,
                        struct tr_cuda_pick *to)
{
    const struct tr_params *p = in->params;
    bool rep = p->repetition_penalty != 1.0;
    bool out = p->presence_penalty != 0.0 || p->frequency_penalty != 0.0;
    to->prompt_len = in->prompt_len;
    to->n_ids = in->prompt_len + in->n_out;
    to->repetition = p->repetition_penalty;
    to->frequency = p->frequency_penalty;
    to->presence = p->presence_penalty;
    TR_ASSERT(to->n_ids <= k->c.n_ctx && in->n_eog <= k->c.n_eog);
    if (in->extra && in->extra->n_bias) {
        to->n_bias = in->extra->n_bias;
        to->bias_at = add_words(k, in->extra->bias, 2 * to->n_bias);
    }
    add_off(k, in, to);
    if (in->mask)
        to->mask_at = add_words(k, in->mask, mask_words(&k->c));
    if (to->n_bias || to->n_off || (rep && to->n_ids) || (out && in->n_out))
        to->slot = k->n_touched++ % TR_CUDA_PICK_SLOTS;
}

/* Temperature, cuts and the draw: steps 4 to 8. */
static void add_choice(const struct tr_pick_cuda *k, const struct tr_sample_in *in,
                       struct tr_cuda_pick *to)
{
    const struct tr_params *p = in->params;
    to->top_p = p->top_p;
    to->min_p = p->min_p;
    if (p->top_k > 0 && (uint32_t)p->top_k < k->c.n_vocab)
        to->top_k = (uint32_t)p->top_k;
    if (p->temperature < TR_GREEDY_BELOW) {
        to->flags |= TR_CUDA_PICK_GREEDY;
        return;
    }
    to->scale = 1.0 / p->temperature;
    to->draw = tr_sample_draw(p->seed, p->choice, in->n_out);
    if (to->top_k || p->top_p < 1.0 || p->min_p > 0.0)
        to->flags |= TR_CUDA_PICK_CUT;
    /* Peaked distributions, which are usual, have 0.95 of their weight in a few nats. */
    to->depth = to->top_k ? 4 : 8;
    if (p->min_p > 0.0 && p->top_p >= 1.0 && !to->top_k)
        to->depth = -log(p->min_p) * (1 + 1e-6) + 1e-6;
}

static void add_pick(struct tr_pick_cuda *k, const struct tr_pick *p, struct tr_cuda_pick *to)
{
    *to = (struct tr_cuda_pick){.row = p->out,
                                .mask_at = TR_CUDA_PICK_NONE,
                                .slot = TR_CUDA_PICK_NONE,
                                .n_top = p->in.params->n_top};
    if (to->n_top > TR_CUDA_PICK_TOP)
        to->n_top = TR_CUDA_PICK_TOP;
    if (p->wants_lp || p->echo)
        to->flags |= TR_CUDA_PICK_LP;
    if (p->echo) {
        to->flags |= TR_CUDA_PICK_ECHO;
        to->echo = p->id;
        return;
    }
    add_changes(k, &p->in, to);
    add_choice(k, &p->in, to);
}

void tr_pick_cuda_send(struct tr_pick_cuda *k, const struct tr_cuda_logits *from,
                       const struct tr_pick *p, uint32_t n)
{
    struct tr_cuda_pick *picks = (struct tr_cuda_pick *)(void *)k->stage;
    size_t picks_bytes = n * sizeof(*picks);
    TR_ASSERT(n <= k->c.max_out);
    k->words = (uint32_t *)(void *)(k->stage + picks_bytes);
    k->n_words = k->n_touched = 0;
    k->n_picks = n;
    for (uint32_t i = 0; i < n; i++)
        add_pick(k, &p[i], &picks[i]);
    k->ops->upload(k->dev, k->staged, k->stage, picks_bytes + k->n_words * sizeof(uint32_t));
    tr_cuda_sample(k->dev, &k->sampler, from, picks,
                   (const struct tr_cuda_pick *)(const void *)k->staged,
                   (const uint32_t *)(const void *)(k->staged + picks_bytes), n, k->out);
}

/* ---- and back ---- */

static void read_lp(const struct tr_cuda_picked *from, struct tr_lp *lp)
{
    double lse = tr_sample_lse(from->max, from->sum);
    memset(lp, 0, sizeof(*lp));
    lp->n_top = from->n_top;
    for (uint32_t i = 0; i < lp->n_top; i++) {
        lp->top_id[i] = from->top_id[i];
        lp->top_logprob[i] = tr_sample_logprob_at(from->top[i], lse);
    }
    if (from->id == TR_CUDA_PICK_NONE)
        return;
    lp->id = from->id;
    lp->logprob = tr_sample_logprob_at(from->raw, lse);
}

void tr_pick_cuda_read(const struct tr_pick_cuda *k, struct tr_picked *out, uint32_t n)
{
    const struct tr_cuda_pick *picks = (const struct tr_cuda_pick *)(const void *)k->stage;
    TR_ASSERT(n == k->n_picks);
    for (uint32_t i = 0; i < n; i++) {
        out[i].id = k->out[i].id;
        if (picks[i].flags & TR_CUDA_PICK_LP)
            read_lp(&k->out[i], &out[i].lp);
    }
}
