/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/traces.h"

#include <errno.h>
#include <math.h>
#include <string.h>

uint64_t tr_traces_random(uint64_t *s)
{
    *s += 0x9E3779B97F4A7C15u;
    uint64_t z = *s;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

struct maker {
    struct tr_trace *t;
    uint64_t random;
    int rc;
};

/* (0, 1].  A draw changes the state: no two in one expression whose order is not fixed. */
static double uniform(struct maker *m)
{
    return (double)((tr_traces_random(&m->random) >> 11) + 1) / 9007199254740992.0;
}

static double between(struct maker *m, double low, double high)
{
    return low + (high - low) * uniform(m);
}

static double exponential(struct maker *m, double mean)
{
    return -log(uniform(m)) * mean;
}

/* Lengths of texts spread like this: most are short, some are very long. */
static uint64_t lognormal(struct maker *m, double median, double sigma, double low, double high)
{
    double far = sqrt(-2 * log(uniform(m)));
    double g = far * cos(6.283185307179586 * uniform(m));
    double v = median * exp(sigma * g);
    return (uint64_t)(v < low ? low : v > high ? high : v);
}

/* Milliseconds are as fine as a trace is printed. */
static double to_ms(double s)
{
    return floor(s * 1e3 + 0.5) / 1e3;
}

static struct tr_trace_entry *put(struct maker *m, const char *class, double at_s, uint64_t prompt,
                                  uint64_t max_tokens)
{
    static struct tr_trace_entry nowhere;
    struct tr_trace_entry e = {.at_s = to_ms(at_s),
                               .prompt_tokens = prompt,
                               .max_tokens = max_tokens,
                               .abandon_s = TR_TRACE_NEVER,
                               .abandon_after_first_s = TR_TRACE_NEVER,
                               .stream = true,
                               .line = m->t->n + 1};
    int id = tr_trace_class(m->t, class);
    e.class_id = id < 0 ? 0 : (unsigned)id;
    int rc = tr_trace_add(m->t, &e);
    m->rc = m->rc ? m->rc : rc;
    return rc ? &nowhere : &m->t->e[m->t->n - 1];
}

/* Questions, long conversations and documents to sum up; a few read slowly, leave, or ask for the
 * answer in one piece. */
static void put_chat(struct maker *m, double at)
{
    static const struct {
        const char *name;
        double share; /* of the requests, with those before it */
        double prompt, prompt_spread, prompt_min, prompt_max;
        double answer, answer_spread, answer_min, answer_max;
    } kinds[] = {
        {"question", 0.6, 60, 0.7, 8, 400, 80, 0.7, 4, 400},
        {"conversation", 0.9, 500, 0.5, 100, 1500, 100, 0.6, 4, 400},
        {"document", 1, 1300, 0.2, 800, 1600, 90, 0.4, 20, 250},
    };
    double kind = uniform(m), reader = uniform(m);
    size_t k = kind < kinds[0].share ? 0 : kind < kinds[1].share ? 1 : 2;
    uint64_t prompt = lognormal(m, kinds[k].prompt, kinds[k].prompt_spread, kinds[k].prompt_min,
                                kinds[k].prompt_max);
    uint64_t answer = lognormal(m, kinds[k].answer, kinds[k].answer_spread, kinds[k].answer_min,
                                kinds[k].answer_max);
    struct tr_trace_entry *e = put(m, kinds[k].name, at, prompt, answer);
    if (reader < 0.05)
        e->abandon_after_first_s = to_ms(between(m, 0.5, 4));
    else if (reader < 0.08)
        e->abandon_s = to_ms(between(m, 0.2, 3));
    else if (reader < 0.12) {
        e->paced = true;
        e->read_bps = 2000;
    } else if (reader < 0.16)
        e->stream = false;
}

static void put_short(struct maker *m, double at)
{
    uint64_t prompt = lognormal(m, 40, 0.4, 16, 120);
    put(m, "short", at, prompt, (uint64_t)between(m, 40, 80));
}

/* Those who stay want short answers; most ask for a long one and are gone before it is half there.
 * What is generated for nobody is what the others wait for. */
static void put_leaver_or_stayer(struct maker *m, double at)
{
    bool stays = uniform(m) < 0.35;
    uint64_t prompt = lognormal(m, 60, 0.5, 16, 200);
    uint64_t answer = (uint64_t)(stays ? between(m, 60, 180) : between(m, 400, 800));
    struct tr_trace_entry *e = put(m, stays ? "stays" : "leaves", at, prompt, answer);
    if (stays)
        return;
    double patience = to_ms(0.3 + exponential(m, 1.5));
    if (uniform(m) < 0.7)
        e->abandon_after_first_s = patience;
    else
        e->abandon_s = patience;
}

/* Independent arrivals. */
static void arrive(struct maker *m, double mean_gap_s, double until_s,
                   void (*put_one)(struct maker *m, double at))
{
    double at = 0;
    while (at < until_s) {
        put_one(m, at);
        at += exponential(m, mean_gap_s);
    }
}

static void make_chat(struct maker *m)
{
    arrive(m, 0.5, 60, put_chat);
}

/* Every three seconds a prompt of thousands of tokens comes between short streams. */
static void make_mixed(struct maker *m)
{
    arrive(m, 0.6, 45, put_short);
    for (int at = 2; at < 45; at += 3)
        put(m, "long-prompt", at, (uint64_t)between(m, 3000, 6000), 8);
}

static void make_abandonment(struct maker *m)
{
    arrive(m, 0.33, 60, put_leaver_or_stayer);
}

/* A chat: instructions and a question, then again and again all that was said and the next question,
 * up to 4,000 tokens.  Who asks reads the answer first. */
static void put_turns(struct maker *m, uint64_t chat, double at)
{
    uint64_t prompt = (uint64_t)between(m, 200, 800);
    for (bool first = true; prompt <= 4000; first = false) {
        uint64_t answer = (uint64_t)between(m, 40, 120);
        struct tr_trace_entry *e = put(m, first ? "first" : "later", at, prompt, answer);
        e->chat = chat;
        prompt += answer + (uint64_t)lognormal(m, 300, 0.7, 16, 1200);
        at += between(m, 4, 10);
    }
}

static void make_turns(struct maker *m)
{
    for (uint64_t chat = 1; chat <= 8; chat++)
        put_turns(m, chat, between(m, 0, 10));
}

static const struct {
    const char *name;
    void (*make)(struct maker *m);
    const char *help;
} traces[] = {
    {"chat", make_chat, "a minute of questions, conversations and documents, 2 a second"},
    {"mixed", make_mixed, "short streams, and every 3 s a prompt of 3000 to 6000 tokens"},
    {"abandonment", make_abandonment,
     "a minute, 3 a second; two of three ask for long answers and leave early"},
    {"turns", make_turns, "8 chats whose prompts grow turn by turn up to 4000 tokens"},
};
enum { N_TRACES = sizeof(traces) / sizeof(traces[0]) };

void tr_traces_help(FILE *out)
{
    for (int i = 0; i < N_TRACES; i++)
        fprintf(out, "  %-22s %s\n", traces[i].name, traces[i].help);
}

int tr_traces_make(struct tr_trace *t, const char *name, uint64_t seed)
{
    struct maker m = {.t = t, .random = seed};
    memset(t, 0, sizeof(*t));
    for (int i = 0; i < N_TRACES; i++) {
        if (strcmp(traces[i].name, name) != 0)
            continue;
        traces[i].make(&m);
        tr_trace_sort(t);
        return m.rc;
    }
    return -ENOENT;
}
