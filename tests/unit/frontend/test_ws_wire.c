/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/ws_wire.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 200000 };

/* ---- a client's frames ---- */

struct bytes {
    unsigned char p[1 << 19];
    size_t n;
};

static struct bytes in;

/* first: FIN, RSV and opcode; len < 0: as long as it is. */
static void frame_n(unsigned first, const char *text, size_t n, bool mask, int64_t len)
{
    static const unsigned char key[4] = {0x37, 0xfa, 0x21, 0x3d};
    uint64_t say = len < 0 ? n : (uint64_t)len;
    unsigned m = mask ? 0x80 : 0, bytes = say < 126 ? 0 : say < 65536 ? 2 : 8;
    in.p[in.n++] = (unsigned char)first;
    in.p[in.n++] = (unsigned char)(m | (bytes == 0 ? (unsigned)say : bytes == 2 ? 126 : 127));
    for (unsigned i = 0; i < bytes; i++)
        in.p[in.n++] = (unsigned char)(say >> 8 * (bytes - 1 - i));
    if (mask)
        for (unsigned i = 0; i < 4; i++)
            in.p[in.n++] = key[i];
    for (size_t i = 0; i < n; i++)
        in.p[in.n++] = (unsigned char)text[i] ^ (mask ? key[i % 4] : 0);
}

static void frame(unsigned first, const char *text)
{
    frame_n(first, text, strlen(text), true, -1);
}

/* ---- what came of them ---- */

static char said[4096];

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    size_t n = strlen(said);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(said + n, sizeof(said) - n, fmt, ap);
    va_end(ap);
}

static size_t held;

/* In pieces of `step` bytes, each in memory of exactly its size. */
static void feed(size_t step, size_t max_held)
{
    struct tr_ws_limits lim = {.max_message = MAX, .held = &held, .max_held = max_held};
    struct tr_ws_wire w;
    said[0] = '\0';
    held = 0;
    cr_assert_eq(tr_ws_wire_init(&w, &lim), 0);
    for (size_t at = 0; at < in.n;) {
        size_t n = in.n - at < step ? in.n - at : step, off = 0, used;
        char *exact = malloc(n);
        memcpy(exact, in.p + at, n);
        enum tr_ws_ev ev;
        do {
            ev = tr_ws_feed(&w, exact + off, n - off, &used);
            off += used;
            if (ev == TR_WS_MESSAGE && w.len > 64)
                say("%s %zu;", w.binary ? "binary" : "text", w.len);
            else if (ev == TR_WS_MESSAGE)
                say("%s %.*s;", w.binary ? "binary" : "text", (int)w.len,
                    w.message ? w.message : "");
            else if (ev == TR_WS_PING || ev == TR_WS_PONG)
                say("%s %.*s;", ev == TR_WS_PING ? "ping" : "pong", (int)w.control_len, w.control);
            else if (ev == TR_WS_CLOSE || ev == TR_WS_BAD)
                say("%s %u;", ev == TR_WS_CLOSE ? "close" : "bad", w.code);
            if (ev == TR_WS_BAD)
                cr_expect(w.why && w.why[0] && held == 0);
        } while (ev != TR_WS_MORE);
        cr_assert_eq(off, n, "all is used");
        free(exact);
        at += n;
    }
    tr_ws_wire_fini(&w);
    cr_expect_eq(held, 0);
}

/* The same, however the bytes come. */
static void expect(const char *want)
{
    static const size_t steps[] = {1, 2, 3, 7, 4096, sizeof(in.p)};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        feed(steps[i], 1 << 20);
        cr_expect_str_eq(said, want, "%zu bytes at a time: %s", steps[i], said);
    }
    in.n = 0;
}

enum { FIN = 0x80, TEXT = 1, BINARY = 2, CLOSE = 8, PING = 9, PONG = 10 };

Test(ws_wire, messages_come_whole_and_control_frames_between_their_parts)
{
    frame(FIN | TEXT, "one");
    frame(FIN | BINARY, "two");
    frame(FIN | TEXT, "");
    frame(TEXT, "th");
    frame(FIN | PING, "hb");
    frame(0, "");
    frame(FIN | PONG, "");
    frame(FIN, "ree");
    frame(TEXT, "");
    frame(0, "");
    frame(FIN, "");
    expect("text one;binary two;text ;ping hb;pong ;text three;text ;");
}

