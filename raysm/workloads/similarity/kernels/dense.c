/* Cosine similarity of two tiles of rows: cheap products with a proven bound, and scores as numpy computes them.
 *
 * Compiled once for each pair of an instruction set (the compiler's flags) and a kind of product: KIND 8 (int8; VNNI,
 * AMX or NEON's dot), 16 (int16) or 32 (float32). Every kind handles the columns in groups of 4 bytes, so all share one
 * loop. What a machine has of its own stands in headers: x86.h and arm.h say what a vector is and does, avx.h, amx.h and
 * neon.h multiply a panel. The bounds are proven in bounds.py; the words are those of that docstring.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef double v8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef float f8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int64_t l8 __attribute__((vector_size(64), aligned(8), may_alias));
typedef int32_t i8 __attribute__((vector_size(32), aligned(4), may_alias));

#if defined(__aarch64__)
#include "arm.h"
#else
#include "x86.h"
#endif
#if KIND != 32
typedef element e8 __attribute__((vector_size(8 * sizeof(element)), aligned(sizeof(element)), may_alias));
#endif
#define COLUMNS (LANES * VECTORS)
#define FINER 254 /* s / s': what q leaves is at most s / 2, and q' at most 127 */

/* The rows of a side less their centres, made cheap. */
typedef struct {
    const double *centres, *squares; /* c, and c.c, of each place */
    const double *radii; /* whoever is farther from its centre has no place; NULL: nobody is */
    int32_t *places;     /* of each row the centre that it has, -1 for none; NULL: all have the first */
    int32_t *cheap;      /* [n][groups], q, with rows of zeros up to a multiple of ROWS */
    int32_t *finer;      /* [n][groups], q' */
    int32_t *panels;     /* [n / COLUMNS][groups][COLUMNS], q */
    int32_t *first;      /* what a row's sums begin with */
    float *scale, *error, *length, *shift; /* s, r, X, b of each row */
    float *finer_error;  /* r' */
    double *middle;      /* b, not rounded */
} form;

typedef struct {
    const char *rows;    /* the rows themselves */
    int64_t stride;      /* bytes from one to the next */
    int64_t kind;        /* 2, 4 or 8: float16, float32 or float64 */
    int64_t n, d, start; /* shape, and the number of the first row in the matrix */
    const double *norms;
    int64_t groups;      /* of 4 bytes in a row, a multiple of GROUP_STEP */
    double slop;
    form overall;        /* about the frame's centre */
    form local;          /* about the centre of the tight cluster that a row is in; no places: there are none */
} side;

typedef struct {
    uint64_t *keys;
    const float *floors;
    int64_t k;
} best;

/* ---------------------------------------------------------------- scores, as numpy sums */

