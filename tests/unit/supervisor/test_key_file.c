/* SPDX-License-Identifier: Apache-2.0 */
#include "base/emit.h"
#include "base/hex.h"
#include "supervisor/key_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The hash of the key "tr-" + letter, as a member. */
static const char *hash_of(char letter)
{
    static char text[4][100];
    static unsigned at;
    char key[5] = {'t', 'r', '-', letter}, hex[2 * TR_DIGEST_BYTES + 1];
    uint8_t h[TR_DIGEST_BYTES];

    tr_digest(key, 4, h);
    tr_hex_format(h, sizeof(h), hex);
    at = (at + 1) % 4;
    snprintf(text[at], sizeof(text[at]), "\"sha256\":\"%s\"", hex);
    return text[at];
}

static struct tr_keys keys;
static struct tr_errbuf err;

static int parse(const char *text)
{
    keys = (struct tr_keys){0};
    return tr_key_file_parse("f", text, strlen(text), &keys, &err);
}

Test(key_file, a_row_says_what_a_key_may)
{
    char text[1024];

    snprintf(
        text, sizeof(text),
        "{\"keys\":[{\"name\":\"ann\",%s,\"priority\":-3,\"weight\":10,\"max_streams\":4,"
        "\"requests_per_min\":60,\"tokens_per_min\":100000,\"admin\":true},{\"name\":\"b\",%s}]}",
        hash_of('a'), hash_of('b'));
    cr_assert_eq(parse(text), 0, "%s", err.msg);
    cr_assert_eq(keys.n, 2);
    const struct tr_key *a = &keys.row[0], *b = &keys.row[1];
    cr_expect_str_eq(a->name, "ann");
    cr_expect(a->admin && a->priority == -3 && a->weight == 10 && a->max_streams == 4 &&
              a->requests_per_min == 60 && a->tokens_per_min == 100000);
    cr_expect_str_eq(b->name, "b");
    cr_expect(!b->admin && b->priority == 0 && b->weight == 1 && b->max_streams == 0 &&
              b->requests_per_min == 0 && b->tokens_per_min == 0);
    uint8_t h[TR_DIGEST_BYTES];
    tr_digest("tr-b", 4, h);
    cr_expect_eq(tr_keys_match(&keys, h), b);
}

Test(key_file, digits_of_a_hash_have_either_case)
{
    uint8_t h[TR_DIGEST_BYTES];

    cr_assert_eq(parse("{\"keys\":[{\"name\":\"a\",\"sha256\":"
                       "\"BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015aD\"}]}"),
                 0, "%s", err.msg);
    cr_assert_eq(tr_digest("abc", 3, h), 0);
    cr_expect_arr_eq(keys.row[0].hash, h, sizeof(h));
}

Test(key_file, no_keys_are_keys_too)
{
    cr_expect_eq(parse("{\"keys\":[]}"), 0);
    cr_expect_eq(keys.n, 0);
}

Test(key_file, what_is_wrong_is_said_with_its_place)
{
    static const struct {
        const char *rows, *says; /* A and B: members with hashes */
    } row[] = {
        {"{\"name\":\"a\"}", "f: keys[0]: name and sha256 are needed"},
        {"{A}", "f: keys[0]: name and sha256 are needed"},
        {"{\"name\":\"\",A}", "f: keys[0].name: a name has 1 to 63"},
        {"{\"name\":\"a b\",A}", "f: keys[0].name: a name has 1 to 63"},
        {"{\"name\":\"a\\u0000\",A}", "f: keys[0].name: a name has 1 to 63"},
        {"{\"name\":\"\xc3\xa9\",A}", "f: keys[0].name: a name has 1 to 63"},
        {"{\"name\":\"admin\",A}", "f: keys[0].name: the name admin is that of --admin-key"},
        {"{\"name\":\"a\",\"sha256\":\"12\"}", "f: keys[0].sha256: it is the SHA-256"},
        {"{\"name\":\"a\",\"sha256\":"
         "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a\"}",
         "f: keys[0].sha256: it is the SHA-256"},
        {"{\"name\":\"a\",\"sha256\":"
         "\"ba7816bf8f01cfea414g40de5dae2223b00361a396177a9cb410ff61f20015ad\"}",
         "f: keys[0].sha256: it is the SHA-256"},
        {"{\"name\":\"a\",A,\"weight\":0}",
         "f: keys[0].weight: it is a whole number from 1 to 1000"},
        {"{\"name\":\"a\",A,\"weight\":1.5}", "f: keys[0].weight: it is a whole number"},
        {"{\"name\":\"a\",A,\"weight\":\"1\"}", "f: keys[0].weight: it is a whole number"},
        {"{\"name\":\"a\",A,\"priority\":1001}", "f: keys[0].priority: it is a whole number"},
        {"{\"name\":\"a\",A,\"max_stream\":1}", "f: keys[0].max_stream: this is not known"},
        {"{\"name\":\"a\",A,\"max_stream\":\"x\"}", "f: keys[0].max_stream: this is not known"},
        {"{\"name\":\"a\",A,\"admin\":1}", "f: keys[0].admin: it is true or false"},
        {"{\"name\":\"a\",A},{\"name\":\"a\",B}", "f: keys[1]: another key has this name"},
        {"{\"name\":\"a\",A},{\"name\":\"b\",A}", "f: keys[1]: another row is of the same key"},
        {"7", "f: keys[0]: it is an object"},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char text[1024] = "{\"keys\":[";
        for (const char *p = row[i].rows; *p; p++) {
            size_t n = strlen(text);
            bool hash = (*p == 'A' || *p == 'B') && (p[1] == '}' || p[1] == ',');
            snprintf(text + n, sizeof(text) - n, "%.*s", hash ? 99 : 1,
                     hash ? hash_of(*p == 'A' ? 'a' : 'b') : p);
        }
        strcat(text, "]}");
        cr_expect_eq(parse(text), -EINVAL, "%s", text);
        cr_expect_eq(strncmp(err.msg, row[i].says, strlen(row[i].says)), 0, "%s: %s", text,
                     err.msg);
        cr_expect_eq(keys.n, 0);
    }
    cr_expect_neq(parse("[]"), 0);
    cr_expect_neq(parse("{\"keys\":{}}"), 0);
    cr_expect_neq(parse("{\"keys\":[],\"kez\":1}"), 0);
    cr_expect_str_eq(err.msg, "f: kez: this is not known");
    cr_expect_neq(parse("{\"keys\":[]"), 0);
    cr_expect_eq(strncmp(err.msg, "f: byte 10: ", 12), 0, "%s", err.msg);
}

