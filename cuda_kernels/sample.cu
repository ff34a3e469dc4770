/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/sample.cu - the room of sampling on a device, and which kernels a call launches (sample.cuh has
 * the list).
 *
 * A call costs two launches where all picks are greedy, three with a temperature, two more with
 * log-probabilities, and two more where ids are touched or masked.  Whether a kernel is needed is told by the
 * picks, which the host has written itself; a kernel whose pick has nothing for it returns at once. */
#include "cuda_kernels/sample.cuh"

/* The room's parts one behind the other, each aligned for anything.  Without a room: how long it is. */
struct carver {
    char *room;
    size_t used;
};

template <class T> static T *carve(struct carver *r, size_t n)
{
    T *at = r->room ? (T *)(void *)(r->room + r->used) : NULL;
    r->used += (n * sizeof(T) + 255) / 256 * 256;
    return at;
}

static void carve_call(struct carver *r, const struct tr_cuda_sampler *s, struct sample_call *c)
{
    uint32_t n_blocks = (s->n_vocab + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    uint32_t n_groups = (n_blocks + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    size_t rows = s->max_rows,
           slots = rows < TR_CUDA_PICK_SLOTS ? rows : (size_t)TR_CUDA_PICK_SLOTS;
    c->n_vocab = s->n_vocab;
    c->n_blocks = n_blocks;
    c->n_groups = n_groups;
    c->touched_cap = s->touched_cap;
    c->n_touched_groups = (s->touched_cap + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    c->group_max = carve<float>(r, rows * n_groups);
    c->block_max = carve<float>(r, rows * n_blocks);
    c->group_sum = carve<double>(r, rows * n_groups);
    c->block_sum = carve<double>(r, rows * n_blocks);
    c->n_touched = carve<uint32_t>(r, slots);
    c->touched_top = carve<double>(r, slots);
    c->seat = carve<uint32_t>(r, slots * s->n_vocab);
    c->touched_v = carve<double>(r, slots * s->touched_cap);
    c->touched_sum = carve<double>(r, slots * c->n_touched_groups);
    c->touched_raw = carve<float>(r, slots * s->touched_cap);
    c->touched_id = carve<uint32_t>(r, slots * s->touched_cap);
    c->touched_seen = carve<uint32_t>(r, slots * s->touched_cap);
}

void tr_cuda_sample_init(struct tr_cuda_sampler *s, uint32_t n_vocab, uint32_t n_ctx,
                         uint32_t max_rows, uint32_t max_listed, void *room)
{
    uint64_t most = (uint64_t)n_ctx + max_listed;
    s->n_vocab = n_vocab;
    s->max_rows = max_rows;
    s->touched_cap = most < n_vocab ? (uint32_t)most : n_vocab;
    s->room = room;
}

size_t tr_cuda_sample_room(uint32_t n_vocab, uint32_t n_ctx, uint32_t max_rows, uint32_t max_listed)
{
    struct tr_cuda_sampler s;
    struct sample_call c;
    struct carver r = {};
    tr_cuda_sample_init(&s, n_vocab, n_ctx, max_rows, max_listed, NULL);
    carve_call(&r, &s, &c);
    return r.used;
}

/* What picks of a wave need beyond their maxima. */
struct needs {
    bool logprobs, touched, changed, sums, chosen;
};

static struct needs needs_of(const struct tr_cuda_pick *p, uint32_t n)
{
    struct needs w = {};
    for (uint32_t i = 0; i < n; i++) {
        w.logprobs |= (p[i].flags & TR_CUDA_PICK_LP) != 0;
        if (p[i].flags & TR_CUDA_PICK_ECHO)
            continue;
        w.chosen = true;
        w.touched |= p[i].slot != TR_CUDA_PICK_NONE;
        w.changed |= p[i].slot != TR_CUDA_PICK_NONE || p[i].mask_at != TR_CUDA_PICK_NONE;
        w.sums |= !(p[i].flags & TR_CUDA_PICK_GREEDY);
    }
    return w;
}

/* From `from`, as many as there are slots for. */
static uint32_t wave_end(const struct tr_cuda_pick *p, uint32_t from, uint32_t n)
{
    uint32_t touched = 0, i = from;
    for (; i < n; i++)
        if (p[i].slot != TR_CUDA_PICK_NONE && touched++ == TR_CUDA_PICK_SLOTS)
            break;
    return i;
}

void tr_cuda_sample(struct tr_dev *dev, const struct tr_cuda_sampler *s,
                    const struct tr_cuda_logits *logits, const struct tr_cuda_pick *host,
                    const struct tr_cuda_pick *picks, const uint32_t *words, uint32_t n,
                    struct tr_cuda_picked *out)
{
    struct sample_call c = {};
    struct carver r = {(char *)s->room, 0};
    carve_call(&r, s, &c);
    c.x = logits->x;
    c.places = logits->places;
    c.ids = logits->kv->ids;
    c.words = words;
    for (uint32_t from = 0, end; from < n; from = end) {
        end = wave_end(host, from, n);
        struct needs w = needs_of(host + from, end - from);
        c.picks = picks + from;
        c.out = out + from;
        sample_maxima(dev, &c, end - from, false);
        if (w.logprobs) {
            sample_sums(dev, &c, end - from, false);
            sample_alternatives(dev, &c, end - from);
        }
        if (w.touched)
            sample_touch(dev, &c, end - from);
        if (w.changed)
            sample_maxima(dev, &c, end - from, true);
        if (w.sums)
            sample_sums(dev, &c, end - from, true);
        if (w.chosen)
            sample_choose(dev, &c, end - from);
    }
}