static inline v8 load8(const char *at, int64_t kind) {
    if (kind == 4) return __builtin_convertvector(*(const f8 *)at, v8);
    if (kind == 8) return *(const v8 *)at;
    return __builtin_convertvector(widen_halves(at), v8);
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

/* What functions of two sides return where a row of one would be read as the other's type. */
#define TWO_TYPES (-2)
static inline int of_two_types(const side *l, const side *r) { return l->kind != r->kind; }

static inline float score(const side *l, int64_t i, const side *r, int64_t j) {
    double sum = dot(l->rows + i * l->stride, r->rows + j * r->stride, l->d, l->kind);
    return score_of(sum, l->norms[i] * r->norms[j]);
}

EXPORT int pair_scores(const side *l, const side *r, const int64_t *i, const int64_t *j, int64_t n, float *out) {
    if (of_two_types(l, r)) return TWO_TYPES;
    for (int64_t at = 0; at < n; at++) out[at] = score(l, i[at], r, j[at]);
    return 0;
}

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

/* ---------------------------------------------------------------- a tile, made ready */

/* The float32 numbers beside a finite one. */
static inline float next_down(float f) {
    int32_t bits;
    if (f == 0) return -0x1p-149f;
    memcpy(&bits, &f, 4);
    bits += f > 0 ? -1 : 1;
    memcpy(&f, &bits, 4);
    return f;
}

static inline float next_up(float f) { return -next_down(-f); }

/* Float32 numbers not below and not above x, without a branch that no processor can foresee. */
static inline float up(double x) { return (float)(x * (1 + copysign(0x1p-23, x)) + 0x1p-126); }

static inline float down(double x) { return -up(-x); }

/* An orthogonal mix of the first m elements, m a power of two: signs, then Walsh and Hadamard's matrix. */
static void mix(double *x, const double *signs, int64_t m) {
    for (int64_t c = 0; c < m; c++) x[c] *= signs[c];
    for (int64_t half = 1; half < m; half *= 2)
        for (int64_t at = 0; at < m; at += 2 * half)
            for (int64_t c = at; c < at + half; c++) {
                double a = x[c], b = x[c + half];
                x[c] = a + b;
                x[c + half] = a - b;
            }
}

/* Eight at a time, by hand: the sums of a row would keep a compiler from it, which may not add in another order. Any
 * order will do, since none of it is a score: what rounds differently is far within the slop. */
static inline v8 all_of(double x) { return (v8){0} + x; }

static inline v8 pick(l8 mask, v8 yes, v8 no) { return (v8)((mask & (l8)yes) | (~mask & (l8)no)); }

static inline v8 absolute(v8 x) { return (v8)((l8)x & (((l8){0}) + INT64_MAX)); }

static inline v8 larger(v8 a, v8 b) { return pick(a > b, a, b); }

static inline double largest_in(v8 x) {
    double found = 0;
    for (int at = 0; at < 8; at++) found = x[at] > found ? x[at] : found;
    return found;
}

/* The nearest integers, of numbers below 2**51, and none beyond `most`: a sum with 3 * 2**51 has no room for halves. */
static inline v8 nearest(v8 x, double most) {
    v8 near = x + 0x1.8p52 - 0x1.8p52;
    near = pick(near > all_of(most), all_of(most), near);
    return pick(near < all_of(-most), all_of(-most), near);
}

/* Eight elements from `at` on, of which only `left` are there; the others are zeros. */
static inline v8 load_part(const double *at, int64_t left) {
    v8 x = {0};
    if (left >= 8) return *(const v8 *)at;
    for (int64_t c = 0; c < left; c++) x[c] = at[c];
    return x;
}

#if KIND == 32
#define store8(at, x) (*(f8 *)(at) = __builtin_convertvector(x, f8))
#else
/* By way of 32 bits, which every processor converts at once. */
#define store8(at, x) (*(e8 *)(at) = __builtin_convertvector(__builtin_convertvector(x, i8), e8))
#endif

/* Fill a form's cheap, finer, panels (zeroed, padded by the caller), first and all numbers of the rows.
 *
 * A row without a place keeps its zeros: nobody asks what its products are.
 * signs[d], the signs over sqrt(m), or NULL for no rotation; most: the largest |q|; growth: the relative error of a
 * float32 sum. 0, or 1 without memory. */
EXPORT int prepare(const side *s, form *f, const double *signs, double most, double growth) {
    int64_t d = s->d, m = 1;
    while (2 * m <= d) m *= 2;
    double *x = malloc(d * sizeof *x), slop = s->slop;
    if (!x) return 1;
    for (int64_t i = 0; i < s->n; i++) {
        int32_t place = f->places ? f->places[i] : 0;
        /* Not 0, by which `coarse_limits` would divide. */
        f->scale[i] = 1;
        if (place < 0) continue;
        const double *centre = f->centres + place * d, squared = f->squares[place];
        double inverse = s->norms[i] == 0 ? 0 : 1 / s->norms[i], shift = 0;
        const char *row = s->rows + i * s->stride;
        v8 wide_shift = {0};
        int64_t c = 0;
        for (; c + 8 <= d; c += 8) {
            v8 u = load8(row + c * s->kind, s->kind) * inverse, middle = *(const v8 *)(centre + c);
            wide_shift += middle * u;
            *(v8 *)(x + c) = u - middle;
        }
        shift = fold(wide_shift);
        for (; c < d; c++) {
            double u = load1(row + c * s->kind, s->kind) * inverse;
            shift += centre[c] * u;
            x[c] = u - centre[c];
        }
        if (signs) {
            mix(x, signs, m);
            if (m < d) mix(x + d - m, signs + d - m, m);
        }
        v8 largest_of_8 = {0}, sums = {0}, lengths = {0}, rests = {0}, finer_rests = {0};
        for (c = 0; c < d; c += 8) largest_of_8 = larger(absolute(load_part(x + c, d - c)), largest_of_8);
        double largest = largest_in(largest_of_8);
        float scale = KIND == 32 ? 1 : up(fmax(largest / most, 0x1p-44));
        double per_unit = 1 / (double)scale;
        element *q = (element *)(f->cheap + i * s->groups);
        for (c = 0; c < d; c += 8) {
            v8 those = load_part(x + c, d - c);
#if KIND == 32
            /* A float so small that a product may be denormal, which is slow, is zero, and part of the error. */
            v8 single = __builtin_convertvector(__builtin_convertvector(those, f8), v8);
            v8 near = pick(absolute(those) < all_of(0x1p-60), all_of(0), single);
#else
            v8 near = nearest(those * per_unit, most);
#endif
            sums += near;
            v8 off = those - near * (double)scale;
            lengths += those * those;
            rests += off * off;
            element kept[8];
            store8(kept, near);
            memcpy(q + c, kept, (d - c < 8 ? d - c : 8) * sizeof *q);
#if KIND == 8
            v8 more = nearest(off * (per_unit * FINER), 127);
            int8_t also[8];
            store8(also, more);
            memcpy((int8_t *)(f->finer + i * s->groups) + c, also, d - c < 8 ? d - c : 8);
            off -= more * ((double)scale / FINER);
            finer_rests += off * off;
#endif
        }
        if (f->radii && fold(lengths) > f->radii[place] * f->radii[place]) {
            f->places[i] = -1;
            continue;
        }
        double length = sqrt(fold(lengths)) * (1 + 0x1p-30) + slop, rest = sqrt(fold(rests)) * (1 + 0x1p-30) + slop;
        f->length[i] = up(length + rest);
        f->error[i] = up(rest + growth * (length + rest));
        f->finer_error[i] = KIND == 8 ? up(sqrt(fold(finer_rests)) * (1 + 0x1p-30) + slop) : f->error[i];
        f->middle[i] = shift - squared;
        f->shift[i] = up(f->middle[i] + slop);
        f->scale[i] = scale;
        f->first[i] = FIRST_OF(fold(sums));
        const int32_t *groups = f->cheap + i * s->groups;
        int32_t *panel = f->panels + i / COLUMNS * s->groups * COLUMNS + i % COLUMNS;
        for (int64_t g = 0; g < s->groups; g++) panel[g * COLUMNS] = groups[g] ^ PANEL_FLIP;
    }
    free(x);
    return 0;
}

EXPORT int64_t pack_rows(void) { return ROWS; }
EXPORT int64_t panel_columns(void) { return COLUMNS; }
EXPORT int64_t group_step(void) { return GROUP_STEP; }

/* ---------------------------------------------------------------- products, and who reaches the limits */

/* What the products of ROWS rows with one panel are compared with. */
typedef struct {
    const float *scale, *error, *length, *shift, *limit; /* of ROWS rows */
    const int32_t *first;
} row_part;

typedef struct {
    const float *scale, *error, *length, *shift, *limit; /* of COLUMNS columns */
} column_part;

#if KIND == 32
typedef float lane;
#define BEGIN_LOOK vf_set1(0)
#define BEGIN(r) vf_set1(0)
#define READ(panel, v) vf_load((const float *)(panel) + v * LANES)
#define SPREAD(g, r) vf_set1(((const float *)line_##r)[g])
#define PRODUCT(sum, v) (sum)
#else
typedef int32_t lane;
#define BEGIN_LOOK vi_set1(0)
#define BEGIN(r) vi_set1(row.first[r])
#define READ(panel, v) vi_load((panel) + v * LANES)
#define SPREAD(g, r) vi_set1(line_##r[g])
#define PRODUCT(sum, v) vf_mul(vf_of_int(sum), vf_load(column.scale + v * LANES))
#endif

/* s_r s_c P + r_r X_c + X_r r_c + b_c, at most; product: s_c P of vector v. */
static inline __attribute__((always_inline)) vf upper(vf product, row_part row, int r, column_part column, int v) {
    vf most = vf_load(column.shift + v * LANES);
    most = vf_fma(vf_set1(row.length[r]), vf_load(column.error + v * LANES), most);
    most = vf_fma(vf_set1(row.error[r]), vf_load(column.length + v * LANES), most);
    return vf_fma(vf_set1(row.scale[r]), product, most);
}

/* min(limit_r, limit_c - b_r): what it has to reach. */
static inline __attribute__((always_inline)) vf needed(row_part row, int r, column_part column, int v) {
    vf other = vf_sub(vf_load(column.limit + v * LANES), vf_set1(row.shift[r]));
    return vf_min(vf_set1(row.limit[r]), other);
}

/* Return who reaches it, as bits of a whole row. */
static inline __attribute__((always_inline)) uint64_t reaching(vf product, row_part row, int r, column_part column,
                                                               int v) {
    return vf_reaches(upper(product, row, r, column, v), needed(row, r, column, v)) << (v * LANES);
}

#if defined(__AMX_INT8__)
#include "amx.h"
#else
#define begin_products()
#define end_products()
#if defined(__aarch64__)
#include "neon.h"
#else
#include "avx.h"
#endif
#endif

/* Copies of a side's numbers, padded, and what its rows' products are compared with. */
typedef struct {
    float *scale, *error, *length, *shift;
    float *higher;        /* shift as a column has it: with what the arithmetic may be wrong by */
    float *limit, *other; /* as a row and as a column */
    int32_t *first;
    void *memory;
} numbers;

/* `more`, of each place: what is added for the arithmetic; NULL adds nothing. */
static int copy_numbers(numbers *out, const form *s, int64_t n, const double *more) {
    int64_t padded = n + ROWS + COLUMNS;
    float *at = out->memory = calloc(8 * padded, sizeof(float));
    if (!at) return 1;
    float **fields[] = {&out->scale, &out->error, &out->length, &out->shift, &out->higher, &out->limit, &out->other};
    for (int f = 0; f < 7; f++, at += padded) *fields[f] = at;
    out->first = (int32_t *)at;
    memcpy(out->scale, s->scale, n * sizeof(float));
    memcpy(out->error, s->error, n * sizeof(float));
    memcpy(out->length, s->length, n * sizeof(float));
    memcpy(out->shift, s->shift, n * sizeof(float));
    memcpy(out->first, s->first, n * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++) {
        int32_t place = s->places ? s->places[i] : 0;
        out->higher[i] = up((double)s->shift[i] + (more && place >= 0 ? more[place] : 0));
    }
    for (int64_t i = 0; i < padded; i++) out->limit[i] = out->other[i] = INFINITY;
    return 0;
}

static row_part rows_of(const numbers *n, int64_t i) {
    return (row_part){n->scale + i, n->error + i, n->length + i, n->shift + i, n->limit + i, n->first + i};
}

static column_part columns_of(const numbers *n, int64_t j) {
    return (column_part){n->scale + j, n->error + j, n->length + j, n->higher + j, n->other + j};
}

/* The largest |x| of the rows that have a place. */
static double largest_of(const float *x, const form *f, int64_t n, int32_t place) {
    double found = 0;
    /* Not fmax: of a loop of it, GCC 12 for aarch64 fails with an internal error. */
    for (int64_t i = 0; i < n; i++)
        if (!f->places || f->places[i] == place) found = fabs(x[i]) > found ? fabs(x[i]) : found;
    return found;
}

/* What the float32 arithmetic of `compare` may be wrong by, for two rows of one place. Of all places together it would
 * be the loosest cluster's, beside which the scores of a tight one do not differ. */
static double slack(const form *l, int64_t n, const form *r, int64_t m, int32_t place) {
    double length = largest_of(l->length, l, n, place) * largest_of(r->length, r, m, place);
    double shift = largest_of(l->shift, l, n, place) + largest_of(r->shift, r, m, place);
    return 0x1p-21 * (4 * length + shift) + 0x1p-80;
}

/* Rows whose cheap products stay in the second-level cache while the panels pass by. */
static int64_t chunk_rows(const side *s) {
    int64_t rows = (256 << 10) / (4 * s->groups) / ROWS * ROWS;
    return rows < 4 * ROWS ? 4 * ROWS : rows;
}

static inline uint64_t low_bits(int64_t n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

/* Take from reached[r] what is no pair: beyond the last row or column, a row and itself, and if asked all before it. */
static inline uint64_t only_pairs(uint64_t *reached, const side *l, const side *r, int64_t i, int64_t j, int same,
                                  int upper) {
    uint64_t any = 0;
    for (int at = 0; at < ROWS; at++) {
        if (r->n - j < COLUMNS) reached[at] &= low_bits(r->n - j);
        if (i + at >= l->n) reached[at] = 0;
        int64_t own = l->start + i + at - (r->start + j);
        if (same && own >= 0 && own < COLUMNS) reached[at] &= ~((uint64_t)1 << own);
        if (upper && own >= 0) reached[at] &= own + 1 >= COLUMNS ? 0 : ~low_bits(own + 1);
        any |= reached[at];
    }
    return any;
}

/* ---------------------------------------------------------------- the best of each row */

static inline uint64_t key_of(float score, int64_t index) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    uint32_t falling = bits >> 31 ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)falling << 32 | (uint32_t)index;
}

