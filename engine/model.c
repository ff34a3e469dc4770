/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model.h"

#include "base/assert.h"
#include "engine/arch.h"
#include "engine/hparams.h"
#include "engine/keys.h"
#include "engine/weights.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { TENSOR_NAME_MAX = 65 };

struct loader {
    struct tr_keys k;
    const struct tr_ops *ops;
    struct tr_dev *dev;
    int keep_fd;
    bool filled; /* the weights are there already */
    void (*beat)(void *);
    void *beat_arg;
    const struct tr_arch *arch;
    struct tr_model *m;
    /* Weights are placed one after the other: a first pass without memory counts the bytes. */
    size_t used;
    size_t embd_bytes; /* of that: the embedding */
    uint64_t n_known;  /* tensors of the file that found their place */
};

#define refuse(l, ...) (tr_keys_refuse(&(l)->k, __VA_ARGS__), -EINVAL)

static int find_arch(struct loader *l)
{
    struct tr_str s;
    if (tr_gguf_str(l->k.g, "general.architecture", &s) < 0)
        return refuse(l, "key general.architecture is missing or not a string");
    l->arch = tr_arch_find(s);
    char names[96];
    if (!l->arch)
        return refuse(l, "architecture \"%.*s\" is not implemented (these are: %s)",
                      (int)(s.len < 40 ? s.len : 40), s.p, tr_arch_names(names));
    l->k.arch = l->arch->name;
    return 0;
}

/* Bytes of a tensor in our memory, or 0 and the sentence why it cannot be used. */
static size_t packed_bytes(const struct loader *l, const struct tr_gguf_tensor *t, const char *name,
                           uint32_t n_in, uint32_t n_out, bool vector)
{
    char buf[24];
    if (t->n_dims > 2 || t->ne[0] != n_in || t->ne[1] != n_out) {
        (void)refuse(l,
                     "tensor %s is [%" PRIu64 ", %" PRIu64 "], the model's keys say [%" PRIu32
                     ", %" PRIu32 "]",
                     name, t->ne[0], t->ne[1], n_in, n_out);
        return 0;
    }
    if (vector && t->type != TR_T_F32) {
        (void)refuse(l, "tensor %s has type %s; vectors must be F32", name,
                     tr_tensor_type_name(t->type, buf));
        return 0;
    }
    size_t n = vector ? (size_t)t->bytes : l->ops->mat_bytes(l->dev, t->type, n_in, n_out);
    if (n == 0)
        (void)refuse(
            l,
            "tensor %s has type %s, which is not implemented (F32, F16, BF16, Q8_0, Q4_0, Q4_1, "
            "Q5_0, Q5_1 and Q2_K to Q6_K are)",
            name, tr_tensor_type_name(t->type, buf));
    return n;
}

enum { READ_SLICE = 4 << 20, PAGE = 4096 };

/* Brings a tensor's pages in from the file, slice by slice: from a slow disk a single one can take
 * minutes, and packing, which would do it too, gives no sign of life. */
static void read_in(const struct loader *l, const struct tr_gguf_tensor *t)
{
    const volatile uint8_t *bytes = t->data;
    if (!l->beat)
        return;
    for (uint64_t at = 0; at < t->bytes; at += PAGE) {
        if (at % READ_SLICE == 0)
            l->beat(l->beat_arg);
        (void)bytes[at];
    }
    l->beat(l->beat_arg);
}

/* Into `mem`, or found there; `to` is what tells where it is. */
static void place_tensor(const struct loader *l, const struct tr_gguf_tensor *t, bool vector,
                         uint32_t n_in, uint32_t n_out, uint8_t *mem, void *to)
{
    if (!l->filled)
        read_in(l, t);
    if (vector) {
        if (!l->filled)
            memcpy(mem, t->data, (size_t)t->bytes);
        memcpy(to, &mem, sizeof(mem));
    } else if (l->filled) {
        l->ops->mat_adopt(l->dev, to, t->type, n_in, n_out, mem);
    } else {
        l->ops->mat_prepare(l->dev, to, t->type, n_in, n_out, t->data, mem);
    }
}

/* Counts one tensor and, in the second pass, packs it.  `at` is the model or layer it belongs to. */
static int load_tensor(struct loader *l, const struct tr_tensor_spec *s, const char *name, void *at)
{
    const struct tr_hparams *hp = &l->m->hp;
    const struct tr_gguf_tensor *t = tr_gguf_tensor(l->k.g, name);
    if (!tr_arch_has(l->arch, s) || (!t && !(l->arch->needs & (uint32_t)s->part)))
        return 0;
    if (!t)
        return refuse(l, "tensor %s is missing", name);
    bool vector = s->n_out == TR_DIM_ONE;
    uint32_t n_in = tr_hparams_side(hp, s->n_in), n_out = tr_hparams_side(hp, s->n_out);
    size_t n = packed_bytes(l, t, name, n_in, n_out, vector);
    if (n == 0)
        return -EINVAL;
    uint8_t *mem = l->m->weights ? (uint8_t *)l->m->weights + l->used : NULL;
    if (mem)
        place_tensor(l, t, vector, n_in, n_out, mem, (uint8_t *)at + s->place);
    l->used += (n + TR_OPS_LINE - 1) & ~(size_t)(TR_OPS_LINE - 1);
    l->n_known++;
    return 0;
}

