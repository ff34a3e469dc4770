/* SPDX-License-Identifier: Apache-2.0 */
/* text/pretok_rules.c - see pretok_rules.h. */
#include "text/pretok_rules.h"

#include <string.h>

/* The property White_Space, for use inside brackets. */
#define BLANK "\\t-\\r\\x{85}\\p{Z}"

/* The last two rules of most: blanks up to a word leave one blank to it, if it can take one. */
#define BLANKS "|[" BLANK "]+(?![^" BLANK "])|[" BLANK "]+"

/* Ends of English words, in small letters, or in either case. */
#define SMALL_ENDS "'s|'t|'re|'ve|'m|'ll|'d"
#define ENDS "(?i:" SMALL_ENDS ")"

#define GPT2 SMALL_ENDS "| ?\\p{L}+| ?\\p{N}+| ?[^" BLANK "\\p{L}\\p{N}]+" BLANKS

/* Line ends stay with the signs before them, or are words with the blanks before them. */
#define SIGNS " ?[^" BLANK "\\p{L}\\p{N}]+[\\r\\n]*"
#define LINES "[" BLANK "]*[\\r\\n]+"

/* Letters after at most one sign or blank; digits up to so many together. */
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define TIKTOKEN(digits) WORDS "|\\p{N}" digits "|" SIGNS "|" LINES BLANKS

/* Words that begin with capitals, or are all of them, and may have an end. */
#define CAPITALS "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define SMALLS "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED(end)                                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?[" CAPITALS "]*[" SMALLS "]+" end "|[^\\r\\n\\p{L}\\p{N}]?[" CAPITALS   \
    "]+[" SMALLS "]*" end
#define O200K(end, digits)                                                                         \
    CASED(end) "|\\p{N}" digits "| ?[^" BLANK "\\p{L}\\p{N}]+[\\r\\n/]*|" LINES BLANKS

/* The same without the script Han, as that which nothing else is: PCRE2 cannot subtract classes. */
#define NOT_HAN_CAPITALS "[^\\p{sc:Han}\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define NOT_HAN_SMALLS "[^\\p{sc:Han}\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"

#define HAN_AND_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define EAST_ASIAN "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

/* A sign of ASCII takes the letters behind it along. */
#define DEEPSEEK(signs, lines)                                                                     \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "                      \
    "?[\\p{P}\\p{S}]+" signs "|" lines BLANKS

/* The letters with case of an older Unicode. */
#define DEEPSEEK_LETTERS                                                                           \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                 \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}" \
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"         \
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"  \
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                 \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"                 \
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"         \
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"        \
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"                 \
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}"         \
    "\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}"                   \
    "\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}"         \
    "\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}"                  \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}"                 \
    "\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}"                 \
    "\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}"           \
    "\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"

#define BLOOM " ?[^()|" BLANK ".,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c}]+"

static const struct tr_pretok_rule gpt2 = {.pattern = {GPT2}};
/* Each digit is cut out first, so for the rule of blanks a digit is an end of text. */
static const struct tr_pretok_rule digits = {
    .pattern = {"\\p{N}|" SMALL_ENDS "| ?\\p{L}+| ?[^" BLANK "\\p{L}\\p{N}]+"
                "|[" BLANK "]+(?![^" BLANK "\\p{N}])|[" BLANK "]+"}};
