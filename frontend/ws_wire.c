/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_wire.c - see ws_wire.h.  wslay's own layer of messages is not used: it keeps the length
 * that a frame announces, answers some violations without a code, and queues a pong for each ping. */
#include "frontend/ws_wire.h"

#include "base/utf8.h"

#include <wslay/wslay.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 1 << 10, FREE_BYTES = 64 << 10 };

/* ---- life ---- */

static ssize_t give_input(uint8_t *buf, size_t len, int flags, void *arg)
{
    struct tr_ws_wire *w = arg;
    size_t n = w->in_len < len ? w->in_len : len;

    (void)flags;
    if (n == 0)
        return -1;
    memcpy(buf, w->in, n);
    w->in += n;
    w->in_len -= n;
    w->untold += n;
    return (ssize_t)n;
}

int tr_ws_wire_init(struct tr_ws_wire *w, const struct tr_ws_limits *lim)
{
    struct wslay_frame_callbacks cb = {.recv_callback = give_input};

    *w = (struct tr_ws_wire){.lim = *lim};
    return wslay_frame_context_init(&w->frames, &cb, w) ? -ENOMEM : 0;
}

static size_t held_of(size_t cap)
{
    return cap > FREE_BYTES ? cap - FREE_BYTES : 0;
}

char *tr_ws_take(struct tr_ws_wire *w)
{
    char *message = w->message;

    *w->lim.held -= held_of(w->cap);
    w->message = NULL;
    w->len = w->cap = w->checked = 0;
    w->whole = w->in_message = false;
    return message;
}

void tr_ws_wire_fini(struct tr_ws_wire *w)
{
    if (w->lim.held)
        free(tr_ws_take(w));
    if (w->frames)
        wslay_frame_context_free(w->frames);
    w->frames = NULL;
}

bool tr_ws_begun(const struct tr_ws_wire *w)
{
    return w->in_message || w->in_frame || w->untold;
}

/* ---- messages ---- */

static enum tr_ws_ev bad(struct tr_ws_wire *w, enum tr_ws_code code, const char *why)
{
    w->over = true;
    w->code = (uint16_t)code;
    w->why = why;
    free(tr_ws_take(w));
    return TR_WS_BAD;
}

/* A small message always has its place; the large ones share theirs.  0, -ENOMEM, or -EAGAIN when the
 * others have it all. */
static int make_room(struct tr_ws_wire *w, size_t need)
{
    size_t cap = w->cap ? w->cap : FIRST_BYTES;

    if (need <= w->cap)
        return 0;
    while (cap < need)
        cap *= 2;
    cap = cap < w->lim.max_message ? cap : w->lim.max_message;
    size_t more = held_of(cap) - held_of(w->cap);
    if (more && *w->lim.held + more > w->lim.max_held)
        return -EAGAIN;
    char *p = realloc(w->message, cap);
    if (!p)
        return -ENOMEM;
    *w->lim.held += more;
    w->message = p;
    w->cap = cap;
    return 0;
}

/* Whether p[0, n), n <= 3, may become a character. */
static bool may_begin(const char *p, size_t n)
{
    unsigned char low[4] = {0x80, 0x80, 0x80, 0x80}, high[4] = {0xbf, 0xbf, 0xbf, 0xbf};

    memcpy(low, p, n);
    memcpy(high, p, n);
    return tr_utf8_len(low, 4) > n || tr_utf8_len(high, 4) > n;
}

/* What has come of a text is good so far; with its end there is no half character. */
static bool text_good(struct tr_ws_wire *w, bool end)
{
    w->checked += tr_utf8_valid_prefix(w->message + w->checked, w->len - w->checked);
    size_t rest = w->len - w->checked;
    return rest == 0 || (!end && rest < 4 && may_begin(w->message + w->checked, rest));
}

static enum tr_ws_ev add_data(struct tr_ws_wire *w, const struct wslay_frame_iocb *f)
{
    bool end = f->fin && w->left == 0;
    int rc = make_room(w, w->len + f->data_length);

    if (rc)
        return rc == -EAGAIN ? bad(w, TR_WS_TRY_LATER, "Too many large messages are on their way.")
                             : bad(w, TR_WS_INTERNAL, "Out of memory.");
    if (f->data_length)
        memcpy(w->message + w->len, f->data, f->data_length);
    w->len += f->data_length;
    if (!w->binary && w->len && !text_good(w, end))
        return bad(w, TR_WS_BAD_TEXT, "The text is not UTF-8.");
    if (!end)
        return TR_WS_MORE;
    w->in_message = false;
    w->whole = true;
    return TR_WS_MESSAGE;
}

/* ---- control frames ---- */

static bool is_code(uint16_t c)
{
    return (c >= 1000 && c <= 1003) || (c >= 1007 && c <= 1014) || (c >= 3000 && c <= 4999);
}

static enum tr_ws_ev closed(struct tr_ws_wire *w)
{
    uint16_t code = TR_WS_NO_STATUS;

