/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/key_command.c - see key_command.h.
 *
 * The key is printed once and kept nowhere: what stays is its hash.  Standard output is for scripts (the
 * key, and the row unless a file takes it), standard error for people. */
#include "supervisor/key_command.h"

#include "base/emit.h"
#include "supervisor/key_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RANDOM_BYTES = 24, /* 192 bits: nobody guesses them */
    KEY_CHARS = RANDOM_BYTES / 3 * 4,
    PART_WAIT_MS = 5000,
    PART_PAUSE_MS = 10
};

struct wish {
    struct tr_key key;
    const char *file; /* NULL: none */
};

static int usage(FILE *to, int status)
{
    const struct tr_key_setting *s;

    fprintf(to,
            "usage: tokenring key NAME [flags]\n\n"
            "Makes an API key: prints it, which nobody can do again, and the row for the file of\n"
            "--api-keys, which holds its SHA-256.\n\n"
            "  --file FILE            add the row to this file instead; it is made if it is not "
            "there\n"
            "  --admin                the key may ask /debug/streams too\n");
    for (unsigned i = 0; (s = tr_key_setting(i)); i++) {
        char flag[40];
        size_t n = (size_t)snprintf(flag, sizeof(flag), "--%s N", s->name);
        for (size_t k = 0; k < n; k++)
            flag[k] = flag[k] == '_' ? '-' : flag[k];
        fprintf(to, "  %-22s %lld to %lld; %s\n", flag, (long long)s->min, (long long)s->max,
                s->about);
    }
    return status;
}

/* ---- the command line ---- */

static int read_setting(struct wish *w, const char *flag, const char *value)
{
    char name[40], *end;
    size_t n = strlen(flag);

    if (n >= sizeof(name))
        return -ENOENT;
    for (size_t i = 0; i <= n; i++)
        name[i] = flag[i] == '-' ? '_' : flag[i];
    errno = 0;
    long long v = strtoll(value, &end, 10);
    bool whole = end != value && !*end && !errno && !isspace((unsigned char)*value);
    int rc = tr_key_set(&w->key, name, n, v);
    return rc == 0 && !whole ? -ERANGE : rc;
}

static int read_flag(struct wish *w, const char *flag, const char *value)
{
    if (strcmp(flag, "file") == 0) {
        w->file = value;
        return 0;
    }
    int rc = read_setting(w, flag, value);
    if (rc == -ENOENT)
        fprintf(stderr, "tokenring key: unknown flag '--%s'\n", flag);
    else if (rc)
        fprintf(stderr, "tokenring key: --%s %s is out of range (tokenring key --help)\n", flag,
                value);
    return rc;
}

static int read_name(struct wish *w, const char *name)
{
    struct tr_errbuf err;

    if (w->key.name[0])
        snprintf(err.msg, sizeof(err.msg), "one name, not '%s' too", name);
    else if (tr_key_name_check(name, strlen(name), &err) == 0) {
        memcpy(w->key.name, name, strlen(name) + 1);
        return 0;
    }
    fprintf(stderr, "tokenring key: %s\n", err.msg);
    return -EINVAL;
}

static int read_line(struct wish *w, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char flag[64];
        const char *a = argv[i], *value = strchr(a, '=');
        int rc;
        if (strncmp(a, "--", 2) != 0) {
            rc = read_name(w, a);
        } else if (strcmp(a, "--admin") == 0) {
            w->key.admin = true;
            rc = 0;
        } else {
            snprintf(flag, sizeof(flag), "%.*s", (int)strcspn(a + 2, "="), a + 2);
            value = value ? value + 1 : ++i < argc ? argv[i] : NULL;
            rc = value ? read_flag(w, flag, value) : -EINVAL;
            if (!value)
                fprintf(stderr, "tokenring key: --%s needs a value\n", flag);
        }
        if (rc)
            return rc;
    }
    if (w->key.name[0])
        return 0;
    fprintf(stderr, "tokenring key: the key needs a name\n");
    return -EINVAL;
}

/* ---- the key ---- */

/* "tr-" and characters that may stand in every field a key can come in, a WebSocket's protocol too. */
static int make_key(struct tr_key *k, char text[3 + KEY_CHARS + 1])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t r[RANDOM_BYTES];
    char *p = text + 3;

    while (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r)) /* so few never come in part */
        ;
    text[0] = 't', text[1] = 'r', text[2] = '-';
    for (size_t i = 0; i < RANDOM_BYTES; i += 3) {
        uint32_t v = (uint32_t)r[i] << 16 | (uint32_t)r[i + 1] << 8 | r[i + 2];
        for (unsigned d = 0; d < 4; d++)
            *p++ = digits[v >> (18 - 6 * d) & 63];
    }
    *p = '\0';
    explicit_bzero(r, sizeof(r));
    return tr_digest(text, strlen(text), k->hash);
}

/* ---- the file ---- */

static int write_all(int fd, const char *p, size_t len)
{
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0)
            return -errno;
        p += n;
        len -= (size_t)n;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

