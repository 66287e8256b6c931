/* Float32 numbers beside another one, and on the safe side of a float64; part of dense.c. */
#pragma once

#include "sides.h"

/* The float32 numbers beside a finite one. */
static inline float next_down(float f) {
    int32_t bits;
    if (f == 0) return -0x1p-149f;
    memcpy(&bits, &f, 4);
    bits += f > 0 ? -1 : 1;
    memcpy(&f, &bits, 4);
    return f;
}

static inline float next_up(float f) { return -next_down(-f); }

/* Float32 numbers not below and not above x, without a branch that no processor can foresee. */
static inline float up(double x) { return (float)(x * (1 + copysign(0x1p-23, x)) + 0x1p-126); }

static inline float down(double x) { return -up(-x); }
