/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_kernels/rows.inl - what is done to one row: quantise, norm, residual, activation.
 *
 * Included by each instruction level after its lanes.  Only operations of v16 and scalar code:
 * the same bits at every level. */

/* Adding it rounds a float below 2^22 to an integer, which is then in the low bits. */
#define ROUNDER 0x1.8p23F

/* Below this a block of activations is zero.  127 / amax must stay finite; and above it no product
 * of quantised weights meets a subnormal number, which some processors take a hundred times as long
 * for: scales of blocks are at least 2^-57 and so multiples of 2^-80, scales and minima of weights
 * are multiples of 2^-24, whatever the weights' file holds; so all products and sums of them are
 * multiples of 2^-104. */
#define QUANT_MIN 0x1p-50F

/* exp(x), relative error below 2e-7; 0 below -87, exp(88) above 88; NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln(2)/2, then the polynomial of degree 5 that is nearest to exp(r)
 * there with 1 at 0 (it is off by 9e-8). */
TR_INLINE v16 v16_exp(v16 x)
{
    static const float c[] = {0x1.573a6ep-5F, 0x1.555a6cp-3F, 0x1.fffdc6p-2F, 0x1.fffff6p-1F, 1.0F};
    v16 rounder = v16_set1(ROUNDER);
    v16 u = v16_max(v16_set1(-87.0F), v16_min(v16_set1(88.0F), x));
    v16 t = v16_fma(u, v16_set1(0x1.715476p+0F), rounder); /* 1 / ln 2 */
    v16 n = v16_sub(t, rounder);
    v16 r = v16_fma(n, v16_set1(-0x1.62e430p-1F), u); /* ln 2, in two parts */
    r = v16_fma(n, v16_set1(0x1.05c610p-29F), r);
    v16 y = v16_set1(0x1.0fa82p-7F);
    TR_UNROLL
    for (int i = 0; i < 5; i++)
        y = v16_fma(y, r, v16_set1(c[i]));
    return v16_zero_below(v16_scale_bits(y, t), x, -87.0F);
}

/* tanh(x), relative error below 3e-7; NaN stays NaN.  With y = 2x = n ln 2 + r as in v16_exp, but
 * from exp(r) - 1, so that nothing is lost near 0: m = exp(y) - 1 = 2^n (exp(r) - 1) + (2^n - 1)
 * and tanh(x) = m / (m + 2).  Beyond 10 it is 1 in float. */
TR_INLINE v16 v16_tanh(v16 x)
{
    static const float c[] = {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 0.5F, 1.0F};
    v16 rounder = v16_set1(ROUNDER);
    v16 one = v16_set1(1.0F);
    v16 y = v16_max(v16_set1(-20.0F), v16_min(v16_set1(20.0F), v16_add(x, x)));
    v16 t = v16_fma(y, v16_set1(0x1.715476p+0F), rounder);
    v16 n = v16_sub(t, rounder);
    v16 r = v16_fma(n, v16_set1(-0x1.62e430p-1F), y);
    r = v16_fma(n, v16_set1(0x1.05c610p-29F), r);
    v16 p = v16_set1(1.0F / 5040);
    TR_UNROLL
    for (int i = 0; i < 6; i++)
        p = v16_fma(p, r, v16_set1(c[i]));
    v16 power = v16_scale_bits(one, t);
    v16 m = v16_fma(power, v16_mul(p, r), v16_sub(power, one));
    return v16_div(m, v16_add(m, v16_set1(2.0F)));
}

/* One block of 32; low is the sum of its first half.  Infinite or NaN input makes the scale NaN: the
 * row's outputs show it. */
TR_INLINE float quantise_halves(const float *x, int8_t *q, int32_t *sum, int32_t *low)
{
    v16 a = v16_load(x);
    v16 b = v16_load(x + 16);
    uint32_t top = v16_top_bits(v16_max_abs(v16_max_abs(v16_set1(0.0F), a), b));
    float amax;
    memcpy(&amax, &top, sizeof amax);

    *sum = *low = 0;
    if (top >= 0x7F800000U || amax < QUANT_MIN) {
        memset(q, 0, 32);
        return top >= 0x7F800000U ? __builtin_nanf("") : 0.0F;
    }
    v16 inverse = v16_set1(127.0F / amax);
    v16 rounder = v16_set1(ROUNDER);
    *low = v16_store_low_bytes(q, v16_add(v16_mul(a, inverse), rounder));
    *sum = *low + v16_store_low_bytes(q + 16, v16_add(v16_mul(b, inverse), rounder));
    return amax / 127.0F;
}

TR_INLINE float quantise_block(const float *x, int8_t *q, int32_t *sum)
{
    int32_t low;
    return quantise_halves(x, q, sum, &low);
}

