/* Seeds: scores that k columns reach, found for each row before the search; part of dense.c.
 *
 * Without a seed, a row looks at all pairs of its first panels, and then at fewer and fewer: with int8 at some 160 of
 * 8,192, twice as many as with a seed. A lane of the vectors multiplies every COLUMNS-th column, so the largest
 * products of k lanes belong to k different columns. A closer look at these gives k lower bounds; k columns reach the
 * smallest of them. It is about the score of the 1.2 k-th best column among those that were multiplied, and a small
 * part of all columns is enough.
 */
#pragma once

#include "look.h"
#include "numbers.h"

/* Least number of columns that a row is multiplied with to find its seed. */
#define SEED_COLUMNS 1024

typedef int32_t lane_numbers __attribute__((vector_size(4 * LANES)));

/* The largest product of each lane, and the panel that has it, for ROWS rows. */
typedef struct {
    _Alignas(64) vf product[ROWS * VECTORS];
    _Alignas(64) lane_numbers first[ROWS * VECTORS]; /* column of the panel */
} peaks;

/* Return whether seeds pay for rows that look for k. The smallest of more than 3/4 of all lanes' peaks is too low. */
static inline int worth_seeding(const side *others, int64_t k) {
    return 4 * k <= 3 * COLUMNS && others->n >= 2 * SEED_COLUMNS;
}

/* Raise the peaks by the products with the panel from column j on. */
static inline void raise_peaks(peaks *p, const lane *sums, row_part row, column_part column, int64_t j) {
    lane_numbers now = (lane_numbers){0} + (int32_t)j;
    for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < VECTORS; v++) {
            int at = r * VECTORS + v;
            vf product = PRODUCT(READ_SUMS(sums + at * LANES), v);
            product = vf_fma(vf_set1(row.scale[r]), product, vf_load(column.shift + v * LANES));
            lane_numbers above = (lane_numbers)(product > p->product[at]);
            p->product[at] = vf_max(product, p->product[at]);
            p->first[at] = (above & now) | (~above & p->first[at]);
        }
}

/* The rows that get seeds, and the columns that they are multiplied with. */
typedef struct {
    const side *l, *r;
    const numbers *rows, *columns;
    int same, local;
} seeding;

/* Return a score that the columns of k peaks of row `at` from i on reach, or -INFINITY. */
static float seed_of(const seeding *s, const peaks *p, int64_t i, int at, int64_t k) {
    const float *product = (const float *)p->product + at * COLUMNS;
    const int32_t *first = (const int32_t *)p->first + at * COLUMNS;
    int32_t best[COLUMNS];
    int64_t count = 0;
    for (int32_t c = 0; c < COLUMNS; c++) {
        if (count == k && product[c] <= product[best[k - 1]]) continue;
        int64_t to = count < k ? count++ : k - 1;
        for (; to > 0 && product[best[to - 1]] < product[c]; to--) best[to] = best[to - 1];
        best[to] = c;
    }
    if (product[best[k - 1]] == -INFINITY) return -INFINITY;
    float least = INFINITY;
    for (int64_t of = 0; of < k; of++) {
        float low, high;
        look_at(s->l, i + at, s->r, first[best[of]] + best[of], s->local, &low, &high);
        least = low < least ? low : least;
    }
    return least;
}

/* Set seeds[ROWS], of the rows of l from i on: scores that k rows of r reach, or -INFINITY. */
static void seed_rows(const seeding *s, int64_t i, int64_t k, float *seeds) {
    _Alignas(64) lane sums[ROWS * COLUMNS];
    peaks p;
    const side *l = s->l, *r = s->r;
    int64_t step = r->n / SEED_COLUMNS * COLUMNS;
    row_part row = rows_of(s->rows, i);
    for (int at = 0; at < ROWS * VECTORS; at++) p.product[at] = vf_set1(-INFINITY);
    /* Only whole panels, because padding forms no pairs. */
    for (int64_t j = 0; j + COLUMNS <= r->n; j += step) {
        int64_t own = l->start + i - (r->start + j);
        /* Skip panels that contain one of the rows itself. */
        if (s->same && own > -ROWS && own < COLUMNS) continue;
        multiply(l->overall.cheap + i * l->groups, r->overall.panels + j * r->groups, l->groups, row, sums);
        raise_peaks(&p, sums, row, columns_of(s->columns, j), j);
    }
    for (int at = 0; at < ROWS; at++) seeds[at] = i + at < l->n ? seed_of(s, &p, i, at, k) : -INFINITY;
}
