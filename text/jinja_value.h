/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_value.h - the values a template is rendered with, and the context that owns them.
 *
 * One struct tr_jctx serves one rendering, on one thread: the caller builds the variables in it,
 * calls tr_chat_render (text/chat.h), uses the text and closes it, which frees everything at once.
 *
 * Origin: a string made with `user` true came from the request, and every character that a template
 * derives from it stays marked as user text.  Numbers, lists and dicts made here count as the
 * request's too: what a template prints of them (str, tojson) is user text.  Pass `user` false only
 * for what the server itself or the model file supplies (bos_token, eos_token).
 *
 * Every constructor says NULL when the context's memory limit is reached, and takes NULL for a
 * value argument by saying NULL (or -ENOMEM) again, so a caller may build a whole tree and check
 * once at the end of each append or set.  Strings are bytes, usually UTF-8; NUL and invalid bytes
 * are kept.  Values are never changed by a rendering.  A tree must not contain itself. */
#ifndef TR_TEXT_JINJA_VALUE_H
#define TR_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

struct tr_jctx;
struct tr_jv;

/* What one rendering may cost.  A field that is 0 stands for its default. */
struct tr_jlimits {
    size_t memory;  /* bytes of values, temporaries and output; default 256 MiB */
    size_t output;  /* bytes of rendered text; default 32 MiB */
    uint64_t steps; /* evaluated nodes and touched bytes / 16; default 20 million */
    unsigned depth; /* nesting of evaluation, macros and data; default 500 */
};

/* `limits` may be NULL.  NULL when there is no memory. */
struct tr_jctx *tr_jctx_open(const struct tr_jlimits *limits);
void tr_jctx_close(struct tr_jctx *ctx); /* NULL is fine */

/* Whether something failed because the machine had no memory, not because of a limit. */
bool tr_jctx_no_memory(const struct tr_jctx *ctx);

/* The time strftime_now tells (default: the local time of the first call). */
void tr_jctx_set_now(struct tr_jctx *ctx, const struct tm *now);

/* Bytes that live as long as the context, e.g. for unescaped strings.  NULL at the limit. */
void *tr_jctx_alloc(struct tr_jctx *ctx, size_t size);

/* `p` is borrowed and must live until tr_jctx_close. */
struct tr_jv *tr_jv_str(struct tr_jctx *ctx, const char *p, size_t len, bool user);

struct tr_jv *tr_jv_int(struct tr_jctx *ctx, int64_t v);
struct tr_jv *tr_jv_float(struct tr_jctx *ctx, double v);
struct tr_jv *tr_jv_bool(struct tr_jctx *ctx, bool v);
struct tr_jv *tr_jv_none(struct tr_jctx *ctx);

/* An integer as JSON writes it, of any size: -?(0|[1-9][0-9]*).  Beyond 64 bits it can be printed
 * and compared, arithmetic on it is refused.  The digits are borrowed.  NULL also if the text is
 * not such a number. */
struct tr_jv *tr_jv_int_text(struct tr_jctx *ctx, const char *p, size_t len);

/* Empty containers, and how they are filled before the rendering.  0, or -ENOMEM. */
struct tr_jv *tr_jv_list(struct tr_jctx *ctx);
int tr_jv_append(struct tr_jctx *ctx, struct tr_jv *list, struct tr_jv *item);

/* Order of insertion is kept; setting a key again replaces its value and keeps its place. */
struct tr_jv *tr_jv_dict(struct tr_jctx *ctx);
int tr_jv_set(struct tr_jctx *ctx, struct tr_jv *dict, const char *key, size_t key_len,
              bool key_user, struct tr_jv *value);

#endif
