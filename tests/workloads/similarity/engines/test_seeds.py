"""Scores that k rows reach, known before a large tile is searched: they decide the speed and never an answer."""

import functools

import numpy as np
import pytest

from raysm.workloads.similarity.engines.plain import PlainEngine
from tests.support.dense_engines import MADE, engine_of
from tests.support.dense_rows import best_of, centred, clustered_frame, tight_rows

COLUMNS = 19
ROWS = 4250
ALONE, LARGE, ONE_SMALL = [0, 2100], [0, 2100, ROWS], [0, 600, 2750]
"""Tiles that are large enough to seed who is compared with them, of which the last panel is not full; and one small.
As few rows as show it: fourteen engines compare all their pairs."""

MOST = {2100: 60, 2750: 24, ROWS: 6}
"""For how many of them each row of so many is asked at most."""


@functools.cache
def rows_of(kind):
    if kind == "tight clusters":
        return tight_rows(ROWS, COLUMNS, 2, 1e-3)[0]
    rows = np.random.default_rng(ROWS).standard_normal((ROWS, COLUMNS))
    if kind == "ties":
        rows = np.round(rows)
        rows[::3] = rows[0]
        rows[1::5] = 0
    if kind == "against all others":
        rows = np.abs(rows)
        rows[::40] *= -1
    return rows.astype(np.float32)


@functools.cache
def frame_of(kind):
    return (clustered_frame if kind == "tight clusters" else centred)(rows_of(kind))


@functools.cache
def expected(kind, k, count=ROWS):
    return best_of(PlainEngine(), frame_of(kind), rows_of(kind)[:count], k, [0, count])


@pytest.mark.parametrize("name", [name for name in MADE if "mixed" not in name])
@pytest.mark.parametrize("kind", ["ties", "against all others", "tight clusters"])
def test_rows_of_which_nothing_is_known_find_their_best_in_large_tiles(name, kind):
    engine = engine_of(name, COLUMNS)
    # From one to what all lanes have peaks for on some machine, and more than on any.
    for k, cuts in [(1, ALONE), (6, LARGE), (24, ONE_SMALL), (60, ALONE)]:
        found = best_of(engine, frame_of(kind), rows_of(kind)[: cuts[-1]], k, cuts)
        assert np.array_equal(found, expected(kind, MOST[cuts[-1]], cuts[-1])[:, :k])
