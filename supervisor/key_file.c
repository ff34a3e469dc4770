/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/key_file.c - see key_file.h. */
#include "supervisor/key_file.h"

#include "base/assert.h"
#include "base/emit.h"
#include "base/hex.h"
#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const struct tr_key tr_key_defaults = {.weight = 1, .index = TR_KEYS_MAX};

/* ---- limits ---- */

enum { PRIORITY, WEIGHT, STREAMS, REQUESTS, TOKENS, N_SETTINGS };

static const struct tr_key_setting settings[N_SETTINGS] = {
    [PRIORITY] = {"priority", "added to that of its requests, lower goes first",
                  -TR_KEY_PRIORITY_MAX, TR_KEY_PRIORITY_MAX},
    [WEIGHT] = {"weight", "its share when keys compete", 1, TR_KEY_WEIGHT_MAX},
    [STREAMS] = {"max_streams", "0: no limit", 0, 1 << 20},
    [REQUESTS] = {"requests_per_min", "0: no limit", 0, 1 << 30},
    [TOKENS] = {"tokens_per_min", "0: no limit", 0, 1ll << 50},
};

const struct tr_key_setting *tr_key_setting(unsigned i)
{
    return i < N_SETTINGS ? &settings[i] : NULL;
}

static unsigned find_setting(const char *name, size_t len)
{
    unsigned i = 0;

    while (i < N_SETTINGS &&
           (strlen(settings[i].name) != len || memcmp(settings[i].name, name, len) != 0))
        i++;
    return i;
}

int tr_key_set(struct tr_key *k, const char *name, size_t len, int64_t value)
{
    unsigned i = find_setting(name, len);

    if (i == N_SETTINGS)
        return -ENOENT;
    if (value < settings[i].min || value > settings[i].max)
        return -ERANGE;
    switch (i) {
    case PRIORITY:
        k->priority = (int32_t)value;
        break;
    case WEIGHT:
        k->weight = (uint32_t)value;
        break;
    case STREAMS:
        k->max_streams = (uint32_t)value;
        break;
    case REQUESTS:
        k->requests_per_min = (uint32_t)value;
        break;
    default:
        k->tokens_per_min = (uint64_t)value;
    }
    return 0;
}

int tr_key_name_check(const char *name, size_t len, struct tr_errbuf *err)
{
    bool good = len > 0 && len < TR_KEY_BYTES;

    for (size_t i = 0; good && i < len; i++)
        good = name[i] > ' ' && name[i] < 0x7f && name[i] != '"' && name[i] != '\\';
    if (!good)
        return tr_errf(err, -EINVAL,
                       "a name has 1 to %d printable ASCII characters, no blanks, \" and \\",
                       TR_KEY_BYTES - 1);
    if (len == strlen(TR_KEY_ADMIN_NAME) && memcmp(name, TR_KEY_ADMIN_NAME, len) == 0)
        return tr_errf(err, -EINVAL, "the name " TR_KEY_ADMIN_NAME " is that of --admin-key");
    return 0;
}

/* ---- hashes ---- */

