/* The products of ROWS rows with one panel by AMX's tiles, and the pairs that reach the limits; part of dense.c.
 *
 * Sums of int8 products are exact, and `reaching` decides last, so the same pairs pass as with VNNI. A tile multiplies
 * so fast that `reaching` for all pairs would take longer than the product, so a coarser test comes first.
 */
#define TILE_ROWS 16
#define TILE_GROUPS 16

/* Not the intrinsics, which do not tell GCC 12 what memory they read. */
#define TILE_LOAD(tile, at, stride) \
    __asm__ volatile("tileloadd (%0, %1, 1), %%tmm" #tile ::"r"(at), "r"((int64_t)(stride)) : "memory")
/* For data that is used once, and must not displace other data from the first-level cache. */
#define TILE_STREAM(tile, at, stride) \
    __asm__ volatile("tileloaddt1 (%0, %1, 1), %%tmm" #tile ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, at, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0, %1, 1)" ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)
#define TILE_ADD(sum, rows, panel) __asm__ volatile("tdpbssd %tmm" #panel ", %tmm" #rows ", %tmm" #sum)

/* Configure this thread's tiles: 16 rows of 64 bytes each. Linux must have allowed the process to use them. */
static inline void begin_products(void) {
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

/* Release the tiles: a thread that uses them takes longer to suspend. */
static inline void end_products(void) { __asm__ volatile("tilerelease"); }

/* Products of the next rows with one panel. They are computed during the comparison of the previous ones: both take
 * about the same time, on different units of the processor. */
typedef struct {
    _Alignas(64) int32_t sums[2][ROWS * COLUMNS];
    int now; /* index of the sums to compare next */
    const int32_t *panel;
    int64_t groups;
    vf error, length, shift; /* the largest of all columns */
    vf scale[VECTORS];
} ahead;

/* The coarse test of some rows, which runs while the products of others are computed. */
typedef struct {
    const int32_t *sums;
    const float *row_scale;
    const vf *scale, *column_least; /* of the columns */
    const float *least;             /* of the rows */
    uint16_t *perhaps;              /* perhaps[ROWS]: which lanes, of any vector */
} coarse;

static inline __attribute__((always_inline)) uint64_t reaches_coarsely(const coarse *c, int r, int v) {
    vf product = vf_mul(vf_of_int(vi_load(c->sums + r * COLUMNS + v * LANES)), c->scale[v]);
    return vf_reaches(vf_mul(product, vf_set1(c->row_scale[r])), vf_min(vf_set1(c->least[r]), c->column_least[v]));
}

static inline __attribute__((always_inline)) void compare_coarsely(const coarse *c, int from, int to) {
    for (int r = from; r < to; r++)
        c->perhaps[r] = (uint16_t)(reaches_coarsely(c, r, 0) | reaches_coarsely(c, r, 1));
}

/* sums[ROWS][COLUMNS]: P of ROWS rows with one panel; meanwhile run the coarse test of `c`, unless it is NULL. */
static inline __attribute__((always_inline)) void multiply_beside(const int32_t *lines, const int32_t *panel,
                                                                  int64_t groups, int32_t *sums, const coarse *c) {
    int each = (int)((ROWS * TILE_GROUPS + groups - 1) / groups), done = 0;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t g = 0; g < groups; g += TILE_GROUPS, panel += TILE_GROUPS * COLUMNS) {
        const int32_t *here = lines + GROUP_AT(g);
        TILE_STREAM(4, here, 4 * TILE_GROUPS);
        TILE_LOAD(6, panel, 4 * COLUMNS);
        TILE_LOAD(7, panel + LANES, 4 * COLUMNS);
        TILE_STREAM(5, here + TILE_ROWS * TILE_GROUPS, 4 * TILE_GROUPS);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
        if (!c) continue;
        int to = done + each < ROWS ? done + each : ROWS;
        compare_coarsely(c, done, to);
        done = to;
    }
    TILE_STORE(0, sums, 4 * COLUMNS);
    TILE_STORE(1, sums + LANES, 4 * COLUMNS);
    TILE_STORE(2, sums + TILE_ROWS * COLUMNS, 4 * COLUMNS);
    TILE_STORE(3, sums + TILE_ROWS * COLUMNS + LANES, 4 * COLUMNS);
}

/* sums[ROWS][COLUMNS]: P of ROWS rows with one panel. */
static inline void multiply(const int32_t *lines, const int32_t *panel, int64_t groups, row_part row, int32_t *sums) {
    (void)row;
    multiply_beside(lines, panel, groups, sums, NULL);
}

static inline float largest(const float *x) { return _mm512_reduce_max_ps(vf_max(vf_load(x), vf_load(x + LANES))); }

/* Begin to compare rows with a panel; `lines` are the first rows. */
static inline void begin_panel(ahead *a, const int32_t *lines, const int32_t *panel, int64_t groups,
                               column_part column) {
    a->now = 0, a->panel = panel, a->groups = groups;
    a->error = vf_set1(largest(column.error)), a->length = vf_set1(largest(column.length));
    a->shift = vf_set1(largest(column.shift));
    for (int v = 0; v < VECTORS; v++) a->scale[v] = vf_load(column.scale + v * LANES);
    ENTER(PRODUCTS);
    COUNT_PRODUCTS(groups);
    multiply_beside(lines, panel, groups, a->sums[0], NULL);
}

/* Return a lower bound of the s_r s_c P with which the sum with `most` reaches a limit.
 *
 * It is reduced by more than its own rounding and that of `reaching`'s last step, half a unit in the last place. For an
 * infinite limit the result is NaN, for which the minimum returns its second operand, infinity: no pair reaches it. */
static inline vf least_product(vf limit, vf most) {
    vf reach = _mm512_fnmadd_ps(vf_set1(0x1p-22), _mm512_abs_ps(limit), limit);
    vf least = vf_sub(reach, most);
    return vf_min(_mm512_fnmadd_ps(vf_set1(0x1p-21), _mm512_abs_ps(least), least), vf_set1(INFINITY));
}

/* Set the coarse limits: of each row for any column, and of each column for any row.
 *
 * Each step of `reaching` is monotone, also with rounding: so with the largest error, length and shift of all, every
 * pair passes that passes with its own. */
static inline void coarse_limits(const ahead *a, row_part row, column_part column, float *least, vf *column_least) {
    for (int r = 0; r < ROWS; r += LANES) {
        vf most = vf_fma(vf_load(row.error + r), a->length, vf_fma(vf_load(row.length + r), a->error, a->shift));
        vf_store(least + r, least_product(vf_load(row.limit + r), most));
    }
    vf error = vf_set1(largest(row.error)), length = vf_set1(largest(row.length));
    vf shift = vf_set1(largest(row.shift));
    for (int v = 0; v < VECTORS; v++) {
        vf most = vf_fma(length, vf_load(column.error + v * LANES), vf_load(column.shift + v * LANES));
        most = vf_fma(error, vf_load(column.length + v * LANES), most);
        column_least[v] = least_product(vf_sub(vf_load(column.limit + v * LANES), shift), most);
    }
}

/* Set the bits of `reaching` of the next rows, with the numbers `row`, and the panel; return which rows have some.
 * `lines`: the rows after them, or NULL. */
static inline uint64_t compare(ahead *a, const int32_t *lines, row_part row, column_part column, uint64_t *reached) {
    _Alignas(64) float least[ROWS];
    _Alignas(64) uint16_t perhaps[ROWS];
    vf column_least[VECTORS];
    const int32_t *sums = a->sums[a->now];
    coarse c = {sums, row.scale, a->scale, column_least, least, perhaps};
    ENTER(FILTER);
    coarse_limits(a, row, column, least, column_least);
    a->now = !a->now;
    /* The coarse test runs beside the products, and counts as a part of them. */
    ENTER(PRODUCTS);
    if (lines) {
        COUNT_PRODUCTS(a->groups);
        multiply_beside(lines, a->panel, a->groups, a->sums[a->now], &c);
    } else
        compare_coarsely(&c, 0, ROWS);
    ENTER(FILTER);
    uint32_t rows = _mm512_test_epi16_mask(vi_load(perhaps), vi_load(perhaps));
    if (!rows) return 0;
    uint64_t some = 0;
    memset(reached, 0, ROWS * sizeof *reached);
    for (; rows; rows &= rows - 1) {
        int r = __builtin_ctz(rows);
        const int32_t *at = sums + r * COLUMNS;
        reached[r] = reaching(PRODUCT(vi_load(at), 0), row, r, column, 0) |
                     reaching(PRODUCT(vi_load(at + LANES), 1), row, r, column, 1);
        some |= (uint64_t)(reached[r] != 0) << r;
    }
    return some;
}
