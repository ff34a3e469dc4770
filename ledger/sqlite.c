/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger in a file of SQLite (ledger/sink.h). */
#include "ledger/sink.h"
#include "ledger/sqlite_schema.h"

#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUSY_MS = 500, BUSY_READ_MS = 10000 };

enum statement { BEGIN, COMMIT, BILL, EARLY, MEET, DELIVERY, SET_ASIDE, N_STATEMENTS };

static const char *const sql[N_STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [BILL] = "INSERT INTO request (stream_id, request_id, key, model, status, reason, created_us,"
             " first_token_us, finished_us, choices, prompt_tokens, cached_tokens,"
             " completion_tokens, overrun_tokens, last_token, disconnect_us, cancel_ack_us)"
             " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)"
             " ON CONFLICT DO NOTHING",
    /* A delivery that came before its request, and where it goes then. */
    [EARLY] = "SELECT first_byte_us, delivered_tokens, closed_us FROM early WHERE stream_id = ?1",
    [MEET] = "DELETE FROM early WHERE stream_id = ?1",
    [DELIVERY] = "UPDATE request SET first_byte_us = ?2, delivered_tokens = ?3, closed_us = ?4"
                 " WHERE stream_id = ?1 AND delivered_tokens IS NULL",
    [SET_ASIDE] = "INSERT INTO early SELECT ?1, ?2, ?3, ?4"
                  " WHERE NOT EXISTS (SELECT 1 FROM request WHERE stream_id = ?1)"
                  " ON CONFLICT DO NOTHING",
};

struct sqlite {
    struct tr_sink sink; /* first */
    sqlite3 *db;
    sqlite3_stmt *s[N_STATEMENTS];
    int lock; /* held by the one process that writes: -1 for readers */
    /* It is read while nobody writes: so it must be the same at the end. */
    bool at_rest;
    struct stat was;
    char path[];
};

static struct sqlite *of(struct tr_sink *k)
{
    return (struct sqlite *)k;
}

/* ---- opening ---- */

/* Whether the file that a writer has open is the one of this name: people move and remove files. */
static bool is_in_place(const struct sqlite *k)
{
    struct stat is, was;
    return fstat(k->lock, &was) == 0 && stat(k->path, &is) == 0 && is.st_dev == was.st_dev &&
           is.st_ino == was.st_ino;
}

