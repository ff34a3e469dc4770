/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/choice.c - one choice of a stream: its ring, its two cursors, its deltas.  See stream.h.
 *
 * Whether a token ends the answer is decided here as the engine decides it (end-of-turn tokens
 * unless ignore_eos, stop ids), so that what is shown is a function of the ids alone and never
 * waits for the terminal state. */
#include "base/clock.h"
#include "base/fault.h"
#include "frontend/stream.h"
#include "shm/lpring.h"

#include <errno.h>
#include <string.h>

enum { LP_BATCH = 16 };

/* A delta in the making: text in fe->text. */
struct delta {
    size_t len;
    uint32_t members;
};

void tr_choice_init(struct tr_stream *s, struct tr_choice *ch, uint32_t slot, uint32_t gen)
{
    ch->slot = slot;
    ch->gen = gen;
    tr_scan_init(&ch->scan, s->fe->vocab, s->ask->stops, s->ask->skip_special);
    ch->scan.include_stop = s->ask->include_stop;
    ch->send = ch->scan;
    ch->echo_done = !s->ask->echo;
    if (!ch->echo_done) /* a stop string in the prompt stops nothing */
        tr_scan_init(&ch->send, s->fe->vocab, NULL, s->ask->skip_special);
}

void tr_choice_fini(struct tr_choice *ch)
{
    tr_lpq_fini(&ch->lpq);
    tr_lp_text_fini(&ch->lp_text);
    tr_emit_piece_fini(&ch->delta_head);
}

static const uint32_t *output_ids(const struct tr_stream *s, const struct tr_choice *ch)
{
    return tr_ring_ids(s->fe->shm, ch->slot) + ch->prompt_len;
}

/* Whether this id ends an answer by itself. */
static bool is_ender(const struct tr_stream *s, uint32_t id)
{
    const struct tr_ask *a = s->ask;

    if (!(a->params.flags & TR_REQ_IGNORE_EOS) && tr_vocab_is_eog(s->fe->vocab, (int32_t)id))
        return true;
    for (uint32_t i = 0; a->extra && i < a->extra->n_stop; i++)
        if (a->extra->stop_ids[i] == id)
            return true;
    return false;
}

/* ---- scanned ---- */

/* No more text comes: what is held back is out, and may complete a stop string.  The engine waits for
 * the cursor before it ends a request with stop strings (TR_REQ_STOP_STRINGS), so that this FINISH,
 * posted before it, still counts and all say the same reason. */
static void scan_flush(struct tr_stream *s, struct tr_choice *ch)
{
    size_t len = 0;

    if (tr_scan_flush(&ch->scan, s->fe->text, &len) == TR_SCAN_STOPPED)
        tr_cmd_post(s->fe->shm, ch->slot, ch->gen, TR_CMD_FINISH, (uint32_t)ch->scanned);
}

static void scan_token(struct tr_stream *s, struct tr_choice *ch, uint32_t id)
{
    size_t len = 0;

    if (is_ender(s, id)) {
        ch->text_done = true;
        ch->text_end = ch->scanned++;
        scan_flush(s, ch);
        return;
    }
    int rc = TR_SCAN_GO;
    if (s->ask->stops)
        rc = tr_scan_push(&ch->scan, (int32_t)id, s->fe->text, &len);
    else if (id >= s->fe->shm->config.n_vocab) /* nothing to find: the text is made when it goes */
        rc = -EINVAL;
    ch->scanned++;
    if (rc < 0) { /* another process wrote an id that does not exist */
        s->failure = TR_ERR_INTERNAL;
        ch->text_done = true;
        ch->text_end = ch->scanned - 1;
        tr_stream_cancel(s, TR_ERR_INTERNAL);
    } else if (rc == TR_SCAN_STOPPED) {
        ch->text_done = true;
        ch->text_end = ch->scanned;
        TR_FAULT_FOR(FRONTEND_STOP_FOUND, s->ask->params.seed);
        tr_cmd_post(s->fe->shm, ch->slot, ch->gen, TR_CMD_FINISH, (uint32_t)ch->scanned);
        TR_FAULT_FOR(FRONTEND_STOP_POSTED, s->ask->params.seed);
    } else if (ch->scanned >= tr_ring_at(s->fe->shm, ch->slot)->params.max_tokens) {
        ch->text_done = true;
        ch->text_end = ch->scanned;
        scan_flush(s, ch);
    }
}

