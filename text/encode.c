/* SPDX-License-Identifier: Apache-2.0 */
/* text/encode.c - see encode.h. */
#include "text/encode.h"

#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretok.h"
#include "text/spm.h"
#include "base/utf8.h"
#include "text/vocab_priv.h"

#include <errno.h>

/* One call of tr_encode. */
struct encoding {
    const struct tr_vocab *v;
    struct tr_ids out;
    struct tr_pretok_run *words; /* made when the first word comes */
    struct tr_nfc_run normal;
    struct tr_bpe_run merges;
    struct tr_spm_run joins;
};

/* The sim vocabulary: the longest piece at each place.  Each byte is a piece, so there is one. */
static void encode_longest(struct encoding *e, const char *p, size_t len)
{
    for (size_t i = 0; i < len;) {
        int32_t id = tr_trie_longest(&e->v->pieces, e->v, p + i, len - i);
        size_t n = 1;
        if (id >= 0) {
            tr_ids_push(&e->out, id);
            tr_vocab_bytes(e->v, id, &n);
        }
        i += n;
    }
}

static int encode_valid(struct encoding *e, const char *p, size_t len)
{
    if (e->v->nfc && !(p = tr_nfc_text(e->v->nfc, &e->normal, p, &len)))
        return -ENOMEM;
    for (size_t pos = 0, end; pos < len; pos = end) {
        int rc = tr_pretok_next(e->v->pretok, e->words, p, len, pos, &end);
        if (rc == 0)
            rc = tr_bpe_word(e->v->bpe, &e->merges, p + pos, end - pos, &e->out);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Byte-level BPE. */
static int encode_words(struct encoding *e, const char *p, size_t len)
{
    if (!e->words && !(e->words = tr_pretok_run_new(e->v->pretok)))
        return -ENOMEM;
    for (size_t pos = 0; pos < len;) {
        size_t good = tr_utf8_valid_prefix(p + pos, len - pos);
        int rc = encode_valid(e, p + pos, good);
        pos += good;
        size_t bad = pos;
        while (rc == 0 && bad < len &&
               tr_utf8_valid_prefix(p + bad, len - bad < 4 ? len - bad : 4) == 0)
            bad += tr_utf8_bad_len(p + bad, len - bad);
        if (rc == 0 && bad > pos)
            rc = tr_bpe_word(e->v->bpe, &e->merges, p + pos, bad - pos, &e->out);
        if (rc < 0)
            return rc;
        pos = bad;
    }
    return 0;
}

/* Text without special tokens; `ends` as in spm.h. */
static int encode_plain(struct encoding *e, const char *p, size_t len, bool ends)
{
    if (len == 0)
        return 0;
    if (e->v->spm)
        return tr_spm_text(e->v->spm, &e->joins, p, len, ends, &e->out);
    if (e->v->bpe)
        return encode_words(e, p, len);
    encode_longest(e, p, len);
    return 0;
}

/* Where control tokens may stand: the gaps between what users typed. */
struct gaps {
    const struct tr_span *user;
    size_t n;
    size_t next; /* first span that ends beyond the place asked for last */
};

/* How far a control token that starts at `at` may reach: to the next span, 0 within one.  Places are
 * asked for in ascending order. */
static size_t gap_at(struct gaps *g, size_t at, size_t len)
{
    while (g->next < g->n &&
           (g->user[g->next].end <= at || g->user[g->next].end <= g->user[g->next].start))
        g->next++;
    if (g->next == g->n)
        return len - at;
    if (g->user[g->next].start <= at)
        return 0;
    return (g->user[g->next].start < len ? g->user[g->next].start : len) - at;
}

/* The special token at text[at], -1 if there is none. */
static int32_t special_at(const struct tr_vocab *v, const char *text, size_t len, size_t at,
                          struct gaps *gaps)
{
    int32_t id = -1;

    if (tr_trie_may_start(&v->user, text[at]))
        id = tr_trie_longest(&v->user, v, text + at, len - at);
    if (gaps && tr_trie_may_start(&v->control, text[at])) {
        size_t room = gap_at(gaps, at, len);
        int32_t c = room ? tr_trie_longest(&v->control, v, text + at, room) : -1;
        size_t clen = 0;
        size_t ulen = 0;
        tr_vocab_bytes(v, c, &clen);
        tr_vocab_bytes(v, id, &ulen);
        if (clen > ulen)
            id = c;
    }
    return id;
}

static int encode(struct encoding *e, const char *text, size_t len, struct gaps *gaps)
{
    size_t start = 0; /* of the plain text before the next special token */
    int rc = 0;

    for (size_t at = 0; at < len;) {
        int32_t id = special_at(e->v, text, len, at, gaps);
        if (id < 0) {
            at++;
            continue;
        }
        bool control = tr_vocab_is_control(e->v, id);
        rc = encode_plain(e, text + start, at - start, control);
        if (rc == 0 && e->v->spm)
            rc = tr_spm_special(e->v->spm, &e->joins, control, &e->out);
        if (rc < 0)
            return rc;
        tr_ids_push(&e->out, id);
        size_t n;
        tr_vocab_bytes(e->v, id, &n);
        at += n;
        start = at;
    }
    return encode_plain(e, text + start, len - start, true);
}

static int run(const struct tr_vocab *v, const char *text, size_t len, struct gaps *gaps,
               int32_t *ids, size_t cap, size_t *n)
{
    struct encoding e = {.v = v, .out = {ids, cap, 0}};

    if (len > TR_ENCODE_TEXT_MAX)
        return -E2BIG;
    int rc = encode(&e, text, len, gaps);
    tr_pretok_run_free(e.words);
    tr_nfc_run_fini(&e.normal);
    tr_bpe_run_fini(&e.merges);
    tr_spm_run_fini(&e.joins);
    if (rc < 0)
        return rc;
    *n = e.out.n;
    return e.out.n > cap ? -ENOSPC : 0;
}

int tr_encode(const struct tr_vocab *v, const char *text, size_t len, bool parse_special,
              int32_t *ids, size_t cap, size_t *n)
{
    struct gaps all = {0};

    return run(v, text, len, parse_special ? &all : NULL, ids, cap, n);
}

int tr_encode_spans(const struct tr_vocab *v, const char *text, size_t len,
                    const struct tr_span *user, size_t n_user, int32_t *ids, size_t cap, size_t *n)
{
    struct gaps gaps = {.user = user, .n = n_user};

    return run(v, text, len, &gaps, ids, cap, n);
}

size_t tr_encode_least(const struct tr_vocab *v, const char *text, size_t len)
{
    /* NFC makes one character of three at the most, and U+2581 is three bytes where a piece has a blank. */
    size_t most = v->longest * (v->nfc || v->spm ? 3 : 1);

    if (!most || (v->spm && !tr_spm_keeps_all(v->spm)))
        return 0;
    if (v->bpe) {
        size_t kept = tr_bpe_kept(v->bpe, text, len);
        if (v->nfc && kept < len) /* which bytes it will have is not known */
            return 0;
        len = kept;
    }
    return (len + most - 1) / most;
}
