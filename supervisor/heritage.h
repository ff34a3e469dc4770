/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/heritage.h - everything a child inherits, in one struct.
 *
 * Filled by the supervisor before the first fork and not changed afterwards, so that a replacement
 * starts with exactly what its predecessor had; but for the keys of TLS tickets and the API keys, which a
 * SIGHUP renews. */
#ifndef TR_SUPERVISOR_HERITAGE_H
#define TR_SUPERVISOR_HERITAGE_H

#include "engine/engine.h"
#include "frontend/frontend.h"
#include "ledger/ledger.h"
#include "shm/region.h"
#include "supervisor/key_file.h"
#include "supervisor/observe.h"
#include "supervisor/options.h"
#include "supervisor/pieces.h"
#include "supervisor/systemd.h"

#include <sys/types.h>

enum { TR_MAX_LISTEN = 16 };

struct tr_heritage {
    struct tr_options opt;
    struct tr_shm_fds fds;
    struct tr_engine_config engine;
    struct tr_frontend_config frontend; /* `number` is set in the child */
    struct tr_ledger_config ledger;
    int listen_fds[TR_MAX_LISTEN];
    unsigned n_listen;
    unsigned n_grpc;          /* the last of them */
    unsigned port, grpc_port; /* those that were bound; 0: none */
    unsigned n_frontends;
    pid_t supervisor;
    int signals; /* the supervisor's, as the next one; closed in every child */
    struct tr_observer observer;
    struct tr_systemd systemd;
    struct tr_pieces pieces; /* fd 0: none */
    bool use_ledger;
    bool chats;            /* there is a chat template */
    char host[256];        /* --host without the brackets it had */
    char model_path[4096]; /* "" for the sim vocabulary */
    char served_name[128];
    char model_stem[128];
    struct tr_keys keys; /* of --api-keys and --admin-key */
    struct tr_key_places key_places;
    char otlp_headers[4096]; /* of --otlp-headers: the ledger process has them, nobody else */
    char instance[33];       /* of this start of the service: random digits */
    char admin_key[80];      /* sha256:HEX; "": none */
};

/* From the options: model looked up and checked, sockets bound, shared memory made, configurations
 * filled.  0, or -errno and one clear sentence. */
int tr_heritage_init(struct tr_heritage *h, struct tr_errbuf *err);
void tr_heritage_fini(struct tr_heritage *h);

/* Other keys for TLS tickets, for frontends that are forked from now on. */
void tr_heritage_new_tickets(struct tr_heritage *h);
/* In a child that serves no clients: it has neither those nor API keys. */
void tr_heritage_drop_secrets(struct tr_heritage *h);

/* In a child that exports no traces: what its collector wants to hear. */
void tr_heritage_drop_collector(struct tr_heritage *h);

/* heritage_listen.c, for heritage.c: those that a service manager passed, else of --host and the ports;
 * and a warning if strangers may use the service. */
int tr_heritage_listen(struct tr_heritage *h, struct tr_errbuf *err);
void tr_heritage_warn_open(const struct tr_heritage *h);

/* heritage_keys.c, for heritage.c: the table as the flags say, into the frontend's configuration. */
int tr_heritage_read_keys(struct tr_heritage *h, struct tr_errbuf *err);

/* The file of --api-keys is read again, for frontends that are forked from now on.  One that cannot be used
 * changes nothing; told either way. */
void tr_heritage_reload_keys(struct tr_heritage *h);

#endif
