/* Vectors on x86-64: AVX2, AVX-512, VNNI or AMX, depending on the compiler's flags; part of dense.c. */
#include <immintrin.h>

#if defined(__AVX512F__)
#define LANES 16
#if defined(__AMX_INT8__)
#define ROWS 32 /* of one product in registers: 2 x 2 accumulators of the 8 tiles */
#define VECTORS 2
#else
#define ROWS 8 /* of one product in registers: 8 x 3 accumulators of the 32 registers */
#define VECTORS 3
#endif
typedef __m512 vf;
typedef __m512i vi;
#define vf_load _mm512_loadu_ps
#define vf_set1 _mm512_set1_ps
#define vf_fma _mm512_fmadd_ps
#define vf_mul _mm512_mul_ps
#define vf_sub _mm512_sub_ps
#define vf_min _mm512_min_ps
#define vf_max _mm512_max_ps
#define vf_store _mm512_storeu_ps
#define vf_reaches(a, b) ((uint64_t)_mm512_cmp_ps_mask(a, b, _CMP_GE_OQ))
#define vf_of_int _mm512_cvtepi32_ps
#define vi_load(p) _mm512_loadu_si512((const void *)(p))
#define vi_set1 _mm512_set1_epi32
#define vi_add _mm512_add_epi32
#define vi_madd _mm512_madd_epi16
#else
#define LANES 8
#define ROWS 6 /* 6 x 2 accumulators of the 16 registers */
#define VECTORS 2
typedef __m256 vf;
typedef __m256i vi;
#define vf_load _mm256_loadu_ps
#define vf_set1 _mm256_set1_ps
#define vf_fma _mm256_fmadd_ps
#define vf_mul _mm256_mul_ps
#define vf_sub _mm256_sub_ps
#define vf_min _mm256_min_ps
#define vf_max _mm256_max_ps
#define vf_store _mm256_storeu_ps
#define vf_reaches(a, b) ((uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)))
#define vf_of_int _mm256_cvtepi32_ps
#define vi_load(p) _mm256_loadu_si256((const __m256i *)(p))
#define vi_set1 _mm256_set1_epi32
#define vi_add _mm256_add_epi32
#define vi_madd _mm256_madd_epi16
#endif

#if KIND == 8
typedef vi sum_t;
typedef int8_t element;
/* Not the intrinsic, with which GCC 12 keeps the sums in memory. */
static inline vi accumulate(vi sum, vi panel, vi row) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(panel), "v"(row));
    return sum;
}
#elif KIND == 16
typedef vi sum_t;
typedef int16_t element;
#if defined(__AVX512F__)
#define accumulate(sum, panel, row) vi_add(sum, vi_madd(panel, row))
#else
/* Not the intrinsics: with them, GCC 12 computes several products before it adds one, runs out of registers, and keeps
 * half of the sums in memory. */
static inline vi accumulate(vi sum, vi panel, vi row) {
    vi product;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(panel), "x"(row));
    return sum;
}
#endif
#else
typedef vf sum_t;
typedef float element;
#define accumulate(sum, panel, row) vf_fma(panel, row, sum)
#endif
#define UNSIGNED ((int32_t)0x80808080)
#if defined(__AMX_INT8__)
#define PANEL_FLIP 0
#define GROUP_STEP 16 /* groups of a row in one tile: 64 bytes */
/* The part of ROWS rows that a tile loads is contiguous: 64 bytes of each row, then the next 64 of each. */
#define ROW_START(i, groups) ((i) / ROWS * ROWS * (groups) + (i) % ROWS * GROUP_STEP)
#define GROUP_AT(g) ((g) / GROUP_STEP * GROUP_STEP * ROWS + (g) % GROUP_STEP)
#else
#define PANEL_FLIP (KIND == 8 ? UNSIGNED : 0)
#define GROUP_STEP 1
#define ROW_START(i, groups) ((i) * (groups))
#define GROUP_AT(g) (g)
#endif

/* VNNI multiplies unsigned by signed numbers: one side is q + 128, and its sums begin with the correction for that. */
#define FIRST_OF(sum) (KIND == 8 ? (int32_t)(-128 * (sum)) : 0)

/* Convert eight float16 numbers, or one. */
static inline f8 widen_halves(const char *at) { return (f8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)at)); }

#if defined(__AVX512F__)
/* Intrinsics, because GCC 12 would convert both halves separately and join them again. */
#define widen8(x) ((v8)_mm512_cvtps_pd((__m256)(x)))
#define truncate8(x) ((i8)_mm512_cvttpd_epi32((__m512d)(x)))
#endif

static inline double widen_half(const char *at) { return _cvtsh_ss(*(const uint16_t *)at); }

#if KIND == 8
/* q_i . q_j, and q_i . q'_j + q'_i . q_j, of two rows with their q in a and b, and their q' in more_a and more_b. */
static inline void closer(const int32_t *a, const int32_t *b, const int32_t *more_a, const int32_t *more_b,
                          int64_t groups, int64_t first_i, int64_t first_j, double *whole_sum, double *rest) {
    int64_t g = 0, both = first_i + first_j;
    vi flip = vi_set1(UNSIGNED), whole = vi_set1(0), between = whole, too = whole;
#define LOOK(read)                                                                \
    {                                                                             \
        vi q_a = read(a + GROUP_AT(g)), q_b = read(b + GROUP_AT(g));              \
        whole = accumulate(whole, _mm512_xor_si512(q_b, flip), q_a);              \
        between = accumulate(between, _mm512_xor_si512(read(more_b + g), flip), q_a); \
        too = accumulate(too, _mm512_xor_si512(read(more_a + g), flip), q_b);     \
    }
#define READ_SOME(at) _mm512_maskz_loadu_epi32(there, at)
    for (; g + LANES <= groups; g += LANES) LOOK(vi_load)
    if (g < groups) {
        __mmask16 there = (__mmask16)((1u << (groups - g)) - 1);
        LOOK(READ_SOME)
    }
    *whole_sum = (double)(_mm512_reduce_add_epi32(whole) + first_i);
    *rest = (double)(_mm512_reduce_add_epi32(vi_add(between, too)) + both);
}
#endif
