"""AMX's tiles beside VNNI and NumPy: the same answers whatever shape is left over, and from every thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from raysm.workloads.similarity.engines.compiled import CompiledEngine
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.engines.protocol import Best
from raysm.workloads.similarity.kernels.build import Unavailable
from raysm.workloads.similarity.kernels.recipes import AMX, VNNI
from tests.support.dense_rows import centred, tiles


def engine(instructions, columns):
    try:
        return CompiledEngine(8, instructions, columns, mixed=False)
    except Unavailable as reason:
        pytest.skip(str(reason))


def rows_of(kind, count, columns):
    rng = np.random.default_rng([count, columns])
    if kind == "random":
        return rng.standard_normal((count, columns)).astype(np.float32)
    if kind == "largest integers":
        # All q are 127 or -127: sums are as large as they can be, of either sign.
        signs = np.where(rng.random((count, columns)) < 0.5, np.float32(-1), np.float32(1))
        signs[::3] = 1
        signs[1::3] = -1
        return signs
    some = rng.standard_normal((count, columns)) * (rng.random((count, columns)) < 0.05)
    some[::4] = some[:1]
    return some.astype(np.float32)


def answers(engine, rows, cut, threshold):
    """Return everything that is found between, and within, the rows before ``cut`` and those from there on."""
    frame, k = centred(rows), 5
    sides = [engine.prepare(tile, frame) for tile in tiles(rows, [0, cut, len(rows)])]
    best = [Best.empty(side.tile.norms, k) for side in sides]
    found = []
    for i, j in [(0, 0), (0, 1), (1, 1)]:
        engine.topk(sides[i], sides[j], best[i], best[j], same=True)
        some = engine.pairs(sides[i], sides[j], np.float32(threshold), same=True)
        found += [some.offsets, some.neighbors, some.similarities]
    return [*found, best[0].keys, best[1].keys]


@pytest.mark.parametrize("kind", ["random", "largest integers", "few elements"])
@pytest.mark.parametrize(
    ("count", "cut", "columns"),
    [(2, 1, 1), (33, 16, 63), (64, 32, 64), (65, 17, 65), (99, 31, 130), (150, 95, 300), (130, 33, 1001)],
)
def test_tiles_that_are_not_full_give_the_answers_of_vnni_and_numpy(count, cut, columns, kind):
    rows = rows_of(kind, count, columns)
    for threshold in (0.0, 0.2):
        found = answers(engine(AMX, columns), rows, cut, threshold)
        for other in (engine(VNNI, columns), PlainEngine()):
            for mine, theirs in zip(found, answers(other, rows, cut, threshold), strict=True):
                assert np.array_equal(mine, theirs)


def test_every_thread_has_its_own_tiles():
    rows = rows_of("random", 500, 200)
    expected = answers(PlainEngine(), rows, 240, 0.1)
    own = engine(AMX, 200)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: answers(own, rows, 240, 0.1), range(16)):
            assert all(np.array_equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
