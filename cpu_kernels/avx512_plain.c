/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/avx512_plain.c - the kernels for AVX-512 (F, BW, DQ, VL) without VNNI. */
#include "cpu_kernels/lanes_avx512.h"

#include "cpu_kernels/ahead.h"
#include "cpu_kernels/kernels.h"
#include "cpu_kernels/kv.h"
#include "cpu_kernels/quant.h"
#include "cpu_kernels/strip.h"

#include <math.h>
#include <string.h>

#define TILE 8
#define SUMS TILE

#include "cpu_kernels/group.inl"

#include "cpu_kernels/dot_madd.inl"
#include "cpu_kernels/quant_tile.inl"

#include "cpu_kernels/product.inl"
#include "cpu_kernels/rows.inl"
#include "cpu_kernels/kv.inl"

#include "cpu_kernels/attention.inl"

const struct tr_kernels tr_kernels_avx512_plain = TR_KERNEL_TABLE;
