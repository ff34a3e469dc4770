/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/heritage.h"

#include "base/clock.h"
#include "base/cpus.h"
#include "base/gguf.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/model_path.h"
#include "grammar/build.h"
#include "grammar/fa.h"
#include "grammar/program.h"
#include "ledger/address.h"
#include "ledger/collector.h"
#include "shm/quota.h"
#include "supervisor/compute.h"
#include "text/vocab.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

enum { SIM_CTX = 8192, MIN_CTX = 8, SPARE_FDS = 256 };

/* ---- the model: what must be known of it before anybody forks ---- */

struct model_facts {
    uint64_t n_ctx; /* as trained */
    uint32_t n_vocab;
};

static int note_vocab(struct tr_heritage *h, const struct tr_vocab *v, struct model_facts *m,
                      struct tr_errbuf *err)
{
    const char *template = h->opt.chat_template;
    size_t len;
    h->chats = *template ? strcmp(template, "none") != 0 : tr_vocab_chat_template(v, &len) != NULL;
    m->n_vocab = tr_vocab_size(v);
    int32_t ids[TR_MAX_EOG];
    size_t n = tr_vocab_eog_ids(v, ids, TR_MAX_EOG);
    struct tr_sched_config *c = &h->engine.sched;
    c->n_eog = (uint32_t)(n < TR_MAX_EOG ? n : TR_MAX_EOG);
    for (uint32_t i = 0; i < c->n_eog; i++)
        c->eog[i] = (uint32_t)ids[i];
    return tr_pieces_make(&h->pieces, v, c->eog, c->n_eog, err);
}

static int file_facts(struct tr_heritage *h, struct model_facts *m, struct tr_errbuf *err)
{
    struct tr_gguf *g = tr_gguf_open(h->model_path, err);
    if (!g)
        return -EINVAL;
    int ret = -EINVAL;
    char key[128];
    struct tr_str arch;
    struct tr_vocab *v = tr_vocab_open(g, err);
    int noted = v ? note_vocab(h, v, m, err) : -EINVAL;
    tr_vocab_close(v);
    if (noted == 0) {
        if (tr_gguf_str(g, "general.architecture", &arch) || arch.len > 64)
            tr_errf(err, 0, "%s: general.architecture is missing", h->model_path);
        else {
            snprintf(key, sizeof(key), "%.*s.context_length", (int)arch.len, arch.p);
            ret = tr_gguf_u64(g, key, &m->n_ctx);
            if (ret || m->n_ctx < MIN_CTX || m->n_ctx > 1u << 24)
                ret =
                    tr_errf(err, -EINVAL, "%s: %s is missing or out of range", h->model_path, key);
        }
    }
    tr_gguf_close(g);
    return ret;
}

static int sim_facts(struct tr_heritage *h, struct model_facts *m, struct tr_errbuf *err)
{
    struct tr_vocab *v = tr_vocab_sim();
    if (!v)
        return tr_errf(err, -ENOMEM, "no memory for the sim vocabulary");
    int ret = note_vocab(h, v, m, err);
    tr_vocab_close(v);
    m->n_ctx = SIM_CTX;
    return ret;
}

/* "dir/Name.Q4_1.gguf" -> "Name.Q4_1"; a model without a file is called sim. */
static void name_model(struct tr_heritage *h)
{
    const char *file = strrchr(h->model_path, '/');
    file = file ? file + 1 : *h->model_path ? h->model_path : "sim";
    size_t n = strlen(file);
    if (n > 5 && strcmp(file + n - 5, ".gguf") == 0)
        n -= 5;
    snprintf(h->model_stem, sizeof(h->model_stem), "%.*s", (int)n, file);
    snprintf(h->served_name, sizeof(h->served_name), "%s",
             *h->opt.served_name ? h->opt.served_name : h->model_stem);
}

static int find_model(struct tr_heritage *h, struct model_facts *m, struct tr_errbuf *err)
{
    const char *word = h->opt.model;
    if (!*word)
        return tr_errf(err, -EINVAL, "--model is missing (a GGUF file, smollm2 or sim)");
    bool sim = strcmp(word, "sim") == 0;
    int ret = tr_compute_choose(&h->opt, &h->engine.ops, err);
    if (!ret && !sim)
        ret = tr_model_path(word, h->model_path, sizeof(h->model_path), err);
    if (!ret)
        ret = sim ? sim_facts(h, m, err) : file_facts(h, m, err);
    name_model(h);
    return ret;
}

