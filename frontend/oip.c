/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/oip.c - a ModelInferRequest, read and put into the words of a completion.  See oip.h; what is
 * answered is in oip_reply.c. */
#include "frontend/oip.h"

#include "base/json.h"
#include "oip.pb-c.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIMS_MAX = 8, NUMBER_MAX = 40 /* characters of a number that comes as a string */ };

typedef Inference__ModelInferRequest request;
typedef Inference__ModelInferRequest__InferInputTensor tensor;
typedef Inference__ModelInferRequest__ParametersEntry parameter;

static int bad(struct tr_fault *f, const char *param, const char *why)
{
    return tr_fault_set(f, TR_ERR_BAD_PARAM, param, "%s", why);
}

static bool is_utf8(const char *p, size_t len)
{
    return tr_utf8_valid_prefix(p, len) == len;
}

/* ---- tensors ---- */

static const struct input {
    const char *name, *type;
} inputs[] = {{"text_input", "BYTES"}, {"stream", "BOOL"}, {"sampling_parameters", "BYTES"}};
enum { TEXT, STREAM, SAMPLING, INPUTS };

static int find_input(const char *name)
{
    int i = 0;

    while (i < INPUTS && strcmp(name, inputs[i].name) != 0)
        i++;
    return i;
}

static bool has_one_element(const tensor *t)
{
    if (t->n_shape > DIMS_MAX)
        return false;
    for (size_t i = 0; i < t->n_shape; i++)
        if (t->shape[i] != 1)
            return false;
    return true;
}

static bool has_typed(const tensor *t)
{
    return t->contents && (t->contents->n_bool_contents || t->contents->n_bytes_contents);
}

/* The bytes of the one element, wherever they are. */
static int element(const struct input *in, const tensor *t, const ProtobufCBinaryData *raw,
                   struct tr_slice *out, struct tr_fault *f)
{
    bool is_text = *in->type == 'B' && in->type[1] == 'Y';
    const Inference__InferTensorContents *c = t->contents;

    if (raw && has_typed(t))
        return bad(f, in->name, "The contents of a tensor may come raw or typed, not both.");
    if (raw) {
        size_t prefix = is_text ? 4 : 0;
        const uint8_t *p = raw->data;
        if (raw->len < prefix + (is_text ? 0 : 1))
            return bad(f, in->name, "The raw contents are too short.");
        size_t len =
            is_text ? (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24
                    : 1;
        if (raw->len - prefix != len)
            return bad(f, in->name, "The raw contents are not exactly one element.");
        *out = (struct tr_slice){(const char *)p + prefix, len};
        return 0;
    }
    if (!c || (is_text ? c->n_bytes_contents : c->n_bool_contents) != 1 ||
        (is_text ? c->n_bool_contents : c->n_bytes_contents) != 0)
        return bad(f, in->name, "The tensor must have exactly one element of its type.");
    static const char truth[] = {0, 1};
    if (is_text)
        *out = (struct tr_slice){(const char *)c->bytes_contents[0].data, c->bytes_contents[0].len};
    else
        *out = (struct tr_slice){&truth[c->bool_contents[0] != 0], 1};
    if (!out->p)
        out->p = ""; /* an empty one has no bytes */
    return 0;
}

static int read_input(struct tr_oip_infer *q, unsigned *seen, const tensor *t,
                      const ProtobufCBinaryData *raw, struct tr_fault *f)
{
    int i = find_input(t->name);
    struct tr_slice v = {"", 0};

    if (i == INPUTS)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "inputs",
                            "The inputs are text_input, stream and sampling_parameters.");
    if (*seen & 1u << i)
        return bad(f, inputs[i].name, "The input comes twice.");
    *seen |= 1u << i;
    if (strcmp(t->datatype, inputs[i].type) != 0)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, inputs[i].name, "The datatype of %s is %s.",
                            inputs[i].name, inputs[i].type);
    if (!has_one_element(t))
        return bad(f, inputs[i].name, "The tensor must have exactly one element.");
    for (size_t k = 0; k < t->n_parameters; k++)
        if (strcmp(t->parameters[k]->key, "shared_memory_region") == 0)
            return tr_fault_set(f, TR_ERR_UNSUPPORTED_PARAM, inputs[i].name,
                                "Tensors in shared memory are not supported.");
    if (element(&inputs[i], t, raw, &v, f))
        return -EINVAL;
    if (i == STREAM) {
        q->has_stream = true;
        q->stream = v.p[0] != 0;
        return 0;
    }
    if (!is_utf8(v.p, v.len))
        return bad(f, inputs[i].name, "The text is not valid UTF-8.");
    *(i == TEXT ? &q->text : &q->sampling) = v;
    return 0;
}

