/* SPDX-License-Identifier: Apache-2.0 */
/* tools/top/top.h - `tokenring top`: a running service seen from outside. */
#ifndef TR_TOP_TOP_H
#define TR_TOP_TOP_H

int tr_top_main(int argc, char **argv);

#endif
