/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/tls.c - see tls.h.
 *
 * OpenSSL works on the descriptor through a BIO of our own, which counts what the kernel takes: its place
 * in the stream of records is what acknowledgements speak of. */
#include "frontend/tls.h"

#include "frontend/frontend.h"
#include "frontend/marks.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECORD_BYTES = 16 << 10,
    SHAKE_BYTES = 16 << 10 /* from the client, no certificate among them: usually less than 3 KiB */
};

struct tr_tls {
    SSL_CTX *ctx;
    BIO_METHOD *wire;
};

struct tr_tls_conn {
    SSL *ssl;
    int fd;
    size_t shake_left;     /* bytes the handshake may still bring; SIZE_MAX: it is over */
    uint64_t wire;         /* bytes the kernel has taken */
    struct tr_marks marks; /* of plain bytes in them */
};

/* ---- the descriptor ------------------------------------------------------------------------ */

static int wire_write(BIO *b, const char *data, size_t len, size_t *done)
{
    struct tr_tls_conn *t = BIO_get_data(b);
    ssize_t n = send(t->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    BIO_clear_retry_flags(b);
    if (n < 0) {
        if (errno == EAGAIN || errno == EINTR)
            BIO_set_retry_write(b);
        return 0;
    }
    t->wire += (uint64_t)n;
    *done = (size_t)n;
    return 1;
}

static int wire_read(BIO *b, char *buf, size_t len, size_t *done)
{
    struct tr_tls_conn *t = BIO_get_data(b);
    ssize_t n = -1;
    BIO_clear_retry_flags(b);
    if (t->shake_left)
        n = recv(t->fd, buf, len < t->shake_left ? len : t->shake_left, MSG_DONTWAIT);
    else /* OpenSSL would keep 130 KiB of a ClientHello, and more than three times that to look at it */
        errno = EMSGSIZE;
    if (n <= 0) {
        if (n == 0)
            BIO_set_flags(b, BIO_FLAGS_IN_EOF);
        else if (errno == EAGAIN || errno == EINTR)
            BIO_set_retry_read(b);
        return 0;
    }
    if (t->shake_left != SIZE_MAX)
        t->shake_left -= (size_t)n;
    *done = (size_t)n;
    return 1;
}

static long wire_ctrl(BIO *b, int what, long number, void *ptr)
{
    (void)number, (void)ptr;
    if (what == BIO_CTRL_EOF)
        return BIO_test_flags(b, BIO_FLAGS_IN_EOF) != 0;
    return what == BIO_CTRL_FLUSH;
}

static BIO_METHOD *make_wire(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
    if (m && BIO_meth_set_write_ex(m, wire_write) && BIO_meth_set_read_ex(m, wire_read) &&
        BIO_meth_set_ctrl(m, wire_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

/* ---- the context --------------------------------------------------------------------------- */

/* The first of ours that the client knows. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    static const unsigned char ours[] = "\x02h2\x08http/1.1";
    unsigned char *chosen;
    (void)ssl, (void)arg;
    if (SSL_select_next_proto(&chosen, out_len, ours, sizeof(ours) - 1, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

/* Nobody is there who could type one. */
static int no_passphrase(char *buf, int size, int writing, void *arg)
{
    (void)buf, (void)size, (void)writing, (void)arg;
    return -1;
}

static int wrong(struct tr_errbuf *err, const char *flag, const char *path)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    const char *system = ERR_GET_LIB(ERR_peek_error()) == ERR_LIB_SYS
                             ? strerror(ERR_GET_REASON(ERR_peek_error()))
                             : NULL;
    return tr_errf(err, -EINVAL, "%s %s: %s", flag, path,
                   system ? system
                   : why  ? why
                          : "cannot be used");
}

static int load(SSL_CTX *ctx, const char *cert, const char *key, struct tr_errbuf *err)
{
    ERR_clear_error();
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return wrong(err, "--tls-cert", cert);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
        return wrong(err, "--tls-key", key);
    if (SSL_CTX_check_private_key(ctx) != 1)
        return tr_errf(err, -EINVAL, "--tls-key %s: not the key of the certificate in %s", key,
                       cert);
    return 0;
}

/* TLS 1.3 has only good choices; of 1.2 those that HTTP/2 allows too (RFC 9113 9.2.2). */
static int configure(SSL_CTX *ctx)
{
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                              SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA |
                                 SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets hold no memory here */
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
           SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") == 1;
}

/* Another count of bytes would be another library's form of them. */
static bool take_tickets(SSL_CTX *ctx, const unsigned char *tickets)
{
    unsigned char keys[TR_TICKET_BYTES];
    memcpy(keys, tickets, sizeof(keys));
    bool good = SSL_CTX_get_tlsext_ticket_keys(ctx, NULL, 0) == sizeof(keys) &&
                SSL_CTX_set_tlsext_ticket_keys(ctx, keys, sizeof(keys)) == 1;
    OPENSSL_cleanse(keys, sizeof(keys));
    return good;
}

struct tr_tls *tr_tls_open(const char *cert, const char *key, const unsigned char *tickets,
                           struct tr_errbuf *err)
{
    struct tr_tls *t = calloc(1, sizeof(*t));
    if (t) {
        t->ctx = SSL_CTX_new(TLS_server_method());
        t->wire = make_wire();
    }
    if (!t || !t->ctx || !t->wire || !configure(t->ctx) || !take_tickets(t->ctx, tickets))
        tr_errf(err, -EINVAL, "TLS cannot be set up");
    else if (load(t->ctx, cert, key, err) == 0)
        return t;
    tr_tls_close(t);
    return NULL;
}

void tr_tls_close(struct tr_tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->ctx);
    BIO_meth_free(t->wire);
    free(t);
}

/* ---- a connection ---------------------------------------------------------------------------- */

struct tr_tls_conn *tr_tls_conn_new(struct tr_tls *t, int fd)
{
    struct tr_tls_conn *c = calloc(1, sizeof(*c));
    BIO *b = c ? BIO_new(t->wire) : NULL;
    if (!b || !(c->ssl = SSL_new(t->ctx))) {
        BIO_free(b);
        free(c);
        return NULL;
    }
    c->fd = fd;
    c->shake_left = SHAKE_BYTES;
    BIO_set_data(b, c);
    BIO_set_init(b, 1);
    SSL_set_bio(c->ssl, b, b);
    SSL_set_accept_state(c->ssl);
    return c;
}

void tr_tls_conn_free(struct tr_tls_conn *t)
{
    if (!t)
        return;
    SSL_free(t->ssl);
    free(t);
}

/* What a call that did not do it means, as errno says it; 0 at the end. */
static ssize_t outcome(struct tr_tls_conn *t, int ret)
{
    int seen = errno;
    switch (SSL_get_error(t->ssl, ret)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        errno = EAGAIN;
        return -1;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        errno = seen && seen != EAGAIN ? seen : ECONNRESET;
        return -1;
    default:
        errno = EPROTO;
        return -1;
    }
}

int tr_tls_shake(struct tr_tls_conn *t)
{
    ERR_clear_error();
    errno = 0;
    int ret = SSL_do_handshake(t->ssl);
    if (ret == 1) {
        t->shake_left = SIZE_MAX;
        return 1;
    }
    return outcome(t, ret) < 0 && errno == EAGAIN ? 0 : -1;
}

bool tr_tls_is_h2(const struct tr_tls_conn *t)
{
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(t->ssl, &name, &len);
    return len == 2 && memcmp(name, "h2", 2) == 0;
}

ssize_t tr_tls_recv(struct tr_tls_conn *t, char *buf, size_t len)
{
    size_t n = 0;
    ERR_clear_error();
    errno = 0;
    int ret = SSL_read_ex(t->ssl, buf, len, &n);
    return ret == 1 ? (ssize_t)n : outcome(t, ret);
}

ssize_t tr_tls_send(struct tr_tls_conn *t, const char *data, size_t len)
{
    size_t n = 0;
    ERR_clear_error();
    errno = 0;
    int ret = SSL_write_ex(t->ssl, data, len < RECORD_BYTES ? len : RECORD_BYTES, &n);
    if (ret == 1) {
        tr_marks_add(&t->marks, n, t->wire);
        return (ssize_t)n;
    }
    ssize_t said = outcome(t, ret);
    if (said == 0) { /* the peer has ended what it reads too */
        errno = EPIPE;
        return -1;
    }
    return said;
}

void tr_tls_bye(struct tr_tls_conn *t)
{
    ERR_clear_error();
    (void)SSL_shutdown(t->ssl);
    ERR_clear_error();
}

uint64_t tr_tls_acked(struct tr_tls_conn *t, size_t queued)
{
    return tr_marks_acked(&t->marks, queued < t->wire ? t->wire - queued : 0);
}
