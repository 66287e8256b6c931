/* The products of ROWS rows with one panel by AVX2, AVX-512 or VNNI, and the pairs that reach the limits; part of
 * dense.c. */

/* These lists give every sum a variable of its own: compilers keep variables in registers, but not array elements. */
#if defined(__AVX512F__)
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_VECTOR(X, r) X(r, 0) X(r, 1) X(r, 2)
#else
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5)
#define EACH_VECTOR(X, r) X(r, 0) X(r, 1)
#endif

#define DECLARE(r, v) sum_t sum_##r##_##v = BEGIN(r);
#define DECLARE_ROW(r)                             \
    const int32_t *line_##r = lines + r * groups;  \
    EACH_VECTOR(DECLARE, r)
#define LOAD(r, v) sum_t part_##v = READ(panel, v);
#define ADD(r, v) sum_##r##_##v = accumulate(sum_##r##_##v, part_##v, one_##r);
#define ADD_ROW(r)                 \
    sum_t one_##r = SPREAD(g, r);  \
    EACH_VECTOR(ADD, r)
#define SUM_UP                                                      \
    EACH_ROW(DECLARE_ROW)                                           \
    for (int64_t g = 0; g < groups; g++, panel += COLUMNS) {        \
        EACH_VECTOR(LOAD, 0)                                        \
        EACH_ROW(ADD_ROW)                                           \
    }

/* sums[ROWS][COLUMNS]: P of ROWS rows with one panel. */
static inline void multiply(const int32_t *lines, const int32_t *panel, int64_t groups, row_part row, lane *sums) {
    (void)row;
    SUM_UP
#define STORE(r, v) memcpy(sums + r * COLUMNS + v * LANES, &sum_##r##_##v, sizeof(sum_t));
#define STORE_ROW(r) EACH_VECTOR(STORE, r)
    EACH_ROW(STORE_ROW)
}

/* Set the bits of `reaching` of ROWS rows with one panel; return which rows have some. */
static inline uint64_t compare(ahead *a, const int32_t *next, row_part row, column_part column, uint64_t *reached) {
    const int32_t *lines = a->lines, *panel = a->panel;
    int64_t groups = a->groups;
    a->lines = next;
    ENTER(PRODUCTS);
    COUNT_PRODUCTS(groups);
    SUM_UP
    ENTER(FILTER);
    uint64_t some = 0;
#define REACH(r, v) bits |= reaching(PRODUCT(sum_##r##_##v, v), row, r, column, v);
#define REACH_ROW(r)             \
    {                            \
        uint64_t bits = 0;       \
        EACH_VECTOR(REACH, r)    \
        reached[r] = bits;       \
        some |= (uint64_t)(bits != 0) << r; \
    }
    EACH_ROW(REACH_ROW)
    return some;
}