static inline float key_score(uint64_t key) {
    uint32_t falling = (uint32_t)(key >> 32), bits = falling >> 31 ? falling : ~falling & 0x7fffffffu;
    float found;
    memcpy(&found, &bits, 4);
    return found;
}

static inline int offer(best *b, int64_t i, uint64_t key) {
    uint64_t *keys = b->keys + i * b->k;
    if (key >= keys[b->k - 1] || b->floors[i] == INFINITY) return 0;
    int64_t low = 0, high = b->k - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(keys + low + 1, keys + low, (b->k - 1 - low) * sizeof *keys);
    keys[low] = key;
    return 1;
}

/* A second, closer look at one pair, in float64: y_i . y_j within *off. */
static inline double look(const form *l, int64_t i, const form *r, int64_t j, int64_t groups, double *off) {
    const int32_t *a = l->cheap + i * groups, *b = r->cheap + j * groups;
    double length_i = l->length[i], length_j = r->length[j], error_i = l->finer_error[i], error_j = r->finer_error[j];
#if KIND == 8
    double whole, rest;
    closer(a, b, l->finer + i * groups, r->finer + j * groups, groups, l->first[i], r->first[j], &whole, &rest);
    double found = (double)l->scale[i] * r->scale[j] * (whole + rest * (1.0 / FINER));
    *off = ((double)l->error[i] + error_i) * ((double)r->error[j] + error_j) + (length_i + error_i) * error_j +
           error_i * length_j;
#else
    int64_t g = 0;
    sum_t sum = BEGIN_LOOK;
    for (; g + LANES <= groups; g += LANES) sum = accumulate(sum, READ(b + g, 0), READ(a + g, 0));
    element rest_a[64] = {0}, rest_b[64] = {0};
    memcpy(rest_a, a + g, (groups - g) * 4);
    memcpy(rest_b, b + g, (groups - g) * 4);
    sum = accumulate(sum, READ((const int32_t *)rest_b, 0), READ((const int32_t *)rest_a, 0));
    double found = 0;
    for (int at = 0; at < LANES; at++) found += ((const lane *)&sum)[at];
    found *= (double)l->scale[i] * r->scale[j];
    *off = error_i * length_j + length_i * error_j;
#endif
    return found;
}

