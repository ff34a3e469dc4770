/* SPDX-License-Identifier: Apache-2.0 */
/* text/spm.c - see spm.h. */
#include "text/spm.h"

#include "base/hex.h"
#include "base/utf8.h"
#include "text/vocab_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

struct tr_spm {
    const struct tr_vocab *v;
    struct tr_spm_rules rules;
    struct tr_index pieces; /* those that joining may make */
    uint32_t *rank;         /* [v->size] of scores: the highest score has the lowest */
    int32_t byte_id[256];   /* -1: the vocabulary lacks it */
    size_t longest;         /* of `pieces`, in bytes */
    bool crosses[256];      /* bytes behind which some piece has a blank */
};

/* A piece of the word while it is put together, at the place of its first byte.  The next one starts
 * where it ends. */
struct tr_spm_sym {
    uint32_t len;
    uint32_t prev; /* place of the one before, NONE at the start */
    int32_t id;    /* -1: a character that has not been looked up */
    int32_t both;  /* the piece it makes with the next one; -1 if none, or if it is gone */
};

/* ---- the file's way of writing ---- */

static bool is_mark(const char *p, size_t left)
{
    return left >= 3 && memcmp(p, "\xe2\x96\x81", 3) == 0;
}

size_t tr_spm_unmap(const char *text, size_t len, char *out)
{
    size_t n = 0;

    for (size_t i = 0; i < len; n++) {
        bool mark = is_mark(text + i, len - i);
        out[n] = mark ? ' ' : text[i];
        i += mark ? 3 : 1;
    }
    return n;
}

