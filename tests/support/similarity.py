"""Matrices on disk, and what a task of the similarity is told about them, without any cluster."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from raysm.features.similarity.cluster.modes.mode import OwnedRange
from raysm.features.similarity.cluster.preparation import make_operand, prepare_block
from raysm.features.similarity.cluster.reading.matrix import Location, Source
from raysm.features.similarity.cluster.run import Folders, Run
from raysm.features.similarity.cluster.tasks import Context, RowShape, run_preparation
from raysm.features.similarity.request import Similarity
from raysm.instance.work.row_blocks import RowBlock


def saved(matrix, folder: Path) -> Source:
    """Save the matrix; return it as every task would find it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "matrix.npy", matrix)
    return Source(
        channel="matrix", location=Location(folder / "matrix.npy", folder / "scratch", "algo-1")
    )


def shape_of(source: Source, dtype=None) -> RowShape:
    matrix = source.open()
    return RowShape(
        source=source,
        rows=matrix.rows,
        columns=matrix.columns,
        dtype=matrix.dtype if dtype is None else dtype,
    )


def operand_of(source: Source, dtype=None):
    """Prepare the matrix as the head does; its rows are read as ``dtype``, or as their files have them."""
    shape = shape_of(source, dtype)
    block = RowBlock(0, shape.rows)
    return make_operand(shape, [(block, run_preparation(prepare_block, shape, block))])


def context_of(source: Source) -> Context:
    return Context(matrix=operand_of(source))


def run_of(matrix, folder: Path, **workload) -> Run:
    """Prepare a run whose rows look for neighbors among themselves; its result's folder is there."""
    source = saved(matrix, folder)
    (folder / "result").mkdir()
    (folder / "scratch").mkdir(exist_ok=True)
    return Run(
        workload=Similarity(**workload),
        folders=Folders(result=folder / "result", records=folder / "records"),
        matrix=source.open(),
        other_queries=None,
        digests={"matrix": "0" * 64},
        context=context_of(source),
    )


def owned_ranges(
    ranges, columns, *, self_join=True, zero_rows=(), in_strips=False
) -> list[OwnedRange]:
    return [
        OwnedRange(
            rows=rows,
            columns=columns,
            self_join=self_join,
            zero_rows=np.array(zero_rows, dtype=np.int64),
            in_strips=in_strips,
            part=f"part-{at:03d}",
        )
        for at, rows in enumerate(ranges)
    ]


def queries_of(matrix, folder: Path) -> Source:
    return replace(saved(matrix, folder / "queries"), channel="queries")


def adversarial(count):
    """Return a strategy of matrices of at most ``count`` rows, with elements at which bounds may break."""
    return arrays.arrays(
        np.float64,
        st.tuples(st.integers(2, count), st.sampled_from([1, 2, 5, 17, 48])),
        elements=st.one_of(
            st.floats(-1, 1),
            st.sampled_from(
                [
                    0.0,
                    1.0,
                    -1.0,
                    1e18,
                    -1e18,
                    1e-30,
                    2.0**-149,
                    1 + 2.0**-23,
                    1 - 2.0**-24,
                    0.5,
                    127.49,
                ]
            ),
        ),
    )
