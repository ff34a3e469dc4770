/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/inspect.h"

#include "base/model_path.h"
#include "client/flags.h"
#include "inspect/report.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum opt_id { OPT_TENSORS, OPT_METADATA, OPT_JSON, OPT_HELP, OPT_COUNT };

/* Indexed by opt_id. */
static const struct tr_flag table[OPT_COUNT] = {
    [OPT_TENSORS] = {"tensors", NULL, "list every tensor: name, type, size, shape"},
    [OPT_METADATA] = {"metadata", NULL, "list every key, its type and value"},
    [OPT_JSON] = {"json", NULL, "one object of JSON"},
    [OPT_HELP] = {"help", NULL, "this page"},
};

struct wish {
    const char *model; /* as the command line has it */
    struct tr_inspect_wish report;
    bool json, help;
};

static int set(void *ctx, int id, const char *v, struct tr_errbuf *err)
{
    struct wish *w = ctx;
    (void)v;
    (void)err;
    switch ((enum opt_id)id) {
    case OPT_TENSORS:
        return tr_take_switch(&w->report.tensors);
    case OPT_METADATA:
        return tr_take_switch(&w->report.metadata);
    case OPT_JSON:
        return tr_take_switch(&w->json);
    case OPT_HELP:
        return tr_take_switch(&w->help);
    case OPT_COUNT:
        break;
    }
    return -EINVAL;
}

static void help(FILE *to)
{
    fputs("usage: tokenring inspect FILE|smollm2 [flags]\n\n"
          "What a GGUF file holds: container, numbers of the model, vocabulary, chat template, "
          "tensors;\n"
          "what it would take in memory; and whether tokenring would serve it, or why not.\n\n",
          to);
    tr_flags_help(table, OPT_COUNT, to);
    fputs("\nexit status: 0; 1 it would not be served, or cannot be read; 2 usage\n", to);
}

/* The file is mapped; who cuts it short while it is read makes the rest go away. */
static void file_cut(int sig)
{
    static const char words[] = "tokenring inspect: the file became shorter while it was read\n";
    (void)sig;
    if (write(STDERR_FILENO, words, sizeof(words) - 1) < 0)
        _exit(2);
    _exit(1);
}

static int read_command(struct wish *w, int argc, char **argv, struct tr_errbuf *err)
{
    /* The file's name may stand before or behind the flags. */
    int first = argc > 1 && argv[1][0] != '-' ? 1 : 0;
    if (argc > 1 && !first && argv[argc - 1][0] != '-') {
        w->model = argv[argc - 1];
        argc--;
    } else if (first) {
        w->model = argv[1];
    }
    struct tr_flags flags = {table, OPT_COUNT, "TOKENRING_INSPECT_", set, w};
    int ret = tr_flags_parse(&flags, argc - first, argv + first, err);
    if (!ret && !w->help && !w->model)
        ret = tr_errf(err, -EINVAL, "which model? (see tokenring inspect --help)");
    return ret;
}

int tr_inspect_main(int argc, char **argv)
{
    struct wish w = {0};
    struct tr_errbuf err = {""};
    struct tr_facts f;
    char path[4096];

    if (read_command(&w, argc, argv, &err)) {
        fprintf(stderr, "tokenring inspect: %s\n", err.msg);
        return 2;
    }
    if (w.help) {
        help(stdout);
        return 0;
    }
    signal(SIGBUS, file_cut);
    w.report.path = path;
    if (tr_model_path(w.model, path, sizeof(path), &err) || tr_facts_open(&f, path, &err)) {
        fprintf(stderr, "tokenring inspect: %s\n", err.msg);
        return 1;
    }
    int ret = f.n_refusals != 0;
    if (!w.json)
        tr_inspect_text(stdout, &f, &w.report);
    else if (tr_inspect_json(stdout, &f, &w.report)) {
        fprintf(stderr, "tokenring inspect: no memory\n");
        ret = 1;
    }
    tr_facts_close(&f);
    if (fflush(stdout) || ferror(stdout))
        ret = 1;
    return ret;
}
