"""Every engine that this machine has, and every layout, against float64: one answer to one question counts once."""

import math
import zlib
from dataclasses import dataclass, replace

import numpy as np

from raysm.errors import InvalidRequest
from raysm.features.similarity.cluster.arithmetic.keys import decode
from raysm.features.similarity.cluster.arithmetic.score import Tile, least_score
from raysm.features.similarity.cluster.engines.choice import choose
from raysm.features.similarity.cluster.engines.compiled import CompiledEngine, kind_name
from raysm.features.similarity.cluster.engines.cuda import CudaEngine
from raysm.features.similarity.cluster.engines.plain import PlainEngine
from raysm.features.similarity.cluster.engines.protocol import Best, Frame
from raysm.features.similarity.cluster.engines.sparse import SparseEngine
from raysm.features.similarity.cluster.kernels.build import (
    FLOATS,
    INTEGERS,
    SPARSE_FOR,
    Unavailable,
)
from tests.support.problems import MODES
from tests.support.solving import Replicated, Sharded

PRODUCTS = (*INTEGERS, *FLOATS)

SMALL_GPU, GPU = 1 << 17, 1 << 24
"""Bytes of a device whose panels have 32 rows, few of them at a time, and of one that has room for
all."""

WORDS = (*(kind_name(*product) for product in PRODUCTS), "NumPy")
"""What the engine of dense rows may be asked for by."""


@dataclass(frozen=True)
class Comparison:
    """One answer to one question, beside the one of float64."""

    engine: str
    mode: str
    wrong: str


def dense_engines(columns):
    """Return all engines that this machine has for dense rows, by name; the GPU's computes on the CPU here."""
    found = {"float64 NumPy": PlainEngine()}
    for element, instructions in PRODUCTS:
        for mixed in (False, True):
            try:
                engine = CompiledEngine(element, instructions, columns, mixed=mixed)
            except Unavailable:
                continue
            found[engine.name] = engine
    for name, free in (
        ("float16 CUDA, emulated", GPU),
        ("float16 CUDA, emulated, in panels", SMALL_GPU),
    ):
        found[name] = CudaEngine("cpu", columns, free_bytes=free)
    return found


def sparse_engines(columns):
    """Return all engines that this machine has for sparse rows, by name."""
    found = {}
    for instructions in SPARSE_FOR:
        for rows, all_listed in ((1, columns), (7, columns), (7, 0), (12_000, columns)):
            try:
                engine = SparseEngine(
                    columns, segment_rows=rows, all_listed=all_listed, instructions=(instructions,)
                )
            except Unavailable:
                continue
            kept = "" if all_listed else ", own columns"
            found[f"sparse {instructions.name}, segments of {rows}{kept}"] = engine
    return found


def all_comparisons(problem, folder, dense=dense_engines, sparse=sparse_engines):
    expected = problem.scores()
    layout = (
        Sharded(problem, folder, ["matrix"]) if problem.sharded else Replicated(problem, folder)
    )
    yield from task_comparisons(problem, layout, expected)
    if problem.selection.ids and not problem.sharded:
        sides = [problem.parts] if problem.queries is None else [problem.parts, problem.queries]
        same = layout.ids() == [problem.ids(parts) for parts in sides]
        yield Comparison("reader", "ids", "" if same else "the ids of the rows differ")
    if problem.queries is not None:
        # The same rows, where one of the channels is shared out, or both are.
        spread = (["matrix"], ["queries"], ["matrix", "queries"])[problem.seed % 3]
        yield from task_comparisons(problem, Sharded(problem, folder / "shared", spread), expected)
    if not problem.sharded:
        yield from engine_comparisons(problem, layout.context, expected, dense, sparse)


