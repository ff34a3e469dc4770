/* SPDX-License-Identifier: Apache-2.0 */
/* The spool between its two threads: one appends groups, ends segments, asks for sizes and trims, the
 * other reads behind it, at times the same again, and drops what is done.  Everything comes out once,
 * in its order, within the limit. */
#include "ledger/spool.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENTRIES = 20000, LIMIT = 128 << 10, BATCH = 37 };

static struct tr_spool *p;
static int passed, failed;
static _Atomic int out_of_order, anomalies, taken;

static void claim(int ok, const char *what)
{
    if (!ok)
        printf("FAILED %s\n", what);
    passed += ok;
    failed += !ok;
}

static void on_bad(void *arg, const struct tr_spool_bad *b)
{
    (void)arg, (void)b;
    atomic_fetch_add(&anomalies, 1);
}

static void *sink(void *arg)
{
    static struct tr_entry e[BATCH];
    struct tr_spool_place upto;
    int next = 0, round = 0;
    while (next < ENTRIES) {
        int n = tr_spool_take(p, e, BATCH, &upto, on_bad, NULL);
        if (n <= 0) {
            sched_yield();
            continue;
        }
        for (int i = 0; i < n; i++)
            if (e[i].delivery.delivered_tokens != next + i)
                atomic_fetch_add(&out_of_order, 1);
        if (round++ % 5 == 0)
            continue; /* the database did not take it */
        tr_spool_done(p, upto);
        next += n;
        atomic_store(&taken, next);
    }
    return arg;
}

static void commit(void)
{
    claim(tr_spool_commit(p, false) == 0, "a group is written");
    passed--; /* one claim for all of them */
}

/* Appends all; returns how often there was no room. */
static int append(void)
{
    struct tr_entry e = {.kind = TR_ENTRY_DELIVERY};
    int full = 0;
    snprintf(e.delivery.stream_id, sizeof(e.delivery.stream_id), "tr-1-2-0000000000000003");
    for (int i = 0; i < ENTRIES; i++) {
        e.delivery.delivered_tokens = i;
        for (int ret; (ret = tr_spool_add(p, &e)) != 0; full++) {
            if (ret != -ENOSPC)
                abort();
            commit();
            sched_yield();
        }
        if (i % 23 == 0)
            commit();
        if (i % 1001 == 0 && tr_spool_is_empty(p))
            tr_spool_trim(p, 0);
    }
    commit();
    return full;
}

int main(void)
{
    char parent[] = "/tmp/tr-spool-stress-XXXXXX", dir[64], command[256];
    pthread_t t;
    if (!mkdtemp(parent))
        return 1;
    snprintf(dir, sizeof(dir), "%s/spool", parent);
    claim(tr_spool_open(&p, dir, LIMIT, NULL) == 0, "opened");
    if (failed || pthread_create(&t, NULL, sink, NULL))
        return 1;
    int full = append();
    pthread_join(t, NULL);
    claim(taken == ENTRIES && out_of_order == 0, "everything came out, in its order");
    claim(anomalies == 0, "and nothing else");
    claim(tr_spool_is_empty(p), "it is empty afterwards");
    claim(tr_spool_bytes(p) <= LIMIT, "within its limit");
    tr_spool_close(p);
    snprintf(command, sizeof(command), "test \"$(ls %s)\" = lock && rm -rf %s", dir, parent);
    claim(system(command) == 0, "no segment is left");
    printf("%d times without room\n%d passed, %d failed\n", full, passed, failed);
    return failed != 0;
}
