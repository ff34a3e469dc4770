/* SPDX-License-Identifier: Apache-2.0 */
/* text/jinja_priv.h - what the files of the interpreter share: values, strings with origin, errors.
 *
 * Functions that give a value say NULL after noting an error in the context (tr_jfail); the error
 * that was noted first stays.  Values are immutable once the evaluator has handed them on, with two
 * exceptions: a namespace takes assignments, a generator is used up by its first reader.
 *
 * The behaviour followed is that of Python 3.11 and Jinja 3.1 (docs.python.org, "Built-in Types";
 * jinja.palletsprojects.com, "Template Designer Documentation"). */
#ifndef TR_TEXT_JINJA_PRIV_H
#define TR_TEXT_JINJA_PRIV_H

#include "base/arena.h"
#include "text/chat.h"
#include "text/jinja_value.h"
#include "text/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tr_jn;
struct tr_jscope;

enum tr_jtype {
    TR_JV_UNDEF,
    TR_JV_NONE,
    TR_JV_BOOL,
    TR_JV_INT,
    TR_JV_BIG, /* integer beyond 64 bits, as its digits */
    TR_JV_FLOAT,
    TR_JV_STR,
    TR_JV_LIST,
    TR_JV_TUPLE,
    TR_JV_DICT,
    TR_JV_VIEW, /* dict.keys(), .values(), .items() */
    TR_JV_RANGE,
    TR_JV_GEN, /* an iterator: read once */
    TR_JV_FUNC,
    TR_JV_MACRO,
    TR_JV_NS,
    TR_JV_LOOP,
};

/* Bytes and which of them came from the user.  `user` is as text/span.h says. */
struct tr_jstr {
    const char *p;
    size_t len;
    const struct tr_span *user; /* [n_user] */
    size_t n_user;
    bool markup; /* result of escape or safe: `+` escapes what is added to it */
};

struct tr_jlist {
    struct tr_jv **v;
    size_t n;
    size_t cap;
};

/* Insertion-ordered; `index` (open addressing, entry + 1, 0 = empty) exists from 9 entries on. */
struct tr_jdict {
    struct tr_jv **k;
    struct tr_jv **v;
    size_t n;
    size_t cap;
    uint32_t *index;
    size_t n_index; /* a power of two, or 0 */
};

/* Arguments of a call.  kw[i] names kwv[i]. */
struct tr_jargs {
    struct tr_jv **pos;
    size_t n;
    struct tr_jstr *kw;
    struct tr_jv **kwv;
    size_t n_kw;
};

/* A built-in function.  `self` is the object of a method, else NULL. */
typedef struct tr_jv *tr_jfn(struct tr_jctx *c, struct tr_jv *self, const struct tr_jargs *a);

/* A row of a table of built-in functions.  `sig` lists the parameters in order, separated by
 * blanks; the first `need` must be given; the function then finds them in a->pos, absent ones as
 * NULL.  "*" means that the function looks at its arguments itself.  fn NULL: known to Jinja,
 * refused here. */
struct tr_jbuiltin {
    const char *name;
    tr_jfn *fn;
    const char *sig;
    unsigned need;
};

enum tr_jview { TR_JVIEW_KEYS, TR_JVIEW_VALUES, TR_JVIEW_ITEMS };

struct tr_jloop {
    struct tr_jlist items;
    size_t i;
    size_t depth0;
    struct tr_jv *changed;     /* tuple of the last loop.changed(...), or NULL */
    const struct tr_jn *node;  /* the for statement, if it is recursive, else NULL */
    struct tr_jscope *outside; /* scope around that statement */
};

struct tr_jv {
    enum tr_jtype type;
    bool user;  /* not for strings: printed, it counts as the user's */
    bool group; /* a tuple of groupby, which also has .grouper and .list */
    union {
        bool b;
        int64_t i;
        double f;
        struct tr_jstr s; /* STR, BIG */
        struct tr_jlist l;
        struct tr_jdict d; /* DICT, NS */
        struct {
            const struct tr_jdict *d;
            enum tr_jview kind;
        } view;
        struct {
            int64_t start, stop, step, n;
        } range;
        struct {
            struct tr_jlist l;
            size_t next;
            const char *type_name;
        } gen;
        struct {
            const struct tr_jbuiltin *row;
            struct tr_jv *self;
        } func;
        struct {
            const struct tr_jn *node; /* the macro or call block */
            struct tr_jscope *scope;  /* where it was defined */
        } macro;
        struct tr_jloop *loop;
        struct {
            const char *hint;  /* the whole sentence, or NULL */
            const char *owner; /* type name of the object that lacks `key`, or NULL: a variable */
            struct tr_jv *key;
            bool unsafe; /* the sandbox hides it: using it is a security error */
        } undef;
    };
};