    if (w->control_len >= 2)
        code = (uint16_t)(w->control[0] << 8 | w->control[1]);
    if (w->control_len == 1 || (w->control_len && !is_code(code)))
        return bad(w, TR_WS_PROTOCOL_ERROR, "A close has a code that may not be sent.");
    if (w->control_len > 2 && !tr_utf8_is_valid((const char *)w->control + 2, w->control_len - 2))
        return bad(w, TR_WS_BAD_TEXT, "The reason of a close is not UTF-8.");
    w->over = true;
    w->code = code;
    return TR_WS_CLOSE;
}

static enum tr_ws_ev add_control(struct tr_ws_wire *w, const struct wslay_frame_iocb *f)
{
    if (f->data_length)
        memcpy(w->control + w->control_len, f->data, f->data_length);
    w->control_len += f->data_length;
    if (w->left)
        return TR_WS_MORE;
    return f->opcode == TR_WS_OP_CLOSE  ? closed(w)
           : f->opcode == TR_WS_OP_PING ? TR_WS_PING
                                        : TR_WS_PONG;
}

/* ---- frames ---- */

/* wslay has looked at what a control frame and a length must be. */
static enum tr_ws_ev head_seen(struct tr_ws_wire *w, const struct wslay_frame_iocb *f)
{
    bool control = wslay_is_ctrl_frame(f->opcode), goes_on = f->opcode == WSLAY_CONTINUATION_FRAME;

    if (f->rsv)
        return bad(w, TR_WS_PROTOCOL_ERROR, "A reserved bit is set.");
    if (!f->mask)
        return bad(w, TR_WS_PROTOCOL_ERROR, "A client's frames must be masked.");
    if (f->opcode > (control ? TR_WS_OP_PONG : TR_WS_BINARY))
        return bad(w, TR_WS_PROTOCOL_ERROR, "There is no such kind of frame.");
    if (!control && goes_on != w->in_message)
        return bad(w, TR_WS_PROTOCOL_ERROR,
                   goes_on ? "A frame goes on with a message that has not begun."
                           : "A message begins inside another.");
    if (!control && f->payload_length > w->lim.max_message - w->len)
        return bad(w, TR_WS_TOO_BIG, "The message is larger than --max-body.");
    if (control)
        w->control_len = 0;
    else if (!goes_on)
        w->binary = f->opcode == WSLAY_BINARY_FRAME;
    w->in_message |= !control;
    w->in_frame = true;
    w->left = f->payload_length;
    return TR_WS_MORE;
}

/* Of a client's frame, which is masked; wslay takes the shortest way to write a length only. */
static size_t head_bytes(uint64_t len)
{
    return 2 + (len < 126 ? 0 : len < 65536 ? 2 : 8) + 4;
}

static enum tr_ws_ev piece(struct tr_ws_wire *w, const struct wslay_frame_iocb *f)
{
    bool first = !w->in_frame;

    if (first && head_seen(w, f) == TR_WS_BAD)
        return TR_WS_BAD;
    w->untold -= f->data_length + (first ? head_bytes(f->payload_length) : 0);
    w->left -= f->data_length;
    w->in_frame = w->left > 0;
    return wslay_is_ctrl_frame(f->opcode) ? add_control(w, f) : add_data(w, f);
}

enum tr_ws_ev tr_ws_feed(struct tr_ws_wire *w, const char *data, size_t len, size_t *used)
{
    enum tr_ws_ev ev = TR_WS_MORE;

    *used = len;
    if (w->over)
        return TR_WS_MORE;
    if (w->whole)
        free(tr_ws_take(w));
    w->in = data;
    w->in_len = len;
    while (ev == TR_WS_MORE) {
        struct wslay_frame_iocb f = {0};
        ssize_t n = wslay_frame_recv(w->frames, &f);
        if (n == WSLAY_ERR_WANT_READ)
            break;
        ev = n < 0 ? bad(w, TR_WS_PROTOCOL_ERROR,
                         "A control frame is long or cut up, or a length is written wrongly.")
                   : piece(w, &f);
    }
    *used = len - w->in_len;
    return ev;
}

/* ---- ours ---- */

size_t tr_ws_head(uint8_t head[TR_WS_HEAD_BYTES], enum tr_ws_op op, size_t len)
{
    unsigned n = len < 126 ? 0 : len < 65536 ? 2 : 8;

    head[0] = (uint8_t)(0x80 | (unsigned)op);
    head[1] = n == 0 ? (uint8_t)len : n == 2 ? 126 : 127;
    for (unsigned i = 0; i < n; i++)
        head[2 + i] = (uint8_t)((uint64_t)len >> 8 * (n - 1 - i));
    return 2 + n;
}

size_t tr_ws_close_payload(uint8_t out[TR_WS_CONTROL_BYTES], uint16_t code, const char *why)
{
    size_t n = why ? strlen(why) : 0;

    if (code == TR_WS_NO_STATUS)
        return 0;
    n = n < TR_WS_CONTROL_BYTES - 2 ? n : TR_WS_CONTROL_BYTES - 2;
    out[0] = (uint8_t)(code >> 8);
    out[1] = (uint8_t)code;
    for (size_t i = 0; i < n; i++)
        out[2 + i] = (uint8_t)why[i];
    return n + 2;
}
