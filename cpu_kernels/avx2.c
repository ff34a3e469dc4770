/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/avx2.c - the kernels for AVX2, FMA and F16C. */
#include "cpu_kernels/lanes_avx2.h"

#include "cpu_kernels/ahead.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#include <math.h>

#define TILE 4
#define SUMS TILE

#include "cpu_kernels/group.inl"

#include "cpu_kernels/dot_madd.inl"
#include "cpu_kernels/quant_tile.inl"

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/kv.inl"

#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_avx2 = TR_KERNEL_TABLE;
