/* SPDX-License-Identifier: Apache-2.0 */
/* text/stop.c - see stop.h. */
#include "text/stop.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A node stands for a beginning of a stop string, node 0 for the empty one. */
struct node {
    uint16_t child;   /* first of those one byte longer, 0: none */
    uint16_t sibling; /* next with the same parent, 0: none */
    uint16_t fail;    /* its longest proper suffix that is a node too */
    uint16_t depth;   /* its length */
    int16_t string;   /* a string it is a beginning of */
    int16_t match;    /* longest string that is a suffix of it, -1: none */
    uint8_t byte;     /* its last */
};

struct tr_stopset {
    size_t n;
    struct tr_str string[TR_STOP_STRINGS_MAX];
    uint16_t root[256]; /* node of each first byte, 0: none */
    struct node *node;
    char *bytes; /* of all strings */
};

_Static_assert(TR_STOP_STRINGS_MAX *TR_STOP_LEN_MAX < UINT16_MAX, "nodes are numbered by 16 bits");

static uint16_t child(const struct tr_stopset *s, uint16_t at, uint8_t byte)
{
    if (at == 0)
        return s->root[byte];
    uint16_t c = s->node[at].child;
    while (c != 0 && s->node[c].byte != byte)
        c = s->node[c].sibling;
    return c;
}

/* The longest suffix of (text of `at` + byte) that is a node.  Each step down the fail links undoes
 * one earlier byte, so a text of n bytes takes at most 2n steps. */
static uint16_t advance(const struct tr_stopset *s, uint16_t at, uint8_t byte)
{
    for (;;) {
        uint16_t next = child(s, at, byte);
        if (next != 0 || at == 0)
            return next;
        at = s->node[at].fail;
    }
}

/* Adds string i below the nodes that are there; returns the count of nodes. */
static size_t add_string(struct tr_stopset *s, int16_t i, size_t n_nodes)
{
    uint16_t at = 0;

    for (size_t k = 0; k < s->string[i].len; k++) {
        uint8_t byte = (uint8_t)s->string[i].p[k];
        uint16_t next = child(s, at, byte);
        if (next == 0) {
            next = (uint16_t)n_nodes++;
            s->node[next] =
                (struct node){.depth = (uint16_t)(k + 1), .string = i, .match = -1, .byte = byte};
            if (at == 0) {
                s->root[byte] = next;
            } else {
                s->node[next].sibling = s->node[at].child;
                s->node[at].child = next;
            }
        }
        at = next;
    }
    if (s->node[at].match < 0)
        s->node[at].match = i;
    return n_nodes;
}

static void link_child(struct tr_stopset *s, uint16_t parent, uint16_t c, uint16_t *queue,
                       size_t *tail)
{
    struct node *n = &s->node[c];

    n->fail = parent == 0 ? 0 : advance(s, s->node[parent].fail, n->byte);
    /* A string that ends at the node itself is longer than any that ends at a suffix of it. */
    if (n->match < 0)
        n->match = s->node[n->fail].match;
    queue[(*tail)++] = c;
}

/* Sets the fail links, nearest to the root first. */
static int link_nodes(struct tr_stopset *s, size_t n_nodes)
{
    uint16_t *queue = malloc(n_nodes * sizeof(*queue));
    size_t tail = 0;

    if (!queue)
        return -ENOMEM;
    for (size_t b = 0; b < 256; b++)
        if (s->root[b] != 0)
            link_child(s, 0, s->root[b], queue, &tail);
    for (size_t head = 0; head < tail; head++)
        for (uint16_t c = s->node[queue[head]].child; c != 0; c = s->node[c].sibling)
            link_child(s, queue[head], c, queue, &tail);
    free(queue);
    return 0;
}

static int check(const struct tr_str *strings, size_t n, size_t *total)
{
    if (n == 0 || n > TR_STOP_STRINGS_MAX)
        return -EINVAL;
    *total = 0;
    for (size_t i = 0; i < n; i++) {
        if (strings[i].len == 0 || strings[i].len > TR_STOP_LEN_MAX ||
            !tr_utf8_is_valid(strings[i].p, strings[i].len))
            return -EINVAL;
        *total += strings[i].len;
    }
    return 0;
}

int tr_stopset_open(const struct tr_str *strings, size_t n, struct tr_stopset **out)
{
    size_t total;
    size_t n_nodes = 1;
    char *to;

    if (check(strings, n, &total) < 0)
        return -EINVAL;
    struct tr_stopset *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->n = n;
    s->node = calloc(total + 1, sizeof(*s->node));
    s->bytes = to = malloc(total);
    if (!s->node || !s->bytes)
        goto nomem;
    s->node[0].match = -1;
    for (size_t i = 0; i < n; i++) {
        memcpy(to, strings[i].p, strings[i].len);
        s->string[i] = (struct tr_str){to, strings[i].len};
        to += strings[i].len;
        n_nodes = add_string(s, (int16_t)i, n_nodes);
    }
    if (link_nodes(s, n_nodes) < 0)
        goto nomem;
    *out = s;
    return 0;
nomem:
    tr_stopset_close(s);
    return -ENOMEM;
}

void tr_stopset_close(struct tr_stopset *s)
{
    if (!s)
        return;
    free(s->node);
    free(s->bytes);
    free(s);
}

size_t tr_stopset_n(const struct tr_stopset *s)
{
    return s->n;
}

struct tr_str tr_stopset_at(const struct tr_stopset *s, size_t i)
{
    return s->string[i];
}

struct tr_str tr_stop_held(const struct tr_stopset *s, tr_stop_state state)
{
    const struct node *n = &s->node[state];

    return (struct tr_str){s->string[n->string].p, n->depth};
}

int tr_stop_push(const struct tr_stopset *s, tr_stop_state *state, const char *text, size_t len,
                 size_t *used)
{
    uint16_t at = *state;

    for (size_t i = 0; i < len; i++) {
        at = advance(s, at, (uint8_t)text[i]);
        if (s->node[at].match >= 0) {
            *state = at;
            *used = i + 1;
            return s->node[at].match;
        }
    }
    *state = at;
    return -1;
}