/* The ring has ended; what has been scanned says where the text does if it found an end. */
static void scan_end(struct tr_stream *s, struct tr_choice *ch, uint64_t n)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);
    uint64_t count = r->finish_index < n ? r->finish_index : n;

    if (ch->text_done)
        return;
    ch->text_done = true;
    ch->text_end = count;
    if (count && (r->finish == TR_FINISH_EOG || r->finish == TR_FINISH_STOP_ID))
        ch->text_end--;
    if (ch->state == TR_COMPLETED || ch->state == TR_INCOMPLETE)
        scan_flush(s, ch);
}

/* The slot is no longer this choice's: nothing of its ring is read any more. */
static bool lose(struct tr_stream *s, struct tr_choice *ch, enum tr_err why)
{
    s->failure = why;
    ch->state = TR_ERROR;
    ch->lost = ch->text_done = ch->echo_done = true;
    ch->text_end = ch->sent;
    return true;
}

/* Admitted, if it is: the claim that led here is a word that others can write (shm/claim.h). */
static bool admit(struct tr_stream *s, struct tr_choice *ch, const struct tr_ring *r)
{
    uint32_t n_ctx = s->fe->shm->config.n_ctx;

    if (!tr_request_is_mine(s->fe->shm, ch->slot, s->name.rand))
        return false;
    ch->admitted = true;
    ch->prompt_len = r->prompt_len < n_ctx ? r->prompt_len : n_ctx;
    ch->billed_prompt = r->group_bill_prompt ? ch->prompt_len : 0;
    return true;
}

bool tr_choice_scan(struct tr_stream *s, struct tr_choice *ch)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);
    uint32_t state = TR_FREE;

    if (tr_state_terminal(ch->state))
        return false;
    int64_t n = tr_ring_read(s->fe->shm, ch->slot, ch->gen, &state);
    if (n < 0) {
        uint32_t gen = atomic_load_explicit(&r->gen, memory_order_relaxed);
        if ((int32_t)(gen - ch->gen) <= 0)
            return false;
        /* The slot was taken from us: by a crash of the engine, or by nonsense in the claims. */
        return lose(s, ch, TR_ERR_ENGINE_LOST);
    }
    if (state == TR_FREE)
        return tr_claim_is_lost(s->fe->shm, ch->slot, ch->gen) && lose(s, ch, TR_ERR_ENGINE_LOST);
    if (!ch->admitted && !admit(s, ch, r))
        return lose(s, ch, TR_ERR_ENGINE_LOST);
    bool moved = state != ch->state || ch->scanned < (uint64_t)n;
    ch->state = state;
    const uint32_t *ids = output_ids(s, ch);
    while (!ch->text_done && ch->scanned < (uint64_t)n)
        scan_token(s, ch, ids[ch->scanned]);
    if (moved)
        TR_FAULT_FOR(FRONTEND_SCANNED, s->ask->params.seed);
    if (ch->text_done && ch->scanned < (uint64_t)n)
        ch->scanned = (uint64_t)n; /* overrun: nothing to look at */
    if (tr_state_terminal(state))
        scan_end(s, ch, (uint64_t)n);
    return moved;
}

const char *tr_choice_finish(const struct tr_stream *s, const struct tr_choice *ch)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);

    return ch->scan.stop < 0 && r->finish == TR_FINISH_LENGTH ? "length" : "stop";
}

/* ---- deltas ---- */

static bool framing(const struct tr_stream *s)
{
    return s->ask->stream || s->ask->logprobs;
}

/* Whether the connection takes another event; what was written in this turn is tried first. */
static bool has_room(struct tr_stream *s)
{
    if (!s->ask->stream || tr_conn_room(s->conn) > 0)
        return true;
    tr_conn_flush(s->conn);
    return tr_conn_room(s->conn) > 0;
}

static uint32_t count_chars(const char *p, size_t n)
{
    uint32_t k = 0;

    for (size_t i = 0; i < n; i++)
        k += ((uint8_t)p[i] & 0xc0) != 0x80;
    return k;
}

