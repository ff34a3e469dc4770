/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/oip_reply.c - what is answered in the Open Inference Protocol.  See oip.h. */
#include "frontend/grpc_read.h"
#include "frontend/oip.h"
#include "health.pb-c.h"
#include "oip.pb-c.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

struct sink {
    ProtobufCBuffer base; /* first: protobuf-c knows only this */
    struct tr_emit *out;
};

static void append(ProtobufCBuffer *b, size_t len, const uint8_t *data)
{
    tr_emit_bytes(((struct sink *)b)->out, (const char *)data, len);
}

static void put_message(struct tr_emit *out, const ProtobufCMessage *m)
{
    struct sink s = {.base = {append}, .out = out};

    protobuf_c_message_pack_to_buffer(m, &s.base);
}

static void put_prefix(struct tr_emit *out, size_t len)
{
    unsigned char prefix[TR_GRPC_PREFIX];

    tr_grpc_prefix(prefix, (uint32_t)len);
    tr_emit_bytes(out, (const char *)prefix, sizeof(prefix));
}

static void put_whole(struct tr_emit *out, const ProtobufCMessage *m)
{
    put_prefix(out, protobuf_c_message_get_packed_size(m));
    put_message(out, m);
}

static size_t varint(uint64_t v, unsigned char out[10])
{
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        out[n++] = (unsigned char)(v | 0x80);
    out[n++] = (unsigned char)v;
    return n;
}

/* The head of a field of bytes: its number, its length. */
static size_t field(unsigned number, size_t len, unsigned char out[11])
{
    out[0] = (unsigned char)(number << 3 | 2);
    return 1 + varint(len, out + 1);
}

/* ---- ModelInferResponse ---- */

/* Outputs and their raw contents, in the same order.  Contents are written by hand, behind the rest of
 * the message: the text, which may be large, is copied once. */
enum { OUTPUTS = 4, PARAMETERS = 4, RAW_FIELD = 6, RESPONSE_FIELD = 2, ERROR_FIELD = 1 };

struct outputs {
    Inference__ModelInferResponse__InferOutputTensor tensor[OUTPUTS], *list[OUTPUTS];
    struct {
        unsigned char head[11 + 8]; /* the field's, and what comes before `data` in it */
        size_t head_len;
        const char *data;
        size_t len;
    } raw[OUTPUTS];
    int64_t shape;
    unsigned n;
};

static void little_endian(unsigned char *out, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (unsigned char)(v >> 8 * i);
}

static void add_output(struct outputs *o, char *name, char *type)
{
    Inference__ModelInferResponse__InferOutputTensor *t = &o->tensor[o->n];

    inference__model_infer_response__infer_output_tensor__init(t);
    t->name = name;
    t->datatype = type;
    t->n_shape = 1;
    t->shape = &o->shape;
    o->list[o->n++] = t;
}

static void add_text(struct outputs *o, char *name, const char *text, size_t len)
{
    unsigned k = o->n;
    size_t n = field(RAW_FIELD, 4 + len, o->raw[k].head);

    add_output(o, name, "BYTES");
    little_endian(o->raw[k].head + n, len, 4);
    o->raw[k].head_len = n + 4;
    o->raw[k].data = text;
    o->raw[k].len = len;
}

static void add_count(struct outputs *o, char *name, uint64_t v)
{
    unsigned k = o->n;
    size_t n = field(RAW_FIELD, 8, o->raw[k].head);

    add_output(o, name, "INT64");
    little_endian(o->raw[k].head + n, v, 8);
    o->raw[k].head_len = n + 8;
    o->raw[k].len = 0;
}

static void make_outputs(struct outputs *o, const struct tr_oip_reply *r)
{
    o->n = 0;
    o->shape = 1;
    if (r->has_text && r->wants & TR_OIP_TEXT)
        add_text(o, "text_output", r->text, r->text_len);
    if (r->finish && r->wants & TR_OIP_FINISH)
        add_text(o, "finish_reason", r->finish, strlen(r->finish));
    if (r->has_usage && r->wants & TR_OIP_PROMPT_TOKENS)
        add_count(o, "prompt_tokens", r->prompt_tokens);
    if (r->has_usage && r->wants & TR_OIP_COMPLETION_TOKENS)
        add_count(o, "completion_tokens", r->completion_tokens);
}

static size_t raw_bytes(const struct outputs *o)
{
    size_t n = 0;

    for (unsigned k = 0; k < o->n; k++)
        n += o->raw[k].head_len + o->raw[k].len;
    return n;
}

static void put_raw(struct tr_emit *out, const struct outputs *o)
{
    for (unsigned k = 0; k < o->n; k++) {
        tr_emit_bytes(out, (const char *)o->raw[k].head, o->raw[k].head_len);
        if (o->raw[k].len)
            tr_emit_bytes(out, o->raw[k].data, o->raw[k].len);
    }
}

struct parameters {
    Inference__InferParameter value[PARAMETERS];
    Inference__ModelInferResponse__ParametersEntry entry[PARAMETERS], *list[PARAMETERS];
    unsigned n;
};

