"""Which engine computes: the fastest that this machine has, unless one is asked for."""

import time
from collections.abc import Callable

import numpy as np

from raysm.errors import InvalidRequest
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.sparse_rows import SparseRows
from raysm.workloads.similarity.engines.build import AMX, AVX2, AVX512, VNNI, InstructionSet, Unavailable, load
from raysm.workloads.similarity.engines.compiled import CompiledEngine, kind_name
from raysm.workloads.similarity.engines.plain import PlainEngine
from raysm.workloads.similarity.engines.protocol import Best, Engine, Frame
from raysm.workloads.similarity.engines.sparse import sparse_engine

__all__ = ["CUDA", "choose", "compile_ahead"]

CUDA = "cuda"
"""Asks for the engine of GPUs: torch is imported for no other."""

INTEGERS = ((8, AMX), (8, VNNI), (16, AVX512), (16, AVX2))
"""Low precision, the fastest first."""

FLOATS = ((32, AVX512), (32, AVX2))

PROBE_ROWS = 512
"""Rows that are compared with each other to choose an engine; fewer than a quarter of them decide nothing."""

PROBE_K = 10

MIX_PAYS = 0.9
"""Rows are mixed where that makes what integers lose smaller by this factor."""


def choose(
    sample: Tile, frame: Frame, forced: str | None = None, integers: tuple[tuple[int, InstructionSet], ...] = INTEGERS
) -> Engine:
    """Return the engine for a matrix, by a short probe on some of its rows.

    Args:
        sample: Rows of the matrix, a few hundred will do.
        frame: The matrix's.
        forced: A word of its name, as ``float32`` (no low precision) or ``NumPy``, or ``cuda`` for this process's GPU;
            None lets the probe decide between those of the CPU.
        integers: Bits of the elements and instructions to multiply them, the fastest first: the first that this
            machine has is probed beside float32.

    Raises:
        InvalidRequest: No engine of this machine has that word in its name.
    """
    if isinstance(sample.rows, SparseRows):
        return sparse_engine(forced)
    if forced is not None and forced.lower() == CUDA:
        return _cuda(sample.rows.shape[1])
    tile, columns = sample.part(0, PROBE_ROWS), sample.rows.shape[1]
    reasons: list[str] = []

    def first(
        candidates: tuple[tuple[int, InstructionSet], ...], make: Callable[[int, InstructionSet], Engine]
    ) -> Engine | None:
        for element, instructions in candidates:
            if forced is not None and forced.lower() not in kind_name(element, instructions).lower():
                continue
            if columns < instructions.least_columns:
                continue
            try:
                return make(element, instructions)
            except Unavailable as error:
                reasons.append(str(error))
        return None

    integer = first(integers, lambda bits, flags: _integers(bits, flags, tile, frame))
    floating = first(FLOATS, lambda bits, flags: CompiledEngine(bits, flags, columns, mixed=False))
    found = [engine for engine in (integer, floating) if engine is not None]
    if not found:
        # The last reason is that of the engine that asks for least.
        plain = PlainEngine(reasons[-1] if reasons else "")
        if forced is not None and forced.lower() not in plain.name.lower():
            raise InvalidRequest(f"no engine of this machine is called {forced!r}; it has {plain.name!r}")
        return plain
    if len(found) == 1 or len(tile) < PROBE_ROWS // 4:
        return found[0]
    return min(found, key=lambda engine: _seconds(engine, tile, frame))


def compile_ahead() -> None:
    """Compile what ``choose`` would take on this machine, so that no task waits for the compiler."""
    for candidates in (INTEGERS, FLOATS):
        for element, instructions in candidates:
            try:
                load(element, instructions)
                break
            except Unavailable:
                continue


def _cuda(columns: int) -> Engine:
    try:
        from raysm.workloads.similarity.engines.cuda.engine import cuda_engine

        return cuda_engine(columns)
    except ImportError as error:
        raise InvalidRequest(f"the engine {CUDA!r} needs {error.name or 'torch'}, which is missing here") from error
    except Unavailable as error:
        raise InvalidRequest(f"the engine {CUDA!r} cannot be had here: {error}") from error


def _integers(element: int, instructions: InstructionSet, tile: Tile, frame: Frame) -> Engine:
    """Return the engine of integers, with rows mixed if that loses less of them."""
    as_they_are, mixed = (
        CompiledEngine(element, instructions, tile.rows.shape[1], mixed=mixed) for mixed in (False, True)
    )
    lost, left = (float(np.mean(engine.lost(engine.side(tile, frame)))) for engine in (as_they_are, mixed))
    return mixed if left < MIX_PAYS * lost else as_they_are


def _seconds(engine: Engine, tile: Tile, frame: Frame) -> float:
    """Return the time of comparing rows whose best are known nearly, as they are for most of a run."""
    side, k = engine.side(tile, frame), min(PROBE_K, len(tile) - 1)
    best = Best.empty(tile.norms, k)
    engine.topk(side, side, best, best, same=True)
    took = []
    for _ in range(2):
        again = Best.empty(tile.norms, k, best.lowest())
        begin = time.perf_counter()
        engine.topk(side, side, again, again, same=True)
        took.append(time.perf_counter() - begin)
    return min(took)
