/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gguf.h"

#include "testlib/gguf_write.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- raw files ------------------------------------------------------------------------------- */

struct raw {
    uint8_t b[4096];
    size_t n;
};

static void bytes(struct raw *r, const void *p, size_t n)
{
    memcpy(r->b + r->n, p, n);
    r->n += n;
}

static void u32(struct raw *r, uint32_t v)
{
    bytes(r, &v, 4);
}

static void u64(struct raw *r, uint64_t v)
{
    bytes(r, &v, 8);
}

static void str(struct raw *r, const char *s)
{
    u64(r, strlen(s));
    bytes(r, s, strlen(s));
}

static void head(struct raw *r, const char *magic, uint32_t version, uint64_t n_tensors,
                 uint64_t n_kv)
{
    r->n = 0;
    bytes(r, magic, 4);
    u32(r, version);
    u64(r, n_tensors);
    u64(r, n_kv);
}

static void arch(struct raw *r)
{
    str(r, "general.architecture");
    u32(r, TR_GGUF_STRING);
    str(r, "llama");
}

static void tensor(struct raw *r, const char *name, uint32_t n_dims, uint32_t dims_written,
                   uint64_t ne, uint64_t ne2, uint32_t type, uint64_t offset)
{
    str(r, name);
    u32(r, n_dims);
    for (uint32_t d = 0; d < dims_written; d++)
        u64(r, d == 1 ? ne2 : ne);
    u32(r, type);
    u64(r, offset);
}

/* Parses an exact copy (so that a read past the end is seen) followed by 64 zero bytes, as the
 * files of the case have them, and expects one sentence with `want` in it. */
static void refused(const struct raw *r, const char *want)
{
    uint8_t *copy = calloc(1, r->n + 64);
    memcpy(copy, r->b, r->n);
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_parse(copy, r->n + 64, "f.gguf", &err);
    cr_expect(eq(ptr, g, NULL), "accepted: %s", want);
    cr_expect(strstr(err.msg, want) != NULL, "wanted \"%s\" in \"%s\"", want, err.msg);
    cr_expect(strncmp(err.msg, "f.gguf: ", 8) == 0, "no file name in \"%s\"", err.msg);
    tr_gguf_close(g);
    free(copy);
}

/* --- B71: the twelve files, and their neighbours ---------------------------------------------- */

Test(gguf, counts_that_cannot_fit_are_refused_before_anything_is_read)
{
    struct raw r;
    head(&r, "GGUF", 3, 0, 1ull << 63);
    refused(&r, "metadata count 9223372036854775808");
    head(&r, "GGUF", 3, 1ull << 63, 1);
    arch(&r);
    refused(&r, "tensor count 9223372036854775808");
}

Test(gguf, a_string_longer_than_the_file_is_refused)
{
    struct raw r;
    head(&r, "GGUF", 3, 0, 1);
    u64(&r, 1ull << 63);
    bytes(&r, "x", 1);
    refused(&r, "metadata key at byte 32 needs 9223372036854775808 bytes");
}

Test(gguf, an_array_longer_than_the_file_is_refused)
{
    struct raw r;
    for (uint32_t type = TR_GGUF_U8; type <= TR_GGUF_F64; type++) {
        if (type == TR_GGUF_ARRAY)
            continue;
        head(&r, "GGUF", 3, 0, 2);
        arch(&r);
        str(&r, "tokenizer.ggml.tokens");
        u32(&r, TR_GGUF_ARRAY);
        u32(&r, type);
        u64(&r, 1ull << 62);
        refused(&r, "tokenizer.ggml.tokens: the array does not fit");
    }
}

Test(gguf, nested_arrays_are_refused_without_recursion)
{
    size_t n = 200000;
    struct raw r;
    head(&r, "GGUF", 3, 0, 1);
    str(&r, "x");
    u32(&r, TR_GGUF_ARRAY);
    uint8_t *big = calloc(1, r.n + n * 12);
    memcpy(big, r.b, r.n);
    for (size_t i = 0; i < n; i++) {
        big[r.n + i * 12] = TR_GGUF_ARRAY;
        big[r.n + i * 12 + 4] = 1;
    }
    struct tr_errbuf err;
    cr_expect(eq(ptr, tr_gguf_parse(big, r.n + n * 12, "f", &err), NULL));
    cr_expect(strstr(err.msg, "key x: arrays of arrays") != NULL, "%s", err.msg);
    free(big);
}

