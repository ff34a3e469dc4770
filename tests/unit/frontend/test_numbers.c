/* SPDX-License-Identifier: Apache-2.0 */
/* The number of an event is its place in the uncoalesced sequence, whatever happened on the way: the same
 * tokens are said one by one to a reader who always reads, and then in any portions, to readers who
 * block, wait and come back.  Number n always stands for the same beginning of the answer. */
#include "testfe/frontend_rig.h"

#include "base/sim_vocab.h"
#include "frontend/stream.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROMPT "pr\xc3\xb6mpt \xe7\x8c\xab and more of it"

enum { IDS = 160, NUMBERS = 600, TEXT = 1 << 14 };

enum shape { CHAT, COMPLETIONS, NATIVE, NDJSON, SHAPES };
enum ending { BY_EOG, BY_LENGTH, BY_STOP, BY_CANCEL, BY_ERROR, BY_LATE_CANCEL, ENDINGS };

struct plot {
    enum shape shape;
    enum ending ending;
    bool stop, lp, echo, usage;
    uint32_t n, cut; /* ids; how many of them before a cancel or an error */
    uint32_t ids[IDS];
};

/* What was received: what number k stands for. */
struct seen {
    int last;
    unsigned events;
    size_t len;
    char text[TEXT];
    bool has[NUMBERS];
    struct {
        size_t text;
        unsigned entries, tokens;
        char kind[24];
    } at[NUMBERS];
};

static struct tr_rig rig;

static unsigned roll(unsigned n)
{
    return (unsigned)rand() % n;
}

/* ---- what is said ---- */

static void add(struct plot *p, const char *text)
{
    for (; *text && p->n < IDS - 2; text++)
        p->ids[p->n++] = (uint8_t)*text;
}

static void make_plot(struct plot *p, unsigned seed)
{
    static const char *const piece[] = {
        "a",  "bc ", "\xf0\x9f\x98\x80", "\xe7\x8c\xab", "\xc3\xa9", "\n", "\"", "\xff", "\xe7\x8c",
        "ST", "STO", "\xe7\x8c\xab\xe7", "longer text "};
    srand(seed);
    *p = (struct plot){.shape = (enum shape)(seed % SHAPES),
                       .ending = (enum ending)(seed / SHAPES % ENDINGS),
                       .stop = roll(2),
                       .lp = roll(2),
                       .echo = roll(2),
                       .usage = roll(2)};
    p->stop |= p->ending == BY_STOP;
    unsigned n = 1 + roll(40);
    for (unsigned i = 0; i < n; i++) {
        add(p, piece[roll(sizeof(piece) / sizeof(piece[0]))]);
        for (unsigned k = roll(8) ? 0 : roll(40); k > 0 && p->n < IDS - 2; k--)
            p->ids[p->n++] = TR_SIM_IM_START; /* tokens without text */
    }
    if (p->ending == BY_STOP)
        add(p, "STOPx");
    if (p->ending == BY_EOG)
        p->ids[p->n++] = TR_SIM_IM_END;
    if (p->ending ==
        BY_LATE_CANCEL) /* the text has ended with something held, then comes a cancel */
        add(p, roll(2) ? "STO" : "\xe7\x8c");
    p->cut = p->ending == BY_LATE_CANCEL ? p->n : roll(p->n + 1);
}

