/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/frontend.c - see frontend.h. */
#include "frontend/frontend.h"

#include "base/clock.h"
#include "base/log.h"
#include "frontend/api.h"
#include "frontend/digest.h"
#include "frontend/listen.h"
#include "sandbox/sandbox.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORKERS = 2 };
/* After the sockets are closed, those who were just accepted, or are in the middle of a request, have
 * so long to send it: it is answered 503. */
#define LAST_REQUESTS_NS (250 * 1000000ull)
/* After the cut engine and ledger have so long to say their part of each end, then it is told without
 * them; and so long in all until everybody has been told. */
#define CUT_WAIT_NS (500 * 1000000ull)
#define CUT_NS (700 * 1000000ull)

struct body {
    struct tr_fe fe;
    struct tr_listen **listen; /* NULL: closed */
    bool retired, closed, cut;
    uint64_t closed_ns, cut_ns;
};

static int start_listening(struct body *b)
{
    const struct tr_frontend_config *c = b->fe.cfg;

    b->listen = calloc(c->n_listen + 1, sizeof(void *));
    if (!b->listen)
        return -1;
    for (unsigned i = 0; i < c->n_listen; i++) {
        struct tr_httpd *d = i < c->n_listen - c->n_grpc ? b->fe.httpd : b->fe.grpcd;
        b->listen[i] = tr_listen_new(d, b->fe.base, c->listen_fds[i], &b->fe.balance);
        if (!b->listen[i])
            return -1;
    }
    return 0;
}

/* The descriptors too: as long as one process holds them, the kernel takes connections. */
static void stop_listening(struct body *b)
{
    const struct tr_frontend_config *c = b->fe.cfg;

    for (unsigned i = 0; b->listen && i < c->n_listen; i++) {
        if (b->fe.drain >= TR_DRAIN_CLOSED)
            tr_listen_drain(b->listen[i]);
        tr_listen_free(b->listen[i]);
        close(c->listen_fds[i]);
    }
    free(b->listen);
    b->listen = NULL;
}

/* Nothing of a request is left in this process, but for `n` streams. */
static bool is_done(const struct tr_fe *fe, uint32_t n)
{
    return fe->n_streams == n && !fe->n_asks && !fe->n_deliveries && !fe->cancel_wait;
}

/* Another has our place: true when the last connection has ended by itself. */
static bool retired(struct body *b)
{
    struct tr_fe *fe = &b->fe;

    if (!fe->retires)
        return false;
    if (!b->retired) {
        b->retired = true;
        stop_listening(b);
        tr_httpd_retire(fe->httpd);
        if (fe->grpcd)
            tr_httpd_retire(fe->grpcd);
    }
    /* Those without a reader go to another frontend when this process has ended. */
    return is_done(fe, fe->n_held) && !tr_httpd_stats(fe->httpd)->open;
}

/* Follows the control page down; true when everything is out. */
static bool drained(struct body *b)
{
    struct tr_fe *fe = &b->fe;

    if (fe->drain < TR_DRAIN_CLOSED)
        return false;
    if (!b->closed) {
        b->closed = true;
        b->closed_ns = tr_now_ns();
        stop_listening(b);
        tr_httpd_drain(fe->httpd);
        if (fe->grpcd)
            tr_httpd_drain(fe->grpcd);
    }
    /* The service ends because no engine can be brought back, or because it was told to. */
    enum tr_err why = fe->engine_gone ? TR_ERR_ENGINE_LOST : TR_ERR_DRAIN_LIMIT;
    if (fe->drain == TR_DRAIN_CUT && !b->cut) {
        b->cut = true;
        b->cut_ns = tr_now_ns();
        tr_streams_cancel_all(fe, why);
    }
    if (b->cut && tr_now_ns() - b->cut_ns > CUT_WAIT_NS)
        tr_streams_end_all(fe, why);
    if (b->cut && tr_now_ns() - b->cut_ns > CUT_NS)
        return true;
    const struct tr_httpd_stats *st = tr_httpd_stats(fe->httpd);
    return is_done(fe, 0) && !st->busy && !st->unsent_bytes &&
           (!st->open || tr_now_ns() - b->closed_ns > LAST_REQUESTS_NS);
}

/* In this order: what needs files, then the sandbox, then the threads, which are born in it. */
static int open_all(struct body *b, struct tr_shm *s, const struct tr_frontend_config *c,
                    struct tr_errbuf *err)
{
    if (tr_digest_load())
        return tr_errf(err, -ENOSYS, "OpenSSL has no SHA-256");
    int ret = tr_fe_open(&b->fe, s, c, err);
    if (ret)
        return ret;
    ret = tr_sandbox_enter(TR_SANDBOX_FRONTEND, err);
    if (ret > 0)
        tr_log(TR_LOG_WARN, "%s", err->msg);
    if (ret >= 0)
        ret = tr_fe_start_workers(&b->fe, WORKERS, err);
    if (ret)
        tr_fe_close(&b->fe);
    return ret;
}

int tr_frontend_main(struct tr_shm *s, const struct tr_frontend_config *c)
{
    static struct body b;
    struct tr_errbuf err;

    /* The supervisor says when to end, by the control page; a terminal's or a service manager's
     * signal to the whole group is for it. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    tr_role = TR_ROLE_FRONTEND;
    if (open_all(&b, s, c, &err)) {
        tr_log(TR_LOG_ERROR, "%s", err.msg);
        return 1;
    }
    if (start_listening(&b)) {
        tr_log(TR_LOG_ERROR, "cannot listen: out of memory");
        tr_fe_close(&b.fe);
        return 1;
    }
    while (!drained(&b) && !retired(&b))
        tr_fe_turn(&b.fe, true);
    stop_listening(&b);
    tr_fe_close(&b.fe);
    return 0;
}
