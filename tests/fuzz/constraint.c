/* SPDX-License-Identifier: Apache-2.0 */
/* A constraint from the input: the first byte chooses schema, pattern or grammar, then comes its text up to
 * 0xFF, then bytes that choose how an answer is written.  Whatever they are: compiling ends within its bounds
 * with a program or a sentence; the program is one that the engine opens; what is written under a schema is
 * JSON; a pattern's automaton and its program take the same texts. */
#include "base/assert.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/build.h"
#include "grammar/gbnf.h"
#include "grammar/match.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t image[TR_GRAM_BYTES];

/* Writes a text of the program, the bytes at p choosing; true if it came to an end. */
static bool write(const struct tr_gprog *prog, const uint8_t *p, size_t n, char *out, size_t cap,
                  size_t *len)
{
    struct tr_gmatch m;
    struct tr_gmatch next;
    tr_gmatch_start(&m, prog);
    *len = 0;
    for (size_t i = 0; *len < cap; i++) {
        uint8_t from = n ? p[i % n] : 0;
        if (tr_gmatch_may_end(&m, prog) && (from & 1 || tr_gmatch_is_over(&m, prog)))
            return true;
        unsigned k = 0;
        for (; k < 256; k++) {
            uint8_t byte = (uint8_t)(from + k);
            next = m;
            if (tr_gmatch_bytes(&next, prog, &byte, 1))
                break;
        }
        if (k == 256)
            return false;
        m = next;
        out[(*len)++] = (char)(from + k);
    }
    return false;
}

/* Of a schema: JSON, but that a key may stand twice. */
static void is_json(const struct tr_gprog *prog, const uint8_t *p, size_t n)
{
    char out[600];
    size_t len;
    struct tr_json_fault f;
    if (!write(prog, p, n, out, sizeof out, &len))
        return;
    struct tr_json_doc *doc = tr_json_parse(out, len, &f);
    TR_ASSERT(doc || strstr(f.why, "twice"));
    tr_json_free(doc);
}

/* Of a pattern: the automaton takes what the program takes. */
static void is_same(const struct tr_gprog *prog, const char *pattern, size_t len, const uint8_t *p,
                    size_t n)
{
    struct tr_gbudget w;
    struct tr_gmatch m;
    int ret = 0;
    tr_gbudget_init(&w);
    const struct tr_fa *a = tr_re_fa(&w, pattern, len, TR_RE_WHOLE, &ret, NULL);
    TR_ASSERT(a);
    tr_gmatch_start(&m, prog);
    bool yes = tr_gmatch_bytes(&m, prog, p, n) && tr_gmatch_may_end(&m, prog);
    if (tr_utf8_is_valid((const char *)p, n))
        TR_ASSERT(yes == tr_fa_takes(a, (const char *)p, n));
    else
        TR_ASSERT(!yes);
    char out[600];
    size_t out_len;
    if (write(prog, p, n, out, sizeof out, &out_len))
        TR_ASSERT(tr_fa_takes(a, out, out_len));
    tr_gbudget_fini(&w);
}

static int compile(struct tr_gbuild *b, unsigned kind, const char *text, size_t len, tr_gnode *node,
                   struct tr_errbuf *err)
{
    struct tr_json_fault fault;
    struct tr_gfault f = {.why = ""};
    if (kind == 1)
        return tr_gregex(b, text, len, node, err);
    if (kind == 2)
        return tr_gbnf(b, text, len, node, err);
    struct tr_json_doc *doc = tr_json_parse(text, len, &fault);
    if (!doc)
        return tr_errf(err, -EINVAL, "%s", fault.why);
    int ret = tr_gschema(b, doc, tr_json_root(doc), node, &f);
    if (ret)
        (void)tr_errf(err, ret, "%s", f.why);
    tr_json_free(doc);
    return ret;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tr_errbuf err = {.msg = ""};
    struct tr_gprog prog;
    tr_gnode node;
    size_t len;
    if (!size)
        return 0;
    unsigned kind = data[0] % 3;
    const char *text = (const char *)data + 1;
    const uint8_t *cut = memchr(data + 1, 0xFF, size - 1);
    size_t text_len = cut ? (size_t)(cut - data) - 1 : size - 1;
    const uint8_t *rest = cut ? cut + 1 : data + size;
    size_t n = (size_t)(data + size - rest);
    struct tr_gbuild *b = tr_gbuild_new();
    TR_ASSERT(b);
    int ret = compile(b, kind, text, text_len, &node, &err);
    if (!ret)
        ret = tr_gbuild_finish(b, node, image, sizeof image, &len, &err);
    tr_gbuild_free(b);
    if (ret) {
        TR_ASSERT((ret == -EINVAL || ret == -E2BIG) && err.msg[0]);
        return 0;
    }
    TR_ASSERT(tr_gprog_open(&prog, image, len, 1, &err) == 0);
    if (kind == 0)
        is_json(&prog, rest, n);
    else if (kind == 1)
        is_same(&prog, text, text_len, rest, n);
    return 0;
}
