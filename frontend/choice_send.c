/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/choice_send.c - what goes out of one choice: its deltas, its echo, its finish.  See stream.h.
 *
 * The uncoalesced sequence of deltas is a function of the ring: a delta ends with each token that gives
 * text, and with each LP_BATCH-th entry of tokens that give none.  Which of them leave together depends
 * on time; an event counts its members, carries what they carry and nothing that belongs to the next
 * one.  So a reader who has an event can be given the rest by going through the ring again without
 * writing (tr_stream_is_past): then each delta is made by itself. */
#include "base/clock.h"
#include "base/fault.h"
#include "frontend/stream.h"
#include "shm/lpring.h"

#include <errno.h>
#include <string.h>

enum { LP_BATCH = 16 };

/* A delta in the making: text in fe->text; entries ch->lpq.item[0, ch->lp_told). */
struct delta {
    size_t len;
    uint32_t members;
    uint32_t tokens; /* up to the last member's */
};

static void scan_from_start(const struct tr_stream *s, struct tr_choice *ch)
{
    tr_scan_init(&ch->send, s->fe->vocab, s->ask->stops, s->ask->skip_special);
    ch->send.include_stop = s->ask->include_stop;
}

void tr_choice_rewind(struct tr_stream *s, struct tr_choice *ch)
{
    scan_from_start(s, ch);
    ch->echo_done = !s->ask->echo || ch->lost;
    if (!ch->echo_done) { /* a stop string in the prompt stops nothing */
        tr_scan_init(&ch->send, s->fe->vocab, NULL, s->ask->skip_special);
        tr_detok_begins(&ch->send.detok);
    }
    ch->flushed = ch->begun = ch->finished = ch->blocked = ch->paused = false;
    ch->sent = ch->coalesce_to = 0;
    ch->echoed = ch->event_tokens = ch->lp_told = 0;
    ch->last_event_ns = 0;
    ch->shown = 0;
    ch->shown_chars = 0;
    tr_lpq_drop(&ch->lpq, ch->lpq.n);
    tr_emit_piece_fini(&ch->delta_head); /* another dialect begins otherwise */
}

/* ---- deltas ---- */

static bool framing(const struct tr_stream *s)
{
    return s->x && (s->ask->stream || s->ask->logprobs);
}

/* Whether the connection takes another event, and the client wants it; what was written in this turn is
 * tried first. */
static bool has_room(struct tr_stream *s)
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

static void note_content(struct tr_stream *s, struct tr_choice *ch, uint32_t tokens, uint64_t now)
{
    struct tr_stat *st = s->fe->stat;

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
        tr_hist_add(st, TR_HIST_DELIVERED_GAP, gap);
        if (tokens > 1)
            tr_hist_add_n(st, TR_HIST_DELIVERED_GAP, 0, tokens - 1);
    }
    ch->last_event_ns = now;
}

/* The dialect's event, and what the histograms say of it. */
static void write_delta(struct tr_stream *s, struct tr_choice *ch, const struct tr_event *ev)
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

static void emit_delta(struct tr_stream *s, struct tr_choice *ch, struct delta *d)
{
    uint32_t lost = 0;

    /* Those that an earlier reader took come before all others. */
    while (lost < ch->lp_told && ch->lpq.item[lost].lost)
        lost++;
    bool none = lost && lost == ch->lp_told;
    struct tr_event ev = {
        .type = TR_EV_DELTA,
        .choice = ch->index,
        .members = d->members,
        .text = s->fe->text,
        .text_len = d->len,
        .tokens = d->tokens,
        .lp = ch->lpq.item && !none ? ch->lpq.item + lost : NULL,
        .n_lp = ch->lp_told - lost,
    };

    if (s->ask->stream)
        write_delta(s, ch, &ev);
    else
        keep_entries(s, ch, &ev);
    tr_lpq_drop(&ch->lpq, ch->lp_told);
    ch->lp_told = 0;
    ch->begun = true;
    ch->event_tokens -= d->tokens;
    *d = (struct delta){0};
}

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

/* Text is added to the delta. */
static void add_text(struct tr_stream *s, struct tr_choice *ch, struct delta *d, size_t len)
{
    ch->shown += len;
    ch->shown_chars += count_chars(s->fe->text + d->len, len);
    d->len += len;
}

