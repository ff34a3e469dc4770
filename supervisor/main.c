/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/main.c - the one binary: its subcommands. */
#include "base/fault.h"
#include "base/log.h"
#include "sandbox/sandbox.h"
#include "supervisor/heritage.h"
#include "supervisor/key_command.h"
#include "supervisor/process.h"
#include "supervisor/supervise.h"
#include "bench/bench.h"
#include "inspect/inspect.h"
#include "ledger_tool/ledger_tool.h"
#include "probe/probe.h"
#include "replay/replay.h"
#include "top/top.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whoever started us may have closed the standard descriptors: a socket or a shared memory region
 * in their place would be written to as a log. */
static void open_standard_fds(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static int serve(int argc, char **argv)
{
    static struct tr_heritage h;
    struct tr_errbuf err;
    open_standard_fds();
    signal(SIGPIPE, SIG_IGN); /* a log nobody reads any more loses lines, not the service */
    tr_log_init("tokenring", false);
    int ret = tr_options_parse(&h.opt, argc, argv, &err);
    if (ret > 0) {
        tr_options_help();
        return 0;
    }
    tr_log_init("tokenring", h.opt.log_format);
    tr_log_limit((enum tr_log_level)h.opt.log_level);
    int cores = tr_sandbox_no_core();
    if (cores)
        tr_log(TR_LOG_WARN, "core files cannot be ruled out: %s", strerror(-cores));
#ifdef TR_FAULTS
    if (!ret)
        ret = tr_fault_map(&err);
#endif
    if (!ret)
        ret = tr_systemd_init(&h.systemd, &err);
    if (!ret)
        ret = tr_heritage_init(&h, &err);
    if (ret) {
        tr_log(TR_LOG_ERROR, "%s", err.msg);
        return ret == -EINVAL ? 2 : 1;
    }
    tr_title_set("tokenring: supervisor");
    int status = tr_supervise(&h);
    tr_heritage_fini(&h);
    return status;
}

/* The address may hold a password: it does not stay in the list of processes. */
static int ledger(int argc, char **argv)
{
    tr_title_set("tokenring: ledger tool");
    return tr_ledger_tool_main(argc, argv);
}

static int version(int argc, char **argv)
{
    (void)argc, (void)argv;
    printf("tokenring " TR_VERSION "\n");
    return 0;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"serve", serve, "serve a model (see tokenring serve --help)"},
    {"probe", tr_probe_main, "measure a server from outside: first token, gaps, truncated streams"},
    {"replay", tr_replay_main,
     "send a trace of requests on time and tell what came back, per class"},
    {"top", tr_top_main, "watch a running service: slots, tokens, buffers, processes, latencies"},
    {"key", tr_key_command_main, "make an API key and its row for --api-keys"},
    {"ledger", ledger, "verify, sum or export the usage records"},
    {"inspect", tr_inspect_main,
     "what a GGUF file holds, what it would take, whether it can be served"},
    {"bench", tr_bench_main, "measure kernels and the forward pass on this machine"},
    {"version", version, "print the version"},
};
enum { N_COMMANDS = sizeof(commands) / sizeof(commands[0]) };

static int usage(FILE *to, int status)
{
    fprintf(to, "usage: tokenring COMMAND [flags]\n\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-8s %s\n", commands[i].name, commands[i].help);
    return status;
}

int main(int argc, char **argv)
{
    tr_title_init(argc, argv);
    if (argc < 2)
        return usage(stderr, 2);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return usage(stdout, 0);
    if (strcmp(argv[1], "--version") == 0)
        return version(argc, argv);
    fprintf(stderr, "tokenring: there is no command '%s'\n", argv[1]);
    return usage(stderr, 2);
}
