/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_call.h - what a client says on /v1/ws: one text message is one call.
 *
 *   {"type":"start","stream":LABEL,"request":{... as POST /v1/streams},"credit":N}
 *   {"type":"cancel","id":STREAM}
 *   {"type":"resume","id":STREAM,"stream":LABEL,"after":N,"credit":N}
 *   {"type":"credit","stream":LABEL,"tokens":N}
 *
 * `credit` and `after` need not be there; other members are ignored.  Frontend only, pure.  The request
 * inside a start is found, not read: a long one is a worker's (task.h), and a message costs the event
 * loop one pass over its bytes. */
#ifndef TR_FRONTEND_WS_CALL_H
#define TR_FRONTEND_WS_CALL_H

#include "frontend/fault.h"
#include "frontend/http.h"
#include "shm/stream_id.h"

enum {
    TR_WS_LABEL_BYTES = 128,       /* longest label, in bytes of UTF-8 */
    TR_WS_ENVELOPE_BYTES = 4 << 10 /* longest message without the request in it */
};

enum tr_ws_call_type { TR_WS_START, TR_WS_CANCEL, TR_WS_RESUME, TR_WS_CREDIT };

struct tr_ws_call {
    enum tr_ws_call_type type;
    char label[TR_WS_LABEL_BYTES + 1]; /* "": none was given */
    struct tr_stream_id id;            /* CANCEL, RESUME */
    int64_t after;                     /* RESUME: number of the last event it has; -1 none */
    uint64_t credit;         /* START, RESUME: UINT64_MAX no limit; CREDIT: so many more */
    struct tr_slice request; /* START: the object, in the message */
};

/* 0 and the call, or -EINVAL and what is wrong; the label is then set if it could be read.  text may
 * be NULL if it is empty. */
int tr_ws_call_read(const char *text, size_t len, struct tr_ws_call *out, struct tr_fault *f);

#endif
