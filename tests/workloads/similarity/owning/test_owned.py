"""What a mode need not say of a result that instances own."""

import numpy as np
import pytest

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.owning.owned import Owned, RangeMerger
from raysm.workloads.similarity.tasks.tile_task import FreeTile

TASK = FreeTile(TileBlock(RowBlock(0, 4), RowBlock(4, 8)), True, hint="a hint")


class Least(Owned):
    """Says only what it must."""

    def split(self, task, arrays, ranges):
        return iter(())

    def merger(self, file, scratch, record):
        return LeastMerger()


class LeastMerger(RangeMerger):
    """The same."""

    result_bytes = scratch_bytes = 0

    def take(self, name, piece):
        """Take nothing."""

    def write(self, ids):
        """Write nothing."""


def refuse(numbers):
    raise AssertionError("nobody has to be asked")


def test_ranges_are_of_one_size_unless_a_mode_says_otherwise():
    assert [rows.rows for rows in Least().ranges(12, 4)] == [3, 3, 3, 3]


def test_a_task_is_as_it_was_dispatched_unless_bounds_help_it():
    assert Least().informed(TASK, refuse) is TASK


def test_no_tile_is_given_up_unless_a_mode_says_so():
    assert Least().given_up(TASK, {"overflowed": np.array(True)}) == ()


def test_nothing_is_written_beside_the_ranges_unless_a_mode_says_so(tmp_path):
    assert Least().write_beside(tmp_path, None) == ()


def test_a_merger_that_knows_no_bounds_is_not_asked_for_them():
    merger = Least().merger(None, None, None)
    with pytest.raises(NotImplementedError, match="LeastMerger knows no bounds"):
        merger.bounds([Run(0, 0, 4)])
    assert not merger.keeps_pieces
    assert merger.close() is None
