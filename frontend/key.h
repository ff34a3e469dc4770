/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/key.h - API keys: who may ask, how urgent and how much; and which one a request brings.
 *
 * Path: http [key] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * The supervisor reads and checks the table (supervisor/key_file.h); a frontend inherits it at its fork
 * and never changes it, so a row is good for the life of the process.  Only hashes of keys are kept.
 *
 * A key comes, over every carrier, as the value of one of these fields of the request's head:
 *
 *   Authorization: Bearer KEY     (gRPC: the metadata `authorization`)
 *   X-Api-Key: KEY                what Anthropic's clients send
 *   Api-Key: KEY                  what those for Azure do
 *   Sec-WebSocket-Protocol: tokenring.events.v1, tokenring.key.KEY
 *                                 what a page can send that opens a WebSocket: it has no other way
 *
 * Any process; nothing here has a state.  The table is compared to its end, whatever is found in it, so
 * that the time says nothing. */
#ifndef TR_FRONTEND_KEY_H
#define TR_FRONTEND_KEY_H

#include "frontend/digest.h"
#include "frontend/http.h"
#include "shm/request.h"

enum {
    TR_KEYS_MAX = 1024,      /* rows of a file */
    TR_KEY_TEXT_BYTES = 256, /* longest key */
    TR_KEY_WEIGHT_MAX = TR_WEIGHT_MAX,
    TR_KEY_PRIORITY_MAX = 1000
};

#define TR_KEY_ADMIN_NAME "admin"        /* of --admin-key; no row may have it */
#define TR_KEY_PROTOCOL "tokenring.key." /* and the key: a subprotocol of a WebSocket */

struct tr_key {
    /* Printable ASCII without blanks, 1 .. 63 bytes: the key's id in rings, records and logs. */
    char name[TR_KEY_BYTES];
    uint8_t hash[TR_DIGEST_BYTES];
    bool admin;                /* may see what the service is doing */
    uint32_t index;            /* of its counters (shm/quota.h); TR_KEYS_MAX: it has none */
    int32_t priority;          /* added to that of its requests; lower goes first */
    uint32_t weight;           /* of its share among keys, 1 .. TR_KEY_WEIGHT_MAX */
    uint32_t max_streams;      /* at a time; 0: no limit, here and below */
    uint32_t requests_per_min; /* in any 60 s */
    uint64_t tokens_per_min;   /* prompt and answer, in any 60 s */
};

struct tr_keys {
    bool needed; /* --api-keys: who brings none may use open routes only */
    uint32_t n;
    struct tr_key row[TR_KEYS_MAX + 1]; /* those of the file, then that of --admin-key */
};

/* The key with this hash, or NULL. */
const struct tr_key *tr_keys_match(const struct tr_keys *k, const uint8_t hash[TR_DIGEST_BYTES]);

/* The key of a name, or NULL. */
const struct tr_key *tr_keys_named(const struct tr_keys *k, const char *name);

enum tr_key_found {
    TR_KEY_NONE,  /* the head brings none */
    TR_KEY_WRONG, /* none of those it brings is known, or they are of two that are */
    TR_KEY_GOOD
};

/* Which key a head brings; *found is NULL unless it is GOOD.  Without memory for a hash none is known. */
enum tr_key_found tr_keys_find(const struct tr_keys *k, const struct tr_http *h,
                               const struct tr_key **found);

#endif
