/* SPDX-License-Identifier: Apache-2.0 */
/* The container reader over arbitrary bytes: whatever it accepts lies inside the input, and can be
 * read to the end by every accessor. */
#include "base/gguf.h"

#include "base/assert.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void inside(const uint8_t *data, size_t size, const void *p, size_t n)
{
    TR_ASSERT((uintptr_t)p >= (uintptr_t)data);
    TR_ASSERT((uintptr_t)p - (uintptr_t)data <= size);
    TR_ASSERT(n <= size - ((uintptr_t)p - (uintptr_t)data));
}

static void read_array(const uint8_t *data, size_t size, struct tr_gguf_array a)
{
    uint64_t n = 0, u;
    int64_t i;
    double f;
    struct tr_str s;
    if (a.type == TR_GGUF_STRING) {
        while (tr_gguf_next_str(&a, &s) == 0) {
            inside(data, size, s.p, s.len);
            n++;
        }
    } else {
        struct tr_gguf_array b = a, c = a;
        while (tr_gguf_next_u64(&b, &u) == 0)
            continue;
        while (tr_gguf_next_i64(&c, &i) == 0)
            continue;
        while (tr_gguf_next_f64(&a, &f) == 0)
            n++;
    }
    TR_ASSERT(a.type == TR_GGUF_BOOL || n == a.len);
    TR_ASSERT(a.next <= a.end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const keys[] = {"general.architecture",  "general.alignment", "a", "k", "x",
                                       "tokenizer.ggml.tokens", "llama.block_count"};
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_parse(data, size, "fuzz", &err);
    TR_ASSERT(!g == (err.msg[0] != 0));
    if (!g)
        return 0;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        uint64_t u;
        double f;
        bool b;
        struct tr_str s;
        struct tr_gguf_array a;
        tr_gguf_u64(g, keys[i], &u);
        tr_gguf_f64(g, keys[i], &f);
        tr_gguf_bool(g, keys[i], &b);
        if (tr_gguf_str(g, keys[i], &s) == 0)
            inside(data, size, s.p, s.len);
        if (tr_gguf_array(g, keys[i], &a) == 0)
            read_array(data, size, a);
    }
    for (uint64_t i = 0; i < tr_gguf_about(g).n_keys; i++) {
        struct tr_gguf_entry e = tr_gguf_entry_at(g, i);
        inside(data, size, e.key.p, e.key.len);
        if (e.type == TR_GGUF_STRING)
            inside(data, size, e.s.p, e.s.len);
        if (e.type == TR_GGUF_ARRAY)
            read_array(data, size, e.a);
    }
    for (uint64_t i = 0; i < tr_gguf_n_tensors(g); i++) {
        const struct tr_gguf_tensor *t = tr_gguf_tensor_at(g, i);
        char name[80];
        inside(data, size, t->data, (size_t)t->bytes);
        TR_ASSERT(t->name.len < sizeof(name));
        memcpy(name, t->name.p, t->name.len);
        name[t->name.len] = 0;
        if (strlen(name) == t->name.len)
            TR_ASSERT(tr_gguf_tensor(g, name) == t);
    }
    tr_gguf_close(g);
    return 0;
}