Test(gguf, dimension_counts_other_than_1_to_4_are_refused)
{
    struct raw r;
    for (int i = 0; i < 3; i++) {
        uint32_t n = (uint32_t[]){UINT32_MAX, 9, 0}[i];
        head(&r, "GGUF", 3, 1, 1);
        arch(&r);
        tensor(&r, "t", n, 1, 1, 1, TR_T_F32, 0);
        refused(&r, "tensor t: the number of dimensions must be 1..4");
    }
}

Test(gguf, products_of_dimensions_do_not_wrap)
{
    struct raw r;
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "token_embd.weight", 2, 2, 1ull << 32, (1ull << 32) + 1, TR_T_F32, 0);
    refused(&r, "tensor token_embd.weight: the product of its dimensions overflows");
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 1, 1, 1ull << 62, 1, TR_T_F32, 0);
    refused(&r, "tensor t: its size in bytes overflows");
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 2, 2, 4, 0, TR_T_F32, 0);
    refused(&r, "tensor t: a dimension is 0");
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 1, 1, 48, 1, TR_T_Q8_0, 0);
    refused(&r, "multiple of its type's block: 48");
}

Test(gguf, unknown_types_are_refused_by_number)
{
    struct raw r;
    head(&r, "GGUF", 3, 0, 1);
    str(&r, "y");
    u32(&r, 77);
    u64(&r, 0);
    refused(&r, "key y: unknown value type 77");
    head(&r, "GGUF", 3, 0, 1);
    str(&r, "y");
    u32(&r, TR_GGUF_ARRAY);
    u32(&r, 78);
    u64(&r, 1);
    refused(&r, "key y: unknown array element type 78");
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 1, 1, 4, 1, 250, 0);
    refused(&r, "tensor t: unknown tensor type 250");
}

Test(gguf, offsets_are_aligned_and_inside_the_file)
{
    struct raw r;
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 1, 1, 32, 1, TR_T_F32, UINT64_MAX - 31);
    refused(&r, "tensor t: its offset or end overflows");
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 1, 1, 4, 1, TR_T_F32, 4096);
    refused(&r, "tensor t: its data ends at byte");
    head(&r, "GGUF", 3, 1, 1);
    arch(&r);
    tensor(&r, "t", 1, 1, 4, 1, TR_T_F32, 4);
    refused(&r, "tensor t: its offset is not a multiple of the alignment: 4");
}

Test(gguf, other_magic_and_versions_are_refused)
{
    struct raw r;
    head(&r, "GGUX", 3, 0, 1);
    arch(&r);
    refused(&r, "its magic is 47 47 55 58");
    for (int i = 0; i < 4; i++) {
        head(&r, "GGUF", (uint32_t[]){0x03000000, 0, 1, 4}[i], 0, 1);
        arch(&r);
        refused(&r, "GGUF version");
    }
}

Test(gguf, the_alignment_is_a_power_of_two_in_bounds)
{
    for (int i = 0; i < 5; i++) {
        struct tr_gw *w = tr_gw_new(3);
        tr_gw_u32(w, "general.alignment", (uint32_t[]){0, 4, 33, 1u << 21, 48}[i]);
        size_t n;
        uint8_t *b = tr_gw_finish(w, &n);
        struct tr_errbuf err;
        cr_expect(eq(ptr, tr_gguf_parse(b, n, "f", &err), NULL));
        cr_expect(strstr(err.msg, "general.alignment must be a power of two") != NULL);
        free(b);
    }
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_str(w, "general.alignment", "32");
    size_t n;
    uint8_t *b = tr_gw_finish(w, &n);
    cr_expect(eq(ptr, tr_gguf_parse(b, n, "f", NULL), NULL));
    free(b);
}

Test(gguf, truth_values_are_0_or_1)
{
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_kv(w, "b", TR_GGUF_BOOL, "\2", 1);
    size_t n;
    uint8_t *b = tr_gw_finish(w, &n);
    struct tr_errbuf err;
    cr_expect(eq(ptr, tr_gguf_parse(b, n, "f", &err), NULL));
    cr_expect(strstr(err.msg, "key b: a truth value is 2") != NULL);
    free(b);
}

