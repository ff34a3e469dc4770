/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/gate.c - see gate.h. */
#include "frontend/gate.h"

#include "base/clock.h"
#include "frontend/route.h"
#include "shm/quota.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>

enum tr_err tr_gate_identify(const struct tr_fe *fe, const struct tr_http *head, unsigned flags,
                             const struct tr_key **key, const char **why)
{
    const struct tr_keys *k = fe->cfg->keys;
    bool admin = flags & TR_ROUTE_ADMIN;
    const struct tr_key *found;

    *key = NULL;
    if (!k)
        return TR_OK;
    enum tr_key_found f = tr_keys_find(k, head, &found);
    *key = found;
    if (f == TR_KEY_GOOD && admin && !found->admin) {
        tr_stat_add(fe->stat, TR_STAT_REFUSED_KEY, 1);
        return TR_ERR_FORBIDDEN;
    }
    if (f == TR_KEY_GOOD || (!k->needed && !admin))
        return TR_OK;
    tr_stat_add(fe->stat, TR_STAT_REFUSED_KEY, 1);
    if (f == TR_KEY_NONE)
        *why = "An API key is needed: send Authorization: Bearer KEY.";
    return TR_ERR_UNAUTHORIZED;
}

/* ---- limits ---- */

static bool is_counted(const struct tr_fe *fe, const struct tr_key *key)
{
    return key && key->index < fe->shm->config.n_keys;
}

