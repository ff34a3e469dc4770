/* SPDX-License-Identifier: Apache-2.0 */
/* The packed part of a request, as the engine reads it: whatever is accepted is inside its bounds and
 * means the same after it was packed again. */
#include "base/assert.h"
#include "shm/extra.h"
#include "shm/layout.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_VOCAB = 1000 };

static void check_view(const struct tr_view *a, const struct tr_view *b)
{
    TR_ASSERT(a->dialect == b->dialect && a->flags == b->flags && a->created == b->created &&
              a->timeout_ns == b->timeout_ns && a->n_stop == b->n_stop);
    TR_ASSERT(a->kept.len == b->kept.len && memcmp(a->kept.p, b->kept.p, a->kept.len) == 0);
    for (uint32_t i = 0; i < a->n_stop; i++)
        TR_ASSERT(a->stop[i].len == b->stop[i].len &&
                  memcmp(a->stop[i].p, b->stop[i].p, a->stop[i].len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tr_extra a, b;
    static struct tr_view v, w;
    static uint8_t packed[TR_EXTRA_BYTES];
    if (size > TR_EXTRA_BYTES || tr_extra_unpack(data, size, N_VOCAB, &a))
        return 0;
    bool has_view = tr_extra_view(data, size, N_VOCAB, &a, &v) == 0;
    TR_ASSERT(a.n_bias <= TR_MAX_BIAS && a.n_stop <= TR_MAX_STOP_IDS);
    for (uint32_t i = 0; i < a.n_bias; i++)
        TR_ASSERT(a.bias[i].id < N_VOCAB && fabsf(a.bias[i].value) <= 100);
    for (uint32_t i = 0; i < a.n_stop; i++)
        TR_ASSERT(a.stop_ids[i] < N_VOCAB);
    for (uint32_t i = 0; has_view && i < v.n_stop; i++)
        TR_ASSERT(v.stop[i].len >= 1 && v.stop[i].len <= TR_VIEW_STOP_BYTES &&
                  (const uint8_t *)v.stop[i].p + v.stop[i].len <= data + size);
    TR_ASSERT(!has_view || (v.kept.len <= TR_VIEW_KEPT_BYTES &&
                            (const uint8_t *)v.kept.p + v.kept.len <= data + size));
    TR_ASSERT(!a.grammar_len || (a.grammar_len <= TR_GRAMMAR_BYTES && a.grammar >= data &&
                                 a.grammar + a.grammar_len <= data + size));
    int n = tr_extra_pack_view(&a, has_view ? &v : NULL, packed, sizeof(packed));
    TR_ASSERT(n > 0 &&
              tr_extra_view(packed, (size_t)n, N_VOCAB, &b, &w) == (has_view ? 0 : -ENOENT));
    TR_ASSERT(a.n_bias == b.n_bias && a.n_stop == b.n_stop);
    TR_ASSERT(a.grammar_len == b.grammar_len &&
              (!a.grammar_len || memcmp(a.grammar, b.grammar, a.grammar_len) == 0));
    TR_ASSERT(memcmp(a.bias, b.bias, a.n_bias * sizeof(a.bias[0])) == 0);
    TR_ASSERT(memcmp(a.stop_ids, b.stop_ids, a.n_stop * sizeof(a.stop_ids[0])) == 0);
    if (has_view)
        check_view(&v, &w);
    return 0;
}
