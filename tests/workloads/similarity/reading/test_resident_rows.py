import numpy as np
import pytest

from raysm.errors import InvalidInput
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.tasks.context import ResidentRows
from tests.support.similarity import saved


@pytest.fixture
def matrix(tmp_path):
    return saved(np.arange(20.0).reshape(10, 2), tmp_path).open()


def test_own_rows_are_read_by_their_places(matrix):
    resident = ResidentRows(matrix, 100)
    assert resident.read(103, 105).tolist() == [[6, 7], [8, 9]]
    assert resident.some(4) == RowBlock(100, 104)


def test_a_remote_chunk_is_read_beside_them_until_the_next_one_comes(matrix):
    resident = ResidentRows(matrix.portion(0, 4), 0)
    resident.load_remote(50, matrix.portion(4, 7))
    assert resident.read(51, 52).tolist() == [[10, 11]]
    assert resident.holds(RowBlock(50, 53))
    resident.load_remote(70, matrix.portion(7, 10))
    assert not resident.holds(RowBlock(50, 53))
    assert resident.read(70, 71).tolist() == [[14, 15]]
    resident.load_remote(0, None)
    assert not resident.holds(RowBlock(70, 71))
    assert resident.holds(RowBlock(0, 4))


def test_an_instance_without_rows_has_those_that_came(matrix):
    resident = ResidentRows(None, 0)
    assert resident.some(5) is None
    resident.load_remote(30, matrix)
    assert resident.some(5) == RowBlock(30, 35)


@pytest.mark.parametrize(("start", "stop"), [(0, 11), (9, 12), (20, 21)])
def test_rows_that_are_not_here_are_named_by_their_places(matrix, start, stop):
    with pytest.raises(InvalidInput, match=f"places {start} to {stop - 1} are not on this instance"):
        ResidentRows(matrix, 0).read(start, stop)
