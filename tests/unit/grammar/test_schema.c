/* SPDX-License-Identifier: Apache-2.0 */
#include "constraint.h"
#include "grammar/json_text.h"
#include "grammar/schema.h"

#include <errno.h>

static char where[300]; /* of a refusal */

/* `made` is the program of the schema; the status. */
static int schema(const char *text)
{
    struct tr_json_fault fault;
    struct tr_json_doc *doc = tr_json_parse(text, strlen(text), &fault);
    struct tr_gfault f = {.why = ""};
    struct tr_gbuild *b = tr_gbuild_new();
    tr_gnode node;

    cr_assert(doc, "%s: %s", text, fault.why);
    why[0] = where[0] = '\0';
    int ret = tr_gschema(b, doc, tr_json_root(doc), &node, &f);
    if (!ret) {
        ret = finish(b, node);
    } else {
        tr_gbuild_free(b);
        snprintf(why, sizeof why, "%s", f.why);
        if (f.at)
            (void)tr_json_param(doc, f.at, where, sizeof where);
    }
    tr_json_free(doc);
    return ret;
}

#define SCHEMA(text, good, bad)                                                                    \
    do {                                                                                           \
        cr_assert_eq(schema(text), 0, "%s: %s at %s", text, why, where);                           \
        expect(text, good, bad);                                                                   \
    } while (0)

static void no(const char *text, const char *at, const char *part)
{
    int ret = schema(text);
    cr_expect(ret == -EINVAL || ret == -E2BIG, "%.200s was taken: %d", text, ret);
    cr_expect(strstr(why, part), "%.200s: says '%s', not '%s'", text, why, part);
    cr_expect_str_eq(where, at, "%.200s: at '%s', not '%s'", text, where, at);
}

Test(schema, kinds)
{
    SCHEMA("{}", GOOD("1", "\"a\"", "null", "[1, {}]", "{\"a\":{}}", "-0.5e+10", "true"),
           BAD("", "tru", "01", "[1,]", "{a:1}", " 1", "1 ", "1e100"));
    SCHEMA("true", GOOD("1", "[]"), BAD("]"));
    SCHEMA("{\"type\":\"null\"}", GOOD("null"), BAD("0"));
    SCHEMA("{\"type\":[\"boolean\",\"integer\"]}", GOOD("true", "-12", "0"), BAD("1.5", "\"a\""));
    SCHEMA("{\"type\":\"number\"}", GOOD("1", "1.5", "-1e5"), BAD("\"1\"", "1.", ".5"));
    SCHEMA("{\"type\":\"array\"}", GOOD("[]", "[ ]", "[1,[2]]"), BAD("[", "{}"));
    SCHEMA("{\"type\":\"object\"}", GOOD("{}", "{\"a\": 1}"), BAD("[]"));
}

