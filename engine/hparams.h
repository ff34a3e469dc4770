/* SPDX-License-Identifier: Apache-2.0 */
/* engine/hparams.h - the numbers of a model: what the keys of its file say, checked.
 *
 * Keys that change the arithmetic in a way that the forward pass does not know (experts,
 * caps, sliding windows of architectures that have none) are refused by name. */
#ifndef TR_ENGINE_HPARAMS_H
#define TR_ENGINE_HPARAMS_H

#include "engine/arch.h"
#include "engine/keys.h"
#include "engine/rope_spec.h"

enum { TR_LAYERS_MAX = 1024 };

struct tr_hparams {
    uint32_t n_vocab;
    uint32_t n_ctx; /* that it was trained for */
    uint32_t n_layer;
    uint32_t n_embd;
    uint32_t n_ff;
    uint32_t n_head;
    uint32_t n_head_kv; /* divides n_head */
    uint32_t head_dim;
    uint32_t n_rot; /* elements of a head that are turned */
    float norm_eps;
    float embd_scale; /* of embedded rows */
    float attn_scale; /* of scores */
    enum tr_ffn_act ffn_act;
    enum tr_rope_style rope_style;
    struct tr_rope_spec rope;       /* of layers that see all positions */
    struct tr_rope_spec rope_local; /* of the others */
    uint32_t window;                /* positions that a local layer sees; 0: no layer is local */
    bool local[TR_LAYERS_MAX];
};

/* 0, or -EINVAL and a sentence; k->arch is arch->name. */
int tr_hparams_read(struct tr_hparams *hp, const struct tr_keys *k, const struct tr_arch *arch);

uint32_t tr_hparams_side(const struct tr_hparams *hp, enum tr_dim d);

#endif
