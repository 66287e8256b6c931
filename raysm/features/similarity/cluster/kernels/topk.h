/* The best of each row; part of dense.c. */
#pragma once

#include "clusters.h"
#include "keys.h"
#include "look.h"
#include "numbers.h"
#include "scores.h"
#include "seed.h"
#include "tiles.h"

/* A pair that may be among a row's best, and is not scored yet. */
typedef struct {
    float most; /* upper bound of the score */
    uint32_t index;
} candidate;

/* The state of a row, which each of its pairs is tested with; it is small, because it is read in random order. */
typedef struct {
    uint64_t bound; /* a key that k pairs reach, waiting ones included, or the floor's key; larger keys are out */
    int32_t count;  /* number of waiting candidates */
    float floor;    /* a score that k columns are known to reach */
} state;

/* The rows of one side while they are searched. */
typedef struct {
    const side *s;
    best *b; /* NULL: these rows do not look for neighbors */
    numbers overall, local;
    state *states;
    uint64_t *reached;  /* reached[n, k], rising: keys, for waiting candidates the last that they may have */
    candidate *waiting; /* waiting[n, room] */
    int64_t room;
    void *memory;
} searched;

/* Pairs that passed the filter. Closer looks come in batches, so that the processor works on several at a time. */
#define HITS 256
typedef struct {
    uint32_t i, j;
    float low, high;
} hit;

typedef struct {
    searched *rows, *columns; /* the same if a tile is compared with itself */
    int same, diagonal;
    clusters clusters;
    int64_t scored;
    int64_t count; /* of hits */
    hit hits[HITS + ROWS * COLUMNS];
} search;

static inline void lower_bound(searched *p, int64_t i) {
    uint64_t last = p->reached[(i + 1) * p->b->k - 1];
    if (last < p->states[i].bound) p->states[i].bound = last;
}

/* Start row i from its keys and its floor, without waiting candidates. */
static void begin_row(searched *p, int64_t i, float floor) {
    memcpy(p->reached + i * p->b->k, p->b->keys + i * p->b->k, p->b->k * sizeof *p->reached);
    /* A pair that ties with the floor may still enter, by its lower index. */
    p->states[i] = (state){key_of(floor, UINT32_MAX), 0, floor};
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
    for (int64_t i = 0; i < s->n; i++) begin_row(p, i, b->floors[i]);
    return 0;
}

/* Return whether row i has no bound yet. */
static inline int is_unknown(const searched *p, int64_t i) { return key_score(p->states[i].bound) == -INFINITY; }

/* Give a floor to rows that have no bound yet. */
static void seed(searched *p, const searched *others, int same, int local) {
    if (!p->b || !worth_seeding(others->s, p->b->k)) return;
    seeding s = {p->s, others->s, &p->overall, &others->overall, same, local};
    float seeds[ROWS];
    for (int64_t i = 0; i < p->s->n; i += ROWS) {
        int unknown = 0;
        for (int64_t at = i; at < i + ROWS && at < p->s->n; at++) unknown |= is_unknown(p, at);
        if (!unknown) continue;
        seed_rows(&s, i, p->b->k, seeds);
        for (int64_t at = i; at < i + ROWS && at < p->s->n; at++)
            if (is_unknown(p, at)) begin_row(p, at, seeds[at - i]);
    }
}

static void end_search(searched *p) {
    free(p->overall.memory);
    free(p->local.memory);
    free(p->memory);
}

/* Return the least float64 that may round to a score with which an index of at least `from` enters.
 *
 * A pair with a higher index that only ties with the k-th best does not enter, and no score is above 1. */
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
    int32_t place = f->clusters.there ? p->s->local.places[i] : -1;
    if (place >= 0) p->local.limit[i] = down(score - p->s->local.squares[place] - p->local.shift[i]);
}

