/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_kernels/room.cu - scratch that operations share, taken at the start for the largest pass there may be. */
#include "cuda_kernels/cuda.h"
#include "cuda_kernels/dev.cuh"

#include <errno.h>

uint64_t tr_cuda_room_bytes(const struct tr_dev *dev, const struct tr_cuda_shape *s)
{
    return tr_cuda_attention_room(dev->n_sm, s->n_ctx, s->max_rows, s->n_head, s->n_head_kv,
                                  s->head_dim);
}

int tr_cuda_take_room(struct tr_dev *dev, const struct tr_cuda_shape *s, struct tr_errbuf *err)
{
    dev->attend_room_len = tr_cuda_room_bytes(dev, s);
    dev->attend_room = tr_cuda_take(dev, dev->attend_room_len, false);
    if (!dev->attend_room)
        return tr_errf(err, -ENOMEM, "the GPU has no memory left for %zu bytes of attention's",
                       dev->attend_room_len);
    return 0;
}
