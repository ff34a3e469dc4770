/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/heritage_keys.c - the API keys that frontends inherit.  See heritage.h. */
#include "supervisor/heritage.h"

#include "base/hex.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { SHORT_KEY = 16 }; /* characters of an admin key that somebody might guess */

/* ---- reading ---- */

/* The command line's own copy does not outlive the start: core dumps and /proc show nothing.  Its hash,
 * which stays, is that of the table's last row. */
static void hide_admin_key(struct tr_heritage *h)
{
    static const char lead[] = "sha256:";
    char *given = (char *)h->opt.admin_key;

    memcpy(h->admin_key, lead, sizeof(lead) - 1);
    tr_hex_format(h->keys.row[h->keys.n - 1].hash, TR_DIGEST_BYTES,
                  h->admin_key + sizeof(lead) - 1);
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