/* ---- sizes ---- */

static int choose_sizes(struct tr_heritage *h, const struct model_facts *m, struct tr_shm_config *c,
                        struct tr_errbuf *err)
{
    const struct tr_options *o = &h->opt;
    if (o->ctx_size && o->ctx_size < MIN_CTX)
        return tr_errf(err, -EINVAL, "--ctx-size %llu is too small: at least %d",
                       (unsigned long long)o->ctx_size, MIN_CTX);
    if (o->ctx_size > m->n_ctx)
        return tr_errf(err, -EINVAL,
                       "--ctx-size %llu is more than the model was trained for (%llu)",
                       (unsigned long long)o->ctx_size, (unsigned long long)m->n_ctx);
    uint64_t admit = o->max_seqs + o->max_queue;
    uint64_t slots = o->max_streams ? o->max_streams : 4 * admit;
    if (slots > 1u << 20)
        slots = 1u << 20;
    unsigned cpus = tr_cpus_usable();
    h->n_frontends = o->frontends ? (unsigned)o->frontends : cpus / 2 > 2 ? cpus / 2 : 2;
    if (h->n_frontends > TR_MAX_AREAS / 2)
        h->n_frontends = TR_MAX_AREAS / 2;
    *c = (struct tr_shm_config){.n_ctx = (uint32_t)(o->ctx_size ? o->ctx_size : m->n_ctx),
                                .n_vocab = m->n_vocab,
                                .n_slots = (uint32_t)slots,
                                .n_admit = (uint32_t)admit,
                                .max_seqs = (uint32_t)o->max_seqs,
                                .n_areas = 2 * (h->n_frontends > 1 ? h->n_frontends : 2),
                                .window = (uint32_t)o->window,
                                .ledger = strcmp(h->opt.ledger, "off") != 0,
                                .n_keys = *o->api_keys ? TR_KEYS_MAX : 0};
    return tr_layout_check(c, err);
}

/* Every connection is a descriptor: the soft limit is a default of shells, the hard one is meant. */
static void raise_descriptors(uint64_t wanted)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) < 0)
        return;
    l.rlim_cur = l.rlim_max;
    setrlimit(RLIMIT_NOFILE, &l);
    if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < wanted + SPARE_FDS)
        tr_log(TR_LOG_WARN,
               "only %llu descriptors are allowed: fewer than --max-connections %llu needs",
               (unsigned long long)l.rlim_cur, (unsigned long long)wanted);
}

/* ---- the children's configurations ---- */

