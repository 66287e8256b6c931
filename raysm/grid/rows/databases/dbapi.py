"""Any connection of PEP 249 that the user opened: psycopg, pymysql, snowflake, Athena, … (https://peps.python.org/pep-0249/)."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.rows.databases.database import Columns, Database, Execute, Rows, read_cursor
from raysm.grid.rows.statement import Statement

__all__ = ["Dbapi"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Dbapi(Database):
    """A connection; whether it is committed or closed stays the user's, but for what raysm writes."""

    connection: Any
    """Open."""

    @classmethod
    def of(cls, on: Any) -> "Dbapi | None":
        """Return the database of what has the methods of such a connection."""
        is_connection = not isinstance(on, type) and all(hasattr(on, name) for name in ("cursor", "commit", "rollback"))
        return cls(connection=on) if is_connection else None

    @property
    def name(self) -> str:
        """The driver."""
        return f"the connection of {type(self.connection).__module__.partition('.')[0]}"

    @property
    def style(self) -> str:
        """The driver's ``paramstyle``.

        Raises:
            InvalidRequest: Its module does not say it.
        """
        # A connection's class lies in the driver's module, or in one inside of it.
        module = type(self.connection).__module__
        while module:
            style = getattr(sys.modules.get(module), "paramstyle", None)
            if isinstance(style, str):
                return style
            module = module.rpartition(".")[0]
        raise InvalidRequest(
            f"{self.name} does not say how it marks parameters (PEP 249's paramstyle); give an address instead: "
            "Query(…, on='postgresql://…')"
        )

    def select(self, statement: Statement, params: Mapping[str, Any], most: int) -> tuple[Columns, Rows]:
        """Return the columns and rows; see ``Database``."""
        text, bound = statement.bound(self.style, params)
        with contextlib.closing(self.connection.cursor()) as cursor:
            try:
                # Without parameters nothing is said of them: some drivers then format no text.
                cursor.execute(text, bound) if bound else cursor.execute(text)
                return read_cursor(cursor, most)
            except Exception as error:  # each driver has errors of its own
                raise self.refused(error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Open a transaction; see ``Database``."""
        style = self.style
        try:
            with contextlib.closing(self.connection.cursor()) as cursor:

                def execute(text: str, params: Mapping[str, Any]) -> int:
                    cursor.execute(*Statement.written(text).bound(style, params))
                    return int(cursor.rowcount)

                yield execute
            self.connection.commit()
        except Exception as error:
            # One that is broken cannot be undone either, and has kept nothing.
            with contextlib.suppress(Exception):
                self.connection.rollback()
            raise self.unreachable(error) from error