def wrong_keys(keys, scores, same):
    k = keys.shape[1]
    falling = -scores.astype(np.float64)
    if same:
        np.fill_diagonal(falling, np.inf)
    indices = np.argsort(falling, axis=1, kind="stable")[:, :k]
    found = decode(keys)
    row = np.flatnonzero(
        (found[1] != indices).any(axis=1)
        | (found[0] != np.take_along_axis(scores, indices, axis=1)).any(axis=1)
    )
    return (
        f"{len(row)} rows, the first {row[0]}: {found[1][row[0]]} not {indices[row[0]]}"
        if len(row)
        else ""
    )


def wrong_pairs(pairs, threshold, scores, same):
    rows, columns = np.nonzero(scores.astype(np.float64) >= threshold)
    kept = rows < columns if same else np.full(len(rows), True)
    rows, columns = rows[kept], columns[kept]
    expected = list(
        zip(rows.tolist(), columns.tolist(), scores[rows, columns].tolist(), strict=True)
    )
    different = sorted(set(pairs) ^ set(expected))
    if different:
        return f"{len(pairs)} pairs, not {len(expected)}; among the others {different[0]}"
    return "" if len(pairs) == len(expected) else f"{len(pairs) - len(expected)} pairs come twice"


def wrong_scores(found, scores):
    """Return what is wrong with scores[queries, rows], the sign of a zero among it."""
    wrong = np.argwhere((found != scores) | (np.signbit(found) != np.signbit(scores)))
    if not len(wrong):
        return ""
    i, j = wrong[0].tolist()
    return f"{len(wrong)} scores, the first ({i}, {j}): {found[i, j]!r} not {scores[i, j]!r}"


# ---- tasks
# ------------------------------------------------------------------------------------------------------


def task_comparisons(problem, layout, expected):
    """Yield what the tasks answer, by the engine that one of them would choose, or that is asked for."""
    same = problem.queries is None
    rng = np.random.default_rng([problem.seed, 2])
    words = (
        ("sparse",)
        if problem.sparse
        else [word for word in WORDS if available(word, problem.columns)]
    )
    # Of shards there is nothing but tasks: they are asked more often.
    asked = [None, *rng.permutation(words)[: 4 if problem.sharded else 1].tolist()]
    for engine in asked:
        for mode in MODES:
            answer = layout.solve(mode, engine)
            if mode == "topk":
                wrong = wrong_keys(answer, expected, same)
            elif mode == "threshold":
                wrong = wrong_pairs(answer, problem.threshold, expected, same)
            else:
                wrong = wrong_scores(answer, expected)
            yield Comparison(f"tasks, {engine or 'chosen'}", mode, wrong)


def available(word, columns):
    """Return whether a task of this machine can be told to take that engine."""
    some = Tile(start=0, rows=np.ones((1, columns)), norms=np.full(1, math.sqrt(columns)))
    try:
        choose(some, Frame.plain(columns), word)
    except InvalidRequest:
        return False
    return True


# ---- engines
# ----------------------------------------------------------------------------------------------------


def engine_comparisons(problem, context, expected, dense=dense_engines, sparse=sparse_engines):
    """Yield what each engine answers about the rows as tasks read them."""
    contexts = [(context, sparse if problem.sparse else dense)]
    if problem.sparse:
        # The same files by their rows, as where the elements are many.
        queries = None if context.self_join else replace(context.queries, sparse=False)
        dense_rows = replace(
            context, matrix=replace(context.matrix, sparse=False), other_queries=queries
        )
        contexts.append((dense_rows, dense))
    for one, engines in contexts:
        for name, engine in engines(problem.columns).items():
            # Each by itself: what is drawn for one does not depend on who else is asked.
            rng = np.random.default_rng([problem.seed, 3, zlib.crc32(name.encode())])
            yield from Asked(problem, one, engine, rng).comparisons(name, expected)


