/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/grpc_read.h"
#include "frontend/oip.h"

#include "oip.pb-c.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

typedef Inference__ModelInferRequest request;

/* A request that is put together field by field, then packed. */
static request m;
static Inference__ModelInferRequest__InferInputTensor tensor[4], *tensors[4];
static Inference__InferTensorContents contents[4];
static ProtobufCBinaryData raw[4], typed[4];
static Inference__ModelInferRequest__ParametersEntry entry[2], *entries[2];
static Inference__InferParameter value[2];
static int64_t one = 1;
static protobuf_c_boolean truth = 1;
static uint8_t wire[1 << 16];
static size_t wire_len;

static struct tr_oip_infer q;
static struct tr_fault f;
static struct tr_emit out;

static void setup(void)
{
    inference__model_infer_request__init(&m);
    m.model_name = "sim";
    m.id = "7";
    m.inputs = tensors;
    m.raw_input_contents = raw;
    m.parameters = entries;
    tr_emit_init(&out);
}

static void teardown(void)
{
    tr_oip_infer_close(&q);
    tr_emit_fini(&out);
}

TestSuite(oip, .init = setup, .fini = teardown);

static Inference__ModelInferRequest__InferInputTensor *add(char *name, char *type)
{
    size_t k = m.n_inputs++;

    inference__model_infer_request__infer_input_tensor__init(&tensor[k]);
    tensor[k].name = name;
    tensor[k].datatype = type;
    tensor[k].n_shape = 1;
    tensor[k].shape = &one;
    tensors[k] = &tensor[k];
    return &tensor[k];
}

static void add_raw(char *name, char *type, const char *bytes, size_t len)
{
    add(name, type);
    raw[m.n_raw_input_contents++] = (ProtobufCBinaryData){len, (uint8_t *)bytes};
}

static void add_typed(char *name, const char *text)
{
    size_t k = m.n_inputs;

    typed[k] = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    inference__infer_tensor_contents__init(&contents[k]);
    contents[k].n_bytes_contents = 1;
    contents[k].bytes_contents = &typed[k];
    add(name, "BYTES")->contents = &contents[k];
}

static Inference__InferParameter *add_parameter(char *key)
{
    size_t k = m.n_parameters++;

    inference__infer_parameter__init(&value[k]);
    inference__model_infer_request__parameters_entry__init(&entry[k]);
    entry[k].key = key;
    entry[k].value = &value[k];
    entries[k] = &entry[k];
    return &value[k];
}

static int read_it(void)
{
    wire_len = inference__model_infer_request__pack(&m, wire);
    tr_oip_infer_close(&q);
    q = (struct tr_oip_infer){.stream = true};
    f = (struct tr_fault){0};
    return tr_oip_infer_open(&q, (char *)wire, wire_len, &f);
}

static const char *body(uint64_t timeout_ns)
{
    tr_emit_reset(&out);
    cr_assert_eq(tr_oip_infer_body(&q, timeout_ns, &out, &f), 0, "%s", f.message);
    tr_emit_bytes(&out, "", 1);
    return out.buf;
}

static void refused(enum tr_err err, const char *param)
{
    cr_expect_eq(f.err, err, "%s", f.message);
    cr_expect_str_eq(f.param, param);
}

Test(oip, raw_tensors_become_a_completion)
{
    add_raw("text_input", "BYTES", "\5\0\0\0say \"", 9);
    add_raw("stream", "BOOL", "\0", 1);
    add_raw("sampling_parameters", "BYTES", "\30\0\0\0{\"max_tokens\":3,\"n\":1  }", 28);
    cr_assert_eq(read_it(), 0, "%s", f.message);
    cr_assert(q.has_stream && !q.stream);
    cr_assert_str_eq(q.id, "7");
    cr_assert_eq(q.wants, TR_OIP_ALL);
    cr_assert_str_eq(
        body(0),
        "{\"model\":\"sim\",\"prompt\":\"say \\\"\",\"stream\":false,\"max_tokens\":3,\"n\":1}");
}

