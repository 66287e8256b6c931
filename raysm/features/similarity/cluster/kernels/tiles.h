/* The order in which two tiles are traversed, and which entries of a product are pairs; part of dense.c. */
#pragma once

#include "products.h"

/* Rows whose cheap forms stay in the second-level cache, which has 2 MB on all machines with AMX. */
#if defined(__AMX_INT8__)
#define CHUNK_BYTES (512 << 10)
#else
#define CHUNK_BYTES (256 << 10)
#endif
static int64_t chunk_rows(const side *s) {
    int64_t rows = CHUNK_BYTES / (4 * s->groups) / ROWS * ROWS;
    return rows < 4 * ROWS ? 4 * ROWS : rows;
}

/* Return the end of the rows, at most `stop`, that a panel from column j on is compared with; with `upper`, rows after
 * the panel's columns are left out. */
static inline int64_t last_row(int64_t stop, int64_t j, int upper) {
    return upper && j + COLUMNS < stop ? j + COLUMNS : stop;
}

static inline uint64_t low_bits(int64_t n) { return n >= 64 ? ~(uint64_t)0 : ((uint64_t)1 << n) - 1; }

/* Remove entries that are not pairs from reached[r] of `rows`, the rows that have any: entries beyond the last row or
 * column; with `same`, a row and itself; with `upper`, a row and all columns up to itself. Return the rows that still
 * have some. */
static inline uint64_t only_pairs(uint64_t *reached, uint64_t rows, const side *l, const side *r, int64_t i, int64_t j,
                                  int same, int upper) {
    int64_t first = l->start + i - (r->start + j);
    int beside = first + ROWS <= 0 || (first >= COLUMNS && !upper);
    /* This is nearly always so. */
    if (r->n - j >= COLUMNS && l->n - i >= ROWS && (beside || !(same || upper))) return rows;
    uint64_t some = 0;
    for (; rows; rows &= rows - 1) {
        int at = __builtin_ctzll(rows);
        if (r->n - j < COLUMNS) reached[at] &= low_bits(r->n - j);
        if (i + at >= l->n) reached[at] = 0;
        int64_t own = first + at;
        if (same && own >= 0 && own < COLUMNS) reached[at] &= ~((uint64_t)1 << own);
        if (upper && own >= 0) reached[at] &= own + 1 >= COLUMNS ? 0 : ~low_bits(own + 1);
        some |= (uint64_t)(reached[at] != 0) << at;
    }
    return some;
}

/* Prefetching of the next panel: without it, the first products and closer looks of each panel wait for the third-level
 * cache. It goes on piece by piece during the products with the panel before. Only AMX needs it: with float32 products,
 * the loop became 10 % slower. */
typedef struct {
    const char *panels, *cheap, *finer;
    int64_t bytes, at, step;
} coming;

static inline coming coming_after(const side *r, int64_t j, int64_t products) {
    coming next = {0};
#if defined(__AMX_INT8__)
    int64_t first = (j + COLUMNS) * r->groups, rows = r->n - (j + COLUMNS);
    if (rows <= 0 || products <= 0) return next;
    next.panels = (const char *)(r->overall.panels + first);
    next.cheap = (const char *)(r->overall.cheap + first);
    next.finer = (const char *)(r->overall.finer + first);
    next.bytes = 4 * r->groups * (rows < COLUMNS ? rows : COLUMNS);
    next.step = (next.bytes / products / 64 + 1) * 64;
#else
    (void)r, (void)j, (void)products;
#endif
    return next;
}

static inline void bring_some(coming *next) {
    int64_t stop = next->at + next->step < next->bytes ? next->at + next->step : next->bytes;
    for (; next->at < stop; next->at += 64) {
        __builtin_prefetch(next->panels + next->at, 0, 2);
        __builtin_prefetch(next->cheap + next->at, 0, 2);
        __builtin_prefetch(next->finer + next->at, 0, 2);
    }
}
