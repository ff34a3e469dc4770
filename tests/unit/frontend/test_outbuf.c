/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/outbuf.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct tr_outpool pool;
static struct tr_outbuf o;

static void teardown(void)
{
    tr_outbuf_fini(&pool, &o);
    tr_outpool_fini(&pool);
}

TestSuite(outbuf, .fini = teardown);

static size_t copy(char *to)
{
    struct iovec v[2];
    size_t n = 0;
    for (int i = 0, parts = tr_outbuf_parts(&o, v); i < parts; i++) {
        memcpy(to + n, v[i].iov_base, v[i].iov_len);
        n += v[i].iov_len;
    }
    return n;
}

/* Whatever is added, given and written: what comes out is what went in, in order. */
Test(outbuf, bytes_come_out_in_order)
{
    static char model[1 << 20], seen[1 << 20];
    size_t from = 0, to = 0;
    srand(3);
    for (int i = 0; i < 20000; i++) {
        size_t n = (size_t)rand() % (rand() % 50 ? 300 : 20000);
        if (to + n > sizeof(model)) {
            memmove(model, model + from, to - from);
            to -= from;
            from = 0;
        }
        if (to + n > sizeof(model) || rand() % 2) {
            size_t len = tr_outbuf_len(&o), gone = len ? (size_t)rand() % (len + 1) : 0;
            tr_outbuf_drain(&pool, &o, gone);
            from += gone;
            if (rand() % 3 == 0)
                tr_outbuf_wait(&pool, &o);
        } else {
            for (size_t k = 0; k < n; k++)
                model[to + k] = (char)rand();
            if (rand() % 4 == 0) {
                char *body = malloc(n ? n : 1);
                memcpy(body, model + to, n);
                cr_assert_eq(tr_outbuf_give(&pool, &o, body, n), 0);
            } else {
                cr_assert_eq(tr_outbuf_add(&pool, &o, model + to, n), 0);
            }
            to += n;
        }
        cr_assert_eq(tr_outbuf_len(&o), to - from);
        if (i % 100 == 0 && to - from < sizeof(seen)) {
            cr_assert_eq(copy(seen), to - from);
            cr_assert_eq(memcmp(seen, model + from, to - from), 0);
        }
    }
}

Test(outbuf, an_empty_one_holds_no_memory)
{
    tr_outbuf_add(&pool, &o, "abc", 3);
    tr_outbuf_drain(&pool, &o, 3);
    cr_expect_null(o.buf);
    cr_expect_eq(o.cap, 0);
    cr_expect_eq(pool.n_free, 1);
}

Test(outbuf, what_waits_holds_what_it_needs)
{
    char text[3000] = {0};
    tr_outbuf_add(&pool, &o, text, sizeof(text));
    tr_outbuf_drain(&pool, &o, 2900);
    tr_outbuf_wait(&pool, &o);
    cr_expect_eq(o.cap, 256);
    cr_expect_eq(tr_outbuf_len(&o), 100);
    for (int i = 0; i < 160; i++)
        tr_outbuf_add(&pool, &o, text, 100);
    cr_expect_leq(o.cap, 17 * 1024, "%zu for %zu", o.cap, tr_outbuf_len(&o));
}
