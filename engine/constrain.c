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

#define NO_NODE UINT32_MAX

struct tr_constrain {
    uint32_t n_vocab, words;
    struct tr_gpieces pieces;
    uint32_t *parent;  /* [n_nodes] of the trie, so that a token's bytes can be read from its end */
    uint32_t *node_of; /* [n_vocab], NO_NODE: no text */
    struct tr_gmasks *masks;
    bool *has;               /* [n_slots] */
    struct tr_gprog *prog;   /* [n_slots] */
    struct tr_gmatch *match; /* [n_slots] */

    /* A step's masks: asked[0, n) belong to mask rows 0 .. n - 1; those below `next` are done or in work. */
    uint32_t *mask; /* [max_rows, words] */
    uint32_t *asked;
    uint32_t max_rows, n;
    uint32_t next;        /* under `lock`, which is held while a mask is made */
    pthread_mutex_t lock; /* guards next, go, stop, and the remembered masks */
    pthread_cond_t wake;
    bool go, stop;
    atomic_bool wanted; /* relaxed, it only hurries: the one who wants them makes what is left */
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

struct tr_constrain *tr_constrain_new(uint32_t n_slots, uint32_t n_vocab, const void *pieces,
                                      size_t len, uint64_t *bytes, struct tr_errbuf *err)
{
    struct tr_constrain *c = calloc(1, sizeof(*c));
    if (!c)
        goto no_memory;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->wake, NULL);
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
    c->masks = tr_gmasks_open(&c->pieces, TR_CONSTRAIN_CACHE_BYTES);
    if (!c->parent || !c->node_of || !c->has || !c->prog || !c->match || !c->masks)
        goto no_memory;
    climb(c);
    *bytes = (uint64_t)c->pieces.n_nodes * sizeof(*c->parent) +
             (uint64_t)n_vocab * sizeof(*c->node_of) +
             n_slots * (uint64_t)(sizeof(*c->has) + sizeof(*c->prog) + sizeof(*c->match)) +
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
        c->stop = true;
        pthread_cond_signal(&c->wake);
        pthread_mutex_unlock(&c->lock);
        pthread_join(c->thread, NULL);
    }
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->lock);
    tr_gmasks_close(c->masks);
    free(c->parent);
    free(c->node_of);
    free(c->has);
    free(c->prog);
    free(c->match);
    free(c->mask);
    free(c->asked);
    free(c);
}

/* ---- answers ---- */

int tr_constrain_open(struct tr_constrain *c, uint32_t slot, const uint8_t *image, uint32_t len)
{
    if (!c)
        return -EINVAL;
    c->has[slot] = tr_gprog_open(&c->prog[slot], image, len, c->n_vocab, NULL) == 0;
    if (c->has[slot])
        tr_gmatch_start(&c->match[slot], &c->prog[slot]);
    return c->has[slot] ? 0 : -EINVAL;
}

void tr_constrain_drop(struct tr_constrain *c, uint32_t slot)
{
    if (c)
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

/* With the lock. */
static void make_next(struct tr_constrain *c)
{
    uint32_t i = c->next++, slot = c->asked[i];
    tr_gmasks_fill(c->masks, &c->prog[slot], &c->match[slot], c->mask + (size_t)i * c->words);
}

/* Lets go of the lock between two masks, and of the rest if somebody waits for them. */
static void *make_masks(void *arg)
{
    struct tr_constrain *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (!c->go) {
            pthread_cond_wait(&c->wake, &c->lock);
        } else if (c->next == c->n || atomic_load_explicit(&c->wanted, memory_order_relaxed)) {
            c->go = false;
        } else {
            make_next(c);
            pthread_mutex_unlock(&c->lock);
            pthread_mutex_lock(&c->lock);
        }
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

int tr_constrain_start(struct tr_constrain *c, uint32_t max_rows, uint64_t *bytes)
{
    c->max_rows = max_rows;
    c->mask = calloc((size_t)max_rows * c->words, sizeof(*c->mask));
    c->asked = calloc(max_rows, sizeof(*c->asked));
    if (!c->mask || !c->asked)
        return -ENOMEM;
    *bytes = (uint64_t)max_rows * (c->words + 1) * sizeof(uint32_t);
    int rc = start_thread(c);
    c->has_thread = rc == 0;
    return -rc;
}

const uint32_t *tr_constrain_ask(struct tr_constrain *c, uint32_t slot)
{
    TR_ASSERT(c->n < c->max_rows && c->has[slot]);
    c->asked[c->n] = slot;
    return c->mask + (size_t)c->n++ * c->words;
}

void tr_constrain_begin(struct tr_constrain *c)
{
    if (!c || !c->n)
        return;
    pthread_mutex_lock(&c->lock);
    c->next = 0;
    c->go = true;
    pthread_cond_signal(&c->wake);
    pthread_mutex_unlock(&c->lock);
}

void tr_constrain_join(struct tr_constrain *c, void (*beat)(void *arg), void *arg)
{
    if (!c || !c->n)
        return;
    atomic_store_explicit(&c->wanted, true, memory_order_relaxed);
    pthread_mutex_lock(&c->lock);
    while (c->next < c->n) {
        make_next(c);
        beat(arg);
    }
    c->go = false;
    c->n = c->next = 0;
    pthread_mutex_unlock(&c->lock);
    atomic_store_explicit(&c->wanted, false, memory_order_relaxed);
}