/* A row a line, so that people and version control see what changed. */
static void write_file(struct tr_emit *e, const struct tr_keys *keys)
{
    static const char first[] = "{\"keys\": [\n", between[] = ",\n", last[] = "\n]}\n";

    tr_emit_bytes(e, first, sizeof(first) - 1);
    for (uint32_t i = 0; i < keys->n; i++) {
        struct tr_emit row;
        tr_emit_init(&row);
        tr_key_file_row(&row, &keys->row[i]);
        tr_emit_bytes(e, row.buf, row.len);
        tr_emit_bytes(e, between, i + 1 < keys->n ? sizeof(between) - 1 : 0);
        e->failed |= row.failed;
        tr_emit_fini(&row);
    }
    tr_emit_bytes(e, last, sizeof(last) - 1);
}

/* What will be the file lies beside it first: whoever reads it meanwhile has the old one or the new one, and
 * who adds another row at the same moment waits.  Its descriptor, or a negative error. */
static int open_part(const char *part, struct tr_errbuf *err)
{
    const struct timespec pause = {.tv_nsec = PART_PAUSE_MS * 1000000l};
    int fd = -1;

    for (unsigned i = 0; fd < 0 && i < PART_WAIT_MS / PART_PAUSE_MS; i++) {
        fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            return tr_errf(err, -errno, "%s cannot be written: %s", part, strerror(errno));
        if (fd < 0)
            nanosleep(&pause, NULL);
    }
    return fd >= 0
               ? fd
               : tr_errf(err, -EEXIST,
                         "%s is in the way: somebody else adds a key, or was stopped while he did",
                         part);
}

/* The rows that are there, and the one that is new. */
static int read_and_add(const char *path, const struct tr_key *k, struct tr_keys *keys,
                        mode_t *mode, struct tr_errbuf *err)
{
    struct stat st = {.st_mode = 0600};

    if (stat(path, &st) == 0) {
        if (tr_key_file_read(path, keys, err))
            return -EINVAL;
    } else if (errno != ENOENT) {
        return tr_errf(err, -errno, "%s: %s", path, strerror(errno));
    }
    if (tr_keys_named(keys, k->name))
        return tr_errf(err, -EEXIST, "%s has a key of this name already", path);
    if (keys->n == TR_KEYS_MAX)
        return tr_errf(err, -ENOSPC, "%s is full: at most %d keys", path, TR_KEYS_MAX);
    keys->row[keys->n++] = *k;
    *mode = st.st_mode & 0777;
    return 0;
}

static int write_part(int fd, const struct tr_keys *keys, mode_t mode)
{
    struct tr_emit e;

    tr_emit_init(&e);
    write_file(&e, keys);
    int ret = e.failed ? -ENOMEM : fchmod(fd, mode) < 0 ? -errno : write_all(fd, e.buf, e.len);
    tr_emit_fini(&e);
    return ret;
}

static int add_to_file(const char *path, const struct tr_key *k, struct tr_errbuf *err)
{
    static struct tr_keys keys;
    char part[4096];
    mode_t mode = 0;
    int n = snprintf(part, sizeof(part), "%s.part", path);

    if (n < 0 || (size_t)n >= sizeof(part))
        return tr_errf(err, -ENAMETOOLONG, "the name of the file is too long");
    int fd = open_part(part, err);
    if (fd < 0)
        return fd;
    keys.n = 0;
    int ret = read_and_add(path, k, &keys, &mode, err);
    if (!ret) {
        ret = write_part(fd, &keys, mode);
        if (!ret && rename(part, path) < 0)
            ret = -errno;
        if (ret)
            tr_errf(err, ret, "%s cannot be written: %s", path, strerror(-ret));
    }
    close(fd);
    if (ret)
        unlink(part);
    return ret;
}

static int print_row(const struct tr_key *k)
{
    struct tr_emit e;

    tr_emit_init(&e);
    tr_key_file_row(&e, k);
    int ret = e.failed ? 1 : 0;
    if (!ret)
        printf("%.*s\n", (int)e.len, e.buf);
    tr_emit_fini(&e);
    return ret;
}

int tr_key_command_main(int argc, char **argv)
{
    struct wish w = {.key = tr_key_defaults};
    char text[3 + KEY_CHARS + 1];
    struct tr_errbuf err;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return usage(stdout, 0);
    if (read_line(&w, argc, argv))
        return 2;
    if (make_key(&w.key, text)) {
        fprintf(stderr, "tokenring key: OpenSSL cannot make a SHA-256\n");
        return 1;
    }
    if (w.file && add_to_file(w.file, &w.key, &err)) {
        fprintf(stderr, "tokenring key: %s\n", err.msg);
        return 1;
    }
    printf("%s\n", text);
    explicit_bzero(text, sizeof(text));
    int ret = w.file ? 0 : print_row(&w.key);
    if (fflush(stdout) != 0)
        ret = 1;
    fprintf(stderr, "\nThis is the only time the key is shown.  %s%s%s\n",
            w.file ? "Its row is in " : "The row goes into the array \"keys\" of the file of ",
            w.file ? w.file : "--api-keys", w.file ? "; SIGHUP makes the service read it." : ".");
    return ret;
}
