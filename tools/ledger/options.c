/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_tool/options.h"

#include "client/flags.h"
#include "ledger/address.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum opt_id {
    OPT_LEDGER,
    OPT_SPOOL,
    OPT_FORMAT,
    OPT_KEY,
    OPT_MODEL,
    OPT_DAY,
    OPT_STATUS,
    OPT_BY,
    OPT_HELP,
    OPT_COUNT
};

/* Indexed by opt_id. */
static const struct tr_flag table[OPT_COUNT] = {
    [OPT_LEDGER] = {"ledger", "ADDRESS", "file or postgresql:// address, as for tokenring serve"},
    [OPT_SPOOL] = {"ledger-spool", "DIR", "its spool, if the service has it at a place of its own"},
    [OPT_FORMAT] = {"format", "F", "export: jsonl | csv (jsonl); sum: table | jsonl | csv (table)"},
    [OPT_KEY] = {"key", "ID", "only requests of this key"},
    [OPT_MODEL] = {"model", "NAME", "only requests to this model"},
    [OPT_DAY] = {"day", "YYYY-MM-DD", "only requests that came on this day (UTC)"},
    [OPT_STATUS] = {"status", "S", "only these: completed | incomplete | cancelled | error"},
    [OPT_BY] = {"by", "WHAT,...", "sum: a line for each key, model, day, status or combination"},
    [OPT_HELP] = {"help", NULL, "this page"},
};

const char *const tr_lt_by_word[TR_LT_BY_COUNT] = {
    [TR_LT_KEY] = "key", [TR_LT_MODEL] = "model", [TR_LT_DAY] = "day", [TR_LT_STATUS] = "status"};

static const char *const action_word[] = {
    [TR_LT_VERIFY] = "verify", [TR_LT_SUM] = "sum", [TR_LT_EXPORT] = "export"};
static const char *const format_word[] = {
    [TR_LT_TABLE] = "table", [TR_LT_JSONL] = "jsonl", [TR_LT_CSV] = "csv"};
static const char *const status_word[] = {"completed", "incomplete", "cancelled", "error"};

/* The place of the first n bytes of v in a list of words, or -1. */
static int find(const char *v, size_t n, const char *const *word, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (strlen(word[i]) == n && memcmp(v, word[i], n) == 0)
            return (int)i;
    return -1;
}
#define FIND(v, n, words) find(v, n, words, sizeof(words) / sizeof((words)[0]))

static int take_format(struct tr_lt_options *o, const char *v)
{
    int i = FIND(v, strlen(v), format_word);
    if (i < 0 || (o->action == TR_LT_EXPORT && i == TR_LT_TABLE))
        return -EINVAL;
    o->format = (enum tr_lt_format)i;
    return 0;
}

static int take_by(struct tr_lt_options *o, const char *v)
{
    o->n_by = 0;
    for (;; v++) {
        size_t n = strcspn(v, ",");
        int i = FIND(v, n, tr_lt_by_word);
        if (i < 0)
            return -EINVAL;
        for (unsigned k = 0; k < o->n_by; k++)
            if (o->by[k] == (enum tr_lt_by)i)
                return -EINVAL;
        o->by[o->n_by++] = (enum tr_lt_by)i;
        v += n;
        if (!*v)
            return 0;
    }
}

static int take_day(struct tr_lt_options *o, const char *v)
{
    struct tm t = {0};
    char again[32];
    const char *end = strptime(v, "%Y-%m-%d", &t);
    if (!end || *end)
        return -EINVAL;
    time_t s = timegm(&t); /* makes 2 March of 30 February */
    if (s < 0 || !gmtime_r(&s, &t) || !strftime(again, sizeof(again), "%Y-%m-%d", &t) ||
        strcmp(v, again) != 0)
        return -EINVAL;
    o->filter.from_us = s ? s * 1000000ll : 1; /* 0 would be no limit */
    o->filter.until_us = (s + 86400) * 1000000ll;
    return 0;
}

static int take_status(struct tr_lt_options *o, const char *v)
{
    o->filter.status = v;
    return FIND(v, strlen(v), status_word) < 0 ? -EINVAL : 0;
}

