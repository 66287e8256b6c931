"""One owner, called as Ray would call it."""

from collections import namedtuple

import numpy as np
import pytest

from raysm.contract.result import ResultFile
from raysm.errors import NoRoom
from raysm.workloads.blocks import RowBlock
from raysm.workloads.gather import free_bytes
from raysm.workloads.similarity.arithmetic.row_order import Run
from raysm.workloads.similarity.owning.owned import Owned, RangeMerger
from raysm.workloads.similarity.owning.owner import OwnedRange, Owner, here
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.runs import Folders

Taken = namedtuple("Taken", "name values")


OWN = RowBlock(10, 20)


class Merger(RangeMerger):
    """Notes what it takes."""

    def __init__(self, needs_bytes, file):
        self.taken, self.closed, self.needs_bytes, self.file = [], False, needs_bytes, file

    @property
    def result_bytes(self):
        return self.needs_bytes

    @property
    def scratch_bytes(self):
        return 0

    def take(self, name, piece):
        self.taken.append(Taken(name, piece["values"].tolist()))

    def write(self, ids):
        return ResultFile(name=self.file.name, shape=(self.file.rows.rows,), bytes=1, sha256="", how_to_read="")

    def close(self):
        self.closed = True


class Numbers(Owned):
    """Has mergers that it remembers."""

    def __init__(self, needs_bytes=0, kinds=()):
        self.mergers, self.needs_bytes, self.kinds = [], needs_bytes, list(kinds)

    def split(self, task, arrays, ranges):
        raise AssertionError("owners split nothing")

    def merger(self, file, scratch, record):
        kind = self.kinds.pop(0) if self.kinds else Merger
        self.mergers.append(kind(self.needs_bytes, file))
        return self.mergers[-1]


def begun(folder, owned, lasting=True, rows=OWN, on_instance=1):
    folders = Folders(result=folder / "result", records=folder / "records", lasting=lasting)
    return Owner(
        OwnedRange(
            owned=owned,
            rows=rows,
            file="part",
            on_instance=on_instance,
            source=Source(channel="matrix", place=Place(folder, folder / "scratch", "algo-2")),
            folders=lambda: folders,
            depends_on={},
        )
    )


def piece(*values):
    return {"values": np.array(values)}


def test_a_piece_that_comes_twice_is_taken_once(tmp_path):
    owned = Numbers()
    owner = begun(tmp_path, owned)
    for _ in range(2):
        owner.take("tile 1", piece(1, 2))
    assert owned.mergers[0].taken == [("tile 1, of rows 10 to 19", [1, 2])]
    assert owner.hold(["tile 1", "tile 2"]) == [True, False]


class Failing(Merger):
    """Takes half of its second piece, and fails."""

    def take(self, name, piece):
        if len(self.taken) == 1:
            self.taken.append(Taken(name, piece["values"].tolist()[:1]))
            raise OSError("the disk did not answer")
        super().take(name, piece)


@pytest.mark.parametrize("lasting", [True, False])
def test_a_piece_of_which_half_was_taken_is_not_taken_once_more_beside_that_half(tmp_path, lasting):
    owned = Numbers(kinds=[Failing, Merger])
    owner = begun(tmp_path, owned, lasting=lasting)
    owner.take("tile 1", piece(1, 2))
    with pytest.raises(OSError, match="did not answer"):
        owner.take("tile 2", piece(3, 4))
    # As Ray's next attempt of the task has it taken.
    owner.take("tile 2", piece(3, 4))
    assert owned.mergers[0].closed
    assert owned.mergers[1].taken == [("tile 2, of rows 10 to 19", [3, 4])]
    # The first is in the record, or is computed again.
    assert owner.hold(["tile 1", "tile 2"]) == [lasting, True]
    assert (owner.write(["tile 1", "tile 2"], None) is None) is not lasting


def test_a_range_is_written_only_where_all_its_tiles_are_here(tmp_path):
    owner = begun(tmp_path, Numbers())
    owner.take("tile 1", piece(1))
    assert owner.write(["tile 1", "tile 2"], None) is None
    owner.take("tile 2", piece(2))
    written = owner.write(["tile 1", "tile 2"], None)
    assert (written.file.name, written.file.shape, written.host) == ("part", (10,), "algo-2")
    assert written.peak_memory_bytes > 0


def test_another_owner_of_the_range_takes_in_what_the_first_recorded(tmp_path):
    begun(tmp_path, Numbers()).take("tile 1", piece(1, 2))
    owned = Numbers()
    second = begun(tmp_path, owned)
    assert second.hold(["tile 1", "tile 2"]) == [True, False]
    assert owned.mergers[0].taken == [("tile 1, of rows 10 to 19", [1, 2])]
    # Asked again, it takes in nothing twice.
    assert second.hold(["tile 1"]) == [True]
    assert len(owned.mergers[0].taken) == 1


def test_what_was_recorded_of_another_range_is_not_taken_for_this_one(tmp_path):
    begun(tmp_path, Numbers()).take("tile 1", piece(1))
    assert begun(tmp_path, Numbers(), rows=RowBlock(0, 20)).hold(["tile 1"]) == [False]


def test_nothing_is_recorded_where_nothing_lasts(tmp_path):
    begun(tmp_path, Numbers(), lasting=False).take("tile 1", piece(1))
    assert begun(tmp_path, Numbers(), lasting=False).hold(["tile 1"]) == [False]
    assert [file for file in (tmp_path / "records").rglob("*") if file.is_file()] == []


def test_at_the_end_nothing_is_recorded_or_held(tmp_path):
    owned = Numbers()
    owner = begun(tmp_path, owned)
    owner.take("tile 1", piece(1))
    owner.end()
    assert owned.mergers[0].closed
    assert not (tmp_path / "records").exists()


def test_a_disk_without_room_for_the_range_is_said_by_the_first_call(tmp_path):
    owned = Numbers(needs_bytes=1 << 60)
    with pytest.raises(NoRoom, match=r"on algo-2 has .* the result needs"):
        begun(tmp_path, owned).hold([])
    assert owned.mergers[0].closed


def test_ranges_of_one_instance_share_the_room_of_its_disk(tmp_path):
    half = free_bytes(tmp_path) * 3 // 4
    begun(tmp_path, Numbers(needs_bytes=half)).hold([])
    with pytest.raises(NoRoom, match="the result needs"):
        begun(tmp_path, Numbers(needs_bytes=half), on_instance=2).hold([])


def test_a_mode_without_bounds_says_so(tmp_path):
    with pytest.raises(NotImplementedError, match="Merger knows no bounds"):
        begun(tmp_path, Numbers()).bounds([Run(10, 0, 1)])


def test_where_an_instance_writes_is_its_own_and_whether_it_lasts_is_the_heads(tmp_path):
    own = Folders(result=tmp_path / "own", records=tmp_path / "records", lasting=True)
    head = Folders(result=tmp_path / "head", records=tmp_path / "records", lasting=False, on_instance=lambda: own)
    assert (here(head).result, here(head).lasting) == (tmp_path / "own", False)
    assert here(own) is own
