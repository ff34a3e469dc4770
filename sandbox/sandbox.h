/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/sandbox.h - what a process gives up before it meets what strangers send.
 *
 * A process that was taken over by its input can do what its sandbox leaves it and no more.  Entered
 * once, for good, after everything that needs files is open and before the first byte of a client:
 *
 *   frontend   no capabilities, no standard input and output; Landlock: no file, no TCP
 *              bind or connect, no signal and no abstract socket out of its domain; seccomp: the calls
 *              of calls.def, no executable memory, no process, no new socket
 *   engine     no capabilities (tr_sandbox_prepare); seccomp: memory, threads, its doorbells, log
 *   engine on a GPU: the same, and the ioctl numbers of NVIDIA's driver, on descriptors that its library
 *              has open by then (not tried on a device)
 *   ledger     no capabilities; Landlock: files in its spool and beside its database, and nothing else;
 *              seccomp: the same as the engine, and files
 *   ledger that writes to a server, or exports traces: the same, but Landlock lets it read every file
 *              of its user (resolver, certificates, passwords) and connect, and seccomp lets it have
 *              sockets for it
 *
 *   I1  entering it needs no privilege, and nothing gives back what it took
 *   I2  it holds for every thread: filters for those there are and those to come, Landlock for those
 *       to come (so worker threads start after it)
 *   I3  a forbidden call kills the whole process (SIGSYS), except opening a file, which is refused:
 *       libraries try that at odd moments and cope
 *
 * A kernel without Landlock or seccomp does not keep the service from starting; the caller says what
 * is missing. */
#ifndef TR_SANDBOX_SANDBOX_H
#define TR_SANDBOX_SANDBOX_H

#include "base/err.h"

enum tr_sandbox {
    TR_SANDBOX_FRONTEND,
    TR_SANDBOX_ENGINE,
    TR_SANDBOX_ENGINE_GPU, /* --backend cuda */
    TR_SANDBOX_LEDGER,     /* its database is a file */
    TR_SANDBOX_LEDGER_NET  /* ... is behind a socket, or a collector of traces is */
};

/* For a process that must start threads before it can enter: capabilities belong to threads, so they
 * are given up here, all but reading files of other users.  0, or -errno and a sentence. */
int tr_sandbox_prepare(struct tr_errbuf *err);

/* For the supervisor, at its start: it and all its children leave no core file, and what a program that
 * collects them (systemd-coredump) may get holds no memory.  Memory is what people asked and were
 * answered, and secrets of the service.  0 or -errno. */
int tr_sandbox_no_core(void);

/* The calling process, which keeps it for life.  0: all of it holds.  1: this kernel lacks a part,
 * named in *err; the rest holds.  -errno and a sentence: it could not be entered, and the process must
 * not go on. */
int tr_sandbox_enter(enum tr_sandbox who, struct tr_errbuf *err);

/* The same for a ledger, with `n` <= TR_SANDBOX_FOLDERS folders in which plain files may be
 * opened, made and removed. */
enum { TR_SANDBOX_FOLDERS = 4 };
int tr_sandbox_enter_with(enum tr_sandbox who, const char *const *folders, int n,
                          struct tr_errbuf *err);

#endif
