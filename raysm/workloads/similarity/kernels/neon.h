/* The products of ROWS rows with one panel by NEON, and who reaches the limits; part of dense.c.
 *
 * A row's register holds four of its groups, and each instruction takes one of them by its lane: so a group costs no
 * instruction to spread it, and 16 of them multiply what 2 loads of the panel brought. */
#define EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

/* Set the bits of `reaching` of ROWS rows with one panel; return those of any row. */
static inline uint64_t compare(const int32_t *lines, const int32_t *panel, int64_t groups, row_part row,
                               column_part column, uint64_t *reached) {
#define DECLARE_ROW(r) sum_t sum_##r##_0 = BEGIN(r), sum_##r##_1 = sum_##r##_0;
    EACH_ROW(DECLARE_ROW)
    for (int64_t g = 0; g < groups; g += GROUP_STEP) {
#define LOAD_ROW(r) sum_t line_##r = READ(lines + r * groups + g, 0);
        EACH_ROW(LOAD_ROW)
#define ADD_ROW(r)                                                          \
    sum_##r##_0 = accumulate_lane(sum_##r##_0, part_0, line_##r, LANE);     \
    sum_##r##_1 = accumulate_lane(sum_##r##_1, part_1, line_##r, LANE);
#define STEP(...)                                                           \
    {                                                                       \
        sum_t part_0 = READ(panel, 0), part_1 = READ(panel, 1);             \
        EACH_ROW(ADD_ROW)                                                   \
        panel += COLUMNS;                                                   \
    }
#define LANE 0
        STEP()
#undef LANE
#define LANE 1
        STEP()
#undef LANE
#define LANE 2
        STEP()
#undef LANE
#define LANE 3
        STEP()
#undef LANE
    }
    uint64_t any = 0;
#define REACH_ROW(r)                                                              \
    reached[r] = reaching(PRODUCT(sum_##r##_0, 0), row, r, column, 0) |           \
                 reaching(PRODUCT(sum_##r##_1, 1), row, r, column, 1);            \
    any |= reached[r];
    EACH_ROW(REACH_ROW)
    return any;
}
