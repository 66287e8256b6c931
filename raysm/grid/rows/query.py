"""Rows that a database is asked for: ``raysm.Query`` flows in, a Table flows out.

The statement is run once; what it answered is what the grid is made of.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.databases.opening import database_of, kept_name
from raysm.grid.rows.source import Source, check_number
from raysm.grid.rows.statement import Statement
from raysm.grid.rows.table import Table, plain

__all__ = ["Query", "QuerySource"]


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
        # When it is written down, and not when it is run: a slip is said in the line that has it.
        Statement(text=self.sql).check(self.params)


@dataclass(frozen=True, kw_only=True, slots=True)
class QuerySource(Source):
    """What the database answers now."""

    query: Query
    """The statement."""

    @classmethod
    def of(cls, rows: Any) -> "QuerySource | None":
        """Return the source of a Query."""
        return cls(query=rows) if isinstance(rows, Query) else None

    @property
    def database(self) -> Any:
        """As the query names it."""
        return self.query.on

    @property
    def description(self) -> dict[str, Any]:
        """The statement and its values, so that it can be run again; of the database no password."""
        return {
            "sql": self.query.sql,
            "params": {name: plain(value) for name, value in self.query.params.items()},
            "on": kept_name(self.query.on),
            "at_s": time.time(),
        }

    @classmethod
    def again(cls, description: Mapping[str, Any], on: Any = None) -> "QuerySource | None":
        """Return the query that ``description`` tells of, to be run again; None where it tells of none.

        Args:
            description: As a grid remembers it.
            on: The database; None is the one that is remembered.

        Raises:
            InvalidRequest: None is remembered: it was an open connection, or its address has a password.
        """
        if "sql" not in description:
            return None
        database = on if on is not None else description.get("on")
        # Not asked of the environment or a prompt: which database it is decides what the rows are.
        if database is None:
            raise InvalidRequest(
                "this grid's database is not kept, since it was an open connection, or its address holds a password; "
                "give it again, or name it by env:NAME"
            )
        return cls(query=Query(description["sql"], on=database, params=description["params"]))

    def read(self, max_rows: int) -> Table:
        """Return all rows; see ``Source``.

        Raises:
            ServiceError: The database cannot be reached.
            MissingDependency: What this kind of database needs is not installed.
        """
        statement = Statement(text=self.query.sql)
        # One more than may be tells that there are more, without bringing them.
        columns, rows = database_of(self.query.on).select(statement, self.query.params, max_rows + 1)
        check_number("the query", len(rows), max_rows)
        return Table(columns=columns, rows=rows, origin="the query")