/* Who may be among a row's best, not scored yet. */
typedef struct {
    float most; /* the score is at most that */
    uint32_t index;
} candidate;

/* What is asked of each pair of a row: small, for it is read at random. */
typedef struct {
    uint64_t bound; /* a key that k rows reach, among them some that wait, or the floor's; who has a larger is out */
    int64_t count;  /* of those that wait */
} state;

/* The rows of one side while they are searched. */
typedef struct {
    const side *s;
    best *b; /* NULL: they are not served */
    numbers overall, local;
    state *states;
    uint64_t *reached;  /* reached[n, k], rising: keys, of those that wait the last that they may have */
    candidate *waiting; /* waiting[n, room] */
    int64_t room;
    void *memory;
} searched;

/* Pairs that passed the filter. They are looked at together: the processor then works on several at a time. */
#define HITS 256
typedef struct {
    uint32_t i, j;
    float low, high;
} hit;

typedef struct {
    searched *rows, *columns; /* one and the same where a tile is compared with itself */
    int same, diagonal, local; /* local: both sides have tight clusters */
    uint64_t *alike;           /* of each place, which columns of the panel have it */
    int64_t scored;
    int64_t count; /* of hits */
    hit hits[HITS + ROWS * COLUMNS];
} search;

static inline void lower_bound(searched *p, int64_t i) {
    uint64_t last = p->reached[(i + 1) * p->b->k - 1];
    if (last < p->states[i].bound) p->states[i].bound = last;
}

