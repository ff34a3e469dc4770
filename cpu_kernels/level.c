/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/level.c - which instructions this machine has. */
#include "cpu_kernels/ops.h"

#if defined(__x86_64__)
static bool have(enum tr_cpu_level level)
{
    /* The compiler's run time asks cpuid and xgetbv: the instructions exist and the system saves
     * their registers. */
    __builtin_cpu_init();
    switch (level) {
    case TR_CPU_AVX512:
        return __builtin_cpu_supports("avx512vnni") && have(TR_CPU_AVX512_PLAIN);
    case TR_CPU_AVX512_PLAIN:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               have(TR_CPU_AVX2);
    case TR_CPU_AVX2:
        /* F16C has no name here in older compilers; every processor with AVX2 has it. */
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    default:
        return true;
    }
}
#else
static bool have(enum tr_cpu_level level)
{
    return level == TR_CPU_GENERIC;
}
#endif

enum tr_cpu_level tr_cpu_level_find(enum tr_cpu_level max)
{
    for (int l = TR_CPU_AVX512; l > TR_CPU_GENERIC; l--) {
        if (l <= (int)max && have((enum tr_cpu_level)l))
            return (enum tr_cpu_level)l;
    }
    return TR_CPU_GENERIC;
}

const char *tr_cpu_level_name(enum tr_cpu_level level)
{
    switch (level) {
    case TR_CPU_AVX512:
        return "avx512-vnni";
    case TR_CPU_AVX512_PLAIN:
        return "avx512";
    case TR_CPU_AVX2:
        return "avx2";
    default:
        return "generic";
    }
}