static inline void limit_column(search *f, int64_t j, int64_t from) {
    searched *p = f->columns;
    if (!p->b) return;
    double score = least(p->states + j, from);
    p->overall.other[j] = down(score - p->s->overall.squares[0]);
    int32_t place = f->clusters.there ? p->s->local.places[j] : -1;
    if (place >= 0) p->local.other[j] = down(score - p->s->local.squares[place]);
}

/* The first key that a candidate may have. */
static inline uint64_t first_key(const candidate *one, const side *others) {
    return key_of(one->most, others->start + one->index);
}

/* Prefetch the row of the `at`-th candidate that waits for row i, if it will be scored. */
static inline void fetch_waiting(const searched *p, const side *others, int64_t i, int64_t at) {
    const candidate *one = p->waiting + i * p->room + at;
    if (at >= p->states[i].count || first_key(one, others) > p->states[i].bound) return;
    const char *row = others->rows + one->index * others->stride;
    for (int64_t c = 0; c < others->d * others->kind; c += 64) __builtin_prefetch(row + c);
}

/* Score the waiting candidates of row i that may still enter, and drop them all. */
static void score_waiting(search *f, searched *p, const side *others, int64_t i) {
    ENTER(SCORES);
    const candidate *waiting = p->waiting + i * p->room;
    for (int64_t at = 0; at < p->states[i].count; at++) {
        if (first_key(waiting + at, others) > p->states[i].bound) continue;
        fetch_waiting(p, others, i, at + 1);
        f->scored++;
        offer(p->b, i, key_of(score(p->s, i, others, waiting[at].index), others->start + waiting[at].index));
    }
    ENTER(CANDIDATES);
    begin_row(p, i, p->states[i].floor);
}