Test(ws_wire, violations_have_their_codes)
{
    static char long_ping[126];
    memset(long_ping, 'a', sizeof(long_ping));
    frame_n(FIN | TEXT, "x", 1, false, -1);
    expect("bad 1002;");
    frame(TEXT, "x");
    frame(FIN | TEXT, "y");
    expect("bad 1002;");
    frame(TEXT, "x");
    frame(FIN | BINARY, "y");
    expect("bad 1002;");
    frame(FIN, "x");
    expect("bad 1002;");
    frame(FIN | TEXT, "x");
    frame(0, "x");
    expect("text x;bad 1002;");
    frame_n(FIN | PING, long_ping, 126, true, -1);
    expect("bad 1002;");
    frame(PING, "x");
    expect("bad 1002;");
    for (unsigned rsv = 0x10; rsv <= 0x40; rsv <<= 1) {
        frame(FIN | rsv | TEXT, "x");
        expect("bad 1002;");
        frame(FIN | rsv | PING, "x");
        expect("bad 1002;");
    }
    static const unsigned none[] = {3, 4, 7, 11, 15};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        frame(FIN | none[i], "x");
        expect("bad 1002;");
    }
    frame(FIN | PING, "p");
    frame(FIN | 11, "");
    frame(FIN | TEXT, "never seen");
    expect("ping p;bad 1002;");
}

/* From its first byte on, and not a byte longer; also a frame between the parts of a message. */
Test(ws_wire, a_frame_has_begun_with_the_first_byte_of_its_head)
{
    static const size_t lengths[] = {0, 1, 125, 126, 5000, 65536};
    static char text[65536];
    struct tr_ws_limits lim = {.max_message = MAX, .held = &held, .max_held = MAX};

    memset(text, 'a', sizeof(text));
    for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
        struct tr_ws_wire w;
        cr_assert_eq(tr_ws_wire_init(&w, &lim), 0);
        in.n = 0;
        frame_n(0x81, text, lengths[k], true, -1);
        for (int twice = 0; twice < 2; twice++) {
            cr_expect(!tr_ws_begun(&w), "%zu", lengths[k]);
            for (size_t at = 0, used; at < in.n; at++) {
                enum tr_ws_ev ev = tr_ws_feed(&w, (const char *)in.p + at, 1, &used);
                bool last = at + 1 == in.n;
                cr_assert_eq(ev, last ? TR_WS_MESSAGE : TR_WS_MORE, "%zu: %zu", lengths[k], at);
                cr_assert_eq(tr_ws_begun(&w), !last, "%zu: %zu", lengths[k], at);
            }
        }
        tr_ws_wire_fini(&w);
    }
}

Test(ws_wire, a_length_that_is_announced_costs_nothing)
{
    frame_n(FIN | TEXT, "x", 1, true, INT64_MAX);
    expect("bad 1009;");
    in.p[in.n++] = FIN | TEXT; /* 2^63 */
    memcpy(in.p + in.n, "\xff\x80\0\0\0\0\0\0\0\1\2\3\4", 13);
    in.n += 13;
    expect("bad 1002;");
    in.p[in.n++] = FIN | TEXT; /* 5, in more bytes than it takes */
    memcpy(in.p + in.n, "\xfe\0\5\1\2\3\4hello", 12);
    in.n += 12;
    expect("bad 1002;");
    frame_n(FIN | TEXT, "x", 1, true, MAX); /* it may come */
    expect("");
    frame_n(FIN | TEXT, "x", 1, true, MAX + 1);
    expect("bad 1009;");
    frame_n(TEXT, "x", 1, true, -1);
    frame_n(FIN, "x", 1, true, MAX);
    expect("bad 1009;");
}

Test(ws_wire, large_messages_share_a_bound)
{
    static char big[MAX];
    memset(big, 'b', sizeof(big));
    frame_n(FIN | TEXT, big, MAX, true, -1);
    frame_n(FIN | BINARY, big, 65536, true, -1);
    expect("text 200000;binary 65536;");
    frame_n(FIN | TEXT, big, 65536, true, -1);
    frame_n(FIN | TEXT, big, MAX, true, -1);
    feed(4096, 1000);
    cr_expect_str_eq(said, "text 65536;bad 1013;");
}