static void post(const struct plot *p, struct tr_rig_client *c)
{
    static const char *const path[SHAPES] = {"/v1/chat/completions", "/v1/completions",
                                             "/v1/streams", "/v1/streams"};
    char body[1024], lp[64] = "", tail[256];

    if (p->lp)
        snprintf(lp, sizeof(lp), p->shape == CHAT ? ",\"logprobs\":true" : ",\"logprobs\":0");
    snprintf(tail, sizeof(tail), "%s%s%s%s,\"max_tokens\":%u}", lp,
             p->stop ? ",\"stop\":[\"STOP\",\"\xe7\x8c\xab\xe7\x8c\xab\xe7\x8c\xab\"]" : "",
             p->echo && p->shape != CHAT ? ",\"echo\":true" : "",
             p->usage ? ",\"stream_options\":{\"include_usage\":true}" : "",
             p->ending == BY_LENGTH || p->ending == BY_LATE_CANCEL ? p->n : 400);
    snprintf(body, sizeof(body), "{\"model\":\"sim\",\"stream\":true,%s%s",
             p->shape == CHAT ? "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]"
                              : "\"prompt\":\"" PROMPT "\"",
             tail);
    tr_rig_send(c, "POST", path[p->shape],
                p->shape == NDJSON ? "X-Tokenring-Resume: 1\r\nAccept: application/x-ndjson\r\n"
                                   : "X-Tokenring-Resume: 1\r\n",
                body);
}

/* ---- what is heard ---- */

static unsigned entries_of(const char *ev, const struct plot *p)
{
    unsigned n = 0;

    if (p->shape == CHAT) {
        for (const char *q = ev; (q = strstr(q, "\"top_logprobs\":[")); q++)
            n++;
        return n;
    }
    const char *q = strstr(ev, "\"text_offset\":[");
    if (!q || q[15] == ']')
        return 0;
    for (n = 1, q += 15; *q != ']'; q++)
        n += *q == ',';
    return n;
}

/* One event; the JSON of its line.  The escaped text is compared: it can be joined as well. */
static void hear_one(struct seen *v, const struct plot *p, char *json)
{
    const char *text = strstr(json, p->shape == CHAT ? "\"content\":\"" : "\"text\":\"");
    const char *id = strstr(json, p->shape < NATIVE ? "\"cursor\":\"" : "\"id\":\"");
    const char *tokens = strstr(json, "\"tokens\":");
    const char *type = strstr(json, "\"type\":\"");
    int before = v->last;

    if (!id) { /* queued, prefill */
        cr_assert(p->shape >= NATIVE &&
                      (strstr(json, "response.queued") || strstr(json, "prefill")),
                  "no number: %s", json);
        return;
    }
    int n = atoi(strchr(id + 10, ':') + 1);
    cr_assert(n > before && n < NUMBERS, "%d after %d: %s", n, before, json);
    if (text) {
        text = strchr(text + 4, ':') + 2;
        for (; *text != '"'; text++) {
            if (*text == '\\')
                v->text[v->len++] = *text++;
            v->text[v->len++] = *text;
        }
    }
    v->has[n] = true;
    v->at[n].text = v->len;
    v->at[n].entries = (before < 0 ? 0 : v->at[before].entries) + entries_of(json, p);
    v->at[n].tokens =
        (before < 0 ? 0 : v->at[before].tokens) + (tokens ? (unsigned)atoi(tokens + 9) : 0);
    snprintf(v->at[n].kind, sizeof(v->at[n].kind), "%.18s", type ? type + 8 : "chunk");
    v->last = n;
    v->events++;
}

static void hear(struct seen *v, const struct plot *p, struct tr_rig_client *c)
{
    static char body[TR_RIG_BYTES + 1];

    strcpy(body, tr_rig_body(c));
    *v = (struct seen){.last = -1};
    for (char *line = strtok(body, "\n"); line; line = strtok(NULL, "\n")) {
        char *json = strchr(line, '{');
        if (json && (json == line || !strncmp(line, "data: ", 6)))
            hear_one(v, p, json);
    }
}

/* ---- one way through the plot ---- */

struct way {
    bool plain;    /* token by token, always read */
    int rewind_at; /* after so many tokens another reader comes; -1: none */
    int after;     /* who has events up to this one, if it exists by then */
    struct tr_rig_client *c;
};

