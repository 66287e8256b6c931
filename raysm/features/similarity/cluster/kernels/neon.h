/* The products of ROWS rows with one panel by NEON, and the pairs that reach the limits; part of dense.c.
 *
 * A row's register holds four of its groups, and each instruction selects one of them by its lane. So no instruction is
 * needed to spread a group, and 16 instructions use the data of 2 loads of the panel. According to llvm-mca 16 for
 * Neoverse N1, a pair of rows takes 6.5 cycles for 128 columns and 3.3 for 32, including the filter. Products of
 * float32 alone take 16 and 4 at that processor's peak of 8 a cycle, and NumPy still has to filter them. This is not
 * measured. */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

#define DECLARE_ROW(r) sum_t sum_##r##_0 = BEGIN(r), sum_##r##_1 = sum_##r##_0;
#define LOAD_ROW(r) sum_t line_##r = READ(lines + r * groups + g, 0);
#define ADD_ROW(r, at)                                                    \
    sum_##r##_0 = accumulate_lane(sum_##r##_0, part_0, line_##r, at);     \
    sum_##r##_1 = accumulate_lane(sum_##r##_1, part_1, line_##r, at);
#define ADD_ROW_0(r) ADD_ROW(r, 0)
#define ADD_ROW_1(r) ADD_ROW(r, 1)
#define ADD_ROW_2(r) ADD_ROW(r, 2)
#define ADD_ROW_3(r) ADD_ROW(r, 3)
#define STEP(at)                                                          \
    {                                                                     \
        sum_t part_0 = READ(panel, 0), part_1 = READ(panel, 1);           \
        EACH_ROW(ADD_ROW_##at)                                            \
        panel += COLUMNS;                                                 \
    }
#define SUM_UP                                                            \
    EACH_ROW(DECLARE_ROW)                                                 \
    for (int64_t g = 0; g < groups; g += GROUP_STEP) {                    \
        EACH_ROW(LOAD_ROW)                                                \
        STEP(0)                                                           \
        STEP(1)                                                           \
        STEP(2)                                                           \
        STEP(3)                                                           \
    }

/* sums[ROWS][COLUMNS]: P of ROWS rows with one panel. */
static inline void multiply(const int32_t *lines, const int32_t *panel, int64_t groups, row_part row, lane *sums) {
    (void)row;
    SUM_UP
#define STORE_ROW(r)                                                      \
    memcpy(sums + r * COLUMNS, &sum_##r##_0, sizeof(sum_t));              \
    memcpy(sums + r * COLUMNS + LANES, &sum_##r##_1, sizeof(sum_t));
    EACH_ROW(STORE_ROW)
}

/* Set the bits of `reaching` of ROWS rows with one panel; return which rows have some. If none has, set nothing. */
static inline uint64_t compare(ahead *a, const int32_t *next, row_part row, column_part column, uint64_t *reached) {
    const int32_t *lines = a->lines, *panel = a->panel;
    int64_t groups = a->groups;
    a->lines = next;
    ENTER(PRODUCTS);
    COUNT_PRODUCTS(groups);
    SUM_UP
    ENTER(FILTER);
    /* Mostly no pair reaches. Turning a mask into bits takes several times as long as computing it, so first test all
     * masks together. */
#define MASK(r, v) vcgeq_f32(upper(PRODUCT(sum_##r##_##v, v), row, r, column, v), needed(row, r, column, v))
#define MASK_ROW(r) const uint32x4_t mask_##r##_0 = MASK(r, 0), mask_##r##_1 = MASK(r, 1);
    EACH_ROW(MASK_ROW)
    uint32x4_t any = vdupq_n_u32(0);
#define JOIN_ROW(r) any = vorrq_u32(any, vorrq_u32(mask_##r##_0, mask_##r##_1));
    EACH_ROW(JOIN_ROW)
    if (vmaxvq_u32(any) == 0) return 0;
#define BITS_ROW(r) reached[r] = bits_of(mask_##r##_0) | bits_of(mask_##r##_1) << LANES;
    EACH_ROW(BITS_ROW)
    uint64_t some = 0;
    for (int r = 0; r < ROWS; r++) some |= (uint64_t)(reached[r] != 0) << r;
    return some;
}