Test(ws_wire, a_text_is_utf8_and_told_at_the_first_byte_that_is_not)
{
    static const struct {
        const char *text, *want;
    } row[] = {
        {"\xce\xba\xe1\xbd\xb9\xcf\x83\xf0\x90\x8d\x88",
         "text \xce\xba\xe1\xbd\xb9\xcf\x83\xf0\x90\x8d\x88;"},
        {"\xff", "bad 1007;"},
        {"a\xed\xa0\x80", "bad 1007;"},
        {"\xf4\x90", "bad 1007;"},
        {"\xc0\xaf", "bad 1007;"},
        {"a\xe1\xbd", "bad 1007;"}, /* half a character at the end */
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        frame(FIN | TEXT, row[i].text);
        expect(row[i].want);
    }
    /* A character may be cut between frames; what cannot become one is not waited for. */
    frame(TEXT, "\xf0\x90");
    frame(0, "\x8d");
    frame(FIN, "\x88");
    expect("text \xf0\x90\x8d\x88;");
    frame(TEXT, "\xf4\x90");
    expect("bad 1007;");
    frame(TEXT, "\xed");
    frame(0, "\xa0");
    expect("bad 1007;");
    frame(FIN | BINARY, "\xff\xfe");
    expect("binary \xff\xfe;");
}

Test(ws_wire, a_close_has_no_code_or_one_that_may_be_sent)
{
    static const struct {
        const char *p;
        size_t n;
        const char *want;
    } row[] = {
        {"", 0, "close 1005;"},
        {"\x03\xe8", 2, "close 1000;"},
        {"\x03\xe8"
         "bye \xc3\xbc",
         8, "close 1000;"},
        {"\x0b\xb8", 2, "close 3000;"},
        {"\x13\x87", 2, "close 4999;"},
        {"\x03\xf6", 2, "close 1014;"},
        {"x", 1, "bad 1002;"},
        {"\x03\xe7", 2, "bad 1002;"}, /* 999 */
        {"\x03\xec", 2, "bad 1002;"}, /* 1004 */
        {"\x03\xed", 2, "bad 1002;"}, /* 1005 */
        {"\x03\xee", 2, "bad 1002;"}, /* 1006 */
        {"\x03\xf7", 2, "bad 1002;"}, /* 1015 */
        {"\x0b\xb7", 2, "bad 1002;"}, /* 2999 */
        {"\x13\x88", 2, "bad 1002;"}, /* 5000 */
        {"\x03\xe8\xff", 3, "bad 1007;"},
        {"\x03\xe8\xe1\xbd", 4, "bad 1007;"},
    };
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        frame_n(FIN | CLOSE, row[i].p, row[i].n, true, -1);
        frame(FIN | TEXT, "after the close");
        expect(row[i].want);
    }
}

Test(ws_wire, our_frames_have_the_shortest_head)
{
    static const struct {
        size_t len, head;
        const char *bytes;
    } row[] = {
        {0, 2, "\x81\0"},
        {125, 2, "\x81\x7d"},
        {126, 4, "\x81\x7e\0\x7e"},
        {65535, 4, "\x81\x7e\xff\xff"},
        {65536, 10, "\x81\x7f\0\0\0\0\0\1\0\0"},
    };
    uint8_t head[TR_WS_HEAD_BYTES], out[TR_WS_CONTROL_BYTES];
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        cr_expect_eq(tr_ws_head(head, TR_WS_TEXT, row[i].len), row[i].head);
        cr_expect_eq(memcmp(head, row[i].bytes, row[i].head), 0, "%zu", row[i].len);
    }
    cr_expect_eq(tr_ws_close_payload(out, TR_WS_GOING_AWAY, "bye"), 5);
    cr_expect_eq(memcmp(out,
                        "\x03\xe9"
                        "bye",
                        5),
                 0);
    cr_expect_eq(tr_ws_close_payload(out, TR_WS_NO_STATUS, "bye"), 0);
}

Test(ws_wire, a_message_that_is_taken_is_the_callers)
{
    struct tr_ws_limits lim = {.max_message = MAX, .held = &held, .max_held = MAX};
    struct tr_ws_wire w;
    static char big[100000];
    size_t used;
    memset(big, 'b', sizeof(big));
    frame_n(FIN | TEXT, big, sizeof(big), true, -1);
    cr_assert_eq(tr_ws_wire_init(&w, &lim), 0);
    cr_assert_eq(tr_ws_feed(&w, (char *)in.p, in.n - 1, &used), TR_WS_MORE);
    cr_expect(held > 0 && tr_ws_begun(&w));
    cr_assert_eq(tr_ws_feed(&w, (char *)in.p + in.n - 1, 1, &used), TR_WS_MESSAGE);
    char *message = tr_ws_take(&w);
    cr_expect(held == 0 && memcmp(message, big, sizeof(big)) == 0 && !tr_ws_begun(&w));
    free(message);
    cr_assert_eq(tr_ws_feed(&w, NULL, 0, &used), TR_WS_MORE);
    tr_ws_wire_fini(&w);
}
