/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a libFuzzer entry point over every file of a folder, so that builds without libFuzzer
 * check the committed corpus. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    uint8_t *buf = NULL;
    size_t len = 0, got;
    do {
        buf = realloc(buf, len + 65536);
        if (!buf)
            abort();
        got = fread(buf + len, 1, 65536, f);
        len += got;
    } while (got);
    fclose(f);
    /* A copy of the exact size, so that ASan sees a read past the end. */
    uint8_t *exact = malloc(len ? len : 1);
    if (!exact)
        abort();
    memcpy(exact, buf, len);
    free(buf);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 0;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0;
    for (int i = 1; i < argc; i++) {
        DIR *d = opendir(argv[i]);
        if (!d) {
            fprintf(stderr, "%s: cannot open\n", argv[i]);
            failed++;
            continue;
        }
        for (struct dirent *e; (e = readdir(d));) {
            char path[4096];
            if (e->d_name[0] == '.')
                continue;
            snprintf(path, sizeof(path), "%s/%s", argv[i], e->d_name);
            if (replay(path) == 0)
                passed++;
            else
                failed++;
        }
        closedir(d);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
