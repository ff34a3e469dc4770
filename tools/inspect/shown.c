/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/shown.h"

#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FIRST = 6, /* elements of an array that are shown */ PIECE = 24, TEXT = 72 };

/* Control characters of both kinds, what changes the direction of text, and what is not UTF-8 at all. */
static bool is_plain(const unsigned char *p, size_t n)
{
    if (n == 0)
        return false;
    if (n == 1)
        return *p >= 0x20 && *p != 0x7f && *p != '"' && *p != '\\';
    if (p[0] == 0xc2 && p[1] < 0xa0)
        return false;
    if (p[0] == 0xe2 && p[1] == 0x80)
        return p[2] < 0x8b || (p[2] > 0x8f && p[2] < 0xa8);
    return !(p[0] == 0xe2 && p[1] == 0x81 && p[2] >= 0xa0) &&
           !(p[0] == 0xef && p[1] == 0xbb && p[2] == 0xbf);
}

static size_t escape(char out[5], unsigned char c)
{
    char word = c == '\n' ? 'n' : c == '\t' ? 't' : c == '\r' ? 'r' : (char)c;
    bool has_word = word != (char)c || c == '"' || c == '\\';

    return (size_t)snprintf(out, 5, has_word ? "\\%c" : "\\x%02x", (unsigned char)word);
}

const char *tr_shown(char out[TR_SHOWN_BYTES], struct tr_str s, size_t most)
{
    const unsigned char *p = (const unsigned char *)s.p;
    size_t at = 0, done = 0;

    while (done < s.len && done < most) {
        size_t n = tr_utf8_len(p + done, s.len - done);
        if (is_plain(p + done, n)) {
            memcpy(out + at, p + done, n);
            at += n;
        } else {
            n = 1;
            at += escape(out + at, p[done]);
        }
        done += n;
    }
    snprintf(out + at, TR_SHOWN_BYTES - at, "%s", done < s.len ? "..." : "");
    return out;
}

static const char *word(enum tr_gguf_type t)
{
    static const char *const words[] = {
        [TR_GGUF_U8] = "u8",       [TR_GGUF_I8] = "i8",     [TR_GGUF_U16] = "u16",
        [TR_GGUF_I16] = "i16",     [TR_GGUF_U32] = "u32",   [TR_GGUF_I32] = "i32",
        [TR_GGUF_F32] = "f32",     [TR_GGUF_BOOL] = "bool", [TR_GGUF_STRING] = "string",
        [TR_GGUF_ARRAY] = "array", [TR_GGUF_U64] = "u64",   [TR_GGUF_I64] = "i64",
        [TR_GGUF_F64] = "f64"};
    return (unsigned)t < sizeof(words) / sizeof(words[0]) ? words[t] : "unknown";
}

const char *tr_shown_type(char out[32], const struct tr_gguf_entry *e)
{
    if (e->type == TR_GGUF_ARRAY)
        snprintf(out, 32, "array of %s", word(e->a.type));
    else
        snprintf(out, 32, "%s", word(e->type));
    return out;
}

/* The next element; false at the end. */
static bool next_element(struct tr_gguf_array *a, char out[TR_SHOWN_BYTES])
{
    char text[TR_SHOWN_BYTES];
    struct tr_str s;
    bool b;
    double f;

    if (a->type == TR_GGUF_STRING) {
        if (tr_gguf_next_str(a, &s) < 0)
            return false;
        snprintf(out, TR_SHOWN_BYTES, "\"%.300s\"", tr_shown(text, s, PIECE));
    } else if (a->type == TR_GGUF_BOOL) {
        if (tr_gguf_next_bool(a, &b) < 0)
            return false;
        snprintf(out, TR_SHOWN_BYTES, "%s", b ? "true" : "false");
    } else {
        if (tr_gguf_next_f64(a, &f) < 0)
            return false;
        snprintf(out, TR_SHOWN_BYTES, "%.9g", f);
    }
    return true;
}

static void show_array(char out[TR_SHOWN_BYTES], struct tr_gguf_array a)
{
    char one[TR_SHOWN_BYTES];
    int at = snprintf(out, TR_SHOWN_BYTES, "%" PRIu64 ": [", a.len);
    uint64_t n = 0;

    while (n < FIRST && at < TR_SHOWN_BYTES - 140 && next_element(&a, one))
        at += snprintf(out + at, TR_SHOWN_BYTES - (size_t)at, "%s%.120s", n++ ? ", " : "", one);
    snprintf(out + at, TR_SHOWN_BYTES - (size_t)at, "%s]", n < a.len ? ", ..." : "");
}

const char *tr_shown_value(char out[TR_SHOWN_BYTES], const struct tr_gguf_entry *e)
{
    char text[TR_SHOWN_BYTES];

    switch (e->type) {
    case TR_GGUF_STRING:
        snprintf(out, TR_SHOWN_BYTES, "\"%.396s\"", tr_shown(text, e->s, TEXT));
        break;
    case TR_GGUF_ARRAY:
        show_array(out, e->a);
        break;
    case TR_GGUF_BOOL:
        snprintf(out, TR_SHOWN_BYTES, "%s", e->b ? "true" : "false");
        break;
    case TR_GGUF_F32:
    case TR_GGUF_F64:
        snprintf(out, TR_SHOWN_BYTES, "%.9g", e->f);
        break;
    case TR_GGUF_U64:
        snprintf(out, TR_SHOWN_BYTES, "%" PRIu64, e->u);
        break;
    default:
        snprintf(out, TR_SHOWN_BYTES, "%" PRId64, e->i);
    }
    return out;
}

const char *tr_shown_bytes(char out[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double v = (double)bytes;
    unsigned u = 0;

    while (v >= 999.95 && u < 6) {
        v /= 1000;
        u++;
    }
    snprintf(out, 32, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}
