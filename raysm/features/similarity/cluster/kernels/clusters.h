/* Pairs of one tight cluster, compared about its centre: the second filter of topk.h and pairs.h; part of dense.c. */
#pragma once

#include "numbers.h"

typedef struct {
    const side *l, *r;
    const numbers *rows, *columns; /* numbers of both sides about the clusters' centres */
    int there;                     /* true if both sides have tight clusters */
    uint64_t *alike;               /* for each place, the columns of the panel that have it, as bits */
} clusters;

/* Set which columns of a panel are in each tight cluster; with there = 0, clear them. */
static void mark_places(clusters *t, int64_t j, int there) {
    const side *r = t->r;
    if (!t->there) return;
    for (int64_t c = j; c < j + COLUMNS && c < r->n; c++) {
        int32_t place = r->local.places[c];
        if (place >= 0) t->alike[place] = there ? t->alike[place] | (uint64_t)1 << (c - j) : 0;
    }
}

/* A closer look at this many pairs takes about the time of another product. */
#define CROWD (ROWS * COLUMNS / 32)

/* Remove from reached[r] pairs within a cluster whose product about its centre does not reach the limit. */
static inline void only_near(const clusters *t, int64_t i, int64_t j, uint64_t *reached) {
    const side *l = t->l, *r = t->r;
    uint64_t alike[ROWS], near[ROWS] = {0};
    int crowd = 0;
    if (!t->there) return;
    for (int at = 0; at < ROWS; at++) {
        int32_t place = i + at < l->n ? l->local.places[i + at] : -1;
        alike[at] = place < 0 ? 0 : t->alike[place];
        crowd += __builtin_popcountll(reached[at] & alike[at]);
    }
    if (crowd < CROWD) return;
    ahead alone;
    column_part column = columns_of(t->columns, j);
    begin_panel(&alone, l->local.cheap + i * l->groups, r->local.panels + j * r->groups, l->groups, column);
    compare(&alone, NULL, rows_of(t->rows, i), column, near);
    for (int at = 0; at < ROWS; at++) reached[at] &= ~alike[at] | near[at];
}