Test(gguf, duplicates_are_refused)
{
    struct tr_errbuf err;
    size_t n;
    struct tr_gw *w = tr_gw_new(3);
    for (uint32_t i = 0; i < 40; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%u", i % 39);
        tr_gw_u32(w, key, i);
    }
    uint8_t *b = tr_gw_finish(w, &n);
    cr_expect(eq(ptr, tr_gguf_parse(b, n, "f", &err), NULL));
    cr_expect(strstr(err.msg, "key k0 is there twice") != NULL, "%s", err.msg);
    free(b);

    w = tr_gw_new(3);
    tr_gw_random(w, "t", TR_T_F32, 1, (uint64_t[]){4});
    tr_gw_random(w, "t", TR_T_F32, 1, (uint64_t[]){4});
    b = tr_gw_finish(w, &n);
    cr_expect(eq(ptr, tr_gguf_parse(b, n, "f", &err), NULL));
    cr_expect(strstr(err.msg, "tensor t is there twice") != NULL, "%s", err.msg);
    free(b);
}

/* --- B70: cut files and what is not one ------------------------------------------------------- */

/* The file ends where its last tensor does, so every shorter one must be refused. */
Test(gguf, every_truncation_is_refused_with_a_sentence)
{
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.n_layer = 1, .n_vocab = 8, .n_ff = 32});
    size_t n;
    uint8_t *b = tr_gw_finish(w, &n);
    struct tr_gguf *g = tr_gguf_parse(b, n, "f", NULL);
    cr_assert(ne(ptr, g, NULL));
    tr_gguf_close(g);
    for (size_t cut = 0; cut < n; cut += cut < 2000 ? 1 : 97) {
        uint8_t *copy = malloc(cut ? cut : 1);
        memcpy(copy, b, cut);
        struct tr_errbuf err = {""};
        cr_assert(eq(ptr, tr_gguf_parse(copy, cut, "f", &err), NULL), "cut to %zu", cut);
        cr_assert(ne(chr, err.msg[0], 0), "cut to %zu: no reason", cut);
        free(copy);
    }
    free(b);
}

static void open_refused(const char *path, const char *want)
{
    struct tr_errbuf err = {""};
    cr_expect(eq(ptr, tr_gguf_open(path, &err), NULL));
    cr_expect(strstr(err.msg, want) != NULL, "wanted \"%s\" in \"%s\"", want, err.msg);
    cr_expect(strstr(err.msg, path) != NULL, "no path in \"%s\"", err.msg);
}

Test(gguf, folders_pipes_text_and_missing_files_are_refused)
{
    open_refused("/", "a folder");
    open_refused("/nonexistent/model.gguf", "No such file");
    char path[64];
    tr_gw_save((const uint8_t *)"Dear reader, this is not a model.", 33, path);
    open_refused(path, "not a GGUF file");
    cr_assert(eq(int, truncate(path, 0), 0));
    open_refused(path, "has 0 bytes");
    unlink(path);
    cr_assert(eq(int, mkfifo(path, 0600), 0));
    open_refused(path, "a device or pipe");
    unlink(path);
}

Test(gguf, the_file_that_was_opened_is_told_not_the_one_at_its_path)
{
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &(struct tr_gw_llama){.n_layer = 1, .n_vocab = 8, .n_ff = 32});
    size_t n;
    uint8_t *b = tr_gw_finish(w, &n);
    char path[64];
    tr_gw_save(b, n, path);
    struct stat st;
    cr_assert(eq(int, stat(path, &st), 0));
    struct tr_gguf *g = tr_gguf_open(path, NULL), *m = tr_gguf_parse(b, n, "f", NULL);
    unlink(path);
    struct tr_gguf_origin o = tr_gguf_origin(g);
    cr_expect(eq(u64, o.ino, st.st_ino));
    cr_expect(eq(u64, o.size, n));
    cr_expect(eq(u64, o.mtime_ns % 1000000000u, (uint64_t)st.st_mtim.tv_nsec));
    cr_expect(eq(u64, tr_gguf_origin(m).size, 0));
    tr_gguf_close(g);
    tr_gguf_close(m);
    free(b);
}

