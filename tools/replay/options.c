/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/options.h"

#include "client/flags.h"
#include "replay/traces.h"

#include <errno.h>
#include <string.h>

enum opt_id {
    OPT_URL,
    OPT_MODEL,
    OPT_TRACE,
    OPT_SPEED,
    OPT_LIMIT,
    OPT_NO_ABANDON,
    OPT_COMPARE,
    OPT_SEED,
    OPT_TEMPERATURE,
    OPT_TIMEOUT_S,
    OPT_API_KEY,
    OPT_HEADER,
    OPT_REQUEST_ID,
    OPT_SAMPLE_MS,
    OPT_NO_METRICS,
    OPT_SHOW_TRACE,
    OPT_QUIET,
    OPT_JSON,
    OPT_HELP,
    OPT_COUNT
};

/* Indexed by opt_id. */
static const struct tr_flag table[OPT_COUNT] = {
    [OPT_URL] = {"url", "URL", "server, http://host[:port][/base] (http://127.0.0.1:8080)"},
    [OPT_MODEL] = {"model", "NAME", "model to ask for (the first of /v1/models)"},
    [OPT_TRACE] = {"trace", "T", "built-in trace, file of JSON lines, or - (chat)"},
    [OPT_SPEED] = {"speed", "X", "arrivals come X times as fast (1)"},
    [OPT_LIMIT] = {"limit", "N", "only the first N requests (all)"},
    [OPT_NO_ABANDON] = {"no-abandon", NULL, "nobody leaves: every stream is read to its end"},
    [OPT_COMPARE] = {"compare", NULL, "run twice, as the trace says and with --no-abandon"},
    [OPT_SEED] = {"seed", "N", "of built-in traces, prompts and sampling (1)"},
    [OPT_TEMPERATURE] = {"temperature", "T", "0 to 2 (the server's default)"},
    [OPT_TIMEOUT_S] = {"timeout-s", "S", "time limit of one request after its arrival (300)"},
    [OPT_API_KEY] = {"api-key", "KEY", "sent as Authorization: Bearer KEY"},
    [OPT_HEADER] = {"header", "K:V", "one more request header (up to 16 times)"},
    [OPT_REQUEST_ID] = {"request-id", "P", "X-Request-Id is P-<run>-<line> (replay)"},
    [OPT_SAMPLE_MS] = {"sample-ms", "N", "how often concurrency and /metrics are looked at (500)"},
    [OPT_NO_METRICS] = {"no-metrics", NULL, "do not read /metrics"},
    [OPT_SHOW_TRACE] = {"show-trace", NULL, "print the trace as JSON lines and send nothing"},
    [OPT_QUIET] = {"quiet", NULL, "no progress on standard error"},
    [OPT_JSON] = {"json", NULL, "one JSON object instead of the tables"},
    [OPT_HELP] = {"help", NULL, "this page"},
};

static void help_trace(FILE *out)
{
    fputs("\nBuilt-in traces:\n", out);
    tr_traces_help(out);
    fputs("\nA trace has one JSON object a line:\n"
          "  at                     arrival, seconds from the start (required)\n"
          "  prompt_tokens | prompt length in tokens (to /v1/completions), or a text (to chat)\n"
          "  chat                   a number: the prompts with it begin with the same tokens\n"
          "  max_tokens             length of the answer; ignore_eos is sent (required)\n"
          "  abandon_s              the client leaves so long after its arrival\n"
          "  abandon_after_first_s  the client leaves so long after its first content\n"
          "  read_bps               bytes per second it reads of the answer; 0: none of it\n"
          "  class                  whose figures stand together (default)\n"
          "  stream                 false: the answer in one piece (true)\n"
          "Other fields are ignored. --speed changes arrivals, not the patience of clients.\n",
          out);
}

static void help_json(FILE *out)
{
    fputs(
        "\n--json prints one object:\n"
        "  replay \"tokenring.replay.v1\", url, model, trace, speed, requests, exact_prompts,\n"
        "  ignored_fields, runs (one; with --compare two)\n"
        "  a run           abandon, interrupted, wall_s, late (sends), late_max_ms,\n"
        "                  replay_delay_max_ms, all and classes (by name): see below,\n"
        "                  timeline, server (histograms: metric, n, mean, p50, p90, p99 in ms),\n"
        "                  server_note, counters (by name: the server's, over the run),\n"
        "                  concurrency (mean and max of each column of the timeline), streams\n"
        "  a class         requests, outcomes (complete, abandoned, refused, unread, error,\n"
        "                  truncated, malformed, timeout, unreachable, interrupted, unsent),\n"
        "                  abandoned (before_head, before_content, in_stream),\n"
        "                  without_retry_after, errors (by status and code), late,\n"
        "                  prompt_tokens, cached_tokens, completion_tokens, usage (requests that\n"
        "                  told), tok_s, content_events, prompts_off, lengths_off, late_cuts,\n"
        "                  ms (ttft, ttft_sent, gap, e2e), rate (tok/s of a stream)\n"
        "  timeline        t, open, admitted, streaming; running, waiting, parked, kv_used as\n"
        "                  the server says, null when it does not\n"
        "  streams         line, class, id, outcome, detail, http_status, at_s, late_ms,\n"
        "                  ttft_ms, e2e_ms (both from the arrival), prompt_tokens,\n"
        "                  completion_tokens, content_events\n"
        "  a summary       n, left_out, min, mean, p50, p90, p99, max; null when n is 0\n",
        out);
}

