"""How large tiles are, and whether instances own the result."""

from types import SimpleNamespace

import numpy as np
import pytest

from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.sizing import DENSE, OPERAND_BYTES, PART_BYTES, Sizing


def described(rows, columns=768, elements=None):
    elements = rows * columns if elements is None else elements
    return SimpleNamespace(rows=rows, columns=columns, dtype=np.dtype(np.float32), elements=elements)


def sizing_of(rows, slots=2, queries=None, mode=None, footprint=DENSE, columns=768, **more):
    matrix = described(rows, columns)
    return Sizing(
        limits=(mode or TopK(10)).limits,
        footprint=footprint,
        queries=matrix if queries is None else described(queries, columns),
        matrix=matrix,
        self_join=queries is None,
        slots=slots,
        **more,
    )


@pytest.fixture
def record(tmp_path):
    return BlockRecord(tmp_path, {})


@pytest.mark.parametrize("mode", [TopK(1), TopK(1000), Threshold(np.float32(0.5)), Full("float32")])
@pytest.mark.parametrize("columns", [1, 128, 768, 100_000])
def test_operands_and_parts_have_their_bytes_at_most(mode, columns):
    sizing = sizing_of(10**7, mode=mode, columns=columns)
    assert sizing.operand_rows == 1 or sizing.operand_rows * columns * 12 <= OPERAND_BYTES
    if isinstance(mode, TopK):
        assert sizing.max_block_rows * 16 * mode.k <= PART_BYTES


def test_a_later_run_on_another_cluster_keeps_the_sizes_of_the_first(record):
    first = sizing_of(50_000, 2).tile_rows(record)
    assert sizing_of(50_000, 64).tile_rows(record) == first
    (record.folder / "block-rows").write_text("torn")
    assert sizing_of(50_000, 64).tile_rows(record) < first
