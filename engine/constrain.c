/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/constrain.h"

#include "base/assert.h"
#include "grammar/mask.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NO_NODE UINT32_MAX
#define NO_SLOT UINT32_MAX

/* Of a slot's mask.  SLOW: the step has tried, it is the thread's. */
enum stage { NOT_ASKED, ASKED, SLOW, IN_WORK, MADE };

struct tr_constrain {
    uint32_t n_vocab, words;
    struct tr_gpieces pieces;
    uint32_t *parent;  /* [n_nodes] of the trie, so that a token's bytes can be read from its end */
    uint32_t *node_of; /* [n_vocab], NO_NODE: no text */
    struct tr_gmasks *masks; /* the step's */
    struct tr_gmasks *apart; /* the thread's */
    bool *has;               /* [n_slots] */
    struct tr_gprog *prog;   /* [n_slots] */
    struct tr_gmatch *match; /* [n_slots] not moved while its mask is asked for and not made */
    uint32_t n_slots;

    uint32_t *mask;       /* [n_slots, words], touched where there is a grammar */
    pthread_mutex_t lock; /* guards what follows; no mask is made under it */
    enum stage *stage;    /* [n_slots] */
    uint32_t *queue;      /* [n_slots] those that are ASKED or SLOW, first asked first */
    uint32_t n_queue;
    uint32_t making; /* by the thread; NO_SLOT: none */
    uint64_t made;   /* by the thread, ever */
    bool go, quit;
    atomic_bool stop;    /* relaxed: what the thread makes is not wanted any more */
    pthread_cond_t wake; /* the thread */
    pthread_cond_t done; /* who waits for it */
    bool has_thread;
    cpu_set_t anywhere; /* where the engine may run */
    pthread_t thread;
};

/* ---- tokens ---- */

/* Depth first: the open nodes are the last one and its ancestors. */
static void climb(struct tr_constrain *c)
{
    const struct tr_gpiece *nodes = c->pieces.nodes;
    uint32_t at = 0; /* the innermost node whose subtree is not over */
    c->parent[0] = 0;
    for (uint32_t v = 1; v < c->pieces.n_nodes; v++) {
        while (v >= nodes[at].skip)
            at = c->parent[at];
        c->parent[v] = at;
        at = v;
    }
    for (uint32_t id = 0; id < c->n_vocab; id++)
        c->node_of[id] = NO_NODE;
    for (uint32_t v = 0; v < c->pieces.n_nodes; v++)
        for (uint32_t i = tr_gpiece_first(&nodes[v]); i < tr_gpiece_first(&nodes[v + 1]); i++)
            c->node_of[c->pieces.ids[i]] = v;
}

/* The end of `out` that holds the bytes of a text token. */
static const uint8_t *spell(const struct tr_constrain *c, uint32_t id, uint8_t out[TR_GPIECE_MAX],
                            size_t *len)
{
    uint32_t at = TR_GPIECE_MAX;
    for (uint32_t v = c->node_of[id]; v && at; v = c->parent[v])
        out[--at] = tr_gpiece_byte(&c->pieces.nodes[v]);
    *len = TR_GPIECE_MAX - at;
    return out + at;
}

static bool ends_turn(const struct tr_constrain *c, uint32_t id)
{
    for (uint32_t i = 0; i < c->pieces.n_eog; i++)
        if (c->pieces.eog[i] == id)
            return true;
    return false;
}

/* ---- life ---- */

static void init_done(struct tr_constrain *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->done, &attr);
    pthread_condattr_destroy(&attr);
}

struct tr_constrain *tr_constrain_new(uint32_t n_slots, uint32_t n_vocab, const void *pieces,
                                      size_t len, uint64_t *bytes, struct tr_errbuf *err)
{
    struct tr_constrain *c = calloc(1, sizeof(*c));
    if (!c)
        goto no_memory;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
    init_done(c);
    c->making = NO_SLOT;
    c->n_slots = n_slots;
    if (sched_getaffinity(0, sizeof(c->anywhere), &c->anywhere))
        CPU_ZERO(&c->anywhere);
    c->n_vocab = n_vocab;
    c->words = (uint32_t)tr_gmask_words(n_vocab);
    if (tr_gpieces_open(&c->pieces, pieces, len, err))
        goto failed;
    if (c->pieces.n_vocab != n_vocab) {
        tr_errf(err, -EINVAL, "pieces of %u tokens for a vocabulary of %u", c->pieces.n_vocab,
                n_vocab);
        goto failed;
    }
    c->parent = calloc(c->pieces.n_nodes, sizeof(*c->parent));
    c->node_of = calloc(n_vocab, sizeof(*c->node_of));
    c->has = calloc(n_slots, sizeof(*c->has));
    c->prog = calloc(n_slots, sizeof(*c->prog));
    c->match = calloc(n_slots, sizeof(*c->match));
    c->masks = tr_gmasks_open(&c->pieces, TR_CONSTRAIN_CACHE_BYTES / 2);
    c->apart = tr_gmasks_open(&c->pieces, TR_CONSTRAIN_CACHE_BYTES / 2);
    c->stage = calloc(n_slots, sizeof(*c->stage));
    c->queue = calloc(n_slots, sizeof(*c->queue));
    if (!c->parent || !c->node_of || !c->has || !c->prog || !c->match || !c->masks || !c->apart ||
        !c->stage || !c->queue)
        goto no_memory;
    climb(c);
    *bytes = (uint64_t)c->pieces.n_nodes * sizeof(*c->parent) +
             (uint64_t)n_vocab * sizeof(*c->node_of) +
             n_slots * (uint64_t)(sizeof(*c->has) + sizeof(*c->prog) + sizeof(*c->match) +
                                  sizeof(*c->stage) + sizeof(*c->queue)) +
             TR_CONSTRAIN_CACHE_BYTES;
    return c;
no_memory:
    tr_errf(err, -ENOMEM, "out of memory for grammars");
failed:
    tr_constrain_free(c);
    return NULL;
}

