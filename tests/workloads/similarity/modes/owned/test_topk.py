"""The pieces of top-k, and the owners that they come to, without any cluster."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.modes.owned.topk import OwnedTopK
from raysm.workloads.similarity.modes.topk import TopK
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import neighbors
from tests.support.similarity import context_of, range_files, saved

ROWS = kinds_of_rows(rows=200)["duplicates"]
ZERO = np.flatnonzero(~ROWS.any(axis=1))


def owned_of(k, rows=ROWS):
    return OwnedTopK(k=k, self_join=True, max_tile_rows=64, zero_rows=np.flatnonzero(~rows.any(axis=1)))


class Shuffled(FreeTile):
    """A tile of rows whose numbers are in two runs, as those of a share of files are."""

    __slots__ = ()

    def row_numbers(self, places):
        return np.where(places < 5, places, places + 10)


def computed(folder, k, count, block_rows=30, told=True):
    """Compare all rows tile by tile; return the mergers of so many ranges."""
    owned, context, ranges = owned_of(k), context_of(saved(ROWS, folder)), Ranges.even(len(ROWS), count)
    mergers = [owned.merger(file, folder, None) for file in range_files(ranges, folder / "result")]

    def ask(numbers):
        from raysm.workloads.similarity.arithmetic.row_order import consecutive

        if not told:
            return np.full(len(numbers), -np.inf, dtype=np.float32)
        parts = [mergers[at].bounds(list(consecutive(numbers[some]))) for at, some in ranges.of(numbers)]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)

    sent = 0
    for tile in tiling.triangle(len(ROWS), block_rows):
        task = owned.informed(FreeTile(tile, True), ask)
        for at, piece in owned.split(task, TopK(k).compare(context, task), ranges):
            sent += len(piece["keys"])
            mergers[at].take(str(task), piece)
    return mergers, sent


def table_of(mergers, folder):
    for merger in mergers:
        merger.write(None)
        merger.close()
    return pq.read_table(folder / "result" / "neighbors")


@pytest.mark.parametrize("count", [1, 3, 200])
def test_ranges_hold_the_best_of_their_rows(tmp_path, count):
    table = table_of(computed(tmp_path, 5, count)[0], tmp_path)
    expected = neighbors(ROWS, 5)
    assert np.array_equal(table["neighbors"].to_pylist(), expected[0])
    assert np.array_equal(np.array(table["similarities"].to_pylist(), dtype=np.float32), expected[1])


def test_what_owners_know_spares_keys_and_changes_nothing(tmp_path):
    told, few = computed(tmp_path / "told", 5, 3)
    untold, many = computed(tmp_path / "untold", 5, 3, told=False)
    assert few < many
    assert table_of(told, tmp_path / "told") == table_of(untold, tmp_path / "untold")


def test_each_owner_of_a_tiles_rows_hears_of_it_even_where_nothing_was_found():
    task = FreeTile(TileBlock(RowBlock(0, 10), RowBlock(20, 30)), True)
    nothing = {
        "counts": np.zeros(10, dtype=np.uint32),
        "keys": np.empty(0, dtype=np.uint64),
        "column_counts": np.zeros(10, dtype=np.uint32),
        "column_keys": np.empty(0, dtype=np.uint64),
    }
    pieces = dict(owned_of(2).split(task, nothing, Ranges((0, 5, 15, 25, 40))))
    # The third range begins within the columns: each owner has its rows of them alone.
    assert {at: (piece["starts"].tolist(), piece["lengths"].tolist()) for at, piece in pieces.items()} == {
        0: ([0], [5]),
        1: ([5], [5]),
        2: ([20], [5]),
        3: ([25], [5]),
    }


def test_rows_of_several_runs_are_named_by_their_numbers():
    task = Shuffled(TileBlock(RowBlock(0, 10), RowBlock(0, 10)), True)
    arrays = {"counts": np.arange(10, dtype=np.uint32), "keys": np.arange(45, dtype=np.uint64)}
    pieces = dict(owned_of(9).split(task, arrays, Ranges((0, 17, 40))))
    assert pieces[0]["starts"].tolist() == [0, 15]
    assert pieces[0]["lengths"].tolist() == [5, 2]
    assert pieces[0]["counts"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert (pieces[1]["starts"].tolist(), pieces[1]["lengths"].tolist()) == ([17], [3])
    assert pieces[1]["keys"].tolist() == list(range(21, 45))


def test_a_range_says_what_its_disk_needs(tmp_path):
    merger = owned_of(16).merger(*range_files([RowBlock(0, 1000)], tmp_path), tmp_path, None)
    assert merger.scratch_bytes == 1000 * 16 * 8
    assert merger.result_bytes >= 1000 * (16 * 12 + 8)
    merger.close()
