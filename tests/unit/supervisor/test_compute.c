/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/compute.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static struct tr_errbuf err;

/* What the flags come to: the backend's name, or NULL and a sentence in err. */
static const char *chosen(char **flags, int n, struct tr_options *o)
{
    const struct tr_backend_ops *ops = NULL;
    char *argv[16] = {"serve"};
    memcpy(argv + 1, flags, (size_t)n * sizeof(*flags));
    err.msg[0] = 0;
    cr_assert_eq(tr_options_parse(o, n + 1, argv, &err), 0, "%s", err.msg);
    return tr_compute_choose(o, &ops, &err) ? NULL : ops->name;
}

#define CHOSEN(...)                                                                                \
    chosen((char *[]){__VA_ARGS__}, (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)),       \
           &(struct tr_options){0})
#define REFUSED(sentence, ...)                                                                     \
    do {                                                                                           \
        cr_expect_null(CHOSEN(__VA_ARGS__));                                                       \
        cr_expect_str_eq(err.msg, sentence);                                                       \
    } while (0)

Test(compute, a_file_is_for_the_cpu_and_the_sim_model_for_the_sim_unless_it_is_said)
{
    cr_expect_str_eq(CHOSEN("--model", "x.gguf"), "cpu");
    cr_expect_str_eq(CHOSEN("--model", "x.gguf", "--backend", "cpu"), "cpu");
    cr_expect_str_eq(CHOSEN("--model", "x.gguf", "--backend", "sim"), "sim");
    cr_expect_str_eq(CHOSEN("--model", "sim"), "sim");
    cr_expect_str_eq(CHOSEN("--model", "sim", "--backend", "sim"), "sim");
    REFUSED("--model sim has no weights: --backend cpu cannot run it", "--model", "sim",
            "--backend", "cpu");
    REFUSED("--model sim has no weights: --backend cuda cannot run it", "--model", "sim",
            "--backend", "cuda");
}

Test(compute, a_build_without_cuda_says_so)
{
    if (tr_backend_cuda.forward) {
        cr_expect_str_eq(CHOSEN("--model", "x.gguf", "--backend", "cuda"), "cuda");
        return;
    }
    cr_expect_null(CHOSEN("--model", "x.gguf", "--backend", "cuda"));
    cr_expect(strstr(err.msg, "built without CUDA"), "%s", err.msg);
    cr_expect(strstr(err.msg, "-DTOKENRING_CUDA=ON"), "%s", err.msg);
}

Test(compute, flags_of_the_cpu_mean_nothing_to_a_gpu)
{
    REFUSED("--cpu-math f32 is for the cpu backend: how --backend cuda computes is said by "
            "--deterministic alone",
            "--model", "x.gguf", "--backend", "cuda", "--cpu-math", "f32");
    REFUSED("--cpu-math blas is for the cpu backend: how --backend cuda computes is said by "
            "--deterministic alone",
            "--model", "x.gguf", "--backend", "cuda", "--cpu-math", "blas");
    REFUSED("--pin-threads is for the cpu backend: with --backend cuda the threads of the engine "
            "compute nothing once the model is loaded",
            "--model", "x.gguf", "--backend", "cuda", "--pin-threads", "on");
}

Test(compute, who_insists_on_the_same_tokens_gets_no_blas)
{
    REFUSED("--deterministic: the products of --cpu-math blas change with what else is in their "
            "batch; int8 and f32 do not",
            "--model", "x.gguf", "--cpu-math", "blas", "--deterministic");
    cr_expect_str_eq(CHOSEN("--model", "x.gguf", "--cpu-math", "blas"), "cpu");
    cr_expect_str_eq(CHOSEN("--model", "x.gguf", "--cpu-math", "f32", "--deterministic"), "cpu");
    cr_expect_str_eq(CHOSEN("--model", "x.gguf", "--deterministic"), "cpu");
    cr_expect_str_eq(CHOSEN("--model", "sim", "--deterministic"), "sim");
}

/* As tokenring_info has it. */
static bool told(const struct tr_backend_ops *ops, enum tr_math math, bool insisted)
{
    return tr_backend_keeps(ops,
                            &(struct tr_backend_config){.math = math, .deterministic = insisted});
}

Test(compute, what_is_deterministic_is_told_in_every_combination)
{
    for (int insisted = 0; insisted < 2; insisted++) {
        cr_expect(told(&tr_backend_cpu, TR_MATH_INT8, insisted));
        cr_expect(told(&tr_backend_cpu, TR_MATH_F32, insisted));
        cr_expect(told(&tr_backend_sim, TR_MATH_INT8, insisted));
        cr_expect(told(&tr_backend_sim, TR_MATH_BLAS, insisted));
        cr_expect_eq(told(&tr_backend_cuda, TR_MATH_INT8, insisted), insisted);
    }
    cr_expect_not(told(&tr_backend_cpu, TR_MATH_BLAS, false));
}
