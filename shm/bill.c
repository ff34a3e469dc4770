/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/bill.h"

#include "shm/bell.h"
#include "shm/region.h"

#include <errno.h>
#include <string.h>

void tr_bill_trace(struct tr_bill *b, const struct tr_ring *lead)
{
    memcpy(&b->trace, &lead->trace, sizeof(b->trace));
    b->trace.state[TR_TRACE_STATE_BYTES - 1] = '\0';
    b->stage = lead->stage;
    b->admitted_ns = atomic_load_explicit(&lead->admitted_ns, memory_order_relaxed);
    b->temperature = lead->params.temperature;
    b->top_p = lead->params.top_p;
    b->top_k = lead->params.top_k;
    b->max_tokens = lead->params.max_tokens;
    b->flags = lead->params.flags;
}

void tr_bill_started(struct tr_bill *b, const struct tr_ring *choice)
{
    uint64_t at = atomic_load_explicit(&choice->started_ns, memory_order_relaxed);
    if (at && (!b->started_ns || at < b->started_ns))
        b->started_ns = at;
}

uint64_t tr_bill_next(const struct tr_shm *s)
{
    /* Relaxed: only the engine writes it. */
    return atomic_load_explicit(&s->accounting->tail, memory_order_relaxed) + 1;
}

bool tr_bill_is_queued(const struct tr_shm *s, uint64_t bill_seq)
{
    return bill_seq && bill_seq < tr_bill_next(s);
}

/* Who follows without being waited for has to see that the oldest record is about to change before it
 * does: the count of those before it was stored when the last one was pushed.  Pairs with the fence in
 * tr_bill_follow. */
static void fence_records(void)
{
    atomic_thread_fence(memory_order_release);
}

int tr_bill_push(struct tr_shm *s, const struct tr_bill *b, uint64_t *seq)
{
    TR_ASSERT_ROLE(TR_ROLE_ENGINE);
    struct tr_accounting *a = s->accounting;
    /* Relaxed: only we write it. */
    uint64_t tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
    if (s->config.ledger) {
        /* Acquire: the ledger is done with the record we overwrite; pairs with tr_bill_durable. */
        uint64_t head = atomic_load_explicit(&s->ledger->bill_head, memory_order_acquire);
        if (tail - head >= TR_BILL_CAP)
            return -EAGAIN;
    }
    fence_records();
    a->rec[tail % TR_BILL_CAP] = *b;
    /* Release: the record is whole before it is counted; pairs with tr_bill_peek. */
    atomic_store_explicit(&a->tail, tail + 1, memory_order_release);
    if (seq)
        *seq = tail + 1;
    if (s->config.ledger)
        tr_bell_ring_ledger(s);
    return 0;
}

static void end_texts(struct tr_bill *b)
{
    b->request_id[TR_ID_BYTES - 1] = '\0';
    b->key[TR_KEY_BYTES - 1] = '\0';
    b->trace.state[TR_TRACE_STATE_BYTES - 1] = '\0';
}

int tr_bill_follow(const struct tr_shm *s, uint64_t *at, struct tr_bill *out, uint64_t *missed)
{
    const struct tr_accounting *a = s->accounting;
    for (;;) {
        /* Acquire: pairs with the release in tr_bill_push. */
        uint64_t tail = atomic_load_explicit(&a->tail, memory_order_acquire);
        if (*at >= tail)
            return -EAGAIN;
        /* The record that lies at `tail` modulo the queue may be in the making. */
        if (tail - *at >= TR_BILL_CAP) {
            *missed += tail - *at - (TR_BILL_CAP - 1);
            *at = tail - (TR_BILL_CAP - 1);
        }
        *out = a->rec[*at % TR_BILL_CAP];
        /* Acquire: what was copied is older than the count that is read now. */
        atomic_thread_fence(memory_order_acquire);
        tail = atomic_load_explicit(&a->tail, memory_order_relaxed);
        if (tail - *at < TR_BILL_CAP)
            break;
    }
    ++*at;
    end_texts(out);
    return 0;
}

int tr_bill_peek(const struct tr_shm *s, uint64_t at, struct tr_bill *out)
{
    /* Acquire: pairs with the release in tr_bill_push. */
    uint64_t tail = atomic_load_explicit(&s->accounting->tail, memory_order_acquire);
    if (at >= tail || tail - at > TR_BILL_CAP)
        return -EAGAIN;
    *out = s->accounting->rec[at % TR_BILL_CAP];
    end_texts(out);
    return 0;
}

void tr_bill_durable(struct tr_shm *s, uint64_t upto)
{
    TR_ASSERT_ROLE(TR_ROLE_LEDGER);
    /* Release: we have copied the records (head), and the file has them (durable).  Pairs with
     * tr_bill_push and tr_bill_n_durable. */
    atomic_store_explicit(&s->ledger->bill_head, upto, memory_order_release);
    atomic_store_explicit(&s->ledger->durable, upto, memory_order_release);
}

uint64_t tr_bill_n_durable(const struct tr_shm *s)
{
    if (!s->config.ledger)
        return UINT64_MAX;
    /* Acquire: pairs with the release in tr_bill_durable. */
    return atomic_load_explicit(&s->ledger->durable, memory_order_acquire);
}

bool tr_bill_is_durable(const struct tr_shm *s, uint64_t bill_seq)
{
    return tr_bill_n_durable(s) >= bill_seq;
}