Test(schema, strings_have_all_escapes_and_whole_surrogate_pairs)
{
    SCHEMA("{\"type\":\"string\"}",
           GOOD("\"\"", "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\u00e9\\uD83D\\ude00\"",
                "\"\xf0\x9f\x98\x80\""),
           BAD("\"", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"\\u00g0\"",
               "\"\\ud83d\\u0041\""));
    SCHEMA("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
           GOOD("\"ab\"", "\"\\n\\u00e9\xf0\x9f\x98\x80\""), BAD("\"a\"", "\"abcd\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"b+\"}", GOOD("\"abbc\"", "\"b\""),
           BAD("\"ac\"", "\"\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^[\\\"\\\\\\\\\\\\n]+$\"}", GOOD("\"\\\"\\\\\\n\""),
           BAD("\"n\"", "\"\\u000a\""));
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^a*$\",\"minLength\":2,\"maxLength\":3}",
           GOOD("\"aa\"", "\"aaa\""), BAD("\"a\"", "\"aaaa\"", "\"ab\""));
}

Test(schema, patterns_as_generators_of_schemas_write_them)
{
    SCHEMA("{\"type\":\"string\",\"pattern\":\"^(?!\\\\.)(?!.*\\\\.\\\\.)([A-Za-z0-9_'+\\\\-\\\\.]*"
           ")[A-Za-z0-9_+-]@"
           "([A-Za-z0-9][A-Za-z0-9\\\\-]*\\\\.)+[A-Za-z]{2,}$\"}",
           GOOD("\"a.b@example.com\""), BAD("\".a@b.com\"", "\"a..b@c.com\"", "\"a@b\""));
    no("{\"pattern\":\"(?=a)b\"}", "pattern", "lookahead");
}

Test(schema, lengths_are_exact_however_large)
{
    static char text[9100];
    cr_assert_eq(schema("{\"type\":\"string\",\"minLength\":130,\"maxLength\":9000}"), 0);
    for (size_t n = 120; n<9060; n += n> 200 && n < 8900 ? 311 : 1) {
        memset(text, 'x', sizeof text);
        text[0] = text[n + 1] = '"';
        text[n + 2] = '\0';
        cr_assert_eq(accepts(&made, text), n >= 130 && n <= 9000, "%zu characters", n);
    }
}

Test(schema, numbers_obey_their_bounds)
{
    SCHEMA("{\"type\":\"integer\",\"minimum\":-12,\"exclusiveMaximum\":105}",
           GOOD("-12", "-1", "0", "9", "99", "104"), BAD("-13", "105", "-0", "1000", "00"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":0.5,\"maximum\":2.5}", GOOD("1", "2"),
           BAD("0", "3", "1.0"));
    SCHEMA("{\"type\":\"number\",\"exclusiveMinimum\":-0.25,\"maximum\":1.5}",
           GOOD("-0.24", "0", "0.0", "1.5", "1.50", "1.49999"),
           BAD("-0.25", "1.51", "-0.3", "1.500001", "2"));
    SCHEMA("{\"type\":\"number\",\"minimum\":1e3}", GOOD("1000", "1000.5", "99999"), BAD("999.9"));
    SCHEMA("{\"type\":\"integer\",\"multipleOf\":7,\"maximum\":-1}", GOOD("-7", "-700"),
           BAD("7", "0", "-8"));
    SCHEMA("{\"type\":\"integer\",\"multipleOf\":1000}", GOOD("0", "-5000", "123000"),
           BAD("100", "-1500"));
    SCHEMA("{\"type\":\"number\",\"multipleOf\":0.25}", GOOD("0.25", "3", "-1.75", "0.5", "2.0"),
           BAD("0.3", "0.125", "0.250"));
    SCHEMA("{\"type\":\"integer\",\"minimum\":-1e300,\"maximum\":1e300}", GOOD("5", "-5"),
           BAD("1e5"));
}

Test(schema, objects_have_their_properties_in_order)
{
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{},\"c\":{"
           "\"type\":\"null\"}},\"required\":[\"b\"]}",
           GOOD("{\"b\":1}", "{\"a\":1,\"b\":[]}", "{ \"b\": 1, \"c\": null }",
                "{\n  \"a\": 1,\n  \"b\": 2\n}"),
           BAD("{}", "{\"a\":1}", "{\"b\":1,\"a\":1}", "{\"b\":1,\"d\":1}", "{\"b\":1,}",
               "{\"b\":1,\"b\":1}", "{,\"b\":1}", "{\"b\" :1}"));
    SCHEMA("{\"properties\":{\"x\":{},\"y\":{}},\"additionalProperties\":{\"type\":\"integer\"}}",
           GOOD("{}", "{\"x\":[]}", "{\"y\":1,\"z\":2,\"xx\":3}", "{\"\":1}"),
           BAD("{\"z\":\"\"}", "{\"z\":1,\"x\":1}", "{\"z\":1,\"y\":1}", "[]"));
    SCHEMA("{\"type\":\"object\",\"properties\":{}}", GOOD("{}", "{ }"), BAD("{\"a\":1}"));
    SCHEMA("{\"type\":\"object\",\"required\":[\"k\"]}", GOOD("{\"k\":1}", "{\"k\":1,\"j\":2}"),
           BAD("{}", "{\"j\":1}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":true}}", GOOD("{}", "{\"b\":0}"),
           BAD("{\"a\":0}"));
    SCHEMA("{\"type\":\"object\",\"properties\":{\"\\u0001\\\"\xc3\xa9\":{}}}",
           GOOD("{\"\\u0001\\\"\xc3\xa9\":1}"), BAD("{\"\\u0001\\\"\\u00e9\":1}"));
}

