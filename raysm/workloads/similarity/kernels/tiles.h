/* In what order two tiles are gone through, and what of a product is a pair at all; part of dense.c. */
#pragma once

#include "products.h"

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
