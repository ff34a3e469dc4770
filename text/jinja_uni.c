/* SPDX-License-Identifier: Apache-2.0 */
/* Simple mappings come from utf8proc; the few characters whose full mapping is longer, or whose
 * class differs from their category, are in the tables below (Unicode Character Database,
 * SpecialCasing.txt and UnicodeData.txt). */
#include "text/jinja_uni.h"

#include <utf8proc.h>

static utf8proc_category_t category(int32_t ch)
{
    return ch < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(ch);
}

bool tr_juni_space(int32_t ch)
{
    return (ch >= 9 && ch <= 13) || (ch >= 28 && ch <= 32) || ch == 0x85 || ch == 0xA0 ||
           ch == 0x1680 || (ch >= 0x2000 && ch <= 0x200A) || ch == 0x2028 || ch == 0x2029 ||
           ch == 0x202F || ch == 0x205F || ch == 0x3000;
}

struct range {
    int32_t first, last;
};

static bool in_ranges(int32_t ch, const struct range *r, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ch >= r[i].first && ch <= r[i].last)
            return true;
    return false;
}

bool tr_juni_alpha(int32_t ch)
{
    utf8proc_category_t k = category(ch);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool tr_juni_decimal(int32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_ND;
}

bool tr_juni_digit(int32_t ch)
{
    /* Digits that are no decimals: superscripts, subscripts, circled and the like. */
    static const struct range extra[] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    return tr_juni_decimal(ch) || in_ranges(ch, extra, sizeof extra / sizeof extra[0]);
}

bool tr_juni_alnum(int32_t ch)
{
    utf8proc_category_t k = category(ch);
    return tr_juni_alpha(ch) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool tr_juni_printable(int32_t ch)
{
    if (ch == ' ')
        return true;
    switch (category(ch)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    default:
        return true;
    }
}

bool tr_juni_upper(int32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_LU || (ch >= 0x2160 && ch <= 0x216F) ||
           (ch >= 0x24B6 && ch <= 0x24CF) || (ch >= 0x1F130 && ch <= 0x1F149) ||
           (ch >= 0x1F150 && ch <= 0x1F169) || (ch >= 0x1F170 && ch <= 0x1F189);
}

bool tr_juni_lower(int32_t ch)
{
    static const struct range extra[] = {
        {0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
        {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
        {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
        {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
        {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
        {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}};
    return category(ch) == UTF8PROC_CATEGORY_LL ||
           in_ranges(ch, extra, sizeof extra / sizeof extra[0]);
}

bool tr_juni_title(int32_t ch)
{
    return category(ch) == UTF8PROC_CATEGORY_LT;
}

size_t tr_juni_encode(int32_t ch, char out[4])
{
    return (size_t)utf8proc_encode_char(ch, (utf8proc_uint8_t *)out);
}

/* Full mappings to upper and title case that are longer than one character. */
static const struct special {
    uint16_t from;
    uint16_t upper[3];
    uint16_t title[3];
} special[] = {
#include "text/jinja_case.def"
};

static void add_code(struct tr_jbuf *b, int32_t ch, bool user)
{
    char utf8[4];
    tr_jbuf_add(b, utf8, tr_juni_encode(ch, utf8), user);
}

void tr_juni_add(struct tr_jbuf *b, int32_t ch, const char *raw, size_t n, enum tr_juni_case how,
                 bool user)
{
    if (ch < 0) {
        tr_jbuf_add(b, raw, n, user);
        return;
    }
    if (how == TR_JUNI_LOWER) {
        if (ch == 0x130)
            tr_jbuf_add(b, "i\xCC\x87", 3, user);
        else
            add_code(b, utf8proc_tolower(ch), user);
        return;
    }
    for (size_t i = 0; ch >= 0xDF && i < sizeof special / sizeof special[0]; i++) {
        if (special[i].from != ch)
            continue;
        const uint16_t *to = how == TR_JUNI_UPPER ? special[i].upper : special[i].title;
        for (int k = 0; k < 3 && to[k]; k++)
            add_code(b, to[k], user);
        return;
    }
    add_code(b, how == TR_JUNI_UPPER ? utf8proc_toupper(ch) : utf8proc_totitle(ch), user);
}

/* Characters that case rules look through when they look for the neighbours of a sigma. */
static bool ignorable(int32_t ch)
{
    switch (category(ch)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
        return true;
    default:
        return ch == '\'' || ch == '.' || ch == ':' || ch == 0xB7 || ch == 0x387 || ch == 0x55F ||
               ch == 0x5F4 || ch == 0x2018 || ch == 0x2019 || ch == 0x2024 || ch == 0x2027 ||
               ch == 0xFE13 || ch == 0xFE52 || ch == 0xFE55 || ch == 0xFF07 || ch == 0xFF0E ||
               ch == 0xFF1A;
    }
}

static bool cased(int32_t ch)
{
    return tr_juni_upper(ch) || tr_juni_lower(ch) || tr_juni_title(ch);
}

/* A capital sigma at byte i becomes a final one: a cased letter before, none behind. */
static bool final_sigma(struct tr_jstr s, size_t i)
{
    size_t n;
    int32_t ch = -1;
    size_t k = i;
    while (k > 0) {
        ch = tr_jchar_before(s, k, &n);
        if (!ignorable(ch))
            break;
        k -= n;
    }
    if (k == 0 || !cased(ch))
        return false;
    for (k = i + 2; k < s.len; k += n) {
        ch = tr_jchar(s, k, &n);
        if (!ignorable(ch))
            return !cased(ch);
    }
    return true;
}

static void fold(struct tr_jbuf *b, int32_t ch, bool user)
{
    utf8proc_int32_t to[8];
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(ch, to, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < n && i < 8; i++)
        add_code(b, to[i], user);
}

struct tr_jv *tr_juni_map(struct tr_jctx *c, struct tr_jstr s, enum tr_juni_case how)
{
    struct tr_jbuf b;
    size_t n;
    bool word = false; /* inside a word, for title */
    tr_jbuf_init(&b, c);
    for (size_t i = 0; i < s.len && !b.bad; i += n) {
        int32_t ch = tr_jchar(s, i, &n);
        enum tr_juni_case to = how;
        if (how == TR_JUNI_CAPITAL)
            to = i ? TR_JUNI_LOWER : TR_JUNI_TITLE;
        else if ((how == TR_JUNI_TITLE && word) || (how == TR_JUNI_SWAP && tr_juni_upper(ch)))
            to = TR_JUNI_LOWER;
        else if (how == TR_JUNI_SWAP && tr_juni_lower(ch))
            to = TR_JUNI_UPPER;
        word = cased(ch);
        bool user = tr_jstr_user(s, i, i + n);
        if (to == TR_JUNI_FOLD && ch >= 0)
            fold(&b, ch, user);
        else if (to == TR_JUNI_SWAP || to == TR_JUNI_FOLD)
            tr_jbuf_add(&b, s.p + i, n, user);
        else if (ch == 0x3A3 && to == TR_JUNI_LOWER)
            add_code(&b, final_sigma(s, i) ? 0x3C2 : 0x3C3, user);
        else
            tr_juni_add(&b, ch, s.p + i, n, to, user);
    }
    return tr_jbuf_value(&b);
}
