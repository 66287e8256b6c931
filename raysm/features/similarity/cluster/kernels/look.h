/* A closer look at a pair that has passed the filter, before it is scored; part of dense.c. */
#pragma once

#include "products.h"

/* A second, closer look at one pair, in float64: y_i . y_j within *off. */
static inline double look(const form *l, int64_t i, const form *r, int64_t j, int64_t groups, double *off) {
    const int32_t *a = l->cheap + ROW_START(i, groups), *b = r->cheap + ROW_START(j, groups);
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

/* The tight cluster that two rows are both in, or -1. `local`: both sides have such clusters. */
static inline int32_t place_of_both(const side *l, int64_t i, const side *r, int64_t j, int local) {
    if (!local) return -1;
    int32_t place = l->local.places[i];
    return place == r->local.places[j] ? place : -1;
}

/* Find a lower and an upper bound of a pair's score. Each is rounded to the nearest float32, which is safe because
 * rounding is monotone. A wider margin would make all scores of a tight cluster look equal. */
static inline void look_at(const side *l, int64_t i, const side *r, int64_t j, int local, float *low, float *high) {
    int32_t place = place_of_both(l, i, r, j, local);
    const form *a = place < 0 ? &l->overall : &l->local, *b = place < 0 ? &r->overall : &r->local;
    double off, middle = look(a, i, b, j, l->groups, &off);
    middle += a->middle[i] + b->middle[j] + a->squares[place < 0 ? 0 : place];
    off += l->slop + r->slop;
    /* Adding 0 avoids negative zeros, whose keys differ. */
    *low = (float)(middle - off) + 0.0f, *high = (float)(middle + off) + 0.0f;
}