Test(schema, objects_obey_counts_and_patterns)
{
    SCHEMA("{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,"
           "\"maxProperties\":2}",
           GOOD("{\"a\":1,\"b\":1}", "{\"a\":1,\"c\":1}", "{\"b\":1,\"c\":1}"),
           BAD("{}", "{\"a\":1}", "{\"a\":1,\"b\":1,\"c\":1}"));
    SCHEMA("{\"type\":\"object\",\"minProperties\":1,\"maxProperties\":2}",
           GOOD("{\"a\":1}", "{\"a\":1,\"b\":1}"), BAD("{}", "{\"a\":1,\"b\":1,\"c\":1}"));
    SCHEMA("{\"type\":\"object\",\"patternProperties\":{\"^i\":{\"type\":\"integer\"},\"x$\":{"
           "\"minimum\":5}},\"additionalProperties\":{\"type\":\"null\"}}",
           GOOD("{\"i\":1}", "{\"x\":5}", "{\"ix\":5}", "{\"a\":null}", "{\"i\":1,\"ax\":9.5}"),
           BAD("{\"i\":1.5}", "{\"x\":4}", "{\"ix\":4}", "{\"ix\":5.5}", "{\"a\":1}"));
    SCHEMA("{\"properties\":{\"ab\":{\"maximum\":9}},\"patternProperties\":{\"^a\":{\"type\":"
           "\"integer\"}},\"additionalProperties\":false}",
           GOOD("{\"ab\":9}", "{\"a\":10}", "{}"), BAD("{\"ab\":10}", "{\"b\":1}", "{\"ab\":1.5}"));
    no("{\"type\":\"object\",\"minProperties\":2}", "", "minProperties");
    no("{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":2}", "", "no value obeys");
}

Test(schema, names_of_properties)
{
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]+$\",\"maxLength\":2},"
           "\"additionalProperties\":{\"type\":\"integer\"}}",
           GOOD("{}", "{\"a\":1,\"bc\":2}"), BAD("{\"d\":1}", "{\"abc\":1}", "{\"a\":\"\"}"));
    SCHEMA("{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"x\",\"y\",1]}}",
           GOOD("{\"y\":null}", "{}"), BAD("{\"z\":1}", "{\"1\":1}"));
    SCHEMA(
        "{\"type\":\"object\",\"propertyNames\":{\"type\":\"string\"},\"additionalProperties\":{}}",
        GOOD("{\"\":1}"), BAD("[]"));
    SCHEMA("{\"properties\":{\"a\":{},\"bb\":{}},\"propertyNames\":{\"maxLength\":1}}",
           GOOD("{\"a\":1}"), BAD("{\"bb\":1}"));
    SCHEMA("{\"propertyNames\":false}", GOOD("{}"), BAD("{\"a\":1}"));
    SCHEMA("{\"properties\":{\"a\":{\"not\":{}},\"b\":{\"not\":false}}}", GOOD("{\"b\":1}", "{}"),
           BAD("{\"a\":1}"));
    no("{\"required\":[\"bb\"],\"propertyNames\":{\"maxLength\":1}}", "", "no value obeys");
}

