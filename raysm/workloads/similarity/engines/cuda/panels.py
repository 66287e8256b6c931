"""Rows on a device, ready for products: pieces of a side, of bounded size, the latest of which are kept.

A side is cut into *panels* of one size. A panel is made from the host's rows when it is needed, and again if it had to
make room meanwhile: so sides, and the matrix, may be larger than the device's memory.
"""

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import Rows
from raysm.workloads.similarity.engines import bounds
from raysm.workloads.similarity.engines.cuda.streams import Streams
from raysm.workloads.similarity.engines.protocol import Frame

__all__ = ["Cut", "Panel", "Panels", "panel_bytes", "rounded_down", "rounded_up"]

EXTRA = 6
"""Columns of a panel beside the rows' own, see ``bounds``."""

ALIGNED = 8
"""Tensor cores want a multiple of this many columns."""

LARGEST_EXPONENT = 12
"""Rows that are nearly all alike are multiplied by at most two to this."""

WIDE_BYTES = 256 << 20
"""Most memory of the float64 rows while a panel is made."""

FLOATS = {2: torch.float16, 4: torch.float32, 8: torch.float64}

PIECE = 2.0**-11
"""What the second piece of a number counts."""


def rounded_up(values: torch.Tensor) -> torch.Tensor:
    """Return float16 numbers that are not below these, of float64: the margin is twice what rounding takes."""
    return (values + values.abs() * 2.0**-10 + 2.0**-24).to(torch.float16)


def rounded_down(values: torch.Tensor) -> torch.Tensor:
    """Return float16 numbers that are not above these, of float64."""
    return -rounded_up(-values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """Some rows of a side, on the device."""

    start: int
    """Number of the first row in the matrix."""
    rows: torch.Tensor
    """rows[n, D], as the host has them; integers as the float type that holds them as float64 would."""
    norms: torch.Tensor
    """norms[n], float64."""
    cheap: torch.Tensor
    """cheap[n, W], float16: rows less the centre, scaled, with the columns of a left side; W is a multiple of 8."""
    error: torch.Tensor
    """error[n], float64: e_i in units of the scale."""
    length: torch.Tensor
    """length[n], float64: w_i in units of the scale."""
    spare: torch.Tensor
    """spare[n], float64: spare_i, not scaled."""
    scale: float
    """s, a power of two."""
    ready: object
    """Event after which it may be read."""

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)

    def right(self) -> torch.Tensor:
        """Return a copy of ``cheap`` with the columns of a right side."""
        first = self.rows.shape[1]
        # Error and length change places, and the pieces of beta with the scale: one product then sums all of them.
        right = self.cheap.clone()
        right[:, first : first + 2] = self.cheap[:, first : first + 2].flip(1)
        right[:, first + 2 : first + 4] = self.cheap[:, first + 4 : first + 6]
        right[:, first + 4 : first + 6] = self.cheap[:, first + 2 : first + 4]
        return right

    @property
    def nbytes(self) -> int:
        """Memory on the device."""
        return int(self.rows.nbytes + self.cheap.nbytes) + 40 * len(self)


class Cut:
    """A side, cut into panels of ``panel_rows`` rows; what ``PreparedTile.prepared`` is."""

    _tokens = itertools.count()

    def __init__(self, tile: Tile, frame: Frame, panel_rows: int) -> None:
        """Cut the tile."""
        self.token = next(Cut._tokens)
        self.frame = frame
        self.parts = [tile.part(start, start + panel_rows) for start in range(0, len(tile), panel_rows)]


class Panels:
    """The panels that are on the device: the latest ones, up to ``room_bytes``, and never fewer than two."""

    def __init__(self, device: torch.device, streams: Streams, room_bytes: int) -> None:
        """Begin with none."""
        self.made = 0
        """How many were made so far."""
        self._device, self._streams, self._room = device, streams, room_bytes
        self._held: OrderedDict[tuple[int, int], Panel] = OrderedDict()

    def follow(self, cut: Cut) -> None:
        """Drop the panels of a side with the side."""
        # By its token: who held the side itself would keep it alive. At the end of the process the memory goes anyway.
        weakref.finalize(cut, self._drop, cut.token).atexit = False

    def _drop(self, token: int) -> None:
        for key in [key for key in self._held if key[0] == token]:
            del self._held[key]

    @property
    def held_bytes(self) -> int:
        """Memory of all panels."""
        return sum(panel.nbytes for panel in self._held.values())

    def get(self, cut: Cut, at: int) -> Panel:
        """Return one panel of a side; the caller waits for its ``ready``."""
        key = cut.token, at
        panel = self._held.pop(key, None)
        if panel is None:
            tile = cut.parts[at]
            # All but the one that was asked for last: it is the other side of the product that comes.
            need = panel_bytes(len(tile), tile.rows)
            while len(self._held) > 1 and self.held_bytes + need > self._room:
                self._held.popitem(last=False)
            panel = self._make(tile, cut.frame)
            self.made += 1
        # Put back last, whether made or found: what was asked for longest ago is the first to go.
        self._held[key] = panel
        return panel

    def _make(self, tile: Tile, frame: Frame) -> Panel:
        with self._streams.copying():
            host = tile.rows.astype(_float_type(tile.rows.dtype), copy=False)
            rows = torch.empty(host.shape, dtype=FLOATS[host.itemsize], device=self._device)
            self._streams.upload(host, rows)
            norms = torch.from_numpy(np.array(tile.norms, dtype=np.float64)).to(self._device)
            prepared = _prepared(rows, norms, frame)
            for tensor in (rows, norms, *prepared[:-1]):
                self._streams.shared(tensor)
            cheap, error, length, spare, scale = prepared
            return Panel(
                start=tile.start,
                rows=rows,
                norms=norms,
                cheap=cheap,
                error=error,
                length=length,
                spare=spare,
                scale=scale,
                ready=self._streams.mark(),
            )


