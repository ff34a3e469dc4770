/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/key.c - see key.h. */
#include "frontend/key.h"

#include "frontend/http_priv.h"

#include <openssl/crypto.h>

enum { TRIES = 8 /* keys of one head: each costs a hash and a walk through the table */ };

const struct tr_key *tr_keys_match(const struct tr_keys *k, const uint8_t hash[TR_DIGEST_BYTES])
{
    const struct tr_key *found = NULL; /* hashes differ, so there is one at most */

    for (uint32_t i = 0; i < k->n; i++)
        if (CRYPTO_memcmp(k->row[i].hash, hash, TR_DIGEST_BYTES) == 0)
            found = &k->row[i];
    return found;
}

const struct tr_key *tr_keys_named(const struct tr_keys *k, const char *name)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (strcmp(k->row[i].name, name) == 0)
            return &k->row[i];
    return NULL;
}

/* ---- in a head ---- */

struct search {
    const struct tr_keys *keys;
    const struct tr_key *found;
    unsigned tried;
    bool bad;
};

static void try(struct search *s, struct tr_slice key)
{
    uint8_t hash[TR_DIGEST_BYTES];
    const struct tr_key *match = NULL;

    if (s->tried++ >= TRIES) {
        s->bad = true;
        return;
    }
    if (key.len && key.len <= TR_KEY_TEXT_BYTES && tr_digest(key.p, key.len, hash) == 0)
        match = tr_keys_match(s->keys, hash);
    s->bad |= match && s->found && match != s->found;
    if (match)
        s->found = match;
}

/* "Bearer KEY"; other schemes are not ours to judge. */
static void try_bearer(struct search *s, struct tr_slice v)
{
    static const char scheme[] = "bearer";
    size_t n = sizeof(scheme) - 1;

    if (v.len > n && strncasecmp(v.p, scheme, n) == 0 && is_space(v.p[n]))
        try(s, trim((struct tr_slice){v.p + n, v.len - n}));
}

static void try_protocols(struct search *s, struct tr_slice v)
{
    size_t lead = sizeof(TR_KEY_PROTOCOL) - 1;

    while (v.len) {
        const char *comma = memchr(v.p, ',', v.len);
        size_t n = comma ? (size_t)(comma - v.p) : v.len;
        struct tr_slice one = trim((struct tr_slice){v.p, n});
        if (one.len > lead && memcmp(one.p, TR_KEY_PROTOCOL, lead) == 0)
            try(s, (struct tr_slice){one.p + lead, one.len - lead});
        n += comma != NULL;
        v.p += n;
        v.len -= n;
    }
}

enum tr_key_found tr_keys_find(const struct tr_keys *k, const struct tr_http *h,
                               const struct tr_key **found)
{
    struct search s = {.keys = k};

    for (size_t i = 0; i < h->n_fields; i++) {
        const struct tr_http_field *f = &h->fields[i];
        struct tr_slice name = slice_of(h, f->name, f->name_len);
        struct tr_slice v = slice_of(h, f->value, f->value_len);
        if (same(name, "authorization"))
            try_bearer(&s, v);
        else if (same(name, "x-api-key") || same(name, "api-key"))
            try(&s, v);
        else if (same(name, "sec-websocket-protocol"))
            try_protocols(&s, v);
    }
    *found = s.bad ? NULL : s.found;
    return *found ? TR_KEY_GOOD : s.tried ? TR_KEY_WRONG : TR_KEY_NONE;
}
