"""The inverted file itself: which rows are members of which cell. What flows out is a value that travels to the tasks.

Rows stand in the order of their cells, and of their numbers within one. A row's *place* is where it stands in that
order: so what a task looks for, and what it looks into, are ranges.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raysm.workloads.blocks import RowBlock
from raysm.workloads.similarity.arithmetic.score import Rows

__all__ = ["Cells", "Index"]


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows, by their cells."""

    numbers: NDArray[np.int64]
    """numbers[N] in the matrix, by their places."""
    edges: NDArray[np.int64]
    """edges[cells + 1]: the members of cell c are at the places edges[c] to edges[c + 1]."""

    @classmethod
    def of(cls, cells: NDArray[np.int64], count: int) -> "Cells":
        """Return the lists of ``count`` cells, of which each row names its own."""
        order = np.argsort(cells, kind="stable")
        return cls(order, np.searchsorted(cells[order], np.arange(count + 1)))

    def members(self, cell: int) -> RowBlock:
        """Return the places of a cell's members."""
        return RowBlock(int(self.edges[cell]), int(self.edges[cell + 1]))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many members each cell has."""
        return np.diff(self.edges)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Index:
    """All that a task needs to look for neighbors."""

    centroids: Rows
    """centroids[cells, D]; none is without a member."""
    matrix: Cells
    """The rows among which neighbors are looked for."""
    queries: Cells
    """The rows that look for them; the same value where the matrix's own do."""
    probes: int
    """Cells that are looked into for each row."""
    share: float
    """What part of all pairs that is, by a sample."""
    sample: NDArray[np.int64]
    """sample[n]: numbers of rows by which ``probes`` was not chosen, and at most raised."""
    truth: NDArray[np.float32]
    """truth[n]: of each of them the score of its true k-th neighbor, by the exact engine."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return it as arrays, for ``from_arrays``: a record keeps them."""
        # By identity: of a matrix that looks into itself the lists would be kept twice.
        queries = (
            {} if self.queries is self.matrix else {"queries": self.queries.numbers, "q_edges": self.queries.edges}
        )
        return queries | {
            "centroids": self.centroids,
            "matrix": self.matrix.numbers,
            "edges": self.matrix.edges,
            "probes": np.array(self.probes),
            "share": np.array(self.share),
            "sample": self.sample,
            "truth": self.truth,
        }

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> "Index":
        """Return what ``arrays`` was made of."""
        matrix = Cells(arrays["matrix"], arrays["edges"])
        return Index(
            centroids=arrays["centroids"],
            matrix=matrix,
            queries=Cells(arrays["queries"], arrays["q_edges"]) if "queries" in arrays else matrix,
            probes=int(arrays["probes"]),
            share=float(arrays["share"]),
            sample=arrays["sample"],
            truth=arrays["truth"],
        )
