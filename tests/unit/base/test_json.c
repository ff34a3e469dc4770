/* SPDX-License-Identifier: Apache-2.0 */
#include "base/emit.h"
#include "base/json.h"
#include "testoracle/json_oracle.h"

#include <criterion/criterion.h>
#include <jansson.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A copy of the exact size, so that a read past the end is seen by ASan. */
static struct tr_json_doc *parse(const char *s, size_t len, struct tr_json_fault *f, char **keep)
{
    *keep = malloc(len ? len : 1);
    cr_assert(*keep);
    memcpy(*keep, s, len);
    return tr_json_parse(*keep, len, f);
}

static void expect_fault(const char *s, size_t len, size_t off, const char *part)
{
    struct tr_json_fault f = {0};
    char *keep;
    struct tr_json_doc *d = parse(s, len, &f, &keep);
    cr_assert_null(d, "accepted: %s", s);
    cr_expect(strstr(f.why, part), "%s: says '%s', not '%s'", s, f.why, part);
    cr_expect_eq(f.off, off, "%s: fault at %zu, not %zu", s, f.off, off);
    free(keep);
}

#define FAULT(s, off, part) expect_fault(s, sizeof(s) - 1, off, part)

static void expect_good(const char *s, size_t len)
{
    struct tr_json_fault f = {0};
    char *keep;
    struct tr_json_doc *d = parse(s, len, &f, &keep);
    cr_expect(d, "%s: refused at %zu: %s", s, f.off, f.why);
    tr_json_free(d);
    free(keep);
}

#define GOOD(s) expect_good(s, sizeof(s) - 1)

Test(json, what_is_not_json_is_refused_at_its_byte)
{
    FAULT("", 0, "a value is expected");
    FAULT("  ", 2, "a value is expected");
    FAULT("{", 1, "ends inside");
    FAULT("[1", 2, "ends inside");
    FAULT("[1,]", 3, "a value");
    FAULT("[,1]", 1, "a value");
    FAULT("[1 2]", 3, "a comma");
    FAULT("{\"a\":1,}", 7, "a key");
    FAULT("{\"a\"}", 4, "a colon");
    FAULT("{\"a\":}", 5, "a value");
    FAULT("{a:1}", 1, "a key");
    FAULT("{'a':1}", 1, "a key");
    FAULT("[1}", 2, "a comma");
    FAULT("nul", 0, "a value");
    FAULT("NaN", 0, "a value");
    FAULT("-Infinity", 1, "a digit");
    FAULT("01", 0, "begin with 0");
    FAULT("-01", 1, "begin with 0");
    FAULT("1.", 2, "a digit");
    FAULT(".5", 0, "a value");
    FAULT("+1", 0, "a value");
    FAULT("1e", 2, "a digit");
    FAULT("1e+", 3, "a digit");
    FAULT("0x10", 1, "follows");
    FAULT("{}{}", 2, "follows");
    FAULT("{} garbage", 3, "follows");
    FAULT("\"a", 2, "ends inside a string");
    FAULT("\"a\\", 2, "ends inside a string");
    FAULT("\"\\x\"", 1, "unknown escape");
    FAULT("\"\\u12\"", 1, "four hex");
    FAULT("\"\\u12g4\"", 1, "four hex");
    FAULT("\"\x01\"", 1, "control character");
    FAULT("\"\n\"", 1, "control character");
    FAULT("\"\0\"", 1, "control character");
    FAULT("/* c */ 1", 0, "a value");
}

Test(json, bytes_that_are_not_utf8_are_refused)
{
    FAULT("\"\xff\"", 1, "not UTF-8");
    FAULT("\"\xc0\xaf\"", 1, "not UTF-8");
    FAULT("\"\xed\xa0\x80\"", 1, "not UTF-8");
    FAULT("\"\xf0\x9f\x98\"", 1, "not UTF-8");
    FAULT("\"\xf4\x90\x80\x80\"", 1, "not UTF-8");
    FAULT("\"\x80\"", 1, "not UTF-8");
    FAULT("\"\xe4\xbd\xa0\xc4\xe3\"", 4, "not UTF-8");
    FAULT("\xef\xbb\xbf{}", 0, "byte order mark");
    FAULT("\xff\xfe{\0}\0", 0, "UTF-16");
    GOOD("\"\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x98\x80\"");
}

Test(json, lone_surrogates_are_refused_and_pairs_are_joined)
{
    FAULT("\"\\ud83d\"", 1, "other half");
    FAULT("\"\\ude00\"", 1, "other half");
    FAULT("\"\\ud83dA\"", 1, "other half");
    FAULT("\"ab\\ud83d\\ud83d\"", 3, "other half");
    struct tr_json_fault f;
    const char s[] = "\"\\ud83d\\ude00\\u00e9\\u20AC\"";
    struct tr_json_doc *d = tr_json_parse(s, sizeof(s) - 1, &f);
    cr_assert(d);
    cr_expect(TR_JSON_EQ(tr_json_root(d), "\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac"));
    tr_json_free(d);
}

