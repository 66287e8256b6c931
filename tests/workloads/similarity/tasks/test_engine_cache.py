import subprocess
import sys

import numpy as np
import pytest

from raysm.workloads.row_blocks import RowBlock
from raysm.workloads.similarity.engines.protocol import PreparedTile
from raysm.workloads.similarity.tasks import context
from raysm.workloads.similarity.tasks.context import EngineCache
from tests.support.similarity import context_of, saved

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


class Measuring:
    """An engine whose sides say that they are large, and which looks at what is held when it makes one."""

    def __init__(self, made, nbytes):
        self.made, self.nbytes, self.held = made, nbytes, []

    def prepare(self, tile, frame):
        self.held.append(self.made.held_bytes)
        return PreparedTile(tile=tile, prepared=None, nbytes=self.nbytes)


def test_room_is_made_before_there_is_one_more_operand(tmp_path):
    made = EngineCache(context_of(saved(np.eye(60), tmp_path)))
    made.engine = Measuring(made, context.KEPT_BYTES // 4)
    cuts = [RowBlock(start, start + 10) for start in range(0, 60, 10)]
    for cut in cuts:
        made.operand(cut)
    assert max(made.engine.held) + made.engine.nbytes <= context.KEPT_BYTES
    again = len(made.engine.held)
    made.operand(cuts[-1])
    made.operand(cuts[-2])
    assert len(made.engine.held) == again


def test_the_two_operands_of_a_tile_are_kept_however_large(tmp_path):
    made = EngineCache(context_of(saved(np.eye(60), tmp_path)))
    made.engine = Measuring(made, 2 * context.KEPT_BYTES)
    left, right = RowBlock(0, 30), RowBlock(30, 60)
    assert made.operand(left) is not made.operand(right)
    assert made.operand(left) is made.operand(left)
    assert len(made.engine.held) == 2