static void configure_engine(struct tr_heritage *h)
{
    const struct tr_options *o = &h->opt;
    struct tr_engine_config *e = &h->engine;
    e->sched.prefix_cache = (enum tr_prefix_cache)o->prefix_cache;
    e->sched.prefill_chunk = (uint32_t)o->prefill_chunk;
    e->sched.speculate = o->speculate == 1;
    e->pieces_fd = h->pieces.fd;
    e->sched.ttft_target_ns = o->ttft_target;
    e->sched.itl_target_ns = o->itl_target;
    e->backend = (struct tr_backend_config){.model_path = *h->model_path ? h->model_path : NULL,
                                            .math = (enum tr_math)o->cpu_math,
                                            .kv_type = (enum tr_kv_type)o->kv_type,
                                            .n_threads = o->threads ? (uint32_t)o->threads
                                                                    : tr_cpus_usable(),
                                            .pin_threads = o->pin_threads,
                                            .kv_bytes = o->kv_memory,
                                            .deterministic = o->deterministic,
                                            .sim_step_us = (uint32_t)o->sim_step_us,
                                            .sim_prefill_us = (uint32_t)o->sim_prefill_us};
    /* Without it every engine packs its own. */
    if (e->ops != &tr_backend_sim)
        e->backend.weights_fd = memfd_create("tokenring-weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

static void configure_frontend(struct tr_heritage *h, const struct tr_shm_config *c)
{
    const struct tr_options *o = &h->opt;
    uint64_t hold = o->hold_slots ? o->hold_slots : c->n_slots / 2;
    h->frontend =
        (struct tr_frontend_config){.listen_fds = h->listen_fds,
                                    .n_listen = h->n_listen,
                                    .n_grpc = h->n_grpc,
                                    .model_path = *h->model_path ? h->model_path : NULL,
                                    .served_name = h->served_name,
                                    .model_stem = h->model_stem,
                                    .chat_template = *o->chat_template ? o->chat_template : NULL,
                                    .tool_format = (int)o->tool_format - 1, /* auto is the first */
                                    .reasoning = (int)o->reasoning - 1,
                                    .version = TR_VERSION,
                                    .backend = h->engine.ops->name,
                                    .created_s = (uint64_t)tr_wall_s(),
                                    .heartbeat_ns = o->heartbeat,
                                    .write_deadline_ns = o->write_deadline,
                                    .min_drain_bps = o->min_drain_bps,
                                    .timeout_ns = o->timeout,
                                    .max_stream_ns = o->max_stream,
                                    .coalesce_ns = o->coalesce,
                                    .access_log = (int)o->access_log,
                                    .ledger_wait_ns = o->ledger_wait,
                                    .stream_buffer = o->stream_buffer,
                                    .hold_on_disconnect = o->on_disconnect == 1,
                                    .resume_window_ns = o->resume_window,
                                    .hold_slots = (uint32_t)hold,
                                    .idempotency_ns = o->idempotency,
                                    .max_body = o->max_body,
                                    .max_connections = (uint32_t)o->max_connections,
                                    .max_choices = (uint32_t)o->max_choices,
                                    .header_timeout_ns = o->header_timeout,
                                    .body_timeout_ns = o->body_timeout,
                                    .keepalive_ns = o->keepalive,
                                    .tls_cert = *o->tls_cert ? o->tls_cert : NULL,
                                    .tls_key = *o->tls_key ? o->tls_key : NULL,
                                    .cors_origin = *o->cors ? o->cors : NULL};
    h->frontend.compat_metrics = o->compat_metrics;
    h->frontend.kv_block = TR_KV_BLOCK;
    h->frontend.deterministic = tr_backend_keeps(h->engine.ops, &h->engine.backend);
}

/* Nobody but `top` needs it: a place that was not asked for by name may be missing. */
static int open_observer(struct tr_heritage *h, const struct tr_shm_config *c,
                         struct tr_errbuf *err)
{
    struct tr_observe m = tr_observe_of_this_build(c);
    struct tr_errbuf why = {""};
    m.pid = (uint32_t)h->supervisor;
    m.port = h->port;
    m.started_ns = tr_now_ns();
    m.n_frontends = h->n_frontends;
    snprintf(m.version, sizeof(m.version), "%s", TR_VERSION);
    snprintf(m.backend, sizeof(m.backend), "%s", h->frontend.backend);
    snprintf(m.model, sizeof(m.model), "%s", h->served_name);
    int ret = tr_observe_open(&h->observer, h->opt.control_socket, &m, &why);
    if (ret && strcmp(h->opt.control_socket, "auto") != 0)
        return tr_errf(err, ret, "%s", why.msg);
    if (ret)
        tr_log(TR_LOG_WARN, "no control socket for tokenring top: %s", why.msg);
    return 0;
}

/* P2: memory per stream is bounded, and by this. */
static void tell_bounds(const struct tr_heritage *h, const struct tr_shm_config *c)
{
    const double kib = 1024.0;
    struct tr_stream_bounds b;
    tr_stream_bounds(&h->frontend, &b);
    tr_log(TR_LOG_INFO, "%u slots of %u tokens; shared memory %.1f MiB of address space",
           c->n_slots, c->n_ctx, (double)tr_shm_total_bytes(c) / kib / kib);
    tr_log(
        TR_LOG_INFO,
        "a stream takes at most %.1f KiB of it, in pages as they are used, and is parked when its "
        "reader is %u tokens behind; in its frontend %.1f KiB, %.1f KiB for each choice, and "
        "unsent "
        "%.1f KiB (with log-probabilities %.1f KiB more); of Responses %.1f KiB more, and up to "
        "three times that unsent; for its line in the access log %.1f KiB; in the kernel %.1f KiB, "
        "of it %.1f KiB not on their way",
        (double)tr_shm_slot_bytes(c) / kib, c->window, (double)b.state / kib,
        (double)b.choice / kib, (double)b.unsent / kib, (double)b.logprobs / kib,
        (double)b.kept / kib, (double)b.access / kib, (double)b.kernel / kib,
        (double)h->opt.stream_buffer / kib);
    tr_log(
        TR_LOG_INFO,
        "requests of a frontend that are over wait for their last byte, at most %.1f MiB of them, "
        "before they are told in the access log",
        (double)b.access_waiting / kib / kib);
    tr_log(TR_LOG_INFO,
           "the vocabulary for grammars takes %.1f MiB, made in %.0f ms; a request brings at most "
           "%.1f KiB of one, which a worker of its frontend compiles, one at a time, in at most "
           "%.1f MiB",
           (double)h->pieces.bytes / kib / kib, (double)h->pieces.ns / 1e6,
           (double)TR_GRAM_BYTES / kib, (double)(TR_GBUDGET_BYTES + TR_GBUILD_BYTES) / kib / kib);
    tr_log(
        TR_LOG_INFO,
        "a WebSocket takes %.1f KiB besides its connection, each of its streams %.1f KiB in place "
        "of one, one message up to --max-body, and what is owed for messages up to %.1f KiB",
        (double)b.ws / kib, (double)b.ws_stream / kib, (double)b.ws_replies / kib);
    tr_log(
        TR_LOG_INFO,
        "a connection of HTTP/2 carries at most %u requests at once, with %.1f KiB of its own, and "
        "%.1f KiB for each",
        b.h2_streams, (double)b.h2_conn / kib, (double)b.h2_stream / kib);
    if (h->n_grpc)
        tr_log(
            TR_LOG_INFO,
            "a call of gRPC takes %.1f KiB besides, and %.1f KiB for each of at most %zu requests",
            (double)b.grpc_call / kib, (double)b.grpc_request / kib, b.grpc_requests);
    if (b.tls)
        tr_log(TR_LOG_INFO,
               "TLS takes up to %.1f KiB of a connection besides while it begins, then %.1f KiB, "
               "idle %.1f KiB",
               (double)b.tls / kib, (double)b.tls_busy / kib, (double)b.tls_idle / kib);
    if (c->n_keys)
        tr_log(TR_LOG_INFO,
               "an API key takes %.1f KiB of a frontend's shared memory for its limits, as it is "
               "used; at most %u keys, %.1f MiB",
               (double)tr_quota_bytes() / kib, c->n_keys,
               (double)c->n_keys * (double)tr_quota_bytes() / kib / kib);
    if (h->frontend.resume_window_ns)
        tr_log(TR_LOG_INFO,
               "up to %u resumable streams are kept for %.0f s without a reader, with %.1f KiB "
               "each in their frontends",
               h->frontend.hold_slots, (double)h->frontend.resume_window_ns / 1e9,
               (double)b.held / kib);
    if (h->frontend.idempotency_ns)
        tr_log(
            TR_LOG_INFO,
            "an answer is kept for its Idempotency-Key for %.0f s, each frontend keeps at most %u "
            "of them",
            (double)h->frontend.idempotency_ns / 1e9, tr_hold_answers(&h->frontend, c->n_areas));
}

/* Secret, so that nobody can look for two keys, or two bodies, with the same hash. */
static void draw_seed(struct tr_heritage *h)
{
    uint64_t *seed = &h->frontend.idempotency_seed;

    while (getrandom(seed, sizeof(*seed), 0) != sizeof(*seed))
        ;
}

static void configure_ledger(struct tr_heritage *h)
{
    const struct tr_options *o = &h->opt;
    h->ledger = (struct tr_ledger_config){
        .address = o->ledger,
        .spool = o->ledger_spool,
        .spool_max = (uint64_t)o->ledger_spool_max,
        .durability = (enum tr_durability)o->ledger_durability,
        .model = h->served_name,
        .parent_pid = h->supervisor,
        .otlp = {
            .url = o->otlp,
            .headers = h->otlp_headers,
            .ca = o->otlp_ca,
            .facts = {.model = h->served_name, .version = TR_VERSION, .instance = h->instance}}};
}

/* What may be a secret leaves the environment, or the place of the command line. */
static int take_collector(struct tr_heritage *h, struct tr_errbuf *err)
{
    const struct tr_options *o = &h->opt;
    uint8_t id[16];
    size_t len = strlen(o->otlp_headers);
    if (!*o->otlp && (*o->otlp_headers || *o->otlp_ca))
        return tr_errf(err, -EINVAL, "--otlp-headers and --otlp-ca need --otlp");
    if (len >= sizeof(h->otlp_headers))
        return tr_errf(err, -EINVAL, "--otlp-headers is too long");
    int ret = *o->otlp ? tr_collector_check(o->otlp, o->otlp_headers, err) : 0;
    if (!ret && *o->otlp_ca && access(o->otlp_ca, R_OK))
        ret = tr_errf(err, -errno, "--otlp-ca %s: %s", o->otlp_ca, strerror(errno));
    if (ret)
        return ret;
    memcpy(h->otlp_headers, o->otlp_headers, len + 1);
    if (len)
        explicit_bzero((char *)o->otlp_headers, len);
    h->opt.otlp_headers = h->otlp_headers;
    while (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id)) /* so few never come in part */
        ;
    tr_hex_format(id, sizeof(id), h->instance);
    return 0;
}

void tr_heritage_drop_collector(struct tr_heritage *h)
{
    explicit_bzero(h->otlp_headers, sizeof(h->otlp_headers));
}

/* Frontends read the files, each when it starts; one flag without the other is told at once. */
static int check_tls(const struct tr_options *o, struct tr_errbuf *err)
{
    if (!*o->tls_cert == !*o->tls_key)
        return 0;
    return tr_errf(err, -EINVAL, "--tls-cert and --tls-key are given together or not at all");
}

int tr_heritage_init(struct tr_heritage *h, struct tr_errbuf *err)
{
    struct model_facts m = {0};
    struct tr_shm_config c = {0};
    h->supervisor = getpid();
    /* A file that may not grow is an error of that write, as a full disk is; children inherit it. */
    signal(SIGXFSZ, SIG_IGN);
    h->observer.fd = -1;
    raise_descriptors(h->opt.max_connections);
    bool keeps = strcmp(h->opt.ledger, "off") != 0;
    h->use_ledger = keeps || *h->opt.otlp;
    int ret = keeps ? tr_sink_check_address(h->opt.ledger, err) : 0;
    if (!ret)
        ret = take_collector(h, err);
    if (!ret)
        ret = check_tls(&h->opt, err);
    if (!ret)
        ret = find_model(h, &m, err);
    if (!ret)
        ret = choose_sizes(h, &m, &c, err);
    if (!ret)
        ret = tr_heritage_listen(h, err);
    if (!ret)
        ret = tr_shm_create(&c, &h->fds, err);
    if (ret)
        return ret;
    configure_engine(h);
    configure_frontend(h, &c);
    tr_heritage_new_tickets(h);
    ret = tr_heritage_read_keys(h, err);
    if (ret)
        return ret;
    tr_heritage_warn_open(h);
    draw_seed(h);
    configure_ledger(h);
    tell_bounds(h, &c);
    return open_observer(h, &c, err);
}

void tr_heritage_fini(struct tr_heritage *h)
{
    for (unsigned i = 0; i < h->n_listen; i++)
        close(h->listen_fds[i]);
    if (h->engine.backend.weights_fd > 0)
        close(h->engine.backend.weights_fd);
    if (h->pieces.fd > 0)
        close(h->pieces.fd);
    tr_observe_close(&h->observer);
    tr_systemd_fini(&h->systemd);
    tr_shm_close_fds(&h->fds);
}

void tr_heritage_new_tickets(struct tr_heritage *h)
{
    unsigned char *keys = h->frontend.tls_tickets;

    /* So few bytes never come in part and never wait once the kernel has booted. */
    while (getrandom(keys, TR_TICKET_BYTES, 0) != TR_TICKET_BYTES)
        ;
}
