/* SPDX-License-Identifier: Apache-2.0 */
#include "client/flags.h"
#include "probe/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum opt_id {
    OPT_URL,
    OPT_ROUTE,
    OPT_MODEL,
    OPT_PARALLEL,
    OPT_REQUESTS,
    OPT_MAX_TOKENS,
    OPT_PROMPT,
    OPT_PROMPT_FILE,
    OPT_PROMPT_TOKENS,
    OPT_DISTINCT,
    OPT_TEMPERATURE,
    OPT_SEED,
    OPT_FORCE_TOKEN,
    OPT_IGNORE_EOS,
    OPT_STAGGER_MS,
    OPT_ABORT_AFTER,
    OPT_API_KEY,
    OPT_HEADER,
    OPT_TIMEOUT_S,
    OPT_NO_METRICS,
    OPT_CHECK_TEXT,
    OPT_SHOW_TEXT,
    OPT_JSON,
    OPT_HELP,
    OPT_COUNT
};

/* Indexed by opt_id. */
static const struct tr_flag table[OPT_COUNT] = {
    [OPT_URL] = {"url", "URL", "server, http://host[:port][/base] (http://127.0.0.1:8080)"},
    [OPT_ROUTE] = {"route", "R", "chat | completions (chat)"},
    [OPT_MODEL] = {"model", "NAME", "model to ask for (the first of /v1/models)"},
    [OPT_PARALLEL] = {"parallel", "N", "streams open at a time (1)"},
    [OPT_REQUESTS] = {"requests", "N", "streams in all (as many as --parallel)"},
    [OPT_MAX_TOKENS] = {"max-tokens", "N", "max_tokens of each request (64)"},
    [OPT_PROMPT] = {"prompt", "TEXT", "the prompt"},
    [OPT_PROMPT_FILE] = {"prompt-file", "FILE", "the prompt, from a file (at most 4 MiB)"},
    [OPT_PROMPT_TOKENS] = {"prompt-tokens", "N", "a made-up prompt of about N tokens"},
    [OPT_DISTINCT] = {"distinct", NULL, "another prompt for every request (no shared prefix)"},
    [OPT_TEMPERATURE] = {"temperature", "T", "0 to 2 (the server's default)"},
    [OPT_SEED] = {"seed", "N", "seed of every request"},
    [OPT_FORCE_TOKEN] = {"force-token", "ID", "bias this token by 100 at temperature 0"},
    [OPT_IGNORE_EOS] = {"ignore-eos", NULL, "ask for ignore_eos: always max-tokens tokens"},
    [OPT_STAGGER_MS] = {"stagger-ms", "N", "time between two starts (0)"},
    [OPT_ABORT_AFTER] = {"abort-after", "N", "hang up after N content events of each stream"},
    [OPT_API_KEY] = {"api-key", "KEY", "sent as Authorization: Bearer KEY"},
    [OPT_HEADER] = {"header", "K:V", "one more request header (up to 16 times)"},
    [OPT_TIMEOUT_S] = {"timeout-s", "S", "time limit of one stream (120)"},
    [OPT_NO_METRICS] = {"no-metrics", NULL, "do not read /metrics before and after"},
    [OPT_CHECK_TEXT] = {"check-text", NULL,
                        "same prompt, same text: count the streams that differ"},
    [OPT_SHOW_TEXT] = {"show-text", NULL, "show what each stream said (up to 1 MiB each)"},
    [OPT_JSON] = {"json", NULL, "one JSON object instead of the table"},
    [OPT_HELP] = {"help", NULL, "this page"},
};

