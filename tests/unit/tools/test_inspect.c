/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/report.h"
#include "inspect/shown.h"
#include "testlib/gguf_write.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void shows(const char *s, size_t len, size_t most, const char *want)
{
    char out[TR_SHOWN_BYTES];
    cr_expect_str_eq(tr_shown(out, (struct tr_str){s, len}, most), want);
}

Test(inspect, a_terminal_gets_nothing_to_obey)
{
    shows("plain \xc3\xa9", 8, 80, "plain \xc3\xa9");
    shows("a\nb\tc\rd", 7, 80, "a\\nb\\tc\\rd");
    shows("\x1b[31m\x07", 6, 80, "\\x1b[31m\\x07");
    shows("q\"b\\", 4, 80, "q\\\"b\\\\");
    shows("\0x", 2, 80, "\\x00x");
    shows("\xff\xc3", 2, 80, "\\xff\\xc3");
    shows("\xc2\x9b", 2, 80, "\\xc2\\x9b");
    shows("\xe2\x80\xae"
          "a",
          4, 80,
          "\\xe2\\x80\\xae"
          "a");
    shows("\xe2\x80\x8b", 3, 80, "\\xe2\\x80\\x8b");
    shows("abcdef", 6, 3, "abc...");
    shows("", 0, 80, "");
}

Test(inspect, the_longest_string_fits)
{
    char out[TR_SHOWN_BYTES], s[100];
    memset(s, 0xff, sizeof(s));
    cr_assert_eq(strlen(tr_shown(out, (struct tr_str){s, sizeof(s)}, 80)), 4 * 80 + 3);
}

Test(inspect, sizes_have_one_unit)
{
    static const struct {
        uint64_t n;
        const char *want;
    } rows[] = {
        {0, "0 B"},         {999, "999 B"},        {1000, "1.0 kB"},       {999949, "999.9 kB"},
        {999950, "1.0 MB"}, {98362432, "98.4 MB"}, {UINT64_MAX, "18.4 EB"}};
    char out[32];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        cr_expect_str_eq(tr_shown_bytes(out, rows[i].n), rows[i].want);
}

/* A file of these facts, and the text or the JSON that is told of it. */
static char *told(struct tr_gw *w, bool json, struct tr_facts *f)
{
    size_t len;
    char path[64], *out = NULL;
    uint8_t *bytes = tr_gw_finish(w, &len);
    struct tr_errbuf err = {""};
    struct tr_inspect_wish wish = {.path = "m.gguf", .tensors = true, .metadata = true};

    tr_gw_save(bytes, len, path);
    free(bytes);
    cr_assert_eq(tr_facts_open(f, path, &err), 0, "%s", err.msg);
    unlink(path);
    FILE *to = open_memstream(&out, &len);
    if (json)
        cr_assert_eq(tr_inspect_json(to, f, &wish), 0);
    else
        tr_inspect_text(to, f, &wish);
    fclose(to);
    return out;
}

static struct tr_gw *tiny(struct tr_gw_llama m)
{
    struct tr_gw *w = tr_gw_new(3);
    tr_gw_llama(w, &m);
    return w;
}

Test(inspect, numbers_and_memory_are_those_of_the_model)
{
    struct tr_facts f;
    char *text =
        told(tiny((struct tr_gw_llama){.type = TR_T_Q8_0, .n_embd = 64, .n_head = 2}), false, &f);
    cr_assert(f.model);
    cr_expect_eq(f.model->weights, NULL);
    /* K and V, two layers, one head of 32 elements of two bytes, for 32 tokens. */
    cr_expect_eq(f.kv_block[TR_KV_F16], 2 * 2 * 32 * 2 * TR_KV_BLOCK);
    cr_expect(strstr(text, "container     GGUF version 3, "));
    cr_expect(strstr(text, "context       256 tokens\n"));
    cr_expect(
        strstr(text,
               "attention     2 heads of 32, 1 of keys and values; RoPE over 32, base 10000\n"),
        "%s", text);
    cr_expect(strstr(text, "--kv-type f16   256 B a token, 65.5 kB a context of 256\n"), "%s",
              text);
    cr_expect(strstr(text, "\nblk.1.attn_q.weight "));
    cr_expect(strstr(text, "\nllama.block_count "));
    free(text);
    tr_facts_close(&f);
}

Test(inspect, a_part_that_is_refused_hides_no_other)
{
    struct tr_facts f;
    char *text = told(tiny((struct tr_gw_llama){.skip = "blk.1.ffn_up.weight"}), false, &f);
    cr_expect(!f.model && !f.vocab);
    cr_expect_eq(f.n_refusals, 2);
    cr_expect(strstr(text, "serve         no\n"));
    cr_expect(strstr(text, "tensor blk.1.ffn_up.weight is missing\n"));
    cr_expect(strstr(text, "tokenizer.ggml"));
    cr_expect(strstr(text, "tensors       "));
    free(text);
    tr_facts_close(&f);
}

Test(inspect, heads_that_a_kv_type_cannot_hold_are_told)
{
    struct tr_facts f;
    char *text = told(tiny((struct tr_gw_llama){.n_embd = 96, .n_head = 2}), false, &f);
    cr_assert(f.model);
    cr_expect(f.kv_block[TR_KV_F16] && !f.kv_block[TR_KV_Q8_0]);
    cr_expect(strstr(text, "--kv-type q8_0  cannot hold heads of 48 elements\n"), "%s", text);
    free(text);
    tr_facts_close(&f);
}

Test(inspect, strings_of_the_file_are_escaped)
{
    struct tr_gw *w = tr_gw_new(3);
    struct tr_facts f;
    tr_gw_str(w, "general.name", "\x1b[2J\"evil\"");
    tr_gw_str(w, "key\nwith a line", "\xff");
    tr_gw_strs(w, "list", (const char *const[]){"a", "\x07", "c"}, 3);
    char *text = told(w, false, &f);
    cr_expect_eq(strchr(text, '\x1b'), NULL);
    cr_expect_eq(strchr(text, '\x07'), NULL);
    cr_expect(strstr(text, "name          \\x1b[2J\\\"evil\\\"\n"));
    cr_expect(strstr(text, "\nkey\\nwith a line "));
    cr_expect(strstr(text, " 3: [\"a\", \"\\x07\", \"c\"]\n"), "%s", text);
    free(text);
    tr_facts_close(&f);
}

Test(inspect, json_says_the_same)
{
    struct tr_facts f;
    char *text = told(tiny((struct tr_gw_llama){.type = TR_T_Q8_0}), true, &f);
    cr_expect_eq(strchr(text, '\n'), text + strlen(text) - 1, "one line");
    cr_expect(strstr(text, "\"architecture\":\"llama\""));
    cr_expect(strstr(text, "\"context\":256,\"layers\":2,"));
    cr_expect(strstr(text, "\"serve\":false,\"refusals\":[\""));
    cr_expect(strstr(text, "\"vocabulary\":null,\"template\":null,"));
    cr_expect(strstr(text, "{\"key\":\"llama.block_count\",\"type\":\"u32\",\"value\":2}"), "%s",
              text);
    cr_expect(
        strstr(
            text,
            "{\"name\":\"token_embd.weight\",\"type\":\"F32\",\"bytes\":25600,\"shape\":[64,100]}"),
        "%s", text);
    free(text);
    tr_facts_close(&f);
}