void tr_replay_opts_help(FILE *out)
{
    fputs("usage: tokenring replay [options]\n\n"
          "Sends the requests of a trace when it says so, whatever has become of the earlier ones\n"
          "(open loop), reads, dawdles and leaves as its clients do, and tells per class of\n"
          "request what came back. Times count from the arrival that the trace says.\n\n",
          out);
    tr_flags_help(table, OPT_COUNT, out);
    fputs("\nEach option can come from the environment: --sample-ms is\n"
          "TOKENRING_REPLAY_SAMPLE_MS; switches are on when it is 1.\n",
          out);
    help_trace(out);
    fputs(
        "\nexit status: 0 every request ended as it should: complete, abandoned, refused with 503\n"
        "or 429, or a slow reader that was cut; 1 one was truncated, failed or timed out;\n"
        "2 usage; 3 cannot connect; 130 interrupted (what was measured is printed)\n",
        out);
    help_json(out);
}

static int take_request_id(struct tr_replay_opts *o, const char *v)
{
    o->request_id = v;
    size_t n = strspn(v, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.");
    return n && n <= 64 && !v[n] ? 0 : -EINVAL;
}

static int set(void *ctx, int id, const char *v, struct tr_errbuf *err)
{
    struct tr_replay_opts *o = ctx;
    switch ((enum opt_id)id) {
    case OPT_URL:
        o->to.url_text = v;
        return tr_url_parse(&o->to.url, v, err);
    case OPT_MODEL:
        return tr_take_text(&o->model, v);
    case OPT_TRACE:
        return tr_take_text(&o->trace, v);
    case OPT_SPEED:
        return tr_take_double(v, 0.001, 10000, &o->speed);
    case OPT_LIMIT:
        return tr_take_u64(v, 1, 1000000, &o->limit);
    case OPT_NO_ABANDON:
        return tr_take_switch(&o->no_abandon);
    case OPT_COMPARE:
        return tr_take_switch(&o->compare);
    case OPT_SEED:
        return tr_take_u64(v, 0, INT32_MAX, &o->seed);
    case OPT_TEMPERATURE:
        o->has_temperature = true;
        return tr_take_double(v, 0, 2, &o->temperature);
    case OPT_TIMEOUT_S:
        return tr_take_double(v, 0.001, 86400, &o->timeout_s);
    case OPT_API_KEY:
        return tr_target_take_key(&o->to, v);
    case OPT_HEADER:
        return tr_target_take_header(&o->to, v);
    case OPT_REQUEST_ID:
        return take_request_id(o, v);
    case OPT_SAMPLE_MS:
        return tr_take_u64(v, 50, 60000, &o->sample_ms);
    case OPT_NO_METRICS:
        return tr_take_switch(&o->no_metrics);
    case OPT_SHOW_TRACE:
        return tr_take_switch(&o->show_trace);
    case OPT_QUIET:
        return tr_take_switch(&o->quiet);
    case OPT_JSON:
        return tr_take_switch(&o->json);
    case OPT_HELP:
        return tr_take_switch(&o->help);
    case OPT_COUNT:
        break;
    }
    return -EINVAL;
}

int tr_replay_opts_parse(struct tr_replay_opts *o, int argc, char **argv, struct tr_errbuf *err)
{
    struct tr_errbuf own = {0};
    *o = (struct tr_replay_opts){.trace = "chat",
                                 .speed = 1,
                                 .seed = 1,
                                 .timeout_s = 300,
                                 .sample_ms = 500,
                                 .request_id = "replay"};
    o->to.agent = "tokenring-replay";
    o->to.url_text = "http://127.0.0.1:8080";
    int rc = tr_url_parse(&o->to.url, o->to.url_text, &own);
    if (!rc)
        rc = tr_flags_parse(&(struct tr_flags){table, OPT_COUNT, "TOKENRING_REPLAY_", set, o}, argc,
                            argv, &own);
    if (!rc && o->compare && o->no_abandon)
        rc = tr_errf(&own, -EINVAL, "--compare: runs with and without --no-abandon; leave it out");
    return rc ? tr_errf(err, rc, "%s", own.msg) : 0;
}
