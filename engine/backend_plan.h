/* SPDX-License-Identifier: Apache-2.0 */
/* engine/backend_plan.h - what the backends that run a model share: what of its configuration is refused,
 * how memory becomes KV blocks, and the line for the log.
 *
 * Path: http > tokens > subq > engine > [step] > ring > detok > event > socket */
#ifndef TR_ENGINE_BACKEND_PLAN_H
#define TR_ENGINE_BACKEND_PLAN_H

#include "engine/backend.h"
#include "engine/forward.h"
#include "engine/model.h"

/* 0, or -EINVAL and a sentence.  `name` is the backend's. */
int tr_plan_check(const struct tr_backend_config *c, const char *name, struct tr_errbuf *err);

/* Context and KV blocks.  Without --kv-memory there are blocks for as many whole contexts as there may be
 * requests, in at most `limit` bytes.  The pool always holds one sequence of the whole context, so whatever
 * fits the context can run, if alone.  Fills n_ctx and n_kv_blocks, and reads `ids`. */
int tr_plan_kv(const struct tr_model *m, const struct tr_backend_config *c, uint64_t limit,
               struct tr_forward_config *fc, struct tr_errbuf *err);

/* Bytes of a KV block with all that is kept beside it; 0 if the type cannot hold the model's heads. */
uint64_t tr_plan_block_bytes(const struct tr_model *m, const struct tr_forward_config *fc);

/* `how` says what computes: "cpu int8 avx512-vnni, 8 threads". */
void tr_plan_describe(const struct tr_model *m, const struct tr_forward_config *fc,
                      uint64_t scratch, const char *how, bool deterministic,
                      struct tr_backend_info *info);

#endif
