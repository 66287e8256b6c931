"""Cells of similar rows, trained with an exact engine."""

import numpy as np
import pytest

from raysm.workloads.similarity.cells.centroids import Comparer, cell_count, float_type, tile_of, train
from raysm.workloads.similarity.engines import Frame
from raysm.workloads.similarity.engines.plain import PlainEngine
from tests.support.dense_rows import kinds_of_rows


def comparer(columns, step=50):
    return Comparer(PlainEngine(), Frame.plain(columns), step)


def clusters(count=6, rows=40, columns=16):
    """Return rows around so many directions, and which of them each is of."""
    rng = np.random.default_rng(3)
    own = rng.permutation(count * rows) % count
    noise = 0.05 * rng.standard_normal((count * rows, columns))
    return (rng.standard_normal((count, columns))[own] + noise).astype(np.float32), own


def test_rows_of_one_cluster_have_the_same_nearest_cell():
    rows, own = clusters()
    compare = comparer(16)
    centroids = train(tile_of(rows), 24, compare)
    cells = compare.nearest(compare.ready(tile_of(rows)), centroids, 1)[:, 0]
    # More cells than clusters: one may be shared out, but none has rows of two.
    assert all(len(set(own[cells == cell])) == 1 for cell in set(cells))


def test_the_nearest_cells_are_those_that_float64_has():
    rows = kinds_of_rows(rows=120)["float64"]
    compare = comparer(24)
    centroids = train(tile_of(rows), 20, compare)
    unit, middle = (x / np.linalg.norm(x, axis=1)[:, None] for x in (rows, centroids))
    expected = np.argsort(-(unit @ middle.T), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(compare.nearest(compare.ready(tile_of(rows)), centroids, 5), expected)


def test_similar_cells_stand_beside_each_other():
    rows, own = clusters()
    compare = comparer(16)
    centroids = train(tile_of(rows), 24, compare)
    cells = compare.nearest(compare.ready(tile_of(rows)), centroids, 1)[:, 0]
    order = own[np.argsort(cells, kind="stable")]
    # Six clusters, each in few pieces; in no order at all there would be about 200 changes among 240 rows.
    assert np.count_nonzero(np.diff(order)) < 24


def test_the_same_sample_makes_the_same_cells():
    rows, _ = clusters()
    first, second = (train(tile_of(rows), 12, comparer(16, step)) for step in (50, 7))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", ["zero rows", "all zero", "all equal", "int8", "bool"])
def test_rows_of_any_kind_have_cells_that_there_are(kind):
    rows = kinds_of_rows(rows=90)[kind]
    compare = comparer(rows.shape[1])
    centroids = train(tile_of(rows), 9, compare)
    assert np.isfinite(centroids).all()
    cells = compare.nearest(compare.ready(tile_of(rows)), centroids, 4)
    assert cells.shape == (90, 4)
    assert all(len(set(row)) == 4 and set(row) <= set(range(9)) for row in cells.tolist())


def test_there_are_more_cells_of_more_rows_and_each_has_some():
    assert [cell_count(rows, rows) for rows in (1, 100, 10**4, 10**6)] == [1, 12, 400, 4000]
    assert cell_count(10**8, 80_000) == 10_000


@pytest.mark.parametrize(
    ("rows", "centroids"),
    [("float16", "float16"), ("float64", "float64"), ("int8", "float32"), ("bool", "float32"), ("int64", "float64")],
)
def test_centroids_have_the_type_that_engines_read_their_rows_as(rows, centroids):
    assert float_type(np.dtype(rows)) == centroids
