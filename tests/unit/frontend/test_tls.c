/* SPDX-License-Identifier: Apache-2.0 */
/* What OpenSSL takes for one connection of the server's side, in every state it can be brought into:
 * allocations made inside of tr_tls_* calls are counted, the client's in the same process are not. */
#include "frontend/frontend.h"
#include "frontend/tls.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- counting ---- */

static bool ours;         /* inside of the server's side */
static size_t held, most; /* bytes of it, and the most there were */

struct head {
    size_t len;
    bool counted;
    max_align_t p[];
};

static void *take(size_t len, const char *file, int line)
{
    (void)file, (void)line;
    struct head *h = malloc(sizeof(*h) + len);
    if (!h)
        return NULL;
    h->len = len;
    h->counted = ours;
    held += ours ? len : 0;
    most = held > most ? held : most;
    return h->p;
}

static void give(void *p, const char *file, int line)
{
    (void)file, (void)line;
    if (!p)
        return;
    struct head *h = (struct head *)((char *)p - offsetof(struct head, p));
    held -= h->counted ? h->len : 0;
    free(h);
}

static void *change(void *p, size_t len, const char *file, int line)
{
    void *q = take(len, file, line);
    if (q && p) {
        size_t old = ((struct head *)((char *)p - offsetof(struct head, p)))->len;
        memcpy(q, p, old < len ? old : len);
        give(p, file, line);
    }
    return q;
}

/* Before anything is allocated: libraries of the test's frame use OpenSSL too. */
static int counts;
__attribute__((constructor)) static void begin(void)
{
    counts = CRYPTO_set_mem_functions(take, change, give);
}

#define SERVER(expr)                                                                               \
    ({                                                                                             \
        ours = true;                                                                               \
        __typeof__(expr) r_ = (expr);                                                              \
        ours = false;                                                                              \
        r_;                                                                                        \
    })

/* ---- two ends ---- */

static struct {
    struct tr_tls *tls;
    SSL_CTX *client;
    char cert[32], key[32];
} rig;

static void write_files(EVP_PKEY *key)
{
    X509 *x = X509_new();
    FILE *f;
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    cr_assert(X509_sign(x, key, EVP_sha256()) > 0);
    strcpy(rig.cert, "/tmp/tr-tls-cert-XXXXXX");
    strcpy(rig.key, "/tmp/tr-tls-key-XXXXXX");
    f = fdopen(mkstemp(rig.cert), "w");
    cr_assert(f && PEM_write_X509(f, x) && fclose(f) == 0);
    f = fdopen(mkstemp(rig.key), "w");
    cr_assert(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) && fclose(f) == 0);
    X509_free(x);
}

static void start(void)
{
    struct tr_errbuf err;
    cr_assert(counts);
    EVP_PKEY *key = EVP_RSA_gen(3072); /* what it signs is larger than with a curve */
    write_files(key);
    EVP_PKEY_free(key);
    rig.tls = tr_tls_open(rig.cert, rig.key, (unsigned char[TR_TICKET_BYTES]){0}, &err);
    cr_assert(rig.tls, "%s", err.msg);
    rig.client = SSL_CTX_new(TLS_client_method());
}

static void stop(void)
{
    tr_tls_close(rig.tls);
    SSL_CTX_free(rig.client);
    unlink(rig.cert);
    unlink(rig.key);
}

struct pair {
    struct tr_tls_conn *server;
    SSL *client;
    int fd[2];
};

static void connect_pair(struct pair *p, int version)
{
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p->fd) == 0);
    p->server = SERVER(tr_tls_conn_new(rig.tls, p->fd[0]));
    p->client = SSL_new(rig.client);
    SSL_set_min_proto_version(p->client, version);
    SSL_set_max_proto_version(p->client, version);
    SSL_set_fd(p->client, p->fd[1]);
    SSL_set_connect_state(p->client);
}

static void shake(struct pair *p)
{
    int s = 0, c = 0;
    for (int i = 0; i < 100 && !(s == 1 && c == 1); i++) {
        c = c == 1 ? 1 : SSL_do_handshake(p->client);
        s = s == 1 ? 1 : SERVER(tr_tls_shake(p->server));
        cr_assert(s >= 0);
    }
    cr_assert(s == 1 && c == 1);
    char byte;
    (void)SSL_read(p->client, &byte, 1); /* tickets */
}