Test(oip, typed_tensors_say_the_same)
{
    add_typed("text_input", "hello");
    add_typed("sampling_parameters", "{\"stop\":[\"x\"]}");
    inference__infer_tensor_contents__init(&contents[2]);
    contents[2].n_bool_contents = 1;
    contents[2].bool_contents = &truth;
    add("stream", "BOOL")->contents = &contents[2];
    cr_assert_eq(read_it(), 0, "%s", f.message);
    cr_assert(q.has_stream && q.stream);
    cr_assert_str_eq(body(0),
                     "{\"model\":\"sim\",\"prompt\":\"hello\",\"stream\":true,\"stop\":[\"x\"]}");
}

Test(oip, without_the_tensor_the_call_decides_about_streaming)
{
    add_typed("text_input", "");
    cr_assert_eq(read_it(), 0, "%s", f.message);
    cr_assert(!q.has_stream && q.stream);
    cr_assert_str_eq(body(0), "{\"model\":\"sim\",\"prompt\":\"\",\"stream\":true}");
}

Test(oip, numbers_may_come_as_strings)
{
    add_typed("text_input", "a");
    add_typed("sampling_parameters",
              "{\"temperature\":\"0.1\",\"ignore_eos\":\"true\",\"seed\":\"no\",\"user\":\"12\"}");
    cr_assert_eq(read_it(), 0);
    cr_assert_str_eq(body(0), "{\"model\":\"sim\",\"prompt\":\"a\",\"stream\":true,\"temperature\":"
                              "0.1,\"ignore_eos\":true,\"seed\":\"no\",\"user\":\"12\"}");
}

Test(oip, the_shortest_deadline_counts)
{
    add_typed("text_input", "a");
    add_typed("sampling_parameters", "{\"timeout_s\":5}");
    Inference__InferParameter *v = add_parameter("timeout");
    v->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    v->int64_param = 3000000;
    cr_assert_eq(read_it(), 0, "%s", f.message);
    cr_assert_eq(q.timeout_ns, 3000000000);
    cr_assert(strstr(body(0), "\"timeout_s\":3.0"), "%s", out.buf);
    cr_assert(strstr(body(2000000000), "\"timeout_s\":2.0"), "%s", out.buf);
    v->int64_param = 0;
    cr_assert_eq(read_it(), 0);
    cr_assert(strstr(body(0), "\"timeout_s\":5.00"), "%s", out.buf);
    v->int64_param = -1;
    cr_assert_neq(read_it(), 0);
    refused(TR_ERR_BAD_PARAM, "timeout");
}

Test(oip, a_deadline_that_is_none_is_left_to_its_reader)
{
    add_typed("text_input", "a");
    add_typed("sampling_parameters", "{\"timeout_s\":\"soon\"}");
    cr_assert_eq(read_it(), 0);
    cr_assert_str_eq(body(1000000000),
                     "{\"model\":\"sim\",\"prompt\":\"a\",\"stream\":true,\"timeout_s\":\"soon\"}");
}

Test(oip, the_flag_of_an_empty_last_response_is_read)
{
    add_typed("text_input", "a");
    Inference__InferParameter *v = add_parameter("triton_enable_empty_final_response");
    v->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    v->bool_param = 1;
    cr_assert_eq(read_it(), 0);
    cr_assert(q.empty_final);
}

Test(oip, only_the_outputs_that_were_asked_for_are_wanted)
{
    Inference__ModelInferRequest__InferRequestedOutputTensor o, *list = &o;

    add_typed("text_input", "a");
    inference__model_infer_request__infer_requested_output_tensor__init(&o);
    o.name = "text_output";
    m.n_outputs = 1;
    m.outputs = &list;
    cr_assert_eq(read_it(), 0);
    cr_assert_eq(q.wants, TR_OIP_TEXT);
    o.name = "logits";
    cr_assert_neq(read_it(), 0);
    refused(TR_ERR_BAD_PARAM, "outputs");
}

