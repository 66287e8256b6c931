import subprocess
import sys

import numpy as np
import pytest

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.engines.protocol import PreparedTile
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.tasks import engine_cache
from raysm.workloads.similarity.tasks.engine_cache import EngineCache, engine_cache_of, engine_name
from tests.support.similarity import context_of, saved, two_matrices

MEASURE = """
import sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.tasks.engine_cache import engine_cache_of
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.tasks.parts import peak_memory_bytes
from raysm.workloads.similarity.arithmetic.tiling import triangle
from raysm.workloads.similarity.modes.topk import TileBounds, TopK
from raysm.workloads.similarity.tasks.parts import FreeTile
from tests.support.similarity import context_of
source = Source(channel="matrix", place=Place(Path(sys.argv[1]), Path("unused"), "algo-1"))
context = replace(context_of(source), engine=sys.argv[2] or None)
def run(tile):
    lower_bounds = np.full(context.matrix.rows, -np.inf, dtype=np.float32)
    rows, columns = tile.rows, tile.columns
    known = TileBounds(lower_bounds[rows.start : rows.stop], lower_bounds[columns.start : columns.stop])
    TopK(10).compare(context, FreeTile(tile, True, known))
for tile in triangle(40, 20):
    run(tile)
before = peak_memory_bytes()
for tile in triangle(context.matrix.rows, 8000):
    run(tile)
print(peak_memory_bytes() - before, engine_cache_of(context).held_bytes)
"""

ROWS, COLUMNS = 24_000, 512


@pytest.fixture(scope="module")
def normal():
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)


@pytest.mark.parametrize(("engine", "kind"), [("", "normal"), ("NumPy", "normal"), ("", "nearly all equal")])
def test_a_task_takes_the_memory_that_the_model_says(engine, kind, normal, tmp_path):
    # A fifth of the pairs: NumPy takes ten times as long for each.
    rows = normal[:10_000] if engine else normal
    matrix = rows if kind == "normal" else 1 + np.float32(0.01) * rows
    np.save(tmp_path / "m.npy", matrix)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "m.npy"), engine]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=400)
    taken, held = map(int, done.stdout.split())
    one_side = 8000 * COLUMNS * 8
    assert held <= max(2 * one_side, engine_cache.KEPT_BYTES)
    # All rows are read in the end, and stay mapped while there is room.
    model = matrix.nbytes + held + 2 * 8000 * (3 * 8 * 10 + 8) + (engine_cache.ENGINE_BYTES if engine else 0)
    assert taken <= 1.2 * model


def test_operands_are_made_once(tmp_path):
    made = EngineCache(context_of(saved(np.random.default_rng(0).standard_normal((300, 8)), tmp_path)))
    cuts = [RowBlock(0, 100), RowBlock(100, 200), RowBlock(200, 300)]
    sides = [made.operand(cut) for cut in cuts]
    assert all(made.operand(cut) is side for cut, side in zip(cuts, sides, strict=True))
    assert made.held_bytes >= sum(side.nbytes for side in sides)


class Measuring:
    """An engine whose sides say that they are large, and which looks at what is held when it makes one."""

    def __init__(self, made, nbytes):
        self.made, self.nbytes, self.held = made, nbytes, []

    def prepare(self, tile, frame):
        self.held.append(self.made.held_bytes)
        return PreparedTile(tile=tile, prepared=None, nbytes=self.nbytes)


def test_room_is_made_before_there_is_one_more_operand(tmp_path):
    made = EngineCache(context_of(saved(np.eye(60), tmp_path)))
    made.engine = Measuring(made, engine_cache.KEPT_BYTES // 4)
    cuts = [RowBlock(start, start + 10) for start in range(0, 60, 10)]
    for cut in cuts:
        made.operand(cut)
    assert max(made.engine.held) + made.engine.nbytes <= engine_cache.KEPT_BYTES
    again = len(made.engine.held)
    made.operand(cuts[-1])
    made.operand(cuts[-2])
    assert len(made.engine.held) == again


def test_room_is_made_for_the_copy_of_rows_that_cannot_be_mapped_as_well(tmp_path):
    for name in ("a", "b"):
        np.save(tmp_path / name, np.ones((30, 200_000)))
    made = EngineCache(context_of(Source(channel="matrix", place=Place(tmp_path, tmp_path / "scratch", "algo-1"))))
    made.engine = Measuring(made, engine_cache.KEPT_BYTES // 4)
    for start in (0, 10, 20):
        made.operand(RowBlock(start, start + 10))
    # Rows of two files are put together: 16 MB.
    copied = made.operand(RowBlock(25, 35)).tile.rows.nbytes
    assert made.engine.held[-1] + made.engine.nbytes + copied <= engine_cache.KEPT_BYTES


def test_the_two_operands_of_a_tile_are_kept_however_large(tmp_path):
    made = EngineCache(context_of(saved(np.eye(60), tmp_path)))
    made.engine = Measuring(made, 2 * engine_cache.KEPT_BYTES)
    left, right = RowBlock(0, 30), RowBlock(30, 60)
    assert made.operand(left) is not made.operand(right)
    assert made.operand(left) is made.operand(left)
    assert len(made.engine.held) == 2


def test_rows_of_two_matrices_are_not_taken_for_each_other(tmp_path):
    made = EngineCache(two_matrices(np.eye(4), np.ones((4, 4)), tmp_path))
    cut = RowBlock(0, 4)
    assert made.operand(cut).tile.rows.sum() == 16
    assert made.operand(cut, queries=True).tile.rows.sum() == 4


def test_a_process_has_the_engine_of_its_last_context_alone(tmp_path):
    first = context_of(saved(np.eye(4), tmp_path / "first"))
    second = context_of(saved(np.eye(5), tmp_path / "second"))
    assert engine_name(first) == ""
    assert engine_cache_of(first) is engine_cache_of(first)
    assert engine_name(first) == engine_cache_of(first).engine.name
    engine_cache_of(second)
    assert engine_name(first) == ""


def test_operands_of_rows_that_left_are_let_go_of(tmp_path):
    first, second = (saved(np.eye(4), tmp_path / name) for name in ("first", "second"))
    context = context_of(first)
    made = EngineCache(context)
    resident = context.matrix.open()
    made.operand(RowBlock(0, 2))
    resident.load_remote(4, second.open())
    made._operands[False, RowBlock(4, 8)] = made.operand(RowBlock(0, 4))
    made.drop_what_left()
    assert {cut for _, cut in made._operands} == {RowBlock(0, 2), RowBlock(0, 4), RowBlock(4, 8)}
    resident.load_remote(0, None)
    made.drop_what_left()
    assert {cut for _, cut in made._operands} == {RowBlock(0, 2), RowBlock(0, 4)}
