"""The pieces of pairs, and the owners that they come to, without any cluster."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.errors import NoRoom
from raysm.workloads.blocks import RowBlock, TileBlock
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.modes.owned.threshold import OwnedPairs
from raysm.workloads.similarity.modes.threshold import Threshold
from raysm.workloads.similarity.owning.ranges import Ranges
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part
from raysm.workloads.similarity.tasks.tile_task import FreeTile
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import pairs
from tests.support.similarity import context_of, range_files, saved, two_matrices

ROWS = kinds_of_rows(rows=200)["duplicates"]
TASK = FreeTile(TileBlock(RowBlock(0, 10), RowBlock(20, 30)), True)
NOTHING = {
    "rows": np.empty(0, dtype=np.uint32),
    "counts": np.empty(0, dtype=np.uint32),
    "neighbors": np.empty(0, dtype=np.uint32),
    "similarities": np.empty(0, dtype=np.float32),
}


class Swapped(FreeTile):
    """A tile of rows whose second half comes first where they lie: a column may have the lower number."""

    __slots__ = ()

    def row_numbers(self, places):
        return (places + 100) % 200

    column_numbers = row_numbers


def recording(folder):
    return BlockRecord(folder / "records", {}, encode=encode_part, decode=decode_part)


def merger_of(rows, folder):
    return OwnedPairs(self_join=True).merger(*range_files([rows], folder), folder, recording(folder))


def owned_pairs(folder, count, tasks, context, threshold=0.4):
    """Compare tile by tile, and have so many owners write what they were sent."""
    owned, record = OwnedPairs(self_join=context.self_join), recording(folder)
    ranges = owned.ranges(context.queries.rows, count)
    mergers = [owned.merger(file, folder, record) for file in range_files(ranges, folder / "result")]
    for task in tasks:
        for at, piece in owned.split(task, Threshold(least_score(threshold)).compare(context, task), ranges):
            name = f"{task}, {at}"
            record.save(name, Part(arrays=piece, peaks={}, seconds=0.0))
            mergers[at].take(name, piece)
    files = [merger.write(None) for merger in mergers]
    assert [file.name for file in files] == [f"pairs/part-{at:03d}.parquet" for at in range(len(ranges))]
    columns = pq.read_table(folder / "result" / "pairs").to_pydict().values()
    return [(row, neighbor, np.float32(score)) for row, neighbor, score in zip(*columns, strict=True)]


@pytest.mark.parametrize("count", [1, 3, 200])
def test_ranges_hold_the_pairs_of_their_rows_in_order(tmp_path, count):
    tasks = [FreeTile(tile, True) for tile in tiling.triangle(200, 30)]
    assert owned_pairs(tmp_path, count, tasks, context_of(saved(ROWS, tmp_path))) == pairs(ROWS, 0.4)


def test_a_pair_belongs_to_its_lower_number_wherever_that_row_lies(tmp_path):
    tasks = [Swapped(tile, True) for tile in tiling.triangle(200, 25)]
    found = owned_pairs(tmp_path, 3, tasks, context_of(saved(ROWS, tmp_path)))
    assert found == pairs(np.concatenate([ROWS[100:], ROWS[:100]]), 0.4)


def test_pairs_of_queries_belong_to_the_query(tmp_path):
    context = two_matrices(ROWS[:50], ROWS, tmp_path)
    tasks = [FreeTile(tile, False) for tile in tiling.rectangle(50, 200, 20, 90)]
    one, many = (owned_pairs(tmp_path / str(count), count, tasks, context) for count in (1, 4))
    assert many == one
    # Each of them is a row of the matrix, and alike to itself at least; a zero row is to none.
    assert {row for row, neighbor, _ in one if row == neighbor} == set(np.flatnonzero(ROWS[:50].any(axis=1)).tolist())


def test_ranges_of_rows_among_themselves_have_as_many_pairs_and_those_of_queries_as_many_rows():
    first, *_, last = OwnedPairs(self_join=True).ranges(1000, 4)
    assert first.rows < last.rows / 3
    assert {rows.rows for rows in OwnedPairs(self_join=False).ranges(1000, 4)} == {250}


def test_each_owner_of_a_tiles_rows_hears_of_it_even_where_nothing_was_found():
    pieces = dict(OwnedPairs(self_join=True).split(TASK, NOTHING, Ranges((0, 5, 15, 25, 40))))
    assert list(pieces) == [0, 1, 2, 3]
    assert {len(array) for piece in pieces.values() for array in piece.values()} == {0}


def test_a_tile_with_more_pairs_than_a_task_may_hand_over_is_given_up():
    owned = OwnedPairs(self_join=True)
    assert owned.given_up(TASK, {"overflowed": np.array([9])}) == [TileBlock(RowBlock(0, 10), RowBlock(0, 10))]
    assert owned.given_up(TASK, NOTHING) == []


def test_a_range_without_pairs_is_a_file_too(tmp_path):
    merger = merger_of(RowBlock(5, 9), tmp_path)
    merger.take("a tile", NOTHING)
    assert (merger.keeps_pieces, merger.result_bytes, merger.scratch_bytes) == (True, 0, 0)
    assert merger.write(None).shape == (0,)


def test_an_owner_looks_for_room_when_it_knows_how_many_pairs_it_has(tmp_path):
    merger = merger_of(RowBlock(0, 1), tmp_path)
    # As many as no disk takes, without any memory.
    many = np.broadcast_to(np.uint32(0), 1 << 50)
    merger.take("a tile", NOTHING | {"rows": np.zeros(1, dtype=np.uint32), "neighbors": many})
    with pytest.raises(NoRoom, match=r"on algo-1 has .* the result needs"):
        merger.write(None)