/* The delta has one more member: its entries are the first `entries` of the queue. */
static void add_member(struct tr_choice *ch, struct delta *d, uint32_t entries)
{
    d->members++;
    d->tokens = ch->event_tokens;
    ch->lp_told = entries;
}

/* Whether the uncoalesced sequence has an event here. */
static void look_for_member(struct tr_stream *s, struct tr_choice *ch, struct delta *d, size_t len)
{
    uint32_t certain = s->ask->logprobs ? tr_lpq_certain(&ch->lpq, ch->shown) : 0;

    if (len || certain - ch->lp_told >= LP_BATCH)
        add_member(ch, d, certain);
}

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

/* Runs one token, number `at` of prompt (if it is echoed) and answer, through the sending state, its
 * logprob entry with it.  False: not now (no entry, no room); nothing has changed then. */
static bool step_token(struct tr_stream *s, struct tr_choice *ch, uint32_t id, uint64_t at,
                       struct delta *d)
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
    /* It may make an event of its own. */
    bool event = len || (lp && ch->lpq.n + 1 - ch->lp_told >= LP_BATCH);
    if (event && !d->members && !has_room(s)) {
        ch->send = before;
        ch->blocked = true;
        return false;
    }
    add_text(s, ch, d, len);
    if (lp)
        take_entry(s, ch, rc, &it);
    ch->event_tokens += ch->echo_done;
    look_for_member(s, ch, d, len);
    return true;
}

/* Whether the delta has to go now. */
static bool is_full(const struct tr_stream *s, const struct tr_choice *ch, const struct delta *d)
{
    return tr_stream_is_past(s) || d->tokens >= tr_stream_credit(s) || d->len >= TR_EVENT_TEXT ||
           ch->lpq.n >= TR_EVENT_ENTRIES;
}

/* Text that was held because nothing could follow it yet. */
static bool flush_end(struct tr_stream *s, struct tr_choice *ch, struct delta *d)
{
    struct tr_scan before = ch->send;
    bool stopped = ch->send.stop >= 0;
    size_t len = 0;

    if (!stopped && !ch->cut)
        stopped = tr_scan_flush(&ch->send, s->fe->text + d->len, &len) == TR_SCAN_STOPPED;
    if ((len || ch->lpq.n) && !d->members && !has_room(s)) {
        ch->send = before;
        ch->blocked = true;
        return false;
    }
    add_text(s, ch, d, len);
    uint32_t certain = stopped || ch->cut ? tr_lpq_certain(&ch->lpq, ch->shown) : ch->lpq.n;
    if (len || certain > ch->lp_told)
        add_member(ch, d, certain);
    if (d->members)
        emit_delta(s, ch, d);
    tr_lpq_drop(&ch->lpq, ch->lpq.n);
    ch->lp_told = 0;
    ch->flushed = true;
    return true;
}

/* ---- echo ---- */

static void end_echo(struct tr_stream *s, struct tr_choice *ch, struct delta *d)
{
    size_t len = 0;

    tr_scan_flush(&ch->send, s->fe->text + d->len, &len);
    add_text(s, ch, d, len);
    if (len || ch->lpq.n > ch->lp_told)
        add_member(ch, d, ch->lpq.n);
    if (d->members)
        emit_delta(s, ch, d);
    scan_from_start(s, ch);
    ch->echo_done = true;
}

static bool frame_echo(struct tr_stream *s, struct tr_choice *ch)
{
    const uint32_t *ids = tr_ring_ids(s->fe->shm, ch->slot);
    struct delta d = {0};
    bool moved = false;

    while (ch->echoed < ch->prompt_len && step_token(s, ch, ids[ch->echoed], ch->echoed, &d)) {
        ch->echoed++;
        moved = true;
        if (d.members && is_full(s, ch, &d))
            emit_delta(s, ch, &d);
    }
    if (ch->echoed < ch->prompt_len) {
        if (d.members)
            emit_delta(s, ch, &d);
        return moved || ch->paused;
    }
    end_echo(s, ch, &d);
    return true;
}

/* ---- sent ---- */

/* Whether --coalesce-ms says to wait for more.  No longer than until half the window is full: the
 * engine must not park a sequence for a wait of ours. */
