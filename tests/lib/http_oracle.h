/* SPDX-License-Identifier: Apache-2.0 */
/* tests/lib/http_oracle.h - our HTTP parser beside http-parser, which was written by others.
 *
 * We are the stricter one: what we take, http-parser takes too, with the same method, version,
 * path, query, fields, body bytes, wish to stay connected, and end of the message.  What we refuse
 * it may take.  What we take is also read once more by simple rules: whole lines, words, one Host,
 * one framing, chunks that end where they say.  Where the two are known to differ we follow RFC
 * 9110 and 9112, and it does not:
 *
 *   - a field whose name begins with "Transfer-Encoding" is that field to it
 *   - a tab before a chunk extension is a fault to it (it is a blank: RFC 9110 5.6.3)
 *   - fields in a trailer frame the message to it (they must not: RFC 9110 6.5.1)
 *   - an element of Connection that is empty, no token, the begin of a word it knows, or beside a
 *     tab hides what follows from it, and on HTTP/1.0 keep-alive beats close (we close when both
 *     are there)
 *   - a number of Content-Length beyond 64 bits is a fault to it, and "larger than all we take" to us
 *   - a method that it has no name for is a fault to it, and 501 to us */
#ifndef TR_TESTS_HTTP_ORACLE_H
#define TR_TESTS_HTTP_ORACLE_H

#include <stddef.h>

enum { HTTP_ORACLE_HEADER = 32 << 10 }; /* max_header of the parser under test */

struct http_agreed {
    unsigned heads, requests; /* that both took */
    size_t bytes;             /* up to the end of the last of them */
    size_t body_bytes;
};

/* Reads the requests in s[0, len) one after the other.  NULL, or in what the two differ (static).
 * *got says how far it came. */
const char *http_disagree(const char *s, size_t len, struct http_agreed *got);

#endif