int tr_spm_byte(const char *text, size_t len)
{
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    int high = tr_hex_digit(text[3]);
    int low = tr_hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

/* ---- building ---- */

/* Floats in descending order become integers in ascending order (the bits of an IEEE float sort like
 * an integer with a sign). */
static uint32_t rank_of_score(float score)
{
    uint32_t bits;
    float s = score + 0.0f; /* -0 is 0 */

    memcpy(&bits, &s, sizeof(bits));
    return bits & 0x80000000U ? bits : ~bits & 0x7fffffffU;
}

static int read_scores(struct tr_spm *s, struct tr_gguf_array *scores, struct tr_errbuf *err)
{
    for (uint32_t id = 0; id < s->v->size; id++) {
        double x;
        if (tr_gguf_next_f64(scores, &x) < 0)
            return tr_errf(err, -EINVAL, "tokenizer.ggml.scores is no array of numbers");
        if (isnan(x))
            return tr_errf(err, -EINVAL, "tokenizer.ggml.scores[%u] is no number", id);
        s->rank[id] = rank_of_score((float)x);
    }
    return 0;
}

static void survey(struct tr_spm *s)
{
    for (int c = 0; c < 256; c++)
        s->byte_id[c] = -1;
    for (uint32_t id = 0; id < s->v->size; id++) {
        size_t len;
        const char *p = tr_vocab_bytes(s->v, (int32_t)id, &len);
        if (s->v->flags[id] & TR_PIECE_BYTE) {
            int32_t *b = &s->byte_id[(unsigned char)*p];
            *b = *b < 0 ? (int32_t)id : *b;
        }
        if (s->v->flags[id] & TR_PIECE_NOT_JOINED)
            continue;
        s->longest = len > s->longest ? len : s->longest;
        for (size_t i = 1; i < len; i++)
            if (p[i] == ' ')
                s->crosses[(unsigned char)p[i - 1]] = true;
    }
}

struct tr_spm *tr_spm_open(const struct tr_vocab *v, struct tr_gguf_array scores,
                           struct tr_spm_rules rules, struct tr_errbuf *err)
{
    struct tr_spm *s = calloc(1, sizeof(*s));

    if (!s)
        goto nomem;
    s->v = v;
    s->rules = rules;
    s->rank = malloc((size_t)v->size * sizeof(*s->rank));
    if (!s->rank || tr_index_init(&s->pieces, v, 0, TR_PIECE_NOT_JOINED) < 0)
        goto nomem;
    if (read_scores(s, &scores, err) < 0)
        goto fail;
    survey(s);
    return s;
nomem:
    tr_errf(err, 0, "out of memory for the scores of the vocabulary");
fail:
    tr_spm_close(s);
    return NULL;
}

void tr_spm_close(struct tr_spm *s)
{
    if (!s)
        return;
    tr_index_fini(&s->pieces);
    free(s->rank);
    free(s);
}

struct tr_spm_rules tr_spm_rules(const struct tr_spm *s)
{
    return s->rules;
}

bool tr_spm_keeps_all(const struct tr_spm *s)
{
    bool all = !s->rules.squeeze;

    for (int c = 0; c < 256; c++)
        all &= s->byte_id[c] >= 0;
    return all;
}

/* ---- one word ---- */

void tr_spm_run_fini(struct tr_spm_run *run)
{
    free(run->text);
    free(run->sym);
    tr_pairs_fini(&run->pairs);
    *run = (struct tr_spm_run){0};
}

/* Room for a word of n bytes. */
static int reserve(struct tr_spm_run *run, size_t n)
{
    if (tr_pairs_reserve(&run->pairs, n) < 0)
        return -ENOMEM;
    struct tr_spm_sym *sym = tr_pairs_room(run->sym, &run->cap, n, sizeof(*sym));
    if (!sym && n)
        return -ENOMEM;
    run->sym = sym;
    return 0;
}

/* Looks up the pair that starts at place i and puts it into the heap. */
static void offer(const struct tr_spm *s, struct tr_spm_run *run, const char *word, uint32_t n,
                  uint32_t i)
{
    struct tr_spm_sym *a = &run->sym[i];
    uint32_t next = i + a->len;

    a->both = -1;
    if (next == n || a->len + run->sym[next].len > s->longest)
        return;
    a->both = tr_index_find(&s->pieces, s->v, word + i, a->len + run->sym[next].len);
    if (a->both >= 0)
        tr_pairs_push(&run->pairs, (struct tr_pair){s->rank[a->both], i});
}

/* Joins the symbol at place i with the next one. */
static void join(const struct tr_spm *s, struct tr_spm_run *run, const char *word, uint32_t n,
                 uint32_t i)
{
    struct tr_spm_sym *a = &run->sym[i];
    struct tr_spm_sym *gone = &run->sym[i + a->len];

    a->id = a->both;
    a->len += gone->len;
    gone->both = -1; /* its entry in the heap is stale */
    if (i + a->len < n)
        run->sym[i + a->len].prev = i;
    offer(s, run, word, n, i);
    if (a->prev != NONE)
        offer(s, run, word, n, a->prev);
}

/* A character that is no piece. */
static void emit_bytes(const struct tr_spm *s, struct tr_spm_run *run, const char *p, size_t len,
                       struct tr_ids *out)
{
    bool spelt = true;

    for (size_t i = 0; i < len; i++)
        spelt &= s->byte_id[(unsigned char)p[i]] >= 0;
    for (size_t i = 0; spelt && i < len; i++)
        tr_ids_push(out, s->byte_id[(unsigned char)p[i]]);
    if (!spelt && !run->unknown && s->v->unk >= 0)
        tr_ids_push(out, s->v->unk);
    run->unknown = !spelt;
}

static void emit(const struct tr_spm *s, struct tr_spm_run *run, const char *word, uint32_t n,
                 struct tr_ids *out)
{
    for (uint32_t i = 0; i < n; i += run->sym[i].len) {
        const struct tr_spm_sym *a = &run->sym[i];
        int32_t id = a->id >= 0 ? a->id : tr_index_find(&s->pieces, s->v, word + i, a->len);
        if (id < 0) {
            emit_bytes(s, run, word + i, a->len, out);
            continue;
        }
        tr_ids_push(out, id);
        run->unknown = false;
    }
}

static int join_word(const struct tr_spm *s, struct tr_spm_run *run, const char *word, uint32_t n,
                     struct tr_ids *out)
{
    uint32_t prev = NONE;

    if (reserve(run, n) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < n;) {
        size_t len = tr_utf8_len((const unsigned char *)word + i, n - i);
        uint32_t step = len ? (uint32_t)len : 1; /* bytes that are no text go one by one */
        run->sym[i] = (struct tr_spm_sym){step, prev, -1, -1};
        prev = i;
        i += step;
    }
    for (uint32_t i = 0; i < n; i += run->sym[i].len)
        offer(s, run, word, n, i);
    while (run->pairs.n > 0) {
        struct tr_pair p = tr_pairs_pop(&run->pairs);
        /* Stale entries have another rank than the pair that is there now.  (An equal one says
         * the same of the new pair.) */
        int32_t both = run->sym[p.at].both;
        if (both >= 0 && s->rank[both] == p.rank)
            join(s, run, word, n, p.at);
    }
    emit(s, run, word, n, out);
    return 0;
}

/* ---- a text ---- */

/* Writes the text as the pieces have it to run->text and returns its length. */
static size_t with_blanks(const struct tr_spm *s, struct tr_spm_run *run, const char *p, size_t len,
                          bool ends)
{
    bool squeeze = s->rules.squeeze;
    bool after_blank = false;
    size_t n = 0;
    size_t i = 0;

    while (squeeze && !run->inside && i < len && p[i] == ' ')
        i++;
    if (i == len)
        return 0;
    if (s->rules.space_prefix && !run->inside)
        run->text[n++] = ' ';
    while (i < len) {
        bool mark = is_mark(p + i, len - i);
        if (!squeeze || p[i] != ' ' || !after_blank)
            run->text[n++] = mark ? ' ' : p[i];
        after_blank = p[i] == ' ';
        i += mark ? 3 : 1;
    }
    while (squeeze && ends && n > 0 && run->text[n - 1] == ' ')
        n--;
    return n;
}

/* The end of the word that starts at pos: the next blank with which nothing before it can be joined. */
static size_t word_end(const struct tr_spm *s, const char *text, size_t n, size_t pos)
{
    for (pos++; pos < n; pos++) {
        const char *blank = memchr(text + pos, ' ', n - pos);
        if (!blank)
            return n;
        pos = (size_t)(blank - text);
        if (!s->crosses[(unsigned char)text[pos - 1]])
            return pos;
    }
    return n;
}

int tr_spm_text(const struct tr_spm *s, struct tr_spm_run *run, const char *text, size_t len,
                bool ends, struct tr_ids *out)
{
    int rc = 0;

    if (len + 1 > run->text_cap) {
        char *bigger = malloc(len + 1);
        if (!bigger)
            return -ENOMEM;
        free(run->text);
        run->text = bigger;
        run->text_cap = len + 1;
    }
    size_t n = with_blanks(s, run, text, len, ends);
    run->inside |= n > 0;
    for (size_t pos = 0, end; rc == 0 && pos < n; pos = end) {
        end = word_end(s, run->text, n, pos);
        rc = join_word(s, run, run->text + pos, (uint32_t)(end - pos), out);
    }
    return rc;
}

int tr_spm_special(const struct tr_spm *s, struct tr_spm_run *run, bool control, struct tr_ids *out)
{
    int rc = 0;

    if (!control && !run->inside && s->rules.space_prefix)
        rc = join_word(s, run, " ", 1, out);
    run->inside = !control;
    run->unknown = false;
    return rc;
}
