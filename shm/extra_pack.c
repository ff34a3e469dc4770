/* SPDX-License-Identifier: Apache-2.0 */
/* The frontend's half of shm/extra.h. */
#include "shm/extra.h"

#include <errno.h>
#include <msgpack/pack.h>
#include <string.h>

struct sink {
    uint8_t *out;
    size_t len, cap;
};

static int sink_write(void *data, const char *buf, size_t len)
{
    struct sink *k = data;
    if (len > k->cap - k->len)
        return -1;
    memcpy(k->out + k->len, buf, len);
    k->len += len;
    return 0;
}

static int pack_ids(msgpack_packer *p, const struct tr_extra *e)
{
    int bad = msgpack_pack_str_with_body(p, "bias", 4);
    bad |= msgpack_pack_array(p, (size_t)e->n_bias * 2);
    for (uint32_t i = 0; i < e->n_bias && !bad; i++) {
        bad |= msgpack_pack_uint32(p, e->bias[i].id);
        bad |= msgpack_pack_double(p, (double)e->bias[i].value);
    }
    bad |= msgpack_pack_str_with_body(p, "stop", 4);
    bad |= msgpack_pack_array(p, e->n_stop);
    for (uint32_t i = 0; i < e->n_stop && !bad; i++)
        bad |= msgpack_pack_uint32(p, e->stop_ids[i]);
    return bad;
}

static int pack_view(msgpack_packer *p, const struct tr_view *v)
{
    int bad = msgpack_pack_str_with_body(p, "view", 4);
    bad |= msgpack_pack_array(p, 6);
    bad |= msgpack_pack_uint32(p, v->dialect);
    bad |= msgpack_pack_uint32(p, v->flags);
    bad |= msgpack_pack_uint64(p, v->created);
    bad |= msgpack_pack_uint64(p, v->timeout_ns);
    bad |= msgpack_pack_array(p, v->n_stop);
    for (uint32_t i = 0; i < v->n_stop && !bad; i++)
        bad |= msgpack_pack_str_with_body(p, v->stop[i].p, v->stop[i].len);
    bad |= msgpack_pack_str(p, v->kept.len);
    if (v->kept.len)
        bad |= msgpack_pack_str_body(p, v->kept.p, v->kept.len);
    return bad;
}

int tr_extra_pack_view(const struct tr_extra *e, const struct tr_view *v, uint8_t *out, size_t cap)
{
    struct sink k = {.out = out, .cap = cap};
    msgpack_packer p;
    msgpack_packer_init(&p, &k, sink_write);
    int bad = msgpack_pack_map(&p, 2u + (v != NULL) + (e->grammar_len != 0)) | pack_ids(&p, e);
    if (v && !bad)
        bad = pack_view(&p, v);
    if (e->grammar_len && !bad)
        bad = msgpack_pack_str_with_body(&p, "grammar", 7) |
              msgpack_pack_bin_with_body(&p, e->grammar, e->grammar_len);
    return bad ? -ENOSPC : (int)k.len;
}

int tr_extra_pack(const struct tr_extra *e, uint8_t *out, size_t cap)
{
    return tr_extra_pack_view(e, NULL, out, cap);
}
