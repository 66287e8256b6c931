/* The cheap forms of a tile's rows less their centres, and their errors; part of dense.c. */
#pragma once

#include "rounding.h"
#include "scores.h"

/* Vectors of eight by hand: a compiler may not reorder the sums of a row, and so would not vectorize them. Any order
 * will do here, because no sum is a score: differences in rounding are far within the slop. */
static inline v8 all_of(double x) { return (v8){0} + x; }

static inline v8 pick(l8 mask, v8 yes, v8 no) { return (v8)((mask & (l8)yes) | (~mask & (l8)no)); }

static inline v8 absolute(v8 x) { return (v8)((l8)x & (((l8){0}) + INT64_MAX)); }

#if defined(__AVX512F__)
static inline v8 larger(v8 a, v8 b) { return (v8)_mm512_max_pd((__m512d)a, (__m512d)b); }
#else
static inline v8 larger(v8 a, v8 b) { return pick(a > b, a, b); }
#endif

static inline double largest_in(v8 x) {
    double found = 0;
    for (int at = 0; at < 8; at++) found = x[at] > found ? x[at] : found;
    return found;
}

/* Round numbers below 2**51 to the nearest integers: a sum with 3 * 2**51 has no bits for fractions. */
static inline v8 nearest(v8 x) { return x + 0x1.8p52 - 0x1.8p52; }

/* Copy the first `left` of eight elements, at most all, of `bytes` bytes each. */
static inline void put_part(void *at, const void *eight, int64_t left, size_t bytes) {
    if (left >= 8)
        memcpy(at, eight, 8 * bytes);
    else
        memcpy(at, eight, left * bytes);
}

#if KIND == 32
#define store8(at, x) (*(f8 *)(at) = __builtin_convertvector(x, f8))
#else
/* Convert by way of 32-bit integers, for which every processor has an instruction. */
#define store8(at, x) (*(e8 *)(at) = __builtin_convertvector(truncate8(x), e8))
#endif

/* Reorder eight numbers: the arguments are the source of each element. */
#if defined(__clang__)
#define ordered(x, ...) __builtin_shufflevector(x, x, __VA_ARGS__)
#else
#define ordered(x, ...) __builtin_shuffle(x, (l8){__VA_ARGS__})
#endif

/* Sums and differences of neighbors, of pairs and of fours. */
static inline v8 mix_eight(v8 x) {
    x = ordered(x, 1, 0, 3, 2, 5, 4, 7, 6) + x * (v8){1, -1, 1, -1, 1, -1, 1, -1};
    x = ordered(x, 2, 3, 0, 1, 6, 7, 4, 5) + x * (v8){1, 1, -1, -1, 1, 1, -1, -1};
    return ordered(x, 4, 5, 6, 7, 0, 1, 2, 3) + x * (v8){1, 1, 1, 1, -1, -1, -1, -1};
}

/* An orthogonal mix of the first m elements, m a power of two: signs, then Walsh and Hadamard's matrix. */
static void mix_first(double *x, const double *signs, int64_t m) {
    if (m < 8) {
        for (int64_t c = 0; c < m; c++) x[c] *= signs[c];
        for (int64_t half = 1; half < m; half *= 2)
            for (int64_t c = 0; c < m; c++) {
                double a = x[c], b = x[c ^ half];
                if (!(c & half)) x[c] = a + b, x[c ^ half] = a - b;
            }
        return;
    }
    for (int64_t c = 0; c < m; c += 8) *(v8 *)(x + c) = mix_eight(*(const v8 *)(x + c) * *(const v8 *)(signs + c));
    /* Two halves at once, so that each element is read and written half as often. */
    int64_t half = 8;
    for (; 4 * half <= m; half *= 4)
        for (int64_t at = 0; at < m; at += 4 * half)
            for (int64_t c = at; c < at + half; c += 8) {
                v8 *first = (v8 *)(x + c), *second = (v8 *)(x + c + half);
                v8 *third = (v8 *)(x + c + 2 * half), *fourth = (v8 *)(x + c + 3 * half);
                v8 a = *first + *second, b = *first - *second, e = *third + *fourth, f = *third - *fourth;
                *first = a + e, *second = b + f, *third = a - e, *fourth = b - f;
            }
    for (int64_t c = 0; half < m && c < half; c += 8) {
        v8 a = *(v8 *)(x + c), b = *(v8 *)(x + c + half);
        *(v8 *)(x + c) = a + b, *(v8 *)(x + c + half) = a - b;
    }
}