Test(json, nul_is_kept_and_lengths_are_counted)
{
    struct tr_json_fault f;
    const char s[] = "{\"a\\u0000b\":\"x\\u0000y\",\"p\":\"plain\"}";
    struct tr_json_doc *d = tr_json_parse(s, sizeof(s) - 1, &f);
    cr_assert(d);
    const struct tr_json *r = tr_json_root(d);
    cr_expect(tr_json_eq(tr_json_get(r, "a\0b", 3), "x\0y", 3));
    cr_expect_null(TR_JSON_GET(r, "a"));
    cr_expect(TR_JSON_EQ(TR_JSON_GET(r, "p"), "plain"));
    tr_json_free(d);
}

Test(json, integers_are_exact_and_kinds_of_numbers_can_be_told_apart)
{
    static const struct {
        const char *text;
        int64_t i;
        int ret;
        int num;
    } t[] = {
        {"0", 0, 0, TR_JSON_INT},
        {"-0", 0, 0, TR_JSON_INT},
        {"10", 10, 0, TR_JSON_INT},
        {"10.0", 10, 0, TR_JSON_REAL},
        {"1e1", 10, 0, TR_JSON_REAL},
        {"10.5", 0, -EINVAL, TR_JSON_REAL},
        {"4294967297", 4294967297, 0, TR_JSON_INT},
        {"9007199254740993", 9007199254740993, 0, TR_JSON_INT},
        {"9223372036854775807", INT64_MAX, 0, TR_JSON_INT},
        {"-9223372036854775808", INT64_MIN, 0, TR_JSON_INT},
        {"9223372036854775808", 0, -ERANGE, TR_JSON_UINT},
        {"18446744073709551615", 0, -ERANGE, TR_JSON_UINT},
        {"18446744073709551616", 0, -ERANGE, TR_JSON_REAL},
        {"-9223372036854775809", 0, -ERANGE, TR_JSON_REAL},
        {"1e20", 0, -ERANGE, TR_JSON_REAL},
        {"1e400", 0, -ERANGE, TR_JSON_REAL},
        {"1e-400", 0, 0, TR_JSON_REAL},
    };
    for (size_t k = 0; k < sizeof(t) / sizeof(t[0]); k++) {
        struct tr_json_fault f;
        char *keep;
        int64_t i = -77;
        struct tr_json_doc *d = parse(t[k].text, strlen(t[k].text), &f, &keep);
        cr_assert(d);
        const struct tr_json *v = tr_json_root(d);
        cr_expect_eq(v->num, t[k].num, "%s", t[k].text);
        cr_expect_eq(tr_json_i64(v, &i), t[k].ret, "%s", t[k].text);
        cr_expect_eq(i, t[k].ret ? -77 : t[k].i, "%s", t[k].text);
        size_t len;
        const char *text = tr_json_number_text(d, v, &len);
        cr_expect(len == strlen(t[k].text) && memcmp(text, t[k].text, len) == 0);
        tr_json_free(d);
        free(keep);
    }
    struct tr_json_fault f;
    double x = 0;
    struct tr_json_doc *d = tr_json_parse("[0.1,1e400,\"5\",18446744073709551615]", 36, &f);
    cr_assert(d);
    const struct tr_json *v = tr_json_root(d) + 1;
    cr_expect_eq(tr_json_f64(v, &x), 0);
    cr_expect(x == 0.1);
    cr_expect_eq(tr_json_f64(v + 1, &x), -ERANGE);
    cr_expect_eq(tr_json_f64(v + 2, &x), -EINVAL);
    cr_expect_eq(tr_json_f64(v + 3, &x), 0);
    cr_expect(x == 18446744073709551615.0);
    tr_json_free(d);
}

Test(json, duplicate_keys_are_refused_in_small_and_large_objects)
{
    FAULT("{\"a\":1,\"a\":2}", 7, "twice");
    FAULT("{\"a\":1,\"\\u0061\":2}", 7, "twice");
    GOOD("{\"a\":{\"a\":1},\"b\":{\"a\":1}}");
    static char s[64 * 1024];
    size_t n = 0;
    s[n++] = '{';
    for (int i = 0; i < 2000; i++)
        n += (size_t)sprintf(s + n, "\"k%d\":%d,", i, i);
    size_t at = n;
    n += (size_t)sprintf(s + n, "\"k1234\":0}");
    expect_fault(s, n, at, "twice");
    s[at + 2] = 'x';
    expect_good(s, n);
}

