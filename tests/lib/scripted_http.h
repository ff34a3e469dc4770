/* SPDX-License-Identifier: Apache-2.0 */
/* testlib/scripted_http.h - a server on a loopback port that says what a script says.
 *
 * A POST is answered with the bytes of a script and nothing else: status line, framing and ending
 * are the script's, so that it can be wrong in every way.  GET /v1/models and GET /metrics are
 * answered properly.  One thread per connection; it gives up when the client has closed. */
#ifndef TR_TESTLIB_SCRIPTED_HTTP_H
#define TR_TESTLIB_SCRIPTED_HTTP_H

#include <stddef.h>

struct tr_script_piece {
    const char *p;
    size_t len;
    unsigned pause_ms; /* before it */
    unsigned times;    /* 0 and 1: once; more: again and again */
};

enum tr_script_end {
    TR_SCRIPT_CLOSE, /* FIN */
    TR_SCRIPT_RESET, /* RST */
    TR_SCRIPT_HANG   /* nothing more until the client goes */
};

struct tr_script {
    const struct tr_script_piece *pieces;
    size_t n;
    enum tr_script_end end;
};

struct tr_scripted_http;

/* The k-th POST gets scripts[k % n]; the k-th GET /metrics gets metrics[k], the last one for ever
 * (NULL, 0: 404).  All is borrowed until stop.  NULL when no port could be had. */
struct tr_scripted_http *tr_scripted_http_start(const struct tr_script *scripts, size_t n,
                                                const char *const *metrics, size_t n_metrics);
int tr_scripted_http_port(const struct tr_scripted_http *s);

/* Body of the last POST, NUL-ended, cut at 64 KiB; borrowed until the next POST. */
const char *tr_scripted_http_body(struct tr_scripted_http *s);

/* Waits for all connections to end and frees. */
void tr_scripted_http_stop(struct tr_scripted_http *s);

#endif
