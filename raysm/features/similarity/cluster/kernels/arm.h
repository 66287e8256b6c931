/* Vectors on aarch64: NEON, with dot products of int8 or with float32; part of dense.c. */
#include <arm_neon.h>

#define LANES 4
#define ROWS 8 /* of one product in registers: 8 x 2 sums, four groups of 8 rows, and 2 of the panel: 26 of the 32 */
#define VECTORS 2
typedef float32x4_t vf;
typedef int32x4_t vi;
#define vf_load vld1q_f32
#define vf_set1 vdupq_n_f32
#define vf_fma(a, b, c) vfmaq_f32(c, a, b)
#define vf_mul vmulq_f32
#define vf_sub vsubq_f32
#define vf_min vminq_f32
#define vf_max vmaxq_f32
#define vf_store(p, a) vst1q_f32(p, a)
#define vf_of_int vcvtq_f32_s32
#define vi_load(p) vld1q_s32(p)
#define vi_set1 vdupq_n_s32

static inline uint64_t bits_of(uint32x4_t mask) {
    const uint32x4_t bits = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(mask, bits));
}

#define vf_reaches(a, b) bits_of(vcgeq_f32(a, b))

#if KIND == 8
typedef vi sum_t;
typedef int8_t element;
#define accumulate(sum, panel, row) vdotq_s32(sum, vreinterpretq_s8_s32(panel), vreinterpretq_s8_s32(row))
#define accumulate_lane(sum, panel, row, lane) \
    vdotq_laneq_s32(sum, vreinterpretq_s8_s32(panel), vreinterpretq_s8_s32(row), lane)
#elif KIND == 32
typedef vf sum_t;
typedef float element;
#define accumulate(sum, panel, row) vf_fma(panel, row, sum)
#define accumulate_lane(sum, panel, row, lane) vfmaq_laneq_f32(sum, panel, row, lane)
#else
#error "NEON has no sums of int16 products that would be faster than float32"
#endif
#define PANEL_FLIP 0 /* both sides are signed */
#define FIRST_OF(sum) 0
#define GROUP_STEP 4 /* groups of a row in one register */
#define ROW_START(i, groups) ((i) * (groups))
#define GROUP_AT(g) (g)

/* Convert eight float16 numbers, or one. */
static inline f8 widen_halves(const char *at) {
    float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8((const uint8_t *)at));
    vf wide[2] = {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
    f8 all;
    memcpy(&all, wide, sizeof all);
    return all;
}

static inline double widen_half(const char *at) { return *(const __fp16 *)at; }

#if KIND == 8
/* q_i . q_j, and q_i . q'_j + q'_i . q_j, of two rows with their q in a and b, and their q' in more_a and more_b. */
static inline void closer(const int32_t *a, const int32_t *b, const int32_t *more_a, const int32_t *more_b,
                          int64_t groups, int64_t first_i, int64_t first_j, double *whole_sum, double *rest) {
    vi whole = vi_set1(0), between = whole;
    (void)first_i, (void)first_j;
    for (int64_t g = 0; g < groups; g += GROUP_STEP) {
        vi q_a = vi_load(a + g), q_b = vi_load(b + g);
        whole = accumulate(whole, q_b, q_a);
        between = accumulate(between, vi_load(more_b + g), q_a);
        between = accumulate(between, vi_load(more_a + g), q_b);
    }
    *whole_sum = vaddvq_s32(whole);
    *rest = vaddvq_s32(between);
}
#endif