/* Take what is known of row i from its keys and its floor; nobody waits. */
static void begin_row(searched *p, int64_t i) {
    memcpy(p->reached + i * p->b->k, p->b->keys + i * p->b->k, p->b->k * sizeof *p->reached);
    /* Whoever ties with the floor may have a lower index than those that reach it. */
    p->states[i] = (state){key_of(p->b->floors[i], UINT32_MAX), 0};
    lower_bound(p, i);
}

static int begin_search(searched *p, const side *s, best *b) {
    p->s = s, p->b = b;
    if (!b) return 0;
    p->room = 4 * b->k < 16 ? 16 : 4 * b->k > 64 ? 64 : 4 * b->k;
    p->memory = malloc(s->n * (b->k * sizeof *p->reached + p->room * sizeof *p->waiting + sizeof *p->states));
    if (!p->memory) return 1;
    p->waiting = p->memory;
    p->states = (state *)(p->waiting + s->n * p->room);
    p->reached = (uint64_t *)(p->states + s->n);
    for (int64_t i = 0; i < s->n; i++) begin_row(p, i);
    return 0;
}

/* Copy the numbers of both sides' forms, with what the arithmetic may be wrong by in those of the columns. */
static int begin_form(numbers *rows, numbers *columns, const side *l, const side *r, int64_t places, int local) {
    const form *a = local ? &l->local : &l->overall, *b = local ? &r->local : &r->overall;
    double *more = malloc(places * sizeof *more);
    if (!more) return 1;
    for (int64_t place = 0; place < places; place++) more[place] = slack(a, l->n, b, r->n, (int32_t)place);
    int failed = copy_numbers(rows, a, l->n, more) || (columns != rows && copy_numbers(columns, b, r->n, more));
    free(more);
    return failed;
}

