/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/choice_event.c - the events that tokens make.  See choice_priv.h.
 *
 * The uncoalesced sequence is a function of the ring: a delta ends with each token that gives text, and
 * with each LP_BATCH-th entry of tokens that give none; of an answer that is taken apart, each token makes
 * an event for each part that it gives.  Which of them leave together depends on time; an event counts its
 * members, all of one kind, carries what they carry and nothing that belongs to the next one. */
#include "frontend/choice_priv.h"

#include "base/clock.h"
#include "base/fault.h"
#include "frontend/access.h"
#include "shm/lpring.h"

#include <string.h>

enum { LP_BATCH = 16 };

bool tr_choice_has_room(struct tr_stream *s)
{
    if (!s->ask->stream || tr_stream_is_past(s))
        return true;
    if (tr_stream_credit(s) == 0)
        return false;
    if (tr_exchange_room(s->x) > 0)
        return true;
    tr_exchange_flush(s->x);
    return tr_exchange_room(s->x) > 0;
}

/* Going through what the reader has costs no socket's time: only so much in a turn. */
static bool may_go_on(struct tr_stream *s, struct tr_choice *ch)
{
    if (!tr_stream_is_past(s))
        return true;
    ch->paused = s->fe->whole_left == 0;
    if (ch->paused)
        tr_stream_due(s);
    else
        s->fe->whole_left--;
    return !ch->paused;
}

static uint32_t count_chars(const char *p, size_t n)
{
    uint32_t k = 0;

    for (size_t i = 0; i < n; i++)
        k += ((uint8_t)p[i] & 0xc0) != 0x80;
    return k;
}

/* ---- out ---- */

static void note_content(struct tr_stream *s, struct tr_choice *ch, uint32_t tokens, uint64_t now)
{
    struct tr_stat *st = s->fe->stat;

    if (s->x)
        tr_access_at(s->x, TR_AT_FIRST_BYTE, now);
    if (!s->receipt.rec.first_byte_ns) {
        s->receipt.rec.first_byte_ns = now;
        if (!s->hold.adopted) /* else it is not known whether it is the first */
            tr_hist_add(st, TR_HIST_FIRST_BYTE, now - s->ask->arrival_ns);
    }
    if (ch->last_event_ns) {
        uint64_t gap = now - ch->last_event_ns;
        tr_hist_add(st, TR_HIST_INTER_CHUNK, gap);
        /* The tokens of one event arrive together: the first waited for the gap, the rest for
         * nothing. */
        if (tokens)
            tr_hist_add(st, TR_HIST_DELIVERED_GAP, gap);
        if (tokens > 1)
            tr_hist_add_n(st, TR_HIST_DELIVERED_GAP, 0, tokens - 1);
    }
    ch->last_event_ns = now;
}

/* The dialect's event, and what the histograms say of it. */
static void write_event(struct tr_stream *s, struct tr_choice *ch, const struct tr_event *ev)
{
    bool past = tr_stream_is_past(s);
    uint64_t t0 = tr_now_ns();

    s->dialect->event(s, ev);
    TR_FAULT_FOR(FRONTEND_FRAMED, s->ask->params.seed);
    if (past)
        return;
    tr_stream_spend(s, ev->tokens);
    uint64_t t1 = tr_now_ns();
    tr_hist_add(s->fe->stat, TR_HIST_FRAME, t1 - t0);
    note_content(s, ch, ev->tokens, t1);
}

static void keep_entries(struct tr_stream *s, struct tr_choice *ch, const struct tr_event *ev)
{
    struct tr_fe *fe = s->fe;

    tr_lp_text_add(&ch->lp_text, s->ask->chat, tr_stream_lp_style(s), ev->lp, ev->n_lp);
    if (tr_lp_text_bytes(&ch->lp_text) > 2 * fe->cfg->max_body) {
        s->failure = TR_ERR_INTERNAL;
        tr_stream_cancel(s, TR_ERR_INTERNAL);
    }
}

