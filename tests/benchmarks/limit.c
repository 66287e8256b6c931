/* How fast this processor multiplies and adds at best: the instructions of the kernels, over operands that are in
 * registers, or with AMX in the first-level cache. Compiled as the kernels are, once for each kind of product.
 */
#include "products.h"

/* As many sums as keep every unit busy: each waits for itself some cycles, and a processor begins up to four a cycle. */
#if defined(__AVX2__) && !defined(__AVX512F__)
#define EACH_SUM(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#else
#define EACH_SUM(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#endif

#if defined(__aarch64__)
#define KEEP(a, b) __asm__ volatile("" : "+w"(a), "+w"(b))
#elif defined(__x86_64__)
#define KEEP(a, b) __asm__ volatile("" : "+v"(a), "+v"(b))
#endif

/* Multiply and add `steps` times; return how often two elements were multiplied, and their product added, in each. */
EXPORT int64_t multiply_and_add(int64_t steps) {
#if defined(__AMX_INT8__)
    _Alignas(64) static const int32_t lines[ROWS * TILE_GROUPS], panel[TILE_GROUPS * COLUMNS];
    begin_products();
    for (int64_t step = 0; step < steps; step++) {
        TILE_LOAD(4, lines, 4 * TILE_GROUPS);
        TILE_LOAD(6, panel, 4 * COLUMNS);
        TILE_LOAD(7, panel + LANES, 4 * COLUMNS);
        TILE_LOAD(5, lines + TILE_ROWS * TILE_GROUPS, 4 * TILE_GROUPS);
        TILE_ADD(0, 4, 6);
        TILE_ADD(1, 4, 7);
        TILE_ADD(2, 5, 6);
        TILE_ADD(3, 5, 7);
    }
    end_products();
    return ROWS * COLUMNS * TILE_GROUPS * 4;
#else
    /* KEEP: for all that a compiler knows, those are other numbers now. Of equal ones it would make one product. */
    float one = 1e-3f;
    int32_t ones = 0x00010001;
    __asm__ volatile("" : "+m"(one), "+m"(ones));
#if KIND == 32
    sum_t left = vf_set1(one), right = left;
#else
    sum_t left = vi_set1(ones), right = left;
#endif
#define BEGIN_SUM(n) sum_t sum_##n = left; KEEP(sum_##n, left);
    EACH_SUM(BEGIN_SUM)
    int64_t sums = 0;
#define COUNT(n) sums++;
    EACH_SUM(COUNT)
#define ADD_TO(n) KEEP(left, right); sum_##n = accumulate(sum_##n, left, right);
    for (int64_t step = 0; step < steps; step++) { EACH_SUM(ADD_TO) }
#define USE(n) KEEP(sum_##n, left);
    EACH_SUM(USE)
    return sums * LANES * (int64_t)(4 / sizeof(element));
#endif
}
