/* SPDX-License-Identifier: Apache-2.0 */
/* supervisor/key_command.h - the subcommand `tokenring key`: makes a key and its row of a file. */
#ifndef TR_SUPERVISOR_KEY_COMMAND_H
#define TR_SUPERVISOR_KEY_COMMAND_H

/* Exit status: 0; 1 when the file could not be read or written; 2 for a wrong command line. */
int tr_key_command_main(int argc, char **argv);

#endif