void tr_choice_emit(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d)
{
    uint32_t lost = 0;

    if (!d->members)
        return;
    /* Those that an earlier reader took come before all others. */
    while (lost < ch->lp_told && ch->lpq.item[lost].lost)
        lost++;
    bool none = lost && lost == ch->lp_told;
    struct tr_event ev = {
        .type = d->type,
        .choice = ch->index,
        .members = d->members,
        .text = s->fe->text,
        .text_len = d->len,
        .tokens = d->tokens,
        .lp = ch->lpq.item && !none ? ch->lpq.item + lost : NULL,
        .n_lp = ch->lp_told - lost,
        .call = d->call,
    };

    if (s->ask->stream)
        write_event(s, ch, &ev);
    else
        keep_entries(s, ch, &ev);
    tr_lpq_drop(&ch->lpq, ch->lp_told);
    ch->lp_told = 0;
    ch->begun = true;
    ch->event_tokens -= d->tokens;
    *d = (struct tr_delta){0};
}

bool tr_choice_must_go(const struct tr_stream *s, const struct tr_choice *ch,
                       const struct tr_delta *d)
{
    return tr_stream_is_past(s) || d->tokens >= tr_stream_credit(s) || d->len >= TR_EVENT_TEXT ||
           ch->lpq.n >= TR_EVENT_ENTRIES;
}

/* ---- members ---- */

/* Where the next token's text begins: after what is shown and what is held. */
static void text_place(const struct tr_choice *ch, uint64_t *bytes, uint32_t *chars)
{
    *bytes = ch->shown + ch->send.detok.utf8.n;
    *chars = ch->shown_chars;
    if (ch->send.stops) {
        struct tr_str held = tr_stop_held(ch->send.stops, ch->send.state);
        *bytes += held.len;
        *chars += count_chars(held.p, held.len);
    }
}

/* The scan has given text: it is behind the event's in fe->text. */
static void note_text(struct tr_stream *s, struct tr_choice *ch, const struct tr_delta *d,
                      size_t len)
{
    ch->shown += len;
    ch->shown_chars += count_chars(s->fe->text + d->len, len);
}

/* The event has one more member: its entries are the first `entries` of the queue. */
static void add_member(struct tr_choice *ch, struct tr_delta *d, enum tr_event_type type,
                       uint32_t entries)
{
    d->type = type;
    d->members++;
    d->tokens = ch->event_tokens;
    ch->lp_told = entries;
}

/* How many entries of the queue the next member carries. */
static uint32_t certain_entries(const struct tr_stream *s, const struct tr_choice *ch)
{
    return s->ask->logprobs ? tr_lpq_certain(&ch->lpq, ch->shown) : 0;
}

static void add_text(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d, size_t len)
{
    note_text(s, ch, d, len);
    d->len += len;
}

/* ---- parts ---- */

static enum tr_event_type type_of(enum tr_part_kind kind)
{
    static const enum tr_event_type type[] = {[TR_PART_TEXT] = TR_EV_DELTA,
                                              [TR_PART_REASONING] = TR_EV_REASONING,
                                              [TR_PART_CALL] = TR_EV_CALL,
                                              [TR_PART_ARGS] = TR_EV_CALL_ARGS,
                                              [TR_PART_CALL_DONE] = TR_EV_CALL_DONE};

    return type[kind];
}

/* Whether a part would be a member of this event.  Entries alone are an event of their own: a dialect may
 * put them somewhere else than the text that follows. */
static bool joins(const struct tr_delta *d, enum tr_event_type type)
{
    return d->members && d->len && d->type == type && type != TR_EV_CALL && type != TR_EV_CALL_DONE;
}

/* The kind of an event that has no text, for its entries: in the midst of what was last. */
static enum tr_event_type silent_type(const struct tr_choice *ch)
{
    return ch->last == TR_EV_CALL        ? TR_EV_CALL_ARGS
           : ch->last == TR_EV_CALL_DONE ? TR_EV_DELTA
                                         : ch->last;
}

