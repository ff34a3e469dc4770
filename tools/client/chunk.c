/* SPDX-License-Identifier: Apache-2.0 */
#include "client/chunk.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

void tr_copy_clean(char *to, size_t size, const char *from, size_t len)
{
    size_t n = len < size ? len : size - 1;
    for (size_t i = 0; i < n; i++)
        to[i] = (char)(from[i] >= ' ' && from[i] <= '~' ? from[i] : '?');
    to[n] = 0;
}

static void copy_string(char *to, size_t size, const json_t *s)
{
    if (json_is_string(s))
        tr_copy_clean(to, size, json_string_value(s), json_string_length(s));
}

/* {"error":{"code","message"}}, {"error":"text"}, or the older {"object":"error","message"}. */
static bool read_error(struct tr_chunk *c, const json_t *root, bool named_error)
{
    const json_t *e = json_object_get(root, "error");
    const json_t *object = json_object_get(root, "object");
    bool is_error = named_error || (e && !json_is_null(e)) ||
                    (json_is_string(object) && !strcmp(json_string_value(object), "error"));
    if (!is_error)
        return false;
    char code[48] = "", message[128] = "";
    const json_t *from = json_is_object(e) ? e : root;
    copy_string(code, sizeof(code), json_object_get(from, "code"));
    if (!code[0])
        copy_string(code, sizeof(code), json_object_get(from, "type"));
    copy_string(message, sizeof(message), json_is_string(e) ? e : json_object_get(from, "message"));
    snprintf(c->error, sizeof(c->error), "%s%s%s", code, code[0] && message[0] ? ": " : "",
             message);
    c->kind = TR_CHUNK_ERROR;
    return true;
}

static int64_t count(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;
    return n > 0 ? (int64_t)n : 0;
}

static void read_usage(struct tr_chunk *c, const json_t *usage)
{
    c->has_usage = json_is_object(usage);
    if (!c->has_usage)
        return;
    c->usage.prompt = count(usage, "prompt_tokens");
    c->usage.completion = count(usage, "completion_tokens");
    c->usage.cached = count(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
}

static void read_choice(struct tr_chunk *c, const json_t *choice, bool first)
{
    const json_t *delta = json_object_get(choice, "delta");
    if (!json_is_object(delta))
        delta = json_object_get(choice, "message");
    const json_t *text =
        json_is_object(delta) ? json_object_get(delta, "content") : json_object_get(choice, "text");
    copy_string(c->finish, sizeof(c->finish), json_object_get(choice, "finish_reason"));
    if (!json_is_string(text) || !json_string_length(text))
        return;
    c->has_content = true;
    const json_t *index = json_object_get(choice, "index");
    if (!c->text && (json_is_integer(index) ? json_integer_value(index) == 0 : first)) {
        c->text = json_string_value(text);
        c->text_len = json_string_length(text);
    }
}

void tr_chunk_read(struct tr_chunk *c, const char *event_name, const char *data, size_t len)
{
    memset(c, 0, sizeof(*c));
    while (len && (data[len - 1] == ' ' || data[len - 1] == '\t'))
        len--;
    if (!len) {
        c->kind = TR_CHUNK_EMPTY;
        return;
    }
    if (len == 6 && !memcmp(data, "[DONE]", 6)) {
        c->kind = TR_CHUNK_DONE;
        return;
    }
    json_t *root = json_loadb(data, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    c->root = root;
    c->kind = root ? TR_CHUNK_FOREIGN : TR_CHUNK_BAD;
    if (!root || read_error(c, root, !strcmp(event_name, "error")))
        return;
    const json_t *choices = json_object_get(root, "choices");
    read_usage(c, json_object_get(root, "usage"));
    if (!json_is_array(choices) && !c->has_usage)
        return;
    c->kind = TR_CHUNK_PLAIN;
    for (size_t i = 0; i < json_array_size(choices); i++)
        read_choice(c, json_array_get(choices, i), i == 0);
}

void tr_chunk_fini(struct tr_chunk *c)
{
    json_decref(c->root);
    c->root = NULL;
    c->text = NULL;
}