/* One pass over all tensors of the architecture. */
static int load_all(struct loader *l)
{
    struct tr_model *m = l->m;
    char name[TENSOR_NAME_MAX];
    l->used = 0;
    l->n_known = 0;
    for (const struct tr_tensor_spec *s = tr_model_tensors; s->name; s++) {
        if (load_tensor(l, s, s->name, m) < 0)
            return -EINVAL;
        if (s == tr_model_tensors)
            l->embd_bytes = l->used;
    }
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (const struct tr_tensor_spec *s = tr_layer_tensors; s->name; s++) {
            snprintf(name, sizeof(name), "blk.%" PRIu32 ".%s", i, s->name);
            if (load_tensor(l, s, name, &m->layers[i]) < 0)
                return -EINVAL;
        }
    return 0;
}

static bool is_known(const struct loader *l, struct tr_str name)
{
    for (const struct tr_tensor_spec *s = tr_model_tensors; s->name; s++)
        if (tr_arch_has(l->arch, s) && strlen(s->name) == name.len &&
            memcmp(s->name, name.p, name.len) == 0)
            return true;
    char want[TENSOR_NAME_MAX];
    for (uint32_t i = 0; i < l->m->hp.n_layer; i++)
        for (const struct tr_tensor_spec *s = tr_layer_tensors; s->name; s++) {
            int n = snprintf(want, sizeof(want), "blk.%" PRIu32 ".%s", i, s->name);
            if (tr_arch_has(l->arch, s) && (size_t)n == name.len &&
                memcmp(want, name.p, name.len) == 0)
                return true;
        }
    return false;
}

/* A tensor without a place would change the numbers if it were used. */
static int refuse_unknown(const struct loader *l)
{
    if (l->n_known == tr_gguf_n_tensors(l->k.g))
        return 0;
    for (uint64_t i = 0; i < tr_gguf_n_tensors(l->k.g); i++) {
        struct tr_str name = tr_gguf_tensor_at(l->k.g, i)->name;
        if (!is_known(l, name))
            return refuse(l, "tensor %.*s is not implemented for architecture %s%s", (int)name.len,
                          name.p, l->arch->name,
                          name.len > 5 && memcmp(name.p + name.len - 5, ".bias", 5) == 0
                              ? " (biases are not)"
                              : "");
    }
    return 0;
}

/* The factors of angles belong to the way of scaling that the keys name, and are numbers.  Their
 * types and shapes are right already. */
static int check_rope_factors(const struct loader *l)
{
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                        "rope_factors_short.weight"};
    bool is_long = l->m->hp.rope.scaling == TR_ROPE_LONG;
    for (int i = 0; i < 3; i++) {
        const struct tr_gguf_tensor *t = tr_gguf_tensor(l->k.g, names[i]);
        if (!t && i > 0 && is_long)
            return refuse(l, "tensor %s is missing, which longrope needs", names[i]);
        if (t && (i > 0) != is_long)
            return refuse(l, "tensor %s does not go with the RoPE scaling that the keys name",
                          names[i]);
        for (uint32_t k = 0; t && k < l->m->hp.n_rot / 2; k++) {
            float f;
            memcpy(&f, (const uint8_t *)t->data + k * sizeof(f), sizeof(f));
            if (!(f > 0) || !isfinite(f))
                return refuse(l, "tensor %s: a factor is %g", names[i], (double)f);
        }
    }
    return 0;
}

/* Zeroed memory of our own for packed weights, or NULL. */
static void *map_weights(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* Advice only: without large pages it is slower, not wrong. */
    (void)madvise(p, len, MADV_HUGEPAGE);
    return p;
}

/* From where a tensor was packed to where operations find it. */
static void rebase(const struct tr_model *m, const struct tr_tensor_spec *s, void *at)
{
    void *place = (uint8_t *)at + s->place;
    const uint8_t *p;
    /* The pointer to a vector, or the first member of a matrix. */
    memcpy(&p, place, sizeof(p));
    if (!p || s->part == TR_PART_ROPE_FACTORS)
        return;
    p = (const uint8_t *)m->resident + (p - (const uint8_t *)m->weights);
    memcpy(place, &p, sizeof(p));
}