static void note_content(struct tr_stream *s, struct tr_choice *ch, uint64_t now)
{
    struct tr_stat *st = s->fe->stat;

    if (!s->receipt.rec.first_byte_ns) {
        s->receipt.rec.first_byte_ns = now;
        tr_hist_add(st, TR_HIST_FIRST_BYTE, now - s->ask->arrival_ns);
    }
    if (ch->last_event_ns) {
        uint64_t gap = now - ch->last_event_ns;
        tr_hist_add(st, TR_HIST_INTER_CHUNK, gap);
        /* The tokens of one event arrive together: the first waited for the gap, the rest for
         * nothing. */
        tr_hist_add(st, TR_HIST_DELIVERED_GAP, gap);
        if (ch->event_tokens > 1)
            tr_hist_add_n(st, TR_HIST_DELIVERED_GAP, 0, ch->event_tokens - 1);
    }
    ch->last_event_ns = now;
}

static void emit_delta(struct tr_stream *s, struct tr_choice *ch, struct delta *d, uint32_t certain)
{
    struct tr_fe *fe = s->fe;
    struct tr_event ev = {
        .type = TR_EV_DELTA,
        .choice = ch->index,
        .members = d->members ? d->members : 1,
        .text = fe->text,
        .text_len = d->len,
        .tokens = ch->event_tokens,
        .lp = s->ask->logprobs ? ch->lpq.item : NULL,
        .n_lp = certain,
    };

    if (s->ask->stream) {
        uint64_t t0 = tr_now_ns();
        s->dialect->event(s, &ev);
        TR_FAULT_FOR(FRONTEND_FRAMED, s->ask->params.seed);
        uint64_t t1 = tr_now_ns();
        tr_hist_add(fe->stat, TR_HIST_FRAME, t1 - t0);
        note_content(s, ch, t1);
    } else {
        tr_lp_text_add(&ch->lp_text, s->ask->chat, fe->vocab, s->ask->params.n_top, ev.lp, certain);
        if (tr_lp_text_bytes(&ch->lp_text) > 2 * fe->cfg->max_body) {
            s->failure = TR_ERR_INTERNAL;
            tr_stream_cancel(s, TR_ERR_INTERNAL);
        }
    }
    tr_lpq_drop(&ch->lpq, certain);
    ch->begun = true;
    ch->event_tokens = 0;
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

/* The text of one more token has been added to the delta. */
static void add_text(struct tr_stream *s, struct tr_choice *ch, struct delta *d, size_t len)
{
    ch->shown += len;
    ch->shown_chars += count_chars(s->fe->text + d->len, len);
    d->len += len;
    d->members += len > 0;
}

/* Runs one token through the sending state, its logprob entry with it.  1: done; 0: not now (no
 * entry, no room); nothing has changed then. */
static int step_token(struct tr_stream *s, struct tr_choice *ch, uint32_t id, bool first,
                      struct delta *d)
{
    struct tr_scan before = ch->send;
    struct tr_lp_item it = {.first = first};
    uint64_t end;
    uint32_t end_chars;
    size_t len = 0;

    if (s->ask->logprobs) {
        if (tr_lpring_peek(s->fe->shm, ch->slot, &it.lp))
            return 0;
        text_place(ch, &it.start, &it.text_offset);
    }
    int rc = tr_scan_push(&ch->send, (int32_t)id, s->fe->text + d->len, &len);
    if (rc < 0)
        len = 0; /* the scanning side has seen it and ends the stream before it */
    /* Entries of tokens without text are events too, now and then. */
    bool event = len || (s->ask->logprobs && ch->lpq.n + 1 >= LP_BATCH);
    if (event && d->len == 0 && !has_room(s)) {
        ch->send = before;
        ch->blocked = true;
        return 0;
    }
    add_text(s, ch, d, len);
    if (s->ask->logprobs) {
        text_place(ch, &end, &end_chars);
        it.empty = rc == TR_SCAN_GO && end == it.start;
        tr_lpring_pop(s->fe->shm, ch->slot);
        if (tr_lpq_push(&ch->lpq, &it) && !s->failure) {
            s->failure = TR_ERR_INTERNAL;
            tr_stream_cancel(s, TR_ERR_INTERNAL);
        }
    }
    return 1;
}

/* Text that was held because nothing could follow it yet. */
static bool flush_end(struct tr_stream *s, struct tr_choice *ch, struct delta *d)
{
    struct tr_scan before = ch->send;
    bool stopped = ch->send.stop >= 0, cut = ch->state == TR_ERROR || ch->state == TR_CANCELLED;
    size_t len = 0;

    if (!stopped && !cut)
        stopped = tr_scan_flush(&ch->send, s->fe->text + d->len, &len) == TR_SCAN_STOPPED;
    if (len && d->len == 0 && !has_room(s)) {
        ch->send = before;
        ch->blocked = true;
        return false;
    }
    add_text(s, ch, d, len);
    uint32_t certain = stopped || cut ? tr_lpq_certain(&ch->lpq, ch->shown) : ch->lpq.n;
    if (d->len || certain)
        emit_delta(s, ch, d, certain);
    tr_lpq_drop(&ch->lpq, ch->lpq.n);
    ch->flushed = true;
    return true;
}

/* ---- echo ---- */

static bool frame_echo(struct tr_stream *s, struct tr_choice *ch)
{
    const uint32_t *ids = tr_ring_ids(s->fe->shm, ch->slot);
    struct delta d = {0};
    bool moved = false;

    while (ch->echoed < ch->prompt_len) {
        if (!step_token(s, ch, ids[ch->echoed], ch->echoed == 0, &d))
            break;
        ch->echoed++;
        moved = true;
        if (d.len >= TR_EVENT_TEXT || ch->lpq.n >= TR_EVENT_ENTRIES)
            emit_delta(s, ch, &d, tr_lpq_certain(&ch->lpq, ch->shown));
    }
    if (ch->echoed < ch->prompt_len) {
        if (d.len)
            emit_delta(s, ch, &d, tr_lpq_certain(&ch->lpq, ch->shown));
        return moved;
    }
    size_t len = 0;
    tr_scan_flush(&ch->send, s->fe->text + d.len, &len);
    add_text(s, ch, &d, len);
    if (d.len || ch->lpq.n)
        emit_delta(s, ch, &d, ch->lpq.n);
    tr_scan_init(&ch->send, s->fe->vocab, s->ask->stops, s->ask->skip_special);
    ch->send.include_stop = s->ask->include_stop;
    ch->echo_done = true;
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
    const uint32_t *ids = output_ids(s, ch);
    struct delta d = {0};
    bool moved = false;

    if (ch->blocked && has_room(s)) {
        ch->blocked = false;
        ch->coalesce_to = limit;
    }
    if (ch->sent < limit && ch->sent >= ch->coalesce_to && wait_for_more(s, ch, limit))
        return false;
    while (ch->sent < limit && !ch->blocked) {
        if (!step_token(s, ch, ids[ch->sent], false, &d))
            break;
        ch->sent++;
        ch->event_tokens++;
        moved = true;
        if (ch->sent < ch->coalesce_to && d.len < TR_EVENT_TEXT && ch->lpq.n < TR_EVENT_ENTRIES)
            continue;
        uint32_t certain = tr_lpq_certain(&ch->lpq, ch->shown);
        if (d.len || certain >= LP_BATCH)
            emit_delta(s, ch, &d, certain);
    }
    if (ch->text_done && ch->sent >= ch->text_end && !ch->blocked)
        return flush_end(s, ch, &d) || moved;
    if (d.len)
        emit_delta(s, ch, &d, tr_lpq_certain(&ch->lpq, ch->shown));
    return moved;
}

bool tr_choice_frame(struct tr_stream *s, struct tr_choice *ch, bool all_ended)
{
    bool moved = false;

    if (!framing(s)) {
        ch->sent = ch->scanned;
        return false;
    }
    if (!ch->admitted || ch->flushed)
        goto finish;
    if (!ch->echo_done) {
        moved = frame_echo(s, ch);
        /* Cut in the middle of an echo: the rest of it never comes. */
        if (!ch->echo_done && !tr_state_terminal(ch->state))
            return moved;
        if (!ch->echo_done && !ch->blocked && ch->state >= TR_CANCELLED)
            ch->echo_done = true;
        if (!ch->echo_done)
            return moved;
    }
    moved |= frame_tokens(s, ch);
finish:
    /* While others go on, a choice that has ended says so at once; the last one waits for the
     * ledger (stream.c). */
    if (ch->flushed && !ch->finished && !all_ended && s->ask->stream && !s->failure &&
        (ch->state == TR_COMPLETED || ch->state == TR_INCOMPLETE)) {
        s->dialect->event(s, &(struct tr_event){.type = TR_EV_FINISH,
                                                .choice = ch->index,
                                                .members = 1,
                                                .length = *tr_choice_finish(s, ch) == 'l'});
        ch->finished = ch->begun = moved = true;
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
    uint64_t sent = ch->echo_done && ch->sent >= limit ? ch->scanned : ch->sent;

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
