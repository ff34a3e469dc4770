/* SPDX-License-Identifier: Apache-2.0 */
/* base/err.h - the table of errors a client can see, and the buffer for reasons a person reads. */
#ifndef TR_BASE_ERR_H
#define TR_BASE_ERR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tr_err {
#define X(symbol, status, type, code, sentence) symbol,
#include "base/err.def"
#undef X
    TR_ERR_COUNT
};

struct tr_err_info {
    int status;           /* HTTP status before the headers have gone out */
    const char *type;     /* error.type */
    const char *code;     /* error.code */
    const char *sentence; /* default error.message */
};

/* The row of `e`; a value outside the table (it may come from another process) is answered with
 * the row of TR_ERR_INTERNAL.  Never NULL, static storage. */
const struct tr_err_info *tr_err_info(enum tr_err e);

/* vsnprintf for what people read: where it has to cut, it cuts between characters of UTF-8.  Any
 * process. */
void tr_sentence(char *out, size_t size, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/* A reason in one sentence, without the final newline.  The last parameter of functions whose
 * failure a person will read about; may be NULL.  Untouched on success. */
struct tr_errbuf {
    char msg[512];
};

/* Formats into `err` (cut at its size, between characters; control bytes made '?') and returns `ret`, so that callers
 * can write `return tr_errf(err, -EINVAL, "...")`. */
int tr_errf(struct tr_errbuf *err, int ret, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#ifdef __clang_analyzer__
/* The static analyzer looks at one file at a time: this tells it which value comes back. */
static inline int tr_errf_returns(int ret, int of_call)
{
    (void)of_call;
    return ret;
}
#define tr_errf(err, ret, ...) tr_errf_returns((ret), (tr_errf)((err), 0, __VA_ARGS__))
#endif

#ifdef __cplusplus
}
#endif

#endif