/* What each of these does to a good request makes it a bad one. */
static void no_text(void)
{
    m.n_inputs = 0;
}
static void other_input(void)
{
    tensor[0].name = "tokens";
}
static void other_type(void)
{
    tensor[0].datatype = "FP32";
}
static void two_elements(void)
{
    static int64_t two = 2;
    tensor[0].shape = &two;
}
static void twice(void)
{
    add_typed("text_input", "b");
}
static void raw_too(void)
{
    m.n_raw_input_contents = 1;
    raw[0] = (ProtobufCBinaryData){5, (uint8_t *)"\1\0\0\0a"};
}
static void no_utf8(void)
{
    typed[0] = (ProtobufCBinaryData){2, (uint8_t *)"\xc3("};
}
static void long_id(void)
{
    static char id[TR_OIP_ID_MAX + 2];
    memset(id, 'x', sizeof(id) - 1);
    m.id = id;
}
static void other_version(void)
{
    m.model_version = "2";
}

Test(oip, what_is_no_request_is_refused_with_its_field)
{
    static const struct {
        void (*spoil)(void);
        enum tr_err err;
        const char *param;
    } rows[] = {
        {no_text, TR_ERR_BAD_PARAM, "text_input"},
        {other_input, TR_ERR_BAD_PARAM, "inputs"},
        {other_type, TR_ERR_BAD_PARAM, "text_input"},
        {two_elements, TR_ERR_BAD_PARAM, "text_input"},
        {twice, TR_ERR_BAD_PARAM, "text_input"},
        {raw_too, TR_ERR_BAD_PARAM, "text_input"},
        {no_utf8, TR_ERR_BAD_PARAM, "text_input"},
        {long_id, TR_ERR_BAD_PARAM, "id"},
        {other_version, TR_ERR_MODEL_NOT_FOUND, "model_version"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        setup();
        add_typed("text_input", "a");
        cr_assert_eq(read_it(), 0);
        rows[i].spoil();
        cr_expect_neq(read_it(), 0, "row %zu", i);
        refused(rows[i].err, rows[i].param);
    }
}

Test(oip, raw_contents_are_exactly_one_element)
{
    static const struct {
        const char *bytes;
        size_t len;
    } bad[] = {
        {"", 0}, {"\1\0\0", 3}, {"\2\0\0\0a", 5}, {"\1\0\0\0ab", 6}, {"\377\377\377\377a", 5}};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setup();
        add_raw("text_input", "BYTES", bad[i].bytes, bad[i].len);
        cr_expect_neq(read_it(), 0, "row %zu", i);
        refused(TR_ERR_BAD_PARAM, "text_input");
    }
}

