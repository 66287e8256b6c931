/* The numbers with which the filter compares all products of two tiles; part of dense.c. */
#pragma once

#include "products.h"
#include "rounding.h"

/* Padded copies of a side's numbers, and the limits for its rows' products. */
typedef struct {
    float *scale, *error, *length, *shift;
    float *higher;        /* a column's shift plus the bound of the arithmetic's error */
    float *limit, *other; /* the limit as a row, and as a column */
    int32_t *first;
    void *memory;
} numbers;

/* `more`: the error bound of the arithmetic for each place; NULL adds nothing. */
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
    /* Not fmax: a loop of it makes GCC 12 for aarch64 fail with an internal error. */
    for (int64_t i = 0; i < n; i++)
        if (!f->places || f->places[i] == place) found = fabs(x[i]) > found ? fabs(x[i]) : found;
    return found;
}

/* The error bound of the float32 arithmetic of `compare` for two rows of one place. A bound for all places together
 * would be that of the loosest cluster, which is larger than the differences between scores of a tight one. */
static double slack(const form *l, int64_t n, const form *r, int64_t m, int32_t place) {
    double length = largest_of(l->length, l, n, place) * largest_of(r->length, r, m, place);
    double shift = largest_of(l->shift, l, n, place) + largest_of(r->shift, r, m, place);
    return 0x1p-21 * (4 * length + shift) + 0x1p-80;
}

/* Copy the numbers of both sides' forms; the columns' shifts include the error bound of the arithmetic. */
static int begin_form(numbers *rows, numbers *columns, const side *l, const side *r, int64_t places, int local) {
    const form *a = local ? &l->local : &l->overall, *b = local ? &r->local : &r->overall;
    double *more = malloc(places * sizeof *more);
    if (!more) return 1;
    for (int64_t place = 0; place < places; place++) more[place] = slack(a, l->n, b, r->n, (int32_t)place);
    int failed = copy_numbers(rows, a, l->n, more) || (columns != rows && copy_numbers(columns, b, r->n, more));
    free(more);
    return failed;
}
