/* The two sides that are compared, and the vectors that are computed with; part of dense.c. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "profile.h"

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
#ifndef widen8
#define widen8(x) __builtin_convertvector(x, v8)
#define truncate8(x) __builtin_convertvector(x, i8)
#endif
#if KIND != 32
typedef element e8 __attribute__((vector_size(8 * sizeof(element)), aligned(sizeof(element)), may_alias));
#endif
#define COLUMNS (LANES * VECTORS)
#define FINER 254 /* s / s': what q leaves is at most s / 2, and q' at most 127 */

/* The rows of a side less their centres, made cheap. */
typedef struct {
    const double *centres, *squares; /* c, and c.c, of each place */
    const double *radii; /* a row farther from its centre has no place; NULL: no limit */
    int32_t *places;     /* the centre of each row, -1 for none; NULL: all have the first */
    int32_t *cheap;      /* [n][groups], q, with rows of zeros up to a multiple of ROWS; of a row, group g stands at
                            ROW_START + GROUP_AT */
    int32_t *finer;      /* [n][groups], q' */
    int32_t *panels;     /* [n / COLUMNS][groups][COLUMNS], q */
    int32_t *first;      /* initial value of a row's sums */
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

/* Functions of two sides return this if the rows of both have different types. */
#define TWO_TYPES (-2)
static inline int of_two_types(const side *l, const side *r) { return l->kind != r->kind; }
