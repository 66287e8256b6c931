/* Neighboring float32 numbers, and safe rounding of float64 to float32; part of dense.c. */
#pragma once

#include "sides.h"

/* The next smaller and the next larger float32 number. */
static inline float next_down(float f) {
    int32_t bits;
    if (f == 0) return -0x1p-149f;
    memcpy(&bits, &f, 4);
    bits += f > 0 ? -1 : 1;
    memcpy(&f, &bits, 4);
    return f;
}

static inline float next_up(float f) { return -next_down(-f); }

/* Return a float32 number not below, or not above, x; without branches, which would be unpredictable. */
static inline float up(double x) { return (float)(x * (1 + copysign(0x1p-23, x)) + 0x1p-126); }

static inline float down(double x) { return -up(-x); }
