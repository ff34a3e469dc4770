/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/whole.c - see whole.h. */
#include "frontend/whole.h"

#include "base/assert.h"
#include "frontend/retell.h"
#include "frontend/stream.h"

#include <stdlib.h>

struct tr_whole {
    struct tr_emit text; /* the choices' strings, one after the other */
    uint32_t choice;     /* that is being made; stream's n: all are there */
    bool open;           /* its string has begun */
    bool echo;           /* its prompt comes first */
    struct tr_retell tell;
    struct {
        size_t begin, end;
    } span[]; /* [n] bytes of `text` */
};

static void begin_answer(struct tr_stream *s, struct tr_whole *w)
{
    const struct tr_choice *ch = &s->choice[w->choice];

    w->echo = false;
    tr_retell_answer(&w->tell, s->fe, s->ask, tr_choice_output(s, ch), ch->text_end);
}

static void begin_choice(struct tr_stream *s, struct tr_whole *w)
{
    const struct tr_choice *ch = &s->choice[w->choice];

    tr_emit_str_open(&w->text);
    w->span[w->choice].begin = w->text.len - 1; /* the quote: a comma may stand before it */
    w->open = true;
    w->echo = s->ask->echo;
    if (w->echo)
        tr_retell_prompt(&w->tell, s->fe, s->ask, tr_ring_ids(s->fe->shm, ch->slot),
                         ch->prompt_len);
    else
        begin_answer(s, w);
}

/* Goes on with the choice; false: the budget is used up. */
static bool go_on(struct tr_stream *s, struct tr_whole *w, uint64_t *budget)
{
    if (w->echo) {
        if (!tr_retell(&w->tell, &w->text, SIZE_MAX, budget))
            return false;
        begin_answer(s, w);
    }
    return tr_retell(&w->tell, &w->text, SIZE_MAX, budget);
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
        if (!w->open)
            begin_choice(s, w);
        if (!go_on(s, w, budget))
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

bool tr_whole_is_empty(const struct tr_stream *s, uint32_t choice)
{
    const struct tr_whole *w = s->whole;

    TR_ASSERT(w && choice < w->choice);
    return !w->text.failed && w->span[choice].end - w->span[choice].begin == 2; /* its quotes */
}

void tr_whole_free(struct tr_whole *w)
{
    if (!w)
        return;
    tr_emit_fini(&w->text);
    free(w);
}
