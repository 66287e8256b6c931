from types import SimpleNamespace

import numpy as np
import pytest

from raysm.errors import InvalidInput, NoRoom
from raysm.workloads.gather import SPARE_BYTES
from raysm.workloads.record import BlockRecord, occupied_bytes
from raysm.workloads.similarity.modes.full import Full
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.runs import Folders

ROWS = 20_000
MATRIX = SimpleNamespace(rows=ROWS, columns=1, id_bytes=0)


@pytest.mark.parametrize("mode", [TopK(10), Full("float32")])
def test_a_restarted_job_needs_no_second_room_for_what_it_recorded(tmp_path, mode):
    folders = Folders(result=tmp_path / "result", records=tmp_path / "records")
    record = BlockRecord(tmp_path / "records", {})
    # Of the full matrix what lasts, and the file itself.
    needed = ROWS * 10 * 8 * 2 + ROWS * (12 * 10 + 10) if mode == TopK(10) else 2 * ROWS * ROWS * 4
    for block in range(3):
        record.save(block, bytes(1 << 20))
    there = occupied_bytes(tmp_path / "records")
    assert there >= 3 << 20
    enough = SPARE_BYTES + needed - there
    mode.check_room(MATRIX, MATRIX, folders, tmp_path / "scratch", lambda folder: enough)
    with pytest.raises(NoRoom):
        mode.check_room(MATRIX, MATRIX, folders, tmp_path / "scratch", lambda folder: enough - 1)


def test_a_full_matrix_of_which_nothing_lasts_needs_the_room_of_its_file_alone(tmp_path):
    folders = Folders(result=tmp_path / "result", records=tmp_path / "records", lasting=False)
    enough = SPARE_BYTES + ROWS * ROWS * 4
    Full("float32").check_room(MATRIX, MATRIX, folders, tmp_path, lambda folder: enough)
    with pytest.raises(NoRoom):
        Full("float32").check_room(MATRIX, MATRIX, folders, tmp_path, lambda folder: enough - 1)


def test_nobody_knows_before_what_pairs_take(tmp_path):
    folders = Folders(result=tmp_path, records=tmp_path)
    Threshold(np.float32(0.5)).check_room(MATRIX, MATRIX, folders, tmp_path, lambda folder: 0)


def test_a_row_has_as_many_neighbors_as_there_are_others():
    TopK(ROWS - 1).check(MATRIX, MATRIX)
    with pytest.raises(InvalidInput, match="20000 neighbors of each row are more than the 19999 other rows"):
        TopK(ROWS).check(MATRIX, MATRIX)
    queries = SimpleNamespace(rows=3)
    TopK(ROWS).check(queries, MATRIX)
    with pytest.raises(InvalidInput, match="20001 neighbors of each row are more than the 20000 rows of the matrix"):
        TopK(ROWS + 1).check(queries, MATRIX)