void tr_probe_opts_help(FILE *out)
{
    fputs("usage: tokenring probe [options]\n\n"
          "Opens N streams on an OpenAI-compatible server and tells what came back: time to the\n"
          "first content (TTFT), gaps between contents, tokens as the server counted them,\n"
          "streams that broke off. The server's own figures stand beside them.\n\n",
          out);
    tr_flags_help(table, OPT_COUNT, out);
    fputs("\nEach option can come from the environment: --max-tokens is\n"
          "TOKENRING_PROBE_MAX_TOKENS; switches are on when it is 1.\n\n"
          "exit status: 0 every stream was complete (or hung up on purpose, and no text\n"
          "differed), 1 some was not, 2 usage, 3 cannot connect\n\n"
          "--json prints one object:\n"
          "  probe \"tokenring.probe.v1\", url, route, model, parallel, requests, wall_s\n"
          "  outcomes        complete, truncated, error, timeout, malformed, refused, aborted\n"
          "  finish_reasons  how often each was seen\n"
          "  usage           streams (that sent a usage block), prompt_tokens, cached_tokens,\n"
          "                  completion_tokens; null when no stream sent one\n"
          "  tok_s           total (null without usage), per_stream (summary)\n"
          "  ms              connect, headers, ttft, gap, e2e (summaries)\n"
          "  gaps_zero       gaps whose two contents came in one read\n"
          "  events          all, content, comments, foreign, empty, undecodable, after_done\n"
          "  late_cuts       complete streams whose connection did not end cleanly\n"
          "  probe_delay_max_ms  the longest an arrived byte waited for the probe itself\n"
          "  text            checked, mismatches, first_mismatch; null without --check-text\n"
          "  server          per histogram: metric, n, mean, p50, p90, p99 in ms; null if none\n"
          "  server_note     why there is none, else null\n"
          "  streams         one object each: index, outcome, detail, http_status,\n"
          "                  finish_reason, prompt_tokens, completion_tokens, events,\n"
          "                  content_events, connect_ms, headers_ms, ttft_ms, e2e_ms,\n"
          "                  gap_max_ms, text (with --show-text); null where there is nothing\n"
          "  a summary       n, left_out, min, mean, p50, p90, p99, max; null when n is 0\n",
          out);
}

static int take_file(struct tr_probe_opts *o, const char *path, struct tr_errbuf *err)
{
    enum { FILE_MAX = 4 << 20 };
    FILE *f = fopen(path, "rb");
    if (!f)
        return tr_errf(err, -EINVAL, "--prompt-file %s: %s", path, strerror(errno));
    char *buf = malloc(FILE_MAX + 1);
    size_t n = buf ? fread(buf, 1, FILE_MAX + 1, f) : 0;
    bool bad = !buf || ferror(f);
    fclose(f);
    if (bad || !n || n > FILE_MAX || memchr(buf, 0, n)) {
        free(buf);
        return tr_errf(err, -EINVAL, "--prompt-file %s: not a text of 1 byte to 4 MiB", path);
    }
    buf[n] = 0;
    free(o->prompt_owned);
    o->prompt = o->prompt_owned = buf;
    return 0;
}

static int take_route(struct tr_probe_opts *o, const char *v)
{
    if (!strcmp(v, "chat"))
        o->route = TR_ROUTE_CHAT;
    else if (!strcmp(v, "completions"))
        o->route = TR_ROUTE_COMPLETIONS;
    else
        return -EINVAL;
    return 0;
}