static void score_all_waiting(search *f, searched *p, const side *others) {
    for (int64_t i = 0; i < p->s->n; i++) {
        if (i + 1 < p->s->n) fetch_waiting(p, others, i + 1, 0);
        score_waiting(f, p, others, i);
    }
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
static inline int defer(search *f, searched *p, const side *others, int64_t i, int64_t index, float low, float high) {
    state *now = p->states + i;
    candidate *waiting = p->waiting + i * p->room, one = {high, (uint32_t)index};
    if (first_key(&one, others) >= now->bound) return 0;
    waiting[now->count++] = one;
    int rises = note_reached(p, i, key_of(low, others->start + index));
    if (now->count < p->room) return rises;
    int64_t kept = 0;
    for (int64_t old = 0; old < p->room; old++) {
        waiting[kept] = waiting[old];
        /* <=, because the bound may be this candidate's own key. */
        kept += first_key(waiting + kept, others) <= now->bound;
    }
    now->count = kept;
    if (2 * kept > p->room) score_waiting(f, p, others, i);
    return 1;
}

/* Process the hits. A row's later hits have columns from next_column on, and a column's have rows from next_row on. */
static void take_hits(search *f, int64_t next_row, int64_t next_column) {
    const side *l = f->rows->s, *r = f->columns->s;
    ENTER(LOOKS);
    for (int64_t at = 0; at < f->count; at++) {
        hit *h = f->hits + at;
        look_at(l, h->i, r, h->j, f->clusters.there, &h->low, &h->high);
    }
    ENTER(CANDIDATES);
    for (int64_t at = 0; at < f->count; at++) {
        hit *h = f->hits + at;
        /* If a tile is compared with itself, a row's limit changes on both sides. */
        if (defer(f, f->rows, r, h->i, h->j, h->low, h->high)) {
            limit_row(f, h->i, next_column);
            if (f->diagonal) limit_column(f, h->i, next_column);
        }
        if (f->columns->b && defer(f, f->columns, l, h->j, h->i, h->low, h->high)) {
            limit_column(f, h->j, next_row);
            if (f->diagonal) limit_row(f, h->j, next_row);
        }
    }
    f->count = 0;
    ENTER(FILTER);
}

static void search_panel(search *f, int64_t i0, int64_t i1, int64_t j) {
    const side *l = f->rows->s, *r = f->columns->s;
    int64_t next_column = r->start + j + COLUMNS, i = i0, end = last_row(i1, j, f->diagonal);
    ENTER(LIMITS);
    for (int64_t c = j; c < j + COLUMNS && c < r->n; c++) limit_column(f, c, l->start + i0);
    column_part column = columns_of(&f->columns->overall, j);
    const int32_t *lines = l->overall.cheap;
    ahead a;
    begin_panel(&a, lines + i * l->groups, r->overall.panels + j * r->groups, l->groups, column);
    mark_places(&f->clusters, j, 1);
    coming after = coming_after(r, j, (end - i) / ROWS);
    for (; i < end; i += ROWS) {
        uint64_t reached[ROWS];
        bring_some(&after);
        const int32_t *next = i + ROWS < end ? lines + (i + ROWS) * l->groups : NULL;
        uint64_t some = compare(&a, next, rows_of(&f->rows->overall, i), column, reached);
        if (some) some = only_pairs(reached, some, l, r, i, j, f->same, f->diagonal);
        if (!some) continue;
        only_near(&f->clusters, i, j, reached);
        for (; some; some &= some - 1) {
            int at = __builtin_ctzll(some);
            for (uint64_t bits = reached[at]; bits; bits &= bits - 1) {
                f->hits[f->count].i = (uint32_t)(i + at);
                f->hits[f->count++].j = (uint32_t)(j + __builtin_ctzll(bits));
            }
        }
        if (f->count >= HITS) take_hits(f, l->start + i + ROWS, next_column);
    }
    take_hits(f, l->start + i, next_column);
    mark_places(&f->clusters, j, 0);
}

/* See Engine.topk; `diagonal`: both sides, and both bests, are the same; places: number of tight clusters. Return the
 * number of scored pairs, or -1 without memory. */
EXPORT int64_t topk(const side *l, const side *r, best *bl, best *br, int64_t places, int same, int diagonal) {
    if (of_two_types(l, r)) return TWO_TYPES;
    ENTER(REST);
    searched rows = {0}, columns = {0};
    search f;
    f.rows = &rows, f.columns = diagonal ? &rows : &columns, f.same = same, f.diagonal = diagonal;
    f.scored = f.count = 0;
    f.clusters = (clusters){l, r, &rows.local, &f.columns->local, places > 0, calloc(places + 1, sizeof(uint64_t))};
    int failed = !f.clusters.alike || begin_form(&rows.overall, &f.columns->overall, l, r, 1, 0);
    if (places > 0) failed = failed || begin_form(&rows.local, &f.columns->local, l, r, places, 1);
    failed = failed || begin_search(&rows, l, bl) || (!diagonal && begin_search(&columns, r, br));
    int64_t step = chunk_rows(l);
    begin_products();
    ENTER(SEEDS);
    if (!failed) seed(&rows, f.columns, same, f.clusters.there);
    if (!failed && !diagonal) seed(&columns, &rows, same, f.clusters.there);
    for (int64_t i0 = 0; i0 < l->n && !failed; i0 += step) {
        int64_t i1 = i0 + step < l->n ? i0 + step : l->n;
        int64_t first = diagonal ? i0 / COLUMNS * COLUMNS : 0;
        ENTER(LIMITS);
        for (int64_t i = i0; i < i1; i++) limit_row(&f, i, r->start + first);
        for (int64_t j = first; j < r->n; j += COLUMNS) search_panel(&f, i0, i1, j);
    }
    end_products();
    if (!failed) score_all_waiting(&f, &rows, r);
    if (!failed && br && !diagonal) score_all_waiting(&f, &columns, l);
    ENTER(REST);
    end_search(&rows);
    end_search(&columns);
    free(f.clusters.alike);
    ENTER(OUTSIDE);
    return failed ? -1 : f.scored;
}
