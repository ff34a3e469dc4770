/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger/spool_list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 16 };

void tr_spool_name(uint64_t number, bool aside, char out[TR_SPOOL_NAME_BYTES])
{
    snprintf(out, TR_SPOOL_NAME_BYTES, "%016" PRIx64 ".%s", number, aside ? "bad" : "spool");
}

/* Only what tr_spool_name writes. */
static bool is_segment(const char *name, struct tr_spool_file *f)
{
    char again[TR_SPOOL_NAME_BYTES], *end;
    if (strlen(name) >= sizeof(again) || strspn(name, "0123456789abcdef") != DIGITS)
        return false;
    f->number = strtoull(name, &end, 16);
    f->aside = strcmp(end, ".bad") == 0;
    tr_spool_name(f->number, f->aside, again);
    return strcmp(name, again) == 0;
}

static int by_number(const void *a, const void *b)
{
    const struct tr_spool_file *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static int add(struct tr_spool_file **list, size_t n, const struct tr_spool_file *f)
{
    if (n % 64 == 0) {
        struct tr_spool_file *more = realloc(*list, (n + 64) * sizeof(*more));
        if (!more)
            return -ENOMEM;
        *list = more;
    }
    (*list)[n] = *f;
    return 0;
}

static ssize_t collect(int dir, DIR *d, struct tr_spool_file **list)
{
    size_t n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        struct tr_spool_file f;
        struct stat st;
        if (!is_segment(e->d_name, &f))
            continue;
        if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue; /* dropped meanwhile, or not ours */
        f.size = st.st_size;
        if (add(list, n, &f))
            return -ENOMEM;
        n++;
    }
    return (ssize_t)n;
}

ssize_t tr_spool_list(int dir, struct tr_spool_file **out)
{
    struct tr_spool_file *list = NULL;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        int e = errno;
        if (fd >= 0)
            close(fd);
        return -e;
    }
    ssize_t n = collect(dir, d, &list);
    closedir(d);
    if (n < 0) {
        free(list);
        return n;
    }
    if (n)
        qsort(list, (size_t)n, sizeof(*list), by_number);
    *out = list;
    return n;
}

ssize_t tr_spool_pread(int fd, uint8_t *buf, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(fd, buf + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}