/* Takes out what is not shown. */
static void hide(const struct tr_stream *s, struct tr_parts *parts)
{
    uint32_t n = 0;

    if (!s->ask->reasoning_hidden)
        return;
    for (uint32_t i = 0; i < parts->n; i++)
        if (parts->part[i].kind != TR_PART_REASONING)
            parts->part[n++] = parts->part[i];
    parts->n = n;
}

static void add_part(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d,
                     const struct tr_parts *parts, const struct tr_part *p)
{
    enum tr_event_type type = type_of(p->kind);

    if (!joins(d, type))
        tr_choice_emit(s, ch, d);
    memcpy(s->fe->text + d->len, parts->text + p->at, p->len);
    d->len += p->len;
    d->call = p->call;
    add_member(ch, d, type, certain_entries(s, ch));
    ch->last = type;
    ch->calls += p->kind == TR_PART_CALL_DONE;
}

/* Whether there is room for an event of this kind, which may have to wait for the one before. */
static bool room_for(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d,
                     enum tr_event_type type)
{
    if (joins(d, type))
        return true;
    tr_choice_emit(s, ch, d);
    return tr_choice_has_room(s);
}

/* ---- one token ---- */

/* The logprob entry of token `at`; `lost` if an earlier reader took it.  False: it is not there yet. */
static bool look_at_entry(struct tr_stream *s, struct tr_choice *ch, uint32_t id, uint64_t at,
                          struct tr_lp_item *it)
{
    const struct tr_cursor *c = tr_cursor_at(s->fe->shm, s->fe->shm->my_area, ch->slot);

    /* Relaxed: only we write it. */
    it->lost = at < atomic_load_explicit(&c->lp_head, memory_order_relaxed);
    it->lp.id = id;
    if (!it->lost && tr_lpring_peek(s->fe->shm, ch->slot, &it->lp))
        return false;
    text_place(ch, &it->start, &it->text_offset);
    return true;
}

static void take_entry(struct tr_stream *s, struct tr_choice *ch, int rc, struct tr_lp_item *it)
{
    uint64_t end;
    uint32_t end_chars;

    text_place(ch, &end, &end_chars);
    it->empty = rc == TR_SCAN_GO && end == it->start;
    if (!it->lost)
        tr_lpring_pop(s->fe->shm, ch->slot);
    if (tr_lpq_push(&ch->lpq, it) && !s->failure) {
        s->failure = TR_ERR_INTERNAL;
        tr_stream_cancel(s, TR_ERR_INTERNAL);
    }
}

/* Whether an entry more makes an event although there is no text. */
static bool batch_is_full(const struct tr_stream *s, const struct tr_choice *ch)
{
    return s->ask->logprobs && ch->lpq.n + 1 - ch->lp_told >= LP_BATCH;
}

/* The token has given `len` bytes of an answer that is not taken apart.  False: there is no room. */
static bool step_text(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d, size_t len)
{
    if ((len || batch_is_full(s, ch)) && !d->members && !tr_choice_has_room(s))
        return false;
    add_text(s, ch, d, len);
    return true;
}

/* The same of one that is: what it gives is in fe->parts then. */
static bool step_parts(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d, size_t len)
{
    struct tr_split before = ch->split;
    struct tr_parts *parts = s->fe->parts;
    bool event = true;
    enum tr_event_type type = silent_type(ch);

    tr_split_push(&ch->split, s->fe->text + d->len, len, parts);
    hide(s, parts);
    if (parts->n)
        type = type_of(parts->part[0].kind);
    else
        event = batch_is_full(s, ch);
    uint32_t chars = count_chars(s->fe->text + d->len, len); /* before an event takes its place */
    if (event && !room_for(s, ch, d, type)) {
        ch->split = before;
        return false;
    }
    ch->shown += len;
    ch->shown_chars += chars;
    return true;
}

/* What the uncoalesced sequence has here. */
static void make_members(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d, size_t len)
{
    bool split = tr_ask_splits(s->ask);
    const struct tr_parts *parts = s->fe->parts;
    uint32_t certain;

    for (uint32_t i = 0; split && i < parts->n; i++)
        add_part(s, ch, d, parts, &parts->part[i]);
    if (split && parts->n)
        return;
    certain = certain_entries(s, ch);
    if ((len && !split) || certain - ch->lp_told >= LP_BATCH)
        add_member(ch, d, split ? silent_type(ch) : TR_EV_DELTA, certain);
}

