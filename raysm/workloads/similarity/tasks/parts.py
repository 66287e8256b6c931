"""The task of one tile, and what it hands back: arrays, and who made them; as bytes that a record keeps and maps."""

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import TileBlock
from raysm.workloads.record import Buffers
from raysm.workloads.similarity.tasks.context import Context, RowShape
from raysm.workloads.similarity.tasks.engine_cache import engine_name

__all__ = [
    "Comparing",
    "FreeTile",
    "Part",
    "TileTask",
    "decode_part",
    "encode_part",
    "measured",
    "peak_memory_bytes",
    "prepared_part",
]


class TileTask(Protocol):
    """A tile, as a mode sees it wherever the rows lie. ``str`` of it names it in messages and in the record."""

    @property
    def tile(self) -> TileBlock:
        """Places of the queries' rows, and of the matrix's."""
        ...

    @property
    def mirrored(self) -> bool:
        """Whether the tile serves its columns too: of a self-join, all tiles but those on the diagonal do."""
        ...

    @property
    def area(self) -> float:
        """The work: its pairs, of a block with itself each unordered one, and a row with itself by half."""
        ...

    @property
    def hint(self) -> Any:
        """What the mode knew when the task was dispatched; none of it changes the answer."""
        ...

    @property
    def in_order(self) -> bool:
        """Whether the places of its rows and columns are their numbers, so that nothing has to be renumbered."""
        ...

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers in the matrix of queries by their places."""
        ...

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers of rows of the matrix by their places."""
        ...


class Comparing(Protocol):
    """What tasks call: a mode, or the handover of what a mode finds to the owners of its rows."""

    def compare(self, context: Context, task: TileTask) -> Mapping[str, NDArray[Any]]:
        """Do one task, where the rows of its tile can be read; return what the head takes in."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FreeTile:
    """A tile that any instance can compute: the rows lie whole everywhere, so their places are their numbers."""

    tile: TileBlock
    """Which pairs."""
    self_join: bool
    """The rows are those of one matrix."""
    hint: Any = None
    """See ``TileTask``."""

    @property
    def mirrored(self) -> bool:
        """Whether the tile serves its columns too."""
        return self.self_join and self.tile.rows != self.tile.columns

    @property
    def area(self) -> float:
        """The work, see ``TileTask``."""
        entries = self.tile.rows.rows * self.tile.columns.rows
        # Of a block with itself every pair stands there twice.
        return entries / 2 if self.self_join and not self.mirrored else entries

    @property
    def in_order(self) -> bool:
        """Always: every instance has all rows."""
        return True

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places."""
        return places

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places."""
        return places

    def __str__(self) -> str:
        """Return the tile's name: records and messages know it by that."""
        # Without the hint: another run is told other bounds, and has to find the part all the same.
        return str(self.tile)


ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """The result of one block: of one task, or of many that are merged."""

    arrays: Mapping[str, NDArray[Any]]
    """By name."""
    peaks: Mapping[str, int]
    """By instance that computed it, the most memory that a task's process ever held, mapped pages among it."""
    seconds: float
    """How long it took, all tasks together."""
    engines: tuple[str, ...] = ()
    """What it was computed with; none where no engine was needed."""


def measured(function: Callable[[Context, Any], Mapping[str, NDArray[Any]]], context: Context, block: Any) -> Part:
    """Run ``function(context, block)``, which compares rows, and say what it took."""
    part = _timed(function, context, block, context.host)
    name = engine_name(context)
    return replace(part, engines=(name,) if name else ())


def prepared_part(function: Callable[[RowShape, Any], Mapping[str, NDArray[Any]]], shape: RowShape, block: Any) -> Part:
    """Run ``function(shape, block)``, which needs no engine yet, and say what it took."""
    return _timed(function, shape, block, shape.source.here().host)


def _timed(function: Callable[..., Mapping[str, NDArray[Any]]], argument: Any, block: Any, host: str) -> Part:
    begin = time.perf_counter()
    arrays = function(argument, block)
    return Part(arrays=arrays, peaks={host: peak_memory_bytes()}, seconds=time.perf_counter() - begin)


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held, mapped pages of the matrix among it."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def encode_part(part: Part) -> Buffers:
    """Turn a part into bytes: one line of JSON, then the arrays, each on a 64-byte boundary."""
    # A transposed or strided array has no bytes in a row that could be written as they lie.
    arrays = {name: np.asarray(array, order="C") for name, array in part.arrays.items()}
    line = json.dumps(
        {
            "arrays": [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()],
            "peaks": part.peaks,
            "seconds": part.seconds,
            "engines": part.engines,
        }
    ).encode()
    # Padded: each array begins on a boundary, where it can be mapped.
    buffers: list[bytes | memoryview] = [line.ljust(-(len(line) + 1) % ALIGNMENT + len(line)) + b"\n"]
    for array in arrays.values():
        if array.nbytes:
            buffers += [array.data.cast("B"), bytes(-array.nbytes % ALIGNMENT)]
    return buffers


def decode_part(data: memoryview) -> Part:
    """Turn bytes back; the arrays are views of them."""
    # JSON on one line holds no newline of its own: the first at the end of 64 bytes ends it.
    end = next(at for at in range(ALIGNMENT - 1, len(data), ALIGNMENT) if data[at] == 10) + 1
    fields = json.loads(bytes(data[:end]))
    arrays = {}
    for name, kind, shape in fields["arrays"]:
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = (
            np.frombuffer(data, dtype=dtype, count=count, offset=end).reshape(shape)
            if count
            else np.empty(shape, dtype)
        )
        end += count * dtype.itemsize
        end += -end % ALIGNMENT
    return Part(arrays=arrays, peaks=fields["peaks"], seconds=fields["seconds"], engines=tuple(fields["engines"]))
