/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_tool/sum.h"

#include "ledger_tool/columns.h"

#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 6, WORD_BYTES = TR_ROW_MODEL_BYTES };

static const char *const names[N] = {"requests",      "choices",           "prompt_tokens",
                                     "cached_tokens", "completion_tokens", "overrun_tokens"};

struct group {
    char word[TR_LT_BY_COUNT][WORD_BYTES]; /* [n_by] */
    uint64_t sum[N];
};

_Static_assert((int)TR_KEY_BYTES <= (int)WORD_BYTES && (int)TR_ROW_WORD_BYTES <= (int)WORD_BYTES,
               "words fit");

/* ---- adding ---- */

static int by_words(const void *a, const void *b)
{
    const struct group *x = a, *y = b;
    int d = 0;
    for (unsigned i = 0; i < TR_LT_BY_COUNT && !d; i++)
        d = strcmp(x->word[i], y->word[i]);
    return d;
}

static void day_of(int64_t us, char out[WORD_BYTES])
{
    time_t s = (time_t)(us / 1000000);
    struct tm t;
    out[0] = '\0';
    if (us > 0 && gmtime_r(&s, &t))
        strftime(out, WORD_BYTES, "%Y-%m-%d", &t);
}

static void name_group(const struct tr_lt_options *o, const struct tr_row *r, struct group *g)
{
    *g = (struct group){0};
    for (unsigned i = 0; i < o->n_by; i++) {
        if (o->by[i] == TR_LT_DAY)
            day_of(r->created_us, g->word[i]);
        else
            snprintf(g->word[i], WORD_BYTES, "%s",
                     o->by[i] == TR_LT_KEY     ? r->key
                     : o->by[i] == TR_LT_MODEL ? r->model
                                               : r->status);
    }
}

int tr_lt_sum_add(struct tr_lt_sums *s, const struct tr_row *r)
{
    const int64_t value[N] = {
        1, r->choices, r->prompt_tokens, r->cached_tokens, r->completion_tokens, r->overrun_tokens};
    struct group wanted;
    name_group(s->opt, r, &wanted);
    struct group **at = tfind(&wanted, &s->tree, by_words);
    if (!at) {
        struct group *g = malloc(sizeof(*g));
        at = g ? tsearch(memcpy(g, &wanted, sizeof(*g)), &s->tree, by_words) : NULL;
        if (!at) {
            free(g);
            return -ENOMEM;
        }
    }
    for (unsigned i = 0; i < N; i++) {
        (*at)->sum[i] += (uint64_t)value[i];
        s->total[i] += (uint64_t)value[i];
    }
    return 0;
}

/* ---- telling ---- */

static void widen(unsigned *width, size_t n)
{
    if (n > *width)
        *width = (unsigned)n;
}

/* As many columns as a terminal uses for it: UTF-8 in characters. */
static size_t columns(const char *s)
{
    size_t n = 0;
    for (; *s; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

static void cell(FILE *to, const char *s, unsigned width, bool number)
{
    int room = (int)width - (int)columns(s);
    fprintf(to, "%*s%s%*s", number ? room : 0, "", s, number ? 0 : room, "");
}

static const char *shown(const char *word)
{
    return *word ? word : "-";
}

/* g NULL: all groups together. */
static void line(const struct tr_lt_sums *s, FILE *to, const struct group *g)
{
    const uint64_t *sum = g ? g->sum : s->total;
    unsigned n_by = s->opt->n_by;
    for (unsigned i = 0; i < n_by; i++) {
        cell(to, g ? shown(g->word[i]) : i ? "" : "all", s->width[i], false);
        fputs("  ", to);
    }
    for (unsigned i = 0; i < N; i++) {
        char text[32];
        snprintf(text, sizeof(text), "%" PRIu64, sum[i]);
        cell(to, text, s->width[n_by + i], true);
        fputs(i + 1 < N ? "  " : "\n", to);
    }
}

struct walk {
    struct tr_lt_sums *s;
    FILE *to;
    unsigned n;
};

static bool is_turn(VISIT v)
{
    return v == postorder || v == leaf; /* in order */
}

static void measure(const void *node, VISIT v, void *arg)
{
    struct walk *w = arg;
    const struct group *g = *(const struct group *const *)node;
    for (unsigned i = 0; is_turn(v) && i < w->s->opt->n_by; i++)
        widen(&w->s->width[i], columns(shown(g->word[i])));
    w->n += is_turn(v);
}

static void print_line(const void *node, VISIT v, void *arg)
{
    const struct walk *w = arg;
    const struct group *g = *(const struct group *const *)node;
    if (is_turn(v))
        line(w->s, w->to, g);
}

static void print_columns(struct tr_columns *c, const struct tr_lt_options *o,
                          const struct group *g)
{
    for (unsigned i = 0; i < o->n_by; i++)
        tr_columns_text(c, tr_lt_by_word[o->by[i]], g ? g->word[i] : "");
    for (unsigned i = 0; i < N; i++)
        tr_columns_number(c, names[i], g ? (int64_t)g->sum[i] : 0);
    tr_columns_end(c);
}

static void print_row(const void *node, VISIT v, void *arg)
{
    const struct walk *w = arg;
    struct tr_columns c = {.to = w->to, .format = w->s->opt->format};
    if (is_turn(v))
        print_columns(&c, w->s->opt, *(const struct group *const *)node);
}

static void print_table(struct tr_lt_sums *s, FILE *to)
{
    unsigned n_by = s->opt->n_by;
    struct walk w = {s, to, 0};
    for (unsigned i = 0; i < n_by; i++)
        widen(&s->width[i], strlen(tr_lt_by_word[s->opt->by[i]]));
    for (unsigned i = 0; i < N; i++) {
        char text[32];
        widen(&s->width[n_by + i], strlen(names[i]));
        widen(&s->width[n_by + i], (size_t)snprintf(text, sizeof(text), "%" PRIu64, s->total[i]));
    }
    twalk_r(s->tree, measure, &w);
    for (unsigned i = 0; i < n_by + N; i++) {
        cell(to, i < n_by ? tr_lt_by_word[s->opt->by[i]] : names[i - n_by], s->width[i], i >= n_by);
        fputs(i + 1 < n_by + N ? "  " : "\n", to);
    }
    twalk_r(s->tree, print_line, &w);
    if (w.n != 1)
        line(s, to, NULL);
}

void tr_lt_sum_print(struct tr_lt_sums *s, FILE *to)
{
    struct walk w = {s, to, 0};
    struct tr_columns head = {.to = to, .format = TR_LT_CSV, .head = true};
    if (s->opt->format == TR_LT_TABLE) {
        print_table(s, to);
        return;
    }
    if (s->opt->format == TR_LT_CSV)
        print_columns(&head, s->opt, NULL);
    twalk_r(s->tree, print_row, &w);
    struct tr_columns none = {.to = to, .format = s->opt->format};
    if (!s->tree && !s->opt->n_by) /* of nothing, too, there is a sum */
        print_columns(&none, s->opt, &(struct group){0});
}

void tr_lt_sum_fini(struct tr_lt_sums *s)
{
    tdestroy(s->tree, free);
    s->tree = NULL;
}
