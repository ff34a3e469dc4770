/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/heritage_keys.c - the API keys that frontends inherit, and what is said about them.  See
 * heritage.h. */
#include "supervisor/heritage.h"

#include "base/log.h"
#include "shm/trace.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { SHORT_KEY = 16 }; /* characters of an admin key that somebody might guess */

/* ---- reading ---- */

/* The command line's own copy does not outlive the start: core dumps and /proc show nothing.  Its hash,
 * which stays, is that of the table's last row. */
static void hide_admin_key(struct tr_heritage *h)
{
    static const char lead[] = "sha256:";
    char *given = (char *)h->opt.admin_key;

    memcpy(h->admin_key, lead, sizeof(lead) - 1);
    tr_trace_hex(h->keys.row[h->keys.n - 1].hash, TR_DIGEST_BYTES, h->admin_key + sizeof(lead) - 1);
    explicit_bzero(given, strlen(given));
    h->opt.admin_key = h->admin_key;
}

/* The table as the file is now; *out is changed in any case. */
static int read_table(struct tr_heritage *h, struct tr_keys *out, struct tr_errbuf *err)
{
    out->n = 0;
    out->needed = *h->opt.api_keys;
    int ret = out->needed ? tr_key_file_read(h->opt.api_keys, out, err) : 0;
    if (!ret)
        tr_key_places_give(&h->key_places, out);
    return ret || !*h->opt.admin_key ? ret : tr_key_file_admin(h->opt.admin_key, out, err);
}

/* How many keys the file has: that of --admin-key is in none. */
static void say_table(const struct tr_heritage *h, const char *more)
{
    uint32_t n = h->keys.n - !!*h->opt.admin_key;

    tr_log(TR_LOG_INFO, "%u API key%s in %s%s", n, n == 1 ? "" : "s", h->opt.api_keys, more);
}

int tr_heritage_read_keys(struct tr_heritage *h, struct tr_errbuf *err)
{
    size_t len = strlen(h->opt.admin_key);

    if (!*h->opt.api_keys && !*h->opt.admin_key)
        return 0;
    if (len && len < SHORT_KEY)
        tr_log(TR_LOG_WARN,
               "--admin-key has %zu characters and can be guessed: tokenring key "
               "makes a better one",
               len);
    int ret = read_table(h, &h->keys, err);
    if (ret)
        return ret;
    if (len)
        hide_admin_key(h);
    if (h->keys.needed)
        say_table(h, "");
    h->frontend.keys = &h->keys;
    return 0;
}

void tr_heritage_reload_keys(struct tr_heritage *h)
{
    static struct tr_keys next;
    struct tr_errbuf err;
    uint32_t gone = 0, come = 0;
    char more[48];

    if (!*h->opt.api_keys)
        return;
    if (read_table(h, &next, &err)) {
        tr_log(TR_LOG_ERROR, "the API keys stay as they were: %s", err.msg);
        return;
    }
    for (uint32_t i = 0; i < h->keys.n; i++)
        gone += !tr_keys_match(&next, h->keys.row[i].hash);
    for (uint32_t i = 0; i < next.n; i++)
        come += !tr_keys_match(&h->keys, next.row[i].hash);
    h->keys = next;
    snprintf(more, sizeof(more), ": %u new, %u gone", come, gone);
    say_table(h, more);
}

void tr_heritage_drop_secrets(struct tr_heritage *h)
{
    explicit_bzero(h->frontend.tls_tickets, TR_TICKET_BYTES);
    explicit_bzero(&h->keys, sizeof(h->keys));
    explicit_bzero(h->admin_key, sizeof(h->admin_key));
}

/* ---- who can reach it ---- */

static bool is_loopback(int fd)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t len = sizeof(a);

    memset(&a, 0, sizeof(a));
    if (getsockname(fd, &a.any, &len) < 0)
        return true;
    if (a.any.sa_family == AF_INET)
        return ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
    return a.any.sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&a.v6.sin6_addr) && a.v6.sin6_addr.s6_addr[12] == 127);
}

void tr_heritage_warn_open(const struct tr_heritage *h)
{
    unsigned i = 0;

    while (i < h->n_listen && is_loopback(h->listen_fds[i]))
        i++;
    if (i < h->n_listen && !h->keys.needed)
        tr_log(TR_LOG_WARN,
               "whoever reaches this machine may use the service: it listens on more than "
               "loopback, and there is no --api-keys");
}
