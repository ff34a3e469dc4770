/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_tool/gather.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the spool ---- */

/* Room for one more; NULL: no memory. */
static void *grow(void **list, size_t n, size_t *cap, size_t size)
{
    if (n == *cap) {
        size_t more = *cap ? 2 * *cap : 256;
        void *p = reallocarray(*list, more, size);
        if (!p)
            return NULL;
        *list = p;
        *cap = more;
    }
    return (char *)*list + n * size;
}

static void take_entry(void *arg, const struct tr_entry *e)
{
    struct tr_gather *g = arg;
    if (e->kind == TR_ENTRY_BILL) {
        struct tr_row *r = grow((void **)&g->bill, g->n_bill, &g->cap_bill, sizeof(*r));
        g->no_memory |= !r;
        if (r)
            g->bill[g->n_bill++] = e->bill;
    } else if (e->kind == TR_ENTRY_DELIVERY) {
        struct tr_row_delivery *d =
            grow((void **)&g->delivery, g->n_delivery, &g->cap_delivery, sizeof(*d));
        g->no_memory |= !d;
        if (d)
            g->delivery[g->n_delivery++] = e->delivery;
    }
}

static void tell(const struct tr_gather *g, const char *sentence)
{
    if (g->odd)
        g->odd(g->odd_arg, sentence);
}

static void take_bad(void *arg, const struct tr_spool_bad *b)
{
    static const char *const what[] = {
        [TR_SPOOL_TORN] = "the write of its end was cut short",
        [TR_SPOOL_DAMAGED] = "no record, or not the one that was written",
        [TR_SPOOL_UNKNOWN] = "a record of a kind this program does not know"};
    struct tr_gather *g = arg;
    char line[256];
    g->faults++;
    snprintf(line, sizeof(line), "spool: %s: %" PRIu64 " bytes at %" PRIu64 ": %s", b->file, b->len,
             b->at, what[b->fault]);
    tell(g, line);
}

/* ---- order, each once ---- */

static int by_id(const void *a, const void *b)
{
    const struct tr_row *x = a, *y = b;
    return strcmp(x->stream_id, y->stream_id);
}

static int by_id_of_delivery(const void *a, const void *b)
{
    const struct tr_row_delivery *x = a, *y = b;
    return strcmp(x->stream_id, y->stream_id);
}

static int compare_time(const struct tr_row *x, const struct tr_row *y)
{
    if (x->created_us != y->created_us)
        return x->created_us < y->created_us ? -1 : 1;
    return strcmp(x->stream_id, y->stream_id);
}

static int by_time(const void *a, const void *b)
{
    const struct tr_gather_turn *x = a, *y = b;
    return compare_time(x->row, y->row);
}

/* A record that was written twice must say the same.  Not its times to the microsecond: each writing
 * may have asked the clock of the machine anew. */
static bool same_bill(const struct tr_row *a, const struct tr_row *b)
{
    return strcmp(a->request_id, b->request_id) == 0 && strcmp(a->key, b->key) == 0 &&
           strcmp(a->model, b->model) == 0 && strcmp(a->status, b->status) == 0 &&
           strcmp(a->reason, b->reason) == 0 && a->choices == b->choices &&
           a->prompt_tokens == b->prompt_tokens && a->cached_tokens == b->cached_tokens &&
           a->completion_tokens == b->completion_tokens && a->overrun_tokens == b->overrun_tokens &&
           a->last_token == b->last_token;
}

static void differ(const struct tr_gather *g, const char *stream_id, const char *where)
{
    char line[160];
    snprintf(line, sizeof(line), "%s: two records that differ, %s", stream_id, where);
    tell(g, line);
}

static void sort_bills(struct tr_gather *g)
{
    size_t n = 0;
    if (g->n_bill)
        qsort(g->bill, g->n_bill, sizeof(*g->bill), by_id);
    for (size_t i = 0; i < g->n_bill; i++) {
        bool again = n && by_id(&g->bill[n - 1], &g->bill[i]) == 0;
        if (!again)
            g->bill[n++] = g->bill[i];
        else if (!same_bill(&g->bill[n - 1], &g->bill[i]))
            differ(g, g->bill[i].stream_id, "both in the spool");
    }
    g->n_bill = n;
}

static void sort_deliveries(struct tr_gather *g)
{
    size_t n = 0;
    if (g->n_delivery)
        qsort(g->delivery, g->n_delivery, sizeof(*g->delivery), by_id_of_delivery);
    for (size_t i = 0; i < g->n_delivery; i++)
        if (!n || by_id_of_delivery(&g->delivery[n - 1], &g->delivery[i]) != 0)
            g->delivery[n++] = g->delivery[i];
    g->n_delivery = n;
}

static void sort(struct tr_gather *g)
{
    sort_bills(g);
    sort_deliveries(g);
    g->order = calloc(g->n_bill + 1, sizeof(*g->order));
    g->given = calloc(g->n_bill + 1, sizeof(*g->given));
    g->met = calloc(g->n_delivery + 1, sizeof(*g->met));
    g->no_memory |= !g->order || !g->given || !g->met;
    if (g->no_memory)
        return;
    for (size_t i = 0; i < g->n_bill; i++)
        g->order[i].row = &g->bill[i];
    qsort(g->order, g->n_bill, sizeof(*g->order), by_time);
}

