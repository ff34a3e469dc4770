/* SPDX-License-Identifier: Apache-2.0 */
/* What a client may send on a WebSocket, from any bytes.  The first byte says in what pieces they
 * arrive: what is seen must not depend on it, every byte is used once, memory stays within the bound,
 * and whatever a message says is read or refused. */
#include "base/assert.h"
#include "frontend/ws_call.h"
#include "frontend/ws_wire.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_MESSAGE = 100000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t mix(uint64_t sum, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum = (sum ^ ((const unsigned char *)p)[i]) * 1099511628211ull;
    return sum;
}

static uint64_t call(uint64_t sum, const struct tr_ws_wire *w)
{
    static struct tr_ws_call c;
    static struct tr_fault f;
    TR_ASSERT(tr_utf8_is_valid(w->message, w->len));
    int rc = tr_ws_call_read(w->message, w->len, &c, &f);
    TR_ASSERT(rc == 0 || (f.err != TR_OK && f.message[0]));
    TR_ASSERT(memchr(c.label, '\0', sizeof(c.label)));
    if (rc == 0 && c.type == TR_WS_START) {
        TR_ASSERT(c.request.p > w->message && c.request.len >= 2 && c.request.p[0] == '{' &&
                  c.request.p + c.request.len < w->message + w->len);
        sum = mix(sum, c.request.p, c.request.len);
    }
    return mix(sum, c.label, strlen(c.label));
}

/* A digest of all events. */
static uint64_t digest(const char *s, size_t len, size_t step)
{
    size_t held = 0, at = 0;
    struct tr_ws_limits lim = {.max_message = MAX_MESSAGE, .held = &held, .max_held = MAX_MESSAGE};
    struct tr_ws_wire w;
    uint64_t sum = 14695981039346656037ull;
    TR_ASSERT(tr_ws_wire_init(&w, &lim) == 0);
    for (;;) {
        size_t used, n = len - at < step ? len - at : step;
        enum tr_ws_ev ev = tr_ws_feed(&w, s + at, n, &used);
        TR_ASSERT(used <= n && w.len <= MAX_MESSAGE && held <= MAX_MESSAGE);
        at += used;
        if (ev != TR_WS_MORE) /* which comes with every piece */
            sum = mix(sum, &ev, sizeof(ev));
        if (ev == TR_WS_MESSAGE) {
            sum = mix(sum, w.message, w.len);
            if (!w.binary)
                sum = call(sum, &w);
        } else if (ev == TR_WS_PING || ev == TR_WS_PONG) {
            TR_ASSERT(w.control_len <= TR_WS_CONTROL_BYTES);
            sum = mix(sum, w.control, w.control_len);
        } else if (ev == TR_WS_CLOSE || ev == TR_WS_BAD) {
            sum = mix(sum, &w.code, sizeof(w.code));
            TR_ASSERT(ev == TR_WS_CLOSE || held == 0);
            break;
        } else {
            TR_ASSERT(used == n && w.untold <= TR_WS_HEAD_BYTES + 4 /* and a mask */);
        }
        if (ev == TR_WS_MORE && at == len)
            break;
    }
    tr_ws_wire_fini(&w);
    TR_ASSERT(held == 0);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    const char *s = (const char *)data + 1;
    size_t len = size - 1;
    uint64_t whole = digest(s, len, len + 1);
    TR_ASSERT(digest(s, len, 1 + data[0] % 64) == whole);
    return 0;
}