static void shut(struct sqlite *k)
{
    for (int i = 0; i < N_STATEMENTS; i++) {
        sqlite3_finalize(k->s[i]);
        k->s[i] = NULL;
    }
    /* A file that was moved is made whole: its log keeps the old name, where nobody looks for it. */
    if (k->db && k->lock >= 0 && !is_in_place(k))
        sqlite3_wal_checkpoint_v2(k->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    sqlite3_close(k->db);
    k->db = NULL;
    /* After SQLite's: closing any descriptor of the file gives up all locks of its own. */
    if (k->lock >= 0)
        close(k->lock);
    k->lock = -1;
}

static void sqlite_close(struct tr_sink *sink)
{
    struct sqlite *k = of(sink);
    if (!k)
        return;
    shut(k);
    free(k);
}

/* flock, which is nothing to SQLite's own locks: readers and other writers of the file go on. */
static int take_lock(struct sqlite *k, struct tr_errbuf *err)
{
    k->lock = open(k->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
    if (k->lock < 0)
        return tr_errf(err, -errno, "cannot open the ledger %s: %s", k->path, strerror(errno));
    if (flock(k->lock, LOCK_EX | LOCK_NB) < 0)
        return tr_errf(err, -EBUSY, "the ledger %s is in use by another service", k->path);
    return 0;
}

/* After reading.  0; -EAGAIN: somebody has begun to write, and what was read may be anything. */
static int still_at_rest(const struct sqlite *k, struct tr_errbuf *err)
{
    struct stat is;
    if (!k->at_rest ||
        (stat(k->path, &is) == 0 && is.st_ino == k->was.st_ino && is.st_size == k->was.st_size &&
         memcmp(&is.st_mtim, &k->was.st_mtim, sizeof(is.st_mtim)) == 0))
        return 0;
    return tr_errf(err, -EAGAIN, "a service has begun to write to the ledger %s: read it again",
                   k->path);
}

static int open_shared(struct sqlite *k, bool read_only, struct tr_errbuf *err)
{
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    if (sqlite3_open_v2(k->path, &k->db, flags | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return k->db ? tr_sqlite_failed(k->db, k->path, "open", err)
                     : tr_errf(err, -ENOMEM, "no memory for the ledger");
    sqlite3_busy_timeout(k->db, read_only ? BUSY_READ_MS : BUSY_MS);
    return 0;
}

/* Bytes of the log beside it, of which a writer that lives or was killed has one; -1: there is none. */
static off_t log_bytes(const struct sqlite *k)
{
    char log[PATH_MAX];
    struct stat st;
    int n = snprintf(log, sizeof(log), "%s-wal", k->path);
    bool fits = n > 0 && (size_t)n < sizeof(log);
    return fits && stat(log, &st) == 0 ? st.st_size : -1;
}

/* As a file that does not change: SQLite neither asks who else has it nor makes a file of its own. */
static int open_at_rest(struct sqlite *k, struct tr_errbuf *err)
{
    char uri[3 * PATH_MAX + 32];
    /* What follows two slashes would be the name of a machine. */
    size_t n = (size_t)snprintf(uri, sizeof(uri), "file:%s", *k->path == '/' ? "//" : "");
    if (strlen(k->path) >= PATH_MAX || stat(k->path, &k->was) < 0)
        return tr_errf(err, -EIO, "cannot open the ledger %s", k->path);
    for (const char *c = k->path; *c; c++)
        n += (size_t)snprintf(uri + n, sizeof(uri) - n, strchr("%?#", *c) ? "%%%02X" : "%c",
                              (unsigned char)*c);
    snprintf(uri + n, sizeof(uri) - n, "?immutable=1");
    k->at_rest = true;
    sqlite3_close(k->db);
    k->db = NULL;
    if (sqlite3_open_v2(uri, &k->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX,
                        NULL) != SQLITE_OK)
        return k->db ? tr_sqlite_failed(k->db, k->path, "open", err)
                     : tr_errf(err, -ENOMEM, "no memory for the ledger");
    return 0;
}

static int exec(struct sqlite *k, const char *text, struct tr_errbuf *err)
{
    if (sqlite3_exec(k->db, text, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return tr_sqlite_failed(k->db, k->path, "open", err);
}

/* Durable means durable here: the spool lets go of what has been committed. */
static int prepare(struct sqlite *k, struct tr_errbuf *err)
{
    int ret = exec(k,
                   "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                   "PRAGMA wal_autocheckpoint = 256; PRAGMA temp_store = MEMORY;"
                   "PRAGMA trusted_schema = OFF",
                   err);
    for (int i = 0; i < N_STATEMENTS && !ret; i++)
        if (sqlite3_prepare_v3(k->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &k->s[i], NULL) !=
            SQLITE_OK)
            ret = tr_sqlite_failed(k->db, k->path, "use", err);
    return ret;
}

static int open_all(struct sqlite *k, bool read_only, struct tr_errbuf *err)
{
    int ret = tr_sqlite_is_ours(k->path, err);
    if (!ret && !read_only)
        ret = take_lock(k, err);
    if (!ret && read_only && access(k->path, F_OK) < 0)
        ret = tr_errf(err, -ENOENT, "there is no ledger in %s", k->path);
    /* A reader that finds no log leaves none: SQLite would make one to read by. */
    if (!ret)
        ret = read_only && log_bytes(k) < 0 ? open_at_rest(k, err) : open_shared(k, read_only, err);
    if (!ret)
        ret = tr_sqlite_migrate(k->db, k->path, read_only, err);
    /* The index that SQLite shares with others cannot be made on a disk that is full or read-only. */
    if (read_only && !k->at_rest && (ret == -EIO || ret == -EAGAIN) && log_bytes(k) <= 0) {
        ret = open_at_rest(k, err);
        if (!ret)
            ret = tr_sqlite_migrate(k->db, k->path, true, err);
    }
    return ret || read_only ? ret : prepare(k, err);
}

/* Names that SQLite does not take for those of a file: ":memory:", which no restart survives, and, as
 * it is built, "file:...". */
static bool has_a_meaning(const char *path)
{
    return *path == ':' || strncmp(path, "file:", 5) == 0;
}

static int sqlite_open(struct tr_sink **out, const char *path, bool read_only,
                       struct tr_errbuf *err)
{
    const char *here = has_a_meaning(path) ? "./" : "";
    size_t n = strlen(here) + strlen(path) + 1;
    struct sqlite *k = calloc(1, sizeof(*k) + n);
    if (!k)
        return tr_errf(err, -ENOMEM, "no memory for the ledger");
    k->sink.ops = &tr_sink_sqlite;
    k->lock = -1;
    snprintf(k->path, n, "%s%s", here, path);
    int ret = open_all(k, read_only, err);
    if (ret) {
        sqlite_close(&k->sink);
        return ret;
    }
    *out = &k->sink;
    return 0;
}

/* ---- writing ---- */

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

static void bind_or_null(sqlite3_stmt *s, int at, int64_t v, int64_t null)
{
    if (v == null)
        sqlite3_bind_null(s, at);
    else
        sqlite3_bind_int64(s, at, v);
}

/* Runs a statement that has no rows.  0 or -EIO; *changed, if not NULL, is the number of rows. */
static int run(struct sqlite *k, enum statement which, int *changed)
{
    int ret = sqlite3_step(k->s[which]) == SQLITE_DONE ? 0 : -EIO;
    if (changed)
        *changed = sqlite3_changes(k->db);
    if (!ret) /* else the error would be lost */
        sqlite3_reset(k->s[which]);
    return ret;
}

static void bind_delivery(sqlite3_stmt *s, const struct tr_row_delivery *d)
{
    bind_text(s, 1, d->stream_id);
    bind_or_null(s, 2, d->first_byte_us, 0);
    sqlite3_bind_int64(s, 3, d->delivered_tokens);
    bind_or_null(s, 4, d->closed_us, 0);
}

static int put_delivery(struct sqlite *k, const struct tr_row_delivery *d)
{
    int changed;
    bind_delivery(k->s[DELIVERY], d);
    int ret = run(k, DELIVERY, &changed);
    if (ret || changed)
        return ret;
    bind_delivery(k->s[SET_ASIDE], d);
    return run(k, SET_ASIDE, NULL);
}

/* The delivery that came before its request, if there is one. */
static int meet(struct sqlite *k, const char *stream_id)
{
    sqlite3_stmt *s = k->s[EARLY];
    struct tr_row_delivery d;
    bind_text(s, 1, stream_id);
    int found = sqlite3_step(s);
    if (found == SQLITE_DONE)
        sqlite3_reset(s);
    if (found != SQLITE_ROW)
        return found == SQLITE_DONE ? 0 : -EIO;
    snprintf(d.stream_id, sizeof(d.stream_id), "%s", stream_id);
    d.first_byte_us = sqlite3_column_int64(s, 0);
    d.delivered_tokens = sqlite3_column_int64(s, 1);
    d.closed_us = sqlite3_column_int64(s, 2);
    sqlite3_reset(s);
    int ret = put_delivery(k, &d);
    bind_text(k->s[MEET], 1, stream_id);
    return ret ? ret : run(k, MEET, NULL);
}

static int put_bill(struct sqlite *k, const struct tr_row *r)
{
    sqlite3_stmt *s = k->s[BILL];
    const char *const text[] = {r->stream_id, r->request_id, r->key,
                                r->model,     r->status,     r->reason};
    int changed, at = 1;
    for (size_t i = 0; i < sizeof(text) / sizeof(text[0]); i++)
        bind_text(s, at++, text[i]);
    sqlite3_bind_int64(s, at++, r->created_us);
    bind_or_null(s, at++, r->first_token_us, 0);
    bind_or_null(s, at++, r->finished_us, 0);
    sqlite3_bind_int64(s, at++, r->choices);
    sqlite3_bind_int64(s, at++, r->prompt_tokens);
    sqlite3_bind_int64(s, at++, r->cached_tokens);
    sqlite3_bind_int64(s, at++, r->completion_tokens);
    sqlite3_bind_int64(s, at++, r->overrun_tokens);
    bind_or_null(s, at++, r->last_token, -1);
    bind_or_null(s, at++, r->disconnect_us, 0);
    bind_or_null(s, at++, r->cancel_ack_us, 0);
    int ret = run(k, BILL, &changed);
    return ret || !changed ? ret : meet(k, r->stream_id);
}

static int apply_all(struct sqlite *k, const struct tr_entry *e, size_t n)
{
    int ret = run(k, BEGIN, NULL);
    for (size_t i = 0; i < n && !ret; i++)
        ret =
            e[i].kind == TR_ENTRY_BILL ? put_bill(k, &e[i].bill) : put_delivery(k, &e[i].delivery);
    TR_FAULT(LEDGER_SINK_ROWS);
    return ret ? ret : run(k, COMMIT, NULL);
}

/* The next try makes the file of this name, or takes the one that is there. */
static int leave_moved(struct sqlite *k, struct tr_errbuf *err)
{
    shut(k);
    return tr_errf(err, -EAGAIN, "the ledger %s was moved or removed", k->path);
}

/* After leave_moved.  0 or -EAGAIN: the records wait for a file that can be used. */
static int open_again(struct sqlite *k, struct tr_errbuf *err)
{
    if (open_all(k, false, err) == 0)
        return 0;
    shut(k);
    return -EAGAIN;
}

static int sqlite_apply(struct tr_sink *sink, const struct tr_entry *e, size_t n,
                        struct tr_errbuf *err)
{
    struct sqlite *k = of(sink);
    if (!k->db && open_again(k, err))
        return -EAGAIN;
    if (!is_in_place(k))
        return leave_moved(k, err);
    /* And once more: the spool lets go of what is said to be there. */
    if (apply_all(k, e, n) == 0)
        return is_in_place(k) ? 0 : leave_moved(k, err);
    tr_sqlite_failed(k->db, k->path, "write to", err);
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_reset(k->s[i]);
    if (!sqlite3_get_autocommit(k->db))
        sqlite3_exec(k->db, "ROLLBACK", NULL, NULL, NULL);
    return -EAGAIN; /* whatever it is: the records stay in the spool */
}

/* ---- reading ---- */

static void column_text(sqlite3_stmt *s, int at, char *out, size_t size)
{
    const unsigned char *text = sqlite3_column_text(s, at);
    snprintf(out, size, "%s", text ? (const char *)text : "");
}

static int64_t column(sqlite3_stmt *s, int at, int64_t null)
{
    return sqlite3_column_type(s, at) == SQLITE_NULL ? null : sqlite3_column_int64(s, at);
}

static void read_row(sqlite3_stmt *s, struct tr_row_whole *w)
{
    struct tr_row *r = &w->bill;
    struct tr_row_delivery *d = &w->delivery;
    memset(w, 0, sizeof(*w));
    column_text(s, 0, r->stream_id, sizeof(r->stream_id));
    column_text(s, 1, r->request_id, sizeof(r->request_id));
    column_text(s, 2, r->key, sizeof(r->key));
    column_text(s, 3, r->model, sizeof(r->model));
    column_text(s, 4, r->status, sizeof(r->status));
    column_text(s, 5, r->reason, sizeof(r->reason));
    int64_t *const number[] = {&r->created_us,        &r->first_token_us, &r->finished_us,
                               &r->choices,           &r->prompt_tokens,  &r->cached_tokens,
                               &r->completion_tokens, &r->overrun_tokens, &r->last_token,
                               &r->disconnect_us,     &r->cancel_ack_us,  &d->first_byte_us,
                               &d->delivered_tokens,  &d->closed_us};
    for (int i = 0; i < (int)(sizeof(number) / sizeof(number[0])); i++)
        *number[i] = column(s, 6 + i, number[i] == &r->last_token ? -1 : 0);
    w->delivered = sqlite3_column_type(s, 18) != SQLITE_NULL;
    memcpy(d->stream_id, r->stream_id, sizeof(d->stream_id));
    tr_row_clean(r); /* somebody else may have written to the file */
}

static int select_rows(struct sqlite *k, const struct tr_sink_filter *f, sqlite3_stmt **out)
{
    static const char text[] =
        "SELECT stream_id, request_id, key, model, status, reason, created_us, first_token_us,"
        " finished_us, choices, prompt_tokens, cached_tokens, completion_tokens, overrun_tokens,"
        " last_token, disconnect_us, cancel_ack_us, first_byte_us, delivered_tokens, closed_us"
        " FROM request WHERE (?1 IS NULL OR key = ?1) AND (?2 IS NULL OR model = ?2)"
        " AND (?3 IS NULL OR status = ?3) AND created_us >= ?4 AND (?5 = 0 OR created_us < ?5)"
        " ORDER BY created_us, stream_id";
    static const struct tr_sink_filter any;
    if (sqlite3_prepare_v2(k->db, text, -1, out, NULL) != SQLITE_OK)
        return -EIO;
    if (!f)
        f = &any;
    bind_text(*out, 1, f->key); /* NULL binds as null */
    bind_text(*out, 2, f->model);
    bind_text(*out, 3, f->status);
    sqlite3_bind_int64(*out, 4, f->from_us);
    sqlite3_bind_int64(*out, 5, f->until_us);
    return 0;
}

static int sqlite_each(struct tr_sink *sink, const struct tr_sink_filter *f,
                       int (*fn)(void *arg, const struct tr_row_whole *r), void *arg,
                       struct tr_errbuf *err)
{
    struct sqlite *k = of(sink);
    struct tr_row_whole row;
    sqlite3_stmt *s = NULL;
    int ret = 0, got = SQLITE_ERROR;
    if (select_rows(k, f, &s) == 0)
        while ((got = sqlite3_step(s)) == SQLITE_ROW && !ret) {
            read_row(s, &row);
            ret = fn(arg, &row);
        }
    if (got != SQLITE_DONE && got != SQLITE_ROW) {
        tr_sqlite_failed(k->db, k->path, "read", err);
        ret = -EIO;
    }
    sqlite3_finalize(s);
    return ret ? ret : still_at_rest(k, err);
}

/* ---- looking for damage ---- */

static int sqlite_check(struct tr_sink *sink, void (*fn)(void *arg, const char *sentence),
                        void *arg, struct tr_errbuf *err)
{
    static const char *const look[] = {
        "SELECT 'SQLite: ' || integrity_check FROM pragma_integrity_check(1000)"
        " WHERE integrity_check <> 'ok'",
        /* One of a moment ago may be earlier than its request. */
        "SELECT stream_id || ': delivered, but there is no such request' FROM early"
        " WHERE coalesce(closed_us, 0) < (strftime('%s', 'now') - 600) * 1000000"
        " ORDER BY stream_id"};
    struct sqlite *k = of(sink);
    for (size_t i = 0; i < sizeof(look) / sizeof(look[0]); i++) {
        char line[512];
        sqlite3_stmt *s = NULL;
        int got = sqlite3_prepare_v2(k->db, look[i], -1, &s, NULL);
        while (got == SQLITE_OK && (got = sqlite3_step(s)) == SQLITE_ROW) {
            column_text(s, 0, line, sizeof(line));
            fn(arg, line);
            got = SQLITE_OK;
        }
        sqlite3_finalize(s);
        if (got != SQLITE_DONE)
            return tr_sqlite_failed(k->db, k->path, "check", err);
    }
    return still_at_rest(k, err);
}

const struct tr_sink_ops tr_sink_sqlite = {.name = "SQLite",
                                           .open = sqlite_open,
                                           .apply = sqlite_apply,
                                           .each = sqlite_each,
                                           .check = sqlite_check,
                                           .close = sqlite_close};
