"""What is computed and gathered for top-k, for a threshold, and for the full matrix, once all rows are prepared."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import raysm
from raysm.contract.events import State
from raysm.contract.result import ResultFile
from raysm.request.codec import to_json
from raysm.workloads.announce import Pace
from raysm.workloads.blocks import RowBlock, TileBlock, map_blocks, row_blocks
from raysm.workloads.gather import check_room, move
from raysm.workloads.record import BlockRecord
from raysm.workloads.similarity import output
from raysm.workloads.similarity.arithmetic import tiling
from raysm.workloads.similarity.arithmetic.score import least_score
from raysm.workloads.similarity.arithmetic.topk_accumulator import Standing, zero_row_keys
from raysm.workloads.similarity.modes import full, partial_merge, threshold, topk
from raysm.workloads.similarity.reading.ids import Ids, gather
from raysm.workloads.similarity.reading.npy import header
from raysm.workloads.similarity.sizing import sizes
from raysm.workloads.similarity.tasks.context import Context
from raysm.workloads.similarity.tasks.parts import Part, decode_part, encode_part, measured
from raysm.workloads.similarity.work import Work
from raysm.workloads.stream import Stream

__all__ = ["compute", "digests_of", "full_file", "gathering", "ids_of", "record_of"]


def compute(work: Work) -> tuple[ResultFile, ...]:
    """Compute what the workload asks for, and write it; return its files.

    Raises:
        NoRoom: The head's disk became full.
        BlockFailed: A tile failed on every attempt.
    """
    workload = work.workload
    if workload.top_k is not None:
        return (_top_k(work, workload.top_k),)
    if workload.threshold is not None:
        return (_threshold(work, least_score(workload.threshold)),)
    return (_full(work),)


def _depends_on(work: Work, kind: str) -> dict[str, Any]:
    # Of the block size, what was asked for: where nothing was, the record itself keeps the size that was chosen.
    depends_on = {"format": 5, "kind": kind, "workload": to_json(work.workload), "inputs": work.digests}
    return depends_on | {"rows": work.seekers.rows, "columns": work.matrix.columns, "raysm": raysm.__version__}


def record_of(work: Work, kind: str) -> BlockRecord[Part]:
    """Return the record of parts of that kind."""
    return BlockRecord(work.folders.records, _depends_on(work, kind), encode=encode_part, decode=decode_part)


def digests_of(work: Work, kind: str) -> BlockRecord[str]:
    """Return the record of the digests of tiles that are in their file already."""
    return BlockRecord(
        work.folders.records,
        _depends_on(work, kind),
        encode=lambda digest: [digest.encode()],
        decode=lambda data: bytes(data).decode(),
    )


def _tiles(work: Work, record: BlockRecord[Any]) -> list[TileBlock]:
    if work.queries is None:
        size = sizes.block_rows(
            work.workload, work.matrix, record, sparse=work.context.sparse, gpus=work.context.on_gpus
        )
        return list(tiling.triangle(work.matrix.rows, size))
    sparse = work.context.sparse
    rows, columns = sizes.rectangle_rows(
        work.workload, work.queries, work.matrix, record, sparse=sparse, gpus=work.context.on_gpus
    )
    return list(tiling.rectangle(work.queries.rows, work.matrix.rows, rows, columns))


def _map(
    work: Work,
    function: Callable[[Context, Any], Any],
    tiles: Sequence[TileBlock],
    done: float = 0.0,
    deal: Callable[[TileBlock], Any] = lambda tile: tile,
    record: BlockRecord[Part] | None = None,
    groups: partial_merge.Groups | None = None,
) -> Iterator[tuple[TileBlock, Part]]:
    """Map over the tiles and announce the progress, in rows: a tile counts by its pairs.

    Args:
        work: What is done.
        function: Given the context and a block, it returns arrays.
        tiles: All that are left to do.
        done: Share of the whole that was done before.
        deal: Makes of a tile, when it is dispatched, the block that its task is given.
        record: Where parts are kept.
        groups: The tiles are groups of smaller ones.
    """
    task: Callable[[Any], Part] = partial(measured, function, work.context)
    how: dict[str, Any] = {"num_gpus": int(work.context.on_gpus), "lasting": work.context.on_gpus}
    if groups is not None:
        task, how = groups.task(task), {"num_cpus": 0, "in_flight": groups.at_once}
    rows = work.seekers.rows
    pace = Pace("similarity", rows, "rows", work.announce)
    area = sum(map(tiling.area, tiles))
    reached = 0.0
    work.blocks += len(tiles)
    work.blocks_found += 0 if record is None else sum(tile in record for tile in tiles)
    with work.phase("similarity"):
        for block, part in map_blocks(task, map(deal, tiles), record=record, **how):
            work.took_part(part)
            tile = block if isinstance(block, TileBlock) else block.tile
            yield tile, part
            reached += tiling.area(tile)
            # The last tile ends it: a sum of shares might fall short by a rounding.
            share = done + (1 - done) * reached / area
            pace.reach(rows if reached == area else math.floor(rows * share))


def ids_of(work: Work) -> Ids | None:
    """Return what rows and neighbors are called, where a column names them; all else is computed by now."""
    return gather(work.seekers, work.matrix)


@contextmanager
def gathering(work: Work) -> Iterator[Pace]:
    """Announce and measure the last phase."""
    work.announce(State(name="gathering"))
    work.folders.result.mkdir(parents=True, exist_ok=True)
    with work.phase("gathering"):
        yield Pace("gather", work.seekers.rows, "rows", work.announce)


def _top_k(work: Work, k: int) -> ResultFile:
    record = record_of(work, "topk")
    norms, same = work.context.seekers.norms, work.context.same
    tiles = _tiles(work, record)
    groups = partial_merge.groups_of(work, k, tiles, record)
    tiles = tiles if groups is None else groups.blocks
    standing = Standing(work.scratch, work.seekers.rows, k)
    gpus, sparse = work.context.on_gpus, work.context.sparse
    side_rows = min(
        sizes.most_rows(work.workload, one, sparse=sparse, gpus=gpus) for one in (work.seekers, work.matrix)
    )

    def deal(tile: TileBlock) -> topk.Deal:
        floors = standing.floors
        columns = floors[tile.columns.start : tile.columns.stop] if same and tile.rows != tile.columns else floors[:0]
        return topk.Deal(tile, floors[tile.rows.start : tile.rows.stop].copy(), columns.copy(), side_rows)

    def keys(start: int, stop: int) -> NDArray[np.uint64]:
        found = standing.read(start, stop)
        zero = np.flatnonzero(norms[start:stop] == 0)
        found[zero] = zero_row_keys(zero + start, k, same=same)
        return found

    try:
        for tile, part in _map(work, partial(_topk_arrays, k), tiles, deal=deal, record=record, groups=groups):
            standing.merge(tile.rows, part.arrays["counts"], part.arrays["keys"])
            if "column_counts" in part.arrays:
                standing.merge(tile.columns, part.arrays["column_counts"], part.arrays["column_keys"])
        with gathering(work) as pace:
            file = output.write_neighbors(work.folders.result, keys, k, work.seekers.rows, pace.add, ids_of(work))
    finally:
        standing.close()
    record.remove()
    return file


def _topk_arrays(k: int, context: Context, deal: topk.Deal) -> dict[str, NDArray[Any]]:
    return topk.topk_tile(context, k, deal)


def _threshold(work: Work, least: np.float32) -> ResultFile:
    record = record_of(work, "threshold")
    function = partial(_threshold_arrays, least)
    whole: list[TileBlock] = []
    crowded: list[TileBlock] = []
    tiles = _tiles(work, record)
    for tile, part in _map(work, function, tiles, record=record):
        (crowded if "crowded" in part.arrays else whole).append(tile)
    if crowded:
        again = [piece for tile in crowded for piece in threshold.pieces(tile)]
        share = sum(map(tiling.area, whole)) / sum(map(tiling.area, tiles))
        whole += [tile for tile, _ in _map(work, function, again, done=share, record=record)]
    with gathering(work) as pace:
        ids = ids_of(work)
        # A pair takes 8 bytes in a part.
        check_room([(work.folders.result, int(record.size_bytes() / 8 * output.pair_bytes(ids)))])
        file = output.write_pairs(work.folders.result, record, _stripes(whole), pace.add, ids)
    record.remove()
    return file


def _threshold_arrays(least: np.float32, context: Context, tile: TileBlock) -> dict[str, NDArray[Any]]:
    return threshold.threshold_tile(context, least, tile)


def _stripes(tiles: Iterable[TileBlock]) -> list[list[TileBlock]]:
    """Return the tiles of the same rows together, rows and columns rising."""
    ordered = sorted(tiles, key=lambda tile: (tile.rows.start, tile.columns.start))
    return [list(stripe) for _, stripe in groupby(ordered, key=lambda tile: tile.rows)]


def _full(work: Work) -> ResultFile:
    """Write the full matrix in strips of whole rows, each one piece of the file, all scores of which are computed.

    The lower half is the upper one's mirror image, but a file that is written in order has it elsewhere: it would have
    to be kept in memory, a quarter of the matrix, or be read back in pieces of some kilobytes. On two cores, of 50,000
    rows of 128 columns, that took 102 s and this 32; the scores cost 17 s of one core for each half.
    """
    rows, columns, dtype = work.seekers.rows, work.matrix.rows, np.dtype(work.workload.dtype)
    record = digests_of(work, "full strips")
    strips = [TileBlock(cut, RowBlock(0, columns)) for cut in row_blocks(rows, _strip_rows(work, record))]
    head, row_bytes = header((rows, columns), dtype), columns * dtype.itemsize
    stream = Stream(record.folder / "array", head, len(head) + rows * row_bytes)
    try:
        found = 0
        for strip in strips:
            if strip not in record or not stream.believe(len(head) + strip.rows.stop * row_bytes, record.load(strip)):
                break
            found += 1
        missing = strips[found:]
        work.blocks = work.blocks_found = found
        done = 1 - sum(map(tiling.area, missing)) / sum(map(tiling.area, strips))
        side_rows = sizes.most_rows(work.workload, work.matrix, sparse=work.context.sparse)
        for strip, part in _map(work, partial(_full_arrays, dtype.name, side_rows), missing, done=done):
            scores = part.arrays["scores"].data.cast("B")
            stream.put(len(head) + strip.rows.start * row_bytes, scores, partial(record.save, strip))
            del scores, part
        with gathering(work) as pace:
            file = full_file(work, stream.path, stream.finish())
            pace.reach(rows)
    finally:
        stream.close()
    record.remove()
    return file


def _strip_rows(work: Work, record: BlockRecord[Any]) -> int:
    sparse = work.context.sparse
    return sizes.strip_rows(work.workload, work.seekers, work.matrix, record, sparse=sparse)


def full_file(work: Work, path: Path, sha256: str) -> ResultFile:
    """Move the full matrix, all of whose scores are written, to the result; return its entry of the manifest."""
    target = work.folders.result / output.SIMILARITY
    move(path, target)
    return ResultFile(
        name=target.name,
        shape=(work.seekers.rows, work.matrix.rows),
        units=("rows", "columns"),
        bytes=target.stat().st_size,
        sha256=sha256,
        how_to_read=f'import numpy; scores = numpy.load("{target.name}", mmap_mode="r")',
    )


def _full_arrays(dtype: Any, side_rows: int, context: Context, strip: TileBlock) -> dict[str, NDArray[Any]]:
    return {"scores": full.full_tile(context, dtype, strip, side_rows)}
