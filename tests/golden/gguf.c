/* SPDX-License-Identifier: Apache-2.0 */
/* Every key and every tensor of the real models, as gguf and as packed by the kernels, against what
 * another reader found (tests/golden/MODEL/gguf_meta.json).  Gemma's file is looked at where
 * TOKENRING_TEST_GEMMA names it. */
#include "base/gguf.h"

#include "testrig/model_rig.h"

#include <jansson.h>
#include <openssl/evp.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;

static void check(bool ok, const char *what, const char *name)
{
    if (ok) {
        passed++;
    } else {
        failed++;
        printf("FAILED %s: %s\n", name, what);
    }
}

static bool same_str(const json_t *want, struct tr_str got)
{
    return json_is_string(want) && json_string_length(want) == got.len &&
           memcmp(json_string_value(want), got.p, got.len) == 0;
}

/* The hash over all elements as text, each followed by a newline, and the first and last four. */
static void check_array(const char *key, const json_t *want, struct tr_gguf_array a)
{
    uint64_t n = (uint64_t)json_integer_value(json_object_get(want, "length"));
    const json_t *first = json_object_get(want, "first"), *last = json_object_get(want, "last");
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    check(a.len == n, "length of the array", key);
    bool edges = true;
    for (uint64_t i = 0; i < a.len; i++) {
        struct tr_str s = {0};
        int64_t v = 0;
        double f = 0;
        char num[32];
        const json_t *edge =
            i < 4 ? json_array_get(first, i) : json_array_get(last, i - (n < 4 ? 0 : n - 4));
        if (i >= 4 && i < n - 4)
            edge = NULL;
        if (a.type == TR_GGUF_STRING && tr_gguf_next_str(&a, &s) == 0) {
            edges = edges && (!edge || same_str(edge, s));
        } else if (a.type == TR_GGUF_F32 && tr_gguf_next_f64(&a, &f) == 0) {
            /* The recorded hash is over the shortest digits: here all elements are whole. */
            s = (struct tr_str){num, (size_t)snprintf(num, sizeof(num), "%.1f", f)};
            edges = edges && (!edge || json_number_value(edge) == f);
        } else if (tr_gguf_next_i64(&a, &v) == 0) {
            s = (struct tr_str){num, (size_t)snprintf(num, sizeof(num), "%lld", (long long)v)};
            edges = edges && (!edge || json_integer_value(edge) == v);
        } else {
            edges = false;
            break;
        }
        EVP_DigestUpdate(md, s.p, s.len);
        EVP_DigestUpdate(md, "\n", 1);
    }
    check(edges, "first or last elements", key);
    unsigned char sum[32];
    char hex[65];
    EVP_DigestFinal_ex(md, sum, NULL);
    EVP_MD_CTX_free(md);
    for (size_t i = 0; i < sizeof(sum); i++)
        snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    check(strcmp(hex, json_string_value(json_object_get(want, "sha256_lines"))) == 0, "hash", key);
}

static void check_key(const struct tr_gguf *g, const char *key, const json_t *want)
{
    const char *type = json_string_value(json_array_get(json_object_get(want, "type"), 0));
    const json_t *value = json_object_get(want, "value");
    struct tr_gguf_array a;
    struct tr_str s;
    uint64_t u;
    double f;
    bool b;
    if (strcmp(type, "ARRAY") == 0) {
        bool there = tr_gguf_array(g, key, &a) == 0;
        check(there, "array is missing", key);
        if (there)
            check_array(key, want, a);
    } else if (strcmp(type, "STRING") == 0) {
        check(tr_gguf_str(g, key, &s) == 0 && same_str(value, s), "string", key);
    } else if (strcmp(type, "BOOL") == 0) {
        check(tr_gguf_bool(g, key, &b) == 0 && b == json_boolean_value(value), "truth value", key);
    } else if (strcmp(type, "FLOAT32") == 0) {
        double v = json_number_value(value);
        check(tr_gguf_f64(g, key, &f) == 0 && fabs(f - v) <= 1e-6 * fabs(v), "number", key);
    } else {
        check(tr_gguf_u64(g, key, &u) == 0 && u == (uint64_t)json_integer_value(value), "integer",
              key);
    }
}

/* All values of a tensor as floats: vectors as they are, matrices through the kernels' own packed
 * form. */
