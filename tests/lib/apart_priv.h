/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/apart_priv.h - how a device apart has operations wait (apart.c), for those who fill its table
 * (apart_ops.c). */
#ifndef TR_TESTS_APART_PRIV_H
#define TR_TESTS_APART_PRIV_H

#include "testrig/apart.h"

enum { REGIONS = 32, BUCKETS = 7 };

_Static_assert(1 << (BUCKETS - 1) == TR_APART_BUCKET, "as many as there are powers of two");

/* An operation and what it was given by value. */
struct call {
    void (*run)(struct tr_dev *cpu, const struct call *c);
    struct tr_mat mat[TR_OPS_PRODUCTS];
    struct tr_act act;
    struct tr_rope rope;
    struct tr_kv kv;
    struct tr_attend_params attend;
    const float *x, *y, *w, *w_next;
    float *out[TR_OPS_PRODUCTS];
    const uint32_t *tokens;
    const struct tr_place *places;
    uint32_t n, dim, n_head, layer;
    float number;
    void *to;
    const void *from;
    size_t len;
};

struct calls {
    struct call *p;
    uint32_t n, room;
};

struct region {
    uint8_t *p;
    size_t len;
    const void *of; /* the host's memory that it is a copy of */
};

struct tr_dev {
    struct tr_dev *cpu;
    size_t left; /* bytes that can be taken */
    struct region regions[REGIONS];
    struct calls waiting;
    struct calls passes[BUCKETS];
    struct calls *recording; /* one of passes */
    struct tr_apart_count count;
};

/* A mistake of who uses the device: ends the program. */
__attribute__((format(printf, 1, 2), noreturn)) void tr_apart_wrong(const char *format, ...);

/* p, which lies in memory of the device with len bytes from there on. */
const void *tr_apart_ours(const struct tr_dev *dev, const void *p, size_t len, const char *what);

/* It is done when all is done that waits now, and whenever the pass is that is recorded now. */
void tr_apart_issue(struct tr_dev *dev, const struct call *c);

/* The operations of apart.c in the table. */
void *tr_apart_take(struct tr_dev *dev, size_t len, bool huge);
void tr_apart_give(struct tr_dev *dev, void *mem, size_t len);
void *tr_apart_take_host(struct tr_dev *dev, size_t len);
void tr_apart_give_host(struct tr_dev *dev, void *mem, size_t len);
const void *tr_apart_resident(struct tr_dev *dev, const void *mem, size_t len);
void tr_apart_evict(struct tr_dev *dev, const void *mem, size_t len);
void tr_apart_upload(struct tr_dev *dev, void *to, const void *from, size_t len);
void tr_apart_download(struct tr_dev *dev, void *to, const void *from, size_t len);
uint32_t tr_apart_bucket(const struct tr_dev *dev, uint32_t n_rows);
bool tr_apart_replay(struct tr_dev *dev, uint32_t n_rows);
void tr_apart_record_end(struct tr_dev *dev);
void tr_apart_close(struct tr_dev *dev);

#endif