/* ---- opening ---- */

static int open_database(struct tr_gather *g, const char *address, struct tr_errbuf *err)
{
    struct tr_errbuf why = {""};
    g->ops = tr_sink_for(address);
    if (!g->ops)
        return tr_errf(err, -EINVAL, "this program knows no such database");
    int ret = g->ops->open(&g->db, address, true, &why);
    if (ret)
        g->db = NULL;
    /* A service that has only just begun: all there is lies in the spool. */
    if (ret == -ENOENT && (g->n_bill || g->n_delivery || g->faults || g->live))
        return 0;
    return ret ? tr_errf(err, ret, "%s", why.msg) : 0;
}

int tr_gather_open(struct tr_gather *g, const char *address, const char *spool,
                   struct tr_errbuf *err)
{
    char dir[PATH_MAX];
    struct tr_spool_reader reader = {take_entry, take_bad, g};
    if (tr_spool_place(address, spool, dir, sizeof(dir)))
        return tr_errf(err, -ENAMETOOLONG, "the path of the spool is too long");
    /* The usual place may be empty; a name that was given and is wrong would hide records. */
    if (*spool && access(dir, F_OK) < 0)
        return tr_errf(err, -errno, "cannot read the spool %s: %s", dir, strerror(errno));
    g->live = tr_spool_is_live(dir);
    int ret = tr_spool_each(dir, g->live, &reader, err);
    if (ret)
        return ret;
    sort(g);
    if (g->no_memory)
        return tr_errf(err, -ENOMEM, "no memory for what is in the spool");
    return open_database(g, address, err);
}

void tr_gather_close(struct tr_gather *g)
{
    if (g->db)
        g->ops->close(g->db);
    free(g->bill);
    free(g->order);
    free(g->given);
    free(g->delivery);
    free(g->met);
    *g = (struct tr_gather){0};
}

/* ---- giving ---- */

struct merge {
    struct tr_gather *g;
    const struct tr_sink_filter *f;
    size_t next; /* in g->order: those before have had their turn */
    int (*fn)(void *arg, const struct tr_row_whole *r, bool spooled);
    void *arg;
};

static bool is(const char *wanted, const char *value)
{
    return !wanted || strcmp(wanted, value) == 0;
}

static bool passes(const struct tr_sink_filter *f, const struct tr_row *r)
{
    return is(f->key, r->key) && is(f->model, r->model) && is(f->status, r->status) &&
           (!f->from_us || r->created_us >= f->from_us) &&
           (!f->until_us || r->created_us < f->until_us);
}

/* With the delivery part that the spool has, if the row has none. */
static int give(struct merge *m, const struct tr_row_whole *r, bool spooled)
{
    struct tr_gather *g = m->g;
    struct tr_row_delivery wanted;
    struct tr_row_whole w = *r;
    memcpy(wanted.stream_id, r->bill.stream_id, sizeof(wanted.stream_id));
    const struct tr_row_delivery *d = g->n_delivery ? bsearch(&wanted, g->delivery, g->n_delivery,
                                                              sizeof(wanted), by_id_of_delivery)
                                                    : NULL;
    if (d)
        g->met[d - g->delivery] = true;
    if (d && !w.delivered) {
        w.delivery = *d;
        w.delivered = true;
    }
    return m->fn(m->arg, &w, spooled);
}

/* Those of the spool that come before `r` (NULL: all). */
static int give_spooled(struct merge *m, const struct tr_row *r)
{
    struct tr_gather *g = m->g;
    int ret = 0;
    for (; !ret && m->next < g->n_bill; m->next++) {
        const struct tr_row *s = g->order[m->next].row;
        if (r && compare_time(s, r) >= 0)
            break;
        if (g->given[s - g->bill] || !passes(m->f, s))
            continue;
        g->given[s - g->bill] = true;
        ret = give(m, &(struct tr_row_whole){.bill = *s}, true);
    }
    return ret;
}

static int take_row(void *arg, const struct tr_row_whole *r)
{
    struct merge *m = arg;
    struct tr_gather *g = m->g;
    int ret = give_spooled(m, &r->bill);
    const struct tr_row *s =
        g->n_bill ? bsearch(&r->bill, g->bill, g->n_bill, sizeof(*s), by_id) : NULL;
    if (ret || !s)
        return ret ? ret : give(m, r, false);
    if (!same_bill(s, &r->bill))
        differ(g, s->stream_id, "one in the spool, one in the database");
    if (g->given[s - g->bill])
        return 0;
    g->given[s - g->bill] = true;
    return give(m, r, false);
}

int tr_gather_each(struct tr_gather *g, const struct tr_sink_filter *f,
                   int (*fn)(void *arg, const struct tr_row_whole *r, bool spooled), void *arg,
                   struct tr_errbuf *err)
{
    struct merge m = {g, f, 0, fn, arg};
    int ret = g->db ? g->ops->each(g->db, f, take_row, &m, err) : 0;
    return ret ? ret : give_spooled(&m, NULL);
}