/* 64 digits of either case, and nothing else: 0, or -EINVAL and some of *out written. */
static int parse_hash(const char *hex, size_t len, uint8_t out[TR_DIGEST_BYTES])
{
    if (len != (size_t)2 * TR_DIGEST_BYTES)
        return -EINVAL;
    for (size_t i = 0; i < TR_DIGEST_BYTES; i++) {
        int hi = tr_hex_digit(hex[2 * i]), lo = tr_hex_digit(hex[2 * i + 1]);
        if (hi < 0 || lo < 0)
            return -EINVAL;
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return 0;
}

/* ---- reading ---- */

struct reader {
    const char *path;
    const struct tr_json_doc *doc;
    struct tr_errbuf *err;
};

static int wrong(const struct reader *r, const struct tr_json *at, const char *why)
{
    char where[128];

    tr_json_param(r->doc, at, where, sizeof(where));
    return tr_errf(r->err, -EINVAL, "%s: %s%s%s", r->path, where, *where ? ": " : "", why);
}

static int read_limit(const struct reader *r, const struct tr_json *key, const struct tr_json *v,
                      struct tr_key *k)
{
    const struct tr_key_setting *set = tr_key_setting(find_setting(key->u.s, key->len));
    int64_t value;
    char why[96];

    if (!set)
        return wrong(r, v, "this is not known");
    if (tr_json_i64(v, &value) == 0 && tr_key_set(k, key->u.s, key->len, value) == 0)
        return 0;
    snprintf(why, sizeof(why), "it is a whole number from %lld to %lld", (long long)set->min,
             (long long)set->max);
    return wrong(r, v, why);
}

static int read_member(const struct reader *r, const struct tr_json *key, const struct tr_json *v,
                       struct tr_key *k, bool *hashed)
{
    struct tr_errbuf why;

    if (TR_JSON_EQ(key, "name")) {
        if (v->type != TR_JSON_STRING)
            return wrong(r, v, "it is a string");
        if (tr_key_name_check(v->u.s, v->len, &why))
            return wrong(r, v, why.msg);
        memcpy(k->name, v->u.s, v->len);
        return 0;
    }
    if (TR_JSON_EQ(key, "sha256")) {
        *hashed = v->type == TR_JSON_STRING && parse_hash(v->u.s, v->len, k->hash) == 0;
        return *hashed ? 0 : wrong(r, v, "it is the SHA-256 of the key, 64 hexadecimal digits");
    }
    if (TR_JSON_EQ(key, "admin")) {
        k->admin = v->type == TR_JSON_BOOL && v->u.b;
        return v->type == TR_JSON_BOOL ? 0 : wrong(r, v, "it is true or false");
    }
    return read_limit(r, key, v, k);
}

static int read_row(const struct reader *r, const struct tr_json *row, struct tr_keys *out)
{
    struct tr_key k = tr_key_defaults;
    bool hashed = false;

    if (row->type != TR_JSON_OBJECT)
        return wrong(r, row, "it is an object");
    for (struct tr_json_it it = tr_json_iter(row); tr_json_step(&it);)
        if (read_member(r, it.key, it.val, &k, &hashed))
            return -EINVAL;
    if (!k.name[0] || !hashed)
        return wrong(r, row, "name and sha256 are needed");
    if (tr_keys_named(out, k.name))
        return wrong(r, row, "another key has this name");
    if (tr_keys_match(out, k.hash))
        return wrong(r, row, "another row is of the same key");
    if (out->n == TR_KEYS_MAX)
        return wrong(r, row, "there are too many keys: at most 1024");
    out->row[out->n++] = k;
    return 0;
}

_Static_assert(TR_KEYS_MAX == 1024, "the sentence above says so");

static int read_root(const struct reader *r, struct tr_keys *out)
{
    const struct tr_json *root = tr_json_root(r->doc), *keys = TR_JSON_GET(root, "keys");

    if (!tr_json_is(keys, TR_JSON_ARRAY))
        return wrong(r, root, "the file is an object with an array \"keys\"");
    for (struct tr_json_it it = tr_json_iter(root); tr_json_step(&it);)
        if (it.val != keys)
            return wrong(r, it.val, "this is not known");
    for (struct tr_json_it it = tr_json_iter(keys); tr_json_step(&it);)
        if (read_row(r, it.val, out))
            return -EINVAL;
    return 0;
}

int tr_key_file_parse(const char *path, const char *text, size_t len, struct tr_keys *out,
                      struct tr_errbuf *err)
{
    struct tr_json_fault f;
    struct tr_json_doc *doc = tr_json_parse(text, len, &f);
    struct reader r = {.path = path, .doc = doc, .err = err};

    TR_ASSERT(out->n == 0);
    if (!doc)
        return tr_errf(err, -EINVAL, "%s: byte %zu: %s", path, f.off, f.why);
    int ret = read_root(&r, out);
    tr_json_free(doc);
    if (ret)
        out->n = 0;
    return ret;
}

/* A pipe or a device would have the supervisor wait for whoever writes it. */
static int open_regular(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || (fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))))
        return fd;
    close(fd);
    errno = ENOTSUP;
    return -1;
}

/* All of a file; NULL with *err. */
static char *slurp(const char *path, size_t *len, int *ret, struct tr_errbuf *err)
{
    int fd = open_regular(path);
    char *text = fd < 0 ? NULL : malloc(TR_KEY_FILE_BYTES + 1);
    ssize_t n = text ? 0 : -1;

    for (*len = 0; text && *len <= TR_KEY_FILE_BYTES; *len += (size_t)n)
        if ((n = read(fd, text + *len, TR_KEY_FILE_BYTES + 1 - *len)) <= 0)
            break;
    *ret = n < 0 ? -errno : *len > TR_KEY_FILE_BYTES ? -EFBIG : 0;
    if (fd >= 0)
        close(fd);
    if (*ret == 0)
        return text;
    tr_errf(err, 0, "%s cannot be read: %s", path,
            *ret == -ENOTSUP ? "it is not a regular file" : strerror(-*ret));
    free(text);
    return NULL;
}

