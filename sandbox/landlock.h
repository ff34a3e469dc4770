/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/landlock.h - the Landlock part of a sandbox, by the kernel's own calls. */
#ifndef TR_SANDBOX_LANDLOCK_H
#define TR_SANDBOX_LANDLOCK_H

#include <stdbool.h>

/* The version of Landlock that runs: 1, 2, ...; 0: none. */
int tr_landlock_abi(void);

/* The calling thread and all it starts can open, make, remove and run no file, but read, write, make
 * and remove plain files in the `n` folders (open descriptors) and below.  From ABI 4 on they neither
 * bind nor connect TCP sockets, from 6 on they reach no abstract socket and signal nobody outside.
 * `client`: they may also read every file, connect, and reach abstract sockets.  Needs no_new_privs.
 * 0 or -errno. */
int tr_landlock_only(int abi, const int *folders, int n, bool client);

#endif
