"""Every database that SQLAlchemy knows the address of: ``postgresql://…``, ``mysql+pymysql://…``; the extra ``sql``."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from raysm.errors import InvalidRequest, MissingDependency
from raysm.grid.rows.databases.database import Columns, Database, Execute, Rows, without_secrets
from raysm.grid.rows.statement import Statement

__all__ = ["SqlAlchemy"]

HERE = (None, "localhost", "127.0.0.1", "::1")
"""Hosts of addresses that mean another database on each machine; without one it is a file or a socket."""

READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
    "mysql": "START TRANSACTION READ ONLY",
    "mariadb": "START TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}
"""What begins a transaction that cannot write, by the dialect; SQLite's is of the connection, whose end comes soon. Of
the others, that the statement reads has to do.
https://www.postgresql.org/docs/current/sql-set-transaction.html, https://dev.mysql.com/doc/refman/8.4/en/commit.html"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlAlchemy(Database):
    """An address."""

    address: str = field(repr=False)
    """As SQLAlchemy takes it; it may hold a password, so that it is never shown."""

    @classmethod
    def of(cls, on: Any) -> "SqlAlchemy | None":
        """Return the database of every address that no other kind took."""
        return cls(address=on) if isinstance(on, str) and "://" in on else None

    @property
    def name(self) -> str:
        """The address without its password."""
        sqlalchemy = _library()
        url = self._made(lambda: sqlalchemy.make_url(self.address))
        return without_secrets(str(url.render_as_string(hide_password=True)))

    @property
    def is_here(self) -> bool:
        """Whether its address names no host, or this machine itself."""
        return urlsplit(self.address).hostname in HERE

    def select(self, statement: Statement, params: Mapping[str, Any], most: int) -> tuple[Columns, Rows]:
        """Return the columns and rows; see ``Database``.

        Raises:
            MissingDependency: SQLAlchemy, or its driver, is not installed.
        """
        sqlalchemy = _library()
        try:
            # The connection's end undoes what was begun: nothing is kept of a statement that was no reader.
            with self._engine() as engine, engine.connect() as connection:
                begin = READ_ONLY.get(engine.dialect.name)
                if begin is not None:
                    connection.exec_driver_sql(begin)
                text = sqlalchemy.text(statement.for_sqlalchemy())
                # A server's cursor where the driver has one: else the client holds all rows before the first is seen.
                result = connection.execution_options(stream_results=True).execute(text, dict(params))
                return tuple(result.keys()), [tuple(row) for row in result.fetchmany(most)]
        except sqlalchemy.exc.SQLAlchemyError as error:
            # Before a connection has a statement, what fails is the way to the database; later on it says so itself.
            is_away = getattr(error, "statement", None) is None or getattr(error, "connection_invalidated", False)
            meaning = self.unreachable if is_away and hasattr(error, "orig") else self.refused
            raise meaning(getattr(error, "orig", None) or error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        """Open a transaction; see ``Database``."""
        sqlalchemy = _library()
        try:
            with self._engine() as engine, engine.begin() as connection:
                yield lambda text, params: int(connection.execute(sqlalchemy.text(text), dict(params)).rowcount)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self.unreachable(getattr(error, "orig", None) or error) from error

    @contextlib.contextmanager
    def _engine(self) -> Iterator[Any]:
        engine = self._made(lambda: _library().create_engine(self.address))
        try:
            yield engine
        finally:
            engine.dispose()

    def _made(self, make: Any) -> Any:
        scheme = self.address.partition("://")[0]
        try:
            return make()
        except ModuleNotFoundError as error:  # the driver's
            raise MissingDependency(f"{scheme}:// needs {error.name}: python3 -m pip install {error.name}") from error
        except (_library().exc.ArgumentError, ValueError) as error:  # its text has the address, and so a password
            raise InvalidRequest(f"the address {scheme}://… is none that SQLAlchemy takes") from error
        except _library().exc.NoSuchModuleError as error:
            raise InvalidRequest(
                f"SQLAlchemy knows no database {scheme!r}; install its dialect, or check it"
            ) from error


def _library() -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingDependency(
            "a database other than SQLite needs SQLAlchemy, unless you give an open connection: "
            "python3 -m pip install 'raysm[sql]'"
        ) from error
    return sqlalchemy