Test(schema, arrays)
{
    SCHEMA("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
           GOOD("[1]", "[1, 2,3]", "[\n 1\n]"), BAD("[]", "[1,2,3,4]", "[\"a\"]", "[1,]"));
    SCHEMA("{\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"null\"}]}",
           GOOD("[]", "[\"a\"]", "[\"a\",null]"), BAD("[1]", "[\"a\",null,1]"));
    SCHEMA(
        "{\"prefixItems\":[{\"type\":\"string\"}],\"items\":{\"type\":\"integer\"},\"minItems\":2}",
        GOOD("[\"a\",1]", "[\"a\",1,2,3]"), BAD("[\"a\"]", "[\"a\",\"b\"]"));
    SCHEMA("{\"type\":\"array\",\"items\":false}", GOOD("[]"), BAD("[1]"));
    SCHEMA("{\"type\":\"array\",\"maxItems\":0}", GOOD("[]"), BAD("[1]"));
    no("{\"type\":\"array\",\"items\":false,\"minItems\":1}", "", "no value obeys");
}

Test(schema, constants)
{
    SCHEMA("{\"enum\":[\"a\",1,null,[1,{\"k\":true}]]}",
           GOOD("\"a\"", "1", "null", "[1, {\"k\": true}]"), BAD("\"b\"", "1.0", "[1]"));
    SCHEMA("{\"type\":\"integer\",\"enum\":[1,2.5,\"x\",4],\"maximum\":3}", GOOD("1"),
           BAD("2.5", "4", "\"x\""));
    SCHEMA("{\"const\":\"q\\\"\"}", GOOD("\"q\\\"\""), BAD("\"q\""));
    SCHEMA("{\"allOf\":[{\"enum\":[1,2,3]},{\"enum\":[2,3,4]}],\"const\":3.0}", GOOD("3.0"),
           BAD("2", "4"));
    no("{\"type\":\"integer\",\"enum\":[\"a\"]}", "", "no value obeys");
}

Test(schema, combinations)
{
    SCHEMA("{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"type\":\"integer\"},{\"type\":"
           "\"null\"}]}",
           GOOD("\"a\"", "12", "null"), BAD("\"ab\"", "1.5"));
    SCHEMA(
        "{\"type\":\"integer\",\"anyOf\":[{\"maximum\":3},{\"minimum\":7},{\"type\":\"string\"}]}",
        GOOD("3", "7", "-5"), BAD("4", "6", "\"a\""));
    SCHEMA("{\"allOf\":[{\"properties\":{\"a\":{\"minimum\":1}}},{\"properties\":{\"a\":{\"type\":"
           "\"integer\"},\"b\":{}},\"required\":[\"a\"]}]}",
           GOOD("{\"a\":1}", "{\"a\":5,\"b\":0}"), BAD("{}", "{\"a\":0}", "{\"a\":1.5}"));
    SCHEMA("{\"oneOf\":[{\"type\":\"string\"},{\"type\":\"integer\",\"maximum\":0},{\"type\":"
           "\"number\",\"exclusiveMinimum\":0}]}",
           GOOD("\"a\"", "0", "0.5"), BAD("-0.5", "true"));
    SCHEMA("{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"v\":{\"type\":\"integer\"}},"
           "\"required\":[\"k\",\"v\"]},{\"properties\":{\"k\":{\"const\":\"b\"}},\"required\":["
           "\"k\"]}]}",
           GOOD("{\"k\":\"a\",\"v\":1}", "{\"k\":\"b\"}"), BAD("{\"k\":\"a\"}", "{\"k\":\"c\"}"));
    SCHEMA("{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}],\"oneOf\":[{\"type\":"
           "\"integer\"},{\"type\":\"null\"}]}",
           GOOD("1"), BAD("\"a\"", "null"));
    no("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", "oneOf", "exclude each other");
    no("{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", "oneOf",
       "exclude each other");
    no("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}", "", "no value obeys");
}

