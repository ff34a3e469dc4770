/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/prompt.h"

#include "client/fetch.h"
#include "replay/traces.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {
    "river", "stone", "light", "house", "green", "water", "paper", "night", "table", "world",
    "small", "music", "north", "plant", "train", "voice", "glass", "field", "story", "cloud",
    "heart", "metal", "round", "south", "sugar", "tower", "woman", "young", "board", "chair",
};
enum { N_WORDS = sizeof(words) / sizeof(words[0]) };

static char *all_words(void)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return NULL;
    for (int i = 0; i < N_WORDS; i++)
        fprintf(f, " %s", words[i]);
    if (fclose(f)) {
        free(text);
        return NULL;
    }
    return text;
}

/* A first token that stands for the start of a text would be one in the middle, too. */
static char *tokenize_body(const char *model)
{
    char *text = all_words(), *body = NULL;
    json_t *b =
        text ? json_pack("{s:s, s:s, s:b}", "model", model, "prompt", text, "add_special_tokens", 0)
             : NULL;
    if (b)
        body = json_dumps(b, JSON_COMPACT);
    json_decref(b);
    free(text);
    return body;
}

static void take_ids(struct tr_prompts *p, const json_t *tokens)
{
    size_t i;
    const json_t *v;
    json_array_foreach((json_t *)tokens, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || p->n == TR_PROMPT_IDS_MAX)
            return;
        size_t k = 0;
        while (k < p->n && p->ids[k] != json_integer_value(v))
            k++;
        if (k == p->n)
            p->ids[p->n++] = json_integer_value(v);
    }
}

void tr_prompts_learn(struct tr_prompts *p, const struct tr_target *t, const char *model)
{
    size_t len = 0;
    int rc;
    memset(p, 0, sizeof(*p));
    char *body = tokenize_body(model);
    char *page = body ? tr_fetch_post(t, "/tokenize", body, &len, &rc, NULL) : NULL;
    json_t *root = page ? json_loadb(page, len, 0, NULL) : NULL;
    take_ids(p, json_object_get(root, "tokens"));
    json_decref(root);
    free(page);
    free(body);
}

/* Comma and all: ,"prompt":[1,2,3] or ,"prompt":"word word" */
static void put_made_up(FILE *f, const struct tr_prompts *p, const struct tr_replay_opts *o,
                        const struct tr_trace_entry *e)
{
    /* From the top those of chats, so that none is a line's. */
    uint64_t s = o->seed * 0x2545F4914F6CDD1Du + (e->chat ? ~e->chat : e->line);
    fputs(p->n ? ",\"prompt\":[" : ",\"prompt\":\"", f);
    for (uint64_t i = 0; i < e->prompt_tokens; i++) {
        uint64_t r = tr_traces_random(&s) >> 16;
        if (p->n)
            fprintf(f, "%s%" PRId64, i ? "," : "", p->ids[r % p->n]);
        else
            fprintf(f, "%s%s", i ? " " : "", words[r % N_WORDS]);
    }
    fputs(p->n ? "]" : "\"", f);
}

static bool put_text(FILE *f, const char *before, const char *text, const char *after)
{
    json_t *s = json_string(text);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    if (quoted)
        fprintf(f, "%s%s%s", before, quoted, after);
    json_decref(s);
    free(quoted);
    return quoted;
}

static char *make_body(const struct tr_prompts *p, const struct tr_replay_opts *o,
                       const char *model, const struct tr_trace_entry *e)
{
    char *body = NULL;
    size_t len;
    bool good;
    FILE *f = open_memstream(&body, &len);
    if (!f)
        return NULL;
    good = put_text(f, "{\"model\":", model, "");
    if (e->prompt)
        good &= put_text(f, ",\"messages\":[{\"role\":\"user\",\"content\":", e->prompt, "}]");
    else
        put_made_up(f, p, o, e);
    fprintf(f, ",\"max_tokens\":%" PRIu64 ",\"ignore_eos\":true,\"seed\":%" PRIu64, e->max_tokens,
            o->seed + e->line);
    if (o->has_temperature)
        fprintf(f, ",\"temperature\":%g", o->temperature);
    fputs(e->stream ? ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}" : "}", f);
    if (fclose(f) || !good) {
        free(body);
        return NULL;
    }
    return body;
}

char *tr_prompt_request(const struct tr_prompts *p, const struct tr_replay_opts *o,
                        const char *model, const struct tr_trace_entry *e, const char *id,
                        size_t *len)
{
    char more[160], *all = NULL;
    char *body = make_body(p, o, model, e);
    snprintf(more, sizeof(more), "X-Request-Id: %s\r\n", id);
    if (body)
        all = tr_target_post(&o->to, e->prompt ? "/v1/chat/completions" : "/v1/completions", more,
                             body, len);
    free(body);
    return all;
}
