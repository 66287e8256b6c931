/* Scores of pairs by the definition, summed in numpy's order; part of dense.c. */
#pragma once

#include "sides.h"

static inline v8 load8(const char *at, int64_t kind) {
    if (kind == 4) return widen8(*(const f8 *)at);
    if (kind == 8) return *(const v8 *)at;
    return widen8(widen_halves(at));
}

static inline double load1(const char *at, int64_t kind) {
    if (kind == 4) return *(const float *)at;
    if (kind == 8) return *(const double *)at;
    return widen_half(at);
}

/* A product of float32 numbers is exact in float64, so a fused multiply-add rounds as numpy's two steps do. */
static inline v8 add_product(v8 sum, v8 a, v8 b, int64_t kind) {
    if (kind == 8) return sum + a * b;
#if defined(__AVX512F__)
    return (v8)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)sum);
#else
    return sum + a * b;
#endif
}

static inline double fold(v8 r) {
    return ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
}

static inline __attribute__((always_inline)) double leaf(const char *a, const char *b, int64_t n, int64_t kind) {
    if (n < 8) {
        double sum = 0;
        for (int64_t c = 0; c < n; c++) sum += load1(a + c * kind, kind) * load1(b + c * kind, kind);
        return sum;
    }
    v8 r = load8(a, kind) * load8(b, kind);
    int64_t c = 8;
    for (; c + 8 <= n; c += 8) r = add_product(r, load8(a + c * kind, kind), load8(b + c * kind, kind), kind);
    double sum = fold(r);
    for (; c < n; c++) sum += load1(a + c * kind, kind) * load1(b + c * kind, kind);
    return sum;
}

/* numpy's pairwise summation: blocks of at most 128, halves that are multiples of 8. */
#define DOT(kind)                                                                   \
    static double dot_##kind(const char *a, const char *b, int64_t n) {             \
        if (n <= 128) return leaf(a, b, n, kind);                                   \
        int64_t half = n / 2 - n / 2 % 8;                                           \
        double first = dot_##kind(a, b, half);                                      \
        return first + dot_##kind(a + half * kind, b + half * kind, n - half);      \
    }
DOT(2)
DOT(4)
DOT(8)

static inline double dot(const char *a, const char *b, int64_t n, int64_t kind) {
    return kind == 4 ? dot_4(a, b, n) : kind == 8 ? dot_8(a, b, n) : dot_2(a, b, n);
}

static inline float score_of(double sum, double norms) {
    return norms == 0 ? 0.0f : (float)(sum / norms) + 0.0f;
}

static inline float score(const side *l, int64_t i, const side *r, int64_t j) {
    double sum = dot(l->rows + i * l->stride, r->rows + j * r->stride, l->d, l->kind);
    return score_of(sum, l->norms[i] * r->norms[j]);
}

EXPORT int pair_scores(const side *l, const side *r, const int64_t *i, const int64_t *j, int64_t n, float *out) {
    if (of_two_types(l, r)) return TWO_TYPES;
    for (int64_t at = 0; at < n; at++) out[at] = score(l, i[at], r, j[at]);
    return 0;
}
