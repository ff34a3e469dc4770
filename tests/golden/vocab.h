/* SPDX-License-Identifier: Apache-2.0 */
/* tests/golden/vocab.h - the vocabulary of a real file, for programs that say which by their argument. */
#ifndef TR_TESTS_GOLDEN_VOCAB_H
#define TR_TESTS_GOLDEN_VOCAB_H

#include "text/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline bool golden_is_gemma(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "gemma3") == 0;
}

/* NULL: said why, and counted as the program's failure. */
static inline struct tr_vocab *golden_vocab(bool gemma)
{
    const char *path = getenv(gemma ? "TOKENRING_TEST_GEMMA" : "TOKENRING_TEST_MODEL");
    struct tr_errbuf err = {""};

    if (!path)
        path = gemma ? ".cache/gemma3.gguf" : ".cache/smollm2.gguf";
    struct tr_gguf *g = tr_gguf_open(path, &err);
    struct tr_vocab *v = g ? tr_vocab_open(g, &err) : NULL;

    tr_gguf_close(g);
    if (!v)
        fprintf(stderr, "%s\n0 passed, 1 failed\n", err.msg);
    return v;
}

#endif
