/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling on the device: the ids and log-probabilities of engine/sample.c, to the bit, for random requests over
 * vocabularies with and without tails, histories in scattered blocks, masks, ties, and logits that are no
 * numbers. */
#include "sampling_cases.h"
#include "suite.h"

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 6 * SAMPLING_KINDS;
    struct tr_ops ops = {};
    ops.take = tr_cuda_take;
    ops.give = tr_cuda_give;
    ops.take_host = tr_cuda_take_host;
    ops.give_host = tr_cuda_give_host;
    ops.upload = tr_cuda_upload;
    ops.download = tr_cuda_download;
    in_both_orders([&](const char *order) {
        struct tr_dev dev = device(true);
        for (uint32_t seed = 0; seed < n; seed++) {
            char what[256] = "";
            bool same = sampling_case(&ops, &dev, seed, what);
            claim(same, "%s%s", what, order);
        }
    });
    return suite_end();
}
