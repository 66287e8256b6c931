"""NEON's kernels, emulated: bit for bit what NumPy's engine answers, whose proof they share."""

import numpy as np
import pytest

from raysm.features.similarity.cluster.arithmetic.score import Tile, prepare
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from raysm.features.similarity.cluster.kernels.build import DOT, NEON
from tests.support import emulated
from tests.support.dense_rows import centred, clustered_frame, tight_rows

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(emulated.why_not() is not None, reason=str(emulated.why_not())),
]

K = 5
KINDS = {"int8": (8, DOT), "float32": (32, NEON)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulated")


def rows_of(kind, count, columns, dtype=np.float32):
    rng = np.random.default_rng([count, columns])
    if kind == "largest integers":
        # All q are 127 or -127: sums are as large as they can be.
        return np.where(rng.random((count, columns)) < 0.5, -1, 1).astype(dtype)
    rows = rng.standard_normal((count, columns))
    if kind == "nearly alike":
        rows = 1 + rows * 1e-3
    if kind == "ties":
        rows = np.round(rows)
        rows[::3], rows[1] = rows[0], 0
    return rows.astype(dtype)


def tile_of(rows, start=0):
    return Tile(rows=rows, norms=prepare(rows).norms, start=start)


def expected(left, right, frame, *, threshold, same):
    """Return what the engine of NumPy answers."""
    engine = PlainEngine()
    sides = [engine.prepare(tile, frame) for tile in (left, right)]
    best = [Best.empty(tile.norms, K) for tile in (left, right)]
    engine.topk(*sides, best[0], best[0] if left is right else best[1], same=same)
    scores = np.empty((len(left), len(right)), np.float32)
    engine.scores(left, right, scores)
    return (
        best[0].keys,
        best[1].keys,
        engine.pairs(*sides, np.float32(threshold), same=same),
        scores,
    )


def check(folder, kind, left, right, *, threshold=0.2, same=True, mixed=False, frame=None):
    bits, instructions = KINDS[kind]
    program = emulated.program(bits, instructions, folder)
    frame = frame or Frame.plain(left.rows.shape[1])
    found = emulated.run(
        program,
        folder,
        left,
        right,
        bits=bits,
        k=K,
        threshold=threshold,
        same=same,
        frame=frame,
        mixed=mixed,
    )
    keys, others, pairs, scores = expected(left, right, frame, threshold=threshold, same=same)
    np.testing.assert_array_equal(found.left, keys)
    if left is not right:
        np.testing.assert_array_equal(found.right, others)
    order = np.argsort(found.i, kind="stable")
    np.testing.assert_array_equal(np.bincount(found.i, minlength=len(left)), np.diff(pairs.offsets))
    np.testing.assert_array_equal(found.j[order] + right.start, pairs.neighbors)
    for similarities, one in (
        (found.similarities[order], pairs.similarities),
        (found.all_scores, scores),
    ):
        np.testing.assert_array_equal(similarities.view(np.uint32), one.view(np.uint32))
    np.testing.assert_array_equal(found.pair_scores.view(np.uint32), scores.view(np.uint32))
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 16, 33, 64, 130, 301])
def test_any_width_is_exact(folder, kind, columns):
    tile = tile_of(rows_of("random", 67, columns))
    check(folder, kind, tile, tile)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content", ["largest integers", "nearly alike", "ties"])
@pytest.mark.parametrize("mixed", [False, True])
def test_rows_that_are_hard_to_tell_apart_are_exact(folder, kind, content, mixed):
    rows = rows_of(content, 75, 96)
    tile = tile_of(rows)
    check(folder, kind, tile, tile, mixed=mixed, frame=centred(rows))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("cut", "count"), [(1, 9), (8, 24), (17, 50)])
@pytest.mark.parametrize("same", [False, True])
def test_two_tiles_are_exact_whatever_is_left_over(folder, kind, cut, count, same):
    rows = rows_of("random", count, 40)
    check(folder, kind, tile_of(rows[:cut]), tile_of(rows[cut:], start=cut), same=same)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [80, 150])
@pytest.mark.parametrize("mixed", [False, True])
def test_tight_clusters_are_exact_and_few_of_their_pairs_are_scored(folder, kind, cut, mixed):
    rows, _ = tight_rows(230, 96, 2, 1e-3)
    frame = clustered_frame(rows)
    tile = tile_of(rows)
    scores = np.empty((230, 230), np.float32)
    PlainEngine().scores(tile, tile, scores)
    # Of those of a cluster, a few.
    threshold = np.quantile(scores[np.triu_indices(230, 1)], 0.99)
    answers = check(folder, kind, tile, tile, threshold=threshold, frame=frame, mixed=mixed)
    assert answers.scored < 230 * 40
    assert answers.scored_pairs < 4 * len(answers.i)
    check(
        folder,
        kind,
        tile_of(rows[:cut]),
        tile_of(rows[cut:], start=cut),
        threshold=0.5,
        frame=frame,
        mixed=mixed,
    )
