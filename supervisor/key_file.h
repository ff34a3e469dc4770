/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/key_file.h - the file of --api-keys: read, checked, made into the table of frontend/key.h.
 *
 *   {"keys": [{"name": "ann", "sha256": "<64 digits>", "priority": 0, "weight": 1, "max_streams": 4,
 *              "requests_per_min": 60, "tokens_per_min": 100000, "admin": false}]}
 *
 * Name and hash are needed, the rest has the defaults of `tr_key_defaults`.  What is not known is
 * refused, so that a misspelt limit is not a missing one.
 *
 * Supervisor, and the subcommand `key`.  A failure is one sentence that names the file, and leaves what it
 * was given as it was. */
#ifndef TR_SUPERVISOR_KEY_FILE_H
#define TR_SUPERVISOR_KEY_FILE_H

#include "base/err.h"
#include "frontend/key.h"

struct tr_emit;

enum { TR_KEY_FILE_BYTES = 1 << 20 };

/* No limits, weight 1, no counters yet. */
extern const struct tr_key tr_key_defaults;

/* Whether it may be the name of a key. */
int tr_key_name_check(const char *name, size_t len, struct tr_errbuf *err);

/* A limit, as the file calls it, and the flags of `tokenring key` (with - for _). */
struct tr_key_setting {
    const char *name, *about;
    int64_t min, max;
};
/* By number; NULL behind the last one. */
const struct tr_key_setting *tr_key_setting(unsigned i);
/* 0; -ENOENT: there is none of this name; -ERANGE. */
int tr_key_set(struct tr_key *k, const char *name, size_t len, int64_t value);

/* Adds the rows of the text to *out, which has none yet.  0 or -EINVAL. */
int tr_key_file_parse(const char *path, const char *text, size_t len, struct tr_keys *out,
                      struct tr_errbuf *err);
/* 0, -EINVAL, or -errno of the file. */
int tr_key_file_read(const char *path, struct tr_keys *out, struct tr_errbuf *err);
/* One row as it stands in a file; defaults are left out. */
void tr_key_file_row(struct tr_emit *e, const struct tr_key *k);

/* Adds the row of --admin-key, as the last one: the key itself, or sha256: and its hash.  0; -EINVAL: it is
 * too long, or a key of the file; or what tr_digest says. */
int tr_key_file_admin(const char *text, struct tr_keys *out, struct tr_errbuf *err);

/* Which counters belong to which name (shm/quota.h), over all files that were read. */
struct tr_key_places {
    char name[TR_KEYS_MAX][TR_KEY_BYTES];
    uint64_t seen[TR_KEYS_MAX]; /* the last file with this name, 1, 2, ...; 0: never used */
    uint64_t files;
};

/* Sets the index of every row.  A name that had one keeps it; a new one gets a place that was never used,
 * else the one whose name has been gone for longest. */
void tr_key_places_give(struct tr_key_places *p, struct tr_keys *k);

#endif
