/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of every quantised type, of any bits, as the kernels read them: from the file's form and
 * from their own, against what another reader found (tests/golden/quants.jsonl). */
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#include <jansson.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAX = 1024, VALUES_MAX = 1024 };

static int passed, failed;

static enum tr_tensor_type type_of(const char *name)
{
    char buf[24];
    for (int t = 0; t <= TR_T_BF16; t++)
        if (strcmp(tr_tensor_type_name((enum tr_tensor_type)t, buf), name) == 0)
            return (enum tr_tensor_type)t;
    return (enum tr_tensor_type) - 1;
}

/* Bytes of a string of hexadecimal digits; 0 if they are too many. */
static size_t from_hex(const char *s, uint8_t *out)
{
    size_t n = strlen(s) / 2;
    if (n > ROW_MAX)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const char pair[3] = {s[2 * i], s[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return n;
}

static bool as_recorded(const json_t *values, const float *got)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        double want = json_number_value(json_array_get(values, i));
        /* The limit that tests/golden/README.md gives for dequantised values. */
        if (!(fabs((double)got[i] - want) <= 1e-6 * fabs(want) + 1e-7)) {
            printf("element %zu is %.9g, not %.9g\n", i, (double)got[i], want);
            return false;
        }
    }
    return true;
}

static void check(bool ok, const char *what, const char *type)
{
    ok ? passed++ : failed++;
    if (!ok)
        printf("FAILED %s: %s\n", type, what);
}

static void check_line(const json_t *line)
{
    const char *name = json_string_value(json_object_get(line, "type"));
    const json_t *values = json_object_get(line, "values");
    enum tr_tensor_type type = type_of(name);
    size_t n = json_array_size(values);
    uint8_t row[ROW_MAX];
    float got[VALUES_MAX];
    bool fits = n <= VALUES_MAX && tr_quant_blocked(type) &&
                from_hex(json_string_value(json_object_get(line, "row")), row) ==
                    tr_quant_row_bytes(type, n);
    check(fits, "is as long as its type says", name);
    if (!fits)
        return;
    tr_quant_row(type, row, n, got);
    check(as_recorded(values, got), "values of the file's form", name);

    void *mem = aligned_alloc(64, tr_strip_bytes(type, (uint32_t)n));
    if (!mem)
        abort();
    tr_strip_pack(type, (uint32_t)n, 1, row, mem);
    memset(got, 0xFF, sizeof(got));
    tr_strip_row(type, (uint32_t)n, mem, 0, got);
    check(as_recorded(values, got), "values of the packed form", name);
    free(mem);
}

int main(void)
{
    FILE *f = fopen("tests/golden/quants.jsonl", "r");
    size_t n = 0;
    json_error_t err;
    json_t *line;
    while (f && (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, &err))) {
        check_line(line);
        json_decref(line);
        n++;
    }
    check(n == 10, "all types are there", "quants.jsonl");
    if (f)
        fclose(f);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