static float *values(struct tr_dev *dev, const struct tr_gguf_tensor *t)
{
    uint32_t n_in = (uint32_t)t->ne[0], n_out = (uint32_t)t->ne[1];
    float *x = malloc((size_t)n_in * n_out * sizeof(float));
    uint32_t *rows = malloc(n_out * sizeof(*rows));
    if (!x || !rows)
        abort();
    if (t->n_dims == 1) {
        memcpy(x, t->data, t->bytes);
    } else {
        struct tr_mat m;
        void *mem = aligned_alloc(
            TR_OPS_ALIGN, (tr_ops_cpu.mat_bytes(dev, t->type, n_in, n_out) + TR_OPS_ALIGN - 1) &
                              ~(size_t)(TR_OPS_ALIGN - 1));
        tr_ops_cpu.mat_prepare(dev, &m, t->type, n_in, n_out, t->data, mem);
        for (uint32_t i = 0; i < n_out; i++)
            rows[i] = i;
        tr_ops_cpu.embed(dev, &m, rows, n_out, x);
        free(mem);
    }
    free(rows);
    return x;
}

static bool near(double got, const json_t *want, double rel)
{
    double w = json_number_value(want);
    return fabs(got - w) <= rel * fabs(w) + 1e-7;
}

static void check_values(const char *name, const json_t *want, const float *x, uint64_t n)
{
    double sum = 0, sq = 0, sum_abs = 0;
    float lo = x[0], hi = x[0];
    for (uint64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        sum_abs += fabs((double)x[i]);
        sq += (double)x[i] * (double)x[i];
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    /* The sum of values of both signs is compared against what was summed up. */
    double w = json_number_value(json_object_get(want, "sum"));
    check(fabs(sum - w) <= 1e-8 * sum_abs + 1e-8 * fabs(w), "sum", name);
    check(near(sqrt(sq), json_object_get(want, "l2"), 1e-6), "l2", name);
    check(near((double)lo, json_object_get(want, "min"), 1e-6), "min", name);
    check(near((double)hi, json_object_get(want, "max"), 1e-6), "max", name);
    bool first = true, last = true;
    for (size_t i = 0; i < 8; i++) {
        first =
            first && near((double)x[i], json_array_get(json_object_get(want, "first"), i), 1e-6);
        last = last &&
               near((double)x[n - 8 + i], json_array_get(json_object_get(want, "last"), i), 1e-6);
    }
    check(first, "first values", name);
    check(last, "last values", name);
}

static void check_tensor(struct tr_dev *dev, const struct tr_gguf *g, const json_t *want,
                         uint64_t place)
{
    const char *name = json_string_value(json_object_get(want, "name"));
    const struct tr_gguf_tensor *t = tr_gguf_tensor(g, name);
    char buf[24];
    check(t && t == tr_gguf_tensor_at(g, place), "is missing or not in its place", name);
    if (!t)
        return;
    const json_t *ne = json_object_get(want, "ne");
    bool shape = json_array_size(ne) == t->n_dims;
    for (uint32_t d = 0; d < t->n_dims; d++)
        shape = shape && (uint64_t)json_integer_value(json_array_get(ne, d)) == t->ne[d];
    check(shape, "shape", name);
    check(strcmp(json_string_value(json_object_get(want, "type")),
                 tr_tensor_type_name(t->type, buf)) == 0,
          "type", name);
    check((uint64_t)json_integer_value(json_object_get(want, "bytes")) == t->bytes, "bytes", name);
    float *x = values(dev, t);
    check_values(name, want, x, t->ne[0] * t->ne[1]);
    free(x);
}

static void check_file(struct tr_dev *dev, const char *path, const char *recorded)
{
    struct tr_errbuf err = {""};
    json_error_t jerr = {.text = ""};
    json_t *meta = json_load_file(recorded, 0, &jerr);
    struct tr_gguf *g = tr_gguf_open(path, &err);
    check(meta && g, meta ? err.msg : jerr.text, recorded);
    if (meta && g) {
        const char *key;
        json_t *v;
        size_t i;
        json_object_foreach(json_object_get(meta, "kv"), key, v) check_key(g, key, v);
        json_t *tensors = json_object_get(meta, "tensors");
        check(json_array_size(tensors) == tr_gguf_n_tensors(g), "number of tensors", recorded);
        json_array_foreach(tensors, i, v) check_tensor(dev, g, v, i);
    }
    tr_gguf_close(g);
    json_decref(meta);
}

int main(void)
{
    struct tr_errbuf err = {""};
    struct tr_dev *dev = tr_cpu_open(
        &(struct tr_cpu_config){.math = TR_OPS_INT8, .level_max = TR_CPU_AVX512, .n_threads = 2},
        &err);
    const char *gemma = getenv("TOKENRING_TEST_GEMMA");
    if (!dev) {
        printf("FAILED %s\n0 passed, 1 failed\n", err.msg);
        return 1;
    }
    check_file(dev, tr_rig_model_path(), "tests/golden/smollm2/gguf_meta.json");
    if (gemma)
        check_file(dev, gemma, "tests/golden/gemma3/gguf_meta.json");
    tr_ops_cpu.close(dev);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
