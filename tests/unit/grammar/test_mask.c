/* SPDX-License-Identifier: Apache-2.0 */
#include "compile.h"

#include "grammar/mask.h"

#include <stdlib.h>

static struct compiled c;

static struct tr_gpiece_of piece(void *arg, uint32_t id)
{
    const char *s = ((const char **)arg)[id];
    struct tr_gpiece_of o = {s, strlen(s), TR_GPIECE_TEXT};
    if (s[0] == '\1')
        o.kind = TR_GPIECE_CONTROL;
    if (s[0] == '\2')
        o.kind = TR_GPIECE_EOG;
    return o;
}

Test(mask, says_what_may_be_sampled)
{
    const char *vocab[] = {"\1", "\2", "a", "ab", "b", "abc", "", "a", "\1x", "ca"};
    void *image;
    size_t len;
    struct tr_gpieces v;
    uint32_t mask;
    struct tr_gmatch m;
    cr_assert_eq(tr_gpieces_build(10, piece, vocab, &image, &len), 0);
    cr_assert_eq(tr_gpieces_open(&v, image, len, NULL), 0);
    struct tr_gmasks *k = tr_gmasks_open(&v, 0);
    struct tr_gbuild *b = tr_gbuild_new();
    compile(&c, b,
            SEQ(b, tr_g_repeat(b, lit(b, "ab"), 1, 2), tr_g_repeat(b, tr_g_token(b, 8), 0, 1)));
    tr_gmatch_start(&m, &c.p);
    cr_assert_eq(tr_gmasks_fill(k, &c.p, &m, &mask), 3);
    cr_assert_eq(mask, 1u << 2 | 1u << 3 | 1u << 7);
    tr_gmatch_bytes(&m, &c.p, "ab", 2);
    cr_assert_eq(tr_gmasks_fill(k, &c.p, &m, &mask), 5);
    cr_assert_eq(mask, 1u << 1 | 1u << 2 | 1u << 3 | 1u << 7 | 1u << 8);
    tr_gmatch_token(&m, &c.p, 8);
    tr_gmasks_fill(k, &c.p, &m, &mask);
    cr_assert_eq(mask, 1u << 1);
    tr_gmasks_close(k);
    free(image);
}