static const struct tr_pretok_rule llama3 = {.pattern = {ENDS "|" TIKTOKEN("{1,3}")}};
static const struct tr_pretok_rule qwen2 = {.pattern = {ENDS "|" TIKTOKEN("")}};
/* Marks are parts of words. */
static const struct tr_pretok_rule qwen35 = {
    .pattern = {ENDS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" BLANK
                     "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES BLANKS}};
static const struct tr_pretok_rule no_ends = {.pattern = {TIKTOKEN("")}};
static const struct tr_pretok_rule minicpm5 = {.pattern = {"\\p{N}{1,3}", ENDS "|" TIKTOKEN("+")}};
/* A line end ends its word. */
static const struct tr_pretok_rule bailing = {
    .pattern = {ENDS "|" WORDS "|\\p{N}|" SIGNS "|[" BLANK "]*[\\r\\n]" BLANKS}};
static const struct tr_pretok_rule seed_coder = {
    .pattern = {ENDS "|" WORDS "|\\p{N}| ?[^" BLANK "\\p{L}\\p{N}]+|" LINES BLANKS}};
/* Words with one blank between them are one word. */
static const struct tr_pretok_rule exaone_moe = {
    .pattern = {ENDS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+"
                     "|\\p{N}| ?[^" BLANK "\\p{L}\\p{N}]+[\\r\\n/]?|[" BLANK "]*[\\r\\n]" BLANKS}};
/* Blanks in powers of two. */
static const struct tr_pretok_rule jais2 = {
    .pattern = {ENDS "|" WORDS "|\\p{N}{1,3}|" SIGNS "|" LINES "|(?:[" BLANK "]{512}|[" BLANK
                     "]{256}|[" BLANK "]{128}|[" BLANK "]{64}|[" BLANK "]{32}|[" BLANK
                     "]{16}|[" BLANK "]{8}|[" BLANK "]{4}|[" BLANK "]{1,2})(?![^" BLANK "])|[" BLANK
                     "]"}};

static const struct tr_pretok_rule o200k = {.pattern = {O200K(ENDS "?", "{1,3}")}};
static const struct tr_pretok_rule tekken = {.pattern = {O200K("", "")}};
static const struct tr_pretok_rule kimi = {
    .pattern = {"\\p{sc:Han}+|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN_CAPITALS "*" NOT_HAN_SMALLS "+" ENDS
                "?|[^\\r\\n\\p{L}\\p{N}]?" NOT_HAN_CAPITALS "+" NOT_HAN_SMALLS "*" ENDS
                "?|\\p{N}{1,3}|" SIGNS "|" LINES BLANKS}};
static const struct tr_pretok_rule youtu = {
    .pattern = {
        "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"
        "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}"
        "\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" HAN_AND_KANA,
        O200K(ENDS "?", "")}};

static const struct tr_pretok_rule deepseek_llm = {
    .pattern = {"[\\r\\n]", "[" BLANK "]?[" DEEPSEEK_LETTERS "]+",
                "[" BLANK "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
                "\\x{3000}-\\x{3002}]+",
                "(?<![" BLANK "])[" BLANK "]++\\z", EAST_ASIAN, "\\p{N}"}};
static const struct tr_pretok_rule deepseek_coder = {
    .pattern = {"[\\r\\n]", "[" BLANK "]?\\p{L}+", "[" BLANK "]?\\p{P}+", EAST_ASIAN, "\\p{N}"}};
static const struct tr_pretok_rule deepseek_v3 = {
    .pattern = {"\\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK("[\\r\\n]*", LINES)}};
static const struct tr_pretok_rule spark = {
    .pattern = {"\\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK("", "[\\r\\n]"), "\\p{N}"}};

/* Falcon's tokeniser looks for digits when bytes have become letters of GPT-2's alphabet: six of
 * those are numbers, so characters may be cut. */
static const struct tr_pretok_rule falcon = {
    .pattern = {"[\\p{P}$+<=>^`|~]+", GPT2, "[0-9\\xb2\\xb3\\xb9\\xbc-\\xbe]+", "[0-9][0-9][0-9]"},
    .bytes_from = 2};
/* What files are given whose tokeniser nobody had looked at. */
static const struct tr_pretok_rule fallback = {
    .pattern = {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}};

static const struct tr_pretok_rule bloom = {.pattern = {BLOOM}};
static const struct tr_pretok_rule viking = {.pattern = {BLOOM, "\\p{N}"}};

#define NFC TR_PRETOK_NFC
#define WHOLE TR_PRETOK_WHOLE
#define BOS TR_PRETOK_BOS

static const struct tr_pretok_name NAMES[] = {
    {"default", &fallback, 0},
    {"falcon", &falcon, 0},

    {"gpt-2", &gpt2, 0},
    {"a.x-4.0", &gpt2, 0},
    {"exaone4", &gpt2, 0},
    {"gigachat", &gpt2, 0},
    {"granite-docling", &gpt2, 0},
    {"jais", &gpt2, 0},
    {"mellum", &gpt2, 0},
    {"mpt", &gpt2, NFC},
    {"olmo", &gpt2, NFC},
    {"phi-2", &gpt2, 0},
    {"trillion", &gpt2, 0},

    {"smollm", &digits, 0},
    {"codeshell", &digits, 0},
    {"command-r", &digits, NFC},
    {"exaone", &digits, 0},
    {"mellum2", &digits, 0},
    {"minerva-7b", &digits, 0},
    {"refact", &digits, 0},
    {"starcoder", &digits, 0},

    {"llama-bpe", &llama3, WHOLE | BOS},
    {"llama3", &llama3, WHOLE | BOS},
    {"llama-v3", &llama3, WHOLE | BOS},
    {"falcon3", &llama3, WHOLE | BOS},
    {"falcon-h1", &llama3, WHOLE | BOS},
    {"lfm2", &llama3, WHOLE | BOS},
    {"midm-2.0", &llama3, WHOLE | BOS},
    {"pixtral", &llama3, WHOLE | BOS},
    {"chatglm-bpe", &llama3, 0},
    {"dbrx", &llama3, 0},
    {"glm4", &llama3, 0},
    {"smaug-bpe", &llama3, 0},

    {"qwen2", &qwen2, NFC},
    {"deepseek-r1-qwen", &qwen2, 0},
    {"grok-2", &qwen2, 0},
    {"hunyuan", &qwen2, 0},
    {"kormo", &qwen2, 0},
    {"megrez", &qwen2, 0},
    {"solar-open", &qwen2, 0},
    {"stablelm2", &qwen2, NFC},
    {"qwen35", &qwen35, NFC},
    {"ufakzeka", &no_ends, 0},

    {"bailingmoe", &bailing, 0},
    {"bailingmoe2", &bailing, 0},
    {"llada-moe", &bailing, 0},
    {"exaone-moe", &exaone_moe, 0},
    {"jais-2", &jais2, 0},
    {"minicpm5", &minicpm5, WHOLE},
    {"seed-coder", &seed_coder, 0},

    {"gpt-4o", &o200k, 0},
    {"kanana2", &o200k, 0},
    {"llama4", &o200k, 0},
    {"minimax-m2", &o200k, 0},
    {"talkie", &o200k, 0},
    {"tekken", &tekken, WHOLE | BOS},
    {"kimi-k2", &kimi, 0},
    {"youtu", &youtu, WHOLE},

    {"deepseek-llm", &deepseek_llm, 0},
    {"deepseek-coder", &deepseek_coder, 0},
    {"deepseek-v3", &deepseek_v3, 0},
    {"hunyuan-dense", &deepseek_v3, 0},
    {"hy_v4", &deepseek_v3, 0},
    {"joyai-llm", &deepseek_v3, 0},
    {"spark2_5", &spark, 0},

    {"bloom", &bloom, 0},
    {"gpt3-finnish", &bloom, 0},
    {"poro-chat", &bloom, 0},
    {"viking", &viking, 0},
};

const struct tr_pretok_name *tr_pretok_name_at(size_t i)
{
    return i < sizeof(NAMES) / sizeof(NAMES[0]) ? &NAMES[i] : NULL;
}

const struct tr_pretok_name *tr_pretok_named(struct tr_str name)
{
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++)
        if (strlen(NAMES[i].name) == name.len && memcmp(NAMES[i].name, name.p, name.len) == 0)
            return &NAMES[i];
    return NULL;
}