Test(oip, what_sampling_parameters_cannot_say_is_refused)
{
    static const struct {
        const char *json;
        enum tr_err err;
        const char *param;
    } bad[] = {
        {"{", TR_ERR_BAD_JSON, "sampling_parameters"},
        {"[]", TR_ERR_BAD_PARAM, "sampling_parameters"},
        {"{\"prompt\":\"b\"}", TR_ERR_BAD_PARAM, "sampling_parameters"},
        {"{\"stream\":true}", TR_ERR_BAD_PARAM, "sampling_parameters"},
        {"{\"n\":2}", TR_ERR_UNSUPPORTED_PARAM, "n"},
        {"{\"logprobs\":1}", TR_ERR_UNSUPPORTED_PARAM, "logprobs"},
        {"{\"on_disconnect\":\"hold\"}", TR_ERR_UNSUPPORTED_PARAM, "on_disconnect"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setup();
        add_typed("text_input", "a");
        add_typed("sampling_parameters", bad[i].json);
        cr_assert_eq(read_it(), 0);
        cr_expect_neq(tr_oip_infer_body(&q, 0, &out, &f), 0, "%s", bad[i].json);
        refused(bad[i].err, bad[i].param);
        tr_emit_fini(&out);
    }
}

/* Two bytes on the wire, dozens in memory: the arena ends it. */
Test(oip, a_message_of_many_parts_takes_bounded_memory)
{
    for (size_t i = 0; i + 1 < sizeof(wire); i += 2) {
        wire[i] = 5 << 3 | 2; /* an empty tensor */
        wire[i + 1] = 0;
    }
    cr_assert_neq(tr_oip_infer_open(&q, (char *)wire, sizeof(wire), &f), 0);
    cr_assert_eq(f.err, TR_ERR_BODY_TOO_LARGE);
}

Test(oip, fields_that_are_not_known_are_skipped)
{
    static const uint8_t more[] = {0xfa, 0x3f, 2, 'h', 'i', 0x80, 0x40, 1};

    add_typed("text_input", "a");
    cr_assert_eq(read_it(), 0);
    memcpy(wire + wire_len, more, sizeof(more));
    tr_oip_infer_close(&q);
    q = (struct tr_oip_infer){0};
    cr_assert_eq(tr_oip_infer_open(&q, (char *)wire, wire_len + sizeof(more), &f), 0, "%s",
                 f.message);
    cr_assert_eq(q.text.len, 1);
}

/* ---- answers ---- */

static const uint8_t *message(size_t *len)
{
    cr_assert(out.len >= TR_GRPC_PREFIX && out.buf[0] == 0);
    unsigned char want[TR_GRPC_PREFIX];
    tr_grpc_prefix(want, (uint32_t)(out.len - TR_GRPC_PREFIX));
    cr_assert_arr_eq(out.buf, want, TR_GRPC_PREFIX);
    *len = out.len - TR_GRPC_PREFIX;
    return (uint8_t *)out.buf + TR_GRPC_PREFIX;
}

Test(oip, a_piece_of_a_stream_says_that_it_is_not_the_last)
{
    size_t len;

    tr_oip_reply(&out, &(struct tr_oip_reply){.model = "sim",
                                              .id = "7",
                                              .wants = TR_OIP_ALL,
                                              .in_stream = true,
                                              .has_text = true,
                                              .text = "hi",
                                              .text_len = 2});
    const uint8_t *p = message(&len);
    Inference__ModelStreamInferResponse *r =
        inference__model_stream_infer_response__unpack(NULL, len, p);
    cr_assert(r && r->infer_response);
    const Inference__ModelInferResponse *a = r->infer_response;
    cr_assert_str_eq(r->error_message, "");
    cr_assert_str_eq(a->id, "7");
    cr_assert_str_eq(a->model_name, "sim");
    cr_assert(a->n_parameters == 1 && !a->parameters[0]->value->bool_param);
    cr_assert_str_eq(a->parameters[0]->key, "triton_final_response");
    cr_assert(a->n_outputs == 1 && a->n_raw_output_contents == 1);
    cr_assert_str_eq(a->outputs[0]->name, "text_output");
    cr_assert_eq(a->raw_output_contents[0].len, 6);
    cr_assert_arr_eq(a->raw_output_contents[0].data, "\2\0\0\0hi", 6);
    inference__model_stream_infer_response__free_unpacked(r, NULL);
}

Test(oip, the_last_one_has_reason_and_counts)
{
    size_t len;

    tr_oip_reply(&out, &(struct tr_oip_reply){.model = "sim",
                                              .id = "",
                                              .wants = TR_OIP_ALL,
                                              .in_stream = true,
                                              .last = true,
                                              .has_text = true,
                                              .text = "",
                                              .finish = "length",
                                              .has_usage = true,
                                              .prompt_tokens = 258,
                                              .completion_tokens = 3});
    const uint8_t *p = message(&len);
    Inference__ModelStreamInferResponse *r =
        inference__model_stream_infer_response__unpack(NULL, len, p);
    const Inference__ModelInferResponse *a = r->infer_response;
    cr_assert(a->n_outputs == 4 && a->n_raw_output_contents == 4);
    cr_assert(a->parameters[0]->value->bool_param);
    cr_assert_arr_eq(a->raw_output_contents[0].data, "\0\0\0\0", 4);
    cr_assert_arr_eq(a->raw_output_contents[1].data, "\6\0\0\0length", 10);
    cr_assert_arr_eq(a->raw_output_contents[2].data, "\2\1\0\0\0\0\0\0", 8);
    cr_assert_str_eq(a->outputs[3]->datatype, "INT64");
    cr_assert_arr_eq(a->raw_output_contents[3].data, "\3\0\0\0\0\0\0\0", 8);
    inference__model_stream_infer_response__free_unpacked(r, NULL);
}

Test(oip, an_error_in_a_stream_is_the_last_of_its_request)
{
    size_t len;

    tr_oip_reply(&out, &(struct tr_oip_reply){.model = "sim",
                                              .id = "9",
                                              .in_stream = true,
                                              .last = true,
                                              .error = "It went wrong.",
                                              .code = "engine_lost"});
    const uint8_t *p = message(&len);
    Inference__ModelStreamInferResponse *r =
        inference__model_stream_infer_response__unpack(NULL, len, p);
    cr_assert_str_eq(r->error_message, "It went wrong.");
    cr_assert_str_eq(r->infer_response->id, "9");
    cr_assert_eq(r->infer_response->n_parameters, 2);
    cr_assert(r->infer_response->parameters[0]->value->bool_param);
    cr_assert_str_eq(r->infer_response->parameters[1]->value->string_param, "engine_lost");
    inference__model_stream_infer_response__free_unpacked(r, NULL);
}

Test(oip, a_whole_answer_is_one_message_without_the_flag)
{
    static char text[100000];
    size_t len;

    memset(text, 'x', sizeof(text));
    tr_oip_reply(&out, &(struct tr_oip_reply){.model = "sim",
                                              .id = "7",
                                              .wants = TR_OIP_TEXT | TR_OIP_PROMPT_TOKENS,
                                              .last = true,
                                              .has_text = true,
                                              .text = text,
                                              .text_len = sizeof(text),
                                              .finish = "stop",
                                              .has_usage = true});
    const uint8_t *p = message(&len);
    Inference__ModelInferResponse *a = inference__model_infer_response__unpack(NULL, len, p);
    cr_assert(a && a->n_parameters == 0 && a->n_outputs == 2 && a->n_raw_output_contents == 2);
    cr_assert_eq(a->raw_output_contents[0].len, sizeof(text) + 4);
    inference__model_infer_response__free_unpacked(a, NULL);
}

Test(oip, metadata_names_every_tensor)
{
    size_t len;

    tr_oip_model_metadata(&out, "sim");
    const uint8_t *p = message(&len);
    Inference__ModelMetadataResponse *a = inference__model_metadata_response__unpack(NULL, len, p);
    cr_assert(a && a->n_inputs == 3 && a->n_outputs == 4 && a->n_versions == 1);
    cr_assert_str_eq(a->outputs[0]->name, "text_output");
    cr_assert(tr_oip_version_is_ours(a->versions[0]));
    inference__model_metadata_response__free_unpacked(a, NULL);
}

Test(oip, names_and_services_are_read)
{
    char *name, *version, *service;

    cr_assert_eq(tr_oip_read_name("\12\3sim\22\0011", 8, &name, &version), 0);
    cr_assert_str_eq(name, "sim");
    cr_assert_str_eq(version, "1");
    free(name);
    free(version);
    cr_assert_eq(tr_oip_read_service(NULL, 0, &service), 0);
    cr_assert_str_eq(service, "");
    free(service);
    cr_assert_neq(tr_oip_read_service("\12\377", 2, &service), 0);
}
