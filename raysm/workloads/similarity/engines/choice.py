"""Choose the engine: the fastest that this machine has, or the one that the caller names.

A CPU engine is one file, one function that makes it or reports why it cannot, and one line in ``FAMILIES``. A short
probe on a sample of the rows finds the fastest one. The GPU engine is used only by name, because only some instances
have GPUs.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.arithmetic.score import Tile
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseTile
from raysm.workloads.similarity.engines.compiled import CompiledEngine, kind_name
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.engines.protocol import Best, Engine, Frame
from raysm.workloads.similarity.engines.sparse import SparseEngine
from raysm.workloads.similarity.kernels.build import Unavailable, library
from raysm.workloads.similarity.kernels.recipes import FLOATS, INTEGERS, InstructionSet, dense, this_machine

CUDA = "cuda"
"""The word that selects the GPU engine. It must match as a whole; other engines match by any part of their name."""


def is_cuda(word: str | None) -> bool:
    return word is not None and word.lower() == CUDA


def why_no_cuda(columns: int) -> str:
    """Return why this process's GPU cannot compare rows of that many columns, or ""."""
    try:
        # Make an engine just for the checks that it makes of the device.
        _cuda(columns)
    except Unavailable as error:
        return str(error)
    return ""


def _cuda(columns: int) -> Engine[Tile]:
    try:
        # Imported here, because the other engines do not need torch.
        from raysm.workloads.similarity.engines.cuda import cuda_engine
    except ImportError as error:
        raise Unavailable(f"{error.name or 'torch'} is missing") from error
    return cuda_engine(columns)


PROBE_ROWS = 512
"""Rows of the probe; with fewer than a quarter of them, times would not be meaningful."""

PROBE_K = 10

MIX_PAYS = 0.9
"""Mix rows only if that reduces the integers' error by at least this factor."""

Candidates = tuple[tuple[int, InstructionSet], ...]
"""Bits of the elements, and the instructions that multiply them, the fastest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """The rows, and the name, that an engine is made for."""

    sample: Tile
    frame: Frame
    name: str | None = None
    """A word of the name of the wanted engine; None accepts any."""
    reasons: list[str] = field(default_factory=list)
    """Reasons why engines are unavailable, in the order in which they were tried."""

    @property
    def columns(self) -> int:
        return int(self.sample.rows.shape[1])

    def wanted(self, name: str) -> bool:
        return self.name is None or self.name.lower() in name.lower()


def integers(rows: Rows, candidates: Candidates = INTEGERS) -> Engine[Tile] | None:
    """Return the engine of the fastest integers of this machine, with mixed rows if that makes the error smaller."""
    return _first(candidates, rows, lambda bits, flags: _integers(bits, flags, rows))


def floats(rows: Rows, candidates: Candidates = FLOATS) -> Engine[Tile] | None:
    return _first(candidates, rows, lambda bits, flags: CompiledEngine(bits, flags, rows.columns, mixed=False))


FAMILIES: list[Callable[[Rows], Engine[Tile] | None]] = [integers, floats]
"""Makers of CPU engines for dense rows. Each returns an engine that works here and is wanted, or adds a reason and
returns None.

Of equally fast engines, the first is chosen. NumPy's is not in the list: it is used if there is no other.
"""


def choose(
    sample: Tile | SparseTile,
    frame: Frame,
    forced: str | None = None,
    families: list[Callable[[Rows], Engine[Tile] | None]] | None = None,
) -> Engine[Any]:
    """Return the engine for a matrix; a short probe on some hundred of its rows, the ``sample``, finds the fastest.

    ``forced`` is a word of the engine's name, such as ``float32``, or ``cuda`` for this process's GPU. With None, the
    probe chooses a CPU engine.

    Raises:
        InvalidRequest: No engine of this machine has that word in its name.
    """
    if isinstance(sample, SparseTile):
        try:
            sparse = SparseEngine(sample.rows.columns)
        except Unavailable as error:
            raise InvalidRequest(f"sparse rows cannot be compared by their elements here: {error}") from error
        if forced is not None and forced.lower() not in sparse.name:
            raise InvalidRequest(f"no engine for sparse rows is called {forced!r}; this machine has {sparse.name!r}")
        return sparse
    if is_cuda(forced):
        try:
            return _cuda(sample.rows.shape[1])
        except Unavailable as error:
            raise InvalidRequest(f"the engine {CUDA!r} cannot be had here: {error}") from error
    rows = Rows(sample=sample.part(0, PROBE_ROWS), frame=frame, name=forced)
    offered = [family(rows) for family in (FAMILIES if families is None else families)]
    engines = [engine for engine in offered if engine is not None]
    if not engines:
        # Show the last reason: the last engine has the fewest requirements.
        plain = PlainEngine(rows.reasons[-1] if rows.reasons else "")
        if not rows.wanted(plain.name):
            raise InvalidRequest(f"no engine of this machine is called {forced!r}; it has {plain.name!r}")
        return plain
    # With fewer rows, times would not be meaningful.
    if len(engines) == 1 or len(rows.sample) < PROBE_ROWS // 4:
        return engines[0]
    return min(engines, key=lambda engine: _seconds(engine, rows))


def compile_ahead() -> None:
    """Compile the libraries that ``choose`` tries on this machine, so that no task waits for the compiler."""
    # Only the first of each kind that can be made, as in ``choose``.
    for candidates in (INTEGERS, FLOATS):
        for element, instructions in candidates:
            try:
                library(dense(element, instructions))
                break
            except Unavailable:
                continue


def _first(
    candidates: Candidates, rows: Rows, make: Callable[[int, InstructionSet], Engine[Tile]]
) -> Engine[Tile] | None:
    for element, instructions in candidates:
        if not instructions.runs_on(this_machine()):
            continue
        # Check the name before making the engine, which may run the compiler.
        if not rows.wanted(kind_name(element, instructions)) or rows.columns < instructions.least_columns:
            continue
        try:
            return make(element, instructions)
        except Unavailable as error:
            rows.reasons.append(str(error))
    return None


def _integers(element: int, instructions: InstructionSet, rows: Rows) -> Engine[Tile]:
    as_they_are, mixed = (CompiledEngine(element, instructions, rows.columns, mixed=mixed) for mixed in (False, True))
    lost, left = (
        float(np.mean(engine.lost(engine.prepare(rows.sample, rows.frame)))) for engine in (as_they_are, mixed)
    )
    # Mixing costs a transform of every row, so it must gain enough.
    return mixed if left < MIX_PAYS * lost else as_they_are


def _seconds(engine: Engine[Tile], rows: Rows) -> float:
    """Return the time to compare rows with good lower bounds, as they have for most of a run."""
    tile = rows.sample
    operand, k = engine.prepare(tile, rows.frame), min(PROBE_K, len(tile) - 1)
    best = Best.empty(tile.norms, k)
    engine.topk(operand, operand, best, best, same=True)
    took = []
    for _ in range(3):
        again = Best.empty(tile.norms, k, best.lowest())
        # The thread's own time: with wall-clock time on a busy machine, the probe chose slower engines.
        begin = time.thread_time()
        engine.topk(operand, operand, again, again, same=True)
        took.append(time.thread_time() - begin)
    # The minimum is the least disturbed time.
    return min(took)
