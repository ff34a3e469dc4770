/* SPDX-License-Identifier: Apache-2.0 */
/* What a socket may send instead of a service's regions. */
#include "top_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

static struct top_rig r;

static void open_rig(void)
{
    top_rig_open(&r, 8);
}

static void close_rig(void)
{
    top_rig_close(&r);
}

TestSuite(top_attach, .init = open_rig, .fini = close_rig);

static unsigned open_fds(void)
{
    unsigned n = 0;
    for (int fd = 0; fd < 512; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Refused with a sentence that holds `words`, and no descriptor stays open. */
static void must_refuse(const struct tr_observe *h, int *fds, uint32_t n, const char *words)
{
    struct tr_errbuf err = {""};
    struct tr_top_view v;
    unsigned before = open_fds();
    cr_assert_lt(tr_top_take(&v, h, fds, n, &err), 0);
    must_hold(err.msg, words);
    cr_assert_eq(open_fds(), before - n);
    cr_assert_null(v.slots);
    tr_top_detach(&v);
}

static void must_refuse_hello(const struct tr_observe *h, const char *words)
{
    int fds[TR_OBSERVE_MAX_FDS];
    must_refuse(h, fds, top_fds(&r, fds), words);
}

Test(top_attach, another_service_or_build_is_refused)
{
    struct tr_observe h = top_hello(&r.fds.config), bad = h;
    bad.magic++;
    must_refuse_hello(&bad, "no tokenring");
    bad = h;
    bad.layout_version++;
    must_refuse_hello(&bad, "another build");
    bad = h;
    bad.n_values++;
    must_refuse_hello(&bad, "another build");
    bad = h;
    bad.stat_bytes -= 8;
    must_refuse_hello(&bad, "another build");
    bad = h;
    bad.config.n_slots = 0;
    must_refuse_hello(&bad, "impossible");
    bad = h;
    bad.config.n_areas = 1u << 30;
    must_refuse_hello(&bad, "impossible");
    bad = h;
    bad.config.n_slots = 1 << 20; /* its regions would have to be larger than they are */
    must_refuse_hello(&bad, "not what it should be");
    bad = h;
    bad.config.window++;
    must_refuse_hello(&bad, "not what it should be");
    memset(&bad, 0, sizeof(bad));
    must_refuse_hello(&bad, "no tokenring");
}

Test(top_attach, descriptors_that_are_not_the_regions_are_refused)
{
    struct tr_observe h = top_hello(&r.fds.config);
    int fds[TR_OBSERVE_MAX_FDS];
    uint32_t n = top_fds(&r, fds);
    close(fds[n - 1]);
    must_refuse(&h, fds, n - 1, "descriptors");
    n = top_fds(&r, fds);
    int swap = fds[0];
    fds[0] = fds[1];
    fds[1] = swap;
    must_refuse(&h, fds, n, "not what it should be");
    n = top_fds(&r, fds);
    close(fds[2]);
    fds[2] = open("/dev/zero", O_RDONLY);
    must_refuse(&h, fds, n, "not what it should be");
    /* The same bytes, but its sender could cut it short under the reader. */
    n = top_fds(&r, fds);
    size_t bytes = tr_layout_region_bytes(&h.config, TR_REGION_SLOTS);
    int loose = memfd_create("loose", MFD_ALLOW_SEALING);
    cr_assert_eq(write(loose, r.s.slots, bytes), (ssize_t)bytes);
    close(fds[n - 2]);
    fds[n - 2] = loose;
    must_refuse(&h, fds, n, "not what it should be");
}

Test(top_attach, names_are_made_printable)
{
    struct tr_observe h = top_hello(&r.fds.config);
    struct tr_errbuf err = {""};
    struct tr_top_view v;
    int fds[TR_OBSERVE_MAX_FDS];
    memset(h.model, 'm', sizeof(h.model)); /* no end */
    memcpy(h.version, "\033[2J\"\\\n\377", 9);
    uint32_t n = top_fds(&r, fds);
    cr_assert_eq(tr_top_take(&v, &h, fds, n, &err), 0, "%s", err.msg);
    cr_assert_eq(strlen(v.hello.model), sizeof(h.model) - 1);
    cr_assert_str_eq(v.hello.version, "?[2J????");
    tr_top_detach(&v);
}
