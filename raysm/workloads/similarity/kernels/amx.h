/* The products of ROWS rows with one panel by AMX's tiles, and who reaches the limits; part of dense.c.
 *
 * Sums of int8 products are exact, and the last word is `reaching`'s: those that pass are those that VNNI finds. A tile
 * multiplies so fast that this test, for all pairs, would take longer than the product; a coarser one goes before it.
 */
#define TILE_ROWS 16
#define TILE_GROUPS 16

/* Not the intrinsics: GCC 12's do not tell the compiler what memory they read. */
#define TILE_LOAD(tile, at, stride) \
    __asm__ volatile("tileloadd (%0, %1, 1), %%tmm" #tile ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, at, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0, %1, 1)" ::"r"(at), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %tmm" #tile)
#define TILE_ADD(sum, rows, panel) __asm__ volatile("tdpbssd %tmm" #panel ", %tmm" #rows ", %tmm" #sum)

/* Shape this thread's tiles: each of 16 rows of 64 bytes. Linux must have let the process use them. */
static inline void begin_products(void) {
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    __asm__ volatile("ldtilecfg %0" ::"m"(shape));
}

/* Let go of the tiles: a thread that holds some costs more to suspend. */
static inline void end_products(void) { __asm__ volatile("tilerelease"); }

static inline void multiply(const int32_t *lines, const int32_t *panel, int64_t groups, int32_t *sums) {
    const int32_t *more = lines + TILE_ROWS * groups;
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
    for (int64_t g = 0; g < groups; g += TILE_GROUPS, panel += TILE_GROUPS * COLUMNS) {
        TILE_LOAD(4, lines + g, 4 * groups);
        TILE_LOAD(6, panel, 4 * COLUMNS);
        TILE_LOAD(7, panel + LANES, 4 * COLUMNS);
        TILE_LOAD(5, more + g, 4 * groups);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
    }
    TILE_STORE(0, sums, 4 * COLUMNS);
    TILE_STORE(1, sums + LANES, 4 * COLUMNS);
    TILE_STORE(2, sums + TILE_ROWS * COLUMNS, 4 * COLUMNS);
    TILE_STORE(3, sums + TILE_ROWS * COLUMNS + LANES, 4 * COLUMNS);
}

static inline float largest(const float *x) { return _mm512_reduce_max_ps(vf_max(vf_load(x), vf_load(x + LANES))); }

static inline float smallest(const float *x) { return _mm512_reduce_min_ps(vf_min(vf_load(x), vf_load(x + LANES))); }

/* Set least[r] so that s_c P below it does not reach, whichever column it is.
 *
 * Each step of `reaching` is monotone, rounded or not: with the largest error, length and shift and the smallest limit
 * of all columns, it lets through whoever passes with its own. The quotient is made smaller by more than its rounding,
 * and by that of `reaching`'s last step, half a unit in the last place of what reaches. */
static inline void coarse_limits(row_part row, column_part column, float *least) {
    vf error = vf_set1(largest(column.error)), length = vf_set1(largest(column.length));
    vf shift = vf_set1(largest(column.shift)), limit = vf_set1(smallest(column.limit));
    for (int r = 0; r < ROWS; r += LANES) {
        vf most = vf_fma(vf_load(row.error + r), length, vf_fma(vf_load(row.length + r), error, shift));
        vf reach = vf_min(vf_load(row.limit + r), vf_sub(limit, vf_load(row.shift + r)));
        reach = _mm512_fnmadd_ps(vf_set1(0x1p-22), _mm512_abs_ps(reach), reach);
        vf quotient = _mm512_div_ps(vf_sub(reach, most), vf_load(row.scale + r));
        _mm512_storeu_ps(least + r, _mm512_fnmadd_ps(vf_set1(0x1p-21), _mm512_abs_ps(quotient), quotient));
    }
}

/* Set the bits of `reaching` of ROWS rows with one panel; return those of any row. */
static inline uint64_t compare(const int32_t *lines, const int32_t *panel, int64_t groups, row_part row,
                               column_part column, uint64_t *reached) {
    _Alignas(64) int32_t sums[ROWS * COLUMNS];
    _Alignas(64) float least[ROWS];
    _Alignas(64) uint32_t perhaps[ROWS];
    multiply(lines, panel, groups, sums);
    coarse_limits(row, column, least);
    vf scale_0 = vf_load(column.scale), scale_1 = vf_load(column.scale + LANES);
    for (int r = 0; r < ROWS; r++) {
        vf limit = vf_set1(least[r]);
        vf product_0 = vf_mul(vf_of_int(vi_load(sums + r * COLUMNS)), scale_0);
        vf product_1 = vf_mul(vf_of_int(vi_load(sums + r * COLUMNS + LANES)), scale_1);
        perhaps[r] = (uint32_t)(vf_reaches(product_0, limit) | vf_reaches(product_1, limit) << LANES);
    }
    uint32_t rows = 0;
    for (int r = 0; r < ROWS; r += LANES)
        rows |= (uint32_t)_mm512_test_epi32_mask(vi_load(perhaps + r), vi_load(perhaps + r)) << r;
    if (!rows) return 0;
    uint64_t any = 0;
    memset(reached, 0, ROWS * sizeof *reached);
    for (; rows; rows &= rows - 1) {
        int r = __builtin_ctz(rows);
        const int32_t *at = sums + r * COLUMNS;
        reached[r] = reaching(PRODUCT(vi_load(at), 0), row, r, column, 0) |
                     reaching(PRODUCT(vi_load(at + LANES), 1), row, r, column, 1);
        any |= reached[r];
    }
    return any;
}
