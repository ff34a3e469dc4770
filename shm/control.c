/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/control.h"

#include "shm/role.h"

void tr_control_publish(struct tr_control *c)
{
    TR_ASSERT_ROLE(TR_ROLE_SUPERVISOR);
    /* Release: what was stored before is seen by whoever sees the new number.  Pairs with the
     * acquire in tr_control_seen. */
    atomic_fetch_add_explicit(&c->change, 1, memory_order_release);
}

int tr_control_seen(const struct tr_control *c, uint32_t *seen)
{
    uint32_t now = atomic_load_explicit(&c->change, memory_order_acquire);
    if (now == *seen)
        return 0;
    *seen = now;
    return 1;
}
