import numpy as np
import pytest

from raysm.errors import NoRoom
from raysm.request import Similarity
from raysm.workloads.gather import SPARE_BYTES
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.sizes import check_result_room, side, top_k_rows
from tests.support.similarity import saved

ROWS = 20_000


@pytest.fixture
def matrix(tmp_path):
    return saved(np.ones((ROWS, 1), dtype=np.int8), tmp_path / "matrix").open()


def test_a_restart_with_another_number_of_cpus_cuts_the_rows_alike(matrix, tmp_path):
    def sizes(slots):
        top, tiles = BlockRecord(tmp_path / "top", {}), BlockRecord(tmp_path / "tiles", {})
        rows = top_k_rows(Similarity(top_k=1), 1, matrix, top, lambda: slots)
        return rows, side(Similarity(threshold=0.5), matrix, tiles, lambda: slots)

    first = sizes(2)
    assert first == (2500, 2048)
    assert sizes(64) == first


def test_a_block_size_that_is_torn_is_chosen_anew(matrix, tmp_path):
    record = BlockRecord(tmp_path / "top", {})
    (record.folder / "block-rows").write_text("")
    assert top_k_rows(Similarity(top_k=1), 1, matrix, record, lambda: 2) == 2500
    assert (record.folder / "block-rows").read_text() == "2500\n"


@pytest.mark.parametrize("workload", [Similarity(top_k=10), Similarity(full=True)])
def test_a_restarted_job_needs_no_second_room_for_what_it_recorded(matrix, tmp_path, workload):
    result, records = tmp_path / "result", tmp_path / "records"
    record = BlockRecord(records, {})
    needed = ROWS * 10 * 8 + ROWS * (12 * 10 + 8) if workload.top_k else ROWS * ROWS * 4
    for block in range(3):
        record.save(block, bytes(1 << 20))
    there = occupied_bytes(records)
    assert there >= 3 << 20
    enough = SPARE_BYTES + needed - there
    check_result_room(workload, matrix, result, records, lambda folder: enough)
    with pytest.raises(NoRoom):
        check_result_room(workload, matrix, result, records, lambda folder: enough - 1)
