/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary of an arbitrary GGUF file: refused with a sentence, or whole: every id has
 * bytes, and text can be encoded and decoded with it. */
#include "base/assert.h"
#include "text/encode.h"
#include "text/scan.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char TEXT[] = "ab ab\n<|im_end|>\xff 12 \xc3\xa9 aab";
    static char out[TR_DETOK_TEXT_MAX];
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_parse(data, size, "fuzz", NULL);
    int32_t ids[sizeof(TEXT)];
    size_t n = 0;
    size_t len;

    if (!g)
        return 0;
    struct tr_vocab *v = tr_vocab_open(g, &err);
    tr_gguf_close(g);
    TR_ASSERT(!v == (err.msg[0] != 0));
    if (!v)
        return 0;
    struct tr_detok d;
    tr_detok_init(&d, v, false);
    for (uint32_t id = 0; id < tr_vocab_size(v); id++) {
        const char *p = tr_vocab_bytes(v, (int32_t)id, &len);
        TR_ASSERT(p && len <= TR_VOCAB_PIECE_MAX);
        TR_ASSERT(len == 0 || tr_vocab_find(v, p, len) >= 0);
        TR_ASSERT(tr_detok_push(&d, (int32_t)id, out, &len) == 0 && len <= sizeof(out));
    }
    TR_ASSERT(tr_vocab_bos(v) < (int32_t)tr_vocab_size(v));
    TR_ASSERT(tr_vocab_eos(v) < (int32_t)tr_vocab_size(v));
    TR_ASSERT(tr_encode(v, TEXT, sizeof(TEXT) - 1, true, ids, sizeof(TEXT), &n) == 0);
    for (size_t i = 0; i < n; i++)
        TR_ASSERT(ids[i] >= 0 && ids[i] < (int32_t)tr_vocab_size(v));
    tr_vocab_close(v);
    return 0;
}
