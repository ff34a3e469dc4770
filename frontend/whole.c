/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/whole.c - see whole.h. */
#include "frontend/whole.h"

#include "base/assert.h"
#include "frontend/sections.h"
#include "frontend/stream.h"

#include <stdlib.h>

struct tr_whole {
    uint32_t n;
    uint32_t choice; /* that is being made; n: all are there */
    bool open;       /* it has begun */
    bool echo;       /* its prompt comes first */
    struct tr_retell tell;
    struct tr_sections of[]; /* [n] */
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
    struct tr_sections *of = &w->of[w->choice];

    if (w->echo) {
        if (!tr_sections_make(of, &w->tell, budget))
            return false;
        begin_answer(s, w);
    }
    return tr_sections_make(of, &w->tell, budget);
}

static struct tr_whole *make(const struct tr_stream *s)
{
    struct tr_whole *w = calloc(1, sizeof(*w) + s->n * sizeof(w->of[0]));

    if (w)
        w->n = s->n;
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
        s->choice[w->choice].calls = w->of[w->choice].calls;
        w->choice++;
        w->open = false;
    }
    return true;
}

const struct tr_sections *tr_whole_sections(const struct tr_stream *s, uint32_t choice)
{
    TR_ASSERT(s->whole && choice < s->whole->choice);
    return &s->whole->of[choice];
}

void tr_whole_text(const struct tr_stream *s, uint32_t choice, struct tr_emit *e)
{
    tr_sections_joined(tr_whole_sections(s, choice), TR_PART_TEXT, e);
}

bool tr_whole_is_empty(const struct tr_stream *s, uint32_t choice)
{
    return !tr_sections_have(tr_whole_sections(s, choice), TR_PART_TEXT);
}

void tr_whole_free(struct tr_whole *w)
{
    for (uint32_t k = 0; w && k < w->n; k++)
        tr_sections_fini(&w->of[k]);
    free(w);
}
