/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/request.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* Common short words: one token each, with the space before them, in the vocabularies of the usual
 * byte-level BPE models. */
static const char *const words[] = {
    "river", "stone", "light", "house", "green", "water", "paper", "night", "table", "world",
    "small", "music", "north", "plant", "train", "voice", "glass", "field", "story", "cloud",
    "heart", "metal", "round", "south", "sugar", "tower", "woman", "young", "board", "chair",
};

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9E3779B97F4A7C15u;
    uint64_t z = *s;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static char *make_prompt(const struct tr_probe_opts *o, uint64_t index)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    /* The number comes first, so that no two prompts share a cached prefix beyond the template. */
    if (o->distinct)
        fprintf(f, "%llu. ", (unsigned long long)index + 1);
    uint64_t s = o->distinct ? index + 1 : 0;
    if (o->prompt)
        fputs(o->prompt, f);
    for (uint64_t i = 0; !o->prompt && i < o->prompt_tokens; i++)
        fprintf(f, "%s%s", i ? " " : "", words[next_random(&s) % (sizeof(words) / sizeof(*words))]);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

static json_t *prompt_field(const struct tr_probe_opts *o, const char *prompt)
{
    if (o->route == TR_ROUTE_COMPLETIONS)
        return json_string(prompt);
    return json_pack("[{s:s, s:s}]", "role", "user", "content", prompt);
}

/* -1 when any part could not be made; json_object_set_new takes NULL as a failure. */
static int fill(json_t *b, const struct tr_probe_opts *o, const char *model, const char *prompt)
{
    int rc = json_object_set_new(b, "model", json_string(model));
    const char *key = o->route == TR_ROUTE_COMPLETIONS ? "prompt" : "messages";
    rc |= json_object_set_new(b, key, prompt_field(o, prompt));
    rc |= json_object_set_new(b, "stream", json_true());
    rc |= json_object_set_new(b, "stream_options", json_pack("{s:b}", "include_usage", 1));
    rc |= json_object_set_new(b, "max_tokens", json_integer((json_int_t)o->max_tokens));
    if (o->has_temperature)
        rc |= json_object_set_new(b, "temperature", json_real(o->temperature));
    if (o->has_seed)
        rc |= json_object_set_new(b, "seed", json_integer((json_int_t)o->seed));
    if (o->ignore_eos)
        rc |= json_object_set_new(b, "ignore_eos", json_true());
    if (o->has_force_token) {
        char id[24];
        snprintf(id, sizeof(id), "%llu", (unsigned long long)o->force_token);
        rc |= json_object_set_new(b, "logit_bias", json_pack("{s:i}", id, 100));
    }
    return rc;
}

static char *make_body(const struct tr_probe_opts *o, const char *model, uint64_t index)
{
    char *prompt = make_prompt(o, index);
    json_t *b = json_object();
    char *body = NULL;
    if (prompt && b && !fill(b, o, model, prompt))
        body = json_dumps(b, JSON_COMPACT);
    json_decref(b);
    free(prompt);
    return body;
}

char *tr_request_post(const struct tr_probe_opts *o, const char *model, uint64_t index, size_t *len)
{
    char *body = make_body(o, model, index), *all = NULL;
    if (body)
        all = tr_target_post(
            &o->to, o->route == TR_ROUTE_COMPLETIONS ? "/v1/completions" : "/v1/chat/completions",
            "", body, len);
    free(body);
    return all;
}
