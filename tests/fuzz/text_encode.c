/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes, any user spans: the ids spell the text (less the byte without a piece), no control
 * token touches what a user typed, and the count is the same without room for ids.
 *
 * Input: vocabulary, number of spans, a pair of bytes for each (gap, length), the text. */
#include "base/assert.h"
#include "testlib/tiny_vocab.h"
#include "text/encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const MERGES[] = {"a b",           "< |",           "| >",  "ab ab",
                                     "\u0120 a",      "\u00c3 \u00a9", "1 1",  "\u010a \u010a",
                                     "\u0120 \u0120", "' s",           "ab 1", NULL};
static const char *const CONTROL[] = {"<|a|>", "<|ab|>", "<|ab|>x", "<|a", "<", NULL};
static const char *const USER[] = {"<t>", "<|ab|>xy", "\n\n\n", NULL};

static struct tr_vocab *vocab(unsigned which)
{
    static const char *const PRE[] = {"gpt-2", "smollm", "llama-bpe", "qwen2"};
    static struct tr_vocab *made[5];

    if (!made[which]) {
        struct tiny t = {.merges = MERGES, .control = CONTROL, .user = USER, .pre = PRE[which & 3]};
        made[which] = which == 4 ? tr_vocab_sim() : tiny_open(&t, NULL);
        TR_ASSERT(made[which]);
    }
    return made[which];
}

static size_t read_spans(const uint8_t **data, size_t *size, struct tr_span spans[8])
{
    size_t n = 0;
    size_t at = 0;

    if (*size == 0)
        return 0;
    size_t want = **data % 9;
    ++*data;
    --*size;
    for (; n < want && *size >= 2; n++) {
        spans[n].start = at + (*data)[0];
        spans[n].end = at = spans[n].start + (*data)[1];
        *data += 2;
        *size -= 2;
    }
    return n;
}

static bool touches(const struct tr_span *spans, size_t n, size_t start, size_t end)
{
    for (size_t i = 0; i < n; i++)
        if (spans[i].start < spans[i].end && spans[i].start < end && start < spans[i].end)
            return true;
    return false;
}

/* The pieces of ids, laid over the text: every byte is accounted for. */
static void check(const struct tr_vocab *v, const int32_t *ids, size_t n, const char *text,
                  size_t len, const struct tr_span *spans, size_t n_spans)
{
    bool drops = strcmp(tr_vocab_model(v), "gpt2") == 0;
    size_t at = 0;

    for (size_t i = 0; i < n; i++) {
        size_t k;
        const char *p = tr_vocab_bytes(v, ids[i], &k);
        TR_ASSERT(p && k > 0);
        size_t start = SIZE_MAX;
        for (size_t j = 0; j < k; j++) {
            while (drops && at < len && text[at] == TINY_MISSING)
                at++;
            if (start == SIZE_MAX)
                start = at;
            TR_ASSERT(at < len && text[at] == p[j]);
            at++;
        }
        if (tr_vocab_is_control(v, ids[i]))
            TR_ASSERT(at - start == k && !touches(spans, n_spans, start, at));
    }
    while (drops && at < len && text[at] == TINY_MISSING)
        at++;
    TR_ASSERT(at == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t ids[1 << 16];
    struct tr_span spans[8];
    size_t n = 0;
    size_t counted = 0;

    if (size == 0 || size > (1 << 16))
        return 0;
    const struct tr_vocab *v = vocab(data[0] % 5);
    data++;
    size--;
    size_t n_spans = read_spans(&data, &size, spans);
    const char *text = (const char *)data;
    TR_ASSERT(tr_encode_spans(v, text, size, spans, n_spans, ids, 1 << 16, &n) == 0);
    TR_ASSERT(n <= size);
    check(v, ids, n, text, size, spans, n_spans);
    tr_encode_spans(v, text, size, spans, n_spans, NULL, 0, &counted);
    TR_ASSERT(counted == n);
    TR_ASSERT(tr_encode(v, text, size, false, ids, 1 << 16, &n) == 0);
    for (size_t i = 0; i < n; i++)
        TR_ASSERT(!tr_vocab_is_control(v, ids[i]));
    return 0;
}