Test(schema, as_many_branches_as_there_may_be_are_told_apart)
{
    static char text[40000];
    int n = sprintf(text, "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"null\"}");
    for (int i = 0; i < 150; i++)
        n += sprintf(
            text + n,
            ",{\"properties\":{\"kind\":{\"const\":\"k%d\"},\"v\":{\"type\":\"%s\"}},\"required\":["
            "\"kind\",\"v\"]}",
            i, i % 2 ? "integer" : "string");
    sprintf(text + n, "]}}");
    SCHEMA(text, GOOD("[{\"kind\":\"k149\",\"v\":1},null,{\"kind\": \"k0\", \"v\": \"x\"}]"),
           BAD("[{\"kind\":\"k0\",\"v\":1}]", "[{\"kind\":\"k150\",\"v\":1}]"));
}

Test(schema, references_and_recursion)
{
    SCHEMA("{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
           "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/node\"},{\"type\":\"null\"}]}},\"required\":["
           "\"v\",\"next\"]}},\"$ref\":\"#/$defs/node\"}",
           GOOD("{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"),
           BAD("{\"v\":1}", "{\"v\":1,\"next\":{}}"));
    SCHEMA("{\"definitions\":{\"a/b~c\":{\"type\":\"null\"}},\"items\":{\"$ref\":\"#/definitions/"
           "a~1b~0c\",\"description\":\"x\"}}",
           GOOD("[null]", "[]"), BAD("[1]"));
    SCHEMA("{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"$ref\":\"#\"}}]}",
           GOOD("1", "[1,[2,[]]]"), BAD("[\"a\"]"));
    SCHEMA(
        "{\"properties\":{\"a\":{\"$ref\":\"#/$defs/x\",\"maximum\":5}},\"$defs\":{\"x\":{\"type\":"
        "\"integer\"}}}",
        GOOD("{\"a\":5}"), BAD("{\"a\":6}", "{\"a\":\"b\"}"));
    no("{\"$ref\":\"#\"}", "", "refers to itself");
    no("{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/"
       "$defs/a\"}",
       "$defs.a", "refers to itself");
    no("{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "", "refers to itself");
    no("{\"$ref\":\"#/$defs/none\"}", "$ref", "names nothing");
    no("{\"$ref\":\"http://x/y\"}", "$ref", "inside the schema");
    no("{\"$ref\":1}", "$ref", "a string");
}

Test(schema, formats)
{
    SCHEMA("{\"type\":\"string\",\"format\":\"date-time\"}",
           GOOD("\"2024-02-29T23:59:59Z\"", "\"1999-12-31T00:00:00.123+01:30\""),
           BAD("\"2023-02-29T00:00:00Z\"", "\"2024-01-01 00:00:00Z\"", "\"2024-13-01T00:00:00Z\"",
               "\"2024-01-01T24:00:00Z\""));
    SCHEMA("{\"format\":\"date\"}", GOOD("\"2000-02-29\"", "\"2400-12-31\""),
           BAD("\"1900-02-29\"", "\"0000-01-01\"", "\"2024-04-31\""));
    SCHEMA("{\"format\":\"time\"}", GOOD("\"01:02:03Z\""), BAD("\"1:02:03Z\"", "\"01:02:03\""));
    SCHEMA("{\"format\":\"uuid\"}", GOOD("\"123e4567-e89b-12d3-A456-426614174000\""),
           BAD("\"123e4567e89b12d3a456426614174000\""));
    SCHEMA("{\"format\":\"ipv4\"}", GOOD("\"0.0.0.0\"", "\"255.1.99.100\""),
           BAD("\"256.1.1.1\"", "\"01.1.1.1\"", "\"1.1.1\""));
    SCHEMA("{\"format\":\"ipv6\"}", GOOD("\"::\"", "\"1::8\"", "\"2001:db8::ff00:42:8329\""),
           BAD("\"1::2::3\"", "\"1:2:3:4:5:6:7\"", "\"12345::\""));
    SCHEMA("{\"format\":\"email\"}", GOOD("\"a.b+c@example.co.uk\""), BAD("\"a@b\"", "\"@b.c\""));
    SCHEMA("{\"format\":\"uri\"}", GOOD("\"https://example.com/a%20b?c=d#e\""),
           BAD("\"example.com\"", "\"http:// x\""));
    SCHEMA("{\"format\":\"duration\"}", GOOD("\"P1Y2M3DT4H5M6S\"", "\"PT5M\"", "\"P2W\""),
           BAD("\"P\"", "\"PT\"", "\"P1H\""));
    SCHEMA("{\"format\":\"hostname\"}", GOOD("\"a-b.example\""), BAD("\"-a\"", "\"a..b\""));
    SCHEMA("{\"type\":\"integer\",\"format\":\"int64\"}", GOOD("5"), BAD("\"5\""));
    SCHEMA("{\"type\":\"integer\",\"format\":\"int32\"}", GOOD("2147483647", "-2147483648"),
           BAD("2147483648", "-2147483649"));
    no("{\"format\":\"regex\"}", "format", "not supported");
}

Test(schema, what_is_no_schema_is_refused_with_its_place)
{
    no("\"bar\"", "", "an object, true or false");
    no("[]", "", "an object, true or false");
    no("false", "", "no value obeys");
    no("{\"type\":\"foo\"}", "type", "not a type");
    no("{\"type\":[]}", "type", "not a type");
    no("{\"type\":[\"string\",1]}", "type[1]", "not a type");
    no("{\"type\":\"json_schema\"}", "type", "not a type");
    no("{\"properties\":{\"a\":{\"type\":\"object\",\"properties\":{\"b\":\"bar\"}}}}",
       "properties.a.properties.b", "an object, true or false");
    no("{\"properties\":[]}", "properties", "an object of schemas");
    no("{\"required\":\"a\"}", "required", "a list of names");
    no("{\"required\":[1]}", "required[0]", "a list of names");
    no("{\"maxLength\":2000000000}", "maxLength", "limit");
    no("{\"maxLength\":-1}", "maxLength", "an integer from 0");
    no("{\"maxItems\":1.5}", "maxItems", "an integer from 0");
    no("{\"minItems\":100000}", "minItems", "limit");
    no("{\"minimum\":\"1\"}", "minimum", "a number");
    no("{\"exclusiveMinimum\":true}", "exclusiveMinimum", "a number");
    no("{\"multipleOf\":0}", "multipleOf", "above 0");
    no("{\"multipleOf\":123456}", "multipleOf", "up to");
    no("{\"pattern\":\"^+[a-z]$\"}", "pattern", "nothing to repeat");
    no("{\"pattern\":\"(?<=x)+\"}", "pattern", "lookbehind");
    no("{\"pattern\":1}", "pattern", "a string");
    no("{\"enum\":[]}", "enum", "a list of values");
    no("{\"anyOf\":[]}", "anyOf", "a list of schemas");
    no("{\"items\":[{}]}", "items", "prefixItems");
    no("{\"patternProperties\":{\"(\":{}}}", "patternProperties.(", "without its )");
}

Test(schema, keywords_that_are_not_supported_are_refused_by_name)
{
    no("{\"not\":{\"type\":\"null\"}}", "not", "\"not\"");
    no("{\"propertyNames\":{\"anyOf\":[{}]}}", "propertyNames", "not supported");
    no("{\"properties\":{\"a\":{\"if\":{},\"then\":{}}}}", "properties.a.if", "\"if\"");
    no("{\"uniqueItems\":true}", "uniqueItems", "uniqueItems");
    no("{\"contains\":{}}", "contains", "\"contains\"");
    no("{\"dependentRequired\":{}}", "dependentRequired", "not supported");
    no("{\"unevaluatedProperties\":false}", "unevaluatedProperties", "not supported");
    no("{\"foo\":1}", "foo", "not supported");
    SCHEMA("{\"$schema\":\"s\",\"$id\":\"i\",\"title\":\"t\",\"description\":\"d\",\"default\":1,"
           "\"examples\":[],\"deprecated\":true,\"x-order\":1,\"uniqueItems\":false,\"type\":"
           "\"null\"}",
           GOOD("null"), BAD("1"));
}

/* Repeats `piece` n times between head and tail. */
static char *many(const char *head, const char *piece, size_t n, const char *tail)
{
    char *s = malloc(strlen(head) + n * strlen(piece) + strlen(tail) + 1);
    char *at = stpcpy(s, head);
    for (size_t i = 0; i < n; i++)
        at = stpcpy(at, piece);
    strcpy(at, tail);
    return s;
}

Test(schema, hostile_schemas_fail_within_their_bounds)
{
    char *s = many("{\"pattern\":\"", "(", 10000, "\"}");
    no(s, "pattern", "nested too deep");
    free(s);
    char deep[8192];
    int n = sprintf(deep, "{\"$ref\":\"#/$defs/a0\",\"$defs\":{");
    for (int i = 0; i < 80; i++)
        n += sprintf(deep + n, "\"a%d\":{\"anyOf\":[{\"minimum\":1},{\"$ref\":\"#/$defs/a%d\"}]},",
                     i, i + 1);
    sprintf(deep + n, "\"a80\":{}}}");
    cr_expect_eq(schema(deep), -EINVAL);
    cr_expect(strstr(why, "nested too deep"), "%s", why);
    s = many("{\"allOf\":[", "{\"anyOf\":[{\"minimum\":1},{\"maximum\":2}]},", 30, "{}]}");
    int ret = schema(s);
    cr_expect(ret == -E2BIG || ret == -EINVAL, "%d", ret);
    free(s);
    s = many("{\"enum\":[", "\"abcdefghijklmnopqrstuvwxyz\",", 200000, "1]}");
    ret = schema(s);
    cr_expect(ret == 0 || ret == -E2BIG, "%d", ret);
    free(s);
}

Test(schema, those_of_one_builder_share_a_bound)
{
    static const char TEXT[] =
        "[{\"type\":\"string\",\"pattern\":\"^(a|b|c)*a(a|b|c){12}$\"},{\"type\":\"boolean\"}]";
    struct tr_json_fault jf;
    struct tr_json_doc *d = tr_json_parse(TEXT, sizeof(TEXT) - 1, &jf);
    const struct tr_json *huge = NULL, *small = NULL;
    struct tr_gbuild *b = tr_gbuild_new();
    struct tr_gfault f;
    tr_gnode out;

    for (struct tr_json_it it = tr_json_iter(tr_json_root(d)); tr_json_step(&it);)
        *(it.index ? &small : &huge) = it.val;
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(tr_gschema(b, d, small, &out, &f), 0);
    cr_assert_eq(tr_gschema(b, d, huge, &out, &f), -E2BIG);
    cr_assert_eq(tr_gschema(b, d, small, &out, &f), 0, "one that is too large leaves something");
    cr_assert_eq(tr_gschema(b, d, huge, &out, &f), -E2BIG);
    cr_assert_eq(tr_gschema(b, d, small, &out, &f), -E2BIG, "two do not");
    cr_assert_eq(tr_gbuild_failed(b), 0, "the builder goes on");
    tr_gbuild_free(b);
    tr_json_free(d);
}

Test(schema, json_object_is_any_object)
{
    struct tr_gbuild *b = tr_gbuild_new();
    compile(&made, b, tr_gjson_object(b));
    expect("json_object",
           GOOD("{}", "{\"a\": {\"b\": [1, null, \"\\u00e9\"]}}", "{\n\t\"a\": 1\n}"),
           BAD("[]", "{\"a\"}", "{\"a\":1,}", "x", "{} ", "{\"a\":\n1}"));
}
