/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/choice.c - one choice of a stream: its ring and what is scanned of it.  What goes out of it is
 * in choice_send.c.  See stream.h.
 *
 * Whether a token ends the answer is decided here as the engine decides it (end-of-turn tokens
 * unless ignore_eos, stop ids), so that what is shown is a function of the ids alone and never
 * waits for the terminal state. */
#include "base/clock.h"
#include "base/fault.h"
#include "frontend/gate.h"
#include "frontend/stream.h"

#include <errno.h>

enum { SCAN_TURN = 256 }; /* tokens of an adopted stream that are scanned in one turn */

void tr_choice_init(struct tr_stream *s, struct tr_choice *ch, uint32_t slot, uint32_t gen)
{
    ch->slot = slot;
    ch->gen = gen;
    tr_ask_scan(s->ask, &ch->scan);
    tr_choice_rewind(s, ch);
}

void tr_choice_fini(struct tr_choice *ch)
{
    tr_lpq_fini(&ch->lpq);
    tr_lp_text_fini(&ch->lp_text);
    tr_emit_piece_fini(&ch->delta_head);
}

const uint32_t *tr_choice_output(const struct tr_stream *s, const struct tr_choice *ch)
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
        tr_stream_say(s, ch, TR_CMD_FINISH, (uint32_t)ch->scanned);
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
        ch->text_done = ch->cut = true;
        ch->text_end = ch->scanned - 1;
        tr_stream_cancel(s, TR_ERR_INTERNAL);
    } else if (rc == TR_SCAN_STOPPED) {
        ch->text_done = true;
        ch->text_end = ch->scanned;
        TR_FAULT_FOR(FRONTEND_STOP_FOUND, s->ask->params.seed);
        tr_stream_say(s, ch, TR_CMD_FINISH, (uint32_t)ch->scanned);
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
    ch->cut = ch->state != TR_COMPLETED && ch->state != TR_INCOMPLETE;
    if (!ch->cut)
        scan_flush(s, ch);
}

/* The slot is no longer this choice's: nothing of its ring is read any more. */
static bool lose(struct tr_stream *s, struct tr_choice *ch, enum tr_err why)
{
    s->failure = why;
    ch->state = TR_ERROR;
    ch->lost = ch->text_done = ch->cut = ch->echo_done = true;
    ch->text_end = ch->sent;
    return true;
}

/* Admitted, if it is: the claim that led here is a word that others can write (shm/claim.h). */
static bool admit(struct tr_stream *s, struct tr_choice *ch, const struct tr_ring *r)
{
    uint32_t n_ctx = s->fe->shm->config.n_ctx;

    bool fits = s->replay ? r->stream_rand == s->name.rand
                          : tr_request_is_mine(s->fe->shm, ch->slot, s->name.rand);

    if (!fits)
        return false;
    ch->admitted = true;
    ch->prompt_len = r->prompt_len < n_ctx ? r->prompt_len : n_ctx;
    ch->billed_prompt = r->group_bill_prompt ? ch->prompt_len : 0;
    return true;
}

/* Of the n tokens that there are: all, but for a stream that another frontend admitted, which has to be
 * gone through from its beginning. */
static void scan_new(struct tr_stream *s, struct tr_choice *ch, uint64_t n)
{
    bool bounded = s->hold.adopted && ch->scanned + SCAN_TURN < n;
    uint64_t upto = bounded ? ch->scanned + SCAN_TURN : n;
    const uint32_t *ids = tr_choice_output(s, ch);

    while (!ch->text_done && ch->scanned < upto)
        scan_token(s, ch, ids[ch->scanned]);
    ch->catching_up = !ch->text_done && ch->scanned < n;
    if (ch->catching_up)
        tr_stream_due(s);
}

/* What is there is used, whoever reads it.  An adopted stream's former tokens are charged already, and so is
 * all of an answer that is told again. */
static void charge(struct tr_stream *s, struct tr_choice *ch, uint64_t n)
{
    if (n > ch->charged && !s->replay) {
        tr_gate_tokens(s->fe, s->ask->who, tr_now_ns(), n - ch->charged);
        ch->charged = n;
    }
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
    charge(s, ch, (uint64_t)n);
    scan_new(s, ch, (uint64_t)n);
    if (ch->catching_up && tr_state_terminal(state)) /* it ends when its end has been seen */
        return true;
    ch->state = state;
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

    if (ch->scan.stop < 0 && r->finish == TR_FINISH_LENGTH)
        return "length";
    return ch->calls ? "tool_calls" : "stop";
}

struct tr_str tr_choice_stop(const struct tr_stream *s, const struct tr_choice *ch)
{
    int i = ch->scan.stop;

    return i < 0 ? (struct tr_str){NULL, 0} : tr_stopset_at(s->ask->stops, (size_t)i);
}

bool tr_choice_is_full(const struct tr_stream *s, const struct tr_choice *ch)
{
    const struct tr_ring *r = tr_ring_at(s->fe->shm, ch->slot);

    return (uint64_t)ch->prompt_len + r->finish_index >= s->fe->shm->config.n_ctx;
}