static bool wait_for_more(struct tr_stream *s, struct tr_choice *ch, uint64_t limit)
{
    uint64_t ns = s->fe->cfg->coalesce_ns, due = ch->last_event_ns + ns;
    bool filled = (limit - ch->sent) * 2 >= s->fe->shm->config.window;

    if (!ns || ch->text_done || !s->ask->stream || !ch->last_event_ns)
        return false;
    if (!filled && tr_now_ns() < due) {
        tr_stream_remind(s, due);
        return true;
    }
    ch->coalesce_to = limit;
    return false;
}

static bool frame_tokens(struct tr_stream *s, struct tr_choice *ch)
{
    uint64_t limit = ch->text_done ? ch->text_end : ch->scanned;
    uint64_t before = s->ask->echo ? ch->prompt_len : 0;
    const uint32_t *ids = tr_choice_output(s, ch);
    struct delta d = {0};
    bool moved = false;

    if (ch->blocked && has_room(s)) {
        ch->blocked = false;
        ch->coalesce_to = limit;
    }
    if (ch->sent < limit && ch->sent >= ch->coalesce_to && wait_for_more(s, ch, limit))
        return false;
    while (ch->sent < limit && !ch->blocked &&
           step_token(s, ch, ids[ch->sent], before + ch->sent, &d)) {
        ch->sent++;
        moved = true;
        if (d.members && (ch->sent >= ch->coalesce_to || is_full(s, ch, &d)))
            emit_delta(s, ch, &d);
    }
    if (ch->text_done && ch->sent >= ch->text_end && !ch->blocked)
        return flush_end(s, ch, &d) || moved;
    if (d.members)
        emit_delta(s, ch, &d);
    return moved || ch->paused;
}

static void frame_finish(struct tr_stream *s, struct tr_choice *ch)
{
    s->dialect->event(s, &(struct tr_event){.type = TR_EV_FINISH,
                                            .choice = ch->index,
                                            .members = 1,
                                            .length = *tr_choice_finish(s, ch) == 'l'});
    ch->finished = ch->begun = true;
}

/* The echo, as far as it comes.  False: the answer has to wait for it. */
static bool echo_first(struct tr_stream *s, struct tr_choice *ch, bool *moved)
{
    if (ch->echo_done)
        return true;
    *moved = frame_echo(s, ch);
    /* Cut in the middle of an echo: the rest of it never comes. */
    if (!ch->echo_done && !ch->blocked && !ch->paused && ch->state >= TR_CANCELLED)
        ch->echo_done = true;
    return ch->echo_done;
}

bool tr_choice_frame(struct tr_stream *s, struct tr_choice *ch, bool all_ended)
{
    bool moved = false;

    if (!framing(s)) {
        if (s->x)
            ch->sent = ch->scanned;
        return false;
    }
    ch->paused = false;
    if (ch->admitted && !ch->flushed) {
        if (!echo_first(s, ch, &moved))
            return moved;
        moved |= frame_tokens(s, ch);
    }
    /* While others go on, a choice that has ended says so at once; the last one waits for the
     * ledger (stream.c). */
    if (ch->flushed && !ch->finished && !all_ended && s->ask->stream && !s->failure &&
        (ch->state == TR_COMPLETED || ch->state == TR_INCOMPLETE)) {
        frame_finish(s, ch);
        moved = true;
    }
    return moved;
}

bool tr_choice_out(const struct tr_stream *s, const struct tr_choice *ch)
{
    if (!ch->text_done)
        return false;
    return !framing(s) || ch->flushed || !ch->admitted || s->failure == TR_ERR_ENGINE_LOST;
}

void tr_choice_publish(struct tr_stream *s, struct tr_choice *ch)
{
    uint64_t limit = ch->text_done ? ch->text_end : ch->scanned;
    bool all = !s->x || (ch->echo_done && ch->sent >= limit);
    uint64_t sent = all ? ch->scanned : ch->sent;

    if (!s->x && s->ask->logprobs) { /* nobody reads them, and a full ring would park it */
        tr_lpring_skip(s->fe->shm, ch->slot);
        tr_cursor_moved(s->fe->shm, ch->slot);
    }
    if (ch->scanned == ch->scanned_published && sent == ch->sent_published)
        return;
    if (s->ask->stream) {
        s->fe->behind += ch->scanned - sent - ch->behind;
        ch->behind = ch->scanned - sent;
    }
    tr_cursor_set(s->fe->shm, ch->slot, ch->scanned, sent);
    TR_FAULT_FOR(FRONTEND_CURSOR, s->ask->params.seed);
    ch->scanned_published = ch->scanned;
    ch->sent_published = sent;
}
