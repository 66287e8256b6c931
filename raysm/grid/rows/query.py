"""A query whose rows are the rows of a grid: one statement that reads, with named parameters, ``WHERE day >= :since``.

The driver binds the values; they never become part of the text, and it is checked that nobody tried. A statement is
split only into strings, quoted names, comments and the rest: its meaning is for the database.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.errors import InvalidRequest

__all__ = ["Query", "Statement"]

TOKEN = re.compile(
    r"""
      (?P<quoted>'(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    | (?P<comment>--[^\n]* | /\*.*?\*/)
    | (?P<cast>::|:=)
    | :(?P<name>[A-Za-z_]\w*)
    | (?P<end>;)
    | (?P<word>\w+)
    | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
"""The tokens of a statement. ``$tag$ … $tag$`` are strings of PostgreSQL, and ``::`` is its cast."""

PLACEHOLDER = re.compile(r"\{\s*([A-Za-z_]\w*)?\s*(![rsa])?(:[^{}]*)?\}")
"""What ``str.format`` would fill, unlike ``{1,2}`` and ``{"a": 1}``, which SQL has."""

READS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")
"""First words of statements that read; FROM is DuckDB's."""

MARKS: Mapping[str, Callable[[str, int], str]] = {
    "qmark": lambda name, place: "?",
    "numeric": lambda name, place: f":{place + 1}",
    "named": lambda name, place: f":{name}",
    "format": lambda name, place: "%s",
    "pyformat": lambda name, place: f"%({name})s",
}
"""How a parameter is marked, by its name and position, for each ``paramstyle`` of PEP 249."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One statement that reads.

    Raises:
        InvalidRequest: It is several, does not read, or has something in braces.
    """

    text: str
    reads: bool = True
    """False for raysm's own statements, which write and are not checked."""

    def __post_init__(self) -> None:
        """Check that it is one statement that reads, and that nothing is formatted into it."""
        if not self.reads:
            return
        braces = PLACEHOLDER.search(self.text)
        if braces:
            name = braces[1] or "since"
            raise InvalidRequest(
                f"the query has {braces[0]}; values are never put into SQL: write :{name}, and give its value by "
                f"params={{{name!r}: …}} (--param {name}=…)"
            )
        tokens = [token for token in self._tokens() if token.lastgroup != "comment" and not token[0].isspace()]
        first = next((token[0].upper() for token in tokens if token[0] != "("), "")
        if first not in READS:
            raise InvalidRequest(
                f"the query begins with {first or 'nothing'}; it must only read: begin with SELECT or WITH"
            )
        # Semicolons at the very end are habit; anything behind one is another statement.
        ends = [place for place, token in enumerate(tokens) if token.lastgroup == "end"]
        if ends and ends[0] != len(tokens) - len(ends):
            raise InvalidRequest("the query has several statements; give one, without a ; inside")

    @classmethod
    def written(cls, text: str) -> "Statement":
        """Return a statement of raysm's own, which writes."""
        return cls(text=text, reads=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its parameters, in the order of their first use."""
        return tuple(dict.fromkeys(token["name"] for token in self._tokens() if token["name"]))

    def check(self, params: Mapping[str, Any]) -> None:
        """Check that exactly its parameters have values.

        Raises:
            InvalidRequest: A value is missing, or belongs to no parameter.
        """
        for name in self.names:
            if name not in params:
                raise InvalidRequest(
                    f"the query takes :{name}, and no value is given: params={{{name!r}: …}} (--param {name}=…)"
                )
        for name in params:
            if name not in self.names:
                names = ", ".join(f":{other}" for other in self.names) or "none"
                raise InvalidRequest(f"the query takes no :{name}; it takes {names}")

    def bound(self, style: str, params: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the text and the parameters as a driver takes them.

        Args:
            style: PEP 249's ``paramstyle``.
            params: Values by name, checked.

        Raises:
            InvalidRequest: There is no such style.
        """
        if style not in MARKS:
            raise InvalidRequest(f"the driver's paramstyle is {style!r}; raysm knows {', '.join(MARKS)}")
        text, order = self._marked(MARKS[style], doubles_percent=bool(params) and "format" in style)
        if style in ("named", "pyformat"):
            return text, {name: params[name] for name in self.names}
        # A name that occurs twice is given twice: marks without names go by their places.
        return text, tuple(params[name] for name in order)

    def for_sqlalchemy(self) -> str:
        """Return the text as SQLAlchemy's ``text()`` takes it, which looks for names inside of texts too."""
        return "".join(
            token[0] if token["name"] else token[0].replace(":", r"\:") for token in self._tokens(with_ends=False)
        )

    def _marked(self, mark: Callable[[str, int], str], *, doubles_percent: bool) -> tuple[str, list[str]]:
        parts: list[str] = []
        order: list[str] = []
        for token in self._tokens(with_ends=False):
            if token["name"]:
                parts.append(mark(token["name"], len(order)))
                order.append(token["name"])
            else:
                # Also inside of quotes: such a driver formats the whole text.
                parts.append(token[0].replace("%", "%%") if doubles_percent else token[0])
        return "".join(parts), order

    def _tokens(self, *, with_ends: bool = True) -> Iterator[re.Match[str]]:
        return (token for token in TOKEN.finditer(self.text) if with_ends or token.lastgroup != "end")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A SELECT whose rows are the tasks of a grid: columns that raysm knows, every other one a parameter.

    Raises:
        InvalidRequest: It is no single statement that reads, a value is formatted into it, or its parameters are not
            those that are given.
    """

    sql: str = field(kw_only=False)
    """The statement, with ``:name`` where a value goes."""
    on: Any = field(repr=False)
    """The database: an open connection of PEP 249, a path, ``sqlite:///…``, ``duckdb://``, ``postgresql://…``,
    ``env:NAME`` of a variable that holds such an address, or the ARN of a secret that does."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Values by name; the driver binds them, they never become part of the text."""

    def __post_init__(self) -> None:
        """Check the statement and the names of its values."""
        # Checked here rather than when it runs, so that the error points to the line that has the mistake.
        Statement(text=self.sql).check(self.params)
