/* SPDX-License-Identifier: Apache-2.0 */
/* tools/ledger/ledger_tool.h - `tokenring ledger`: the usage records of one service or several, verified,
 * summed or written out.  It reads; it makes and changes no file and no table. */
#ifndef TR_LEDGER_TOOL_LEDGER_TOOL_H
#define TR_LEDGER_TOOL_LEDGER_TOOL_H

int tr_ledger_tool_main(int argc, char **argv);

#endif
