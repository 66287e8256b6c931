"""The all-rows similarity as a workload, and the channels that it reads."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from raysm.core.request.cluster import Input
from raysm.core.request.options import check_names, optional
from raysm.core.request.workload import Workload
from raysm.errors import InvalidRequest

MATRIX = "matrix"
QUERIES = "queries"
"""The optional channel of query rows; without it, every row of the matrix is a query."""

PAIRS_RATE = "pairs_per_core_s"
"""Measure in a manifest: pairs of rows that one core compared in a second, in the median block."""
ROWS_RATE = "rows_per_core_s"
"""Measure in a manifest: rows that one core prepared in a second."""


def _instead(given: list[str]) -> str:
    if given != ["top_k", "threshold"]:
        return ""
    return (
        "for the most similar rows above a threshold, give top_k (--top-k) alone, and filter its "
        "result: "
        "result.pairs() has one row for each neighbor, with its similarity"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Similarity(Workload):
    """The exact cosine similarity of every row of a matrix with every other row.

    The matrix is the channel ``matrix``. If there is a channel ``queries`` too, every query is
    compared with every row of the matrix instead. The result has the form that exactly one of
    ``top_k``, ``threshold`` and ``full`` chooses.

    Raises:
        InvalidRequest: None or several of the three are given, or an option is out of its range.
    """

    kind: ClassVar[str] = "similarity"
    runner: ClassVar[str] = "raysm.features.similarity.runner:SimilarityRunner"
    reader: ClassVar[str] = "raysm.features.similarity.result:SimilarityResult"
    label: ClassVar[str] = "the similarity"
    keeps: ClassVar[str] = "the similarities"
    channels: ClassVar[tuple[str, ...]] = (MATRIX,)
    input_check: ClassVar[str | None] = (
        "raysm.features.similarity.cluster.reading.files:check_inputs"
    )
    packages: ClassVar[tuple[str, ...]] = ("numpy", "pyarrow")
    extra: ClassVar[str | None] = "local"
    preloads: ClassVar[tuple[str, ...]] = ("raysm.features.similarity.cluster.imports",)
    wants_all_cpus_at_once: ClassVar[bool] = True
    ray_variables: ClassVar[Mapping[str, str]] = {
        # While all CPUs are busy, Ray kills a worker that has been idle for a second. Each chunk of
        # rows would then start a new worker to read it, whose imports take a second.
        "RAY_idle_worker_killing_time_threshold_ms": "60000",
        # Ray requests an object again after this time, 10 s by default; chunks that share a link
        # may take longer.
        "RAY_object_manager_pull_timeout_ms": "30000",
        # As many as Ray gives to each task: NumPy's other threads would wait in a loop for 0.06 s
        # after its import.
        "OPENBLAS_NUM_THREADS": "1",
    }
    # The tasks return their messages as values.
    log_monitor: ClassVar[bool] = False
    # The imports and the compilation of the engine take as long as forming the cluster.
    prepares_ahead: ClassVar[bool] = True

    top_k: int | None = None
    """Keep the k most similar other rows of each row, 1 to N - 1; with queries the k most similar
    rows of each query, 1 to N."""
    threshold: float | None = None
    """Keep the pairs ``row < neighbor``, with queries all pairs, whose similarity as float32 is at
    least this; -1 to 1."""
    full: bool = False
    """Keep all N x N similarities, with queries all of queries x rows, as one ``.npy`` or in
    ``parts``."""
    dtype: Literal["float32", "float16"] = "float32"
    """Type of the full matrix; top-k and pairs are always float32."""
    id_column: str | tuple[str, ...] | None = None
    """The column or columns of a CSV or Parquet input that identify the rows; they are kept, but
    are not features."""
    columns: tuple[str, ...] | None = None
    """The feature columns; None takes all numeric columns except the ids and an index of pandas. A
    list column beside scalar columns, and a column that looks like a row index, are features only
    if they are named here."""
    exclude_columns: tuple[str, ...] | None = None
    """Columns that are not features."""
    parts: int | None = None
    """Number of files of the result, each with a range of rows, merged and written by any instance;
    None is one file, which the head merges and writes."""
    block_rows: int | None = optional(None, result=False)
    """Number of rows of one task; None lets raysm choose. The result does not depend on it."""

    def __post_init__(self) -> None:
        for name in ("id_column", "columns", "exclude_columns"):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            elif isinstance(value, str) and name != "id_column":
                object.__setattr__(self, name, (value,))
            names = getattr(self, name)
            is_names = isinstance(names, tuple) and all(isinstance(one, str) for one in names)
            if not (names is None or isinstance(names, str) or is_names):
                raise InvalidRequest(
                    f"Similarity: {name} must be a list of column names, got {value!r}"
                )
        if self.columns is not None and self.exclude_columns:
            raise InvalidRequest(
                "Similarity: give columns or exclude_columns, not both: the first names all "
                "features"
            )
        if self.columns == ():
            raise InvalidRequest("Similarity: columns is empty; name the features, or drop columns")
        named = (*self.id_columns, *(self.columns or ()), *(self.exclude_columns or ()))
        twice = next((name for name, count in Counter(named).items() if count > 1), None)
        if twice is not None:
            raise InvalidRequest(
                f"Similarity: the options name the column {twice!r} twice; a column either names "
                "rows (id_column), is "
                "a feature (columns), or is neither (exclude_columns)"
            )
        real = (int, float)
        for name, kind in (
            ("top_k", int),
            ("threshold", real),
            ("parts", int),
            ("block_rows", int),
        ):
            value = getattr(self, name)
            # isinstance(True, int) is true, and top_k=True would mean one neighbor.
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise InvalidRequest(f"Similarity: {name} must be a number, got {value!r}")
        modes = {
            "top_k": self.top_k is not None,
            "threshold": self.threshold is not None,
            "full": self.full,
        }
        given = [name for name, is_given in modes.items() if is_given]
        if len(given) != 1:
            got = f", got {' and '.join(given)}" if given else ""
            raise InvalidRequest(
                f"Similarity: give exactly one of top_k, threshold and full{got}",
                remedy=_instead(given),
            )
        if self.top_k is not None and self.top_k < 1:
            raise InvalidRequest(f"Similarity: top_k must be at least 1, got {self.top_k}")
        if self.threshold is not None and not (
            math.isfinite(self.threshold) and -1 <= self.threshold <= 1
        ):
            raise InvalidRequest(
                f"Similarity: a cosine lies in -1 to 1, got the threshold {self.threshold}"
            )
        if self.dtype not in ("float32", "float16"):
            raise InvalidRequest(f"Similarity: dtype is 'float32' or 'float16', got {self.dtype!r}")
        if self.dtype != "float32" and not self.full:
            raise InvalidRequest(
                "Similarity: dtype belongs to full; top-k and pairs are always float32"
            )
        if self.parts is not None and self.parts < 1:
            raise InvalidRequest(f"Similarity: parts must be at least 1, got {self.parts}")
        if self.block_rows is not None and self.block_rows < 1:
            raise InvalidRequest(
                f"Similarity: block_rows must be at least 1, got {self.block_rows}"
            )

    def check_inputs(self, inputs: Mapping[str, Input], instances: int) -> None:
        check_names("Similarity", (MATRIX, QUERIES), inputs, "input")

    @property
    def id_columns(self) -> tuple[str, ...]:
        """The columns that name the rows."""
        return (self.id_column,) if isinstance(self.id_column, str) else self.id_column or ()

    def workers_ahead(self, gpus: int) -> int | None:
        """Return one worker for each GPU; without GPUs None, one for each CPU."""
        return gpus or None

    @property
    def small_input_bytes(self) -> int:
        # A worker takes a second to import what it needs. Sizes that the user chose ask for several
        # tasks.
        return 0 if self.block_rows or self.parts else 1 << 20
