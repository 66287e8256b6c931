"""Answers as *keys*: unsigned integers whose order is the answers' order.

The score, descending, in the high 32 bits, the neighbor's index in the low.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["EMPTY_KEY", "INDEX_BITS", "decode", "encode"]

EMPTY_KEY = np.uint64(2**64 - 1)
"""The key that comes after every other."""

INDEX_BITS = np.uint64(0xFFFFFFFF)
"""The bits of a key that hold the neighbor's index."""

SIGN = np.uint32(1 << 31)

NO_SCORE = np.uint32(2**32 - 1)


def encode(scores: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return keys that rise as scores fall, then as indices rise; without NaN or negative zero, indices below 2**32."""
    bits = scores.view(np.uint32)
    # Positive floats rise with their bits, negative ones fall: turn both round at once.
    falling = np.where(bits & SIGN, bits, ~bits & ~SIGN)
    return (falling.astype(np.uint64) << np.uint64(32)) | indices.astype(np.uint64)


def decode(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores and indices of keys; ``EMPTY_KEY`` has no score: -inf."""
    falling = (keys >> np.uint64(32)).astype(np.uint32)
    # All ones where the sign bit is clear, by which positive floats were turned round.
    positive = ~(falling.view(np.int32) >> 31).view(np.uint32)
    scores = (falling ^ (positive & ~SIGN)).view(np.float32)
    # No score has these bits, which are a NaN's.
    empty = falling == NO_SCORE
    if empty.any():
        scores[empty] = -np.inf
    return scores, (keys & INDEX_BITS).astype(np.int64)
