"""Matrices on disk, and what a task of the similarity is told about them, without any cluster."""

from pathlib import Path

import numpy as np

from raysm.workloads.similarity.context import Context, Place, Source
from raysm.workloads.similarity.score import prepare


def saved(matrix, folder: Path) -> Source:
    """Save the matrix; return it as every task would find it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "matrix.npy", matrix)
    return Source(channel="matrix", place=Place(folder / "matrix.npy", folder / "scratch", "algo-1"))


def context_of(source: Source) -> Context:
    """Prepare the matrix as the head does."""
    matrix = source.open()
    norms = prepare(matrix.read(0, matrix.rows))
    assert norms.first_bad is None
    return Context(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        norms=norms.norms,
        exponents=norms.exponents if norms.exponents.any() else np.empty(0, dtype=np.int16),
        whole=norms.whole,
    )


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