int tr_key_file_read(const char *path, struct tr_keys *out, struct tr_errbuf *err)
{
    size_t len;
    int ret;
    char *text = slurp(path, &len, &ret, err);

    if (text)
        ret = tr_key_file_parse(path, text, len, out, err);
    free(text);
    return ret;
}

/* ---- writing ---- */

static int64_t value_of(const struct tr_key *k, unsigned setting)
{
    switch (setting) {
    case PRIORITY:
        return k->priority;
    case WEIGHT:
        return k->weight;
    case STREAMS:
        return k->max_streams;
    case REQUESTS:
        return k->requests_per_min;
    default:
        return (int64_t)k->tokens_per_min;
    }
}

void tr_key_file_row(struct tr_emit *e, const struct tr_key *k)
{
    char hex[2 * TR_DIGEST_BYTES + 1];

    tr_hex_format(k->hash, sizeof(k->hash), hex);
    tr_emit_obj(e);
    tr_emit_kstr(e, "name", k->name);
    tr_emit_kstr(e, "sha256", hex);
    for (unsigned i = 0; i < N_SETTINGS; i++)
        if (value_of(k, i) != value_of(&tr_key_defaults, i))
            tr_emit_ki64(e, settings[i].name, value_of(k, i));
    if (k->admin)
        tr_emit_kbool(e, "admin", true);
    tr_emit_obj_end(e);
}

/* ---- the admin key ---- */

int tr_key_file_admin(const char *text, struct tr_keys *out, struct tr_errbuf *err)
{
    static const char lead[] = "sha256:";
    struct tr_key k = tr_key_defaults;
    size_t len = strlen(text);

    k.admin = true;
    memcpy(k.name, TR_KEY_ADMIN_NAME, sizeof(TR_KEY_ADMIN_NAME));
    if (strncmp(text, lead, sizeof(lead) - 1) == 0) {
        if (parse_hash(text + sizeof(lead) - 1, len - (sizeof(lead) - 1), k.hash))
            return tr_errf(err, -EINVAL,
                           "--admin-key: behind sha256: are 64 hexadecimal digits, the SHA-256 of "
                           "the key");
    } else if (len > TR_KEY_TEXT_BYTES) {
        return tr_errf(err, -EINVAL, "--admin-key is longer than %d bytes", TR_KEY_TEXT_BYTES);
    } else {
        int ret = tr_digest(text, len, k.hash);
        if (ret)
            return tr_errf(err, ret, "--admin-key cannot be hashed: %s", strerror(-ret));
    }
    const struct tr_key *same = tr_keys_match(out, k.hash);
    if (same)
        return tr_errf(err, -EINVAL, "--admin-key is the key of %s in --api-keys", same->name);
    out->row[out->n++] = k;
    return 0;
}

/* ---- places ---- */

static uint32_t place_of(const struct tr_key_places *p, const char *name)
{
    uint32_t i = 0;

    while (i < TR_KEYS_MAX && (!p->seen[i] || strcmp(p->name[i], name) != 0))
        i++;
    return i;
}

/* There is one that this file has not: it has no more rows than there are places. */
static uint32_t oldest_place(const struct tr_key_places *p)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < TR_KEYS_MAX; i++)
        if (p->seen[i] < p->seen[best])
            best = i;
    return best;
}

void tr_key_places_give(struct tr_key_places *p, struct tr_keys *k)
{
    p->files++;
    for (uint32_t i = 0; i < k->n && i < TR_KEYS_MAX; i++) {
        k->row[i].index = place_of(p, k->row[i].name);
        if (k->row[i].index < TR_KEYS_MAX)
            p->seen[k->row[i].index] = p->files;
    }
    for (uint32_t i = 0; i < k->n && i < TR_KEYS_MAX; i++) {
        struct tr_key *row = &k->row[i];
        if (row->index < TR_KEYS_MAX)
            continue;
        row->index = oldest_place(p);
        memcpy(p->name[row->index], row->name, sizeof(row->name));
        p->seen[row->index] = p->files;
    }
}
