"""SQL over files by DuckDB, an extra: ``duckdb://`` in memory, ``duckdb:///path`` a database of its own."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysm.errors import MissingDependency
from raysm.grid.rows.databases.database import Columns, Database, Execute, Rows, read_cursor, without_secrets
from raysm.grid.rows.statement import Statement

__all__ = ["DuckDb"]

SCHEME = "duckdb://"


@dataclass(frozen=True, kw_only=True, slots=True)
class DuckDb(Database):
    """A file of DuckDB's, or none: then the statement names files, ``FROM 'drives/*.parquet'``."""

    path: str = field(repr=False)
    """Of the file; empty is none. It may hold a token, as ``md:campaigns?motherduck_token=…`` does."""

    @classmethod
    def of(cls, on: Any) -> "DuckDb | None":
        """Return the database of such an address."""
        is_address = isinstance(on, str) and on.startswith(SCHEME)
        return cls(path=on.removeprefix(SCHEME).removeprefix("/")) if is_address else None

    @property
    def name(self) -> str:
        """The address, without a token that is in it."""
        return f"{SCHEME}/{without_secrets(self.path)}" if self.path else SCHEME

    def select(self, statement: Statement, params: Mapping[str, Any], most: int) -> tuple[Columns, Rows]:
        """Return the columns and rows; see ``Database``."""
        duckdb = _library()
        text, bound = statement.bound("qmark", params)
        try:
            # What lies in memory cannot be opened for reading alone, and there is nothing to protect.
            with duckdb.connect(self.path or ":memory:", read_only=bool(self.path)) as connection:
                return read_cursor(connection.execute(text, list(bound)), most)
        except duckdb.Error as error:
            raise self.refused(error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Open a transaction; see ``Database``."""
        duckdb = _library()
        try:
            with duckdb.connect(self.path or ":memory:") as connection:
                connection.begin()

                def execute(text: str, params: Mapping[str, Any]) -> int:
                    marked, bound = Statement.written(text).bound("qmark", params)
                    # It answers with the number of rows, as a row.
                    changed = connection.execute(marked, list(bound)).fetchone()
                    return int(changed[0]) if changed and isinstance(changed[0], int) else 0

                yield execute
                connection.commit()
        except duckdb.Error as error:
            raise self.unreachable(error) from error


def _library() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise MissingDependency("SQL over files needs DuckDB: python3 -m pip install 'raysm[duckdb]'") from error
    return duckdb