static int read_inputs(struct tr_oip_infer *q, const request *m, struct tr_fault *f)
{
    unsigned seen = 0;

    if (m->n_raw_input_contents && m->n_raw_input_contents != m->n_inputs)
        return bad(f, "raw_input_contents",
                   "There must be raw contents for every input, or for none.");
    for (size_t i = 0; i < m->n_inputs; i++)
        if (read_input(q, &seen, m->inputs[i],
                       m->n_raw_input_contents ? &m->raw_input_contents[i] : NULL, f))
            return -EINVAL;
    if (!(seen & 1u << TEXT))
        return bad(f, "text_input", "text_input is required.");
    return 0;
}

static int read_outputs(struct tr_oip_infer *q, const request *m, struct tr_fault *f)
{
    static const char *const names[] = {"text_output", "finish_reason", "prompt_tokens",
                                        "completion_tokens"};
    enum { OUTPUTS = sizeof(names) / sizeof(names[0]) };

    for (size_t i = 0; i < m->n_outputs; i++) {
        unsigned k = 0;
        while (k < OUTPUTS && strcmp(m->outputs[i]->name, names[k]) != 0)
            k++;
        if (k == OUTPUTS)
            return bad(f, "outputs",
                       "The outputs are text_output, finish_reason, prompt_tokens and "
                       "completion_tokens.");
        q->wants |= 1u << k;
    }
    if (!m->n_outputs)
        q->wants = TR_OIP_ALL;
    return 0;
}

/* ---- parameters ---- */

static int read_timeout(struct tr_oip_infer *q, const Inference__InferParameter *v,
                        struct tr_fault *f)
{
    int64_t us;

    if (v->parameter_choice_case == INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM)
        us = v->int64_param;
    else if (v->parameter_choice_case ==
                 INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_UINT64_PARAM &&
             v->uint64_param <= INT64_MAX)
        us = (int64_t)v->uint64_param;
    else
        us = -1;
    if (us < 0 || us > INT64_MAX / 1000)
        return bad(f, "timeout", "timeout must be a number of microseconds.");
    q->timeout_ns = (uint64_t)us * 1000; /* 0: none, as in Triton */
    return 0;
}

static int read_parameters(struct tr_oip_infer *q, const request *m, struct tr_fault *f)
{
    for (size_t i = 0; i < m->n_parameters; i++) {
        const parameter *p = m->parameters[i];
        if (!p->value)
            continue;
        if (strcmp(p->key, "timeout") == 0 && read_timeout(q, p->value, f))
            return -EINVAL;
        if (strcmp(p->key, "triton_enable_empty_final_response") == 0)
            q->empty_final = p->value->parameter_choice_case ==
                                 INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM &&
                             p->value->bool_param;
    }
    return 0;
}

bool tr_oip_version_is_ours(const char *version)
{
    return !*version || strcmp(version, "1") == 0;
}

/* ---- the message ---- */

