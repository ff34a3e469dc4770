/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/frontend_rig.h - a whole frontend on loopback sockets with a scripted engine behind it, all
 * in the test's thread: nothing happens but what the test lets happen. */
#ifndef TR_TESTLIB_FRONTEND_RIG_H
#define TR_TESTLIB_FRONTEND_RIG_H

#include "frontend/fe.h"
#include "scripted_engine.h"

enum { TR_RIG_BYTES = 1 << 20 };

struct tr_rig {
    struct tr_shm_fds fds;
    struct tr_shm shm;
    struct tr_frontend_config cfg;
    uint32_t n_ctx;
    struct tr_fe fe;
    struct tr_sengine engine;
    int listener;
};

struct tr_rig_client {
    int fd;
    bool eof;
    size_t len;
    char buf[TR_RIG_BYTES + 1]; /* all that was received, NUL-ended */
};

/* The configuration that tr_rig_start would use: change it, then start. */
void tr_rig_defaults(struct tr_rig *r);
/* n_open slots; with_ledger: records wait for tr_sengine_durable. */
void tr_rig_start(struct tr_rig *r, uint32_t n_open, bool with_ledger);
void tr_rig_stop(struct tr_rig *r);

/* Some turns of frontend and engine; what clients sent has been handled afterwards. */
void tr_rig_run(struct tr_rig *r);
/* The same for a while of real time. */
void tr_rig_run_ms(struct tr_rig *r, unsigned ms);

/* rcvbuf 0: the kernel's. */
struct tr_rig_client *tr_rig_connect(struct tr_rig *r, int rcvbuf);
/* At the port for gRPC, if cfg.n_grpc says that there is one. */
struct tr_rig_client *tr_rig_connect_grpc(struct tr_rig *r);
void tr_rig_close(struct tr_rig_client *c, bool reset);
void tr_rig_send_bytes(struct tr_rig_client *c, const char *p, size_t len);
void tr_rig_send(struct tr_rig_client *c, const char *method, const char *path, const char *headers,
                 const char *body);
/* Takes what there is. */
void tr_rig_read(struct tr_rig_client *c);
/* The body after the head, with chunk framing removed; static buffer. */
const char *tr_rig_body(struct tr_rig_client *c);

/* One whole exchange: status, and the body in *body (static). */
int tr_rig_ask(struct tr_rig *r, const char *method, const char *path, const char *json,
               const char **body);

#endif
