"""Pairs that are split among the owners of ranges, and merged into the file of each."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from raysm.features.similarity.cluster.modes.mode import GROUP_ROWS, Ranges
from raysm.features.similarity.cluster.modes.threshold import MAX_PAIRS, Threshold, merge_pairs
from raysm.features.similarity.cluster.tasks import Part, TileTask, decode_part, encode_part
from raysm.features.similarity.cluster.tiling import triangle
from raysm.instance.work.record import BlockRecord
from raysm.instance.work.row_blocks import RowBlock, TileBlock
from tests.support.dense_rows import kinds_of_rows
from tests.support.reference import pairs, score_rows
from tests.support.similarity import context_of, operand_of, owned_ranges, queries_of, saved

ROWS = kinds_of_rows(rows=90)["duplicates"]
MODE = Threshold(np.float32(0.3))


def record_in(folder):
    return BlockRecord(folder / "records", {}, encode=encode_part, decode=decode_part)


def keep(record, name, **arrays):
    record.save(name, Part(arrays=arrays, peaks={}, seconds=0.0))


def written(folder, ranges, tasks, *, self_join):
    """Have tasks compare the rows, and an owner of each range write its pairs; return them."""
    context = context_of(saved(ROWS, folder))
    record, owned = record_in(folder), owned_ranges(ranges, len(ROWS), self_join=self_join)
    mergers = [MODE.merger(one, folder, folder, record) for one in owned]
    for task in tasks:
        for at, piece in MODE.split(task, MODE.compare(context, task), ranges):
            name = f"{task}, of {at}"
            keep(record, name, **piece)
            mergers[at].take(name, piece)
    files = [merger.write(None, lambda rows: None) for merger in mergers]
    columns = [pq.read_table(folder / file.name).to_pydict().values() for file in files]
    return [[(i, j, np.float32(s)) for i, j, s in zip(*one, strict=True)] for one in columns]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_owners_of_ranges_write_every_pair_of_two_rows_once_and_in_order(tmp_path, count):
    ranges = MODE.ranges(90, count, self_join=True)
    # The last block has two rows, and so one pair.
    found = written(
        tmp_path, ranges, [TileTask(tile, True) for tile in triangle(90, 44)], self_join=True
    )
    for block, part in zip(ranges, found, strict=True):
        assert all(block.start <= row < block.stop for row, _, _ in part)
    assert [pair for part in found for pair in part] == pairs(ROWS, MODE.least)


def test_an_owner_gets_a_piece_of_each_tile_with_rows_of_its_range_even_if_it_is_empty():
    ranges, tile = Ranges((0, 30, 60, 90)), TileBlock(RowBlock(0, 20), RowBlock(50, 90))
    found = {
        name: np.empty(0, np.uint32) for name in ("rows", "counts", "neighbors", "similarities")
    }
    assert [at for at, _ in MODE.split(TileTask(tile, False), found, ranges)] == [0]
    # In a self-join the columns may be the first of a pair, too.
    assert [at for at, _ in MODE.split(TileTask(tile, True), found, ranges)] == [0, 1, 2]


def test_queries_have_pairs_with_rows_whose_numbers_are_lower(tmp_path):
    queries = operand_of(queries_of(ROWS, tmp_path))
    context = replace(context_of(saved(ROWS, tmp_path)), other_queries=queries)
    found = MODE.compare(context, TileTask(TileBlock(RowBlock(60, 90), RowBlock(0, 30)), False))
    scores = score_rows(ROWS, range(60, 90))[:, :30]
    rows, columns = np.nonzero(scores >= MODE.least)
    assert len(rows)
    assert np.array_equal(np.repeat(found["rows"], found["counts"]), rows + 60)
    assert np.array_equal(found["neighbors"], columns)
    assert np.array_equal(found["similarities"], scores[rows, columns])


def test_the_pieces_of_a_tile_with_too_many_pairs_cover_it_counted_from_its_first_row():
    task = TileTask(TileBlock(RowBlock(100, 4100), RowBlock(5000, 9200)), True)
    found = MODE.split_given_up(task, {"overflowed": np.array([MAX_PAIRS + 1])})
    assert {piece.rows for piece in found} == {RowBlock(0, 4000)}
    assert [
        row for piece in found for row in range(piece.columns.start, piece.columns.stop)
    ] == list(range(4200))
    assert all(4000 * piece.columns.rows <= MAX_PAIRS for piece in found)
    assert MODE.split_given_up(task, {"rows": np.empty(0, np.uint32)}) == ()


def merged(record, names, rows):
    """Return the chunks of the merged pairs, and how many rows were reported as done."""
    done = []
    chunks = list(merge_pairs(record, names, rows, done.append))
    return chunks, sum(done)


def test_pieces_are_merged_in_groups_without_losing_a_row_at_the_edge_of_a_group(tmp_path):
    record, rows, each = record_in(tmp_path), RowBlock(7, 107), 20_000
    # One piece with half of the pairs of all rows, and a piece of its own for the others of each
    # row.
    halves = [np.arange(start, each, 2, dtype=np.uint32) for start in (0, 1)]
    scores = np.linspace(0, 1, each, dtype=np.float32)
    numbers = np.arange(7, 107, dtype=np.uint32)
    for name, some, neighbors in [
        ("all", numbers, halves[0]),
        *((f"row {row}", numbers[row - 7 : row - 6], halves[1]) for row in numbers.tolist()),
    ]:
        keep(
            record,
            name,
            rows=some,
            counts=np.full(len(some), each // 2, dtype=np.uint32),
            neighbors=np.tile(neighbors, len(some)),
            similarities=np.tile(scores[neighbors], len(some)),
        )
    chunks, done = merged(record, ["all", *(f"row {row}" for row in numbers.tolist())], rows)
    found = [np.concatenate(column) for column in zip(*chunks, strict=True)]
    assert np.array_equal(found[0], np.repeat(numbers, each))
    assert np.array_equal(found[1], np.tile(np.arange(each), 100))
    assert np.array_equal(found[2], np.tile(scores, 100))
    assert done == 100
    # As many rows in each group as fit into it.
    fit = GROUP_ROWS // each
    assert [len(chunk[0]) // each for chunk in chunks] == [fit, 100 - fit]


def test_a_row_with_more_pairs_than_a_group_is_merged_at_once(tmp_path):
    record, many = record_in(tmp_path), GROUP_ROWS + 3
    counts = np.array([2, many, 1], dtype=np.uint32)
    neighbors = np.concatenate([np.arange(count, dtype=np.uint32) for count in counts.tolist()])
    keep(
        record,
        "piece",
        rows=np.array([0, 1, 4], dtype=np.uint32),
        counts=counts,
        neighbors=neighbors,
        similarities=np.zeros(len(neighbors), dtype=np.float32),
    )
    chunks, done = merged(record, ["piece"], RowBlock(0, 6))
    assert np.array_equal(
        np.concatenate([chunk[0] for chunk in chunks]), np.repeat([0, 1, 4], counts)
    )
    assert np.array_equal(np.concatenate([chunk[1] for chunk in chunks]), neighbors)
    assert done == 6