static int set(void *ctx, int id, const char *v, struct tr_errbuf *err)
{
    struct tr_probe_opts *o = ctx;
    switch ((enum opt_id)id) {
    case OPT_URL:
        o->to.url_text = v;
        return tr_url_parse(&o->to.url, v, err);
    case OPT_ROUTE:
        return take_route(o, v);
    case OPT_MODEL:
        return tr_take_text(&o->model, v);
    case OPT_PARALLEL:
        return tr_take_u64(v, 1, TR_PROBE_PARALLEL_MAX, &o->parallel);
    case OPT_REQUESTS:
        return tr_take_u64(v, 1, TR_PROBE_REQUESTS_MAX, &o->requests);
    case OPT_MAX_TOKENS:
        return tr_take_u64(v, 1, 1000000, &o->max_tokens);
    case OPT_PROMPT:
        return tr_take_text(&o->prompt, v);
    case OPT_PROMPT_FILE:
        return take_file(o, v, err);
    case OPT_PROMPT_TOKENS:
        return tr_take_u64(v, 1, 1000000, &o->prompt_tokens);
    case OPT_DISTINCT:
        return tr_take_switch(&o->distinct);
    case OPT_TEMPERATURE:
        o->has_temperature = true;
        return tr_take_double(v, 0, 2, &o->temperature);
    case OPT_SEED:
        o->has_seed = true;
        return tr_take_u64(v, 0, INT64_MAX, &o->seed);
    case OPT_FORCE_TOKEN:
        o->has_force_token = true;
        return tr_take_u64(v, 0, INT32_MAX, &o->force_token);
    case OPT_IGNORE_EOS:
        return tr_take_switch(&o->ignore_eos);
    case OPT_STAGGER_MS:
        return tr_take_u64(v, 0, 3600000, &o->stagger_ms);
    case OPT_ABORT_AFTER:
        return tr_take_u64(v, 1, 1000000, &o->abort_after);
    case OPT_API_KEY:
        return tr_target_take_key(&o->to, v);
    case OPT_HEADER:
        return tr_target_take_header(&o->to, v);
    case OPT_TIMEOUT_S:
        return tr_take_double(v, 0.001, 86400, &o->timeout_s);
    case OPT_NO_METRICS:
        return tr_take_switch(&o->no_metrics);
    case OPT_CHECK_TEXT:
        return tr_take_switch(&o->check_text);
    case OPT_SHOW_TEXT:
        return tr_take_switch(&o->show_text);
    case OPT_JSON:
        return tr_take_switch(&o->json);
    case OPT_HELP:
        return tr_take_switch(&o->help);
    case OPT_COUNT:
        break;
    }
    return -EINVAL;
}

/* Options that only make sense together, or not together. */
static int settle(struct tr_probe_opts *o, struct tr_errbuf *err)
{
    if (o->prompt && o->prompt_tokens)
        return tr_errf(err, -EINVAL, "--prompt-tokens: there is a --prompt already");
    if (o->check_text && o->distinct)
        return tr_errf(err, -EINVAL, "--check-text: needs one prompt for all, not --distinct");
    if (o->check_text && o->abort_after)
        return tr_errf(err, -EINVAL, "--check-text: needs whole texts, not --abort-after");
    if (o->check_text && o->has_temperature && o->temperature > 0 && !o->has_seed)
        return tr_errf(err, -EINVAL, "--check-text: needs temperature 0 or a --seed");
    if (o->has_force_token && o->has_temperature && o->temperature > 0)
        return tr_errf(err, -EINVAL, "--force-token: needs temperature 0");
    if ((o->check_text || o->has_force_token) && !o->has_temperature)
        o->has_temperature = true;
    if (!o->requests)
        o->requests = o->parallel;
    if (o->parallel > o->requests)
        o->parallel = o->requests;
    if (!o->prompt && !o->prompt_tokens)
        o->prompt = "Tell me about a river, from its source to the sea.";
    return 0;
}

int tr_probe_opts_parse(struct tr_probe_opts *o, int argc, char **argv, struct tr_errbuf *err)
{
    struct tr_errbuf own = {0};
    *o = (struct tr_probe_opts){
        .to.agent = "tokenring-probe", .parallel = 1, .max_tokens = 64, .timeout_s = 120};
    o->to.url_text = "http://127.0.0.1:8080";
    int rc = tr_url_parse(&o->to.url, o->to.url_text, &own);
    if (!rc)
        rc = tr_flags_parse(&(struct tr_flags){table, OPT_COUNT, "TOKENRING_PROBE_", set, o}, argc,
                            argv, &own);
    if (!rc && !o->help)
        rc = settle(o, &own);
    return rc ? tr_errf(err, rc, "%s", own.msg) : 0;
}

void tr_probe_opts_fini(struct tr_probe_opts *o)
{
    free(o->prompt_owned);
    o->prompt_owned = NULL;
}