static void another_reader(struct way *w, const struct plot *p)
{
    static const char *const format[SHAPES] = {"chat", "completions", "native", "native"};
    const struct tr_stream *s = rig.fe.streams;
    char path[128], place[32] = "";

    w->rewind_at = -1;
    if (w->after >= (int)s->number)
        w->after = (int)s->number - 1;
    if (w->after >= 0)
        snprintf(place, sizeof(place), "&after=%d", w->after);
    snprintf(path, sizeof(path), "/v1/streams/%s?format=%s%s", s->stream_id, format[p->shape],
             place);
    if (roll(2)) { /* else the first one is still there, and is cut */
        tr_rig_close(w->c, roll(2));
        tr_rig_run(&rig);
        w->c = NULL;
    }
    struct tr_rig_client *c = tr_rig_connect(&rig, roll(2) ? 0 : 1);
    tr_rig_send(c, "GET", path, p->shape == NDJSON ? "Accept: application/x-ndjson\r\n" : NULL,
                NULL);
    tr_rig_run(&rig);
    if (w->c)
        tr_rig_close(w->c, false);
    w->c = c;
}

static void turn(struct way *w)
{
    if (w->plain || !roll(3))
        tr_rig_run(&rig);
    if (w->plain || !roll(4))
        tr_rig_read(w->c);
}

static void say_all(const struct plot *p, struct way *w, uint32_t slot)
{
    const struct tr_ring *r = tr_ring_at(&rig.shm, slot);
    uint32_t n = p->ending >= BY_CANCEL ? p->cut : p->n, told = 0;
    bool echo = p->echo && p->shape != CHAT && p->lp;

    while (echo && told < r->prompt_len) {
        told = tr_sengine_echo(&rig.engine, slot, told);
        tr_rig_run(&rig);
        tr_rig_read(w->c);
    }
    for (uint32_t i = 0; i < n && !tr_state_terminal(r->state);) {
        uint32_t k = w->plain ? 1 : 1 + roll(12);
        if (w->rewind_at >= 0 && (int)i >= w->rewind_at)
            another_reader(w, p);
        i += tr_sengine_say(&rig.engine, slot, p->ids + i, k < n - i ? k : n - i);
        turn(w);
    }
    if (p->stop && (p->ending < BY_CANCEL || w->plain)) /* its own end waits for the scan */
        tr_rig_run(&rig);
    if (tr_state_terminal(r->state))
        return;
    if (p->ending == BY_CANCEL || p->ending == BY_LATE_CANCEL)
        tr_sengine_end(&rig.engine, slot, TR_CANCELLED, TR_FINISH_NONE, TR_ERR_CANCELLED);
    else if (p->ending == BY_ERROR)
        tr_sengine_end(&rig.engine, slot, TR_ERROR, TR_FINISH_NONE, TR_ERR_ENGINE_LOST);
    else if (p->ending == BY_EOG)
        tr_sengine_end(&rig.engine, slot, TR_COMPLETED, TR_FINISH_EOG, TR_OK);
    else
        tr_sengine_end(&rig.engine, slot, TR_INCOMPLETE, TR_FINISH_LENGTH, TR_OK);
}

static void go(const struct plot *p, struct way *w, struct seen *v)
{
    tr_rig_defaults(&rig);
    rig.cfg.ledger_wait_ns = 0;
    rig.cfg.resume_window_ns = 60 * 1000000000ull;
    rig.cfg.hold_slots = 1;
    if (!w->plain) {
        rig.cfg.stream_buffer = roll(2) ? 16384 : 300;
        rig.cfg.coalesce_ns = roll(3) ? 0 : 1 + roll(3) * 1000000;
    }
    tr_rig_start(&rig, 4, false);
    w->c = tr_rig_connect(&rig, w->plain || roll(2) ? 0 : 1);
    post(p, w->c);
    tr_rig_run(&rig);
    tr_rig_read(w->c);
    uint32_t slot = tr_sengine_slot(&rig.engine, 0);
    cr_assert_neq(slot, UINT32_MAX, "%s", w->c->buf);
    say_all(p, w, slot);
    /* A socket whose window was shut opens it when the kernel has time for that. */
    for (int i = 0; i < 20000 && !strstr(w->c->buf, "\r\n0\r\n\r\n"); i++) {
        tr_rig_run(&rig);
        tr_rig_read(w->c);
        if (i > 200)
            usleep(1000);
    }
    cr_assert(strstr(w->c->buf, "\r\n0\r\n\r\n"), "no end: %s", w->c->buf);
    hear(v, p, w->c);
    tr_rig_close(w->c, false);
    tr_rig_stop(&rig);
}

