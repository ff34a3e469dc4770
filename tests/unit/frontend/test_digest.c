/* SPDX-License-Identifier: Apache-2.0 */
#include "frontend/digest.h"
#include "base/hex.h"
#include "sandbox/sandbox.h"

#include <criterion/criterion.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OF_ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

static const char *hex_of(const char *text, size_t len)
{
    static char hex[2 * TR_DIGEST_BYTES + 1];
    uint8_t h[TR_DIGEST_BYTES];

    if (tr_digest(text, len, h))
        return "none";
    tr_hex_format(h, sizeof(h), hex);
    return hex;
}

/* FIPS 180-4's own example, the empty text, and one as long as a key may be, as sha256sum says. */
Test(digest, it_is_sha_256)
{
    char text[256];

    cr_expect_str_eq(hex_of("abc", 3), OF_ABC);
    cr_expect_str_eq(hex_of("", 0),
                     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    memset(text, 'a', sizeof(text));
    cr_expect_str_eq(hex_of(text, sizeof(text)),
                     "02d7160d77e18c6447be80c2e355c7ed4388545271702c50253b0914c65ce5fe");
}

/* The exit status of a child that is sandboxed as frontends are; 0: it had the right hash. */
static int in_a_sandbox(bool loaded)
{
    struct tr_errbuf err;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (loaded && tr_digest_load())
            _exit(2);
        if (tr_sandbox_enter(TR_SANDBOX_FRONTEND, &err) < 0)
            _exit(3);
        _exit(strcmp(hex_of("abc", 3), OF_ABC) == 0 ? 0 : 1);
    }
    cr_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Test(digest, a_sandboxed_frontend_has_it)
{
    cr_expect_eq(in_a_sandbox(true), 0);
    cr_expect_eq(in_a_sandbox(false), 0, "without its files, too");
}
