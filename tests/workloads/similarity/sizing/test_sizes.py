from types import SimpleNamespace

import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.request import Similarity
from raysm.workloads.gather import SPARE_BYTES
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.sizing.sizes import (
    block_rows,
    check_result_room,
    joined_rows,
    kept_merged_tiles,
    merged_tiles,
    mergers,
    max_tile_rows,
    rectangle_rows,
    strip_rows,
)
from tests.support.similarity import saved

ROWS = 20_000


@pytest.fixture
def matrix(tmp_path):
    return saved(np.ones((ROWS, 1), dtype=np.int8), tmp_path / "matrix").open()


def test_a_restart_with_another_number_of_cpus_cuts_the_rows_alike(matrix, tmp_path):
    def sizes(slots):
        top, pairs, two = (BlockRecord(tmp_path / name, {}) for name in ("top", "pairs", "two"))
        return (
            block_rows(Similarity(top_k=1), matrix, top, lambda: slots),
            block_rows(Similarity(threshold=0.5), matrix, pairs, lambda: slots),
            rectangle_rows(Similarity(top_k=1), matrix, matrix, two, lambda: slots),
        )

    first = sizes(2)
    assert first == (2500, 2500, (1250, 20_000))
    assert sizes(64) == first


def test_few_queries_keep_all_slots_busy(matrix, tmp_path):
    queries = saved(np.ones((300, 1), dtype=np.int8), tmp_path / "queries").open()
    record = BlockRecord(tmp_path / "two", {})
    assert rectangle_rows(Similarity(top_k=1), queries, matrix, record, lambda: 4) == (256, 1250)


def test_parts_of_many_tasks_are_as_large_as_the_head_needs_them():
    asked = Similarity(top_k=10)
    # Of a few cores, a tile of one side each; of 64 instances of 8, as many rows as a part may have.
    assert joined_rows(asked, 7281, 768, 2) == 7281
    assert joined_rows(asked, 7281, 768, 8) == 7281
    assert 160_000 < joined_rows(asked, 7281, 768, 512) < 180_000
    assert joined_rows(asked, 7281, 16, 4096) == (32 << 20) // 160
    assert joined_rows(Similarity(threshold=0.5), 7281, 768, 512) == 7281


def test_a_run_on_few_cores_goes_on_with_the_blocks_of_one_on_many(tmp_path):
    million = SimpleNamespace(rows=10**6, columns=768, dtype=np.dtype(np.float32))
    record = BlockRecord(tmp_path / "top", {})
    many = block_rows(Similarity(top_k=10), million, record, lambda: 512)
    assert many > max_tile_rows(Similarity(top_k=10), million)
    assert block_rows(Similarity(top_k=10), million, record, lambda: 2) == many


def rows_of(rows, columns=768):
    return SimpleNamespace(rows=rows, columns=columns, dtype=np.dtype(np.float32))


def groups_of(rows, slots, instances, folder, k=10, columns=768):
    """Return how many rows a tile has, and how many tiles a group on a side, as a job would choose them."""
    asked, matrix = Similarity(top_k=k), rows_of(rows, columns)
    size = block_rows(asked, matrix, BlockRecord(folder / f"{rows} {slots} {k} {columns}", {}), lambda: slots)
    return size, merged_tiles(asked, matrix, size, slots, instances)


@pytest.mark.parametrize(
    ("rows", "slots", "instances"), [(50_000, 16, 4), (10**6, 16, 2), (10**6, 64, 8), (10**6, 512, 1), (10**5, 8, 4)]
)
def test_the_head_merges_all_parts_where_it_keeps_up_with_the_tasks(tmp_path, rows, slots, instances):
    assert groups_of(rows, slots, instances, tmp_path)[1] == 1