Test(gguf, a_long_path_keeps_its_end_in_messages)
{
    char name[600];
    memset(name, 'd', sizeof(name));
    memcpy(name + sizeof(name) - 6, "/end!", 6);
    struct tr_errbuf err;
    cr_expect(eq(ptr, tr_gguf_parse("GGUX....", 8, name, &err), NULL));
    cr_expect(strstr(err.msg, "/end!: not a GGUF file") != NULL, "%s", err.msg);
}

/* --- what is there can be read ---------------------------------------------------------------- */

static struct tr_gguf *sample(uint8_t **b)
{
    struct tr_gw *w = tr_gw_new(2);
    tr_gw_u32(w, "u32", 7);
    tr_gw_kv(w, "i8", TR_GGUF_I8, "\xff", 1);
    tr_gw_kv(w, "u64", TR_GGUF_U64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    tr_gw_kv(w, "true", TR_GGUF_BOOL, "\1", 1);
    tr_gw_f32(w, "f32", 0.5f);
    tr_gw_str(w, "s", "text");
    tr_gw_strs(w, "strs", (const char *const[]){"a", "", "ccc"}, 3);
    tr_gw_kv(w, "bools", TR_GGUF_ARRAY, "\7\0\0\0\2\0\0\0\0\0\0\0\1\0", 14);
    tr_gw_kv(w, "i16s", TR_GGUF_ARRAY, "\3\0\0\0\2\0\0\0\0\0\0\0\xff\xff\1\0", 16);
    tr_gw_random(w, "second", TR_T_Q8_0, 2, (uint64_t[]){32, 3});
    tr_gw_random(w, "first", TR_T_F16, 1, (uint64_t[]){5});
    size_t n;
    *b = tr_gw_finish(w, &n);
    struct tr_errbuf err = {""};
    struct tr_gguf *g = tr_gguf_parse(*b, n, "f", &err);
    cr_assert(ne(ptr, g, NULL), "%s", err.msg);
    return g;
}

Test(gguf, scalars_are_read_as_any_type_that_holds_them)
{
    uint8_t *b;
    struct tr_gguf *g = sample(&b);
    uint64_t u = 1;
    double f = 1;
    bool t = false;
    struct tr_str s;
    cr_expect(eq(int, tr_gguf_u64(g, "u32", &u), 0));
    cr_expect(eq(u64, u, 7));
    cr_expect(eq(int, tr_gguf_u64(g, "i8", &u), -EINVAL));
    cr_expect(eq(u64, u, 7), "a failed call leaves its output");
    cr_expect(eq(int, tr_gguf_u64(g, "u64", &u), 0));
    cr_expect(eq(u64, u, UINT64_MAX));
    cr_expect(eq(int, tr_gguf_u64(g, "f32", &u), -EINVAL));
    cr_expect(eq(int, tr_gguf_u64(g, "nothing", &u), -ENOENT));
    cr_expect(eq(int, tr_gguf_f64(g, "f32", &f), 0));
    cr_expect(ieee_ulp_eq(dbl, f, 0.5, 1));
    cr_expect(eq(int, tr_gguf_f64(g, "i8", &f), 0));
    cr_expect(ieee_ulp_eq(dbl, f, -1.0, 1));
    cr_expect(eq(int, tr_gguf_f64(g, "u64", &f), 0));
    cr_expect(ieee_ulp_eq(dbl, f, 0x1p64, 1));
    cr_expect(eq(int, tr_gguf_f64(g, "s", &f), -EINVAL));
    cr_expect(eq(int, tr_gguf_bool(g, "true", &t), 0));
    cr_expect(t);
    cr_expect(eq(int, tr_gguf_bool(g, "u32", &t), -EINVAL));
    cr_expect(eq(int, tr_gguf_str(g, "s", &s), 0));
    cr_expect(s.len == 4 && memcmp(s.p, "text", 4) == 0);
    cr_expect(eq(int, tr_gguf_str(g, "strs", &s), -EINVAL));
    tr_gguf_close(g);
    free(b);
}

Test(gguf, arrays_are_read_in_order_to_their_end)
{
    uint8_t *b;
    struct tr_gguf *g = sample(&b);
    struct tr_gguf_array a;
    struct tr_str s;
    uint64_t u;
    int64_t i;
    double f;
    cr_assert(eq(int, tr_gguf_array(g, "strs", &a), 0));
    cr_expect(eq(u64, a.len, 3));
    cr_expect(eq(int, tr_gguf_next_u64(&a, &u), -EINVAL));
    for (size_t k = 0; k < 3; k++) {
        const char *want = (const char *[]){"a", "", "ccc"}[k];
        cr_expect(eq(int, tr_gguf_next_str(&a, &s), 0));
        cr_expect(s.len == strlen(want) && memcmp(s.p, want, s.len) == 0);
    }
    cr_expect(eq(int, tr_gguf_next_str(&a, &s), -ENOENT));

    cr_assert(eq(int, tr_gguf_array(g, "i16s", &a), 0));
    cr_expect(eq(int, tr_gguf_next_str(&a, &s), -EINVAL));
    cr_expect(eq(int, tr_gguf_next_u64(&a, &u), -EINVAL), "-1 is no u64, and is not skipped");
    cr_expect(eq(int, tr_gguf_next_i64(&a, &i), 0));
    cr_expect(eq(i64, i, -1));
    cr_expect(eq(int, tr_gguf_next_f64(&a, &f), 0));
    cr_expect(ieee_ulp_eq(dbl, f, 1.0, 1));
    cr_expect(eq(int, tr_gguf_next_f64(&a, &f), -ENOENT));
    bool t = false;
    cr_assert(eq(int, tr_gguf_array(g, "i16s", &a), 0));
    cr_expect(eq(int, tr_gguf_next_bool(&a, &t), -EINVAL));
    cr_assert(eq(int, tr_gguf_array(g, "bools", &a), 0));
    cr_expect(eq(int, tr_gguf_next_u64(&a, &u), -EINVAL));
    cr_expect(eq(int, tr_gguf_next_bool(&a, &t), 0));
    cr_expect(t);
    cr_expect(eq(int, tr_gguf_next_bool(&a, &t), 0));
    cr_expect(t == false);
    cr_expect(eq(int, tr_gguf_next_bool(&a, &t), -ENOENT));
    cr_expect(eq(int, tr_gguf_array(g, "s", &a), -EINVAL));
    tr_gguf_close(g);
    free(b);
}

Test(gguf, tensors_are_found_by_name_and_by_place)
{
    uint8_t *b;
    struct tr_gguf *g = sample(&b);
    cr_expect(eq(u64, tr_gguf_n_tensors(g), 2));
    const struct tr_gguf_tensor *t = tr_gguf_tensor(g, "first");
    cr_assert(ne(ptr, (void *)t, NULL));
    cr_expect(eq(ptr, (void *)t, (void *)tr_gguf_tensor_at(g, 1)));
    cr_expect(eq(u64, t->bytes, 10));
    t = tr_gguf_tensor(g, "second");
    cr_assert(ne(ptr, (void *)t, NULL));
    cr_expect(eq(u64, t->bytes, 3 * 34));
    cr_expect(t->ne[0] == 32 && t->ne[1] == 3 && t->ne[2] == 1 && t->ne[3] == 1);
    cr_expect(eq(ptr, (void *)tr_gguf_tensor(g, "third"), NULL));
    cr_expect(eq(ptr, (void *)tr_gguf_tensor_at(g, 2), NULL));
    char buf[24];
    cr_expect(eq(str, (char *)tr_tensor_type_name(TR_T_Q4_1, buf), "Q4_1"));
    cr_expect(eq(str, (char *)tr_tensor_type_name((enum tr_tensor_type)31, buf), "type 31"));
    tr_gguf_close(g);
    free(b);
}

/* A mapping has the file's size, but refusing must not touch or allocate much of it. */
Test(gguf, refusing_a_large_sparse_file_is_cheap)
{
    struct raw r;
    head(&r, "GGUF", 3, 60000, 60000);
    char path[64];
    tr_gw_save(r.b, r.n, path);
    cr_assert(eq(int, truncate(path, 1ll << 32), 0));
    open_refused(path, "metadata key");
    unlink(path);
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    cr_expect(u.ru_maxrss < 100 * 1024, "%ld KiB", u.ru_maxrss);
}
