/* SPDX-License-Identifier: Apache-2.0 */
/* frontend/ws_call.c - see ws_call.h. */
#include "frontend/ws_call.h"

#include "base/json.h"

#include <errno.h>
#include <string.h>

/* ---- where the request is ---- */

static size_t skip_blank(const char *t, size_t at, size_t len)
{
    while (at < len && (t[at] == ' ' || t[at] == '\t' || t[at] == '\n' || t[at] == '\r'))
        at++;
    return at;
}

/* From a quote to behind the one that closes it. */
static size_t skip_string(const char *t, size_t at, size_t len)
{
    for (at++; at < len && t[at] != '"'; at++)
        at += t[at] == '\\';
    return at < len ? at + 1 : len;
}

/* From a bracket to behind its counterpart, whatever is between: nesting is counted, not checked. */
static size_t skip_nest(const char *t, size_t at, size_t len)
{
    size_t depth = 0;

    while (at < len) {
        char c = t[at];
        if (c == '"') {
            at = skip_string(t, at, len);
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && --depth == 0)
            break;
    }
    return at;
}

static size_t skip_value(const char *t, size_t at, size_t len)
{
    if (at < len && t[at] == '"')
        return skip_string(t, at, len);
    if (at < len && (t[at] == '{' || t[at] == '['))
        return skip_nest(t, at, len);
    while (at < len && !strchr(",}] \t\r\n", t[at]))
        at++;
    return at;
}

/* The value of the member "request" if it is an object; else empty.  What is not JSON may be seen
 * wrongly here: the parser then refuses the envelope or the request. */
static struct tr_slice find_request(const char *t, size_t len)
{
    static const char key[] = "\"request\"";
    size_t at = skip_blank(t, 0, len);

    if (at == len || t[at] != '{')
        return (struct tr_slice){NULL, 0};
    at = skip_blank(t, at + 1, len);
    while (at < len && t[at] == '"') {
        size_t name = at, end = skip_string(t, at, len);
        bool match = end - name == sizeof(key) - 1 && memcmp(t + name, key, end - name) == 0;
        at = skip_blank(t, end, len);
        if (at == len || t[at] != ':')
            break;
        at = skip_blank(t, at + 1, len);
        end = skip_value(t, at, len);
        if (match && at < len && t[at] == '{')
            return (struct tr_slice){t + at, end - at};
        at = skip_blank(t, end, len);
        if (at == len || t[at] != ',')
            break;
        at = skip_blank(t, at + 1, len);
    }
    return (struct tr_slice){NULL, 0};
}

/* ---- members ---- */

static int read_label(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    const struct tr_json *v = TR_JSON_GET(root, "stream");
    bool good = tr_json_is(v, TR_JSON_STRING) && v->len > 0 && v->len <= TR_WS_LABEL_BYTES;

    for (uint32_t i = 0; good && i < v->len; i++)
        good = (unsigned char)v->u.s[i] >= 0x20 && v->u.s[i] != 0x7f;
    if (!good)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "stream",
                            "stream must be a label of 1 to %d bytes without control characters.",
                            TR_WS_LABEL_BYTES);
    memcpy(out->label, v->u.s, v->len);
    out->label[v->len] = '\0';
    return 0;
}

static int read_id(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    const struct tr_json *v = TR_JSON_GET(root, "id");

    if (!tr_json_is(v, TR_JSON_STRING))
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "id", "id must be the id of a stream.");
    if (tr_stream_id_parse(v->u.s, v->len, &out->id))
        return tr_fault_set(f, TR_ERR_NOT_FOUND, "id", "There is no stream with this id.");
    return 0;
}

/* A member that need not be there: `min` or more. */
static int read_count(const struct tr_json *root, const char *key, int64_t min, int64_t *out,
                      struct tr_fault *f)
{
    const struct tr_json *v = tr_json_get(root, key, strlen(key));
    int64_t n;

    if (!v || v->type == TR_JSON_NULL)
        return 0;
    if (tr_json_i64(v, &n) || n < min)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, key, "%s must be a whole number, at least %lld.",
                            key, (long long)min);
    *out = n;
    return 0;
}

