/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/make_model.h"

#include "base/cpus.h"
#include "testlib/gguf_write.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    UNIT = 85680,       /* bytes: whole blocks of every type that is written here */
    PIECE = 100 * UNIT, /* bytes with a seed of their own */
    THREADS_MAX = 64
};

_Static_assert(UNIT % 144 == 0 && UNIT % 210 == 0 && UNIT % 34 == 0 && UNIT % 4 == 0,
               "Q4_K, Q6_K, Q8_0, F32");

struct piece {
    const struct tr_gw_part *part;
    uint64_t at, bytes; /* in the part */
};

struct job {
    int fd;
    uint64_t head, seed;
    struct piece *piece;
    uint32_t n;
    _Atomic uint32_t next;
    _Atomic int failed;
};

static int write_all(int fd, const uint8_t *p, uint64_t n, uint64_t at)
{
    while (n) {
        ssize_t k = pwrite(fd, p, n, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        p += k;
        at += (uint64_t)k;
        n -= (uint64_t)k;
    }
    return 0;
}

static void *work(void *arg)
{
    struct job *j = arg;
    uint8_t *mem = malloc(PIECE);
    int ret = mem ? 0 : -ENOMEM;
    for (uint32_t i; !ret && !j->failed && (i = atomic_fetch_add(&j->next, 1)) < j->n;) {
        const struct piece *p = &j->piece[i];
        tr_gw_fill(p->part, j->seed * 1000003 + i, mem, p->bytes);
        ret = write_all(j->fd, mem, p->bytes, j->head + p->part->at + p->at);
    }
    if (ret)
        j->failed = ret;
    free(mem);
    return NULL;
}

/* All parts in pieces; NULL without memory. */
static struct piece *cut(const struct tr_gw_part *parts, uint32_t n_parts, uint32_t *n)
{
    struct piece *all = NULL;
    uint64_t count = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        count += (parts[i].bytes + PIECE - 1) / PIECE;
    all = calloc(count + 1, sizeof(*all));
    *n = 0;
    for (uint32_t i = 0; i < n_parts && all; i++)
        for (uint64_t at = 0; at < parts[i].bytes; at += PIECE) {
            uint64_t left = parts[i].bytes - at;
            all[(*n)++] = (struct piece){&parts[i], at, left < PIECE ? left : PIECE};
        }
    return all;
}

static int fill(struct job *j)
{
    pthread_t t[THREADS_MAX];
    uint32_t n = tr_cpus_usable(), started = 0;
    n = n < THREADS_MAX ? n : THREADS_MAX;
    while (started + 1 < n && pthread_create(&t[started], NULL, work, j) == 0)
        started++;
    work(j);
    while (started)
        pthread_join(t[--started], NULL);
    return j->failed;
}

static uint8_t *make_head(const struct tr_gpu_model *m, size_t *len, struct tr_gw_part **parts,
                          uint32_t *n)
{
    struct tr_gw_llama big = {.n_layer = 32,
                              .n_embd = 4096,
                              .n_head = 32,
                              .n_head_kv = 8,
                              .n_ff = 14336,
                              .n_vocab = 128256,
                              .n_ctx = 32768};
    struct tr_gw_llama small = {.n_layer = 2,
                                .n_embd = 256,
                                .n_head = 4,
                                .n_head_kv = 2,
                                .n_ff = 256,
                                .n_vocab = 300,
                                .n_ctx = 512};
    struct tr_gw_llama s = m->small ? small : big;
    struct tr_gw *w = tr_gw_new(3);
    s.type = s.embd_type = m->type;
    s.output = true;
    s.output_type = m->type == TR_T_Q4_K ? TR_T_Q6_K : m->type;
    tr_gw_head_only(w);
    tr_gw_llama(w, &s);
    return tr_gw_finish_head(w, len, parts, n);
}

int tr_gpu_make_model(const char *path, const struct tr_gpu_model *m, struct tr_errbuf *err)
{
    struct tr_gw_part *parts;
    uint32_t n_parts;
    size_t len;
    uint8_t *head = make_head(m, &len, &parts, &n_parts);
    struct job j = {.head = len, .seed = m->seed};
    int ret = 0;

    j.piece = cut(parts, n_parts, &j.n);
    j.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (j.fd < 0 || !j.piece)
        ret = j.fd < 0 ? -errno : -ENOMEM;
    if (!ret)
        ret = write_all(j.fd, head, len, 0);
    if (!ret)
        ret = fill(&j);
    if (j.fd >= 0 && close(j.fd) < 0 && !ret)
        ret = -errno;
    free(head);
    free(parts);
    free(j.piece);
    return ret ? tr_errf(err, ret, "%s: %s", path, strerror(-ret)) : 0;
}