bool tr_choice_step(struct tr_stream *s, struct tr_choice *ch, uint32_t id, uint64_t at,
                    struct tr_delta *d)
{
    struct tr_scan before = ch->send;
    struct tr_lp_item it = {.first = s->ask->echo && at == 0};
    bool lp = s->ask->logprobs;
    size_t len = 0;

    if (!may_go_on(s, ch) || (lp && !look_at_entry(s, ch, id, at, &it)))
        return false;
    int rc = tr_scan_push(&ch->send, (int32_t)id, s->fe->text + d->len, &len);
    if (rc < 0)
        len = 0; /* the scanning side has seen it and ends the stream before it */
    if (!(tr_ask_splits(s->ask) ? step_parts(s, ch, d, len) : step_text(s, ch, d, len))) {
        ch->send = before;
        ch->blocked = true;
        return false;
    }
    if (lp)
        take_entry(s, ch, rc, &it);
    ch->event_tokens += ch->echo_done;
    make_members(s, ch, d, len);
    return true;
}

/* ---- the end ---- */

void tr_choice_end_echo(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d)
{
    size_t len = 0;

    tr_scan_flush(&ch->send, s->fe->text + d->len, &len);
    add_text(s, ch, d, len);
    if (len || ch->lpq.n > ch->lp_told)
        add_member(ch, d, TR_EV_DELTA, ch->lpq.n);
    tr_choice_emit(s, ch, d);
}

/* Whether text of `len` bytes and the end of it give a part. */
static bool ends_with_part(struct tr_stream *s, const struct tr_choice *ch, const char *text,
                           size_t len)
{
    struct tr_split split = ch->split;
    struct tr_parts *parts = s->fe->parts;

    tr_split_push(&split, text, len, parts);
    hide(s, parts);
    uint32_t n = parts->n;
    if (!ch->cut) {
        tr_split_flush(&split, parts);
        hide(s, parts);
        n += parts->n;
    }
    return n;
}

/* The last parts. */
static void flush_parts(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d, size_t len)
{
    struct tr_parts *parts = s->fe->parts;

    tr_split_push(&ch->split, s->fe->text + d->len, len, parts);
    note_text(s, ch, d, len);
    for (int end = 0; end < 2; end++) {
        hide(s, parts);
        for (uint32_t i = 0; i < parts->n; i++)
            add_part(s, ch, d, parts, &parts->part[i]);
        parts->n = 0;
        if (!end && !ch->cut)
            tr_split_flush(&ch->split, parts);
    }
}

bool tr_choice_flush(struct tr_stream *s, struct tr_choice *ch, struct tr_delta *d)
{
    struct tr_scan before = ch->send;
    bool stopped = ch->send.stop >= 0, split = tr_ask_splits(s->ask);
    char *text = s->fe->text + d->len;
    size_t len = 0;

    if (!stopped && !ch->cut)
        stopped = tr_scan_flush(&ch->send, text, &len) == TR_SCAN_STOPPED;
    bool event = ch->lpq.n || (split ? ends_with_part(s, ch, text, len) : len);
    if (event && !d->members && !tr_choice_has_room(s)) {
        ch->send = before;
        ch->blocked = true;
        return false;
    }
    if (split)
        flush_parts(s, ch, d, len);
    else
        add_text(s, ch, d, len);
    uint32_t certain = stopped || ch->cut ? tr_lpq_certain(&ch->lpq, ch->shown) : ch->lpq.n;
    if ((len && !split) || certain > ch->lp_told)
        add_member(ch, d, split ? silent_type(ch) : TR_EV_DELTA, certain);
    tr_choice_emit(s, ch, d);
    tr_lpq_drop(&ch->lpq, ch->lpq.n);
    ch->lp_told = 0;
    ch->flushed = true;
    return true;
}
