/* All scores of two tiles, for the full matrix: the sums of scores.h, eight pairs at a time; part of dense.c. */
#pragma once

#include "scores.h"

#if defined(__AVX512F__)
/* Four folds at once, each in numpy's order. */
static inline __m256d fold4(__m512d a, __m512d b, __m512d c, __m512d d) {
    __m512d ab = _mm512_add_pd(_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
    __m512d cd = _mm512_add_pd(_mm512_unpacklo_pd(c, d), _mm512_unpackhi_pd(c, d));
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    __m512d sum = _mm512_add_pd(_mm512_permutex2var_pd(ab, low, cd), _mm512_permutex2var_pd(ab, high, cd));
    return _mm256_add_pd(_mm512_castpd512_pd256(sum), _mm512_extractf64x4_pd(sum, 1));
}
#define FOLD4(r, at) _mm256_storeu_pd(at, fold4((__m512d)r[0], (__m512d)r[1], (__m512d)r[2], (__m512d)r[3]))
#else
#define FOLD4(r, at) for (int y = 0; y < 4; y++) (at)[y] = fold(r[y])
#endif

/* 2 x 4 dot products of rows of float64, for the full matrix. `fused`: the elements come from float32. */
static inline __attribute__((always_inline)) void leaves(
    const double *a, const double *b, int64_t stride, int64_t n, double *out, int fused) {
    int64_t c = 0;
    if (n < 8) {
        memset(out, 0, 8 * sizeof *out);
    } else {
        v8 r[2][4];
        for (int x = 0; x < 2; x++)
            for (int y = 0; y < 4; y++) r[x][y] = *(const v8 *)(a + x * stride) * *(const v8 *)(b + y * stride);
        for (c = 8; c + 8 <= n; c += 8)
#pragma GCC unroll 2
            for (int x = 0; x < 2; x++)
#pragma GCC unroll 4
                for (int y = 0; y < 4; y++)
                    r[x][y] = add_product(r[x][y], *(const v8 *)(a + x * stride + c), *(const v8 *)(b + y * stride + c),
                                          fused ? 4 : 8);
        FOLD4(r[0], out);
        FOLD4(r[1], out + 4);
    }
    for (; c < n; c++)
        for (int x = 0; x < 2; x++)
            for (int y = 0; y < 4; y++) out[4 * x + y] += a[x * stride + c] * b[y * stride + c];
}

static void dots(const double *a, const double *b, int64_t stride, int64_t n, double *out, int fused) {
    if (n <= 128) {
        if (fused)
            leaves(a, b, stride, n, out, 1);
        else
            leaves(a, b, stride, n, out, 0);
        return;
    }
    int64_t half = n / 2 - n / 2 % 8;
    double more[8];
    dots(a, b, stride, half, out, fused);
    dots(a + half, b + half, stride, n - half, more, fused);
    for (int at = 0; at < 8; at++) out[at] += more[at];
}

/* Rows start to stop as float64, and up to `padded` rows of zeros. */
static double *widen(const side *s, int64_t start, int64_t stop, int64_t padded) {
    double *wide = calloc(padded * s->d, sizeof *wide);
    if (!wide) return NULL;
    for (int64_t i = start; i < stop; i++)
        for (int64_t c = 0; c < s->d; c++)
            wide[(i - start) * s->d + c] = load1(s->rows + i * s->stride + c * s->kind, s->kind);
    return wide;
}

/* out[n, m] = all scores; blocks of rows that the second-level cache holds as float64. 0, or -1 without memory. */
EXPORT int all_scores(const side *l, const side *r, float *out, int64_t out_stride) {
    if (of_two_types(l, r)) return TWO_TYPES;
    int64_t d = l->d, step = (192 << 10) / (8 * d) / 4 * 4, fused = l->kind != 8;
    if (step < 4) step = 4;
    for (int64_t j = 0; j < r->n; j += step) {
        int64_t columns = r->n - j < step ? r->n - j : step;
        double *right = widen(r, j, j + columns, (columns + 3) / 4 * 4);
        if (!right) return -1;
        for (int64_t i = 0; i < l->n; i += step) {
            int64_t rows = l->n - i < step ? l->n - i : step;
            double *left = widen(l, i, i + rows, (rows + 1) / 2 * 2), sums[8];
            if (!left) {
                free(right);
                return -1;
            }
            for (int64_t y = 0; y < columns; y += 4)
                for (int64_t x = 0; x < rows; x += 2) {
                    dots(left + x * d, right + y * d, d, d, sums, fused);
                    for (int64_t a = x; a < x + 2 && a < rows; a++)
                        for (int64_t b = y; b < y + 4 && b < columns; b++)
                            out[(i + a) * out_stride + j + b] =
                                score_of(sums[4 * (a - x) + b - y], l->norms[i + a] * r->norms[j + b]);
                }
            free(left);
        }
        free(right);
    }
    return 0;
}
