/* SPDX-License-Identifier: Apache-2.0 */
/* grammar/build_priv.h - what the files of the builder share: tree -> NFA of a rule -> DFA of a rule ->
 * image.  Private to grammar/. */
#ifndef TR_GRAMMAR_BUILD_PRIV_H
#define TR_GRAMMAR_BUILD_PRIV_H

#include "grammar/build.h"

/* Steps of work of one finish: about a third of a second. */
#define TR_GBUILD_WORK 40000000u
/* States and edges of automata on the way, before they are made small. */
#define TR_GBUILD_NFA_STATES (1u << 19)
#define TR_GBUILD_DFA_STATES (1u << 17)
/* Rules that weigh no more are copied into those that use them. */
#define TR_GBUILD_INLINE 32

enum tr_gkind {
    TR_GK_EMPTY,
    TR_GK_NEVER,
    TR_GK_BYTES,   /* bytes[at, at + n) */
    TR_GK_CLASS,   /* n pairs of code points at words[at] */
    TR_GK_SEQ,     /* n nodes at words[at] */
    TR_GK_ALT,     /* the same */
    TR_GK_REPEAT,  /* node words[at], min words[at + 1], max words[at + 2] */
    TR_GK_FSM,     /* words[at]: n states, n arrows, arrows as triples, final by state; n: arrows */
    TR_GK_RULE,    /* rule `at` */
    TR_GK_TOKEN,   /* id `at` */
    TR_GK_UNTIL,   /* n pairs (at, length) of literals in `bytes`, at words[at] */
    TR_GK_WITHOUT, /* the same */
};

struct tr_gtree_node {
    uint8_t kind;
    uint16_t depth;
    uint32_t at, n;
    uint32_t weight; /* of its NFA, rules as calls; saturates */
    uint32_t memo;   /* of the pass `stamp` */
    uint32_t stamp;
};

struct tr_gtree_rule {
    tr_gnode def;    /* TR_G_NONE: not defined */
    uint32_t weight; /* with copies of what is copied into it */
    uint32_t comp;   /* rules that can reach each other; those called come first */
    uint32_t number; /* in the program, or UINT32_MAX */
    bool nullable, copied, looked;
};

/* An array that grows; `what` of tr_gbuild counts its bytes. */
struct tr_gvec {
    void *p;
    uint32_t n, max;
};

/* The NFA of one rule: states with lists of edges. */
struct tr_gnfa_edge {
    uint32_t to, next; /* next edge of the same state + 1 */
    uint32_t x;        /* rule or token id */
    uint8_t kind;      /* enum tr_gedge */
    uint8_t lo, hi;
};

enum tr_gedge { TR_GE_BYTE, TR_GE_CALL, TR_GE_TOKEN, TR_GE_EPS };

/* The DFAs of all rules. */
struct tr_gdfa_state {
    uint32_t first, n; /* edges: bytes in order, calls, tokens */
    bool final, alive, reached;
    uint32_t same; /* the state that stands for it */
    uint32_t number;
};

struct tr_gdfa_edge {
    uint32_t to, x;
    uint8_t kind, lo, hi;
    bool used;
};

struct tr_gbuild {
    int failed;
    struct tr_errbuf why;
    size_t bytes_used; /* of all arrays */
    struct tr_gvec nodes, words, bytes, rules;
    uint32_t stamp, work;
    uint64_t schema_steps;          /* that the schemas have taken so far, of TR_GSCHEMA_STEPS */
    struct tr_gvec nfa, nfa_edges;  /* uint32_t first edge + 1; struct tr_gnfa_edge */
    struct tr_gvec dfa, dfa_edges;  /* struct tr_gdfa_state, struct tr_gdfa_edge */
    struct tr_gvec order, dfa_rule; /* rules by number; first DFA state of each, and the end */
};

static inline struct tr_gtree_node *tr_gnode_at(struct tr_gbuild *b, tr_gnode n)
{
    return (struct tr_gtree_node *)b->nodes.p + n;
}

static inline struct tr_gtree_rule *tr_grule_at(struct tr_gbuild *b, uint32_t rule)
{
    return (struct tr_gtree_rule *)b->rules.p + rule;
}

static inline uint32_t *tr_gwords(struct tr_gbuild *b)
{
    return b->words.p;
}

/* Room for `more` items of `size` bytes after v's; where they begin, n not yet moved.  NULL: failed. */
void *tr_gvec_room(struct tr_gbuild *b, struct tr_gvec *v, size_t size, uint32_t more);

/* The first failure stays.  Returns rc. */
int tr_gfail(struct tr_gbuild *b, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Counts work; false once there was too much. */
bool tr_gwork(struct tr_gbuild *b, uint32_t n);

/* rules.c: which rules are needed, defined, nullable, copied; their order.  Start is the last. */
int tr_grules_settle(struct tr_gbuild *b, uint32_t start);

/* nfa.c: the NFA of a node, from state 0 to state 1. */
int tr_gnfa_make(struct tr_gbuild *b, tr_gnode node);
uint32_t tr_gnfa_state(struct tr_gbuild *b);
void tr_gnfa_edge(struct tr_gbuild *b, uint32_t from, struct tr_gnfa_edge e);

/* utf8_class.c, literals.c: parts of nfa.c. */
void tr_gnfa_class(struct tr_gbuild *b, uint32_t at, uint32_t n, uint32_t from, uint32_t to);
void tr_gnfa_literals(struct tr_gbuild *b, uint32_t at, uint32_t n, bool until, uint32_t from,
                      uint32_t to);

/* dfa.c: appends the DFA of the NFA to those of the program.  *empty: it had the empty text. */
int tr_gdfa_make(struct tr_gbuild *b, bool *empty);

/* trim.c: drops what leads nowhere and what cannot be reached, joins states that are alike. */
int tr_gdfa_trim(struct tr_gbuild *b, bool empty);

/* emit.c */
int tr_gemit(struct tr_gbuild *b, bool empty, uint8_t *out, size_t cap, size_t *len);

/* scc.c: the strongly connected components of a graph of n nodes, targets of i at
 * adj[first[i], first[i + 1]); comp[i], numbered so that edges go to the own one or a lower one; returns how
 * many.  scratch: 4 * n words.  No recursion. */
uint32_t tr_gscc(uint32_t n, const uint32_t *first, const uint32_t *adj, uint32_t *comp,
                 uint32_t *scratch);

#endif