static void close_pair(struct pair *p)
{
    (void)SERVER((tr_tls_conn_free(p->server), 0));
    SSL_free(p->client);
    close(p->fd[0]);
    close(p->fd[1]);
}

/* Writes until the socket is full: a record stays in the making. */
static void fill(struct pair *p)
{
    static const char text[1 << 16];
    ssize_t n;
    while ((n = SERVER(tr_tls_send(p->server, text, sizeof(text)))) > 0)
        ;
    cr_assert(n < 0 && errno == EAGAIN);
}

/* What the client said comes by halves: the record is kept until it is whole. */
static void halve(struct pair *p)
{
    static char text[16000], wire[20000];
    int spare[2];
    cr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, spare) == 0);
    SSL_set_fd(p->client, spare[0]);
    cr_assert(SSL_write(p->client, text, sizeof(text)) == (int)sizeof(text));
    ssize_t n = recv(spare[1], wire, sizeof(wire), 0);
    cr_assert(n > (ssize_t)sizeof(text) && send(p->fd[1], wire, (size_t)n - 1, 0) == n - 1);
    n = SERVER(tr_tls_recv(p->server, text, sizeof(text)));
    cr_assert(n < 0 && errno == EAGAIN);
    close(spare[0]);
    close(spare[1]);
}

static void figure(const char *what, size_t bytes, size_t bound)
{
    printf("%s: %zu bytes\n", what, bytes);
    cr_expect_leq(bytes, bound, "%s: %zu bytes", what, bytes);
}

Test(tls, a_connection_takes_no_more_memory_than_is_said, .init = start, .fini = stop)
{
    for (int version = TLS1_2_VERSION; version <= TLS1_3_VERSION; version++) {
        struct pair p;
        held = 0;
        connect_pair(&p, version);
        shake(&p);
        close_pair(&p); /* what OpenSSL makes once is there now */
        size_t once = held;
        most = held;
        connect_pair(&p, version);
        shake(&p);
        printf("TLS 1.%d\n", version - TLS1_2_VERSION + 2);
        figure("in the handshake, most", most - once, TR_TLS_BYTES);
        figure("idle", held - once, TR_TLS_IDLE_BYTES);
        most = held;
        fill(&p);
        figure("a record that the socket does not take", most - once, TR_TLS_BUSY_BYTES);
        halve(&p);
        figure("and half a record from the client", most - once, TR_TLS_BUSY_BYTES);
        close_pair(&p);
        cr_expect_eq(held, once, "all of it is given back");
    }
}

/* A ClientHello may have 131,396 bytes for OpenSSL, which would take 450,000 to look at it. */
Test(tls, a_long_hello_is_refused_before_it_takes_more, .init = start, .fini = stop)
{
    enum { SUITES = 65534, EXTENSION = 65531 };
    static unsigned char hello[4 + 2 + 32 + 1 + 2 + SUITES + 2 + 2 + 4 + EXTENSION];
    unsigned char *q = hello;
    size_t body = sizeof(hello) - 4;
    struct pair p;
    *q++ = 1;
    *q++ = (unsigned char)(body >> 16), *q++ = (unsigned char)(body >> 8),
    *q++ = (unsigned char)body;
    *q++ = 3, *q++ = 3;
    q += 32 + 1;
    *q++ = SUITES >> 8, *q++ = SUITES & 255;
    for (int i = 0; i < SUITES; i += 2)
        *q++ = 0xfa, *q++ = 0xfa;
    *q++ = 1, *q++ = 0;
    *q++ = (EXTENSION + 4) >> 8, *q++ = (EXTENSION + 4) & 255;
    *q++ = 0xfa, *q++ = 0xfa, *q++ = EXTENSION >> 8, *q++ = EXTENSION & 255;
    held = most = 0;
    connect_pair(&p, TLS1_3_VERSION);
    int said = 0;
    for (size_t at = 0, n; at < sizeof(hello) && said == 0; at += n) {
        n = sizeof(hello) - at < 16384 ? sizeof(hello) - at : 16384;
        unsigned char head[5] = {22, 3, 1, (unsigned char)(n >> 8), (unsigned char)n};
        cr_assert(send(p.fd[1], head, 5, 0) == 5);
        cr_assert(send(p.fd[1], hello + at, n, 0) == (ssize_t)n);
        said = SERVER(tr_tls_shake(p.server));
    }
    cr_expect_eq(said, -1, "it is too long");
    figure("the longest ClientHello", most, TR_TLS_BYTES);
    close_pair(&p);
}
