/* Pairs above a threshold; part of dense.c. */
#pragma once

#include "clusters.h"
#include "look.h"
#include "numbers.h"
#include "scores.h"
#include "tiles.h"

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

typedef struct {
    const side *l, *r;
    float threshold;
    int same;
    numbers rows, columns;           /* about the frame's centre */
    numbers local_rows, local_columns;
    clusters clusters;
    int64_t scored;
} pair_search;

/* Return whether a pair may reach the threshold. Many pairs of a tight cluster pass both filters, and a look costs a
 * small part of a score. Few other pairs pass, and most of those reach the threshold. */
static inline int may_reach(const pair_search *f, int64_t i, int64_t j) {
    float low, high;
    if (place_of_both(f->l, i, f->r, j, f->clusters.there) < 0) return 1;
    look_at(f->l, i, f->r, j, 1, &low, &high);
    return high >= f->threshold;
}

static int pairs_of_panel(pair_search *f, found_pairs *p, int64_t i0, int64_t i1, int64_t j) {
    const side *l = f->l, *r = f->r;
    column_part column = columns_of(&f->columns, j);
    int64_t end = last_row(i1, r->start + j - l->start, f->same);
    if (i0 >= end) return 0;
    const int32_t *lines = l->overall.cheap;
    ahead a;
    begin_panel(&a, lines + i0 * l->groups, r->overall.panels + j * r->groups, l->groups, column);
    mark_places(&f->clusters, j, 1);
    for (int64_t i = i0; i < end; i += ROWS) {
        uint64_t reached[ROWS];
        const int32_t *next = i + ROWS < end ? lines + (i + ROWS) * l->groups : NULL;
        uint64_t some = compare(&a, next, rows_of(&f->rows, i), column, reached);
        if (some) some = only_pairs(reached, some, l, r, i, j, f->same, f->same);
        if (!some) continue;
        only_near(&f->clusters, i, j, reached);
        for (; some; some &= some - 1) {
            int at = __builtin_ctzll(some);
            for (uint64_t bits = reached[at]; bits; bits &= bits - 1) {
                int64_t c = j + __builtin_ctzll(bits);
                ENTER(LOOKS);
                if (!may_reach(f, i + at, c)) continue;
                f->scored++;
                ENTER(SCORES);
                float found = score(l, i + at, r, c);
                ENTER(CANDIDATES);
                if (found >= f->threshold && keep(p, i + at, c, found)) return 1;
            }
        }
    }
    mark_places(&f->clusters, j, 0);
    return 0;
}

/* Set the limits for products about the rows' centres. */
static void limit_pairs(numbers *rows, const form *f, int64_t n, float threshold) {
    double limit = ((double)threshold + nextafterf(threshold, -INFINITY)) / 2;
    for (int64_t i = 0; i < n; i++) {
        int32_t place = f->places ? f->places[i] : 0;
        if (place >= 0) rows->limit[i] = down(limit - f->squares[place] - rows->shift[i]);
    }
}

/* See Engine.pairs; each row's pairs come in rising order; places: number of tight clusters. Return the number of
 * scored pairs, or -1 without memory. Call free_pairs in either case. */
EXPORT int64_t pairs(const side *l, const side *r, float threshold, int64_t places, int same, found_pairs *p) {
    memset(p, 0, sizeof *p);
    if (of_two_types(l, r)) return TWO_TYPES;
    ENTER(REST);
    pair_search f = {.l = l, .r = r, .threshold = threshold, .same = same};
    f.clusters = (clusters){l, r, &f.local_rows, &f.local_columns, places > 0, calloc(places + 1, sizeof(uint64_t))};
    int failed = !f.clusters.alike || begin_form(&f.rows, &f.columns, l, r, 1, 0);
    if (places > 0) failed = failed || begin_form(&f.local_rows, &f.local_columns, l, r, places, 1);
    if (!failed) limit_pairs(&f.rows, &l->overall, l->n, threshold);
    if (!failed && places > 0) limit_pairs(&f.local_rows, &l->local, l->n, threshold);
    int64_t step = chunk_rows(l);
    begin_products();
    for (int64_t i0 = 0; i0 < l->n && !failed; i0 += step) {
        int64_t i1 = i0 + step < l->n ? i0 + step : l->n;
        for (int64_t j = 0; j < r->n && !failed; j += COLUMNS) failed = pairs_of_panel(&f, p, i0, i1, j);
    }
    end_products();
    free(f.rows.memory);
    free(f.columns.memory);
    free(f.local_rows.memory);
    free(f.local_columns.memory);
    free(f.clusters.alike);
    ENTER(OUTSIDE);
    return failed ? -1 : f.scored;
}
