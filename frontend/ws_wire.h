/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_wire.h - the frames of one WebSocket: bytes in, messages out (RFC 6455 sections 5 to 8).
 *
 * Path: http [frames] > tokens > subq > engine > step > ring > detok > event > [frame] > socket
 *
 * Frontend only.  No I/O, no clock, no callback.  wslay takes frames apart; which of them make a
 * message, what is a violation and with which code it is answered, is decided here.
 *
 *   I1  memory: what wslay needs for one frame's head (about 4 KiB), and the present message, which
 *       grows with the bytes that have come, never with a length that was only announced
 *   I2  what is wrong is found at the first byte that shows it, in a text also (1007)
 *   I3  after CLOSE or BAD nothing is read any more
 *
 * Nothing is negotiated: a reserved bit is a violation. */
#ifndef TR_FRONTEND_WS_WIRE_H
#define TR_FRONTEND_WS_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_WS_HEAD_BYTES = 10, TR_WS_CONTROL_BYTES = 125 };

enum tr_ws_op {
    TR_WS_TEXT = 1,
    TR_WS_BINARY = 2,
    TR_WS_OP_CLOSE = 8,
    TR_WS_OP_PING = 9,
    TR_WS_OP_PONG = 10
};

enum tr_ws_code {
    TR_WS_NORMAL = 1000,
    TR_WS_GOING_AWAY = 1001,
    TR_WS_PROTOCOL_ERROR = 1002,
    TR_WS_UNSUPPORTED = 1003,
    TR_WS_NO_STATUS = 1005, /* never sent: a close without a code */
    TR_WS_BAD_TEXT = 1007,
    TR_WS_POLICY = 1008,
    TR_WS_TOO_BIG = 1009,
    TR_WS_INTERNAL = 1011,
    TR_WS_TRY_LATER = 1013
};

enum tr_ws_ev {
    TR_WS_MORE,    /* all input used, nothing to report */
    TR_WS_MESSAGE, /* `message`: whole, a text is valid UTF-8; good until the next feed unless taken */
    TR_WS_PING,    /* `control`: to be sent back in a pong */
    TR_WS_PONG,
    TR_WS_CLOSE, /* `code`: what the client said, to be answered with the same */
    TR_WS_BAD    /* `code` to close with, and `why` */
};

struct tr_ws_limits {
    size_t max_message; /* bytes of one message; more: 1009 */
    size_t *held;       /* bytes held for messages beyond 64 KiB each, of all who share the count */
    size_t max_held;    /* at most so many of them; more: 1013 */
};

struct wslay_frame_context;

struct tr_ws_wire {
    /* valid after the event that says so */
    char *message;
    size_t len;
    bool binary;
    uint8_t control[TR_WS_CONTROL_BYTES];
    size_t control_len;
    uint16_t code;
    const char *why; /* one sentence, static */

    /* private */
    struct tr_ws_limits lim;
    struct wslay_frame_context *frames;
    const char *in; /* of this feed, not yet in wslay's buffer */
    size_t in_len;
    size_t untold;  /* bytes that wslay has and has told nothing of: a head that is not whole */
    size_t cap;     /* of message */
    size_t checked; /* bytes of a text known to be UTF-8 */
    uint64_t left;  /* bytes of the present frame still to come */
    bool in_frame;  /* its head has been seen */
    bool in_message, whole, over;
};

/* All but `held` is copied.  0 or -ENOMEM. */
int tr_ws_wire_init(struct tr_ws_wire *w, const struct tr_ws_limits *lim);
void tr_ws_wire_fini(struct tr_ws_wire *w);

/* Takes input; *used says how much.  Call again with the rest, also if nothing is left, until it says
 * MORE. */
enum tr_ws_ev tr_ws_feed(struct tr_ws_wire *w, const char *data, size_t len, size_t *used);

/* The message of the last event, from malloc, the caller's from here on; NULL if it is empty. */
char *tr_ws_take(struct tr_ws_wire *w);

/* Whether a message, or a frame, has begun and is not whole. */
bool tr_ws_begun(const struct tr_ws_wire *w);

/* The head of a frame of ours with `len` bytes, unmasked and final; its length. */
size_t tr_ws_head(uint8_t head[TR_WS_HEAD_BYTES], enum tr_ws_op op, size_t len);

/* The payload of a close; `why` may be NULL and is cut.  Its length, 0 for NO_STATUS. */
size_t tr_ws_close_payload(uint8_t out[TR_WS_CONTROL_BYTES], uint16_t code, const char *why);

#endif