int tr_oip_infer_open(struct tr_oip_infer *q, const char *msg, size_t len, struct tr_fault *f)
{
    bool stream = q->stream;

    *q = (struct tr_oip_infer){.id = "", .model = "", .stream = stream};
    tr_pb_arena_init(&q->arena, len);
    const request *m =
        inference__model_infer_request__unpack(&q->arena.allocator, len, (const uint8_t *)msg);
    if (!m && q->arena.full)
        return tr_fault_set(f, TR_ERR_BODY_TOO_LARGE, NULL,
                            "The message has more parts than its size allows.");
    if (!m)
        return tr_fault_set(f, TR_ERR_BAD_REQUEST, NULL, "The message is no ModelInferRequest.");
    size_t id_len = strlen(m->id);
    if (id_len > TR_OIP_ID_MAX || !is_utf8(m->id, id_len))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "id", "The id must be UTF-8 of at most %d bytes.",
                            TR_OIP_ID_MAX);
    q->id = m->id;
    if (!is_utf8(m->model_name, strlen(m->model_name)))
        return bad(f, "model_name", "The name is not valid UTF-8.");
    q->model = m->model_name;
    if (!tr_oip_version_is_ours(m->model_version))
        return tr_fault_set(f, TR_ERR_MODEL_NOT_FOUND, "model_version",
                            "The only version of a model here is 1.");
    return read_parameters(q, m, f) || read_outputs(q, m, f) || read_inputs(q, m, f) ? -EINVAL : 0;
}

void tr_oip_infer_close(struct tr_oip_infer *q)
{
    tr_pb_arena_fini(&q->arena);
}

void tr_oip_read_id(const char *msg, size_t len, char id[TR_OIP_ID_MAX + 1])
{
    struct tr_pb_arena a;

    *id = '\0';
    tr_pb_arena_init(&a, len);
    const Inference__ModelInferRequestId *m =
        inference__model_infer_request_id__unpack(&a.allocator, len, (const uint8_t *)msg);
    size_t n = m ? strlen(m->id) : 0;
    if (n && n <= TR_OIP_ID_MAX && is_utf8(m->id, n))
        memcpy(id, m->id, n + 1);
    tr_pb_arena_fini(&a);
}

/* ---- the body of a completion ---- */

/* Fields that a tensor, or the call itself, says. */
static bool is_taken(const struct tr_json *key)
{
    return TR_JSON_EQ(key, "prompt") || TR_JSON_EQ(key, "messages") || TR_JSON_EQ(key, "model") ||
           TR_JSON_EQ(key, "stream") || TR_JSON_EQ(key, "stream_options");
}

/* Fields of which only one value can be honoured: a response has one text and nothing beside it, and
 * nobody can come back to a call. */
static bool is_refused(const struct tr_json *key, const struct tr_json *v)
{
    int64_t n;

    if (v->type == TR_JSON_NULL)
        return false;
    if (TR_JSON_EQ(key, "n"))
        return tr_json_i64(v, &n) == 0 && n != 1;
    if (TR_JSON_EQ(key, "logprobs"))
        return v->type != TR_JSON_BOOL || v->u.b;
    if (TR_JSON_EQ(key, "on_disconnect"))
        return TR_JSON_EQ(v, "hold");
    return false;
}

/* Whether a string under this key may be meant as a number: clients of Triton send them so. */
static bool is_numeric(const struct tr_json *key)
{
    enum { BOOL = 1, NUM = 1, INT = 1, STRING = 0, ARRAY = 0, OBJECT = 0, OWN = 0, WORD = 0 };
    enum { NEVER = 0, IGNORED = 0 };
    static const struct {
        const char *name;
        bool numeric;
    } rows[] = {
#define X(name, who, kind, ...) {#name, kind},
#include "frontend/params.def"
#undef X
        {"seed", true}, {"n", true}}; /* which have readers of their own */

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].numeric && tr_json_eq(key, rows[i].name, strlen(rows[i].name)))
            return true;
    return false;
}

