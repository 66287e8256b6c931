"""Matrices that are hard for engines, cut into tiles, and what float64 says of them; with NumPy alone."""

from dataclasses import replace

import numpy as np

from raysm.features.similarity.cluster.arithmetic.keys import decode, encode
from raysm.features.similarity.cluster.arithmetic.score import Tile, prepare, scale_rows
from raysm.features.similarity.cluster.arithmetic.tight_clusters import find_clusters, unit_rows
from raysm.features.similarity.cluster.engines.protocol import Best, Frame, unit_sum
from tests.support.reference import neighbors, pairs, score_rows


def kinds_of_rows(seed=0, rows=150, columns=24):
    """Return matrices by name, each hard in its own way."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((rows, columns))
    one_huge = normal.astype(np.float32)
    one_huge[:, 0] *= 1e20
    zeros = normal.copy()
    zeros[::3] = 0
    near_ties = np.repeat(normal[: rows // 10], 10, axis=0) * (
        1 + 1e-7 * rng.standard_normal((rows // 10 * 10, 1))
    )
    signs = np.where(rng.random((rows, columns)) < 0.5, -1.0, 1.0)
    return {
        "float32": normal.astype(np.float32),
        "float64": normal,
        "float16": normal.astype(np.float16),
        "int8": (normal * 10).astype(np.int8),
        "uint8": np.abs(normal * 50).astype(np.uint8),
        "int64": (normal * 2**50).astype(np.int64),
        "bool": normal > 1,
        "all equal": np.ones((rows, columns), dtype=np.float32),
        "nearly all equal": (1 + 0.01 * normal).astype(np.float32),
        "duplicates": np.repeat(normal[: rows // 10], 10, axis=0),
        "near ties": near_ties,
        "scaled copies": normal[:1] * np.exp2(rng.integers(-20, 20, (rows, 1))).astype(np.float64),
        "zero rows": zeros,
        "all zero": np.zeros((rows, columns)),
        "unit vectors": np.eye(rows, dtype=np.float32),
        "few elements": (normal * (rng.random(normal.shape) < 0.1)).astype(np.float32),
        "alternating signs": signs,
        "alternating signs and noise": signs + 1e-9 * normal,
        "one huge component": one_huge,
        "denormal": (normal * 1e-44).astype(np.float32),
        "extreme magnitudes": normal
        * np.exp2(rng.integers(-1000, 900, (rows, 1))).astype(np.float64),
        "one column": normal[:, :1],
    }


def tiles(rows, cuts=None, start=0):
    """Cut rows into tiles at ``cuts``, or not at all; the first has the number ``start``."""
    found = prepare(rows)
    ready = scale_rows(rows, found.exponents)
    cuts = cuts or [0, len(rows)]
    return [
        Tile(start=start + a, rows=ready[a:b], norms=found.norms[a:b])
        for a, b in zip(cuts, cuts[1:], strict=False)
    ]


def centred(rows):
    return Frame(centre=unit_sum(tiles(rows)[0]) / len(rows))


def tight_rows(rows, columns, count, noise, seed=0):
    """Return rows[n, D] in so many clusters, ``noise`` wide, beside centres of length sqrt(D); and places[n]."""
    rng = np.random.default_rng(seed)
    centres, places = rng.standard_normal((count, columns)), rng.integers(0, count, rows)
    return (centres[places] + noise * rng.standard_normal((rows, columns))).astype(
        np.float32
    ), places


def clustered_frame(rows):
    """Return the frame that a run has: about the mean of the unit rows, with their tight clusters."""
    frame = centred(rows)
    return replace(frame, clusters=find_clusters(unit_rows(tiles(rows)[0])[:1024], frame.centre))


def best_of(engine, frame, rows, k, cuts, lower_bounds=None):
    """Return the keys of all rows from the tiles of the triangle, each looked at once."""
    sides = [engine.prepare(tile, frame) for tile in tiles(rows, cuts)]
    best = [
        Best.empty(side.tile.norms, k, None if lower_bounds is None else lower_bounds[a:b])
        for side, a, b in zip(sides, cuts, cuts[1:], strict=False)
    ]
    for i in range(len(sides)):
        for j in range(i, len(sides)):
            engine.topk(sides[i], sides[j], best[i], best[j], same=True)
    return np.concatenate([part.keys for part in best])


def expected_keys(rows, k):
    indices, scores = neighbors(rows, k)
    return encode(scores, indices)


def assert_pairs(engine, frame, rows, cuts, threshold):
    """Assert that an engine finds the pairs that float64 finds, whichever of the tiles between the cuts they are in."""
    parts = tiles(rows, cuts)
    sides = [engine.prepare(part, frame) for part in parts]
    found = []
    for i in range(len(sides)):
        for j in range(i, len(sides)):
            some = engine.pairs(sides[i], sides[j], np.float32(threshold), same=True)
            row = np.repeat(np.arange(len(parts[i])) + parts[i].start, np.diff(some.offsets))
            found += zip(row.tolist(), some.neighbors.tolist(), some.similarities, strict=True)
    assert sorted(found) == pairs(rows, np.float32(threshold))


def assert_exact(engine, frame, rows, k):
    """Assert that an engine finds the pairs of every threshold, and the neighbors, whatever is known before."""
    side = engine.prepare(tiles(rows)[0], frame)
    scores = score_rows(rows, range(len(rows)))
    # Each score is a threshold in turn: a bound that is too small by a hair loses the pair that it
    # belongs to.
    for threshold in np.unique(scores):
        found = engine.pairs(side, side, threshold, same=True)
        assert len(found.neighbors) == np.count_nonzero(np.triu(scores >= threshold, 1))
    expected = expected_keys(rows, k)
    some = side.tile.norms > 0
    for known in (None, decode(expected[:, -1])[0]):
        best = Best.empty(side.tile.norms, k, known)
        engine.topk(side, side, best, best, same=True)
        assert np.array_equal(best.keys[some], expected[some])
