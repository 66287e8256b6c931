/* Keys, which order pairs by score and index, and the best keys of a row; part of dense.c. */
#pragma once

#include "sides.h"

typedef struct {
    uint64_t *keys;
    const float *floors;
    int64_t k;
} best;

static inline uint64_t key_of(float score, int64_t index) {
    uint32_t bits;
    memcpy(&bits, &score, 4);
    uint32_t falling = bits >> 31 ? bits : ~bits & 0x7fffffffu;
    return (uint64_t)falling << 32 | (uint32_t)index;
}

static inline float key_score(uint64_t key) {
    uint32_t falling = (uint32_t)(key >> 32), bits = falling >> 31 ? falling : ~falling & 0x7fffffffu;
    float found;
    memcpy(&found, &bits, 4);
    return found;
}

static inline int offer(best *b, int64_t i, uint64_t key) {
    uint64_t *keys = b->keys + i * b->k;
    if (key >= keys[b->k - 1] || b->floors[i] == INFINITY) return 0;
    int64_t low = 0, high = b->k - 1;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    memmove(keys + low + 1, keys + low, (b->k - 1 - low) * sizeof *keys);
    keys[low] = key;
    return 1;
}
