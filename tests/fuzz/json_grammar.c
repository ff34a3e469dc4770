/* SPDX-License-Identifier: Apache-2.0 */
/* Texts made by the grammar of RFC 8259, deep and with all kinds of strings and numbers.  As made, ours
 * takes them and reads what jansson reads; with one thing twisted both take it or neither. */
#include "base/assert.h"
#include "base/emit.h"
#include "base/json.h"
#include "pick.h"
#include "testoracle/json_oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct made {
    struct pick k;
    struct tr_emit text;
    unsigned depth, serial; /* `serial` makes keys differ */
};

static const char *const blanks[] = {"", " ", "\n", "\t\r\n "};
static const char *const scalars[] = {"null", "true", "false"};
static const char *const integers[] = {"0",
                                       "-0",
                                       "7",
                                       "-12",
                                       "4294967297",
                                       "9007199254740993",
                                       "9223372036854775807",
                                       "-9223372036854775808",
                                       "9223372036854775808",
                                       "18446744073709551616"};
static const char *const fractions[] = {
    "", ".0", ".5", ".10", ".000000000000000000001", ".1234567890123456789"};
static const char *const exponents[] = {"",     "e0",    "E+5",  "e-5",   "e22",
                                        "e308", "e-324", "e400", "E-0009"};
static const char *const pieces[] = {"a",
                                     "key",
                                     "\\n\\t\\b\\f\\r",
                                     "\\\"\\\\\\/",
                                     "\\u0041",
                                     "\\u00e9",
                                     "\\u20AC",
                                     "\\ud83d\\ude00",
                                     "\xc3\xa9",
                                     "\xe2\x82\xac",
                                     "\xf0\x9f\x98\x80",
                                     "\\u0000",
                                     "\x7f",
                                     "0123456789abcdef",
                                     "\\uffff",
                                     "\xef\xbf\xbf"};

static void add(struct made *m, const char *s)
{
    tr_emit_bytes(&m->text, s, strlen(s));
}

static void string(struct made *m, bool key)
{
    char serial[16];
    add(m, "\"");
    for (unsigned i = pick(&m->k, 4); i; i--) {
        const char *p = PICK(&m->k, pieces);
        add(m, key && strcmp(p, "\\u0000") == 0 ? "0" : p);
    }
    if (key) {
        snprintf(serial, sizeof(serial), "%u", m->serial++);
        add(m, serial);
    }
    add(m, "\"");
}

static void number(struct made *m)
{
    add(m, PICK(&m->k, integers));
    add(m, PICK(&m->k, fractions));
    add(m, PICK(&m->k, exponents));
}

static void value(struct made *m);

static void container(struct made *m, bool object)
{
    m->depth++;
    add(m, object ? "{" : "[");
    for (unsigned i = 0, n = pick(&m->k, 8) == 7 ? 40 : pick(&m->k, 4); i < n; i++) {
        add(m, i ? "," : "");
        add(m, PICK(&m->k, blanks));
        if (object) {
            string(m, true);
            add(m, PICK(&m->k, blanks));
            add(m, ":");
        }
        value(m);
    }
    add(m, PICK(&m->k, blanks));
    add(m, object ? "}" : "]");
    m->depth--;
}

static void value(struct made *m)
{
    unsigned kind = pick(&m->k, 8);
    add(m, PICK(&m->k, blanks));
    if (kind >= 4 && m->depth < TR_JSON_DEPTH - 1 && m->k.n)
        container(m, kind >= 6);
    else if (kind == 1)
        string(m, false);
    else if (kind == 2)
        number(m);
    else
        add(m, PICK(&m->k, scalars));
}

static void twist(struct made *m)
{
    static const char letters[] = "{}[]\",:\\u0d8eE1-+.tfn \n\x01\x80\xc3\xa9\xff\0\x7f";
    size_t at = pick(&m->k, 65536) % m->text.len;
    switch (pick(&m->k, 3)) {
    case 0:
        m->text.buf[at] = letters[pick(&m->k, sizeof(letters) - 1)];
        break;
    case 1:
        m->text.len -= m->text.len > 1;
        memmove(m->text.buf + at, m->text.buf + at + 1, m->text.len - at);
        break;
    default:
        tr_emit_bytes(&m->text, " ", 1);
        memmove(m->text.buf + at + 1, m->text.buf + at, m->text.len - at - 1);
        m->text.buf[at] = letters[pick(&m->k, sizeof(letters) - 1)];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct made m = {.k = {data, size}};
    struct tr_json_fault f = {0};
    bool both;
    unsigned twists = pick(&m.k, 4);
    tr_emit_init(&m.text);
    value(&m);
    TR_ASSERT(!m.text.failed);
    struct tr_json_doc *d = tr_json_parse(m.text.buf, m.text.len, &f);
    if (!d)
        fprintf(stderr, "%s at %zu: %.*s\n", f.why, f.off, (int)m.text.len, m.text.buf);
    TR_ASSERT(d);
    tr_json_free(d);
    for (; twists; twists--)
        twist(&m);
    /* A copy of the exact size, so that ASan sees a read past the end. */
    char *exact = malloc(m.text.len);
    TR_ASSERT(exact);
    memcpy(exact, m.text.buf, m.text.len);
    const char *why = json_disagree(exact, m.text.len, &both);
    if (why)
        fprintf(stderr, "they differ in: %s\n%.*s\n", why, (int)m.text.len, m.text.buf);
    TR_ASSERT(!why);
    free(exact);
    tr_emit_fini(&m.text);
    return 0;
}
