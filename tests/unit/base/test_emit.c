/* SPDX-License-Identifier: Apache-2.0 */
#include "base/emit.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect(struct tr_emit *e, const char *want)
{
    cr_expect_not(e->failed);
    cr_expect(e->len == strlen(want) && memcmp(e->buf, want, e->len) == 0, "%.*s is not %s",
              (int)e->len, e->buf, want);
    tr_emit_reset(e);
}

Test(emit, commas_and_colons_are_put_where_json_wants_them)
{
    struct tr_emit e;
    tr_emit_init(&e);
    tr_emit_obj(&e);
    tr_emit_kstr(&e, "a", "b");
    tr_emit_key(&e, "list");
    tr_emit_arr(&e);
    tr_emit_i64(&e, INT64_MIN);
    tr_emit_u64(&e, UINT64_MAX);
    tr_emit_obj(&e);
    tr_emit_obj_end(&e);
    tr_emit_arr(&e);
    tr_emit_arr_end(&e);
    tr_emit_bool(&e, true);
    tr_emit_arr_end(&e);
    tr_emit_knull(&e, "n");
    tr_emit_kstr(&e, "s", NULL);
    tr_emit_key(&e, "r");
    tr_emit_raw(&e, "[1]", 3);
    tr_emit_kbool(&e, "f", false);
    tr_emit_obj_end(&e);
    expect(&e, "{\"a\":\"b\",\"list\":[-9223372036854775808,18446744073709551615,{},[],true],"
               "\"n\":null,\"s\":null,\"r\":[1],\"f\":false}");
    tr_emit_fini(&e);
}

Test(emit, strings_are_valid_whatever_they_hold)
{
    struct tr_emit e;
    tr_emit_init(&e);
    const char odd[] = "a\0\x1f\"\\\n\t\x7f\xff\xc3\xa9\xed\xa0\x80\xf0\x9f\x98\x80\xf0\x9f";
    tr_emit_strn(&e, odd, sizeof(odd) - 1);
    expect(&e, "\"a\\u0000\\u001f\\\"\\\\\\n\\t\\u007f\xef\xbf\xbd\xc3\xa9"
               "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xf0\x9f\x98\x80\xef\xbf\xbd\xef\xbf\xbd\"");
    tr_emit_str(&e, "\xe2\x80\xa8\xe2\x80\xa9\xc2\x85\xe2\x80\xaa");
    expect(&e, "\"\\u2028\\u2029\\u0085\xe2\x80\xaa\"");
    tr_emit_str_open(&e);
    tr_emit_str_piece(&e, "ab", 2);
    tr_emit_str_piece(&e, "\"", 1);
    tr_emit_str_close(&e);
    expect(&e, "\"ab\\\"\"");
    tr_emit_fini(&e);
}

Test(emit, numbers_are_finite_and_read_back_the_same)
{
    struct tr_emit e;
    tr_emit_init(&e);
    tr_emit_f64(&e, -INFINITY);
    expect(&e, "-9999.0");
    tr_emit_f64(&e, INFINITY);
    expect(&e, "9999.0");
    tr_emit_f64(&e, NAN);
    expect(&e, "null");
    tr_emit_f64(&e, 0.1);
    expect(&e, "0.1");
    tr_emit_f64(&e, 5);
    expect(&e, "5.0");
    tr_emit_f32(&e, -0.34567f);
    expect(&e, "-0.34567");
    const double odd[] = {1.0 / 3, DBL_MAX, DBL_MIN, 5e-324, -1e21, 123456789.123456789, 1e100};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        tr_emit_f64(&e, odd[i]);
        tr_emit_bytes(&e, "", 1);
        cr_expect(strtod(e.buf, NULL) == odd[i], "%s", e.buf);
        tr_emit_reset(&e);
        tr_emit_f32(&e, (float)(odd[i] / 1e300));
        tr_emit_bytes(&e, "", 1);
        cr_expect(strtof(e.buf, NULL) == (float)(odd[i] / 1e300), "%s", e.buf);
        tr_emit_reset(&e);
    }
    tr_emit_fini(&e);
}

Test(emit, memory_is_kept_between_events_but_not_for_ever)
{
    struct tr_emit e;
    tr_emit_init(&e);
    tr_emit_str(&e, "x");
    const char *first = e.buf;
    for (int i = 0; i < 1000; i++) {
        tr_emit_reset(&e);
        tr_emit_str(&e, "another event");
    }
    cr_expect_eq(e.buf, first);
    char *big = calloc(1, 100000);
    tr_emit_strn(&e, big, 100000);
    tr_emit_reset(&e);
    cr_expect_eq(e.cap, 0);
    free(big);
    tr_emit_fini(&e);
}

Test(emit, a_deep_tree_from_a_client_is_cut_not_overrun)
{
    char s[200];
    memset(s, '[', 100);
    memset(s + 100, ']', 100);
    struct tr_json_fault f;
    struct tr_json_doc *d = tr_json_parse(s, sizeof(s), &f), *back;
    struct tr_emit e;
    tr_emit_init(&e);
    cr_assert(d);
    tr_emit_json(&e, d, tr_json_root(d));
    cr_expect_not(e.failed);
    back = tr_json_parse(e.buf, e.len, &f);
    cr_expect(back);
    tr_json_free(back);
    tr_json_free(d);
    tr_emit_fini(&e);
}
