/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/pass.h"

#include "base/assert.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

_Static_assert((int)TR_KV_BLOCK == (int)TR_OPS_KV_BLOCK, "one block size in all layers");

/* Where things lie in the region. */
struct parts {
    size_t tokens, out_row, places, out_place, tables;
};

static size_t after(size_t at, uint64_t n, size_t size)
{
    enum { ALIGN = 16 };
    return (at + (size_t)n * size + ALIGN - 1) / ALIGN * ALIGN;
}

static struct parts parts_of(uint32_t n_rows, uint32_t n_out)
{
    struct parts p = {0};
    p.out_row = after(p.tokens, n_rows, sizeof(uint32_t));
    p.places = after(p.out_row, n_out, sizeof(uint32_t));
    p.out_place = after(p.places, n_rows, sizeof(struct tr_place));
    p.tables = after(p.out_place, n_out, sizeof(struct tr_place));
    return p;
}

static uint32_t blocks_of(uint32_t n_pos)
{
    return n_pos / TR_KV_BLOCK + (n_pos % TR_KV_BLOCK != 0);
}

size_t tr_pass_bytes(const struct tr_pass_bounds *b)
{
    uint32_t n_seqs = b->max_seqs < b->max_rows ? b->max_seqs : b->max_rows;
    return after(parts_of(b->max_rows, b->max_out).tables, (uint64_t)n_seqs * blocks_of(b->n_ctx),
                 sizeof(uint32_t));
}

int tr_pass_open(struct tr_pass *p, const struct tr_pass_bounds *b, const struct tr_ops *ops,
                 struct tr_dev *dev, struct tr_errbuf *err)
{
    *p = (struct tr_pass){.ops = ops, .dev = dev, .b = *b, .len = tr_pass_bytes(b)};
    p->host = ops->take_host(dev, p->len);
    p->mem = p->host && ops->apart ? ops->take(dev, p->len, false) : p->host;
    if (p->mem)
        return 0;
    tr_pass_close(p);
    return tr_errf(err, -ENOMEM, "no memory for the plan of a pass: %zu bytes (%" PRIu32 " rows)",
                   tr_pass_bytes(b), b->max_rows);
}

void tr_pass_close(struct tr_pass *p)
{
    if (p->mem && p->mem != p->host)
        p->ops->give(p->dev, p->mem, p->len);
    if (p->host)
        p->ops->give_host(p->dev, p->host, p->len);
    *p = (struct tr_pass){0};
}

/* The row after the last of the sequence of row i: they stand together. */
static uint32_t run_end(const struct tr_batch *b, uint32_t i)
{
    uint32_t end = i + 1;
    while (end < b->n_rows && b->rows[end].seq == b->rows[i].seq)
        end++;
    return end;
}

/* Where operations find the first n blocks of a sequence. */
static const uint32_t *place_table(struct tr_pass *p, const struct tr_kv_table *t, uint32_t n)
{
    TR_ASSERT(n <= t->n_blocks);
    if (!p->ops->apart)
        return t->blocks;
    size_t at = p->used;
    TR_ASSERT(n * sizeof(uint32_t) <= p->len - at);
    memcpy(p->host + at, t->blocks, n * sizeof(uint32_t));
    p->used += n * sizeof(uint32_t);
    return (const uint32_t *)(const void *)(p->mem + at);
}

/* The arrays of the plan, on the host. */
struct filled {
    uint32_t *tokens, *out_row;
    struct tr_place *places, *out_place;
};

static void set_row(struct tr_pass *p, const struct filled *h, uint32_t i,
                    const struct tr_batch_row *r, const struct tr_kv_table *t,
                    const uint32_t *blocks)
{
    TR_ASSERT(r->token < p->b.n_vocab && r->pos < p->b.n_ctx);
    TR_ASSERT(t->blocks[r->pos / TR_KV_BLOCK] < p->b.n_kv_blocks);
    h->tokens[i] = r->token;
    h->places[i] = (struct tr_place){.blocks = blocks, .pos = r->pos};
    p->n_pos = r->pos < p->n_pos ? p->n_pos : r->pos + 1;
    if (r->out == TR_NO_LOGITS)
        return;
    TR_ASSERT(r->out < p->n_out && h->out_row[r->out] == UINT32_MAX);
    h->out_row[r->out] = i;
    h->out_place[r->out] = h->places[i];
}

/* A row that is not there, with logits of its own. */
static void set_nobody(const struct filled *h, uint32_t i)
{
    h->tokens[i] = 0;
    h->out_row[i] = i;
    h->places[i] = h->out_place[i] = (struct tr_place){.pos = TR_NO_POS};
}

void tr_pass_set(struct tr_pass *p, const struct tr_batch *b, uint32_t n_rows, uint32_t n_out)
{
    TR_ASSERT(n_rows >= 1 && n_rows <= p->b.max_rows && n_out <= p->b.max_out);
    TR_ASSERT(b->n_rows == n_rows ? b->n_out == n_out
                                  : b->n_rows < n_rows && b->n_out == b->n_rows && n_out == n_rows);
    struct parts at = parts_of(n_rows, n_out);
    struct filled h = {(uint32_t *)(void *)(p->host + at.tokens),
                       (uint32_t *)(void *)(p->host + at.out_row),
                       (struct tr_place *)(void *)(p->host + at.places),
                       (struct tr_place *)(void *)(p->host + at.out_place)};
    p->used = at.tables;
    p->n_pos = 0;
    p->n_rows = n_rows;
    p->n_out = n_out;
    for (uint32_t o = 0; o < b->n_out; o++)
        h.out_row[o] = UINT32_MAX;
    for (uint32_t i = 0, end; i < b->n_rows; i = end) {
        end = run_end(b, i);
        TR_ASSERT(b->rows[i].seq < b->n_seqs);
        const struct tr_kv_table *t = &b->seqs[b->rows[i].seq];
        const uint32_t *blocks = place_table(p, t, b->rows[end - 1].pos / TR_KV_BLOCK + 1);
        for (uint32_t k = i; k < end; k++)
            set_row(p, &h, k, &b->rows[k], t, blocks);
    }
    for (uint32_t o = 0; o < b->n_out; o++)
        TR_ASSERT(h.out_row[o] != UINT32_MAX);
    for (uint32_t i = b->n_rows; i < n_rows; i++)
        set_nobody(&h, i);
    p->tokens = (const uint32_t *)(const void *)(p->mem + at.tokens);
    p->out_row = (const uint32_t *)(const void *)(p->mem + at.out_row);
    p->places = (const struct tr_place *)(const void *)(p->mem + at.places);
    p->out_place = (const struct tr_place *)(const void *)(p->mem + at.out_place);
    p->ops->upload(p->dev, p->mem, p->host, p->used);
}
