/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/metrics_compat.c - --compat-metrics: names and labels of vLLM's metrics.
 *
 * The Endpoint Picker of the Gateway API Inference Extension, load tests and dashboards look for them.
 * Each is one of our own figures, and HELP says which; what we have no figure for is not there.  The
 * colon in the names is vLLM's (`promtool check metrics` warns of it). */
#include "frontend/figures.h"

#include "shm/close.h"

#include <stdio.h>

static void gauge(const struct tr_expo *x, const char *name, const char *help, double value)
{
    tr_expo_family(x, name, TR_EXPO_GAUGE, help);
    tr_expo_real(x, name, "", value);
}

static void counter(const struct tr_expo *x, const char *name, const char *help, uint64_t value)
{
    tr_expo_family(x, name, TR_EXPO_COUNTER, help);
    tr_expo_count(x, name, "", value);
}

static void hist(const struct tr_expo *x, const struct tr_figures *f, const char *name,
                 enum tr_hist_id id, const char *help)
{
    tr_expo_family(x, name, TR_EXPO_HISTOGRAM, help);
    tr_expo_hist(x, name, tr_hist_rows[id].scale, &f->hist[id]);
}

static uint64_t kv_blocks(const struct tr_figures *f)
{
    return f->value[TR_STAT_KV_FREE] + f->value[TR_STAT_KV_USED] + f->value[TR_STAT_KV_CACHED];
}

/* Without an engine there is nothing to be had: full, so that a picker does not prefer us. */
static double kv_usage(const struct tr_figures *f)
{
    uint64_t all = kv_blocks(f);
    return all ? (double)f->value[TR_STAT_KV_USED] / (double)all : 1;
}

static void put_load(const struct tr_expo *x, const struct tr_figures *f, uint32_t kv_block)
{
    static const char usage[] = "Part of the KV blocks that requests hold, 0 to 1; 1 without an "
                                "engine (tokenring_kv_blocks).";
    char labels[80];

    gauge(x, "num_requests_running",
          "Requests in prefill or decode, and parked ones, which keep their KV "
          "(tokenring_requests_running + tokenring_requests_parked).",
          (double)(f->value[TR_STAT_RUNNING] + f->value[TR_STAT_PARKED]));
    gauge(x, "num_requests_waiting", "Requests in the queue (tokenring_requests_waiting).",
          (double)f->value[TR_STAT_WAITING]);
    gauge(x, "kv_cache_usage_perc", usage, kv_usage(f));
    gauge(x, "gpu_cache_usage_perc", "Older name of kv_cache_usage_perc.", kv_usage(f));
    snprintf(labels, sizeof(labels), "block_size=\"%u\",num_gpu_blocks=\"%llu\"", kv_block,
             (unsigned long long)kv_blocks(f));
    tr_expo_family(x, "cache_config_info", TR_EXPO_INFO,
                   "Tokens in a KV block, and how many blocks there are, wherever they lie.");
    tr_expo_count(x, "cache_config_info", labels, 1);
}

static void put_work(const struct tr_expo *x, const struct tr_figures *f)
{
    counter(x, "prompt_tokens_total",
            "Prompt tokens, counted when their request ends (tokenring_tokens_total).",
            f->value[TR_STAT_TOK_PROMPT]);
    counter(x, "generation_tokens_total",
            "Tokens put into rings, counted as they are (tokenring_published_tokens_total).",
            f->value[TR_STAT_PUBLISHED]);
    counter(x, "prefix_cache_queries_total",
            "Prompt tokens looked up (tokenring_prefix_cache_queries_total).",
            f->value[TR_STAT_PREFIX_QUERIES]);
    counter(x, "prefix_cache_hits_total",
            "Prompt tokens found (tokenring_prefix_cache_hits_total).",
            f->value[TR_STAT_PREFIX_HITS]);
    counter(x, "num_preemptions_total",
            "Sequences put back to be recomputed (tokenring_preemptions_total).",
            f->value[TR_STAT_PREEMPTIONS]);
}

/* Ends by their state: completed, incomplete, cancelled, error. */
static void put_ends(const struct tr_expo *x, const struct tr_figures *f)
{
    static const struct {
        enum tr_state state;
        const char *label;
    } reasons[] = {{TR_COMPLETED, "finished_reason=\"stop\""},
                   {TR_INCOMPLETE, "finished_reason=\"length\""},
                   {TR_CANCELLED, "finished_reason=\"abort\""},
                   {TR_ERROR, "finished_reason=\"error\""}};

    tr_expo_family(
        x, "request_success_total", TR_EXPO_COUNTER,
        "Requests that ended, cancelled and failed ones too (tokenring_streams_ended_total by "
        "its status).");
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        uint64_t n = 0;
        for (unsigned c = 0; c < TR_CLOSE_COUNT; c++) {
            const struct tr_close_info *end = tr_close_info((enum tr_close)c);
            if (end->state == reasons[i].state)
                n += f->value[end->stat];
        }
        tr_expo_count(x, "request_success_total", reasons[i].label, n);
    }
}

static void put_times(const struct tr_expo *x, const struct tr_figures *f)
{
    hist(x, f, "time_to_first_token_seconds", TR_HIST_TTFT,
         "From arrival to the first token in the ring (tokenring_time_to_first_token_seconds).");
    hist(x, f, "inter_token_latency_seconds", TR_HIST_ITL,
         "Between two tokens in the ring (tokenring_inter_token_seconds).");
    hist(x, f, "e2e_request_latency_seconds", TR_HIST_E2E,
         "From arrival to the end, cancelled and failed requests too (tokenring_e2e_seconds).");
    hist(x, f, "request_queue_time_seconds", TR_HIST_QUEUE,
         "From arrival to the first step (tokenring_queue_seconds).");
    hist(x, f, "request_prefill_time_seconds", TR_HIST_PREFILL,
         "From that step to the first token (tokenring_prefill_seconds).");
    hist(x, f, "request_decode_time_seconds", TR_HIST_DECODE,
         "From the first token to the end (tokenring_decode_seconds).");
    hist(x, f, "request_prompt_tokens", TR_HIST_PROMPT_TOKENS,
         "Prompt tokens of a request (tokenring_request_prompt_tokens).");
    hist(x, f, "request_generation_tokens", TR_HIST_COMPLETION_TOKENS,
         "Completion tokens of a request (tokenring_request_completion_tokens).");
}

void tr_metrics_compat(struct tr_emit *e, bool open, const struct tr_figures *f,
                       const struct tr_frontend_config *c)
{
    char common[300];
    struct tr_expo x = {e, open, "vllm:", common};

    tr_expo_label(common, sizeof(common), "model_name", c->served_name);
    put_load(&x, f, c->kv_block);
    put_work(&x, f);
    put_ends(&x, f);
    put_times(&x, f);
}
