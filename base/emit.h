/* SPDX-License-Identifier: Apache-2.0 */
/* base/emit.h - writes JSON on one line into a growable buffer.
 *
 * Path: http > tokens > subq > engine > step > ring > detok > event [emit] > socket
 *
 * What comes out is valid UTF-8 JSON whatever goes in: bytes of a string that are not UTF-8 become
 * U+FFFD, numbers that JSON cannot say become ones it can.  Commas are put by the emitter.  The
 * buffer is kept between events (tr_emit_reset), so a token costs no allocation.
 *
 * Out of memory: `failed` is set, later calls do nothing, and the output must not be used. */
#ifndef TR_BASE_EMIT_H
#define TR_BASE_EMIT_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_emit {
    char *buf; /* the output, len bytes, not ended by NUL; NULL while empty */
    size_t len;
    size_t cap;
    uint64_t comma; /* bit d: a comma is due before the next value at depth d */
    unsigned depth; /* open arrays and objects, at most 63 (asserted: shapes are ours) */
    bool failed;
};

void tr_emit_init(struct tr_emit *e);
void tr_emit_fini(struct tr_emit *e);
void tr_emit_reset(struct tr_emit *e); /* empty again, memory kept up to 64 KiB */

void tr_emit_obj(struct tr_emit *e);
void tr_emit_obj_end(struct tr_emit *e);
void tr_emit_arr(struct tr_emit *e);
void tr_emit_arr_end(struct tr_emit *e);

void tr_emit_key(struct tr_emit *e, const char *key);
void tr_emit_keyn(struct tr_emit *e, const char *key, size_t len);

void tr_emit_str(struct tr_emit *e, const char *s); /* NULL: null */
void tr_emit_strn(struct tr_emit *e, const char *s, size_t len);
void tr_emit_i64(struct tr_emit *e, int64_t v);
void tr_emit_u64(struct tr_emit *e, uint64_t v);
/* Shortest text that reads back as the same number.  -inf is -9999.0 (contract for logprobs),
 * +inf 9999.0, NaN null. */
void tr_emit_f64(struct tr_emit *e, double v);
void tr_emit_f32(struct tr_emit *e, float v);
void tr_emit_bool(struct tr_emit *e, bool v);
void tr_emit_null(struct tr_emit *e);
/* What lies deeper than the emitter goes becomes null. */
void tr_emit_json(struct tr_emit *e, const struct tr_json_doc *doc, const struct tr_json *v);
/* Whether a client's value nests so little that it can be copied whole into any text of ours. */
bool tr_emit_may_copy(const struct tr_json *v);

/* A value that already is JSON. */
void tr_emit_raw(struct tr_emit *e, const char *json, size_t len);

/* A string in pieces: open, any number of pieces (each piece whole characters), close. */
void tr_emit_str_open(struct tr_emit *e);
void tr_emit_str_piece(struct tr_emit *e, const char *s, size_t len);
void tr_emit_str_close(struct tr_emit *e);

/* Bytes outside JSON (frames): no comma, no escaping. */
void tr_emit_bytes(struct tr_emit *e, const char *s, size_t len);

/* What many texts begin with, kept: the bytes of an emitter so far, and where it stands.  All zero is
 * none (buf NULL). */
struct tr_emit_piece {
    char *buf;
    size_t len;
    uint64_t comma;
    unsigned depth;
};
void tr_emit_keep(const struct tr_emit *e, struct tr_emit_piece *p); /* stays none without memory */
void tr_emit_begin(struct tr_emit *e, const struct tr_emit_piece *p); /* resets, then begins so */
void tr_emit_piece_fini(struct tr_emit_piece *p);

/* key and value in one call */
void tr_emit_kstr(struct tr_emit *e, const char *key, const char *s);
void tr_emit_kstrn(struct tr_emit *e, const char *key, const char *s, size_t len);
void tr_emit_ki64(struct tr_emit *e, const char *key, int64_t v);
void tr_emit_ku64(struct tr_emit *e, const char *key, uint64_t v);
void tr_emit_kbool(struct tr_emit *e, const char *key, bool v);
void tr_emit_knull(struct tr_emit *e, const char *key);

#endif