static int read_credit(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    int64_t n = -1;

    if (read_count(root, "credit", 0, &n, f))
        return -EINVAL;
    out->credit = n < 0 ? UINT64_MAX : (uint64_t)n;
    return 0;
}

static int read_start(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    if (read_label(root, out, f) || read_credit(root, out, f))
        return -EINVAL;
    if (!out->request.p)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "request",
                            "request must be an object with the fields of POST /v1/streams.");
    return 0;
}

static int read_resume(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    out->after = -1;
    return read_label(root, out, f) || read_id(root, out, f) || read_credit(root, out, f) ||
                   read_count(root, "after", -1, &out->after, f)
               ? -EINVAL
               : 0;
}

static int read_tokens(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    int64_t n = 0;

    if (read_label(root, out, f) || read_count(root, "tokens", 1, &n, f))
        return -EINVAL;
    if (n == 0)
        return tr_fault_set(f, TR_ERR_BAD_PARAM, "tokens",
                            "tokens must say how many more may be sent.");
    out->credit = (uint64_t)n;
    return 0;
}

static const struct call {
    const char *name;
    int (*read)(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f);
} calls[] = {[TR_WS_START] = {"start", read_start},
             [TR_WS_CANCEL] = {"cancel", read_id},
             [TR_WS_RESUME] = {"resume", read_resume},
             [TR_WS_CREDIT] = {"credit", read_tokens}};

static int read_root(const struct tr_json *root, struct tr_ws_call *out, struct tr_fault *f)
{
    const struct tr_json *type = TR_JSON_GET(root, "type");
    struct tr_fault none;

    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        if (tr_json_eq(type, calls[i].name, strlen(calls[i].name))) {
            out->type = (enum tr_ws_call_type)i;
            return calls[i].read(root, out, f);
        }
    (void)read_label(root, out, &none); /* so that the answer can be told from others */
    return tr_fault_set(f, TR_ERR_BAD_PARAM, "type",
                        "type must be start, cancel, resume or credit.");
}

/* ---- a message ---- */

/* The message with null in the place of the request; its length, or 0 if it is too long. */
static size_t envelope(const char *text, size_t len, struct tr_slice request,
                       char out[TR_WS_ENVELOPE_BYTES])
{
    static const char null[4] = {'n', 'u', 'l', 'l'};
    size_t head = request.p ? (size_t)(request.p - text) : len;
    size_t tail = len - head - request.len;

    if (head + tail + 4 > TR_WS_ENVELOPE_BYTES)
        return 0;
    if (head)
        memcpy(out, text, head);
    if (!request.p)
        return head;
    memcpy(out + head, null, sizeof(null));
    memcpy(out + head + 4, text + head + request.len, tail);
    return head + 4 + tail;
}

int tr_ws_call_read(const char *text, size_t len, struct tr_ws_call *out, struct tr_fault *f)
{
    char small[TR_WS_ENVELOPE_BYTES];
    struct tr_json_fault jf;

    *out = (struct tr_ws_call){.request = find_request(text, len)};
    size_t n = envelope(text, len, out->request, small);
    if (n == 0 && len)
        return tr_fault_set(f, TR_ERR_BAD_REQUEST, NULL,
                            "A message may have %d bytes beside the object `request`.",
                            TR_WS_ENVELOPE_BYTES - 4);
    struct tr_json_doc *doc = tr_json_parse(small, n, &jf);
    if (!doc && jf.no_memory)
        return tr_fault_set(f, TR_ERR_INTERNAL, NULL, "Out of memory.");
    if (!doc)
        return tr_fault_set(f, TR_ERR_BAD_JSON, NULL, "The message is not valid JSON: %s.", jf.why);
    int rc = -EINVAL;
    if (tr_json_is(tr_json_root(doc), TR_JSON_OBJECT))
        rc = read_root(tr_json_root(doc), out, f);
    else
        tr_fault_set(f, TR_ERR_BAD_REQUEST, NULL, "A message must be a JSON object.");
    tr_json_free(doc);
    return rc;
}
