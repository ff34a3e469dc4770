/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/device.h - the device under a stopwatch: for the stages that time kernels one by one. */
#ifndef TR_TOOLS_GPU_DEVICE_H
#define TR_TOOLS_GPU_DEVICE_H

#include "cuda_kernels/port.cuh"

#include <functional>
#include <stdint.h>

/* What a device can do at most, as its maker says (dense), by the name it has; 0: not known. */
struct nominal {
    const char *name; /* a part of it */
    double gb_s, bf16_tflops, int8_tops;
};
struct nominal nominal_of(const char *device_name);

/* Ends the process with a sentence if e is an error. */
void must(cudaError_t e, const char *what);

/* Microseconds of one call: n of them, recorded once (so that launches cost the host nothing), started again and
 * again for about 20 ms, the best of three such turns.  `dry`: just once. */
double microseconds(cudaStream_t s, uint32_t n, const std::function<void(uint32_t i)> &call,
                    bool dry);

/* 10^9 bytes/s. */
double read_speed(bool dry);
double copy_speed(bool dry); /* both directions counted */

#endif
