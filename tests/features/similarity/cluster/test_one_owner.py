"""One owner of a range of rows, in this process: what it merges, records and finds again."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.errors import NoRoom
from raysm.features.similarity.cluster.arithmetic.keys import decode
from raysm.features.similarity.cluster.modes.mode import RangeMerger, Ranges
from raysm.features.similarity.cluster.modes.threshold import Threshold
from raysm.features.similarity.cluster.modes.topk import TopK
from raysm.features.similarity.cluster.owners import Owner, OwnerOrder
from raysm.features.similarity.cluster.run import Folders
from raysm.features.similarity.cluster.tasks import TileTask
from raysm.features.similarity.cluster.tiling import RowRun, triangle
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors, pairs
from tests.support.similarity import context_of, owned_ranges, saved

ROWS = kinds_of_rows(rows=90)["float32"]
RANGES = Ranges.even(90, 1)
K = 5


class Other(TopK):
    """Has a merger of its own."""

    def __init__(self, make):
        super().__init__(K)
        object.__setattr__(self, "make", make)

    def merger(self, owned, folder, scratch, record):
        return self.make(super().merger(owned, folder, scratch, record))


class Wrapped(RangeMerger):
    """Merges as another does."""

    def __init__(self, merger):
        self.merger = merger
        self.closed = False

    def bounds(self, runs):
        return self.merger.bounds(runs)

    def take(self, name, piece):
        self.merger.take(name, piece)

    def write(self, ids, on_rows):
        return self.merger.write(ids, on_rows)

    def close(self):
        self.closed = True
        self.merger.close()


def owner_of(folder, mode=None, *, is_durable=True, on_instance=1):
    """Return an owner of all rows, with the folders that one before it had."""
    folders = Folders(result=folder / "result", records=folder / "records", is_durable=is_durable)
    return Owner(
        OwnerOrder(
            owned=owned_ranges(RANGES, 90)[0],
            mode=mode or TopK(K),
            on_instance=on_instance,
            source=saved(ROWS, folder),
            folders=lambda: folders,
            depends_on={},
        )
    )


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """Return the piece of each tile by its name."""
    context = context_of(saved(ROWS, tmp_path_factory.mktemp("matrix")))
    tasks = [TileTask(tile, True) for tile in triangle(90, 45)]
    found = {}
    for task in tasks:
        ((_, piece),) = TopK(K).split(task, TopK(K).compare(context, task), RANGES)
        found[str(task)] = piece
    return found


def assert_written(owner, folder, names):
    """Assert that an owner that holds all pieces writes the neighbors that float64 finds."""
    file = owner.write(names, None)
    table = pq.read_table(folder / "result" / file.name)
    assert np.array_equal(table["neighbors"].to_pylist(), neighbors(ROWS, K)[0])


def test_an_owner_that_is_started_again_holds_what_the_one_before_it_recorded(tmp_path, pieces):
    names = list(pieces)
    with closing(owner_of(tmp_path)) as first:
        assert first.hold(names) == [False] * 3
        for name in names[:2]:
            first.take(name, pieces[name])
        assert first.hold(names) == [True, True, False]
    with closing(owner_of(tmp_path)) as second:
        assert second.hold(names) == [True, True, False]
        # It lacks a piece, so that its file would miss neighbors.
        assert second.write(names, None) is None
        second.take(names[2], pieces[names[2]])
        assert_written(second, tmp_path, names)
        second.end()
    assert not any((tmp_path / "records").rglob("*"))


def test_merged_rows_are_read_by_a_token_that_an_owner_that_starts_again_does_not_know(
    tmp_path, pieces
):
    names = list(pieces)
    with closing(owner_of(tmp_path, is_durable=False)) as first:
        assert first.claim(names) is None
        for name in names:
            first.take(name, pieces[name])
        token = first.claim(names)
        found = decode(first.read(token, 10, 90))
        for some, expected in zip(found[::-1], neighbors(ROWS, K), strict=True):
            assert np.array_equal(some, expected[10:90])
    with closing(owner_of(tmp_path, is_durable=False)) as second:
        assert second.read(token, 10, 90) is None


def test_an_owner_without_lasting_records_starts_with_nothing(tmp_path, pieces):
    names = list(pieces)
    with closing(owner_of(tmp_path, is_durable=False)) as first:
        first.take(names[0], pieces[names[0]])
        assert not (tmp_path / "records").exists()
    with closing(owner_of(tmp_path, is_durable=False)) as second:
        assert second.hold(names) == [False] * 3


def test_the_pieces_of_pairs_are_kept_to_be_merged_even_where_records_do_not_last(tmp_path):
    mode, context = Threshold(np.float32(0.3)), context_of(saved(ROWS, tmp_path))
    with closing(owner_of(tmp_path, mode, is_durable=False)) as owner:
        for task in (TileTask(tile, True) for tile in triangle(90, 45)):
            for _, piece in mode.split(task, mode.compare(context, task), RANGES):
                owner.take(str(task), piece)
        file = owner.write([], None)
        owner.end()
    columns = pq.read_table(tmp_path / "result" / file.name).to_pydict().values()
    assert [(i, j, np.float32(s)) for i, j, s in zip(*columns, strict=True)] == pairs(
        ROWS, mode.least
    )
    assert not any((tmp_path / "records").rglob("*"))


@pytest.mark.parametrize("is_durable", [True, False])
def test_a_piece_that_comes_twice_is_merged_once(tmp_path, pieces, is_durable):
    with closing(owner_of(tmp_path, is_durable=is_durable)) as owner:
        for name in [*pieces, *pieces]:
            owner.take(name, pieces[name])
            owner.hold([name])
        assert_written(owner, tmp_path, list(pieces))


@pytest.mark.parametrize("is_durable", [True, False])
def test_an_owner_whose_merge_failed_merges_everything_again(tmp_path, pieces, is_durable):
    made = []

    class FailsOnce(Wrapped):
        def take(self, name, piece):
            super().take(name, piece)
            if len(made) == 1 and name.startswith(names[1]):
                raise OSError("the disk failed")

    def make(merger):
        made.append(FailsOnce(merger))
        return made[-1]

    names = list(pieces)
    with closing(owner_of(tmp_path, Other(make), is_durable=is_durable)) as owner:
        owner.take(names[0], pieces[names[0]])
        with pytest.raises(OSError, match="the disk failed"):
            owner.take(names[1], pieces[names[1]])
        assert made[0].closed
        # Only what is recorded can be merged again without being sent again.
        assert owner.hold(names) == [is_durable, is_durable, False]
        for name in names:
            owner.take(name, pieces[name])
        assert_written(owner, tmp_path, names)
    assert len(made) == 2
    assert made[1].closed


def test_pieces_that_come_at_the_same_time_are_merged_one_after_the_other(tmp_path, pieces):
    alone, overlaps = threading.Lock(), []

    class Watched(Wrapped):
        def take(self, name, piece):
            if not alone.acquire(blocking=False):
                overlaps.append(name)
                return
            try:
                super().take(name, piece)
                # Let the other threads run, which must not come here meanwhile.
                others.wait(0.05)
            finally:
                alone.release()

    others, names = threading.Event(), list(pieces)
    with closing(owner_of(tmp_path, Other(Watched))) as owner, ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: owner.take(name, pieces[name]), names))
        assert not overlaps
        assert_written(owner, tmp_path, names)


def test_calls_that_come_at_the_same_time_share_one_merger(tmp_path, pieces):
    made, others = [], threading.Event()

    def make(merger):
        made.append(merger)
        # Let the other calls begin meanwhile.
        others.wait(0.05)
        return merger

    name, piece = next(iter(pieces.items()))
    with closing(owner_of(tmp_path, Other(make))) as owner, ThreadPoolExecutor(4) as pool:
        calls = [
            pool.submit(owner.hold, [name]),
            pool.submit(owner.bounds, [RowRun(0, 0, 90)]),
            pool.submit(owner.take, name, piece),
            pool.submit(owner.write, ["a piece that it lacks"], None),
        ]
        for call in calls:
            call.result()
    assert len(made) == 1


def test_bounds_are_known_as_soon_as_rows_have_neighbors_enough(tmp_path, pieces):
    with closing(owner_of(tmp_path)) as owner:
        runs = [RowRun(80, 0, 10), RowRun(3, 10, 2)]
        assert (owner.bounds(runs) == -np.inf).all()
        for name in pieces:
            owner.take(name, pieces[name])
        kth = neighbors(ROWS, K)[1][:, -1]
        assert np.array_equal(owner.bounds(runs), np.concatenate([kth[80:90], kth[3:5]]))


@pytest.mark.parametrize("needed", ["result_bytes", "scratch_bytes", "recorded_bytes"])
def test_ranges_of_one_instance_that_do_not_fit_on_its_disk_together_are_refused_at_once(
    tmp_path, needed
):
    made = []

    def make(merger):
        made.append(Wrapped(merger))
        setattr(made[-1], needed, shutil.disk_usage(tmp_path).free // 3 * 2)
        return made[-1]

    with closing(owner_of(tmp_path / "alone", Other(make))) as owner:
        assert owner.hold([]) == []
    with pytest.raises(NoRoom):
        owner_of(tmp_path / "together", Other(make), on_instance=2).hold([])
    assert made[-1].closed


def test_room_for_records_is_needed_only_where_pieces_are_recorded(tmp_path):
    class Large(Wrapped):
        recorded_bytes = 1 << 60

    with closing(owner_of(tmp_path / "none", Other(Large), is_durable=False)) as owner:
        assert owner.hold([]) == []
    with pytest.raises(NoRoom):
        owner_of(tmp_path / "is_durable", Other(Large)).hold([])
