/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/api_responses_page.c - the input items of a background response as a list, a page of them. */
#include "frontend/api_responses.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { ARG_BYTES = 96, ITEMS_MAX = 100 };

static void item_name(struct tr_stream_id id, uint32_t index, char out[ARG_BYTES])
{
    snprintf(out, ARG_BYTES, "item_%x_%x_%u", id.slot, id.gen, index);
}

static void text_content(struct tr_emit *e, const struct tr_json *role, const struct tr_json *text)
{
    tr_emit_key(e, "content");
    tr_emit_arr(e);
    tr_emit_obj(e);
    tr_emit_kstr(e, "type", TR_JSON_EQ(role, "assistant") ? "output_text" : "input_text");
    tr_emit_kstrn(e, "text", text->u.s, text->len);
    if (TR_JSON_EQ(role, "assistant")) {
        tr_emit_key(e, "annotations");
        tr_emit_raw(e, "[]", 2);
    }
    tr_emit_obj_end(e);
    tr_emit_arr_end(e);
}

/* One item as it was sent, with the members that every item has. */
static void put_item(struct tr_emit *e, const struct tr_json_doc *doc, const struct tr_json *item,
                     const char *id)
{
    const struct tr_json *role = TR_JSON_GET(item, "role");

    tr_emit_obj(e);
    tr_emit_kstr(e, "id", id);
    tr_emit_kstr(e, "status", "completed");
    if (item->type == TR_JSON_STRING || !TR_JSON_GET(item, "type"))
        tr_emit_kstr(e, "type", "message");
    if (item->type == TR_JSON_STRING) {
        tr_emit_kstr(e, "role", "user");
        text_content(e, NULL, item);
    }
    for (struct tr_json_it it = tr_json_iter(item); tr_json_step(&it);) {
        if (!it.key || TR_JSON_EQ(it.key, "id") || TR_JSON_EQ(it.key, "status"))
            continue;
        if (TR_JSON_EQ(it.key, "content") && it.val->type == TR_JSON_STRING) {
            text_content(e, role, it.val);
            continue;
        }
        tr_emit_keyn(e, it.key->u.s, it.key->len);
        tr_emit_json(e, doc, it.val);
    }
    tr_emit_obj_end(e);
}

static const struct tr_json *item_at(const struct tr_json *input, uint32_t index)
{
    struct tr_json_it it = tr_json_iter(input);

    if (!tr_json_is(input, TR_JSON_ARRAY))
        return input;
    while (tr_json_step(&it))
        if (it.index == index)
            return it.val;
    return NULL;
}

void tr_response_page_put(struct tr_emit *e, const struct tr_response_page *g,
                          struct tr_stream_id id, const struct tr_json_doc *doc)
{
    const struct tr_json *input = doc ? TR_JSON_GET(tr_json_root(doc), "input") : NULL;
    uint32_t n = !input ? 0 : input->type == TR_JSON_ARRAY ? input->len : 1, told = 0;
    char name[ARG_BYTES], first[ARG_BYTES] = "", last[ARG_BYTES] = "";
    int64_t at = g->ascending ? g->after + 1 : (g->after < 0 ? (int64_t)n : g->after) - 1;

    for (; at >= 0 && at < n && told < g->limit; at += g->ascending ? 1 : -1) {
        item_name(id, (uint32_t)at, name);
        put_item(e, doc, item_at(input, (uint32_t)at), name);
        memcpy(told++ ? last : first, name, sizeof(name));
        memcpy(last, name, sizeof(name));
    }
    tr_emit_arr_end(e);
    tr_emit_kstr(e, "first_id", first[0] ? first : NULL);
    tr_emit_kstr(e, "last_id", last[0] ? last : NULL);
    tr_emit_kbool(e, "has_more", at >= 0 && at < n);
}

/* ---- what is asked ---- */

/* ?limit, ?order, ?after: the name of an item. */
int tr_response_page_read(const struct tr_http_request *rq, struct tr_response_page *g,
                          struct tr_fault *f)
{
    char buf[ARG_BYTES];
    int64_t limit = TR_RESPONSE_ITEMS;
    int len = tr_http_query(rq->http, "limit", buf, sizeof(buf));

    if (len != -ENOENT &&
        (len < 0 || tr_api_read_number(buf, (size_t)len, &limit) || limit < 1 || limit > ITEMS_MAX))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "limit", "limit is a number from 1 to 100.");
    g->limit = (uint32_t)limit;
    len = tr_http_query(rq->http, "order", buf, sizeof(buf));
    g->ascending = len > 0 && strcmp(buf, "asc") == 0;
    if (len != -ENOENT && !g->ascending && (len < 0 || strcmp(buf, "desc") != 0))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "order", "order is asc or desc.");
    len = tr_http_query(rq->http, "after", buf, sizeof(buf));
    const char *last = len > 0 ? strrchr(buf, '_') : NULL;
    g->after = -1;
    if (len != -ENOENT && (!last || tr_api_read_number(last + 1, strlen(last + 1), &g->after) ||
                           g->after > UINT32_MAX))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "after", "after is the id of an input item.");
    return 0;
}
