/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/sample.h"

#include <stdio.h>

/* ---- processor time ---- */

/* Nanoseconds on a processor, from the scheduler's own account; 0 if the process is not there. */
static uint64_t cpu_ns(int pid)
{
    char path[64];
    unsigned long long ns = 0;
    snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu", &ns) != 1)
        ns = 0;
    fclose(f);
    return ns;
}

int tr_watch_add(struct tr_watch *w, int pid)
{
    if (w->n == TR_WATCH_MAX || pid <= 0 || !cpu_ns(pid))
        return -1;
    w->pid[w->n++] = pid;
    return 0;
}

void tr_watch_begin(struct tr_watch *w)
{
    for (int i = 0; i < w->n; i++)
        w->ns[i] = cpu_ns(w->pid[i]);
}

void tr_watch_end(struct tr_watch *w)
{
    for (int i = 0; i < w->n; i++)
        w->ns[i] = cpu_ns(w->pid[i]) - w->ns[i];
}

void tr_watch_print(const struct tr_watch *w)
{
    printf("\"cpu_s\":[");
    for (int i = 0; i < w->n; i++)
        printf("%s%.6f", i ? "," : "", (double)w->ns[i] / 1e9);
    printf("]");
}

/* ---- gaps ---- */

/* 64 steps for each power of two. */
static unsigned bucket_of(uint64_t ns)
{
    if (ns < 64)
        return (unsigned)ns;
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    unsigned b = (top - 5) * 64 + (unsigned)(ns >> (top - 6)) - 64;
    return b < TR_GAP_BUCKETS ? b : TR_GAP_BUCKETS - 1;
}

static uint64_t low_end(unsigned b)
{
    return b < 64 ? b : (uint64_t)(64 + b % 64) << (b / 64 - 1);
}

void tr_gaps_add(struct tr_gaps *g, uint64_t ns)
{
    g->n++;
    g->max_ns = ns > g->max_ns ? ns : g->max_ns;
    g->bucket[bucket_of(ns)]++;
}

static double quantile_ms(const struct tr_gaps *g, double q)
{
    uint64_t want = (uint64_t)((double)g->n * q), seen = 0;
    for (unsigned b = 0; b < TR_GAP_BUCKETS; b++) {
        seen += g->bucket[b];
        if (seen > want)
            return (double)low_end(b) / 1e6;
    }
    return (double)g->max_ns / 1e6;
}

void tr_gaps_print(const struct tr_gaps *g)
{
    printf("\"gaps\":%llu,\"gap_ms_p50\":%.3f,\"gap_ms_p99\":%.3f,\"gap_ms_p999\":%.3f,"
           "\"gap_ms_max\":%.3f,",
           (unsigned long long)g->n, quantile_ms(g, 0.5), quantile_ms(g, 0.99),
           quantile_ms(g, 0.999), (double)g->max_ns / 1e6);
}