static int set(void *ctx, int id, const char *v, struct tr_errbuf *err)
{
    struct tr_lt_options *o = ctx;
    (void)err;
    switch ((enum opt_id)id) {
    case OPT_LEDGER:
        return tr_take_text(&o->ledger, v);
    case OPT_SPOOL:
        return tr_take_text(&o->spool, v);
    case OPT_FORMAT:
        return take_format(o, v);
    case OPT_KEY:
        o->filter.key = v; /* "": requests without one */
        return 0;
    case OPT_MODEL:
        return tr_take_text(&o->filter.model, v);
    case OPT_DAY:
        return take_day(o, v);
    case OPT_STATUS:
        return take_status(o, v);
    case OPT_BY:
        return take_by(o, v);
    case OPT_HELP:
    case OPT_COUNT:
        break;
    }
    return -EINVAL;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int settle(const struct tr_lt_options *o, bool has_format, struct tr_errbuf *err)
{
    const struct tr_sink_filter *f = &o->filter;
    if (!o->ledger || strcmp(o->ledger, "off") == 0)
        return tr_errf(err, -EINVAL, "which ledger? --ledger FILE or --ledger postgresql://...");
    if (tr_sink_check_address(o->ledger, err))
        return -EINVAL;
    if (o->action != TR_LT_SUM && o->n_by)
        return tr_errf(err, -EINVAL, "--by: only for sum");
    if (o->action == TR_LT_VERIFY && has_format)
        return tr_errf(err, -EINVAL, "--format: not for verify");
    if (o->action == TR_LT_VERIFY && (f->key || f->model || f->status || f->from_us))
        return tr_errf(err, -EINVAL,
                       "verify looks at all requests: no --key, --model, --day, --status");
    return 0;
}

int tr_lt_options_parse(struct tr_lt_options *o, int argc, char **argv, struct tr_errbuf *err)
{
    const char *address = getenv("TOKENRING_LEDGER"), *spool = getenv("TOKENRING_LEDGER_SPOOL");
    *o = (struct tr_lt_options){.ledger = address && *address ? address : NULL,
                                .spool = spool ? spool : ""};
    if (asks_for_help(argc, argv))
        return 1;
    int action = argc < 2 ? -1 : FIND(argv[1], strlen(argv[1]), action_word);
    if (action < 0)
        return tr_errf(err, -EINVAL, "verify, sum or export? (see tokenring ledger --help)");
    o->action = (enum tr_lt_action)action;
    /* Not one of them: no flag has set it. */
    o->format = (enum tr_lt_format) - 1;
    struct tr_flags flags = {table, OPT_COUNT, "TOKENRING_LEDGER_", set, o};
    int ret = tr_flags_parse(&flags, argc - 1, argv + 1, err);
    if (ret && strstr(err->msg, "://")) /* it may have a password in it */
        ret = tr_errf(err, -EINVAL, "an address belongs to --ledger (see tokenring ledger --help)");
    bool has_format = o->format != (enum tr_lt_format) - 1;
    if (!has_format)
        o->format = o->action == TR_LT_EXPORT ? TR_LT_JSONL : TR_LT_TABLE;
    return ret ? ret : settle(o, has_format, err);
}

void tr_lt_options_help(void)
{
    fputs("usage: tokenring ledger verify|sum|export --ledger ADDRESS [options]\n\n"
          "Usage records: those in the database and those still in the spool, each request once,\n"
          "also while the service runs. Nothing is made or changed.\n\n"
          "  verify   look for damage, doubles and values that cannot be; a line for each\n"
          "  sum      requests, choices and tokens, of all or by key, model, day, status\n"
          "  export   every request, oldest first\n\n",
          stdout);
    tr_flags_help(table, OPT_COUNT, stdout);
    fputs(
        "\n--ledger can come from the environment as TOKENRING_LEDGER, --ledger-spool as\n"
        "TOKENRING_LEDGER_SPOOL (as for serve), --key as TOKENRING_LEDGER_KEY, and so the others.\n"
        "A password is better kept out of the command line: in TOKENRING_LEDGER, PGPASSWORD or\n"
        "~/.pgpass.\n\n"
        "exit status: 0; 1 verify found something, or the ledger cannot be read; 2 usage\n\n"
        "export has these columns; times are seconds since 1970, or null (nothing in CSV):\n"
        "  request_id stream_id key model status reason created_at first_token_at finished_at\n"
        "  choices prompt_tokens cached_tokens completion_tokens overrun_tokens last_token\n"
        "  disconnect_at cancel_ack_at first_byte_at delivered_tokens closed_at\n"
        "sum has the columns of --by, then\n"
        "  requests choices prompt_tokens cached_tokens completion_tokens overrun_tokens\n",
        stdout);
}
