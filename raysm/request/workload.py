"""What a job runs once its cluster is formed."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from raysm.errors import InvalidRequest
from raysm.request.training import TorchScript, TrainLoop

__all__ = ["PickledFunction", "Script", "Similarity", "Workload"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A Python script, run once, on the head, as ``__main__``, with ``RAY_ADDRESS`` set to the formed cluster.

    Raises:
        InvalidRequest: The script has no name.
    """

    kind: ClassVar[str] = "script"
    keeps: ClassVar[str] = "what the script writes into the folder $SM_MODEL_DIR"
    """What a job of this kind keeps, for people whose job has kept nothing."""
    input_check: ClassVar[str | None] = None

    script: str = field(kw_only=False)
    """The script's path; relative to ``source_dir`` where that is given."""
    args: tuple[str, ...] = ()
    """Its arguments, verbatim: ``sys.argv[1:]``."""
    source_dir: str | None = None
    """A folder that travels whole, but for what is hidden, caches, virtual environments and earlier results; None is
    the script with the modules and packages beside it that it imports."""

    def __post_init__(self) -> None:
        """Check the fields."""
        if isinstance(self.args, str):
            raise InvalidRequest(f"Script: args is a list of texts, got {self.args!r}; give args={self.args.split()!r}")
        # What a command line has are texts: 10 is told as "10".
        object.__setattr__(self, "args", tuple(str(item) for item in self.args))
        if not self.script:
            raise InvalidRequest("Script: the path of the script is empty")


@dataclass(frozen=True, kw_only=True, slots=True)
class PickledFunction:
    """A function with its arguments, pickled by cloudpickle into the payload; its value is the job's result."""

    kind: ClassVar[str] = "function"
    keeps: ClassVar[str] = "the value of the function"
    input_check: ClassVar[str | None] = None

    name: str
    """For people: ``module.function``."""
    python: str
    """Version of the Python that pickled it, ``3.11``: another one cannot be trusted to read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Similarity:
    """The exact cosine similarity of every row of a matrix with every other row.

    The matrix is the channel ``matrix``. Where there is a channel ``queries`` too, its rows are compared with those of
    the matrix instead: every query with every row. Exactly one of ``top_k``, ``threshold`` and ``full`` says what is
    kept.

    Raises:
        InvalidRequest: None or several of them are given, or one is out of its range.
    """

    kind: ClassVar[str] = "similarity"
    keeps: ClassVar[str] = "the similarities"
    input_check: ClassVar[str | None] = "raysm.workloads.similarity.reading.first_look:check_inputs"
    """Looks at the inputs that are on this machine before a job is sent; imported only where it is used."""

    top_k: int | None = None
    """Keep the k most similar other rows of each row (of each query, rows); at least 1, at most N - 1 (N)."""
    threshold: float | None = None
    """Keep the pairs ``row < neighbor`` (of queries, all) whose similarity, a float32, is at least this; -1 to 1."""
    full: bool = False
    """Keep all N x N similarities (queries x N) as one ``.npy``."""
    dtype: Literal["float32", "float16"] = "float32"
    """Type of the full matrix; top-k and pairs are always float32."""
    id_column: str | None = None
    """A column of a CSV or Parquet input that names the rows: kept beside them, not computed with."""
    block_rows: int | None = None
    """Rows of one task; None lets raysm choose. The result does not depend on it."""

    def __post_init__(self) -> None:
        """Check the fields against each other."""
        for name, kind in (("top_k", int), ("threshold", (int, float)), ("block_rows", int)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
                raise InvalidRequest(f"Similarity: {name} must be a number, got {value!r}")
        given = [self.top_k is not None, self.threshold is not None, self.full]
        if sum(given) != 1:
            raise InvalidRequest("Similarity: give exactly one of top_k, threshold and full")
        if self.top_k is not None and self.top_k < 1:
            raise InvalidRequest(f"Similarity: top_k must be at least 1, got {self.top_k}")
        if self.threshold is not None and not (math.isfinite(self.threshold) and -1 <= self.threshold <= 1):
            raise InvalidRequest(f"Similarity: a cosine lies in -1 to 1, got the threshold {self.threshold}")
        if self.dtype not in ("float32", "float16"):
            raise InvalidRequest(f"Similarity: dtype is 'float32' or 'float16', got {self.dtype!r}")
        if self.dtype != "float32" and not self.full:
            raise InvalidRequest("Similarity: dtype belongs to full; top-k and pairs are always float32")
        if self.block_rows is not None and self.block_rows < 1:
            raise InvalidRequest(f"Similarity: block_rows must be at least 1, got {self.block_rows}")


Workload: TypeAlias = Script | PickledFunction | Similarity | TorchScript | TrainLoop
