/* SPDX-License-Identifier: Apache-2.0 */
/* What the ledger reads in shared memory: delivery records of a frontend, billing records and rings of
 * an engine.  Whatever they hold, each becomes one line of printable ASCII that is JSON as far as a
 * glance can tell, and the queues end. */
#include "base/assert.h"
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

/* One object, its strings closed, nothing that breaks a line. */
static void check_line(const char *line, size_t n)
{
    bool quoted = false;
    TR_ASSERT(n >= 3 && n < TR_ROW_BYTES && line[0] == '{' && line[n - 2] == '}' &&
              line[n - 1] == '\n');
    for (size_t i = 0; i < n - 1; i++) {
        TR_ASSERT(line[i] >= 0x20 && line[i] <= 0x7e);
        if (quoted && line[i] == '\\')
            i++;
        else if (line[i] == '"')
            quoted = !quoted;
        else
            TR_ASSERT(quoted || line[i] != '{' || i == 0);
    }
    TR_ASSERT(!quoted);
}

static void check_bill(void *arg, const struct tr_bill *b)
{
    char line[TR_ROW_BYTES];
    (void)arg;
    check_line(line, tr_row_bill(b, "sim", line));
}

static void deliveries(struct input *in)
{
    struct tr_delivery d;
    char line[TR_ROW_BYTES];
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
    for (; tr_delivery_pop(&r.s, 0, &d) == 0; n++)
        check_line(line, tr_row_delivery(&d, line));
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