Test(key_file, a_pipe_is_refused_and_not_waited_for)
{
    char folder[] = "/tmp/tokenring-key-file-XXXXXX", path[64];

    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/keys", folder);
    cr_assert_eq(mkfifo(path, 0600), 0);
    keys = (struct tr_keys){0};
    cr_expect_eq(tr_key_file_read(path, &keys, &err), -ENOTSUP);
    cr_expect(strstr(err.msg, "not a regular file"), "%s", err.msg);
    unlink(path);
    rmdir(folder);
}

Test(key_file, a_row_that_was_written_is_read_back)
{
    struct tr_key k = tr_key_defaults;
    struct tr_emit e;
    char text[1024];

    snprintf(k.name, sizeof(k.name), "ann@example");
    tr_digest("x", 1, k.hash);
    k.priority = -1;
    k.weight = 7;
    k.tokens_per_min = 1ull << 40;
    tr_emit_init(&e);
    tr_key_file_row(&e, &k);
    snprintf(text, sizeof(text), "{\"keys\":[%.*s]}", (int)e.len, e.buf);
    tr_emit_fini(&e);
    cr_expect_null(strstr(text, "max_streams"), "defaults are left out: %s", text);
    cr_assert_eq(parse(text), 0, "%s: %s", text, err.msg);
    cr_expect_eq(memcmp(&keys.row[0], &k, sizeof(k)), 0);
}

Test(key_file, the_admin_key_is_given_itself_or_as_its_hash)
{
    static struct tr_keys other;
    char text[100] = "sha256:";
    uint8_t h[TR_DIGEST_BYTES];

    tr_digest("boss", 4, h);
    tr_hex_format(h, sizeof(h), text + 7);
    cr_assert_eq(tr_key_file_admin("boss", &keys, &err), 0);
    cr_assert_eq(tr_key_file_admin(text, &other, &err), 0);
    cr_expect(keys.row[0].admin && keys.row[0].index == TR_KEYS_MAX);
    cr_expect_eq(memcmp(&keys.row[0], &other.row[0], sizeof(keys.row[0])), 0);
    cr_expect_neq(tr_key_file_admin("boss", &keys, &err), 0, "it is another's already");
    cr_expect_neq(tr_key_file_admin("sha256:12", &other, &err), 0);
    cr_expect_eq(keys.n, 1);
}

/* ---- places ---- */

static void name_keys(struct tr_keys *k, unsigned first, unsigned n)
{
    k->n = n;
    for (unsigned i = 0; i < n; i++)
        snprintf(k->row[i].name, sizeof(k->row[i].name), "key-%u", first + i);
}

Test(key_file, a_name_keeps_its_counters_and_two_names_never_share)
{
    static struct tr_key_places p;
    static struct tr_keys k;
    static bool used[TR_KEYS_MAX];

    name_keys(&k, 0, 3);
    tr_key_places_give(&p, &k);
    uint32_t second = k.row[1].index;
    name_keys(&k, 1, TR_KEYS_MAX); /* key-0 is gone, and every place is needed */
    tr_key_places_give(&p, &k);
    cr_expect_eq(k.row[0].index, second);
    for (uint32_t i = 0; i < k.n; i++) {
        cr_assert_lt(k.row[i].index, (uint32_t)TR_KEYS_MAX);
        cr_assert_not(used[k.row[i].index]);
        used[k.row[i].index] = true;
    }
}

Test(key_file, the_place_of_whoever_is_gone_longest_is_taken_first)
{
    static struct tr_key_places p;
    static struct tr_keys k;

    name_keys(&k, 0, TR_KEYS_MAX);
    tr_key_places_give(&p, &k);
    uint32_t first = k.row[7].index, later = k.row[3].index;
    memmove(&k.row[7], &k.row[8], (TR_KEYS_MAX - 8) * sizeof(k.row[0])); /* key-7 goes */
    k.n = TR_KEYS_MAX - 1;
    tr_key_places_give(&p, &k);
    snprintf(k.row[3].name, sizeof(k.row[3].name), "new-a"); /* for key-3 */
    tr_key_places_give(&p, &k);
    cr_expect_eq(k.row[3].index, first);
    k.n++;
    k.row[k.n - 1] = (struct tr_key){.name = "new-b"};
    tr_key_places_give(&p, &k);
    cr_expect_eq(k.row[k.n - 1].index, later);
}