@pytest.mark.parametrize(("rows", "slots", "instances"), [(10**6, 512, 64), (10**6, 512, 512), (10**5, 512, 64)])
def test_parts_of_many_slots_are_merged_on_the_instances(tmp_path, rows, slots, instances):
    size, on_a_side = groups_of(rows, slots, instances, tmp_path)
    tiles, groups = (blocks * (blocks + 1) // 2 for blocks in (-(-rows // size), -(-rows // (size * on_a_side))))
    # The head takes in 2 ms and 0.35 us a row: it would need more than a minute, or 20 s, and needs some seconds.
    assert tiles * (0.002 + 2 * size * 0.35e-6) > 20
    assert groups * (0.002 + 2 * size * on_a_side * 0.35e-6) < 4


@pytest.mark.parametrize(
    ("rows", "slots", "instances", "k"), [(10**6, 512, 64, 100), (3 * 10**6, 2048, 64, 10), (10**6, 96 * 16, 16, 10)]
)
def test_a_group_is_no_larger_than_a_part_may_be_and_no_smaller_than_keeps_its_slots_busy(
    tmp_path, rows, slots, instances, k
):
    size, on_a_side = groups_of(rows, slots, instances, tmp_path, k, columns=128)
    assert 2 * size * on_a_side * 8 * k <= 32 << 20
    assert on_a_side == 1 or on_a_side**2 * mergers(slots, instances) >= 4 * slots


def test_only_of_top_k_parts_are_merged():
    assert merged_tiles(Similarity(threshold=0.5), rows_of(10**6), 7000, 512, 64) == 1


def test_a_restart_on_another_cluster_merges_the_groups_of_the_first(tmp_path):
    record = BlockRecord(tmp_path / "top", {})
    assert kept_merged_tiles(record, 27) == 27
    assert kept_merged_tiles(BlockRecord(tmp_path / "top", {}), 1) == 27


def test_a_strip_of_the_full_matrix_is_whole_rows_of_at_most_32_mib(matrix, tmp_path):
    record = BlockRecord(tmp_path / "full", {})
    asked = Similarity(full=True)
    assert strip_rows(asked, matrix, matrix, record, lambda: 1) == (32 << 20) // (4 * ROWS)
    # A restarted job cuts alike, on however many cores.
    assert strip_rows(asked, matrix, matrix, record, lambda: 1000) == (32 << 20) // (4 * ROWS)
    few = saved(np.ones((300, 1), dtype=np.int8), tmp_path / "few").open()
    assert strip_rows(asked, few, few, BlockRecord(tmp_path / "two", {}), lambda: 64) == 256
    assert strip_rows(Similarity(full=True, block_rows=7), few, few, record, lambda: 64) == 7


def test_a_block_size_that_is_torn_is_chosen_anew(matrix, tmp_path):
    record = BlockRecord(tmp_path / "top", {})
    (record.folder / "block-rows").write_text("")
    assert block_rows(Similarity(top_k=1), matrix, record, lambda: 2) == 2500
    assert (record.folder / "block-rows").read_text() == "2500\n"


@pytest.mark.parametrize("workload", [Similarity(top_k=10), Similarity(full=True)])
def test_what_one_task_holds_is_bounded_whatever_is_asked_for(matrix, tmp_path, workload):
    record = BlockRecord(tmp_path / "top", {})
    wide = saved(np.ones((100, 1 << 20), dtype=np.int8), tmp_path / "wide").open()
    assert max_tile_rows(workload, wide) == 7
    # Of top-k, a task may do several such tiles.
    assert block_rows(workload, wide, record, lambda: 1) <= (40 if workload.top_k else 7)
    asked = Similarity(top_k=workload.top_k, full=workload.full, block_rows=10**9)
    assert block_rows(asked, wide, record) == 7
    many = Similarity(top_k=19_999, block_rows=10**9)
    assert block_rows(many, matrix, record) * 2 * 8 * 19_999 <= 32 << 20


@pytest.mark.parametrize("workload", [Similarity(top_k=10), Similarity(full=True)])
def test_a_restarted_job_needs_no_second_room_for_what_it_recorded(matrix, tmp_path, workload):
    places = tmp_path / "result", tmp_path / "records", tmp_path / "scratch"
    record = BlockRecord(tmp_path / "records", {})
    needed = ROWS * 10 * 8 * 2 + ROWS * (12 * 10 + 10) if workload.top_k else ROWS * ROWS * 4
    for block in range(3):
        record.save(block, bytes(1 << 20))
    there = occupied_bytes(tmp_path / "records")
    assert there >= 3 << 20
    enough = SPARE_BYTES + needed - there
    check_result_room(workload, matrix, matrix, places, lambda folder: enough)
    with pytest.raises(NoRoom):
        check_result_room(workload, matrix, matrix, places, lambda folder: enough - 1)
