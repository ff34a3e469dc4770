/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/sqlite_schema.h"

#include "ledger/spool_list.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* migration[v] leads from version v to v + 1.  Rows are only ever added. */
static const char *const migration[TR_SQLITE_VERSION] = {
    /* Times are microseconds since 1970. */
    "CREATE TABLE request ("
    " stream_id TEXT PRIMARY KEY NOT NULL, request_id TEXT NOT NULL, key TEXT NOT NULL,"
    " model TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL,"
    " created_us INTEGER NOT NULL, first_token_us INTEGER, finished_us INTEGER,"
    " choices INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,"
    " completion_tokens INTEGER NOT NULL, overrun_tokens INTEGER NOT NULL, last_token INTEGER,"
    " disconnect_us INTEGER, cancel_ack_us INTEGER,"
    " first_byte_us INTEGER, delivered_tokens INTEGER, closed_us INTEGER) WITHOUT ROWID;"
    /* Deliveries whose request is not there yet. */
    "CREATE TABLE early (stream_id TEXT PRIMARY KEY NOT NULL, first_byte_us INTEGER,"
    " delivered_tokens INTEGER NOT NULL, closed_us INTEGER) WITHOUT ROWID;",
    /* The order of all reports. */
    "CREATE INDEX request_created ON request (created_us, stream_id);",
};

enum { HEAD_BYTES = 100, AT_APPLICATION = 68 };

static int read_head(const char *path, uint8_t head[HEAD_BYTES], ssize_t *n, struct tr_errbuf *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *n = 0;
    if (fd < 0)
        return errno == ENOENT
                   ? 0
                   : tr_errf(err, -errno, "cannot open the ledger %s: %s", path, strerror(errno));
    int ret = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)
                  ? tr_errf(err, -EINVAL, "the ledger %s is not a regular file", path)
                  : 0;
    if (!ret) {
        *n = tr_spool_pread(fd, head, HEAD_BYTES, 0);
        if (*n < 0)
            ret = tr_errf(err, (int)*n, "cannot read the ledger %s: %s", path, strerror((int)-*n));
    }
    close(fd);
    return ret;
}

int tr_sqlite_is_ours(const char *path, struct tr_errbuf *err)
{
    static const char magic[16] = "SQLite format 3";
    uint8_t head[HEAD_BYTES];
    uint32_t application;
    ssize_t n;
    int ret = read_head(path, head, &n, err);
    if (ret || n == 0)
        return ret;
    if (n < HEAD_BYTES || memcmp(head, magic, sizeof(magic)) != 0)
        return tr_errf(err, -EINVAL, "%s is not a ledger: no SQLite database; it was left as it is",
                       path);
    memcpy(&application, head + AT_APPLICATION, sizeof(application));
    if (be32toh(application) != TR_SQLITE_APPLICATION)
        return tr_errf(err, -EINVAL,
                       "%s is not a ledger but another SQLite database; it was left as it is",
                       path);
    return 0;
}

int tr_sqlite_failed(sqlite3 *db, const char *path, const char *what, struct tr_errbuf *err)
{
    static const int passing[] = {SQLITE_BUSY,  SQLITE_LOCKED,   SQLITE_FULL,     SQLITE_IOERR,
                                  SQLITE_NOMEM, SQLITE_PROTOCOL, SQLITE_INTERRUPT};
    int code = sqlite3_errcode(db) & 0xff, ret = -EIO;
    for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
        if (code == passing[i])
            ret = -EAGAIN;
    return tr_errf(err, ret, "cannot %s the ledger %s: %s", what, path, sqlite3_errmsg(db));
}

static int version_of(sqlite3 *db, int *version)
{
    sqlite3_stmt *s = NULL;
    int ret = sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL);
    if (ret == SQLITE_OK && (ret = sqlite3_step(s)) == SQLITE_ROW)
        *version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return ret == SQLITE_ROW ? 0 : -EIO;
}

static int step(sqlite3 *db, int from)
{
    char after[128];
    snprintf(after, sizeof(after), "PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
             TR_SQLITE_APPLICATION, from + 1);
    /* Nobody else does the same meanwhile: there is one writer. */
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(db, migration[from], NULL, NULL, NULL) == SQLITE_OK &&
        sqlite3_exec(db, after, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return -EIO;
}

static int refuse_newer(int version, const char *path, struct tr_errbuf *err)
{
    return tr_errf(err, -EINVAL,
                   "the ledger %s was written by a newer version (its tables are version %d, this "
                   "program knows %d); it was left as it is",
                   path, version, TR_SQLITE_VERSION);
}

int tr_sqlite_migrate(sqlite3 *db, const char *path, bool read_only, struct tr_errbuf *err)
{
    int version = 0;
    for (;;) {
        if (version_of(db, &version))
            return tr_sqlite_failed(db, path, "open", err);
        if (version < 0 || version > TR_SQLITE_VERSION)
            return refuse_newer(version, path, err);
        if (version == TR_SQLITE_VERSION)
            return 0;
        if (read_only)
            return version ? 0 : tr_errf(err, -ENOENT, "there is no ledger in %s", path);
        if (step(db, version)) {
            int ret = tr_sqlite_failed(db, path, "bring up to date", err);
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
            return ret;
        }
    }
}