static void timed_depth(const char *open, size_t times)
{
    size_t unit = strlen(open), n = 0;
    char *s = malloc(unit * times + 16);
    cr_assert(s);
    n += (size_t)sprintf(s, "{\"x\":");
    for (size_t i = 0; i < times; i++, n += unit)
        memmove(s + n, open, unit);
    struct tr_json_fault f;
    clock_t t = clock(); /* of this process alone: others may be busy */
    cr_expect_null(tr_json_parse(s, n, &f));
    cr_expect(strstr(f.why, "too deeply"));
    cr_expect_lt(clock() - t, CLOCKS_PER_SEC / 5);
    free(s);
}

Test(json, depth_is_bounded_and_costs_no_stack)
{
    timed_depth("[", 10000);
    timed_depth("[", 1000000);
    timed_depth("{\"a\":", 1000000);
    char s[2 * TR_JSON_DEPTH + 3];
    memset(s, '[', TR_JSON_DEPTH);
    memset(s + TR_JSON_DEPTH, ']', TR_JSON_DEPTH);
    expect_good(s, 2 * TR_JSON_DEPTH);
    memset(s, '[', TR_JSON_DEPTH + 1);
    memset(s + TR_JSON_DEPTH + 1, ']', TR_JSON_DEPTH + 1);
    expect_fault(s, 2 * TR_JSON_DEPTH + 2, TR_JSON_DEPTH, "too deeply");
}

Test(json, memory_is_bounded_by_the_text)
{
    size_t n = 4 << 20;
    char *s = malloc(n);
    cr_assert(s);
    for (size_t i = 0; i < n; i++)
        s[i] = i % 2 ? '0' : ',';
    s[0] = '[';
    struct tr_json_fault f;
    cr_expect_null(tr_json_parse(s, n, &f));
    cr_expect(strstr(f.why, "too many values"), "%s", f.why);
    for (size_t i = 1; i < n; i++)
        s[i] = i % 5 == 0 ? ',' : '1';
    s[n - 1] = ']';
    struct tr_json_doc *d = tr_json_parse(s, n, &f);
    cr_assert(d, "%s at %zu", f.why, f.off);
    cr_expect_leq(tr_json_bytes(d), (size_t)24 * TR_JSON_NODES + 4096);
    tr_json_free(d);
    free(s);
}

Test(json, a_place_in_the_tree_has_a_name)
{
    struct tr_json_fault f;
    const char s[] = "{\"model\":\"m\",\"messages\":[{\"role\":\"user\"},"
                     "{\"content\":[{\"text\":5},{\"\xc3\xa9\xc3\xa9\":1}]}]}";
    struct tr_json_doc *d = tr_json_parse(s, sizeof(s) - 1, &f);
    cr_assert(d);
    const struct tr_json *m = TR_JSON_GET(tr_json_root(d), "messages");
    struct tr_json_it it = tr_json_iter(m);
    cr_assert(tr_json_step(&it) && tr_json_step(&it));
    cr_expect_eq(it.index, 1);
    const struct tr_json *content = TR_JSON_GET(it.val, "content");
    struct tr_json_it parts = tr_json_iter(content);
    cr_assert(tr_json_step(&parts));
    char buf[64];
    tr_json_param(d, TR_JSON_GET(parts.val, "text"), buf, sizeof(buf));
    cr_expect_str_eq(buf, "messages[1].content[0].text");
    cr_assert(tr_json_step(&parts) && !tr_json_step(&(struct tr_json_it){0}));
    struct tr_json_it last = tr_json_iter(parts.val);
    cr_assert(tr_json_step(&last));
    /* cut at a character, not inside one */
    size_t n = tr_json_param(d, last.val, buf, strlen("messages[1].content[1].") + 4);
    cr_expect_str_eq(buf, "messages[1].content[1].\xc3\xa9");
    cr_expect_eq(n, strlen(buf));
    cr_expect_eq(tr_json_param(d, tr_json_root(d), buf, sizeof(buf)), 0);
    tr_json_free(d);
}

Test(json, walking_what_has_no_children_ends_at_once)
{
    struct tr_json_it it = tr_json_iter(NULL);
    cr_expect_not(tr_json_step(&it));
    struct tr_json_fault f;
    struct tr_json_doc *d = tr_json_parse("[]", 2, &f);
    it = tr_json_iter(tr_json_root(d));
    cr_expect_not(tr_json_step(&it));
    cr_expect_null(TR_JSON_GET(tr_json_root(d), "x"));
    cr_expect_null(TR_JSON_GET(NULL, "x"));
    tr_json_free(d);
}