/* Mix all d elements, by two transforms that overlap. */
static void mix(double *x, const double *signs, int64_t d) {
    int64_t m = 1;
    while (2 * m <= d) m *= 2;
    mix_first(x, signs, m);
    if (m < d) mix_first(x + d - m, signs + d - m, m);
}

/* Parameters of all rows of a call. */
typedef struct {
    double most;   /* the largest |q| */
    double growth; /* the relative error of a float32 sum */
} recipe;

/* One row while it is made cheap: its destination, its scales, and sums of the kept values and the errors so far. */
typedef struct {
    int32_t *q;
    int8_t *finer;
    double scale, per_unit, finer_scale, per_finer_unit;
    v8 sums, lengths, rests, finer_rests;
} cheap_row;

/* Make eight elements from c on cheap; `left` of them exist, the others are zeros. */
static inline __attribute__((always_inline)) void keep_eight(cheap_row *to, v8 those, int64_t c, int64_t left) {
#if KIND == 32
    /* Replace tiny floats, whose products may be denormal and slow, by zeros; the error includes them. */
    v8 single = __builtin_convertvector(__builtin_convertvector(those, f8), v8);
    v8 near = pick(absolute(those) < all_of(0x1p-60), all_of(0), single);
#else
    /* No |q| exceeds `most`, because the scale was rounded up by more than this rounding. */
    v8 near = nearest(those * to->per_unit);
#endif
    to->sums += near;
    v8 off = those - near * to->scale;
    to->lengths += those * those;
    to->rests += off * off;
    element kept[8];
    store8(kept, near);
    put_part(to->q + GROUP_AT(c * (int64_t)sizeof *kept / 4), kept, left, sizeof *kept);
#if KIND == 8
    /* At most 127, because at most half of the scale is left. */
    v8 more = nearest(off * to->per_finer_unit);
    int8_t also[8];
    store8(also, more);
    put_part(to->finer + c, also, left, sizeof *also);
    off -= more * to->finer_scale;
    to->finer_rests += off * off;
#endif
}

/* d rounded up to a multiple of eight: rows and centres are padded with zeros to this length. */
static inline int64_t padded(int64_t d) { return (d + 7) / 8 * 8; }

/* Write the cheap form of row i, and its error. x is the row over its norm; x and the centre are mixed alike. y
 * receives x less the centre. */