static void quantise(const float *x, uint32_t dim, int8_t *q, float *d, float *s, int32_t *sum,
                     int32_t *low)
{
    for (uint32_t b = 0; b < dim / 32; b++) {
        d[b] = quantise_halves(x + (size_t)b * 32, q + (size_t)b * 32, &sum[b], &low[b]);
        s[b] = d[b] * (float)sum[b];
    }
}

/* Lane l sums the squares of elements l, l + 16, ...; the lanes are folded at the end. */
TR_INLINE v16 inverse_rms(v16 squares, uint32_t dim, float eps)
{
    return v16_set1(1.0F / sqrtf(v16_sum(squares) / (float)dim + eps));
}

static void rms_norm(float *x_sum, const float *x, const float *y, const float *w, float eps,
                     uint32_t dim, float *out)
{
    v16 squares = v16_set1(0.0F);
    for (uint32_t i = 0; i < dim; i += 16) {
        uint32_t n = dim - i < 16 ? dim - i : 16;
        v16 a = n == 16 ? v16_load(x + i) : v16_load_n(x + i, n);
        if (y) {
            a = v16_add(a, n == 16 ? v16_load(y + i) : v16_load_n(y + i, n));
            v16_store_n(x_sum + i, a, n);
        }
        squares = v16_fma(a, a, squares);
    }
    const float *in = y ? x_sum : x;
    v16 inverse = inverse_rms(squares, dim, eps);
    for (uint32_t i = 0; i < dim; i += 16) {
        uint32_t n = dim - i < 16 ? dim - i : 16;
        v16 a = v16_mul(v16_load_n(in + i, n), inverse);
        v16_store_n(out + i, v16_mul(a, v16_load_n(w + i, n)), n);
    }
}

static void norm_add(float *x, const float *y, const float *w, float eps, uint32_t dim)
{
    v16 squares = v16_set1(0.0F);
    for (uint32_t i = 0; i < dim; i += 16) {
        v16 a = v16_load_n(y + i, dim - i < 16 ? dim - i : 16);
        squares = v16_fma(a, a, squares);
    }
    v16 inverse = inverse_rms(squares, dim, eps);
    for (uint32_t i = 0; i < dim; i += 16) {
        uint32_t n = dim - i < 16 ? dim - i : 16;
        v16 a = v16_mul(v16_mul(v16_load_n(y + i, n), inverse), v16_load_n(w + i, n));
        v16_store_n(x + i, v16_add(v16_load_n(x + i, n), a), n);
    }
}

static void scale(float *x, float s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t k = n - i < 16 ? n - i : 16;
        v16_store_n(x + i, v16_mul(v16_load_n(x + i, k), v16_set1(s)), k);
    }
}

static void add(float *x, const float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(x + i, v16_add(v16_load(x + i), v16_load(y + i)));
    if (i < n)
        v16_store_n(x + i, v16_add(v16_load_n(x + i, n - i), v16_load_n(y + i, n - i)), n - i);
}

/* Below -87, where v16_exp stops growing, silu is nearer to 0 than 1e-35: 0. */
TR_INLINE v16 silu_mul16(v16 g, v16 up)
{
    v16 e = v16_exp(v16_sub(v16_set1(0.0F), g));
    v16 silu = v16_zero_below(v16_div(g, v16_add(v16_set1(1.0F), e)), g, -87.0F);
    return v16_mul(silu, up);
}

static void silu_mul(float *gate, const float *up, uint32_t n)
{
    uint32_t i = 0;
    for (; i + 16 <= n; i += 16)
        v16_store(gate + i, silu_mul16(v16_load(gate + i), v16_load(up + i)));
    if (i < n)
        v16_store_n(gate + i, silu_mul16(v16_load_n(gate + i, n - i), v16_load_n(up + i, n - i)),
                    n - i);
}

/* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)): one exp, and right far out on the negative side. */
TR_INLINE v16 gelu_mul16(v16 g, v16 up)
{
    v16 cube = v16_mul(v16_mul(g, g), v16_set1(0.044715F));
    v16 u = v16_mul(v16_fma(cube, g, g), v16_set1(1.5957691216F)); /* 2 sqrt(2/pi) */
    v16 e = v16_exp(v16_sub(v16_set1(0.0F), u));
    v16 gelu = v16_zero_below(v16_div(g, v16_add(v16_set1(1.0F), e)), u, -87.0F);
    return v16_mul(gelu, up);
}

static void gelu_mul(float *gate, const float *up, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16) {
        uint32_t k = n - i < 16 ? n - i : 16;
        v16_store_n(gate + i, gelu_mul16(v16_load_n(gate + i, k), v16_load_n(up + i, k)), k);
    }
}
