/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/whole.c - see whole.h. */
#include "frontend/whole.h"

#include "base/assert.h"
#include "frontend/stream.h"

#include <stdlib.h>

struct tr_whole {
    struct tr_emit text; /* the choices' strings, one after the other */
    uint32_t choice;     /* that is being made; stream's n: all are there */
    bool open;           /* its string has begun */
    bool echo;           /* its prompt comes first */
    uint64_t at;         /* the next token of prompt or answer */
    struct tr_scan scan;
    struct {
        size_t begin, end;
    } span[]; /* [n] bytes of `text` */
};

static void begin_answer(struct tr_stream *s, struct tr_whole *w)
{
    w->echo = false;
    w->at = 0;
    tr_scan_init(&w->scan, s->fe->vocab, s->ask->stops, s->ask->skip_special);
    w->scan.include_stop = s->ask->include_stop;
}

static void begin_choice(struct tr_stream *s, struct tr_whole *w)
{
    tr_emit_str_open(&w->text);
    w->span[w->choice].begin = w->text.len - 1; /* the quote: a comma may stand before it */
    w->open = true;
    begin_answer(s, w);
    if (!s->ask->echo)
        return;
    w->echo = true;
    /* A stop string in the prompt stops nothing. */
    tr_scan_init(&w->scan, s->fe->vocab, NULL, s->ask->skip_special);
    tr_detok_begins(&w->scan.detok);
}

static void token(struct tr_stream *s, struct tr_whole *w, uint32_t id)
{
    size_t len;

    if (tr_scan_push(&w->scan, (int32_t)id, s->fe->text, &len) >= 0)
        tr_emit_str_piece(&w->text, s->fe->text, len);
}

static void flush(struct tr_stream *s, struct tr_whole *w)
{
    size_t len;

    tr_scan_flush(&w->scan, s->fe->text, &len);
    tr_emit_str_piece(&w->text, s->fe->text, len);
}

/* One token on; false: there is none, the choice is complete. */
static bool step(struct tr_stream *s, struct tr_whole *w)
{
    const struct tr_choice *ch = &s->choice[w->choice];
    const uint32_t *ids = tr_ring_ids(s->fe->shm, ch->slot);

    if (w->echo && w->at < ch->prompt_len) {
        token(s, w, ids[w->at++]);
        return true;
    }
    if (w->echo) {
        flush(s, w);
        begin_answer(s, w);
        return true;
    }
    if (w->at < ch->text_end && w->scan.stop < 0) {
        token(s, w, ids[ch->prompt_len + w->at++]);
        return true;
    }
    if (w->scan.stop < 0)
        flush(s, w);
    return false;
}

static struct tr_whole *make(const struct tr_stream *s)
{
    struct tr_whole *w = calloc(1, sizeof(*w) + s->n * sizeof(w->span[0]));

    if (w)
        tr_emit_init(&w->text);
    return w;
}

bool tr_whole_render(struct tr_stream *s, uint64_t *budget)
{
    if (!s->whole && !(s->whole = make(s))) {
        s->failure = TR_ERR_INTERNAL;
        return true;
    }
    struct tr_whole *w = s->whole;
    while (w->choice < s->n) {
        bool more = true;
        if (!w->open)
            begin_choice(s, w);
        for (; *budget && (more = step(s, w)); --*budget)
            ;
        if (more)
            return false;
        tr_emit_str_close(&w->text);
        w->span[w->choice++].end = w->text.len;
        w->open = false;
    }
    return true;
}

void tr_whole_text(const struct tr_stream *s, uint32_t choice, struct tr_emit *e)
{
    const struct tr_whole *w = s->whole;

    TR_ASSERT(w && choice < w->choice);
    if (w->text.failed) {
        e->failed = true;
        return;
    }
    tr_emit_raw(e, w->text.buf + w->span[choice].begin,
                w->span[choice].end - w->span[choice].begin);
}

void tr_whole_free(struct tr_whole *w)
{
    if (!w)
        return;
    tr_emit_fini(&w->text);
    free(w);
}
