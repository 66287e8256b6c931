from types import SimpleNamespace

import numpy as np
import pytest

from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.sizing.footprint import DENSE, GPU, SPARSE
from raysm.workloads.similarity.sizing.sizing import Sizing

PAIRS, FULL = Threshold(np.float32(0.5)), Full("float32")


def rows_of(rows, columns=768, dtype=np.float32, elements=None):
    return SimpleNamespace(
        rows=rows, columns=columns, dtype=np.dtype(dtype), elements=rows * columns if elements is None else elements
    )


MANY = rows_of(20_000, 1, np.int8)
MILLION = rows_of(10**6)


def sizing(mode, matrix, slots=1, queries=None, footprint=DENSE, **more):
    return Sizing(
        limits=mode.limits, footprint=footprint, queries=queries or matrix, matrix=matrix, slots=slots, **more
    )


def test_a_restart_with_another_number_of_cpus_cuts_the_rows_alike(tmp_path):
    def sizes(slots):
        top, pairs, two = (BlockRecord(tmp_path / name, {}) for name in ("top", "pairs", "two"))
        return (
            sizing(TopK(1), MANY, slots).triangle_rows(top),
            sizing(PAIRS, MANY, slots).triangle_rows(pairs),
            sizing(TopK(1), MANY, slots).rectangle_rows(two),
        )

    first = sizes(2)
    assert first == (2500, 2500, (1250, 20_000))
    assert sizes(64) == first


def test_few_queries_keep_all_slots_busy(tmp_path):
    record = BlockRecord(tmp_path / "two", {})
    few = rows_of(300, 1, np.int8)
    assert sizing(TopK(1), MANY, 4, queries=few).rectangle_rows(record) == (256, 1250)


