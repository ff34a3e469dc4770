/* SPDX-License-Identifier: Apache-2.0 */
/* A segment of the spool, whatever its bytes are: reading it ends, tells each byte once, and gives only
 * what can be written again.  The bytes also as the payload of a good frame between two others, which
 * are found. */
#include "base/assert.h"
#include "ledger/frame.h"
#include "ledger/pack.h"
#include "ledger/spool_read.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sum {
    uint64_t entries, bad_bytes, next;
    uint64_t known; /* entries with the stream id of ours */
};

static const char ours[] = "tr-1-2-0000000000000003";

static void on_entry(void *arg, const struct tr_entry *e)
{
    struct sum *s = arg;
    uint8_t packed[TR_PACK_MAX], again[TR_PACK_MAX];
    struct tr_entry back;
    size_t n = tr_pack(e, packed);
    TR_ASSERT(tr_unpack(packed, n, &back) == 0 && back.kind == e->kind);
    TR_ASSERT(tr_pack(&back, again) == n && memcmp(packed, again, n) == 0);
    s->entries++;
    s->known += e->kind == TR_ENTRY_DELIVERY && strcmp(e->delivery.stream_id, ours) == 0;
}

static void on_bad(void *arg, const struct tr_spool_bad *b)
{
    struct sum *s = arg;
    TR_ASSERT(b->len > 0 && b->at >= s->next);
    s->next = b->at + b->len;
    s->bad_bytes += b->len;
}

static struct sum scan(const uint8_t *p, size_t n, bool whole)
{
    struct sum s = {0};
    struct tr_spool_reader r = {on_entry, on_bad, &s};
    size_t done = tr_spool_scan(p, n, whole, "x", 0, &r);
    TR_ASSERT(done <= n && (!whole || done == n) && s.next <= n);
    /* What is left for later is less than a frame can be. */
    TR_ASSERT(n - done < TR_FRAME_HEAD + TR_FRAME_PAYLOAD_MAX);
    return s;
}

static size_t put_ours(uint8_t *out)
{
    struct tr_entry e = {.kind = TR_ENTRY_DELIVERY};
    uint8_t packed[TR_PACK_MAX];
    memcpy(e.delivery.stream_id, ours, sizeof(ours));
    return tr_frame_put(packed, tr_pack(&e, packed), out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sum all = scan(data, size, true), part = scan(data, size, false);
    TR_ASSERT(part.entries == all.entries);
    size = size < TR_FRAME_PAYLOAD_MAX ? size : TR_FRAME_PAYLOAD_MAX;
    uint8_t *buf = malloc(3 * (TR_FRAME_HEAD + TR_FRAME_PAYLOAD_MAX));
    if (!buf)
        abort();
    size_t n = put_ours(buf);
    n += tr_frame_put(data, size, buf + n);
    n += put_ours(buf + n);
    struct sum framed = scan(buf, n, true);
    TR_ASSERT(framed.known >= 2 && framed.entries <= 3);
    TR_ASSERT(framed.entries == 3 ? framed.bad_bytes == 0
                                  : framed.bad_bytes == TR_FRAME_HEAD + size);
    free(buf);
    return 0;
}
