import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.tasks.context import Context, tile_rows
from raysm.workloads.similarity.tasks.parts import prepared_part
from raysm.workloads.similarity.tasks.preparing import prepare_block, prepared
from tests.support.dense_rows import tight_rows
from tests.support.similarity import saved, shape_of

COLUMNS = 8192


def ready(shape, blocks):
    return prepared(shape, [(block, prepared_part(prepare_block, shape, block)) for block in blocks])


def test_centre_and_clusters_are_the_same_to_the_last_bit_however_the_rows_are_cut_and_in_any_order(tmp_path):
    rows, _ = tight_rows(1200, COLUMNS, 3, 1e-3)
    shape = shape_of(saved(rows, tmp_path))
    step = tile_rows(2 * COLUMNS)
    whole = ready(shape, [RowBlock(0, 1200)])
    cut = ready(shape, [RowBlock(step, 1200), RowBlock(0, step)])
    assert np.array_equal(whole.centre, cut.centre)
    assert np.array_equal(whole.norms, cut.norms)
    unit = rows / np.linalg.norm(rows.astype(np.float64), axis=1)[:, None]
    np.testing.assert_allclose(whole.centre, unit.mean(axis=0), atol=1e-12)
    assert len(whole.clusters) == 3
    assert np.array_equal(whole.clusters.centres, cut.clusters.centres)
    assert np.array_equal(whole.clusters.radii, cut.clusters.radii)
    assert Context(matrix=whole).frame().clusters is whole.clusters


def test_the_first_row_that_cannot_be_used_is_named_whoever_finds_another(tmp_path):
    rows = np.ones((100, 3))
    rows[[40, 90]] = np.nan
    shape = shape_of(saved(rows, tmp_path))
    with pytest.raises(InvalidInput, match="row 40 of the matrix"):
        ready(shape, [RowBlock(50, 100), RowBlock(0, 50)])
