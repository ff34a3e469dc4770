/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/stream_id.h"

#include <criterion/criterion.h>
#include <string.h>

Test(stream_id, what_is_written_is_read_back)
{
    struct tr_stream_id id = {0xfffffffe, 0xffffffff, 0x0123456789abcdefull}, got;
    char text[TR_STREAM_ID_BYTES];
    tr_stream_id_format(id, text);
    cr_assert_eq(tr_stream_id_parse(text, strlen(text), &got), 0);
    cr_assert(got.slot == id.slot && got.gen == id.gen && got.rand == id.rand);
}

Test(stream_id, any_other_spelling_is_refused)
{
    struct tr_stream_id got;
    const char *bad[] = {"",
                         "tr-",
                         "tr-1-2",
                         "tr-1-2-3",
                         "tr-01-2-0123456789abcdef",
                         "tr-1-2-0123456789ABCDEF",
                         "tr-1-2-0123456789abcdef0",
                         "tr-100000000-2-0123456789abcdef",
                         "xx-1-2-0123456789abcdef",
                         "tr-1-2-0123456789abcdef ",
                         "tr--2-0123456789abcdef"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert_neq(tr_stream_id_parse(bad[i], strlen(bad[i]), &got), 0, "%s", bad[i]);
}
