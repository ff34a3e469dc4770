/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes, any user spans: the ids spell the text (less the byte without a piece; with blanks for
 * U+2581 where the tokeniser is SentencePiece's), no control token touches what a user typed, and the count
 * is the same without room for ids, and never below what is said without encoding.
 *
 * Input: vocabulary, number of spans, a pair of bytes for each (gap, length), the text. */
#include "base/assert.h"
#include "testlib/tiny_spm.h"
#include "text/encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX = 1 << 16 }; /* bytes of an input */

static const char *const MERGES[] = {"a b",           "< |",           "| >",  "ab ab",
                                     "\u0120 a",      "\u00c3 \u00a9", "1 1",  "\u010a \u010a",
                                     "\u0120 \u0120", "' s",           "ab 1", NULL};
static const char *const CONTROL[] = {"<|a|>", "<|ab|>", "<|ab|>x", "<|a", "<", NULL};
static const char *const USER[] = {"<t>", "<|ab|>xy", "\n\n\n", NULL};

/* Types 3 and 4: control, user-defined. */
static const struct tiny_piece PIECES[] = {{"a", -9, 0},
                                           {"b", -9, 0},
                                           {"\u2581", -9, 0},
                                           {"ab", -1, 0},
                                           {"abab", -3, 0},
                                           {"\u2581a", -2, 0},
                                           {"\u2581\u2581", -2, 0},
                                           {"<|", -1, 0},
                                           {"|>", -1, 0},
                                           {"> <", -1, 0},
                                           {">\u2581<", -1, 0},
                                           {"\u00e9", -4, 0},
                                           {"b\u00e9\u65e5", 0, 0},
                                           {"b\u00e9", -5, 0},
                                           {"\xc3\xc3", -5, 0},
                                           {"<|a|>", 0, 3},
                                           {"<|ab|>", 0, 3},
                                           {"<|ab|>x", 0, 3},
                                           {"<", 0, 3},
                                           {"<t>", 0, 4},
                                           {"<|ab|>xy", 0, 4},
                                           {"\n\n\n", 0, 4},
                                           {NULL, 0, 0}};

/* With byte-level BPE, in the place of the numbers below an empty name. */
static const char *const PRE[] = {
    "gpt-2",  "smollm", "llama-bpe",    "qwen2",       "",       "",      "",       "default",
    "falcon", "gpt-4o", "deepseek-llm", "deepseek-v3", "tekken", "bloom", "viking", "kimi-k2",
    "youtu",  "jais-2", "exaone-moe"};

/* SPM_LOOSE adds and removes blanks, so that its ids spell another text.  NFC makes another one too. */
enum { NFC = 3, SIM, SPM, SPM_LOOSE, VOCABS = sizeof(PRE) / sizeof(PRE[0]) };

static struct tr_vocab *make(unsigned which)
{
    if (which == SIM)
        return tr_vocab_sim();
    if (*PRE[which]) {
        struct tiny t = {.merges = MERGES, .control = CONTROL, .user = USER, .pre = PRE[which]};
        return tiny_open(&t, NULL);
    }
    return tiny_spm_open(&(struct tiny_spm){.pieces = PIECES,
                                            .no_prefix = which == SPM,
                                            .squeeze = which == SPM_LOOSE},
                         NULL);
}

static struct tr_vocab *vocab(unsigned which)
{
    static struct tr_vocab *made[VOCABS];

    if (!made[which]) {
        made[which] = make(which);
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

/* The text as pieces spell it, and from where in the original each byte is; from[returned] = len. */
static size_t as_spelt(const struct tr_vocab *v, const char *text, size_t len, char *out,
                       size_t *from)
{
    bool marks = strcmp(tr_vocab_model(v), "llama") == 0;
    size_t n = 0;

    for (size_t i = 0; i < len; n++) {
        bool mark = marks && len - i >= 3 && memcmp(text + i, "\u2581", 3) == 0;
        out[n] = mark ? ' ' : text[i];
        from[n] = i;
        i += mark ? 3 : 1;
    }
    from[n] = len;
    return n;
}

/* The pieces of ids, laid over the text: every byte is accounted for. */
static void check(const struct tr_vocab *v, const int32_t *ids, size_t n, const char *original,
                  size_t original_len, const struct tr_span *spans, size_t n_spans)
{
    static char text[MAX];
    static size_t from[MAX + 1];
    size_t len = as_spelt(v, original, original_len, text, from);
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
            TR_ASSERT(at - start == k && !touches(spans, n_spans, from[start], from[at]));
    }
    while (drops && at < len && text[at] == TINY_MISSING)
        at++;
    TR_ASSERT(at == len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int32_t ids[3 * MAX];
    struct tr_span spans[8];
    size_t n = 0;
    size_t counted = 0;

    if (size == 0 || size > MAX)
        return 0;
    unsigned which = data[0] % VOCABS;
    const struct tr_vocab *v = vocab(which);
    data++;
    size--;
    size_t n_spans = read_spans(&data, &size, spans);
    const char *text = (const char *)data;
    TR_ASSERT(tr_encode_spans(v, text, size, spans, n_spans, ids, 3 * MAX, &n) == 0);
    TR_ASSERT(n >= tr_encode_least(v, text, size));
    TR_ASSERT(n <= (which == SPM_LOOSE ? 2 * size + 1 : which == NFC ? 3 * size : size));
    if (which != SPM_LOOSE && which != NFC)
        check(v, ids, n, text, size, spans, n_spans);
    tr_encode_spans(v, text, size, spans, n_spans, NULL, 0, &counted);
    TR_ASSERT(counted == n);
    TR_ASSERT(tr_encode(v, text, size, false, ids, 3 * MAX, &n) == 0);
    for (size_t i = 0; i < n; i++)
        TR_ASSERT(!tr_vocab_is_control(v, ids[i]));
    return 0;
}