def test_queries_are_cut_the_less_the_more_the_matrix_has_to_be():
    def tiles(slots):
        rows, columns = sizing(TopK(10), MILLION, slots, queries=rows_of(10**7))._chosen_rectangle_rows(0)
        return -(-(10**7) // rows) * -(-(10**6) // columns)

    # As large as one operand may be, they are enough for few cores. Of many, the head could not hand out as many, and a
    # task does several; cut as for a matrix of one block, which leaves nothing to merge, they would be millions.
    assert tiles(8) == 138 * 1374
    assert 8 * 4096 <= tiles(4096) < 1.2 * 8 * 4096


def test_parts_of_many_tasks_are_as_large_as_the_head_needs_them():
    def joined(slots, columns=768, mode=None):
        return sizing(mode or TopK(10), rows_of(10**8, columns), slots)._joined_rows(7281)

    # Of a few cores, a tile of one operand each; of 64 instances of 8, as many rows as a part may have.
    assert joined(2) == 7281
    assert joined(8) == 7281
    assert 160_000 < joined(512) < 180_000
    assert joined(4096, 16) == (32 << 20) // 160
    assert joined(512, mode=PAIRS) == 7281


def test_a_run_on_few_cores_goes_on_with_the_blocks_of_one_on_many(tmp_path):
    record = BlockRecord(tmp_path / "top", {})
    many = sizing(TopK(10), MILLION, 512)
    rows = many.triangle_rows(record)
    assert rows > many.max_tile_rows()
    assert sizing(TopK(10), MILLION, 2).triangle_rows(record) == rows


def groups_of(rows, slots, instances, k=10, columns=768):
    """Return how many rows a tile has, and how many tiles a group on a side, as a job would choose them."""
    chosen = sizing(TopK(k), rows_of(rows, columns), slots, instances=instances)
    size = chosen.chosen_triangle_rows()
    return size, chosen.chosen_group_tiles(size), chosen.mergers


@pytest.mark.parametrize(
    ("rows", "slots", "instances"), [(50_000, 16, 4), (10**6, 16, 2), (10**6, 64, 8), (10**6, 512, 1), (10**5, 8, 4)]
)
def test_the_head_merges_all_parts_where_it_keeps_up_with_the_tasks(rows, slots, instances):
    assert groups_of(rows, slots, instances)[1] == 1


@pytest.mark.parametrize(("rows", "slots", "instances"), [(10**6, 512, 64), (10**6, 512, 512), (10**5, 512, 64)])
def test_parts_of_many_slots_are_merged_on_the_instances(rows, slots, instances):
    size, on_a_side, _ = groups_of(rows, slots, instances)
    tiles, groups = (blocks * (blocks + 1) // 2 for blocks in (-(-rows // size), -(-rows // (size * on_a_side))))
    # The head takes in 2 ms and 0.35 us a row: it would need more than a minute, or 20 s, and needs some seconds.
    assert tiles * (0.002 + 2 * size * 0.35e-6) > 20
    assert groups * (0.002 + 2 * size * on_a_side * 0.35e-6) < 4


@pytest.mark.parametrize(
    ("rows", "slots", "instances", "k"), [(10**6, 512, 64, 100), (3 * 10**6, 2048, 64, 10), (10**6, 96 * 16, 16, 10)]
)
def test_a_group_is_no_larger_than_a_part_may_be_and_no_smaller_than_keeps_its_slots_busy(rows, slots, instances, k):
    size, on_a_side, mergers = groups_of(rows, slots, instances, k, columns=128)
    assert 2 * size * on_a_side * 8 * k <= 32 << 20
    assert on_a_side == 1 or on_a_side**2 * mergers >= 4 * slots


@pytest.mark.parametrize(("mode", "footprint"), [(PAIRS, DENSE), (TopK(10), SPARSE), (TopK(10), GPU)])
def test_only_parts_of_top_k_of_dense_rows_on_cpus_are_merged(tmp_path, mode, footprint):
    chosen = sizing(mode, MILLION, 512, footprint=footprint, instances=64, merged_tiles=9)
    assert chosen.chosen_group_tiles(7000) == 1
    assert chosen.group_tiles(BlockRecord(tmp_path, {}), 7000) == 1


def test_a_restart_on_another_cluster_merges_the_groups_of_the_first(tmp_path):
    record = BlockRecord(tmp_path / "top", {})
    assert sizing(TopK(10), MILLION, 512, merged_tiles=27).group_tiles(record, 7000) == 27
    assert sizing(TopK(10), MILLION, 2).group_tiles(BlockRecord(tmp_path / "top", {}), 7000) == 27


def test_a_strip_of_the_full_matrix_is_whole_rows_of_at_most_32_mib(tmp_path):
    record, row_bytes = BlockRecord(tmp_path / "full", {}), 4 * 20_000
    most = (32 << 20) // row_bytes
    assert sizing(FULL, MANY, 1).strip_rows(record, row_bytes) == most
    # A restarted job cuts alike, on however many cores.
    assert sizing(FULL, MANY, 1000).strip_rows(record, row_bytes) == most
    few = rows_of(300, 1, np.int8)
    assert sizing(FULL, few, 64).strip_rows(BlockRecord(tmp_path / "two", {}), 1200) == 256
    assert sizing(FULL, few, 64, block_rows=7).strip_rows(record, 1200) == 7


def test_a_block_size_that_is_torn_is_chosen_anew(tmp_path):
    record = BlockRecord(tmp_path / "top", {})
    (record.folder / "block-rows").write_text("")
    assert sizing(TopK(1), MANY, 2).triangle_rows(record) == 2500
    assert (record.folder / "block-rows").read_text() == "2500\n"


@pytest.mark.parametrize("mode", [TopK(10), FULL])
def test_what_one_task_holds_is_bounded_whatever_is_asked_for(tmp_path, mode):
    record = BlockRecord(tmp_path / "top", {})
    wide = rows_of(100, 1 << 20, np.int8)
    assert sizing(mode, wide).max_tile_rows() == 7
    # Of top-k, a task may do several such tiles.
    assert sizing(mode, wide).triangle_rows(record) <= (40 if mode == TopK(10) else 7)
    assert sizing(mode, wide, block_rows=10**9).triangle_rows(record) == 7
    assert sizing(TopK(19_999), MANY, block_rows=10**9).triangle_rows(record) * 2 * 8 * 19_999 <= 32 << 20