def panel_bytes(count: int, rows: Rows) -> int:
    """Return about the memory of a panel of so many such rows."""
    columns: int = rows.shape[1]
    return count * (columns * (_float_type(rows.dtype).itemsize + 2) + 2 * (EXTRA + ALIGNED) + 40)


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind == "f" and dtype.itemsize in FLOATS:
        # Torch takes numbers in this machine's byte order alone.
        return dtype.newbyteorder("=")
    # Both hold the integers exactly as far as float64 does, which is how the definition takes them.
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def _steps(rows: int, columns: int) -> Iterator[slice]:
    step = max(1, WIDE_BYTES // (32 * columns))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _prepared(
    rows: torch.Tensor, norms: torch.Tensor, frame: Frame
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, float]:
    """Return ``cheap``, ``error``, ``length``, ``spare`` and ``scale`` of a panel, by ``bounds``."""
    n, columns = rows.shape
    device, wide = rows.device, torch.float64
    centre = torch.from_numpy(np.array(frame.centre, dtype=np.float64)).to(device)
    slop, growth = bounds.slop(columns, frame.centre), bounds.device_growth(columns)
    inverse = torch.where(norms == 0, 0.0, 1.0 / torch.where(norms == 0, 1.0, norms))[:, None]

    def moved(some: slice) -> torch.Tensor:
        return rows[some].to(wide) * inverse[some] - centre

    # First how long the rows are, which decides the scale; then what float16 makes of them.
    lengths = torch.cat([torch.linalg.vector_norm(moved(some), dim=1) for some in _steps(n, columns)])
    shift = torch.cat([moved(some) @ centre for some in _steps(n, columns)])
    largest = float(torch.maximum(lengths.max(), shift.abs().max()))
    exponent = LARGEST_EXPONENT if largest == 0 else -int(np.frexp(largest)[1])
    scale = 2.0 ** max(-LARGEST_EXPONENT, min(LARGEST_EXPONENT, exponent))
    width = -(-(columns + EXTRA) // ALIGNED) * ALIGNED
    cheap = torch.zeros((n, width), dtype=torch.float16, device=device)
    lost = torch.empty(n, dtype=wide, device=device)
    for some in _steps(n, columns):
        exact = moved(some) * scale
        rounded = exact.to(torch.float16)
        cheap[some, :columns] = rounded
        exact -= rounded
        lost[some] = torch.linalg.vector_norm(exact, dim=1) * (1 + 2.0**-30) / scale
    length = (lengths + lost) * (1 + 2.0**-30) + slop
    error = (lost + slop + 2 * growth * length) * (1 + 4 * growth)
    beta = shift + 2 * growth * shift.abs() + slop
    cheap[:, columns] = rounded_up(error * scale)
    cheap[:, columns + 1] = rounded_up(length * scale)
    first = (beta * scale).to(torch.float16)
    # Only the second piece is rounded up: it takes in what the first one lost, either way.
    second = rounded_up((beta * scale - first) / PIECE)
    cheap[:, columns + 2], cheap[:, columns + 3] = first, second
    cheap[:, columns + 4], cheap[:, columns + 5] = scale, PIECE * scale
    # Read back, as they were rounded: that is what products see.
    tall = cheap[:, columns : columns + EXTRA].to(wide)
    pieces = (tall[:, 2] + tall[:, 3] * PIECE) / scale
    spare = pieces - shift + 2 * growth * pieces.abs() + 2 * slop
    return cheap, tall[:, 0].clone(), tall[:, 1].clone(), spare, scale
