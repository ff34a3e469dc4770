/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/compute.h - what computes: the backend that the options mean, and what of them it refuses.
 *
 * Asked before anything is loaded or forked, so that a wish that cannot be met costs one sentence. */
#ifndef TR_SUPERVISOR_COMPUTE_H
#define TR_SUPERVISOR_COMPUTE_H

#include "engine/backend.h"
#include "supervisor/options.h"

/* The places of the words of --backend. */
enum { TR_COMPUTE_AUTO, TR_COMPUTE_CPU, TR_COMPUTE_CUDA, TR_COMPUTE_SIM };

/* --model is not empty.  The backend in *ops and 0, or -EINVAL and a sentence: a backend that this model or
 * this build does not have, or a flag that means nothing to it. */
int tr_compute_choose(const struct tr_options *o, const struct tr_backend_ops **ops,
                      struct tr_errbuf *err);

#endif
