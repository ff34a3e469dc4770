/* SPDX-License-Identifier: Apache-2.0 */
/* text/detok.c - see detok.h. */
#include "text/detok.h"

#include <errno.h>

void tr_detok_init(struct tr_detok *d, const struct tr_vocab *v, bool skip_special)
{
    *d = (struct tr_detok){.vocab = v, .skip_special = skip_special};
}

void tr_detok_begins(struct tr_detok *d)
{
    d->begins = tr_vocab_space_prefix(d->vocab);
}

int tr_detok_push(struct tr_detok *d, int32_t id, char *out, size_t *len)
{
    size_t n;
    const char *bytes = tr_vocab_bytes(d->vocab, id, &n);

    if (!bytes)
        return -EINVAL;
    if (tr_vocab_is_control(d->vocab, id)) {
        n = d->skip_special ? 0 : n;
    } else if (d->begins && n > 0) {
        size_t own = *bytes == ' ' ? 1 : 0;
        bytes += own;
        n -= own;
        d->begins = false;
    }
    *len = tr_utf8_push(&d->utf8, bytes, n, out);
    return 0;
}

size_t tr_detok_flush(struct tr_detok *d, char out[TR_UTF8_FLUSH_MAX])
{
    return tr_utf8_flush(&d->utf8, out);
}