void tr_constrain_free(struct tr_constrain *c)
{
    if (!c)
        return;
    if (c->has_thread) {
        pthread_mutex_lock(&c->lock);
        c->quit = true;
        atomic_store_explicit(&c->stop, true, memory_order_relaxed);
        pthread_cond_signal(&c->wake);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
    }
    pthread_cond_destroy(&c->wake);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    tr_gmasks_close(c->masks);
    tr_gmasks_close(c->apart);
    free(c->parent);
    free(c->node_of);
    free(c->has);
    free(c->prog);
    free(c->match);
    free(c->mask);
    free(c->stage);
    free(c->queue);
    free(c);
}

/* ---- answers ---- */

static void take_out(struct tr_constrain *c, uint32_t slot)
{
    uint32_t at = 0;
    while (at < c->n_queue && c->queue[at] != slot)
        at++;
    if (at == c->n_queue)
        return;
    c->n_queue--;
    memmove(c->queue + at, c->queue + at + 1, (c->n_queue - at) * sizeof(*c->queue));
}

/* From here on nobody makes it: matcher and program may go. */
static void forget_mask(struct tr_constrain *c, uint32_t slot)
{
    pthread_mutex_lock(&c->lock);
    if (c->stage[slot] == ASKED || c->stage[slot] == SLOW)
        take_out(c, slot);
    while (c->making == slot) {
        atomic_store_explicit(&c->stop, true, memory_order_relaxed);
        pthread_cond_wait(&c->done, &c->lock);
    }
    c->stage[slot] = NOT_ASKED;
    pthread_mutex_unlock(&c->lock);
}

int tr_constrain_open(struct tr_constrain *c, uint32_t slot, const uint8_t *image, uint32_t len)
{
    if (!c)
        return -EINVAL;
    forget_mask(c, slot);
    c->has[slot] = tr_gprog_open(&c->prog[slot], image, len, c->n_vocab, NULL) == 0;
    if (c->has[slot])
        tr_gmatch_start(&c->match[slot], &c->prog[slot]);
    return c->has[slot] ? 0 : -EINVAL;
}

void tr_constrain_drop(struct tr_constrain *c, uint32_t slot)
{
    if (!tr_constrain_has(c, slot))
        return;
    forget_mask(c, slot);
    c->has[slot] = false;
}

bool tr_constrain_has(const struct tr_constrain *c, uint32_t slot)
{
    return c && c->has[slot];
}

bool tr_constrain_take(struct tr_constrain *c, uint32_t slot, uint32_t id)
{
    struct tr_gmatch *m = &c->match[slot];
    const struct tr_gprog *p = &c->prog[slot];
    uint8_t buf[TR_GPIECE_MAX];
    size_t len;
    forget_mask(c, slot);
    if (id >= c->n_vocab)
        return false;
    if (c->node_of[id] == NO_NODE) /* as the mask has it */
        return ends_turn(c, id) ? tr_gmatch_may_end(m, p) : tr_gmatch_token(m, p, id);
    const uint8_t *text = spell(c, id, buf, &len);
    return tr_gmatch_bytes(m, p, text, len);
}

bool tr_constrain_is_over(const struct tr_constrain *c, uint32_t slot)
{
    return tr_constrain_has(c, slot) && tr_gmatch_is_over(&c->match[slot], &c->prog[slot]);
}

/* ---- masks ---- */

/* As far as it is allowed to, and not under the lock. */
static bool make(struct tr_constrain *c, struct tr_gmasks *with, uint32_t slot, uint64_t *work,
                 const atomic_bool *stop)
{
    bool some;
    return tr_gmasks_try(with, &c->prog[slot], &c->match[slot], c->mask + (size_t)slot * c->words,
                         work, stop, &some);
}

