/* SPDX-License-Identifier: Apache-2.0 */
/* What the ledger reads in shared memory: delivery records of a frontend, billing records and rings of
 * an engine.  Whatever they hold, each becomes one entry with clean text that can be packed and read
 * again, and the queues end. */
#include "base/assert.h"
#include "ledger/pack.h"
#include "ledger/row.h"
#include "ledger/settle.h"
#include "testlib/shm_rig.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SLOTS = 6 };

static struct shm_rig r;

struct input {
    const uint8_t *p;
    size_t left;
};

static void take(struct input *in, void *out, size_t n)
{
    memset(out, 0, n);
    n = n < in->left ? n : in->left;
    memcpy(out, in->p, n);
    in->p += n;
    in->left -= n;
}

/* Text as ledger/row.h promises it, numbers that are counts or times, and all of it packs. */
static void check_ascii(const char *s, size_t size)
{
    size_t n = strnlen(s, size);
    TR_ASSERT(n < size);
    for (size_t i = 0; i < n; i++)
        TR_ASSERT(s[i] >= 0x20 && s[i] <= 0x7e);
}

static void check_entry(const struct tr_entry *e)
{
    uint8_t packed[TR_PACK_MAX];
    struct tr_entry back;
    TR_ASSERT(tr_unpack(packed, tr_pack(e, packed), &back) == 0 && back.kind == e->kind);
    if (e->kind == TR_ENTRY_DELIVERY)
        return;
    check_ascii(e->bill.request_id, sizeof(e->bill.request_id));
    check_ascii(e->bill.key, sizeof(e->bill.key));
    for (const int64_t *v = &e->bill.created_us; v <= &e->bill.cancel_ack_us; v++)
        TR_ASSERT(*v >= (v == &e->bill.last_token ? -1 : 0));
}

static void check_bill(void *arg, const struct tr_bill *b)
{
    struct tr_entry e;
    (void)arg;
    tr_row_of_bill(b, "sim", &e);
    check_entry(&e);
}

static void deliveries(struct input *in)
{
    struct tr_delivery d;
    struct tr_entry e;
    uint64_t head = atomic_load(&r.s.ledger->delivery_head[0]), jump;
    struct tr_delivery *q =
        (struct tr_delivery *)((char *)r.s.area[0] + tr_layout_area_delivery(&r.s.config));
    take(in, &jump, sizeof(jump));
    if (jump <= TR_DELIVERY_CAP) /* a few are as good as many, and faster */
        jump %= 8;
    for (uint64_t i = 0; i < 4; i++)
        take(in, &q[(head + i) % TR_DELIVERY_CAP], sizeof(*q));
    atomic_store(&r.s.area[0]->delivery_tail, head + jump);
    uint64_t n = 0;
    tr_role = TR_ROLE_LEDGER;
    for (; tr_delivery_pop(&r.s, 0, &d) == 0; n++) {
        tr_row_of_delivery(&d, &e);
        check_entry(&e);
    }
    TR_ASSERT(n == (jump <= TR_DELIVERY_CAP ? jump : 0));
    atomic_store(&r.s.area[0]->delivery_tail, head + n);
}

static void bills(struct input *in)
{
    struct tr_bill b;
    uint64_t at, tail;
    take(in, &at, sizeof(at));
    take(in, &tail, sizeof(tail));
    take(in, &r.s.accounting->rec[at % TR_BILL_CAP], sizeof(b));
    atomic_store(&r.s.accounting->tail, tail);
    if (tr_bill_peek(&r.s, at, &b) == 0)
        check_bill(NULL, &b);
}

static void rings(struct input *in)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        take(in, tr_ring_at(&r.s, slot), sizeof(struct tr_ring));
    tr_settle_rings(&r.s, check_bill, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    if (!r.s.rings)
        shm_rig_open(&r, SLOTS, 1);
    deliveries(&in);
    bills(&in);
    rings(&in);
    return 0;
}
