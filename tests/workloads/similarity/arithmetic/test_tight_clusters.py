import numpy as np
import pytest

from raysm.workloads.similarity.arithmetic.tight_clusters import find_clusters, unit_rows
from tests.support.dense_rows import tight_rows, tiles


def clusters_of(rows):
    units = unit_rows(tiles(rows)[0])
    return find_clusters(units, units.mean(axis=0, dtype=np.float64))


@pytest.mark.parametrize(("count", "noise"), [(2, 1e-4), (3, 1e-2), (20, 0.05)])
def test_every_cluster_is_found_whole_however_tight_it_is(count, noise):
    rows, places = tight_rows(600, 100, count, noise)
    clusters = clusters_of(rows)
    units = unit_rows(tiles(rows)[0])
    means = np.stack([units[places == place].mean(axis=0) for place in range(count)])
    distances = np.linalg.norm(clusters.centres[:, None] - means, axis=2)
    assert len(clusters) == count
    assert sorted(distances.argmin(axis=1)) == list(range(count))
    assert distances.min(axis=1).max() < 1e-6
    assert (clusters.radii < 5 * noise).all()


@pytest.mark.parametrize("kind", ["gaussian", "loose clusters", "nearly alike", "all equal", "zeros", "few", "pairs"])
def test_where_no_cluster_pays_there_is_none(kind):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((500, 64)).astype(np.float32)
    if kind == "loose clusters":
        rows = rows[rng.integers(0, 10, 500)] + np.float32(0.5) * rows
    rows = {
        "nearly alike": 1 + np.float32(0.01) * rows,
        "all equal": np.ones_like(rows),
        "zeros": np.zeros_like(rows),
        "few": rows[:3] * 0 + 1,
        "pairs": np.repeat(rows[:250], 2, axis=0),
    }.get(kind, rows)
    assert clusters_of(rows) is None


def test_a_row_has_the_place_of_the_nearest_centre_or_none():
    rows, places = tight_rows(300, 80, 3, 1e-3)
    clusters = clusters_of(rows)
    centre = unit_rows(tiles(rows)[0]).mean(axis=0, dtype=np.float64)
    others = np.random.default_rng(4).standard_normal((40, 80))
    rows = np.concatenate([rows, others, np.zeros((2, 80))])
    found = clusters.nearest(tiles(rows)[0], centre)
    assert len({(mine, theirs) for mine, theirs in zip(found[:300].tolist(), places.tolist(), strict=True)}) == 3
    assert (found[:300] >= 0).all()
    assert np.count_nonzero(found[300:340] < 0) > 30
    assert found[340:].tolist() == [-1, -1]
