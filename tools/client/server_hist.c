/* SPDX-License-Identifier: Apache-2.0 */
#include "client/server_hist.h"

#include <stdbool.h>
#include <string.h>

/* tokenring's own names first; the second column is for other servers. */
static const struct {
    const char *name, *metric[2];
} hists[TR_SERVER_HISTS] = {
    [TR_SERVER_TTFT] = {"ttft",
                        {"tokenring_time_to_first_token_seconds",
                         "vllm:time_to_first_token_seconds"}},
    [TR_SERVER_FIRST_BYTE] = {"first_byte", {"tokenring_first_byte_seconds", NULL}},
    [TR_SERVER_QUEUE] = {"queue", {"tokenring_queue_seconds", "vllm:request_queue_time_seconds"}},
    [TR_SERVER_PREFILL] = {"prefill",
                           {"tokenring_prefill_seconds", "vllm:request_prefill_time_seconds"}},
    [TR_SERVER_INTER_TOKEN] = {"inter_token",
                               {"tokenring_inter_token_seconds",
                                "vllm:inter_token_latency_seconds"}},
    [TR_SERVER_E2E] = {"e2e", {"tokenring_e2e_seconds", "vllm:e2e_request_latency_seconds"}},
};

const char *tr_server_hist_name(enum tr_server_hist h)
{
    return hists[h].name;
}

/* 1 found, 0 not there, -ERANGE. */
static int one_hist(struct tr_hist *diff, const char *name, const char *before, size_t before_len,
                    const char *after, size_t after_len)
{
    struct tr_hist a, b;
    if (tr_scrape_hist(after, after_len, name, &a))
        return 0;
    bool had = !tr_scrape_hist(before, before_len, name, &b);
    int rc = tr_hist_diff(had ? &b : NULL, &a, diff);
    return rc ? rc : 1;
}

void tr_server_hists_make(struct tr_server_hists *s, const char *before, size_t before_len,
                          const char *after, size_t after_len)
{
    memset(s, 0, sizeof(*s));
    s->note = "/metrics could not be read";
    if (!before || !after)
        return;
    s->note = "/metrics has none of the known histograms";
    for (int i = 0; i < TR_SERVER_HISTS; i++) {
        for (int k = 0; k < 2 && hists[i].metric[k] && !s->of[i].metric; k++) {
            int rc =
                one_hist(&s->of[i].diff, hists[i].metric[k], before, before_len, after, after_len);
            if (rc < 0) {
                for (int j = 0; j < TR_SERVER_HISTS; j++)
                    s->of[j].metric = NULL;
                s->note = "the server was restarted during the run";
                return;
            }
            if (rc)
                s->of[i].metric = hists[i].metric[k];
        }
        if (s->of[i].metric)
            s->note = NULL;
    }
}

void tr_server_hists_text(const struct tr_server_hists *s, FILE *out)
{
    if (s->note) {
        fprintf(out, "server    %s\n", s->note);
        return;
    }
    fputs("server\n", out);
    for (int i = 0; i < TR_SERVER_HISTS; i++) {
        const struct tr_hist *h = &s->of[i].diff;
        if (!s->of[i].metric)
            continue;
        if (!(h->count > 0)) {
            fprintf(out, "  %-12s %10s\n", hists[i].name, "-");
            continue;
        }
        fprintf(out, "  %-12s %10.2f %10.2f %10.2f %10s %10.2f %9.0f\n", hists[i].name,
                tr_hist_quantile(h, 0.5) * 1e3, tr_hist_quantile(h, 0.9) * 1e3,
                tr_hist_quantile(h, 0.99) * 1e3, "", h->sum / h->count * 1e3, h->count);
    }
}
