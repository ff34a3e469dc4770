/* SPDX-License-Identifier: Apache-2.0 */
/* tools/inspect/inspect.h - what a GGUF file holds, and whether it can be served: `tokenring inspect
 * FILE`, or the word that `serve --model` takes for one.
 *
 * Exit code: 0 when `tokenring serve` would take the file; 1 when it would not, or the file cannot be read
 * (a sentence says why); 2 for a wrong command line. */
#ifndef TR_INSPECT_INSPECT_H
#define TR_INSPECT_INSPECT_H

int tr_inspect_main(int argc, char **argv);

#endif
