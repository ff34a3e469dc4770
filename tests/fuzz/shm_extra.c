/* SPDX-License-Identifier: Apache-2.0 */
/* The packed part of a request, as the engine reads it: whatever is accepted is inside its bounds and
 * means the same after it was packed again. */
#include "base/assert.h"
#include "shm/extra.h"
#include "shm/layout.h"

#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_VOCAB = 1000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tr_extra a, b;
    static uint8_t packed[TR_EXTRA_BYTES];
    if (size > TR_EXTRA_BYTES || tr_extra_unpack(data, size, N_VOCAB, &a))
        return 0;
    TR_ASSERT(a.n_bias <= TR_MAX_BIAS && a.n_stop <= TR_MAX_STOP_IDS);
    for (uint32_t i = 0; i < a.n_bias; i++)
        TR_ASSERT(a.bias[i].id < N_VOCAB && fabsf(a.bias[i].value) <= 100);
    for (uint32_t i = 0; i < a.n_stop; i++)
        TR_ASSERT(a.stop_ids[i] < N_VOCAB);
    int n = tr_extra_pack(&a, packed, sizeof(packed));
    TR_ASSERT(n > 0 && tr_extra_unpack(packed, (size_t)n, N_VOCAB, &b) == 0);
    TR_ASSERT(a.n_bias == b.n_bias && a.n_stop == b.n_stop);
    TR_ASSERT(memcmp(a.bias, b.bias, a.n_bias * sizeof(a.bias[0])) == 0);
    TR_ASSERT(memcmp(a.stop_ids, b.stop_ids, a.n_stop * sizeof(a.stop_ids[0])) == 0);
    return 0;
}