static void end_search(searched *p) {
    free(p->overall.memory);
    free(p->local.memory);
    free(p->memory);
}

/* The least score in float64 that may be rounded to one with which an index of at least `from` enters.
 *
 * Whoever comes later and only ties with the last of the k does not enter, and no score is above 1. */
static inline double least(const state *now, int64_t from) {
    float least = key_score(now->bound);
    if (least == INFINITY || least == -INFINITY) return least;
    if ((int64_t)(uint32_t)now->bound > from) return ((double)least + next_down(least)) / 2;
    return least >= 1 ? INFINITY : ((double)least + next_up(least)) / 2;
}

static inline void limit_row(search *f, int64_t i, int64_t from) {
    searched *p = f->rows;
    double score = least(p->states + i, from);
    p->overall.limit[i] = down(score - p->s->overall.squares[0] - p->overall.shift[i]);
    int32_t place = f->local ? p->s->local.places[i] : -1;
    if (place >= 0) p->local.limit[i] = down(score - p->s->local.squares[place] - p->local.shift[i]);
}

static inline void limit_column(search *f, int64_t j, int64_t from) {
    searched *p = f->columns;
    if (!p->b) return;
    double score = least(p->states + j, from);
    p->overall.other[j] = down(score - p->s->overall.squares[0]);
    int32_t place = f->local ? p->s->local.places[j] : -1;
    if (place >= 0) p->local.other[j] = down(score - p->s->local.squares[place]);
}

/* The first key that a candidate may have. */
static inline uint64_t first_key(const candidate *one, const side *others) {
    return key_of(one->most, others->start + one->index);
}

/* Score those of row i that may still enter, and forget them all. */
static void score_waiting(search *f, searched *p, const side *others, int64_t i) {
    const candidate *waiting = p->waiting + i * p->room;
    for (int64_t at = 0; at < p->states[i].count; at++) {
        if (first_key(waiting + at, others) > p->states[i].bound) continue;
        if (at + 1 < p->states[i].count) {
            const char *row = others->rows + waiting[at + 1].index * others->stride;
            for (int64_t c = 0; c < others->d * others->kind; c += 64) __builtin_prefetch(row + c);
        }
        f->scored++;
        offer(p->b, i, key_of(score(p->s, i, others, waiting[at].index), others->start + waiting[at].index));
    }
    begin_row(p, i);
}

/* Note that row i reaches a key, and return whether its limit may rise. */
static inline int note_reached(searched *p, int64_t i, uint64_t key) {
    uint64_t *reached = p->reached + i * p->b->k;
    int64_t at = p->b->k - 1;
    if (key >= reached[at]) return 0;
    for (; at > 0 && reached[at - 1] > key; at--) reached[at] = reached[at - 1];
    reached[at] = key;
    lower_bound(p, i);
    return 1;
}

/* Note that the score of row i with `index` of the others is from low to high; return whether its limit may rise. */
static inline int wait(search *f, searched *p, const side *others, int64_t i, int64_t index, float low, float high) {
    state *now = p->states + i;
    candidate *waiting = p->waiting + i * p->room, one = {high, (uint32_t)index};
    if (first_key(&one, others) >= now->bound) return 0;
    waiting[now->count++] = one;
    int rises = note_reached(p, i, key_of(low, others->start + index));
    if (now->count < p->room) return rises;
    int64_t kept = 0;
    for (int64_t old = 0; old < p->room; old++) {
        waiting[kept] = waiting[old];
        /* The bound may be the key of this very one. */
        kept += first_key(waiting + kept, others) <= now->bound;
    }
    now->count = kept;
    if (2 * kept > p->room) score_waiting(f, p, others, i);
    return 1;
}

/* The tight cluster that two rows are both in, or -1. */
static inline int32_t place_of_both(const search *f, int64_t i, int64_t j) {
    if (!f->local) return -1;
    int32_t place = f->rows->s->local.places[i];
    return place == f->columns->s->local.places[j] ? place : -1;
}

/* Find what the score of a pair is at least and at most: rounded to float32 as it is, since rounding is monotone. By
 * more than that, all scores of a tight cluster would be one. */
static inline void look_at(const search *f, hit *h) {
    const side *l = f->rows->s, *r = f->columns->s;
    int32_t place = place_of_both(f, h->i, h->j);
    const form *a = place < 0 ? &l->overall : &l->local, *b = place < 0 ? &r->overall : &r->local;
    double off, middle = look(a, h->i, b, h->j, l->groups, &off);
    middle += a->middle[h->i] + b->middle[h->j] + a->squares[place < 0 ? 0 : place];
    off += l->slop + r->slop;
    /* No negative zero, which has a key of its own. */
    h->low = (float)(middle - off) + 0.0f, h->high = (float)(middle + off) + 0.0f;
}