/* ---- what must be so ---- */

/* `all`: also the entries; those that an earlier reader took are lost. */
static void same(const struct seen *ref, const struct seen *v, int after, bool all, unsigned seed)
{
    size_t text = after < 0 ? 0 : ref->at[after].text;
    unsigned tokens = after < 0 ? 0 : ref->at[after].tokens;

    cr_assert(v->last == (ref->last > after ? ref->last : -1), "seed %u: last %d, %d", seed,
              v->last, ref->last);
    cr_assert(
        v->len == (v->last < 0 ? 0 : ref->len - text) && !memcmp(v->text, ref->text + text, v->len),
        "seed %u after %d: %.*s|%.*s", seed, after, (int)v->len, v->text, (int)ref->len, ref->text);
    for (int n = 0; n <= v->last; n++) {
        if (!v->has[n] || !ref->has[n])
            continue;
        cr_assert(n > after && v->at[n].text == ref->at[n].text - text, "seed %u: number %d", seed,
                  n);
        cr_assert(v->at[n].tokens == ref->at[n].tokens - tokens, "seed %u: tokens of %d", seed, n);
        cr_assert_str_eq(v->at[n].kind, ref->at[n].kind, "seed %u: kind of %d", seed, n);
        if (all)
            cr_assert(v->at[n].entries == ref->at[n].entries, "seed %u: entries of %d: %u, %u",
                      seed, n, v->at[n].entries, ref->at[n].entries);
    }
}

static void reference(const struct plot *p, struct seen *ref, unsigned seed)
{
    struct way plain = {.plain = true, .rewind_at = -1, .after = -1};

    go(p, &plain, ref);
    cr_assert(ref->last >= 0);
    /* Nothing is coalesced but the echo, which is there as a whole: no other number is missing. */
    int first = p->echo && p->shape != CHAT ? (int)strlen(PROMPT) + 1 : 0;
    for (int n = first; n <= ref->last; n++)
        cr_assert(ref->has[n], "seed %u: %d is missing", seed, n);
}

enum { SEEDS = 120 };

Test(numbers, stand_for_the_same_text_however_events_were_joined, .timeout = 120)
{
    static struct seen ref, v;
    struct plot p;

    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        make_plot(&p, seed);
        reference(&p, &ref, seed);
        for (unsigned k = 0; k < 3; k++) {
            struct way w = {.rewind_at = -1, .after = -1};
            srand(seed * 100 + k);
            go(&p, &w, &v);
            same(&ref, &v, -1, true, seed);
        }
    }
}

/* A reader who has number n, in the middle of what was one event or not, gets all behind it. */
Test(numbers, a_reader_who_comes_back_gets_what_it_does_not_have, .timeout = 120)
{
    static struct seen ref, v;
    struct plot p;

    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        make_plot(&p, seed);
        reference(&p, &ref, seed);
        for (unsigned k = 0; k < 3; k++) {
            srand(seed * 100 + k);
            uint32_t n = p.ending >= BY_CANCEL ? p.cut : p.n;
            if (n < 2)
                continue;
            struct way w = {.plain = roll(2), .rewind_at = (int)roll(n - 1)};
            do
                w.after = (int)roll((unsigned)ref.last + 1);
            while (!ref.has[w.after]);
            if (!roll(4))
                w.after = -1;
            go(&p, &w, &v);
            if (w.rewind_at < 0) /* else it had ended before */
                same(&ref, &v, w.after, false, seed);
        }
    }
}
