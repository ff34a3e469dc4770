/* SPDX-License-Identifier: Apache-2.0 */
/* client/chunk.h - what one event of a chat or completions stream, or a whole answer, says.
 *
 * Tolerant on purpose: a field of an unexpected type counts as absent, unknown fields and objects
 * without `choices` are foreign events and not faults.  Only a payload that is not JSON at all is
 * bad.  Shapes: the chat.completion.chunk, chat.completion and text_completion
 * objects of the OpenAI API. */
#ifndef TR_CLIENT_CHUNK_H
#define TR_CLIENT_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tr_chunk_kind {
    TR_CHUNK_PLAIN,   /* an object with choices, or with a usage block */
    TR_CHUNK_DONE,    /* [DONE] */
    TR_CHUNK_ERROR,   /* an error object */
    TR_CHUNK_FOREIGN, /* JSON, but nothing of ours */
    TR_CHUNK_EMPTY,   /* no bytes */
    TR_CHUNK_BAD      /* not JSON */
};

struct tr_usage {
    int64_t prompt, cached, completion; /* cached: 0 when not told */
};

struct tr_chunk {
    enum tr_chunk_kind kind;
    const char *text; /* content of choice 0, text_len bytes, borrowed from `root`; may be NULL */
    size_t text_len;
    bool has_content; /* any choice carried non-empty content */
    char finish[32];  /* finish_reason of any choice, printable ASCII; "" if none */
    bool has_usage;
    struct tr_usage usage;
    char error[192]; /* "code: message", printable ASCII */
    void *root;
};

/* Always fills *c; tr_chunk_fini must follow. */
void tr_chunk_read(struct tr_chunk *c, const char *event_name, const char *data, size_t len);
void tr_chunk_fini(struct tr_chunk *c);

/* Copies at most size - 1 bytes, everything but printable ASCII as '?'.  For what a server says
 * and a terminal shows. */
void tr_copy_clean(char *to, size_t size, const char *from, size_t len);

#endif