static enum tr_err refuse(struct tr_fe *fe, struct tr_exchange *x, unsigned wait_s,
                          const char **why, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

static enum tr_err refuse(struct tr_fe *fe, struct tr_exchange *x, unsigned wait_s,
                          const char **why, const char *fmt, ...)
{
    static char said[192];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(said, sizeof(said), fmt, ap);
    va_end(ap);
    *why = said;
    x->retry_s = wait_s;
    tr_stat_add(fe->stat, TR_STAT_REFUSED_LIMIT, 1);
    return TR_ERR_RATE_LIMIT;
}

/* ---- what clients are told about them ---- */

enum { LIMIT, REMAINING, RESET, NAMES };

static const char *const requests_openai[NAMES] = {
    "X-RateLimit-Limit-Requests", "X-RateLimit-Remaining-Requests", "X-RateLimit-Reset-Requests"};
static const char *const tokens_openai[NAMES] = {
    "X-RateLimit-Limit-Tokens", "X-RateLimit-Remaining-Tokens", "X-RateLimit-Reset-Tokens"};
static const char *const requests_anthropic[NAMES] = {"Anthropic-RateLimit-Requests-Limit",
                                                      "Anthropic-RateLimit-Requests-Remaining",
                                                      "Anthropic-RateLimit-Requests-Reset"};
static const char *const tokens_anthropic[NAMES] = {"Anthropic-RateLimit-Tokens-Limit",
                                                    "Anthropic-RateLimit-Tokens-Remaining",
                                                    "Anthropic-RateLimit-Tokens-Reset"};

struct limit {
    const char *const *openai, *const *anthropic; /* the names of its fields */
    uint64_t most, used;
    unsigned reset_s; /* until nothing of it is used */
};

static void tell_number(struct tr_exchange *x, const char *name, uint64_t n)
{
    char text[24];

    snprintf(text, sizeof(text), "%llu", (unsigned long long)n);
    tr_exchange_header(x, name, text);
}

static void tell_as(struct tr_exchange *x, const char *const name[NAMES], const struct limit *l,
                    const char *reset)
{
    tell_number(x, name[LIMIT], l->most);
    tell_number(x, name[REMAINING], l->most > l->used ? l->most - l->used : 0);
    tr_exchange_header(x, name[RESET], reset);
}

static void tell(struct tr_exchange *x, unsigned flags, const struct limit *l)
{
    time_t at = (time_t)tr_wall_s() + (time_t)l->reset_s;
    char text[32];
    struct tm tm;

    if (!l->most)
        return;
    snprintf(text, sizeof(text), "%s%us", l->reset_s < 60 ? "" : "1m", l->reset_s % 60);
    tell_as(x, l->openai, l, text);
    if (!(flags & TR_ROUTE_ANTHROPIC))
        return;
    gmtime_r(&at, &tm);
    strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    tell_as(x, l->anthropic, l, text);
}

/* ---- requests ---- */

enum tr_err tr_gate_request(struct tr_fe *fe, struct tr_exchange *x, const struct tr_key *key,
                            unsigned flags, const char **why)
{
    struct tr_quota_minute m;
    uint64_t now = tr_now_ns();

    if (!is_counted(fe, key))
        return TR_OK;
    if (!key->requests_per_min && !key->tokens_per_min) {
        tr_quota_request(fe->shm, key->index, now);
        return TR_OK;
    }
    tr_quota_look(fe->shm, key->index, now, &m);
    bool full = key->requests_per_min && m.all_requests >= key->requests_per_min;
    unsigned wait = full ? tr_quota_wait(m.requests, key->requests_per_min - 1) : 0;
    if (!full) {
        tr_quota_request(fe->shm, key->index, now);
        m.requests[0]++;
        m.all_requests++;
    }
    tell(x, flags,
         &(struct limit){requests_openai, requests_anthropic, key->requests_per_min, m.all_requests,
                         tr_quota_wait(m.requests, 0)});
    tell(x, flags,
         &(struct limit){tokens_openai, tokens_anthropic, key->tokens_per_min, m.all_tokens,
                         tr_quota_wait(m.tokens, 0)});
    if (!full)
        return TR_OK;
    return refuse(fe, x, wait, why,
                  "Requests of this key in a minute: at most %u.  Try again in %u s.",
                  key->requests_per_min, wait);
}

/* ---- streams, tokens ---- */

static enum tr_err check_tokens(struct tr_fe *fe, struct tr_exchange *x, const struct tr_key *key,
                                uint64_t prompt, const char **why)
{
    uint64_t most = key->tokens_per_min;
    struct tr_quota_minute m;

    if (!most)
        return TR_OK;
    if (prompt > most)
        return refuse(fe, x, TR_QUOTA_WINDOW_S, why,
                      "This key may use %llu tokens in a minute, and the prompt alone has %llu.",
                      (unsigned long long)most, (unsigned long long)prompt);
    tr_quota_look(fe->shm, key->index, tr_now_ns(), &m);
    if (m.all_tokens + prompt <= most)
        return TR_OK;
    unsigned wait = tr_quota_wait(m.tokens, most - prompt);
    return refuse(fe, x, wait, why,
                  "This key may use %llu tokens in a minute, and has used %llu; try again in %u s.",
                  (unsigned long long)most, (unsigned long long)m.all_tokens, wait);
}

enum tr_err tr_gate_stream(struct tr_fe *fe, struct tr_exchange *x, const struct tr_key *key,
                           uint32_t streams, uint64_t prompt, const char **why)
{
    if (!is_counted(fe, key))
        return TR_OK;
    uint64_t most = key->max_streams;
    uint64_t running = most ? tr_quota_running(fe->shm, key->index) : 0;
    if (most && streams > most)
        return refuse(fe, x, 1, why,
                      "Streams of this key at a time: at most %llu.  This request asks for %u.",
                      (unsigned long long)most, streams);
    if (most && running + streams > most)
        return refuse(fe, x, 1, why, "Streams of this key at a time: at most %llu.  Running: %llu.",
                      (unsigned long long)most, (unsigned long long)running);
    return check_tokens(fe, x, key, prompt, why);
}

void tr_gate_begin(struct tr_fe *fe, const struct tr_key *key, uint32_t streams)
{
    if (is_counted(fe, key))
        tr_quota_begin(fe->shm, key->index, streams);
}

void tr_gate_end(struct tr_fe *fe, const struct tr_key *key, uint32_t streams)
{
    if (is_counted(fe, key))
        tr_quota_end(fe->shm, key->index, streams);
}

void tr_gate_tokens(struct tr_fe *fe, const struct tr_key *key, uint64_t now_ns, uint64_t n)
{
    if (n && is_counted(fe, key) && key->tokens_per_min)
        tr_quota_tokens(fe->shm, key->index, now_ns, n);
}

void tr_gate_take_back(struct tr_fe *fe, const struct tr_key *key, uint64_t then_ns, uint64_t n)
{
    if (n && is_counted(fe, key) && key->tokens_per_min)
        tr_quota_take_back(fe->shm, key->index, then_ns, n);
}
