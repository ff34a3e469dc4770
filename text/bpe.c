/* SPDX-License-Identifier: Apache-2.0 */
/* text/bpe.c - see bpe.h. */
#include "text/bpe.h"

#include "base/utf8.h"
#include "text/vocab_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NO_RANK UINT32_MAX
#define NONE UINT32_MAX

struct tr_bpe {
    const struct tr_vocab *v;
    struct tr_index pieces; /* those BPE may produce */
    int32_t byte_id[256];   /* -1: the vocabulary lacks it */
    uint32_t n_merges;
    int32_t *joined; /* [n_merges] what a merge gives */
    struct pair_slot {
        int32_t left; /* -1: free */
        int32_t right;
        uint32_t rank;
    } * pair; /* open addressing, at most half full */
    size_t mask;
};

/* A piece of the word while it is put together.  prev and next are indices, NONE at the ends. */
struct tr_bpe_sym {
    int32_t id;
    uint32_t prev;
    uint32_t next;
    uint32_t rank; /* of the merge with the next one; NO_RANK if there is none or it is gone */
};

ptrdiff_t tr_bpe_unmap(const char *text, size_t len, char *out)
{
    size_t n = 0;

    /* The alphabet lies below U+0144: one or two bytes each. */
    for (size_t i = 0; i < len;) {
        unsigned c = (unsigned char)text[i++];
        if (c >= 0x80) {
            if (c < 0xc2 || c > 0xc5 || i == len || ((unsigned char)text[i] & 0xc0) != 0x80)
                return -1;
            c = (c & 0x1f) << 6 | ((unsigned char)text[i++] & 0x3f);
        }
        if ((c >= 0x21 && c <= 0x7e) || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff))
            out[n++] = (char)c;
        else if (c >= 0x100 && c <= 0x120) /* bytes 00..20 */
            out[n++] = (char)(c - 0x100);
        else if (c >= 0x121 && c <= 0x142) /* bytes 7f..a0 */
            out[n++] = (char)(c - 0x121 + 0x7f);
        else if (c == 0x143)
            out[n++] = (char)0xad;
        else
            return -1;
    }
    return (ptrdiff_t)n;
}

static size_t pair_hash(int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15ULL;

    return (size_t)(h ^ (h >> 32));
}

static struct pair_slot *pair_slot(const struct tr_bpe *b, int32_t left, int32_t right)
{
    size_t i = pair_hash(left, right) & b->mask;

    while (b->pair[i].left >= 0 && (b->pair[i].left != left || b->pair[i].right != right))
        i = (i + 1) & b->mask;
    return &b->pair[i];
}

static uint32_t rank_of(const struct tr_bpe *b, int32_t left, int32_t right)
{
    const struct pair_slot *s = pair_slot(b, left, right);

    return s->left < 0 ? NO_RANK : s->rank;
}

/* One line of the file: "left right", in the alphabet. */
static int read_merge(struct tr_bpe *b, uint32_t rank, struct tr_str line, struct tr_errbuf *err)
{
    char bytes[2 * TR_VOCAB_PIECE_MAX];
    /* A piece may begin with a blank only in a file that is wrong anyway: blanks are mapped. */
    const char *gap = line.len > 1 ? memchr(line.p + 1, ' ', line.len - 1) : NULL;
    int shown = line.len < 64 ? (int)line.len : 64;

    if (!gap || line.len > sizeof(bytes))
        return tr_errf(err, -EINVAL, "tokenizer.ggml.merges[%u] is no pair of pieces: \"%.*s\"",
                       rank, shown, line.p);
    size_t llen = (size_t)(gap - line.p);
    ptrdiff_t nl = tr_bpe_unmap(line.p, llen, bytes);
    ptrdiff_t nr = nl < 0 ? -1 : tr_bpe_unmap(gap + 1, line.len - llen - 1, bytes + nl);
    int32_t left = -1;
    int32_t right = -1;
    int32_t both = -1;
    if (nr >= 0) {
        left = tr_index_find(&b->pieces, b->v, bytes, (size_t)nl);
        right = tr_index_find(&b->pieces, b->v, bytes + nl, (size_t)nr);
        both = tr_index_find(&b->pieces, b->v, bytes, (size_t)(nl + nr));
    }
    if (left < 0 || right < 0 || both < 0)
        return tr_errf(err, -EINVAL,
                       "tokenizer.ggml.merges[%u] names a piece that is not in the vocabulary: "
                       "\"%.*s\"",
                       rank, shown, line.p);
    b->joined[rank] = both;
    struct pair_slot *s = pair_slot(b, left, right);
    if (s->left < 0)
        *s = (struct pair_slot){left, right, rank};
    return 0;
}

static int merge_word(const struct tr_bpe *b, struct tr_bpe_run *run, const char *word, size_t len,
                      struct tr_ids *out);

/* Most words of a text are one piece in the end.  Which pieces those are is found out once, so
 * that such a word costs one look-up. */
