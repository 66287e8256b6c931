"""Matrices on disk, and what a task of the similarity is told about them, without any cluster."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from raysm.request import Similarity
from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.keys import encode
from raysm.workloads.similarity.arithmetic.products import Tile
from raysm.workloads.similarity.arithmetic.score import prepare, scaled
from raysm.workloads.similarity.engines import Best, Frame, unit_sum
from raysm.workloads.similarity.reading.source import Place, Source
from raysm.workloads.similarity.runs import Folders, Run
from raysm.workloads.similarity.tasks.context import Context, RowShape, Whole
from raysm.workloads.similarity.tasks.parts import prepared_part
from raysm.workloads.similarity.tasks.preparing import prepare_block, prepared
from tests.support.reference import neighbors, pairs, score_rows


def saved(matrix, folder: Path) -> Source:
    """Save the matrix; return it as every task would find it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "matrix.npy", matrix)
    return Source(channel="matrix", place=Place(folder / "matrix.npy", folder / "scratch", "algo-1"))


def shape_of(source: Source, dtype=None) -> RowShape:
    """Return what is known of the matrix before it is prepared."""
    matrix = source.open()
    return RowShape(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        dtype=matrix.dtype if dtype is None else dtype,
        placement=Whole(matrix.rows, matrix.columns),
    )


def operand_of(source: Source, dtype=None):
    """Prepare the matrix as the head does; its rows are read as ``dtype``, or as their files have them."""
    shape = shape_of(source, dtype)
    block = RowBlock(0, shape.rows)
    return prepared(shape, [(block, prepared_part(prepare_block, shape, block))])


def context_of(source: Source) -> Context:
    """Prepare a matrix whose rows look for neighbors among themselves."""
    return Context(matrix=operand_of(source))


def run_of(matrix, folder: Path, **workload) -> Run:
    """Prepare a run whose rows look for neighbors among themselves; its result's folder is there."""
    source = saved(matrix, folder)
    (folder / "result").mkdir()
    (folder / "scratch").mkdir(exist_ok=True)
    return Run(
        workload=Similarity(**workload),
        folders=Folders(result=folder / "result", records=folder / "records"),
        scratch=folder / "scratch",
        matrix=source.open(),
        queries=source.open(),
        digests={"matrix": "0" * 64},
        context=context_of(source),
    )


def queries_of(matrix, folder: Path) -> Source:
    """Save rows that look for neighbors in another matrix, as the channel ``queries``."""
    return replace(saved(matrix, folder / "queries"), channel="queries")


def two_matrices(queries, matrix, folder: Path) -> Context:
    """Prepare rows that look for neighbors in another matrix."""
    sources = saved(matrix, folder / "matrix"), saved(queries, folder / "queries")
    dtype = np.result_type(*(source.open().dtype for source in sources))
    matrix, other = (operand_of(source, dtype) for source in sources)
    return Context(matrix=matrix, other_queries=other)


