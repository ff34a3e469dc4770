/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = (5 << 20) + 12345 };

static char path[] = "/tmp/tokenring-weights-XXXXXX";
static int fd;

static void setup(void)
{
    int file = mkstemp(path);
    cr_assert(file >= 0 && write(file, "model", 5) == 5);
    close(file);
    fd = memfd_create("weights", MFD_CLOEXEC);
    cr_assert_gt(fd, 0);
}

static void teardown(void)
{
    close(fd);
    unlink(path);
}

TestSuite(weights, .init = setup, .fini = teardown);

/* An engine that packs; `keep`: to its end. */
static void pack(bool keep)
{
    bool filled = true;
    uint8_t *mem = tr_weights_take(fd, path, LEN, &filled);
    cr_assert(mem && !filled);
    cr_assert(mem[0] == 0 && mem[LEN - 1] == 0 && memcmp(mem, mem + 1, LEN - 1) == 0, "zero");
    for (size_t i = 0; i < LEN; i++)
        mem[i] = (uint8_t)(i % 251);
    if (keep)
        tr_weights_keep(fd, mem, LEN);
    munmap(mem, LEN);
}

static bool is_there(size_t len)
{
    bool filled;
    uint8_t *mem = tr_weights_take(fd, path, len, &filled);
    cr_assert(mem);
    for (size_t i = 0; filled && i < len; i++)
        cr_assert_eq(mem[i], (uint8_t)(i % 251), "at %zu", i);
    munmap(mem, len);
    return filled;
}

Test(weights, the_next_finds_what_was_packed)
{
    pack(true);
    cr_assert(is_there(LEN));
    cr_assert(is_there(LEN));
}

Test(weights, what_was_not_packed_to_its_end_is_packed_anew)
{
    pack(false);
    pack(true);
    cr_assert(is_there(LEN));
}

Test(weights, of_another_file_they_are_not_taken)
{
    pack(true);
    struct timespec t[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    cr_assert_eq(utimensat(AT_FDCWD, path, t, 0), 0);
    pack(true);
    cr_assert(!is_there(LEN - 4096), "nor of another size");
}

Test(weights, who_kept_them_cannot_spoil_them)
{
    pack(true);
    pid_t pid = fork();
    if (pid == 0) {
        bool filled;
        volatile uint8_t *mem = tr_weights_take(fd, path, LEN, &filled);
        signal(SIGSEGV, SIG_DFL);
        mem[7] = 1;
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    cr_assert(is_there(LEN));
}

Test(weights, without_a_place_there_are_none)
{
    bool filled = true;
    cr_assert_null(tr_weights_take(0, path, LEN, &filled));
    cr_assert(!filled);
    cr_assert_null(tr_weights_take(fd, "/nonexistent", LEN, &filled));
}