static int mark_whole(struct tr_bpe *b, struct tr_vocab *v, bool ignore_merges)
{
    struct tr_bpe_run run = {0};
    int rc = 0;

    for (uint32_t id = 0; id < v->size && rc == 0; id++) {
        int32_t got[2];
        struct tr_ids ids = {got, 2, 0};
        size_t len;
        const char *p = tr_vocab_bytes(v, (int32_t)id, &len);
        if (len == 0 || (v->flags[id] & TR_PIECE_NOT_JOINED) ||
            tr_index_find(&b->pieces, v, p, len) != (int32_t)id)
            continue;
        if (!ignore_merges)
            rc = merge_word(b, &run, p, len, &ids);
        if (ignore_merges || (rc == 0 && ids.n == 1 && got[0] == (int32_t)id))
            v->flags[id] |= TR_PIECE_WHOLE;
    }
    tr_bpe_run_fini(&run);
    return rc;
}

struct tr_bpe *tr_bpe_open(struct tr_vocab *v, struct tr_gguf_array merges, bool ignore_merges,
                           struct tr_errbuf *err)
{
    struct tr_bpe *b = calloc(1, sizeof(*b));
    size_t slots = 16;

    if (!b)
        goto nomem;
    if (merges.len >= NO_RANK / 4) {
        tr_errf(err, 0, "tokenizer.ggml.merges has too many elements");
        goto fail;
    }
    while (slots < merges.len * 2)
        slots *= 2;
    b->v = v;
    b->mask = slots - 1;
    b->n_merges = (uint32_t)merges.len;
    b->pair = malloc(slots * sizeof(*b->pair));
    b->joined = calloc(merges.len + 1, sizeof(*b->joined));
    if (!b->pair || !b->joined || tr_index_init(&b->pieces, v, 0, TR_PIECE_NOT_JOINED) < 0)
        goto nomem;
    for (size_t i = 0; i < slots; i++)
        b->pair[i].left = -1;
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        b->byte_id[c] = tr_index_find(&b->pieces, v, &byte, 1);
    }
    for (uint32_t rank = 0; rank < b->n_merges; rank++) {
        struct tr_str line;
        if (tr_gguf_next_str(&merges, &line) < 0) {
            tr_errf(err, 0, "tokenizer.ggml.merges is no array of strings");
            goto fail;
        }
        if (read_merge(b, rank, line, err) < 0)
            goto fail;
    }
    if (mark_whole(b, v, ignore_merges) < 0)
        goto nomem;
    return b;
nomem:
    tr_errf(err, 0, "out of memory for the merges of the vocabulary");
fail:
    tr_bpe_close(b);
    return NULL;
}

void tr_bpe_close(struct tr_bpe *b)
{
    if (!b)
        return;
    tr_index_fini(&b->pieces);
    free(b->pair);
    free(b->joined);
    free(b);
}

size_t tr_bpe_kept(const struct tr_bpe *b, const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += b->byte_id[(unsigned char)text[i]] >= 0;
    return n;
}

void tr_bpe_run_fini(struct tr_bpe_run *run)
{
    free(run->sym);
    tr_pairs_fini(&run->pairs);
    *run = (struct tr_bpe_run){0};
}

/* Room for n symbols. */
static int reserve(struct tr_bpe_run *run, size_t n)
{
    if (tr_pairs_reserve(&run->pairs, n) < 0)
        return -ENOMEM;
    struct tr_bpe_sym *sym = tr_pairs_room(run->sym, &run->cap, n, sizeof(*sym));
    if (!sym && n)
        return -ENOMEM;
    run->sym = sym;
    return 0;
}

/* Looks up the pair that starts at symbol i and puts it into the heap. */
static void offer(const struct tr_bpe *b, struct tr_bpe_run *run, uint32_t i)
{
    struct tr_bpe_sym *s = &run->sym[i];

    s->rank = s->next == NONE ? NO_RANK : rank_of(b, s->id, run->sym[s->next].id);
    if (s->rank != NO_RANK)
        tr_pairs_push(&run->pairs, (struct tr_pair){s->rank, i});
}

/* Joins symbol i with the next one. */
static void join(const struct tr_bpe *b, struct tr_bpe_run *run, uint32_t i)
{
    struct tr_bpe_sym *s = &run->sym[i];
    struct tr_bpe_sym *gone = &run->sym[s->next];

    s->id = b->joined[s->rank];
    s->next = gone->next;
    gone->rank = NO_RANK; /* its entry in the heap is stale */
    if (s->next != NONE)
        run->sym[s->next].prev = i;
    offer(b, run, i);
    if (s->prev != NONE)
        offer(b, run, s->prev);
}

static int merge_word(const struct tr_bpe *b, struct tr_bpe_run *run, const char *word, size_t len,
                      struct tr_ids *out)
{
    uint32_t n = 0;

