"""The task of one tile, and its result as a ``Part``: arrays and measures, encoded as bytes that a record can map."""

import json
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from raysm.features.similarity.cluster.tasks.context import Context, RowShape, engine_name
from raysm.instance.work.record import Buffers
from raysm.instance.work.row_blocks import TileBlock


@dataclass(frozen=True, slots=True, eq=False)
class TileTask:
    """A tile that any instance can compute: every instance has all rows, so their places are their numbers.

    Its ``str`` names it in messages and in the record, without the hint, which differs from run to
    run.
    """

    tile: TileBlock
    """Places of the queries' rows, and of the matrix's."""
    self_join: bool
    hint: Any = None
    """What the mode knew when the task was dispatched: it saves time, and never changes the
    answer."""

    @property
    def mirrored(self) -> bool:
        """True if the tile serves its columns too: in a self-join, all tiles but those on the diagonal do."""
        return self.self_join and self.tile.rows != self.tile.columns

    @property
    def area(self) -> float:
        """The work, in pairs; a block with itself counts each unordered pair once, and a row with itself half."""
        entries = self.tile.rows.rows * self.tile.columns.rows
        return entries / 2 if self.self_join and not self.mirrored else entries

    @property
    def in_order(self) -> bool:
        """True if the places of its rows and columns are their numbers, so that nothing has to be renumbered."""
        return True

    def row_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def column_numbers(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return places

    def __str__(self) -> str:
        return str(self.tile)


class Comparing(Protocol):
    """The interface that tasks call: a mode, or ``Handover``, which sends a mode's results to the owners."""

    def compare(self, context: Context, task: TileTask) -> Mapping[str, NDArray[Any]]:
        """Do one task in a process that can read the rows of its tile; return the arrays for the head."""
        ...


ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    arrays: Mapping[str, NDArray[Any]]
    peaks: Mapping[str, int]
    """The most memory that a task's process ever held on each instance, with mapped pages."""
    seconds: float
    engines: tuple[str, ...] = ()
    """Names of the engines that computed it; empty if it needed none."""


def measured(
    function: Callable[[Context, Any], Mapping[str, NDArray[Any]]], context: Context, block: Any
) -> Part:
    """Run ``function(context, block)``, which compares rows; return its arrays with time, memory and engine."""
    part = _timed(function, context, block, context.host)
    name = engine_name(context)
    return replace(part, engines=(name,) if name else ())


def prepared_part(
    function: Callable[[RowShape, Any], Mapping[str, NDArray[Any]]], shape: RowShape, block: Any
) -> Part:
    return _timed(function, shape, block, shape.source.here().host)


def _timed(
    function: Callable[..., Mapping[str, NDArray[Any]]], argument: Any, block: Any, host: str
) -> Part:
    begin = time.perf_counter()
    arrays = function(argument, block)
    return Part(
        arrays=arrays, peaks={host: peak_memory_bytes()}, seconds=time.perf_counter() - begin
    )


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held, including mapped pages of the matrix."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in KiB, macOS in bytes.
    return peak if sys.platform == "darwin" else peak * 1024


def encode_part(part: Part) -> Buffers:
    """Turn a part into bytes: one line of JSON, then the arrays, each on a 64-byte boundary."""
    # Copy transposed and strided arrays, whose bytes are not contiguous.
    arrays = {name: np.asarray(array, order="C") for name, array in part.arrays.items()}
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    fields = {
        "arrays": shapes,
        "peaks": part.peaks,
        "seconds": part.seconds,
        "engines": part.engines,
    }
    line = json.dumps(fields).encode()
    # The padding lets each array begin on a boundary, as mapping needs it.
    buffers: list[bytes | memoryview] = [
        line.ljust(-(len(line) + 1) % ALIGNMENT + len(line)) + b"\n"
    ]
    for array in arrays.values():
        if array.nbytes:
            buffers += [array.data.cast("B"), bytes(-array.nbytes % ALIGNMENT)]
    return buffers


def decode_part(data: memoryview) -> Part:
    # The JSON has no newline in it and is padded, so its line ends with the first newline at the
    # end of a 64-byte block.
    end = next(at for at in range(ALIGNMENT - 1, len(data), ALIGNMENT) if data[at] == 10) + 1
    fields = json.loads(bytes(data[:end]))
    arrays = {}
    for name, kind, shape in fields["arrays"]:
        dtype = np.dtype(kind)
        count = int(np.prod(shape, dtype=np.int64))
        flat = (
            np.frombuffer(data, dtype=dtype, count=count, offset=end)
            if count
            else np.empty(0, dtype)
        )
        arrays[name] = flat.reshape(shape)
        end += count * dtype.itemsize
        end += -end % ALIGNMENT
    return Part(
        arrays=arrays,
        peaks=fields["peaks"],
        seconds=fields["seconds"],
        engines=tuple(fields["engines"]),
    )
