/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/pieces.h"

#include "base/clock.h"
#include "grammar/pieces.h"
#include "text/vocab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(TR_VOCAB_PIECE_MAX <= TR_GPIECE_MAX, "every piece has its place");

struct source {
    const struct tr_vocab *v;
    const uint32_t *eog;
    uint32_t n_eog;
};

static struct tr_gpiece_of piece_of(void *arg, uint32_t id)
{
    const struct source *s = arg;
    struct tr_gpiece_of p = {.kind = TR_GPIECE_TEXT};
    for (uint32_t i = 0; i < s->n_eog; i++)
        if (s->eog[i] == id)
            p.kind = TR_GPIECE_EOG;
    if (p.kind == TR_GPIECE_TEXT && tr_vocab_is_control(s->v, (int32_t)id))
        p.kind = TR_GPIECE_CONTROL;
    if (p.kind == TR_GPIECE_TEXT)
        p.bytes = tr_vocab_bytes(s->v, (int32_t)id, &p.len);
    return p;
}

static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

/* A file that holds the image and never another one. */
static int seal(const void *image, size_t len)
{
    int fd = memfd_create("tokenring-pieces", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -errno;
    int ret = write_all(fd, image, len);
    if (!ret && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
        ret = -errno;
    if (ret)
        close(fd);
    return ret ? ret : fd;
}

int tr_pieces_make(struct tr_pieces *p, const struct tr_vocab *v, const uint32_t *eog,
                   uint32_t n_eog, struct tr_errbuf *err)
{
    struct source s = {.v = v, .eog = eog, .n_eog = n_eog};
    void *image;
    size_t len;
    uint64_t began = tr_now_ns();
    int ret = tr_gpieces_build(tr_vocab_size(v), piece_of, &s, &image, &len);
    if (ret)
        return tr_errf(err, ret, "the vocabulary as a trie: %s", strerror(-ret));
    int fd = seal(image, len);
    free(image);
    if (fd < 0)
        return tr_errf(err, fd, "the vocabulary as a trie: %s", strerror(-fd));
    *p = (struct tr_pieces){.fd = fd, .bytes = len, .ns = tr_now_ns() - began};
    return 0;
}
