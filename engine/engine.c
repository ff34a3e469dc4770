/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/engine.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/ngram.h"
#include "engine/speculate.h"
#include "sandbox/sandbox.h"
#include "shm/bell.h"
#include "shm/region.h"
#include "shm/stat.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct tr_backend *open_backend(struct tr_sched *sc, const struct tr_shm *s,
                                       const struct tr_engine_config *c,
                                       struct tr_backend_info *info, struct tr_errbuf *err)
{
    struct tr_backend_config b = c->backend;
    b.n_ctx = s->config.n_ctx;
    b.max_seqs = s->config.max_seqs;
    b.max_rows = tr_sched_max_rows(s, &c->sched);
    b.max_out = tr_sched_max_out(s, &c->sched);
    b.beat = tr_sched_beat;
    b.beat_arg = sc;
    struct tr_backend *opened = c->ops->open(&b, info, err);
    /* What frontends tell their clients. */
    TR_ASSERT(!opened || info->deterministic == tr_backend_keeps(c->ops, &b));
    return opened;
}

/* One forward pass that nobody asked for: pages are touched, threads have started, code is paged
 * in.  It writes into block 0, which no sequence has yet. */
static int warm_up(const struct tr_engine_config *c, struct tr_backend *b,
                   const struct tr_backend_info *info, struct tr_sched *sc)
{
    uint32_t block = 0;
    struct tr_kv_table table = {.blocks = &block, .n_blocks = 1};
    struct tr_batch_row row = {.token = 0, .pos = 0, .seq = 0, .out = 0};
    struct tr_batch batch = {.rows = &row, .n_rows = 1, .seqs = &table, .n_seqs = 1, .n_out = 1};
    float *logits = c->ops->pick ? NULL : calloc(info->n_vocab, sizeof(float));
    if (!logits && !c->ops->pick)
        return -1;
    c->ops->forward(b, &batch, logits, tr_sched_beat, sc);
    if (c->ops->pick)
        c->ops->collect(b, NULL, 0, tr_sched_beat, sc);
    free(logits);
    return 0;
}

static void say_found(const struct tr_sched *sc)
{
    uint64_t tokens;
    uint32_t n = tr_sched_found(sc, &tokens);
    if (n)
        tr_log(TR_LOG_INFO, "goes on with %u requests of %llu tokens", n,
               (unsigned long long)tokens);
}

static void say_speculation(const struct tr_shm *s, const struct tr_engine_config *c)
{
    if (c->sched.speculate)
        tr_log(TR_LOG_INFO, "up to %u guessed tokens in a step; %u indexes of %.1f KiB",
               tr_speculate_rows(s->config.n_vocab), s->config.max_seqs,
               (double)tr_ngram_place_bytes(s->config.n_ctx) / 1024.0);
}

static void say_ready(const struct tr_backend_info *info, const struct tr_sched *sc)
{
    tr_log(TR_LOG_INFO,
           "%s; %u KV blocks of %d tokens, %.1f MiB; scheduler %.1f MiB of address space",
           info->description, info->n_kv_blocks, TR_KV_BLOCK,
           (double)info->n_kv_blocks * (double)info->kv_block_bytes / 1048576.0,
           (double)tr_sched_bytes(sc) / 1048576.0);
}

/* Announces the sleep, looks once more, then waits for the bell.  Every sleep has a limit: the
 * heartbeat goes on, and a bell that somebody else emptied delays and no more. */
static void sleep_on_bell(struct tr_shm *s, struct tr_sched *sc, int limit_ms)
{
    tr_bell_sleep(&s->rings->sleeping);
    if (!tr_sched_turn(sc) && !tr_sched_done(sc)) {
        struct pollfd p = {.fd = s->bell_engine, .events = POLLIN};
        poll(&p, 1, limit_ms);
    }
    tr_bell_awake(s->bell_engine, &s->rings->sleeping);
}

static void loop(struct tr_shm *s, struct tr_sched *sc, const struct tr_engine_config *c)
{
    int limit_ms = c->idle_ns ? (int)(c->idle_ns / 1000000) : 100;
    while (!tr_sched_done(sc)) {
        tr_sched_beat(sc);
        if (!tr_sched_turn(sc))
            sleep_on_bell(s, sc, limit_ms);
    }
}

/* From here on no file is opened: the model is mapped, its libraries are loaded. */
static int confine(const struct tr_engine_config *c, struct tr_errbuf *err)
{
    bool gpu = c->ops == &tr_backend_cuda;
    int ret = tr_sandbox_enter(gpu ? TR_SANDBOX_ENGINE_GPU : TR_SANDBOX_ENGINE, err);
    if (ret > 0)
        tr_log(TR_LOG_WARN, "%s", err->msg);
    return ret < 0 ? ret : 0;
}

/* For the life of the process. */
static int map_pieces(int fd, struct tr_sched_config *c, struct tr_errbuf *err)
{
    struct stat st;
    void *p = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size > 0)
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (p == MAP_FAILED)
        return tr_errf(err, -EINVAL, "cannot map the vocabulary for grammars");
    c->pieces = p;
    c->pieces_len = (size_t)st.st_size;
    return 0;
}

int tr_engine_main(struct tr_shm *s, const struct tr_engine_config *c)
{
    struct tr_errbuf err = {""};
    struct tr_backend_info info;
    struct tr_backend *backend = NULL;
    struct tr_sched_config sched = c->sched;
    struct tr_sched *sc = NULL;
    int status = 1;
    if (c->pieces_fd > 0 && map_pieces(c->pieces_fd, &sched, &err))
        goto out;
    sc = tr_sched_new(s, &sched, &err);
    if (!sc)
        goto out;
    tr_sched_beat(sc);
    if (tr_sandbox_prepare(&err))
        goto out;
    backend = open_backend(sc, s, c, &info, &err);
    if (!backend || tr_sched_bind(sc, c->ops, backend, &info, &err))
        goto out;
    if (warm_up(c, backend, &info, sc)) {
        tr_errf(&err, -1, "out of memory");
        goto out;
    }
    if (confine(c, &err))
        goto out;
    /* What a driver does in a pass it can do in the sandbox, too, or it shows now. */
    if (c->ops == &tr_backend_cuda && warm_up(c, backend, &info, sc)) {
        tr_errf(&err, -1, "out of memory");
        goto out;
    }
    say_found(sc);
    say_ready(&info, sc);
    say_speculation(s, c);
    tr_stat_set(s->stat[TR_STAT_ENGINE], TR_STAT_KV_FREE, info.n_kv_blocks);
    tr_sched_turn(sc); /* opens the places: who sees us ready finds them */
    /* Release: what was settled is visible to whoever sees us ready. */
    atomic_store_explicit(&s->rings->ready, s->my_epoch, memory_order_release);
    TR_FAULT(ENGINE_READY);
    loop(s, sc, c);
    status = 0;
out:
    if (status)
        tr_log(TR_LOG_ERROR, "%s", err.msg);
    tr_sched_free(sc);
    c->ops->close(backend);
    return status;
}
