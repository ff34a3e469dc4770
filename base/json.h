/* SPDX-License-Identifier: Apache-2.0 */
/* base/json.h - strict JSON (RFC 8259) from a socket into a flat tree.
 *
 * Path: http [body > json] > tokens > subq > engine > step > ring > detok > event > socket
 *
 * Pure, any thread.  Not recursive, linear in the length of the text, and bounded: depth by
 * TR_JSON_DEPTH, values by TR_JSON_NODES (so at most 24 MB beside the text, and never more than
 * 12 bytes per byte of text plus one copy of it for strings that hold escapes).
 *
 * Refused, with the byte where it shows: anything after the value, duplicate keys, raw control
 * characters, invalid UTF-8 (overlong, surrogates, above U+10FFFF, cut), a \u surrogate without
 * its other half, NaN, Infinity, 01, a byte order mark (RFC 8259 section 8.1 lets a parser refuse
 * it; we do, with a sentence that says so), UTF-16.
 *
 * Kept: NUL inside strings (lengths are counted), integers exactly from -2^63 to 2^64-1, and of
 * every number its own text, so that 10, 10.0, 1e1 and 4294967297 can be told apart. */
#ifndef TR_BASE_JSON_H
#define TR_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_JSON_DEPTH = 128, TR_JSON_NODES = 1 << 20 };

enum tr_json_type {
    TR_JSON_NULL,
    TR_JSON_BOOL,
    TR_JSON_NUMBER,
    TR_JSON_STRING,
    TR_JSON_ARRAY,
    TR_JSON_OBJECT
};

enum tr_json_num {
    TR_JSON_INT,  /* written without fraction and exponent, fits int64: u.i */
    TR_JSON_UINT, /* the same, above INT64_MAX, fits uint64: u.u */
    TR_JSON_REAL  /* everything else: u.d, which is +-HUGE_VAL for 1e400 */
};

/* One value.  Children follow their parent in memory; those of an object are key, value, key,
 * value.  Walk with tr_json_iter, not by hand. */
struct tr_json {
    uint8_t type;  /* enum tr_json_type */
    uint8_t num;   /* of a number: enum tr_json_num */
    uint32_t off;  /* byte of the text where the value begins */
    uint32_t skip; /* values in this subtree, itself included */
    uint32_t len;  /* string: decoded bytes; array: elements; object: members; number: text bytes */
    union {
        int64_t i;
        uint64_t u;
        double d;
        bool b;
        const char *s; /* decoded, not ended by NUL, may hold NUL; into the text or the tree */
    } u;
};

struct tr_json_fault {
    size_t off;      /* byte offset of the fault */
    const char *why; /* one sentence without full stop, static storage, ASCII */
    bool no_memory;  /* not the text's fault */
};

struct tr_json_doc;

/* The tree of text[0, len), or NULL and *fault.  The text is borrowed and must outlive the tree. */
struct tr_json_doc *tr_json_parse(const char *text, size_t len, struct tr_json_fault *fault);
void tr_json_free(struct tr_json_doc *doc); /* NULL is fine */
const struct tr_json *tr_json_root(const struct tr_json_doc *doc);

/* The member `key` of an object; NULL if there is none or `obj` is NULL or no object. */
const struct tr_json *tr_json_get(const struct tr_json *obj, const char *key, size_t key_len);
#define TR_JSON_GET(obj, literal) tr_json_get((obj), "" literal "", sizeof(literal) - 1)

/* Walks the elements of an array or the members of an object in the order of the text:
 *     for (struct tr_json_it it = tr_json_iter(v); tr_json_step(&it);) use(it.key, it.val);
 * Other values and NULL have no children. */
struct tr_json_it {
    const struct tr_json *key; /* string, or NULL in an array */
    const struct tr_json *val;
    uint32_t index; /* of val, from 0 */
    uint32_t left;  /* children not yet seen */
    bool object, begun;
    const struct tr_json *next;
};
struct tr_json_it tr_json_iter(const struct tr_json *v);
bool tr_json_step(struct tr_json_it *it);

static inline bool tr_json_is(const struct tr_json *v, enum tr_json_type t)
{
    return v && v->type == t;
}

/* Whether v is a string with exactly these bytes. */
bool tr_json_eq(const struct tr_json *v, const char *s, size_t len);
#define TR_JSON_EQ(v, literal) tr_json_eq((v), "" literal "", sizeof(literal) - 1)

/* 0 and the exact integer: for 10, and for 10.0 and 1e1, whose value is the same integer (below
 * 2^53).  -EINVAL: not a number, or 10.5; -ERANGE: an integer outside int64, or infinite. */
int tr_json_i64(const struct tr_json *v, int64_t *out);

/* 0 and the value; -EINVAL: not a number; -ERANGE: too large for a double. */
int tr_json_f64(const struct tr_json *v, double *out);

/* The text of a number as it was sent. */
const char *tr_json_number_text(const struct tr_json_doc *doc, const struct tr_json *v,
                                size_t *len);

/* Where v stands, as the `param` of an error: "messages[3].content[0].text", "" for the root.
 * Written into buf (cut at a character, ended by NUL); returns its length.  Walks down the tree:
 * for errors only. */
size_t tr_json_param(const struct tr_json_doc *doc, const struct tr_json *v, char *buf, size_t cap);

/* Bytes of memory the tree holds beside the text. */
size_t tr_json_bytes(const struct tr_json_doc *doc);

#endif