/* ---- against jansson ------------------------------------------------------------------- */

static uint32_t rnd_state = 12345;

static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 1664525u + 1013904223u;
    return (rnd_state >> 8) % n;
}

static const char *const seeds[] = {
    ("{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi \\u00e9 "
     "\\ud83d\\ude00\"}],"
     "\"max_tokens\":10,\"temperature\":0.7,\"stop\":[\"a\",\"b\"],\"stream\":true,\"x\":null}"),
    "[1,2.5e3,-0.1,1e-5,true,false,null,\"\\\"\\\\\\/\\b\\f\\n\\r\\t\",[],{}]",
    "{\"a\":{\"b\":{\"c\":[[[1]]]}},\"\xe4\xbd\xa0\":\"\xc3\xa9\",\"k\":\"\\u0041\"}",
};
static const char alphabet[] = "{}[]\",:\\u0d8e1-+.tfn \n\x01\x80\xc3\xa9\xff";

static size_t mutate(char *s, size_t len)
{
    for (uint32_t i = rnd(4); i; i--) {
        size_t at = rnd((uint32_t)len);
        uint32_t kind = rnd(3);
        if (kind == 0) {
            s[at] = alphabet[rnd(sizeof(alphabet) - 1)];
        } else if (kind == 1 && len > 2) {
            memmove(s + at, s + at + 1, len - at - 1);
            len--;
        } else {
            memmove(s + at + 1, s + at, len - at);
            s[at] = alphabet[rnd(sizeof(alphabet) - 1)];
            len++;
        }
    }
    return len;
}

/* Both take it and read the same, or neither takes it; and what the emitter makes of it is the same
 * once more. */
static void compare(const char *s, size_t len, unsigned *both)
{
    struct tr_json_fault f;
    struct tr_emit e;
    char *keep;
    bool taken;
    struct tr_json_doc *d = parse(s, len, &f, &keep);
    const char *why = json_disagree(keep, len, &taken);
    cr_assert_null(why, "%.*s: %s", (int)len, s, why);
    if (taken) {
        json_error_t je;
        tr_emit_init(&e);
        tr_emit_json(&e, d, tr_json_root(d));
        json_t *once = json_loadb(s, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
        json_t *back = json_loadb(e.buf, e.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
        cr_assert(back && json_equal(back, once), "%.*s became %.*s", (int)len, s, (int)e.len,
                  e.buf);
        json_decref(back);
        json_decref(once);
        tr_emit_fini(&e);
        ++*both;
    }
    tr_json_free(d);
    free(keep);
}

Test(json, any_byte_at_any_place_is_read_as_jansson_reads_it)
{
    unsigned both = 0;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        char s[512];
        size_t len = strlen(seeds[i]);
        for (size_t at = 0; at < len; at++) {
            for (int c = 0; c < 256; c++) { /* instead of, and before, the byte that was there */
                memcpy(s, seeds[i], len);
                s[at] = (char)c;
                compare(s, len, &both);
                memcpy(s + at + 1, seeds[i] + at, len - at);
                compare(s, len + 1, &both);
            }
            memcpy(s, seeds[i], at);
            memcpy(s + at, seeds[i] + at + 1, len - at - 1);
            compare(s, len - 1, &both);
            compare(seeds[i], at, &both); /* cut */
        }
    }
    cr_expect_gt(both, 10000u);
}

Test(json, short_decimals_are_what_strtod_says)
{
    for (int i = 0; i < 200000; i++) {
        char s[40];
        int digits = 1 + (int)rnd(15), before = 1 + (int)rnd((uint32_t)digits);
        int n = snprintf(s, sizeof(s), "[%s%d", rnd(2) ? "-" : "", (int)rnd(9) + 1);
        for (int k = 1; k < digits; k++) {
            if (k == before)
                s[n++] = '.';
            s[n++] = (char)('0' + rnd(10));
        }
        s[n++] = ']';
        s[n] = '\0';
        struct tr_json_fault f;
        struct tr_json_doc *d = tr_json_parse(s, (size_t)n, &f);
        double x;
        cr_assert(d && tr_json_f64(tr_json_root(d) + 1, &x) == 0);
        cr_assert(x == strtod(s + 1, NULL), "%s", s);
        tr_json_free(d);
    }
}

Test(json, agrees_with_jansson_on_mutated_texts)
{
    unsigned both = 0;
    for (int i = 0; i < 60000; i++) {
        char s[512];
        const char *seed = seeds[rnd(sizeof(seeds) / sizeof(seeds[0]))];
        size_t len = (size_t)snprintf(s, sizeof(s), "%s", seed);
        len = mutate(s, len);
        compare(s, len, &both);
    }
    cr_expect_gt(both, 10000u);
}
