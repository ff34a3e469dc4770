/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/choice_send.c - what goes out of one choice: its deltas, its echo, its finish.  See stream.h.
 *
 * What an event holds is a function of the ring, whatever was joined on the way (choice_event.c).  So a
 * reader who has an event can be given the rest by going through the ring again without writing
 * (tr_stream_is_past): then each event is made by itself. */
#include "frontend/choice_priv.h"

#include "base/clock.h"
#include "base/fault.h"

static void scan_from_start(const struct tr_stream *s, struct tr_choice *ch)
{
    tr_ask_scan(s->ask, &ch->send);
    if (tr_ask_splits(s->ask))
        tr_ask_split(s->ask, &ch->split);
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
    ch->calls = 0;
    ch->last = TR_EV_DELTA;
    ch->blocks = 0;
    ch->block_open = false;
    ch->shown = 0;
    ch->shown_chars = 0;
    tr_lpq_drop(&ch->lpq, ch->lpq.n);
    tr_emit_piece_fini(&ch->delta_head); /* another dialect begins otherwise */
}

static bool framing(const struct tr_stream *s)
{
    return s->x && (s->ask->stream || s->ask->logprobs);
}

/* ---- echo ---- */

static bool frame_echo(struct tr_stream *s, struct tr_choice *ch)
{
    const uint32_t *ids = tr_ring_ids(s->fe->shm, ch->slot);
    struct tr_delta d = {0};
    bool moved = false;

    while (ch->echoed < ch->prompt_len && tr_choice_step(s, ch, ids[ch->echoed], ch->echoed, &d)) {
        ch->echoed++;
        moved = true;
        if (d.members && tr_choice_must_go(s, ch, &d))
            tr_choice_emit(s, ch, &d);
    }
    if (ch->echoed < ch->prompt_len) {
        tr_choice_emit(s, ch, &d);
        return moved || ch->paused;
    }
    tr_choice_end_echo(s, ch, &d);
    scan_from_start(s, ch);
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
    uint64_t before = s->ask->echo ? ch->prompt_len : 0;
    const uint32_t *ids = tr_choice_output(s, ch);
    struct tr_delta d = {0};
    bool moved = false;

    if (ch->blocked && tr_choice_has_room(s)) {
        ch->blocked = false;
        ch->coalesce_to = limit;
    }
    if (ch->sent < limit && ch->sent >= ch->coalesce_to && wait_for_more(s, ch, limit))
        return false;
    while (ch->sent < limit && !ch->blocked &&
           tr_choice_step(s, ch, ids[ch->sent], before + ch->sent, &d)) {
        ch->sent++;
        moved = true;
        if (d.members && (ch->sent >= ch->coalesce_to || tr_choice_must_go(s, ch, &d)))
            tr_choice_emit(s, ch, &d);
    }
    if (ch->text_done && ch->sent >= ch->text_end && !ch->blocked)
        return tr_choice_flush(s, ch, &d) || moved;
    tr_choice_emit(s, ch, &d);
    return moved || ch->paused;
}

static void frame_finish(struct tr_stream *s, struct tr_choice *ch)
{
    s->dialect->event(s, &(struct tr_event){.type = TR_EV_FINISH,
                                            .choice = ch->index,
                                            .members = 1,
                                            .length = *tr_choice_finish(s, ch) == 'l',
                                            .calls = ch->calls});
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
    if (s->replay)
        return;
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