/* A value under a key, a number that comes as a string as the number. */
static void put_value(struct tr_emit *out, const struct tr_json_doc *doc, const struct tr_json *key,
                      const struct tr_json *v)
{
    struct tr_json_fault fault;
    struct tr_json_doc *inner = NULL;

    tr_emit_keyn(out, key->u.s, key->len);
    if (v->type == TR_JSON_STRING && v->len <= NUMBER_MAX && is_numeric(key))
        inner = tr_json_parse(v->u.s, v->len, &fault);
    const struct tr_json *number = inner ? tr_json_root(inner) : NULL;
    if (number && (number->type == TR_JSON_NUMBER || number->type == TR_JSON_BOOL))
        tr_emit_json(out, inner, number);
    else
        tr_emit_json(out, doc, v);
    tr_json_free(inner);
}

/* The shorter of both; theirs is checked with the rest of the body. */
static void shorter(const struct tr_json *theirs, uint64_t *timeout_ns, bool *keep)
{
    double s;

    *keep = false;
    if (tr_json_f64(theirs, &s) || !(s > 0 && s < 1e9))
        *keep = true;
    else if (!*timeout_ns || s * 1e9 < (double)*timeout_ns)
        *timeout_ns = (uint64_t)(s * 1e9) + 1;
}

static int put_sampling(struct tr_emit *out, const struct tr_json_doc *doc, uint64_t *timeout_ns,
                        struct tr_fault *f)
{
    const struct tr_json *root = tr_json_root(doc);
    char name[32];

    if (root->type != TR_JSON_OBJECT)
        return bad(f, "sampling_parameters", "sampling_parameters must be a JSON object.");
    for (struct tr_json_it it = tr_json_iter(root); tr_json_step(&it);) {
        if (is_taken(it.key))
            return tr_fault_set(f, TR_ERR_BAD_PARAM, "sampling_parameters",
                                "%.*s does not belong into sampling_parameters.", (int)it.key->len,
                                it.key->u.s);
        if (is_refused(it.key, it.val)) {
            snprintf(name, sizeof(name), "%.*s", (int)it.key->len, it.key->u.s);
            return tr_fault_set(f, TR_ERR_UNSUPPORTED_PARAM, name,
                                "This value of %s is not supported over gRPC.", name);
        }
        bool keep = true;
        if (TR_JSON_EQ(it.key, "timeout_s"))
            shorter(it.val, timeout_ns, &keep);
        if (!keep)
            continue;
        if (TR_JSON_EQ(it.key, "timeout_s"))
            *timeout_ns = 0; /* it is refused by its reader: not a second one beside it */
        put_value(out, doc, it.key, it.val);
    }
    return 0;
}

int tr_oip_infer_body(const struct tr_oip_infer *q, uint64_t timeout_ns, struct tr_emit *out,
                      struct tr_fault *f)
{
    struct tr_json_fault fault;
    struct tr_json_doc *doc = NULL;
    int rc = 0;

    if (q->timeout_ns && (!timeout_ns || q->timeout_ns < timeout_ns))
        timeout_ns = q->timeout_ns;
    if (q->sampling.p && q->sampling.len) {
        doc = tr_json_parse(q->sampling.p, q->sampling.len, &fault);
        if (!doc && fault.no_memory)
            return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
        if (!doc)
            return tr_fault_set(f, TR_ERR_BAD_JSON, "sampling_parameters",
                                "sampling_parameters is not valid JSON: %s (byte %zu).", fault.why,
                                fault.off);
    }
    tr_emit_obj(out);
    tr_emit_kstr(out, "model", q->model);
    tr_emit_kstrn(out, "prompt", q->text.p, q->text.len);
    tr_emit_kbool(out, "stream", q->stream);
    if (doc)
        rc = put_sampling(out, doc, &timeout_ns, f);
    if (timeout_ns) {
        tr_emit_key(out, "timeout_s");
        tr_emit_f64(out, (double)timeout_ns / 1e9);
    }
    tr_emit_obj_end(out);
    tr_json_free(doc);
    if (rc == 0 && out->failed)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    return rc;
}
