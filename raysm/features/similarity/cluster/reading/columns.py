"""The columns of a table: features, ids of the rows, and columns that are left out."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from raysm.core.protocol.names import natural
from raysm.errors import InvalidInput, option
from raysm.features.similarity.request import MATRIX, Similarity

SHOWN = 8

ROW_INDEX = re.compile(
    r"(?i:|Unnamed: \d+(\.\d+)*|__index_level_\d+__|index|level_0|\.\.\.1|row|row[._ ]?(names?|nr|number|id))"
    r"|(?i:(.*_)?(uu)?id)|.*[a-z]I[dD]"
)
"""Names that pandas, polars, R and raysm's own results give to a column of row numbers or names,
and names of IDs."""


@dataclass(frozen=True, slots=True)
class Selection:
    ids: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    may_lack_excluded: bool = False
    """True if a table may lack an excluded column: queries need not have the matrix's labels."""

    @classmethod
    def of(cls, workload: Similarity, channel: str = MATRIX) -> "Selection":
        return cls(
            workload.id_columns,
            workload.columns,
            workload.exclude_columns or (),
            may_lack_excluded=channel != MATRIX,
        )

    @property
    def named(self) -> tuple[str, ...]:
        return (*self.ids, *(self.columns or ()), *self.exclude)

    @property
    def option(self) -> str:
        return "id_column" if self.ids else "columns" if self.columns else "exclude_columns"

    def check(self, file: str, names: Sequence[str], hint: str = "") -> None:
        """Refuse names that are not among a table's columns, or are there twice; ``hint`` ends the message."""
        counts = Counter(names)
        optional = self.exclude if self.may_lack_excluded else ()
        missing = [name for name in self.named if name not in counts and name not in optional]
        if missing:
            if not hint and any("," in name for name in names):
                hint = "; on the command line quote a name that has a comma twice: '\"a, b\"'"
            if self.may_lack_excluded and set(missing) & set(self.ids):
                hint = (
                    "; the IDs of the queries need the same column name as those of the matrix"
                    + hint
                )
            raise InvalidInput(
                f"{file} has no column {listed(missing)}; its columns are {listed(names)}{hint}"
            )
        for name in self.named:
            if counts[name] > 1:
                raise InvalidInput(
                    f"{file} has {counts[name]} columns {name!r}; rename all but one of them"
                )


NO_SELECTION = Selection()


@dataclass(frozen=True, slots=True)
class Features:
    file: str
    names: tuple[str, ...]
    list_column: str | None = None
    """The feature whose values are lists or tensors."""
    left_out: tuple[str, ...] = ()

    @property
    def is_one_list(self) -> bool:
        """True if a single list column holds the whole row, so that the elements have no names."""
        return len(self.names) == 1 and self.list_column is not None

    def order(self, expected: "Features") -> list[int] | None:
        """Return the index of each expected feature in this table; None if the order is the same.

        The elements of a list column have no names: if the other table has scalar columns, they are
        matched by position.
        """
        if self.is_one_list != expected.is_one_list:
            return None
        lacking, unexpected = (
            _difference(expected.names, self.names),
            _difference(self.names, expected.names),
        )
        if lacking or unexpected:
            parts = [f"lacks {listed(lacking)}"] if lacking else []
            parts += [f"also has {listed(unexpected)}"] if unexpected else []
            raise InvalidInput(
                f"{self.file} does not have the columns of {expected.file}: it {' and '.join(parts)}; rename the "
                f"columns, or choose the same features of all files with {option('columns')}"
            )
        if self.list_column != expected.list_column:
            raise InvalidInput(
                f"the list column of {self.file} is {self.list_column!r}, that of {expected.file} is "
                f"{expected.list_column!r}; write both tables alike"
            )
        if self.names == expected.names:
            return None
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise InvalidInput(
                f"{self.file} has the columns of {expected.file} in another order, and several are named "
                f"{listed(twice)}; give each column its own name"
            )
        at = {name: i for i, name in enumerate(self.names)}
        return [at[name] for name in expected.names]

    def describe(self, columns: int) -> str:
        """Return the features of a matrix of that many columns as text: ``f0 ... f31``."""
        if self.is_one_list:
            return f"the list column {self.list_column!r}"
        width = columns - len(self.names) + 1
        names = [
            f"{name}[{width}]" if name == self.list_column else name or "''" for name in self.names
        ]
        return ", ".join(names) if len(names) <= 4 else f"{names[0]} ... {names[-1]}"


def agreed(found: Iterable[Features | None], expected: Features | None = None) -> Features | None:
    """Return the features that all files of a channel must have, in their order; None if no file has names.

    A file with scalar columns decides before a file with one list column, whose elements have no
    names. ``expected`` are the features of the matrix that these rows are compared with.
    """
    named = (one for one in found if one is not None)
    own = min(named, key=lambda one: (one.is_one_list, natural(one.file)), default=None)
    if own is None or expected is None or (expected.is_one_list and not own.is_one_list):
        return own or expected
    return replace(expected, left_out=own.left_out)


def is_row_index(name: str) -> bool:
    return ROW_INDEX.fullmatch(name) is not None


def listed(names: Iterable[str]) -> str:
    shown = list(names)
    return ", ".join(map(repr, shown[:SHOWN])) + (
        f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else ""
    )


def _difference(names: Sequence[str], others: Sequence[str]) -> list[str]:
    return list((Counter(names) - Counter(others)).elements())
