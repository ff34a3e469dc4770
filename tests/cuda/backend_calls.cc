/* SPDX-License-Identifier: Apache-2.0 */
/* For backend.c, which is C: what the device was asked for. */
#include "cuda_kernels/port.cuh"

extern "C" uint64_t memory_asked_for(void)
{
    const uint64_t *calls = tr_cuda::here()->calls;
    return calls[tr_cuda::CALL_MALLOC] + calls[tr_cuda::CALL_HOST] +
           calls[tr_cuda::CALL_INSTANTIATE];
}