    if (reserve(run, len) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < len; i++) {
        int32_t id = b->byte_id[(unsigned char)word[i]];
        if (id < 0)
            continue;
        run->sym[n] = (struct tr_bpe_sym){id, n ? n - 1 : NONE, n + 1, NO_RANK};
        n++;
    }
    if (n == 0)
        return 0;
    run->sym[n - 1].next = NONE;
    for (uint32_t i = 0; i < n; i++)
        offer(b, run, i);
    while (run->pairs.n > 0) {
        struct tr_pair p = tr_pairs_pop(&run->pairs);
        /* Stale entries have another rank than the pair that is there now.  (An equal one would
         * be the same pair.) */
        if (run->sym[p.at].rank == p.rank)
            join(b, run, p.at);
    }
    for (uint32_t i = 0; i != NONE; i = run->sym[i].next)
        tr_ids_push(out, run->sym[i].id);
    return 0;
}

/* ---- words of one byte ---- */

/* Pieces next to each other that are the same. */
struct group {
    int32_t id;
    uint32_t n;
};

enum {
    SAME_MIN = 64,   /* bytes; the heap is as fast for a shorter word */
    SAME_GROUPS = 64 /* one for each length of a piece and few more; else the heap does it */
};

/* Takes out what is empty and joins what is the same. */
static size_t tidy(struct group *g, size_t n)
{
    size_t out = 0;

    for (size_t i = 0; i < n; i++) {
        if (g[i].n == 0)
            continue;
        if (out && g[out - 1].id == g[i].id)
            g[out - 1].n += g[i].n;
        else
            g[out++] = g[i];
    }
    return out;
}

/* The lowest rank, leftmost: within group *at, or (*across) of its last piece with the next group's
 * first. */
static uint32_t lowest(const struct tr_bpe *b, const struct group *g, size_t n, size_t *at,
                       bool *across)
{
    uint32_t best = NO_RANK;

    for (size_t i = 0; i < n; i++) {
        uint32_t within = g[i].n > 1 ? rank_of(b, g[i].id, g[i].id) : NO_RANK;
        uint32_t next = i + 1 < n ? rank_of(b, g[i].id, g[i + 1].id) : NO_RANK;
        if (within < best) {
            best = within;
            *at = i;
            *across = false;
        }
        if (next < best) {
            best = next;
            *at = i;
            *across = true;
        }
    }
    return best;
}

/* Whether a pair that comes to be when group i is joined in pairs to `both` would go before the rest
 * of them.  No merges that were learnt from text do that. */
static bool disturbs(const struct tr_bpe *b, const struct group *g, size_t n, size_t i,
                     int32_t both, uint32_t rank)
{
    return rank_of(b, both, both) < rank || rank_of(b, both, g[i].id) < rank ||
           (i > 0 && rank_of(b, g[i - 1].id, both) < rank) ||
           (i + 1 < n && rank_of(b, both, g[i + 1].id) < rank);
}

/* A word of one byte, len times: what merge_word does, a whole group of equal pairs at a time, which
 * the heap would take one by one from the left as well.  Long runs of blanks are usual, and a request
 * may be nothing else.  False: nothing was done. */
static bool merge_same(const struct tr_bpe *b, int32_t id, uint32_t len, struct tr_ids *out)
{
    struct group g[SAME_GROUPS + 2] = {{id, len}};
    size_t n = 1, at = 0;
    bool across = false;

    for (uint32_t rank; (rank = lowest(b, g, n, &at, &across)) != NO_RANK; n = tidy(g, n)) {
        int32_t both = b->joined[rank];
        size_t more = across ? 1 : 2;
        if (n + more > SAME_GROUPS || (!across && disturbs(b, g, n, at, both, rank)))
            return false;
        memmove(&g[at + 1 + more], &g[at + 1], (n - at - 1) * sizeof(*g));
        n += more;
        if (across) {
            g[at].n--;
            g[at + 1] = (struct group){both, 1};
            g[at + 2].n--;
        } else {
            g[at + 1] = (struct group){both, g[at].n / 2};
            g[at + 2] = (struct group){g[at].id, g[at].n % 2};
            g[at].n = 0;
        }
    }
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < g[i].n; k++)
            tr_ids_push(out, g[i].id);
    return true;
}

int tr_bpe_word(const struct tr_bpe *b, struct tr_bpe_run *run, const char *word, size_t len,
                struct tr_ids *out)
{
    if (len <= TR_VOCAB_PIECE_MAX) {
        int32_t id = tr_index_find(&b->pieces, b->v, word, len);
        if (id >= 0 && (b->v->flags[id] & TR_PIECE_WHOLE)) {
            tr_ids_push(out, id);
            return 0;
        }
    }
    if (len >= SAME_MIN && memcmp(word, word + 1, len - 1) == 0) {
        int32_t id = b->byte_id[(unsigned char)word[0]];
        if (id >= 0 && merge_same(b, id, (uint32_t)len, out))
            return 0;
    }
    return merge_word(b, run, word, len, out);
}