/* Look at the hits. Those to come have rows from next_row and columns from next_column on, or were looked at. */
static void take_hits(search *f, int64_t next_row, int64_t next_column) {
    const side *l = f->rows->s, *r = f->columns->s;
    for (int64_t at = 0; at < f->count; at++) look_at(f, f->hits + at);
    for (int64_t at = 0; at < f->count; at++) {
        hit *h = f->hits + at;
        /* Where a tile is compared with itself, a row's limit changes on both sides. */
        if (wait(f, f->rows, r, h->i, h->j, h->low, h->high)) {
            limit_row(f, h->i, next_column);
            if (f->diagonal) limit_column(f, h->i, next_column);
        }
        if (f->columns->b && wait(f, f->columns, l, h->j, h->i, h->low, h->high)) {
            limit_column(f, h->j, next_row);
            if (f->diagonal) limit_row(f, h->j, next_row);
        }
    }
    f->count = 0;
}

/* Set which columns of a panel are in each tight cluster, or with 0 in none. */
static void mark_places(search *f, int64_t j, int there) {
    const side *r = f->columns->s;
    if (!f->local) return;
    for (int64_t c = j; c < j + COLUMNS && c < r->n; c++) {
        int32_t place = r->local.places[c];
        if (place >= 0) f->alike[place] = there ? f->alike[place] | (uint64_t)1 << (c - j) : 0;
    }
}

/* As many pairs of one product, looked at one by one, take about the time of another product. */
#define CROWD (ROWS * COLUMNS / 32)

/* Take from reached[r] those of its own cluster whose product about that cluster's centre does not reach. */
static inline void only_near(search *f, int64_t i, int64_t j, uint64_t *reached) {
    const side *l = f->rows->s, *r = f->columns->s;
    uint64_t alike[ROWS], near[ROWS] = {0};
    int crowd = 0;
    for (int at = 0; at < ROWS; at++) {
        int32_t place = i + at < l->n ? l->local.places[i + at] : -1;
        alike[at] = place < 0 ? 0 : f->alike[place];
        crowd += __builtin_popcountll(reached[at] & alike[at]);
    }
    if (crowd < CROWD) return;
    compare(l->local.cheap + i * l->groups, r->local.panels + j * r->groups, l->groups, rows_of(&f->rows->local, i),
            columns_of(&f->columns->local, j), near);
    for (int at = 0; at < ROWS; at++) reached[at] &= ~alike[at] | near[at];
}

static void search_panel(search *f, int64_t i0, int64_t i1, int64_t j) {
    const side *l = f->rows->s, *r = f->columns->s;
    int64_t next_column = r->start + j + COLUMNS, i = i0;
    for (int64_t c = j; c < j + COLUMNS && c < r->n; c++) limit_column(f, c, l->start + i0);
    column_part column = columns_of(&f->columns->overall, j);
    const int32_t *panel = r->overall.panels + j * r->groups;
    mark_places(f, j, 1);
    for (; i < i1; i += ROWS) {
        if (f->diagonal && i >= j + COLUMNS) break;
        uint64_t reached[ROWS];
        row_part row = rows_of(&f->rows->overall, i);
        if (!compare(l->overall.cheap + i * l->groups, panel, l->groups, row, column, reached)) continue;
        if (!only_pairs(reached, l, r, i, j, f->same, f->diagonal)) continue;
        if (f->local) only_near(f, i, j, reached);
        for (int at = 0; at < ROWS; at++)
            for (uint64_t bits = reached[at]; bits; bits &= bits - 1) {
                f->hits[f->count].i = (uint32_t)(i + at);
                f->hits[f->count++].j = (uint32_t)(j + __builtin_ctzll(bits));
            }
        if (f->count >= HITS) take_hits(f, l->start + i + ROWS, next_column);
    }
    take_hits(f, l->start + i, next_column);
    mark_places(f, j, 0);
}

/* See Engine.topk; `diagonal`: both sides, and both bests, are the same; places: of their tight clusters. Return the
 * pairs scored, -1 without memory. */
