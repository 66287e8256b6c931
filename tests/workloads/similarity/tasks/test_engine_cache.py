import subprocess
import sys

import numpy as np
import pytest

from raysm.workloads.similarity.tasks import context

MEASURE = """
import sys
from pathlib import Path
import numpy as np
from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.tasks.context import engine_cache_of
from raysm.workloads.similarity.reading.matrix import Place, Source
from raysm.workloads.similarity.tasks.parts import peak_memory_bytes
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.modes.topk import TileBounds, TopK
from raysm.workloads.similarity.tasks.parts import TileTask
from tests.support.similarity import context_of
source = Source(channel="matrix", place=Place(Path(sys.argv[1]), Path("unused"), "algo-1"))
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
print(peak_memory_bytes() - before, engine_cache_of(context).held_bytes)
"""

ROWS, COLUMNS = 24_000, 512


@pytest.mark.long
def test_a_task_takes_the_memory_that_the_model_says(tmp_path):
    np.save(tmp_path / "m.npy", np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "m.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    taken, held = map(int, done.stdout.split())
    assert held <= max(2 * 8000 * COLUMNS * 8, context.KEPT_BYTES)
    # All rows are read in the end, and stay mapped while there is room.
    assert taken <= 1.2 * (ROWS * COLUMNS * 4 + held + 2 * 8000 * (3 * 8 * 10 + 8))