_Static_assert(offsetof(struct tr_mat, packed) == 0, "as rebase takes it");

/* Has the packed weights brought to where operations read them.  Factors of angles are for the host. */
static int make_resident(struct loader *l)
{
    struct tr_model *m = l->m;
    m->resident = l->ops->resident(l->dev, m->weights, m->weights_len);
    if (!m->resident)
        return refuse(l, "no memory for %zu bytes of weights on the device", m->weights_len);
    for (const struct tr_tensor_spec *s = tr_model_tensors; s->name; s++)
        rebase(m, s, m);
    for (uint32_t i = 0; i < m->hp.n_layer; i++)
        for (const struct tr_tensor_spec *s = tr_layer_tensors; s->name; s++)
            rebase(m, s, &m->layers[i]);
    return 0;
}

/* The name goes to logs and terminals: what is not plain ASCII becomes '?'. */
static void copy_name(const struct tr_gguf *g, char *out, size_t size)
{
    struct tr_str s = {"", 0};
    (void)tr_gguf_str(g, "general.name", &s);
    size_t n = s.len < size ? s.len : size - 1;
    for (size_t i = 0; i < n; i++)
        out[i] = s.p[i] >= 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    out[n] = 0;
}

/* Everything but memory for weights and what goes into it. */
static int measure(struct loader *l)
{
    struct tr_model *m = l->m;
    if (find_arch(l) < 0 || tr_hparams_read(&m->hp, &l->k, l->arch) < 0)
        return -EINVAL;
    snprintf(m->arch, sizeof(m->arch), "%s", l->arch->name);
    copy_name(l->k.g, m->name, sizeof(m->name));
    m->layers = calloc(m->hp.n_layer, sizeof(*m->layers));
    if (!m->layers)
        return refuse(l, "no memory for %" PRIu32 " layers", m->hp.n_layer);
    if (load_all(l) < 0 || refuse_unknown(l) < 0 || check_rope_factors(l) < 0)
        return -EINVAL;
    m->weights_len = l->used;
    m->output_tied = !tr_gguf_tensor(l->k.g, "output.weight");
    m->step_bytes = l->used - (m->output_tied ? 0 : l->embd_bytes);
    return 0;
}

static int load(struct loader *l)
{
    struct tr_model *m = l->m;
    if (measure(l) < 0)
        return -EINVAL;
    void *kept = tr_weights_take(l->keep_fd, tr_gguf_origin(l->k.g), m->weights_len, l->beat,
                                 l->beat_arg, &l->filled);
    m->weights = kept ? kept : map_weights(m->weights_len);
    if (!m->weights)
        return refuse(l, "no memory for %zu bytes of weights", m->weights_len);
    int r = load_all(l);
    TR_ASSERT(r == 0 && l->used == m->weights_len);
    TR_ASSERT(m->output_tied == !m->output.packed);
    int ret = kept && !l->filled ? tr_weights_keep(l->keep_fd, kept, m->weights_len) : 0;
    if (ret)
        return refuse(l, "the weights cannot be kept: %s", strerror(-ret));
    if (make_resident(l) < 0)
        return -EINVAL;
    if (m->output_tied)
        m->output = m->token_embd;
    return 0;
}

/* `step` is load or measure. */
static struct tr_model *make(struct loader *l, int (*step)(struct loader *l))
{
    l->m = calloc(1, sizeof(*l->m));
    if (!l->m) {
        (void)refuse(l, "no memory");
        return NULL;
    }
    l->m->ops = l->ops;
    l->m->dev = l->dev;
    if (step(l) < 0) {
        tr_model_free(l->m);
        return NULL;
    }
    return l->m;
}

struct tr_model *tr_model_load(const struct tr_gguf *g, const char *path, int keep_fd,
                               const struct tr_ops *ops, struct tr_dev *dev, void (*beat)(void *),
                               void *arg, struct tr_errbuf *err)
{
    struct loader l = {.k = {.g = g, .path = path, .err = err},
                       .keep_fd = keep_fd,
                       .ops = ops,
                       .dev = dev,
                       .beat = beat,
                       .beat_arg = arg};
    return make(&l, load);
}

struct tr_model *tr_model_measure(const struct tr_gguf *g, const char *path,
                                  const struct tr_ops *ops, struct tr_dev *dev,
                                  struct tr_errbuf *err)
{
    struct loader l = {.k = {.g = g, .path = path, .err = err}, .ops = ops, .dev = dev};
    return make(&l, measure);
}

void tr_model_free(struct tr_model *m)
{
    if (!m)
        return;
    if (m->resident)
        m->ops->evict(m->dev, m->resident, m->weights_len);
    if (m->weights)
        munmap(m->weights, m->weights_len);
    free(m->layers);
    free(m);
}
