/* SPDX-License-Identifier: Apache-2.0 */
/* Any ids, any stop strings: what comes out token by token, joined, is what decoding everything at
 * once and looking for the first stop gives; all of it is whole characters.
 *
 * Input: flags, number of stops, for each its length and bytes, then the ids, a byte each (with
 * 0xff as a prefix for those above 255). */
#include "base/assert.h"
#include "base/sim_vocab.h"
#include "text/scan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *p;
    size_t left;
};

static unsigned take(struct input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->p++;
}

static size_t take_stops(struct input *in, struct tr_str stops[8])
{
    size_t n = take(in) % 9;

    for (size_t i = 0; i < n; i++) {
        size_t len = take(in);
        if (len > in->left)
            len = in->left;
        stops[i] = (struct tr_str){(const char *)in->p, len};
        in->p += len;
        in->left -= len;
    }
    return n;
}

/* Where the visible text of all of `text` ends. */
static size_t oracle(const char *text, size_t len, const struct tr_str *stops, size_t n,
                     bool include, bool *stopped)
{
    for (size_t end = 1; end <= len; end++) {
        size_t best = 0;
        for (size_t i = 0; i < n; i++)
            if (stops[i].len <= end && stops[i].len > best &&
                memcmp(text + end - stops[i].len, stops[i].p, stops[i].len) == 0)
                best = stops[i].len;
        if (best > 0) {
            *stopped = true;
            return include ? end : end - best;
        }
    }
    *stopped = false;
    return len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tr_vocab *v;
    static char all[1 << 16];
    static char shown[1 << 16];
    static char out[TR_SCAN_TEXT_MAX];
    struct input in = {data, size};
    struct tr_str stops[8];
    struct tr_stopset *set = NULL;
    struct tr_scan s;
    struct tr_detok d;
    size_t n_all = 0;
    size_t n_shown = 0;
    size_t len;
    bool stopped;

    if (size > 1000)
        return 0;
    if (!v)
        v = tr_vocab_sim();
    TR_ASSERT(v);
    unsigned flags = take(&in);
    size_t n = take_stops(&in, stops);
    if (n > 0 && tr_stopset_open(stops, n, &set) < 0)
        return 0;
    tr_scan_init(&s, v, set, flags & 1);
    s.include_stop = flags & 2;
    tr_detok_init(&d, v, flags & 1);
    while (in.left > 0) {
        int32_t id = (int32_t)take(&in);
        if (id == 0xff)
            id = (int32_t)((256 + take(&in)) % TR_SIM_VOCAB_SIZE);
        TR_ASSERT(tr_detok_push(&d, id, all + n_all, &len) == 0);
        n_all += len;
        if (flags & 4) { /* go on from a copy, as a second cursor does */
            struct tr_scan copy = s;
            memset(&s, 0x5a, sizeof(s));
            s = copy;
        }
        TR_ASSERT(tr_scan_push(&s, id, out, &len) >= 0);
        TR_ASSERT(len <= sizeof(out) && tr_utf8_is_valid(out, len));
        memcpy(shown + n_shown, out, len);
        n_shown += len;
    }
    n_all += tr_detok_flush(&d, all + n_all);
    tr_scan_flush(&s, out, &len);
    memcpy(shown + n_shown, out, len);
    n_shown += len;
    size_t want = oracle(all, n_all, stops, n, s.include_stop, &stopped);
    TR_ASSERT(stopped == (s.stop >= 0));
    TR_ASSERT(n_shown == want && memcmp(shown, all, want) == 0);
    TR_ASSERT(!tr_scan_held(&s));
    tr_stopset_close(set);
    return 0;
}