struct tr_jctx {
    struct tr_arena arena;
    struct tr_jlimits lim;
    uint64_t steps;
    unsigned depth;
    uint64_t seed; /* of dict hashes: a request cannot make keys collide */
    bool now_set;
    struct tm now;
    enum tr_jerr err;
    uint32_t line; /* of the node being evaluated */
    char msg[480];
    struct tr_jv none, yes, no;
    size_t closures; /* macros made so far: their scopes must not be reused */
    struct tr_jv *vars;
};

/* Notes an error and returns NULL.  The first one stays. */
void *tr_jfail(struct tr_jctx *c, enum tr_jerr e, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Charges `n` steps; false (and an error noted) at the limit.  Bytes count as 1/16. */
bool tr_jstep(struct tr_jctx *c, uint64_t n);
bool tr_jstep_bytes(struct tr_jctx *c, size_t n);

/* One level of nesting; false at the limit.  Each success is paired with tr_jleave. */
bool tr_jenter(struct tr_jctx *c);
void tr_jleave(struct tr_jctx *c);

/* Zeroed memory of the context; NULL notes the limit. */
void *tr_jalloc(struct tr_jctx *c, size_t size);
void *tr_jalloc_n(struct tr_jctx *c, size_t n, size_t size);

/* jinja_value.c: values */
struct tr_jv *tr_jnew(struct tr_jctx *c, enum tr_jtype type);
struct tr_jv *tr_jnew_str(struct tr_jctx *c, struct tr_jstr s);
struct tr_jv *tr_jnew_cstr(struct tr_jctx *c, const char *s); /* borrowed; the template's */
struct tr_jv *tr_jnew_int(struct tr_jctx *c, int64_t v);
struct tr_jv *tr_jnew_float(struct tr_jctx *c, double v);
struct tr_jv *tr_jnew_list(struct tr_jctx *c, enum tr_jtype list_or_tuple, size_t cap);
struct tr_jv *tr_jnew_gen(struct tr_jctx *c, const char *type_name, struct tr_jlist l);
struct tr_jv *tr_jnew_undef(struct tr_jctx *c, const char *hint);
struct tr_jv *tr_jnew_missing(struct tr_jctx *c, const struct tr_jv *owner, struct tr_jv *key);
struct tr_jv *tr_jbool(struct tr_jctx *c, bool v);
struct tr_jv *tr_jint_text(struct tr_jctx *c, struct tr_jstr digits);
bool tr_jlist_add(struct tr_jctx *c, struct tr_jlist *l, struct tr_jv *v);
/* As Python names the type: "str", "dict", "NoneType", ... */
const char *tr_jtype_name(const struct tr_jv *v);
/* Raises the error that using an undefined value is. */
void *tr_jfail_undef(struct tr_jctx *c, const struct tr_jv *u);

/* jinja_dict.c.  A key that Python cannot hash is an error.  get: NULL without an error noted if
 * there is no such key. */
bool tr_jdict_set(struct tr_jctx *c, struct tr_jdict *d, struct tr_jv *k, struct tr_jv *v);
struct tr_jv *tr_jdict_get(struct tr_jctx *c, const struct tr_jdict *d, const struct tr_jv *k);
struct tr_jv *tr_jdict_get_str(struct tr_jctx *c, const struct tr_jdict *d, const char *p,
                               size_t len);

/* jinja_str.c: strings with origin */
struct tr_jbuf {
    struct tr_jctx *c;
    char *p;
    size_t len;
    size_t cap;
    struct tr_span *user;
    size_t n_user;
    size_t cap_user;
    bool bad; /* an error was noted; further additions do nothing */
};

void tr_jbuf_init(struct tr_jbuf *b, struct tr_jctx *c);
void tr_jbuf_add(struct tr_jbuf *b, const char *p, size_t len, bool user);
void tr_jbuf_puts(struct tr_jbuf *b, const char *s);
void tr_jbuf_fill(struct tr_jbuf *b, struct tr_jstr fill, int64_t times);
void tr_jbuf_add_str(struct tr_jbuf *b, struct tr_jstr s);
void tr_jbuf_add_part(struct tr_jbuf *b, struct tr_jstr s, size_t start, size_t end);
/* Marks everything from byte `from` on as the user's. */
void tr_jbuf_mark(struct tr_jbuf *b, size_t from);
struct tr_jstr tr_jbuf_str(struct tr_jbuf *b); /* shares the buffer's memory */
struct tr_jv *tr_jbuf_value(struct tr_jbuf *b);

struct tr_jstr tr_jstr_of(const char *s);
struct tr_jstr tr_jstr_part(struct tr_jctx *c, struct tr_jstr s, size_t start, size_t end);
bool tr_jstr_eq(struct tr_jstr a, struct tr_jstr b);
bool tr_jstr_is(struct tr_jstr a, const char *s);
int tr_jstr_cmp(struct tr_jstr a, struct tr_jstr b);
/* Any byte from the user in [start, end)? */
bool tr_jstr_user(struct tr_jstr s, size_t start, size_t end);
/* Byte offset of the first / last `needle` in [from, to), or -1. */
int64_t tr_jstr_find(struct tr_jstr s, struct tr_jstr needle, size_t from, size_t to);
int64_t tr_jstr_rfind(struct tr_jstr s, struct tr_jstr needle, size_t from, size_t to);
/* Characters: code points; a byte that is not part of valid UTF-8 is one character. */
size_t tr_jstr_chars(struct tr_jstr s);
size_t tr_jstr_offset(struct tr_jstr s, size_t chars); /* byte offset of a character */
/* The character at byte i, its length in *n.  An invalid byte b is given as -1 - b. */
int32_t tr_jchar(struct tr_jstr s, size_t i, size_t *n);
int32_t tr_jchar_before(struct tr_jstr s, size_t i, size_t *n);

/* jinja_strop.c: what filters and methods share */
struct tr_jstr tr_jstr_strip(struct tr_jctx *c, struct tr_jstr s, const struct tr_jstr *chars,
                             bool left, bool right); /* chars NULL: whitespace */
/* count < 0: all */
struct tr_jv *tr_jstr_replace(struct tr_jctx *c, struct tr_jstr s, struct tr_jstr old,
                              struct tr_jstr with, int64_t count);
bool tr_jstr_splitlines(struct tr_jctx *c, struct tr_jstr s, bool keep_ends, struct tr_jlist *out);
struct tr_jv *tr_jstr_pad(struct tr_jctx *c, struct tr_jstr s, int64_t left, int64_t right,
                          struct tr_jstr fill);
struct tr_jv *tr_jstr_center(struct tr_jctx *c, struct tr_jstr s, int64_t width,
                             struct tr_jstr fill);
/* convert: str() of each item, else items that are no strings are an error */
struct tr_jv *tr_jstr_join(struct tr_jctx *c, struct tr_jstr sep, const struct tr_jlist *l,
                           bool convert);
/* sep NULL: runs of whitespace; max < 0: no limit; from_end: rsplit */
struct tr_jv *tr_jstr_split(struct tr_jctx *c, struct tr_jstr s, const struct tr_jstr *sep,
                            int64_t max, bool from_end);

/* jinja_ops.c: what operators and subscripts do */
bool tr_jtruth(const struct tr_jv *v);
/* 1, 0, or -1 with an error noted. */
int tr_jequal(struct tr_jctx *c, const struct tr_jv *a, const struct tr_jv *b);
int tr_jless(struct tr_jctx *c, const char *op, const struct tr_jv *a, const struct tr_jv *b);
int tr_jcontains(struct tr_jctx *c, struct tr_jv *box, struct tr_jv *item);
struct tr_jv *tr_jarith(struct tr_jctx *c, int op, struct tr_jv *a, struct tr_jv *b);
struct tr_jv *tr_jnegate(struct tr_jctx *c, struct tr_jv *a, bool minus);
int64_t tr_jlength(struct tr_jctx *c, const struct tr_jv *v); /* -1 with an error noted */
/* All items, as a for loop sees them.  The list may share the value's memory: do not change it. */
bool tr_jiterate(struct tr_jctx *c, struct tr_jv *v, struct tr_jlist *out);
/* 1 and the number for int or bool, else 0. */
int tr_jas_int(const struct tr_jv *v, int64_t *out);
bool tr_jis_number(const struct tr_jv *v); /* bool, int, float */
double tr_jas_float(const struct tr_jv *v);

/* As markupsafe escapes: a string that is Markup already stays. */
struct tr_jv *tr_jescape(struct tr_jctx *c, struct tr_jv *v);

/* jinja_access.c: a.b, a[b], a[i:j:k] */
struct tr_jv *tr_jgetattr(struct tr_jctx *c, struct tr_jv *o, struct tr_jstr name);
/* The same without looking for an item of that name. */
struct tr_jv *tr_jgetattr_own(struct tr_jctx *c, struct tr_jv *o, struct tr_jstr name);
struct tr_jv *tr_jgetitem(struct tr_jctx *c, struct tr_jv *o, struct tr_jv *key);
struct tr_jv *tr_jslice(struct tr_jctx *c, struct tr_jv *o, struct tr_jv *const part[3]);

/* jinja_sort.c: puts the indices order[0, n) in the order of keys[order[i]], stable, also when
 * reversed. */
bool tr_jsort(struct tr_jctx *c, size_t *order, struct tr_jv *const *keys, size_t n, bool reverse);

/* jinja_repr.c: str() and repr() */
struct tr_jv *tr_jto_str(struct tr_jctx *c, struct tr_jv *v);
void tr_jbuf_add_value(struct tr_jbuf *b, const struct tr_jv *v); /* str() */
void tr_jbuf_add_repr(struct tr_jbuf *b, const struct tr_jv *v);  /* repr() */
void tr_jfloat_repr(double f, char out[40]);

/* jinja_tojson.c, jinja_wrap.c, jinja_format.c, jinja_time.c */
struct tr_jv *tr_jfilter_tojson(struct tr_jctx *c, struct tr_jv *self, const struct tr_jargs *a);
struct tr_jv *tr_jfilter_wordwrap(struct tr_jctx *c, struct tr_jv *v, const struct tr_jargs *a);
struct tr_jv *tr_jpercent(struct tr_jctx *c, struct tr_jstr fmt, struct tr_jv *arg);
struct tr_jv *tr_jformat(struct tr_jctx *c, struct tr_jstr fmt, const struct tr_jargs *a);
/* Adds format(v, spec). */
void tr_jformat_spec(struct tr_jbuf *b, struct tr_jv *v, struct tr_jstr spec);
struct tr_jv *tr_jstrftime(struct tr_jctx *c, struct tr_jstr fmt);

/* jinja_filter_seq.c */
struct tr_jv *tr_jlist_value(struct tr_jctx *c, struct tr_jlist l, bool user);

/* jinja_filter_key.c: item.a.b of an attribute "a.b", digits are indices; NULL or none: the item.  And
 * those of all items, strings without case unless `exact`. */
struct tr_jv *tr_jattribute(struct tr_jctx *c, struct tr_jv *item, struct tr_jv *attribute);
bool tr_jkeys(struct tr_jctx *c, const struct tr_jlist *l, struct tr_jv *attribute, bool exact,
              struct tr_jlist *keys);

/* jinja_call.c: calling */
struct tr_jv *tr_jcall_row(struct tr_jctx *c, const struct tr_jbuiltin *row, struct tr_jv *self,
                           const struct tr_jargs *a);
/* Arguments of one kind for a method or function.  An absent one (NULL) leaves *out alone; another
 * type is an error. */
bool tr_jwant_str(struct tr_jctx *c, const struct tr_jv *v, struct tr_jstr *out);
bool tr_jwant_int(struct tr_jctx *c, const struct tr_jv *v, int64_t *out);
/* An optional argument that is there and not none. */
bool tr_jgiven(const struct tr_jv *v);
const struct tr_jbuiltin *tr_jbuiltin_find(const struct tr_jbuiltin *table, struct tr_jstr name);

/* Tables, ended by a row without a name. */
extern const struct tr_jbuiltin tr_jfilters[];
extern const struct tr_jbuiltin tr_jfilters_num[];
extern const struct tr_jbuiltin tr_jfilters_seq[];
extern const struct tr_jbuiltin tr_jfilters_key[];
extern const struct tr_jbuiltin tr_jtests[];
extern const struct tr_jbuiltin tr_jmethods_str[];
extern const struct tr_jbuiltin tr_jmethods_list[];
extern const struct tr_jbuiltin tr_jmethods_tuple[];
extern const struct tr_jbuiltin tr_jmethods_dict[];
extern const struct tr_jbuiltin tr_jmethods_loop[];
extern const struct tr_jbuiltin tr_jglobals[];

const struct tr_jbuiltin *tr_jfilter_find(struct tr_jstr name);
const struct tr_jbuiltin *tr_jtest_find(struct tr_jstr name);

/* jinja_eval.c */
struct tr_jv *tr_jcall(struct tr_jctx *c, struct tr_jv *f, const struct tr_jargs *a);

#endif