static void cheapen(const side *s, form *f, const recipe *how, int64_t i, const double *x, const double *centre,
                    double *y) {
    int64_t d = s->d, c = 0, place = f->places ? f->places[i] : 0;
    double slop = s->slop;
    v8 largest_of_8 = {0}, shifts = {0};
    for (; c < d; c += 8) {
        v8 those = *(const v8 *)(x + c), middle = *(const v8 *)(centre + c), less = those - middle;
        shifts += middle * those;
        largest_of_8 = larger(absolute(less), largest_of_8);
        *(v8 *)(y + c) = less;
    }
    float scale = KIND == 32 ? 1 : up(fmax(largest_in(largest_of_8) / how->most, 0x1p-44));
    double per_unit = 1 / (double)scale;
    int32_t *q = f->cheap + ROW_START(i, s->groups);
    cheap_row to = {.q = q, .finer = (int8_t *)(f->finer + (KIND == 8 ? i * s->groups : 0))};
    to.scale = scale, to.per_unit = per_unit, to.finer_scale = to.scale / FINER, to.per_finer_unit = per_unit * FINER;
    for (c = 0; c + 8 <= d; c += 8) keep_eight(&to, *(const v8 *)(y + c), c, 8);
    if (c < d) keep_eight(&to, *(const v8 *)(y + c), c, d - c);
    double lengths = fold(to.lengths), rests = fold(to.rests), finer_rests = fold(to.finer_rests);
    if (f->radii && lengths > f->radii[place] * f->radii[place]) {
        f->places[i] = -1;
        return;
    }
    double length = sqrt(lengths) * (1 + 0x1p-30) + slop, rest = sqrt(rests) * (1 + 0x1p-30) + slop;
    f->length[i] = up(length + rest);
    f->error[i] = up(rest + how->growth * (length + rest));
    f->finer_error[i] = KIND == 8 ? up(sqrt(finer_rests) * (1 + 0x1p-30) + slop) : f->error[i];
    f->middle[i] = fold(shifts) - f->squares[place];
    f->shift[i] = up(f->middle[i] + slop);
    f->scale[i] = scale;
    f->first[i] = FIRST_OF(fold(to.sums));
    int32_t *panel = f->panels + i / COLUMNS * s->groups * COLUMNS + i % COLUMNS;
    for (int64_t g = 0; g < s->groups; g += GROUP_STEP, panel += GROUP_STEP * COLUMNS)
        for (int64_t at = 0; at < GROUP_STEP; at++) panel[at * COLUMNS] = q[GROUP_AT(g) + at] ^ PANEL_FLIP;
}

/* Return n centres, mixed like rows and padded, or NULL without memory. */
static double *mixed_centres(const double *centres, int64_t n, int64_t d, const double *signs) {
    double *mixed = calloc(n * padded(d) + 1, sizeof *mixed);
    for (int64_t at = 0; mixed && at < n; at++) {
        memcpy(mixed + at * padded(d), centres + at * d, d * sizeof *mixed);
        if (signs) mix(mixed + at * padded(d), signs, d);
    }
    return mixed;
}

/* x[d] = row i over its norm. */
static inline void unit_row(const side *s, int64_t i, double *x) {
    double inverse = s->norms[i] == 0 ? 0 : 1 / s->norms[i];
    const char *row = s->rows + i * s->stride;
    int64_t c = 0;
    for (; c + 8 <= s->d; c += 8) *(v8 *)(x + c) = load8(row + c * s->kind, s->kind) * inverse;
    for (; c < s->d; c++) x[c] = load1(row + c * s->kind, s->kind) * inverse;
}

/* Fill both forms' cheap, finer, panels (zeroed and padded by the caller), first and all numbers of the rows; `places`:
 * number of tight clusters.
 *
 * A row without a place keeps its zeros: its products are never used. Each row is mixed once for both forms, because
 * mixing is linear, and most of the work. signs[d], the signs over sqrt(m), or NULL for no rotation. 0, or 1 without
 * memory. */
EXPORT int prepare(side *s, int64_t places, const double *signs, double most, double growth) {
    int64_t d = s->d;
    recipe how = {most, growth};
    ENTER(PACKING);
    double *x = calloc(2 * padded(d), sizeof *x), *y = x + padded(d);
    double *centre = mixed_centres(s->overall.centres, 1, d, signs);
    double *centres = mixed_centres(s->local.centres, places, d, signs);
    int failed = !x || !centre || !centres;
    for (int64_t i = 0; i < s->n && !failed; i++) {
        unit_row(s, i, x);
        if (signs) mix(x, signs, d);
        cheapen(s, &s->overall, &how, i, x, centre, y);
        int64_t place = places ? s->local.places[i] : -1;
        if (place >= 0) cheapen(s, &s->local, &how, i, x, centres + place * padded(d), y);
    }
    free(x);
    free(centre);
    free(centres);
    ENTER(OUTSIDE);
    return failed;
}

EXPORT int64_t pack_rows(void) { return ROWS; }
EXPORT int64_t panel_columns(void) { return COLUMNS; }
EXPORT int64_t group_step(void) { return GROUP_STEP; }