def kinds_of_rows(seed=0, rows=150, columns=24):
    """Return matrices by name, each hard in its own way."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((rows, columns))
    one_huge = normal.astype(np.float32)
    one_huge[:, 0] *= 1e20
    zeros = normal.copy()
    zeros[::3] = 0
    near_ties = np.repeat(normal[: rows // 10], 10, axis=0) * (1 + 1e-7 * rng.standard_normal((rows // 10 * 10, 1)))
    signs = np.where(rng.random((rows, columns)) < 0.5, -1.0, 1.0)
    return {
        "float32": normal.astype(np.float32),
        "float64": normal,
        "float16": normal.astype(np.float16),
        "int8": (normal * 10).astype(np.int8),
        "uint8": np.abs(normal * 50).astype(np.uint8),
        "int64": (normal * 2**50).astype(np.int64),
        "bool": normal > 1,
        "all equal": np.ones((rows, columns), dtype=np.float32),
        "nearly all equal": (1 + 0.01 * normal).astype(np.float32),
        "duplicates": np.repeat(normal[: rows // 10], 10, axis=0),
        "near ties": near_ties,
        "scaled copies": normal[:1] * np.exp2(rng.integers(-20, 20, (rows, 1))).astype(np.float64),
        "zero rows": zeros,
        "all zero": np.zeros((rows, columns)),
        "unit vectors": np.eye(rows, dtype=np.float32),
        "few elements": (normal * (rng.random(normal.shape) < 0.1)).astype(np.float32),
        "alternating signs": signs,
        "alternating signs and noise": signs + 1e-9 * normal,
        "one huge component": one_huge,
        "denormal": (normal * 1e-44).astype(np.float32),
        "extreme magnitudes": normal * np.exp2(rng.integers(-1000, 900, (rows, 1))).astype(np.float64),
        "one column": normal[:, :1],
    }


def tiles(rows, cuts=None, start=0):
    """Cut rows into tiles at ``cuts``, or not at all; the first has the number ``start``."""
    found = prepare(rows)
    ready = scaled(rows, found.exponents)
    cuts = cuts or [0, len(rows)]
    return [
        Tile(start=start + a, rows=ready[a:b], norms=found.norms[a:b]) for a, b in zip(cuts, cuts[1:], strict=False)
    ]


def centred(rows):
    """Return the frame about the mean of the unit rows."""
    return Frame(centre=unit_sum(tiles(rows)[0]) / len(rows))


def best_of(engine, frame, rows, k, cuts, lower_bounds=None):
    """Return the keys of all rows from the tiles of the triangle, each looked at once."""
    sides = [engine.prepare(tile, frame) for tile in tiles(rows, cuts)]
    best = [
        Best.empty(side.tile.norms, k, None if lower_bounds is None else lower_bounds[a:b])
        for side, a, b in zip(sides, cuts, cuts[1:], strict=False)
    ]
    for i in range(len(sides)):
        for j in range(i, len(sides)):
            engine.topk(sides[i], sides[j], best[i], best[j], same=True)
    return np.concatenate([part.keys for part in best])


def expected_keys(rows, k):
    """Return the keys that float64 gives."""
    indices, scores = neighbors(rows, k)
    return encode(scores, indices)


def assert_pairs(engine, frame, rows, cuts, threshold):
    """Assert that an engine finds the pairs that float64 finds, whichever of the tiles between the cuts they are in."""
    parts = tiles(rows, cuts)
    sides = [engine.prepare(part, frame) for part in parts]
    found = []
    for i in range(len(sides)):
        for j in range(i, len(sides)):
            some = engine.pairs(sides[i], sides[j], np.float32(threshold), same=True)
            row = np.repeat(np.arange(len(parts[i])) + parts[i].start, np.diff(some.offsets))
            found += zip(row.tolist(), some.neighbors.tolist(), some.similarities, strict=True)
    assert sorted(found) == pairs(rows, np.float32(threshold))


def assert_scores(engine, rows, cut):
    """Assert that an engine scores the rows behind the cut with those before it as float64 does, in either type."""
    before, behind = tiles(rows, [0, cut, len(rows)])
    expected = score_rows(rows, range(cut, len(rows)))[:, :cut]
    for dtype in (np.float32, np.float16):
        out = np.empty(expected.shape, dtype=dtype)
        engine.scores(behind, before, out)
        assert np.array_equal(out, expected.astype(dtype))


def adversarial(count):
    """Return a strategy of matrices of at most ``count`` rows, with elements at which bounds may break."""
    return arrays.arrays(
        np.float64,
        st.tuples(st.integers(2, count), st.sampled_from([1, 2, 5, 17, 48])),
        elements=st.one_of(
            st.floats(-1, 1),
            st.sampled_from([0.0, 1.0, -1.0, 1e18, -1e18, 1e-30, 2.0**-149, 1 + 2.0**-23, 1 - 2.0**-24, 0.5, 127.49]),
        ),
    )