EXPORT int64_t topk(const side *l, const side *r, best *bl, best *br, int64_t places, int same, int diagonal) {
    if (of_two_types(l, r)) return TWO_TYPES;
    searched rows = {0}, columns = {0};
    search f;
    f.rows = &rows, f.columns = diagonal ? &rows : &columns, f.same = same, f.diagonal = diagonal;
    f.scored = f.count = 0, f.local = places > 0, f.alike = calloc(places + 1, sizeof *f.alike);
    int failed = !f.alike || begin_form(&rows.overall, &f.columns->overall, l, r, 1, 0);
    if (f.local) failed = failed || begin_form(&rows.local, &f.columns->local, l, r, places, 1);
    failed = failed || begin_search(&rows, l, bl) || (!diagonal && begin_search(&columns, r, br));
    int64_t step = chunk_rows(l);
    begin_products();
    for (int64_t i0 = 0; i0 < l->n && !failed; i0 += step) {
        int64_t i1 = i0 + step < l->n ? i0 + step : l->n;
        int64_t first = diagonal ? i0 / COLUMNS * COLUMNS : 0;
        for (int64_t i = i0; i < i1; i++) limit_row(&f, i, r->start + first);
        for (int64_t j = first; j < r->n; j += COLUMNS) search_panel(&f, i0, i1, j);
    }
    end_products();
    for (int64_t i = 0; i < l->n && !failed; i++) score_waiting(&f, &rows, r, i);
    for (int64_t j = 0; br && !diagonal && j < r->n && !failed; j++) score_waiting(&f, &columns, l, j);
    end_search(&rows);
    end_search(&columns);
    free(f.alike);
    return failed ? -1 : f.scored;
}

/* ---------------------------------------------------------------- pairs above a threshold */

typedef struct {
    int64_t count, room;
    uint32_t *i, *j; /* rows of the two tiles */
    float *scores;
} found_pairs;

static int keep(found_pairs *p, int64_t i, int64_t j, float score) {
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 4096;
        uint32_t *more_i = realloc(p->i, room * sizeof *p->i);
        if (more_i) p->i = more_i;
        uint32_t *more_j = realloc(p->j, room * sizeof *p->j);
        if (more_j) p->j = more_j;
        float *more_scores = realloc(p->scores, room * sizeof *p->scores);
        if (more_scores) p->scores = more_scores;
        if (!more_i || !more_j || !more_scores) return 1;
        p->room = room;
    }
    p->i[p->count] = (uint32_t)i, p->j[p->count] = (uint32_t)j, p->scores[p->count++] = score;
    return 0;
}

EXPORT void free_pairs(found_pairs *p) {
    free(p->i);
    free(p->j);
    free(p->scores);
    memset(p, 0, sizeof *p);
}

static int pairs_of_panel(found_pairs *p, const side *l, const side *r, numbers *rows, numbers *columns, int64_t i0,
                          int64_t i1, int64_t j, float threshold, int same) {
    column_part column = columns_of(columns, j);
    for (int64_t i = i0; i < i1; i += ROWS) {
        if (same && l->start + i >= r->start + j + COLUMNS) break;
        uint64_t reached[ROWS];
        const int32_t *lines = l->overall.cheap + i * l->groups, *panel = r->overall.panels + j * r->groups;
        if (!compare(lines, panel, l->groups, rows_of(rows, i), column, reached)) continue;
        if (!only_pairs(reached, l, r, i, j, same, same)) continue;
        for (int at = 0; at < ROWS; at++)
            for (uint64_t bits = reached[at]; bits; bits &= bits - 1) {
                int64_t c = j + __builtin_ctzll(bits);
                float found = score(l, i + at, r, c);
                if (found >= threshold && keep(p, i + at, c, found)) return 1;
            }
    }
    return 0;
}

/* See Engine.pairs; each row's pairs come in rising order. 0, or -1 without memory. Call free_pairs after either. */
EXPORT int pairs(const side *l, const side *r, float threshold, int same, found_pairs *p) {
    numbers rows = {0}, columns = {0};
    memset(p, 0, sizeof *p);
    if (of_two_types(l, r)) return TWO_TYPES;
    int failed = begin_form(&rows, &columns, l, r, 1, 0);
    double limit = ((double)threshold + nextafterf(threshold, -INFINITY)) / 2 - l->overall.squares[0];
    for (int64_t i = 0; i < l->n && !failed; i++) rows.limit[i] = down(limit - rows.shift[i]);
    int64_t step = chunk_rows(l);
    begin_products();
    for (int64_t i0 = 0; i0 < l->n && !failed; i0 += step) {
        int64_t i1 = i0 + step < l->n ? i0 + step : l->n;
        for (int64_t j = 0; j < r->n && !failed; j += COLUMNS)
            failed = pairs_of_panel(p, l, r, &rows, &columns, i0, i1, j, threshold, same);
    }
    end_products();
    free(rows.memory);
    free(columns.memory);
    return failed ? -1 : 0;
}
