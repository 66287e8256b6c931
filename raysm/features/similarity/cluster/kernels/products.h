/* Cheap products of a few rows with a few columns, and the pairs that reach the limits; part of dense.c. */
#pragma once

#include "sides.h"

/* The numbers of ROWS rows, and of the COLUMNS columns of one panel, with which their products are compared. */
typedef struct {
    const float *scale, *error, *length, *shift, *limit; /* of ROWS rows */
    const int32_t *first;
} row_part;

typedef struct {
    const float *scale, *error, *length, *shift, *limit; /* of COLUMNS columns */
} column_part;

#if KIND == 32
typedef float lane;
#define BEGIN_LOOK vf_set1(0)
#define BEGIN(r) vf_set1(0)
#define READ(panel, v) vf_load((const float *)(panel) + v * LANES)
#define READ_SUMS vf_load
#define SPREAD(g, r) vf_set1(((const float *)line_##r)[g])
#define PRODUCT(sum, v) (sum)
#else
typedef int32_t lane;
#define BEGIN_LOOK vi_set1(0)
#define BEGIN(r) vi_set1(row.first[r])
#define READ(panel, v) vi_load((panel) + v * LANES)
#define READ_SUMS vi_load
#define SPREAD(g, r) vi_set1(line_##r[g])
#define PRODUCT(sum, v) vf_mul(vf_of_int(sum), vf_load(column.scale + v * LANES))
#endif

/* Return an upper bound of s_r s_c P + r_r X_c + X_r r_c + b_c; product: s_c P of vector v. */
static inline __attribute__((always_inline)) vf upper(vf product, row_part row, int r, column_part column, int v) {
    vf most = vf_load(column.shift + v * LANES);
    most = vf_fma(vf_set1(row.length[r]), vf_load(column.error + v * LANES), most);
    most = vf_fma(vf_set1(row.error[r]), vf_load(column.length + v * LANES), most);
    return vf_fma(vf_set1(row.scale[r]), product, most);
}

/* Return min(limit_r, limit_c - b_r), which the bound must reach. */
static inline __attribute__((always_inline)) vf needed(row_part row, int r, column_part column, int v) {
    vf other = vf_sub(vf_load(column.limit + v * LANES), vf_set1(row.shift[r]));
    return vf_min(vf_set1(row.limit[r]), other);
}

/* Return which columns reach it, as bits of a whole row. */
static inline __attribute__((always_inline)) uint64_t reaching(vf product, row_part row, int r, column_part column,
                                                               int v) {
    return vf_reaches(upper(product, row, r, column, v), needed(row, r, column, v)) << (v * LANES);
}

#if defined(__AMX_INT8__)
#include "amx.h"
#else
#define begin_products()
#define end_products()
/* The next rows that are compared with a panel. */
typedef struct {
    const int32_t *lines, *panel;
    int64_t groups;
} ahead;

static inline void begin_panel(ahead *a, const int32_t *lines, const int32_t *panel, int64_t groups,
                               column_part column) {
    (void)column;
    *a = (ahead){lines, panel, groups};
}

#if defined(__aarch64__)
#include "neon.h"
#else
#include "avx.h"
#endif
#endif
