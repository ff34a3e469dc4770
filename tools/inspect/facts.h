/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/facts.h - what is to be known of a GGUF file, by the readers that a service uses.
 *
 * The file is input.  A container that cannot be read gives nothing but its sentence; of one that can be
 * read, everything is told that is there, and for each part that a service would refuse, with which
 * sentence.  No weight is packed, and no byte of a large tensor is read. */
#ifndef TR_INSPECT_FACTS_H
#define TR_INSPECT_FACTS_H

#include "engine/backend.h"
#include "engine/model.h"
#include "text/chat_traits.h"
#include "text/tool_format.h"
#include "text/vocab.h"

enum { TR_FACT_KV_TYPES = 3, TR_FACT_TYPES = 32, TR_FACT_REFUSALS = 6 };

/* Tensors of one type. */
struct tr_fact_type {
    enum tr_tensor_type type;
    uint64_t n, bytes;
};

struct tr_facts {
    struct tr_gguf *g;
    struct tr_gguf_about about;
    struct tr_fact_type type[TR_FACT_TYPES]; /* the largest first */
    unsigned n_types;
    uint64_t n_weights;     /* elements of all tensors */
    struct tr_vocab *vocab; /* NULL: refused */
    struct tr_chat *chat;   /* NULL: refused, or the file has no template */
    struct tr_chat_traits traits;
    enum tr_tool_format tools;
    enum tr_reasoning_format reasoning;
    struct tr_model *model; /* measured; NULL: refused */
    /* Of one block of TR_KV_BLOCK tokens in all layers; 0: cannot be stored so. */
    uint64_t kv_block[TR_FACT_KV_TYPES];
    struct tr_errbuf refusal[TR_FACT_REFUSALS];
    unsigned n_refusals;
};

extern const char *const tr_fact_kv_word[TR_FACT_KV_TYPES]; /* as --kv-type has them */

/* 0, or -EINVAL and the sentence why the container cannot be read. */
int tr_facts_open(struct tr_facts *f, const char *path, struct tr_errbuf *err);
void tr_facts_close(struct tr_facts *f);

#endif