class Asked:
    def __init__(self, problem, context, engine, rng):
        self.problem, self.engine, self.rng, self.same = problem, engine, rng, context.self_join
        self.frame = context.frame() if rng.random() < 0.7 else Frame.plain(problem.columns)
        self.right = self._tiles(context.matrix)
        self.left = self.right if self.same else self._tiles(context.queries)

    def _tiles(self, operand):
        count = operand.rows
        pieces = int(self.rng.integers(0, 4))
        cuts = np.unique([0, *self.rng.integers(0, count + 1, pieces), count]).tolist()
        return [operand.tile(start, stop) for start, stop in zip(cuts, cuts[1:], strict=False)]

    def comparisons(self, name, expected):
        same = self.same
        left = [self.engine.prepare(tile, self.frame) for tile in self.left]
        right = left if same else [self.engine.prepare(tile, self.frame) for tile in self.right]
        yield Comparison(name, "topk", self._topk(left, right, expected))
        for threshold in self._thresholds(expected):
            pairs = self._pairs(left, right, least_score(threshold))
            yield Comparison(name, "threshold", wrong_pairs(pairs, threshold, expected, same))
        yield Comparison(name, "full", self._scores(expected))

    def _thresholds(self, expected):
        return {self.problem.threshold, float(expected[tuple(self.rng.integers(expected.shape))])}

    def _best(self, tiles, expected):
        """Return what is known before: nothing, the k-th best score itself, or one below it."""
        k, known = self.problem.k, int(self.rng.integers(3))
        scores = expected.copy()
        if self.same:
            np.fill_diagonal(scores, -np.inf)
        kth = np.sort(scores, axis=1)[:, -k]
        lower_bounds = (np.full(len(kth), -np.inf, dtype=np.float32), kth, kth - np.float32(0.01))[
            known
        ]
        return [
            Best.empty(tile.norms, k, lower_bounds[tile.start : tile.start + len(tile)])
            for tile in tiles
        ]

    def _topk(self, left, right, expected):
        best, engine = self._best(self.left, expected), self.engine
        if self.same:
            block_pairs = [(i, j) for i in range(len(left)) for j in range(i, len(left))]
        else:
            block_pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]
        for at in self.rng.permutation(len(block_pairs)):
            i, j = block_pairs[at]
            if not self.same:
                engine.topk(left[i], right[j], best[i], None, same=False)
            elif i == j:
                engine.topk(
                    left[i],
                    left[i],
                    best[i],
                    best[i] if self.rng.random() < 0.7 else None,
                    same=True,
                )
            elif self.rng.random() < 0.5:
                i, j = (i, j) if self.rng.random() < 0.5 else (j, i)
                engine.topk(left[i], left[j], best[i], best[j], same=True)
            else:
                engine.topk(left[i], left[j], best[i], None, same=True)
                engine.topk(left[j], left[i], best[j], None, same=True)
        keys = np.concatenate([one.keys for one in best])
        # Of zero rows no engine is asked.
        some = np.concatenate([tile.norms for tile in self.left]) > 0
        if self.same:
            expected = expected.copy()
            np.fill_diagonal(expected, -np.inf)
        return wrong_keys(keys[some], expected[some], False)

    def _pairs(self, left, right, least):
        found = []
        for i, above in enumerate(left):
            for j, beside in enumerate(right):
                if self.same and j < i:
                    continue
                part = self.engine.pairs(above, beside, least, same=self.same)
                rows = np.repeat(np.arange(len(above)) + above.tile.start, np.diff(part.offsets))
                found += zip(
                    rows.tolist(), part.neighbors.tolist(), part.similarities.tolist(), strict=True
                )
        return found

    def _scores(self, expected):
        dtype = np.dtype(self.rng.choice(["float32", "float16"]))
        # A piece of something wider, as of a strip.
        room = np.full(
            (expected.shape[0], expected.shape[1] + int(self.rng.integers(3))), np.nan, dtype=dtype
        )
        out = room[:, : expected.shape[1]]
        for above in self.left:
            for beside in self.right:
                rows = slice(above.start, above.start + len(above))
                columns = slice(beside.start, beside.start + len(beside))
                self.engine.scores(above, beside, out[rows, columns])
        return wrong_scores(out, expected.astype(dtype))
