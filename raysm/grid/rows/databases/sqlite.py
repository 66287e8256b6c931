"""SQLite by the standard library: a path or ``sqlite:///path`` flows in; to read, the file is opened for reading."""

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from raysm.grid.rows.databases.database import Columns, Database, Execute, Rows, read_cursor
from raysm.grid.rows.statement import Statement

__all__ = ["Sqlite"]

SCHEME = "sqlite:///"
SUFFIXES = (".db", ".sqlite", ".sqlite3")

BUSY_S = 30.0
"""How long another's write is waited for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sqlite(Database):
    """A file."""

    path: Path
    """Of it."""

    @classmethod
    def of(cls, on: Any) -> "Sqlite | None":
        """Return the database of such an address, or of a path that ends like one."""
        if isinstance(on, str) and on.startswith(SCHEME):
            # As SQLAlchemy has it: three slashes and a relative path, four and an absolute one.
            return cls(path=Path(unquote(on.removeprefix(SCHEME))))
        is_path = isinstance(on, str | Path) and "://" not in str(on) and Path(on).suffix.lower() in SUFFIXES
        return cls(path=Path(on)) if is_path else None

    @property
    def name(self) -> str:
        """The address."""
        return f"{SCHEME}{self.path}"

    def select(self, statement: Statement, params: Mapping[str, Any], most: int) -> tuple[Columns, Rows]:
        """Return the columns and rows; see ``Database``."""
        with self._opened("ro", self.refused) as connection:
            return read_cursor(connection.execute(*statement.bound("named", params)), most)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Open a transaction; see ``Database``."""
        with self._opened("rw", self.unreachable) as connection:
            # At once a writer's: one that begins as a reader's is refused where another wrote meanwhile.
            connection.execute("BEGIN IMMEDIATE")
            yield lambda text, params: connection.execute(text, dict(params)).rowcount
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def _opened(self, mode: str, meaning: Any) -> Iterator[sqlite3.Connection]:
        # A mode, not a path alone: that would make an empty file of a misspelt one.
        address = f"file:{quote(str(self.path.absolute()))}?mode={mode}"
        try:
            with contextlib.closing(
                sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
            ) as connection:
                yield connection
        except sqlite3.Error as error:
            raise meaning(error) from error
