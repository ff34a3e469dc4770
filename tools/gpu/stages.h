/* SPDX-License-Identifier: Apache-2.0 */
/* tools/gpu/stages.h - the stages of tools/gpu_check that are programs of ours.
 *
 * Each is a run of its own: whatever it does to the device ends with its process.  What it finds goes to
 * report.h.  It returns 0, or 1 when something that must hold does not; slow is not wrong. */
#ifndef TR_TOOLS_GPU_STAGES_H
#define TR_TOOLS_GPU_STAGES_H

#include <stdbool.h>
#include <stdint.h>

struct tr_gpu_args {
    const char *backend; /* cuda or cpu */
    bool dry;            /* tiny: does it run, not how fast */
    bool deterministic;
    const char *model; /* a file */
};

#ifdef __cplusplus
extern "C" {
#endif

int tr_gpu_limits(const struct tr_gpu_args *a);  /* the device, and how fast it copies and reads */
int tr_gpu_kernels(const struct tr_gpu_args *a); /* every kernel beside those limits */
int tr_gpu_model(const struct tr_gpu_args *a);   /* tokens per second through the backend */
int tr_gpu_life(
    const struct tr_gpu_args *a); /* scheduler and shared memory: hosts, aborts, crashes */
int tr_gpu_golden(const struct tr_gpu_args *a); /* a real model: the tokens of the CPU */

/* 10^9 bytes/s that the device reads, measured in some milliseconds; 0 if there is none. */
double tr_gpu_read_gb_s(bool dry);

#ifdef __cplusplus
}
#endif

/* The backend of that name; NULL: there is none. */
struct tr_backend_ops;
const struct tr_backend_ops *tr_gpu_backend(const char *name);

/* An empty place for packed weights, as the supervisor makes it (engine/weights.h); 0: there is none. */
int tr_gpu_weights_fd(void);

/* What of a model file the stages count with. */
struct tr_gpu_file {
    uint32_t n_vocab;
    double
        products; /* weights in matrices that each token of a prompt meets: without embedding and head */
};
int tr_gpu_file(const char *path, struct tr_gpu_file *f);

/* Of n figures, which are sorted for it: the one below which the part q lies. */
double tr_gpu_quantile(double *v, uint32_t n, double q);

#endif
