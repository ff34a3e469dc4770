/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/weights.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEN = (5 << 20) + 12345 };

static const struct tr_gguf_origin file = {.dev = 1, .ino = 2, .size = 3, .mtime_ns = 4};
static int fd;

static void setup(void)
{
    fd = memfd_create("weights", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    cr_assert_gt(fd, 0);
}

static void teardown(void)
{
    close(fd);
}

TestSuite(weights, .init = setup, .fini = teardown);

/* An engine that packs; `keep`: to its end. */
static void pack(bool keep)
{
    bool filled = true;
    uint8_t *mem = tr_weights_take(fd, file, LEN, NULL, NULL, &filled);
    cr_assert(mem && !filled);
    cr_assert(mem[0] == 0 && mem[LEN - 1] == 0 && memcmp(mem, mem + 1, LEN - 1) == 0, "zero");
    for (size_t i = 0; i < LEN; i++)
        mem[i] = (uint8_t)(i % 251);
    if (keep)
        cr_assert_eq(tr_weights_keep(fd, mem, LEN), 0);
    for (size_t i = 0; i < LEN; i++)
        cr_assert_eq(mem[i], (uint8_t)(i % 251), "at %zu", i);
    munmap(mem, LEN);
}

static bool is_there(size_t len)
{
    bool filled;
    uint8_t *mem = tr_weights_take(fd, file, len, NULL, NULL, &filled);
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
    struct tr_gguf_origin newer = file;
    newer.mtime_ns++;
    bool filled;
    pack(true);
    cr_assert_null(tr_weights_take(fd, newer, LEN, NULL, NULL, &filled));
    cr_assert_null(tr_weights_take(fd, file, LEN - 4096, NULL, NULL, &filled),
                   "nor of another size");
    cr_assert(is_there(LEN), "and they are still there");
}

Test(weights, who_kept_them_cannot_spoil_them)
{
    pack(true);
    pid_t pid = fork();
    if (pid == 0) {
        bool filled;
        volatile uint8_t *mem = tr_weights_take(fd, file, LEN, NULL, NULL, &filled);
        signal(SIGSEGV, SIG_DFL);
        mem[7] = 1;
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    cr_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    cr_assert(is_there(LEN));
}

Test(weights, nor_who_packed_them)
{
    bool filled;
    uint8_t *mem = tr_weights_take(fd, file, LEN, NULL, NULL, &filled);
    cr_assert_eq(tr_weights_keep(fd, mem, LEN), 0);
    cr_assert_eq(mprotect(mem, LEN, PROT_READ | PROT_WRITE), -1);
    cr_assert_eq(pwrite(fd, "x", 1, 0), -1);
    cr_assert_eq(ftruncate(fd, 0), -1);
    munmap(mem, LEN);
}

static void count(void *arg)
{
    ++*(unsigned *)arg;
}

Test(weights, memory_that_takes_long_to_be_had_gives_signs_of_life)
{
    unsigned signs = 0;
    bool filled;
    const size_t len = 130u << 20;
    void *mem = tr_weights_take(fd, file, len, count, &signs, &filled);
    cr_assert(mem);
    cr_assert_geq(signs, 3);
    munmap(mem, len);
}

Test(weights, without_a_place_there_are_none)
{
    bool filled = true;
    cr_assert_null(tr_weights_take(0, file, LEN, NULL, NULL, &filled));
    cr_assert(!filled);
    cr_assert_null(tr_weights_take(fd, (struct tr_gguf_origin){0}, LEN, NULL, NULL, &filled),
                   "no file");
}
