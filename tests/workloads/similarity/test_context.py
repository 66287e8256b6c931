import subprocess
import sys

import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.similarity.context import Context, tile_rows
from tests.support.similarity import saved

MEASURE = """
import sys
from pathlib import Path
import numpy as np
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.context import Context, Place, Source, peak_memory_bytes
from raysm.workloads.similarity.score import prepare
from raysm.workloads.similarity.topk import topk_block
source = Source(channel="matrix", place=Place(Path(sys.argv[1]), Path("unused"), "algo-1"))
matrix = source.open()
norms = prepare(matrix.read(0, matrix.rows)).norms
context = Context(
    source=source, rows=matrix.rows, columns=matrix.columns, norms=norms, exponents=np.empty(0, dtype=np.int16)
)
topk_block(context, 10, RowBlock(0, 8))
before = peak_memory_bytes()
topk_block(context, 10, RowBlock(0, 2048))
print(peak_memory_bytes() - before)
"""


@pytest.mark.parametrize("kind", ["normal", "all equal", "nearly all equal"])
def test_a_task_holds_no_more_than_its_block_and_its_tile(kind, tmp_path):
    rows, columns = 12_000, 64
    matrix = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    matrix = {"normal": matrix, "all equal": np.ones_like(matrix), "nearly all equal": 1 + 0.01 * matrix}[kind]
    np.save(tmp_path / "m.npy", matrix)
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "m.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    # 20 MiB of product and its mask, 2 MiB of rows, and of one float64 part at most ten arrays of 8 MiB.
    assert int(done.stdout) < (20 + 2 + 80) << 20


def test_long_rows_make_small_tiles():
    assert tile_rows(1) == 4096
    assert tile_rows(1 << 20) == 8
    assert tile_rows(1 << 30) == 1


def test_an_instance_with_another_matrix_is_named(tmp_path):
    source = saved(np.ones((5, 2)), tmp_path)
    context = Context(source=source, rows=6, columns=2, norms=np.ones(6), exponents=np.empty(0, dtype=np.int16))
    with pytest.raises(InvalidInput, match=r"the matrix on algo-1 has the shape \(5, 2\), on the head \(6, 2\)"):
        context.open()
