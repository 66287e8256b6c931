import subprocess
import sys

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.features.similarity.cluster.preparation import make_operand, prepare_block
from raysm.features.similarity.cluster.reading.matrix import Location, Source
from raysm.features.similarity.cluster.shards import report_files
from raysm.features.similarity.cluster.tasks import (
    KEPT_BYTES,
    Context,
    RowShape,
    run_preparation,
    tile_rows,
)
from raysm.instance.work.row_blocks import RowBlock
from tests.support.dense_rows import tight_rows
from tests.support.similarity import saved, shape_of


def shape(source, rows, ranges=None):
    return RowShape(source=source, rows=rows, columns=2, dtype=np.dtype(np.float64), ranges=ranges)


def test_an_instance_with_another_matrix_is_named(tmp_path):
    source = saved(np.ones((5, 2)), tmp_path)
    with pytest.raises(InvalidInput, match=r"algo-1 .*\(5, 2\).*\(6, 2\)"):
        shape(source, 6).open()


def test_an_instance_whose_share_has_changed_is_named(tmp_path):
    source = saved(np.ones((5, 2)), tmp_path)
    with pytest.raises(InvalidInput, match="algo-1 .* 5 rows.* 4"):
        shape(source, 9, {"algo-1": RowBlock(3, 7)}).open()


def test_an_instance_whose_files_have_no_rows_reports_them_and_has_none_to_read(tmp_path):
    (tmp_path / "share").mkdir()
    np.save(tmp_path / "share" / "part-3.npy", np.empty((0, 2)))
    source = Source(
        channel="matrix", sharded=True, location=Location(tmp_path / "share", tmp_path, "algo-3")
    )
    assert [(file.name, file.rows, file.columns) for file in report_files(source).files] == [
        ("part-3.npy", 0, 2)
    ]
    assert shape(source, 9, {"algo-1": RowBlock(0, 9)}).open().some(10) is None


COLUMNS = 8192


def ready(shape, blocks):
    return make_operand(
        shape, [(block, run_preparation(prepare_block, shape, block)) for block in blocks]
    )


def test_centre_and_clusters_are_the_same_to_the_last_bit_however_the_rows_are_cut_and_in_any_order(
    tmp_path,
):
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
    with pytest.raises(InvalidInput, match="row 40 "):
        ready(shape, [RowBlock(50, 100), RowBlock(0, 50)])


MEASURE = """
import sys
from pathlib import Path
import numpy as np
from raysm.instance.work.row_blocks import RowBlock
from raysm.features.similarity.cluster.tasks import get_engine_cache
from raysm.features.similarity.cluster.reading.matrix import Location, Source
from raysm.features.similarity.cluster.tasks import peak_memory_bytes
from raysm.features.similarity.cluster.tiling import triangle
from raysm.features.similarity.cluster.modes.topk import TileBounds, TopK
from raysm.features.similarity.cluster.tasks import TileTask
from tests.support.similarity import context_of
source = Source(channel="matrix", location=Location(Path(sys.argv[1]), Path("unused"), "algo-1"))
context = context_of(source)
def run(tile):
    lower_bounds = np.full(context.matrix.rows, -np.inf, dtype=np.float32)
    rows, columns = tile.rows, tile.columns
    known = TileBounds(lower_bounds[rows.start : rows.stop], lower_bounds[columns.start : columns.stop])
    TopK(10).compare(context, TileTask(tile, True, known))
for tile in triangle(40, 20):
    run(tile)
before = peak_memory_bytes()
for tile in triangle(context.matrix.rows, 8000):
    run(tile)
print(peak_memory_bytes() - before, get_engine_cache(context).held_bytes)
"""

HEIGHT, WIDTH = 24_000, 512


@pytest.mark.long
def test_a_task_takes_the_memory_that_the_model_says(tmp_path):
    np.save(
        tmp_path / "m.npy",
        np.random.default_rng(0).standard_normal((HEIGHT, WIDTH), dtype=np.float32),
    )
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "m.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    taken, held = map(int, done.stdout.split())
    assert held <= max(2 * 8000 * WIDTH * 8, KEPT_BYTES)
    # All rows are read in the end, and stay mapped while there is room.
    assert taken <= 1.2 * (HEIGHT * WIDTH * 4 + held + 2 * 8000 * (3 * 8 * 10 + 8))
