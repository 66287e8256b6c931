from types import SimpleNamespace

import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.request import Similarity
from raysm.workloads.gather import SPARE_BYTES
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.sizes import (
    block_rows,
    check_result_room,
    joined_rows,
    most_rows,
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
    assert joined_rows(asked, 7281, 768, 16) == 7281
    assert 70_000 < joined_rows(asked, 7281, 768, 512) < 90_000
    assert joined_rows(asked, 7281, 16, 4096) == (32 << 20) // 160
    assert joined_rows(Similarity(threshold=0.5), 7281, 768, 512) == 7281


def test_a_run_on_few_cores_goes_on_with_the_blocks_of_one_on_many(tmp_path):
    million = SimpleNamespace(rows=10**6, columns=768, dtype=np.dtype(np.float32))
    record = BlockRecord(tmp_path / "top", {})
    many = block_rows(Similarity(top_k=10), million, record, lambda: 512)
    assert many > most_rows(Similarity(top_k=10), million)
    assert block_rows(Similarity(top_k=10), million, record, lambda: 2) == many


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
    assert most_rows(workload, wide) == 7
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
    needed = ROWS * 10 * 8 * 2 + ROWS * (12 * 10 + 8) if workload.top_k else ROWS * ROWS * 4
    for block in range(3):
        record.save(block, bytes(1 << 20))
    there = occupied_bytes(tmp_path / "records")
    assert there >= 3 << 20
    enough = SPARE_BYTES + needed - there
    check_result_room(workload, matrix, ROWS, places, lambda folder: enough)
    with pytest.raises(NoRoom):
        check_result_room(workload, matrix, ROWS, places, lambda folder: enough - 1)
