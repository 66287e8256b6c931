import numpy as np
import pytest

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.tasks.parts import FreeTile

FIRST, SECOND = RowBlock(0, 10), RowBlock(10, 30)


@pytest.mark.parametrize(
    ("rows", "columns", "self_join", "mirrored", "area"),
    [
        (FIRST, SECOND, True, True, 200),
        (FIRST, FIRST, True, False, 50),
        (FIRST, SECOND, False, False, 200),
        (FIRST, FIRST, False, False, 100),
    ],
)
def test_only_a_tile_of_two_blocks_of_one_matrix_serves_its_columns_too(rows, columns, self_join, mirrored, area):
    task = FreeTile(TileBlock(rows, columns), self_join)
    assert (task.mirrored, task.area) == (mirrored, area)


def test_places_are_the_numbers_and_the_hint_is_no_part_of_the_name():
    places = np.array([3, 12])
    task = FreeTile(TileBlock(FIRST, SECOND), True, hint="anything")
    assert task.row_numbers(places) is places
    assert task.column_numbers(places) is places
    assert str(task) == str(FreeTile(TileBlock(FIRST, SECOND), True))
