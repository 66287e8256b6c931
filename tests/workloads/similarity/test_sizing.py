"""How large tiles are, and whether instances own the result."""

from types import SimpleNamespace

import numpy as np
import pytest

from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.sizing import DENSE, GPU, OPERAND_BYTES, PART_BYTES, SPARSE, Sizing


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


@pytest.mark.parametrize(("rows", "slots"), [(20_000, 2), (60_000, 8), (10**6, 512)])
def test_each_slot_has_several_tiles(rows, slots):
    assert sizing_of(rows, slots).tasks >= 8 * slots


def test_of_very_many_rows_a_task_does_several_tiles():
    sizing = sizing_of(10**7, 512)
    assert sizing.max_block_rows > sizing.operand_rows
    assert sizing.tasks < 10_000
    for footprint in (SPARSE, GPU):
        other = sizing_of(10**7, 512, footprint=footprint)
        assert other.max_block_rows == other.operand_rows


def test_queries_are_cut_first_and_the_matrix_where_they_are_few(record):
    rows, columns = sizing_of(50_000, 4, queries=40_000).rectangle_rows(record)
    assert rows < 40_000
    few = sizing_of(50_000, 4, queries=10)
    rows, columns = few._rectangle_rows()
    assert rows >= 10
    assert columns < 50_000


def test_block_rows_that_are_asked_for_hold_unless_a_task_cannot_have_so_many(record):
    assert sizing_of(10**5, block_rows=100).triangle_rows(record) == 100
    assert sizing_of(10**5, block_rows=10**5).triangle_rows(record) == sizing_of(10**5).operand_rows
    assert sizing_of(10**5, block_rows=100).strip_rows(record, 4 * 10**5) == 83


def test_a_later_run_on_another_cluster_keeps_the_sizes_of_the_first(record):
    first = sizing_of(50_000, 2).triangle_rows(record)
    assert sizing_of(50_000, 64).triangle_rows(record) == first
    (record.folder / "block-rows").write_text("torn")
    assert sizing_of(50_000, 64).triangle_rows(record) < first


@pytest.mark.parametrize(
    ("rows", "instances", "more", "expected"),
    [
        (1797, 2, {}, 1),
        (10**6, 8, {}, 1),
        # The head would merge for longer than 512 instances compute.
        (10**7, 512, {}, 512),
        (10**7, 512, {"ranges": 1}, 1),
        (1797, 2, {"ranges": 3}, 3),
        (2, 2, {"ranges": 3}, 2),
        (10**7, 512, {"mode": Threshold(np.float32(0.5))}, 1),
        (10**7, 1, {}, 1),
    ],
)
def test_instances_own_the_result_where_the_head_would_take_longer_than_the_computing(rows, instances, more, expected):
    assert sizing_of(rows, 8 * instances, instances=instances, **more).chosen_ranges == expected


def test_a_later_run_has_as_many_ranges_as_the_first(record):
    assert sizing_of(1000, ranges=3).range_count(record) == 3
    assert sizing_of(1000, 1024, instances=128).range_count(record) == 3
