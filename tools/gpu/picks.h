/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/picks.h - sampling on the device under the stopwatch; a part of the stage `kernels`. */
#ifndef TR_TOOLS_GPU_PICKS_H
#define TR_TOOLS_GPU_PICKS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tr_dev;

/* A table of what 1, 64 and 256 rows of a vocabulary of 128,256 take, however they are sampled. */
void tr_gpu_picks(struct tr_dev *dev, bool dry, double read_gb_s);

/* device.h's stopwatch for C. */
double tr_gpu_microseconds(struct tr_dev *dev, uint32_t n, void (*call)(void *arg, uint32_t i),
                           void *arg, bool dry);

#ifdef __cplusplus
}
#endif

#endif
