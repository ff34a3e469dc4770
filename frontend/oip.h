/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/oip.h - messages of the Open Inference Protocol: requests read, answers written.
 *
 * Path: http [oip] > tokens > subq > engine > step > ring > detok > event [oip] > frame > socket
 *
 * Frontend only, pure, any thread.  A message comes from a socket: nothing of it is trusted, its fields
 * that are not known here are skipped, and reading it takes bounded memory (pb_arena.h).  What is
 * written has its five bytes in front and is ready for the wire (grpc_read.h).
 *
 * Tensors, each of one element, in raw or typed contents:
 *   in   text_input BYTES · stream BOOL, optional · sampling_parameters BYTES (JSON), optional
 *   out  text_output BYTES · with the last response finish_reason BYTES, prompt_tokens and
 *        completion_tokens INT64
 *
 * Format: frontend/oip.proto; tensors and the flag of the last response as Triton's servers of language
 * models have them. */
#ifndef TR_FRONTEND_OIP_H
#define TR_FRONTEND_OIP_H

#include "base/emit.h"
#include "frontend/fault.h"
#include "frontend/http.h"
#include "frontend/pb_arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TR_OIP_ID_MAX = 256 /* bytes of a request's id: every response repeats it */ };

/* Outputs. */
enum {
    TR_OIP_TEXT = 1,
    TR_OIP_FINISH = 2,
    TR_OIP_PROMPT_TOKENS = 4,
    TR_OIP_COMPLETION_TOKENS = 8,
    TR_OIP_ALL = 15
};

/* ---- ModelInferRequest ---- */

struct tr_oip_infer {
    const char *id, *model; /* never NULL; UTF-8 */
    struct tr_slice text;
    struct tr_slice sampling;     /* p NULL: none */
    bool stream;                  /* the tensor; if there is none: as it was before */
    bool has_stream, empty_final; /* there is one; triton_enable_empty_final_response */
    unsigned wants;               /* TR_OIP_* */
    uint64_t timeout_ns;          /* parameter `timeout`, microseconds; 0: none */
    struct tr_pb_arena arena;     /* private; holds all of it */
};

/* Reads one message.  0, or -EINVAL with *f; `id` is known then too if it could be read.  Close it in
 * either case.  It must not be moved. */
int tr_oip_infer_open(struct tr_oip_infer *q, const char *msg, size_t len, struct tr_fault *f);
void tr_oip_infer_close(struct tr_oip_infer *q);

/* Its id alone, of a message that will not be read; "" if it has none that is good. */
void tr_oip_read_id(const char *msg, size_t len, char id[TR_OIP_ID_MAX + 1]);

/* Writes the request as the body of a completion (params.h).  `timeout_ns`: its deadline, 0 none.  0, or
 * -EINVAL with *f. */
int tr_oip_infer_body(const struct tr_oip_infer *q, uint64_t timeout_ns, struct tr_emit *out,
                      struct tr_fault *f);

/* ---- ModelInferResponse, ModelStreamInferResponse ---- */

struct tr_oip_reply {
    const char *model, *id;
    unsigned wants;
    bool in_stream; /* ModelStreamInferResponse, which says whether it is the last */
    bool last;
    const char *stream_id; /* in a stream: told with the first response; else NULL */

    bool has_text;
    const char *text;
    size_t text_len;
    const char *finish; /* "stop", "length", or NULL */
    bool has_usage;
    uint64_t prompt_tokens, completion_tokens;

    const char *error;        /* in a stream: why there is no more, or NULL */
    const char *code, *param; /* of it; param may be NULL */
};

/* Appends one message.  Without memory `out` says so. */
void tr_oip_reply(struct tr_emit *out, const struct tr_oip_reply *r);

/* ---- the other calls ---- */

/* Name and version of a ModelReadyRequest or ModelMetadataRequest: `name` and `version` are from malloc
 * and the caller's.  0, -EINVAL or -ENOMEM. */
int tr_oip_read_name(const char *msg, size_t len, char **name, char **version);
/* The same of the service in a HealthCheckRequest. */
int tr_oip_read_service(const char *msg, size_t len, char **service);

/* ServerLiveResponse, ServerReadyResponse, ModelReadyResponse: they are the same on the wire. */
void tr_oip_bool(struct tr_emit *out, bool v);
/* HealthCheckResponse. */
enum tr_health { TR_HEALTH_SERVING = 1, TR_HEALTH_NOT_SERVING = 2, TR_HEALTH_SERVICE_UNKNOWN = 3 };
void tr_oip_health(struct tr_emit *out, enum tr_health v);
void tr_oip_server_metadata(struct tr_emit *out, const char *version);
void tr_oip_model_metadata(struct tr_emit *out, const char *name);

/* Whether a request may name this version of a model. */
bool tr_oip_version_is_ours(const char *version);

#endif