/* The thread's: the first of the queue, however long it takes.  With the lock, which is let go of. */
static void make_first(struct tr_constrain *c)
{
    uint32_t slot = c->queue[0];
    uint64_t work = UINT64_MAX;
    take_out(c, slot);
    c->making = slot;
    c->stage[slot] = IN_WORK;
    atomic_store_explicit(&c->stop, c->quit, memory_order_relaxed);
    pthread_mutex_unlock(&c->lock);
    bool made = make(c, c->apart, slot, &work, &c->stop);
    pthread_mutex_lock(&c->lock);
    c->stage[slot] = made ? MADE : NOT_ASKED;
    c->making = NO_SLOT;
    c->made++;
    pthread_cond_broadcast(&c->done);
}

static void *make_masks(void *arg)
{
    struct tr_constrain *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->quit) {
        if (c->go && c->n_queue)
            make_first(c);
        else
            pthread_cond_wait(&c->wake, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* No signal is its own.  Whoever starts it may be bound to one processor by now, where it computes all
 * through the pass: the thread runs anywhere. */
static int start_thread(struct tr_constrain *c)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int rc = pthread_attr_init(&attr);
    if (rc)
        return rc;
    if (CPU_COUNT(&c->anywhere))
        rc = pthread_attr_setaffinity_np(&attr, sizeof(c->anywhere), &c->anywhere);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    if (!rc)
        rc = pthread_create(&c->thread, &attr, make_masks, c);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

int tr_constrain_start(struct tr_constrain *c, uint64_t *bytes)
{
    c->mask = calloc((size_t)c->n_slots * c->words, sizeof(*c->mask));
    if (!c->mask)
        return -ENOMEM;
    *bytes = (uint64_t)c->n_slots * c->words * sizeof(*c->mask);
    int rc = start_thread(c);
    c->has_thread = rc == 0;
    return -rc;
}

const uint32_t *tr_constrain_ask(struct tr_constrain *c, uint32_t slot)
{
    TR_ASSERT(c->has[slot]);
    pthread_mutex_lock(&c->lock);
    if (c->stage[slot] == NOT_ASKED) {
        c->stage[slot] = ASKED;
        c->queue[c->n_queue++] = slot;
    }
    pthread_mutex_unlock(&c->lock);
    return c->mask + (size_t)slot * c->words;
}

static enum stage stage_of(struct tr_constrain *c, uint32_t slot)
{
    pthread_mutex_lock(&c->lock);
    enum stage s = c->stage[slot];
    pthread_mutex_unlock(&c->lock);
    return s;
}

bool tr_constrain_is_made(struct tr_constrain *c, uint32_t slot)
{
    return stage_of(c, slot) == MADE;
}

bool tr_constrain_is_waited_for(struct tr_constrain *c, uint32_t slot)
{
    enum stage s = tr_constrain_has(c, slot) ? stage_of(c, slot) : NOT_ASKED;
    return s != NOT_ASKED && s != MADE;
}

void tr_constrain_begin(struct tr_constrain *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->go = true;
    if (c->n_queue)
        pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

/* The first that the step has not tried, out of the queue; NO_SLOT: none. */
static uint32_t next_to_try(struct tr_constrain *c, bool all)
{
    for (uint32_t i = 0; i < c->n_queue; i++) {
        uint32_t slot = c->queue[i];
        if (!all && c->stage[slot] != ASKED)
            continue;
        take_out(c, slot);
        c->stage[slot] = IN_WORK;
        return slot;
    }
    return NO_SLOT;
}

void tr_constrain_join(struct tr_constrain *c, uint64_t work, void (*beat)(void *arg), void *arg)
{
    uint32_t slot;
    if (!c)
        return;
    bool all = work == UINT64_MAX;
    pthread_mutex_lock(&c->lock);
    while ((slot = next_to_try(c, all)) != NO_SLOT) {
        pthread_mutex_unlock(&c->lock);
        uint64_t most = all || work < TR_CONSTRAIN_MASK_WORK ? work : TR_CONSTRAIN_MASK_WORK;
        uint64_t left = most;
        bool made = make(c, c->masks, slot, &left, NULL);
        work -= all ? 0 : most - left;
        beat(arg);
        pthread_mutex_lock(&c->lock);
        c->stage[slot] = made ? MADE : SLOW;
        if (!made)
            c->queue[c->n_queue++] = slot;
    }
    while (all && c->making != NO_SLOT)
        pthread_cond_wait(&c->done, &c->lock);
    if (c->n_queue)
        pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

void tr_constrain_wait(struct tr_constrain *c, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000u);
    until.tv_nsec = (long)(ns % 1000000000u);
    pthread_mutex_lock(&c->lock);
    uint64_t made = c->made;
    bool waits = c->n_queue || c->making != NO_SLOT;
    while (waits && c->made == made && pthread_cond_timedwait(&c->done, &c->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&c->lock);
}
