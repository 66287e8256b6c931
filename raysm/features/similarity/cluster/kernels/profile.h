/* Where the time of the calls goes, for tests/benchmarks/where_time_goes.py; part of dense.c. Only with -DPROFILE: otherwise the
 * macros are empty. */
#pragma once

#ifdef PROFILE
#include <stdint.h>

/* where_time_goes.py has the same names in the same order. */
enum part { OUTSIDE, REST, PACKING, SEEDS, PRODUCTS, FILTER, LIMITS, LOOKS, CANDIDATES, SCORES, PARTS };

static struct {
    enum part now;
    uint64_t since, ticks[PARTS], products;
} profile;

/* The processor's clock, which memory accesses do not pass in the compiler's order. */
static inline uint64_t ticks(void) {
#if defined(__aarch64__)
    uint64_t now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now)::"memory");
    return now;
#else
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high)::"memory");
    return (uint64_t)high << 32 | low;
#endif
}

/* End one part and begin the next. */
static inline void enter(enum part next) {
    uint64_t at = ticks();
    profile.ticks[profile.now] += at - profile.since;
    profile.since = at, profile.now = next;
}

#define ENTER(part) enter(part)
#define COUNT_PRODUCTS(groups) profile.products += (uint64_t)ROWS * COLUMNS * (groups) * 32 / KIND

/* Write the clock, the products of two elements, and the ticks of each part, all since the library was loaded. */
__attribute__((visibility("default"))) void profiled(uint64_t *out) {
    enter(OUTSIDE);
    out[0] = profile.since, out[1] = profile.products;
    for (int at = 0; at < PARTS; at++) out[2 + at] = profile.ticks[at];
}
#else
#define ENTER(part) (void)0
#define COUNT_PRODUCTS(groups) (void)0
#endif
