"""Choose the engine: the fastest that this machine has, or the one that the caller names.

A short probe on a sample of the rows finds the fastest engine of the CPU. The GPU engine is used
only by name, because only some instances have GPUs.
"""

import time
from typing import Any

import numpy as np

from raysm.errors import InvalidRequest
from raysm.features.similarity.cluster.arithmetic.score import Tile
from raysm.features.similarity.cluster.arithmetic.sparse_rows import SparseTile
from raysm.features.similarity.cluster.engines.compiled import CompiledEngine, kind_name
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import Best, Engine, Frame
from raysm.features.similarity.cluster.engines.sparse import SparseEngine
from raysm.features.similarity.cluster.kernels.build import (
    FLOATS,
    INTEGERS,
    InstructionSet,
    Unavailable,
    dense,
    library,
    this_machine,
)

CUDA = "cuda"
"""The word that selects the GPU engine. It must match as a whole; other engines match by any part
of their name."""


def is_cuda(word: str | None) -> bool:
    return word is not None and word.lower() == CUDA


def why_no_cuda(columns: int) -> str:
    """Return why this process's GPU cannot compare rows of that many columns, or ""."""
    try:
        # Make an engine just for the checks that it makes of the device.
        gpu_engine(columns)
    except Unavailable as error:
        return str(error)
    return ""


def gpu_engine(columns: int) -> Engine[Tile]:
    """Return the engine of this process's GPU; raise ``Unavailable`` if none can be used."""
    try:
        # Imported here, because the other engines do not need torch.
        from raysm.features.similarity.cluster.engines.cuda import cuda_engine
    except ImportError as error:
        raise Unavailable(f"{error.name or 'torch'} is missing") from error
    return cuda_engine(columns)


PROBE_ROWS = 512
"""Rows of the probe; with fewer than a quarter of them, times would not be meaningful."""

PROBE_K = 10
MIX_PAYS = 0.9

Candidates = tuple[tuple[int, InstructionSet], ...]


def choose(
    sample: Tile | SparseTile,
    frame: Frame,
    forced: str | None = None,
    integers: Candidates = INTEGERS,
) -> Engine[Any]:
    """Return the engine for a matrix.

    A short probe on some hundred of its rows, the ``sample``, finds the fastest. ``forced`` is a
    word of the engine's name, such as ``float32``, or ``cuda``, which no probe chooses.
    It raises ``InvalidRequest`` if no engine of this machine has it.
    """
    if isinstance(sample, SparseTile):
        try:
            sparse = SparseEngine(sample.rows.columns)
        except Unavailable as error:
            raise InvalidRequest(
                f"sparse rows cannot be compared by their elements here: {error}"
            ) from error
        if forced is not None and forced.lower() not in sparse.name:
            raise InvalidRequest(
                f"no engine for sparse rows is called {forced!r}; this machine has {sparse.name!r}"
            )
        return sparse
    if is_cuda(forced):
        try:
            return gpu_engine(sample.rows.shape[1])
        except Unavailable as error:
            raise InvalidRequest(f"the engine {CUDA!r} cannot be had here: {error}") from error
    word = (forced or "").lower()
    rows = sample.part(0, PROBE_ROWS)
    engines: list[CompiledEngine] = []
    reason = ""
    # The first of each kind that can be made.
    for candidates in (integers, FLOATS):
        for bits, instructions in candidates:
            if (
                not instructions.runs_on(this_machine())
                or rows.rows.shape[1] < instructions.min_columns
            ):
                continue
            # Check the name before making the engine, which may run the compiler.
            if word not in kind_name(bits, instructions).lower():
                continue
            try:
                engines.append(_make_compiled(bits, instructions, rows, frame))
                break
            except Unavailable as error:
                reason = str(error)
    if not engines:
        # Show the last reason: the last engine has the fewest requirements.
        plain = PlainEngine(reason)
        if word not in plain.name.lower():
            raise InvalidRequest(
                f"no engine of this machine is called {forced!r}; it has {plain.name!r}"
            )
        return plain
    # With fewer rows, times would not be meaningful. Of equally fast engines, the first is chosen.
    if len(engines) == 1 or len(rows) < PROBE_ROWS // 4:
        return engines[0]
    return min(engines, key=lambda engine: _seconds(engine, rows, frame))


def compile_ahead() -> None:
    """Compile the libraries that ``choose`` tries here, so that no task waits for the compiler."""
    for candidates in (INTEGERS, FLOATS):
        for element, instructions in candidates:
            try:
                library(dense(element, instructions))
                break
            except Unavailable:
                continue


def _make_compiled(
    bits: int, instructions: InstructionSet, rows: Tile, frame: Frame
) -> CompiledEngine:
    columns = rows.rows.shape[1]
    as_it_is = CompiledEngine(bits, instructions, columns, mixed=False)
    if bits == 32:
        return as_it_is
    mixed = CompiledEngine(bits, instructions, columns, mixed=True)
    lost, left = (
        float(np.mean(engine.lost(engine.prepare(rows, frame)))) for engine in (as_it_is, mixed)
    )
    # Mixing costs a transform of every row, so it must reduce the integers' error enough.
    return mixed if left < MIX_PAYS * lost else as_it_is


def _seconds(engine: Engine[Tile], tile: Tile, frame: Frame) -> float:
    """Return the time to compare rows with good lower bounds, as they have for most of a run."""
    operand = engine.prepare(tile, frame)
    k = min(PROBE_K, len(tile) - 1)
    best = Best.empty(tile.norms, k)
    engine.topk(operand, operand, best, best, same=True)
    took = []
    for _ in range(3):
        again = Best.empty(tile.norms, k, best.lowest())
        # The thread's own time: with wall-clock time on a busy machine, the probe chose slower
        # engines.
        begin = time.thread_time()
        engine.topk(operand, operand, again, again, same=True)
        took.append(time.thread_time() - begin)
    # The minimum is the least disturbed time.
    return min(took)