static Inference__InferParameter *add_parameter(struct parameters *p, char *key)
{
    unsigned k = p->n++;

    inference__infer_parameter__init(&p->value[k]);
    inference__model_infer_response__parameters_entry__init(&p->entry[k]);
    p->entry[k].key = key;
    p->entry[k].value = &p->value[k];
    p->list[k] = &p->entry[k];
    return &p->value[k];
}

static void add_string(struct parameters *p, char *key, const char *v)
{
    Inference__InferParameter *value = add_parameter(p, key);

    value->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    value->string_param = (char *)v;
}

static void make_parameters(struct parameters *p, const struct tr_oip_reply *r)
{
    p->n = 0;
    if (!r->in_stream)
        return;
    Inference__InferParameter *last = add_parameter(p, "triton_final_response");
    last->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    last->bool_param = r->last;
    if (r->stream_id)
        add_string(p, "stream_id", r->stream_id);
    if (r->error && r->code)
        add_string(p, "error_code", r->code);
    if (r->error && r->param)
        add_string(p, "error_param", r->param);
}

void tr_oip_reply(struct tr_emit *out, const struct tr_oip_reply *r)
{
    Inference__ModelInferResponse m = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    struct outputs o;
    struct parameters p;
    unsigned char head[11], error_head[11];
    size_t head_len = 0, error_len = r->error ? strlen(r->error) : 0, error_head_len = 0;

    make_outputs(&o, r);
    make_parameters(&p, r);
    m.model_name = (char *)r->model;
    m.model_version = "1";
    m.id = (char *)r->id;
    m.n_outputs = o.n;
    m.outputs = o.list;
    m.n_parameters = p.n;
    m.parameters = p.list;
    size_t len = inference__model_infer_response__get_packed_size(&m) + raw_bytes(&o);
    if (r->in_stream)
        head_len = field(RESPONSE_FIELD, len, head);
    if (error_len)
        error_head_len = field(ERROR_FIELD, error_len, error_head);
    put_prefix(out, error_head_len + error_len + head_len + len);
    if (error_len) {
        tr_emit_bytes(out, (const char *)error_head, error_head_len);
        tr_emit_bytes(out, r->error, error_len);
    }
    tr_emit_bytes(out, (const char *)head, head_len);
    put_message(out, &m.base);
    put_raw(out, &o);
}

/* ---- the other calls ---- */

static int copy_string(const char *s, char **out)
{
    *out = strdup(s);
    return *out ? 0 : -ENOMEM;
}

int tr_oip_read_name(const char *msg, size_t len, char **name, char **version)
{
    struct tr_pb_arena a;
    int rc = -EINVAL;

    tr_pb_arena_init(&a, len);
    const Inference__ModelReadyRequest *m =
        inference__model_ready_request__unpack(&a.allocator, len, (const uint8_t *)msg);
    if (m && !(rc = copy_string(m->name, name)) && (rc = copy_string(m->version, version)))
        free(*name);
    tr_pb_arena_fini(&a);
    return rc;
}

int tr_oip_read_service(const char *msg, size_t len, char **service)
{
    struct tr_pb_arena a;
    int rc = -EINVAL;

    tr_pb_arena_init(&a, len);
    const Grpc__Health__V1__HealthCheckRequest *m =
        grpc__health__v1__health_check_request__unpack(&a.allocator, len, (const uint8_t *)msg);
    if (m)
        rc = copy_string(m->service, service);
    tr_pb_arena_fini(&a);
    return rc;
}

void tr_oip_bool(struct tr_emit *out, bool v)
{
    Inference__ServerLiveResponse m = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    m.live = v;
    put_whole(out, &m.base);
}

void tr_oip_health(struct tr_emit *out, enum tr_health v)
{
    Grpc__Health__V1__HealthCheckResponse m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)v;
    put_whole(out, &m.base);
}

void tr_oip_server_metadata(struct tr_emit *out, const char *version)
{
    Inference__ServerMetadataResponse m = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

    m.name = "tokenring";
    m.version = (char *)version;
    put_whole(out, &m.base);
}

void tr_oip_model_metadata(struct tr_emit *out, const char *name)
{
    static char *const names[] = {"text_input",       "stream",        "sampling_parameters",
                                  "text_output",      "finish_reason", "prompt_tokens",
                                  "completion_tokens"};
    static char *const types[] = {"BYTES", "BOOL", "BYTES", "BYTES", "BYTES", "INT64", "INT64"};
    enum { N = sizeof(names) / sizeof(names[0]), N_INPUTS = 3 };
    Inference__ModelMetadataResponse m = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    Inference__ModelMetadataResponse__TensorMetadata t[N], *list[N];
    char *version = "1";
    int64_t one = 1;

    for (unsigned i = 0; i < N; i++) {
        inference__model_metadata_response__tensor_metadata__init(&t[i]);
        t[i].name = names[i];
        t[i].datatype = types[i];
        t[i].n_shape = 1;
        t[i].shape = &one;
        list[i] = &t[i];
    }
    m.name = (char *)name;
    m.n_versions = 1;
    m.versions = &version;
    m.platform = "tokenring";
    m.n_inputs = N_INPUTS;
    m.inputs = list;
    m.n_outputs = N - N_INPUTS;
    m.outputs = list + N_INPUTS;
    put_whole(out, &m.base);
}
