"""Databases from which rows are read, and to which the states of a grid's rows are written.

SQLite comes with Python, DuckDB reads files by SQL, and SQLAlchemy reaches other databases by their addresses. A user
may also pass an open connection of PEP 249. Statements have named parameters, which the driver binds.
"""

import abc
import contextlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from raysm.errors import InvalidRequest, MissingDependency, RaysmError, ServiceError

__all__ = ["Database", "Execute", "Query", "Statement", "database_of", "kept_name", "variable_of"]

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
"""A placeholder of ``str.format``; ``{1,2}`` and ``{"a": 1}``, which SQL has, are none."""

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
        InvalidRequest: It is more than one statement, does not read, or has a ``{placeholder}``.
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
        # Semicolons at the very end are allowed; anything behind one is another statement.
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
                    f"the query takes :{name}, which has no value; give params={{{name!r}: …}} (--param {name}=…)"
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
        # These marks have no names: a parameter that occurs twice is passed twice.
        return text, tuple(params[name] for name in order)

    def for_sqlalchemy(self) -> str:
        """Return the text for SQLAlchemy's ``text()``, which looks for names even inside quotes."""
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
                # Even inside quotes, since such a driver formats the whole text.
                parts.append(token[0].replace("%", "%%") if doubles_percent else token[0])
        return "".join(parts), order

    def _tokens(self, *, with_ends: bool = True) -> Iterator[re.Match[str]]:
        return (token for token in TOKEN.finditer(self.text) if with_ends or token.lastgroup != "end")


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A SELECT whose rows are the rows of a grid; each column is a reserved name or a parameter.

    Raises:
        InvalidRequest: It is not one statement that reads, has a ``{placeholder}``, or its parameters are not those in
            ``params``.
    """

    sql: str = field(kw_only=False)
    """The statement, with ``:name`` where a value goes."""
    on: Any = field(repr=False)
    """The database: an open connection of PEP 249, a path, ``sqlite:///…``, ``duckdb://``, ``postgresql://…``,
    ``env:NAME`` of a variable that holds such an address, or the ARN of a secret that does."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Values by name; the driver binds them, and they never become part of the text."""

    def __post_init__(self) -> None:
        """Check the statement and the names of its values."""
        # Checked here rather than when it runs, so that the error points to the line that has the mistake.
        Statement(text=self.sql).check(self.params)


Execute = Callable[[str, Mapping[str, Any]], int]
"""Runs a statement that writes, with its parameters by name; returns the number of rows that it changed."""

Answer = tuple[tuple[str, ...], list[Any]]
"""Names of the columns, and rows."""

SECRET_OPTION = re.compile(
    r"([?&][^=&]*(?:passw|passphrase|pwd|token|secret|base64|(?:private|access|api)_?key)[^=&]*=)[^&#]*", re.IGNORECASE
)
"""Options of an address that hold a secret: ``?password=…``, ``?motherduck_token=…``. ``sslkey=…`` names a file, which
is no secret."""

FETCH_ROWS = 5_000
"""Rows per fetch: some drivers otherwise fetch each row alone, others all rows into memory."""

BUSY_S = 30.0
"""How long SQLite waits for another writer."""

VARIABLE = "env:"
SECRET = "arn:aws"


class Database(abc.ABC):
    """One database."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name in messages, without passwords."""

    @property
    def is_here(self) -> bool:
        """Whether it is a file or a connection of this machine, which other machines cannot reach."""
        return True

    @abc.abstractmethod
    def select(self, statement: Statement, params: Mapping[str, Any], max_rows: int) -> Answer:
        """Return the names of the columns and the first ``max_rows`` rows that a statement reads.

        Raises:
            InvalidRequest: The database refuses the statement.
            ServiceError: It cannot be reached.
            MissingDependency: Its driver is not installed.
        """

    @abc.abstractmethod
    def transaction(self) -> AbstractContextManager[Execute]:
        """Open a transaction that is committed if the block succeeds, and rolled back otherwise.

        Raises:
            ServiceError: The database cannot be reached, or refuses a statement.
        """

    def refused(self, error: BaseException) -> InvalidRequest:
        """Return the error of a statement that the database refuses."""
        return InvalidRequest(f"{self.name} refuses the query: {_first_line(error)}")

    def unreachable(self, error: BaseException) -> ServiceError:
        """Return the error of a database that cannot be used now."""
        return ServiceError(f"{self.name} cannot be used: {_first_line(error)}", is_transient=True)


def _first_line(error: BaseException) -> str:
    # The first line of a driver's message says what is wrong.
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def _translated(meaning: Callable[[BaseException], RaysmError]) -> Iterator[None]:
    try:
        yield
    except RaysmError:
        raise
    except Exception as error:  # each driver has its own errors
        raise meaning(error) from error


class _Driver(Database):
    """A database behind a driver of PEP 249 (https://peps.python.org/pep-0249/)."""

    @abc.abstractmethod
    def _opened(self, *, writes: bool) -> AbstractContextManager[tuple[Any, Any, str]]:
        """Open a connection; yield it, its cursor and its paramstyle. ``writes`` begins a transaction."""

    def select(self, statement: Statement, params: Mapping[str, Any], max_rows: int) -> Answer:
        with _translated(self.refused), self._opened(writes=False) as (_, cursor, style):
            text, bound = statement.bound(style, params)
            # Some drivers format the text whenever they get parameters, even none.
            cursor.execute(text, bound) if bound else cursor.execute(text)
            columns, rows = tuple(str(column[0]) for column in cursor.description or ()), list[Any]()
            while len(rows) < max_rows and (batch := cursor.fetchmany(min(FETCH_ROWS, max_rows - len(rows)))):
                rows += map(tuple, batch)
            return columns, rows

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        with contextlib.ExitStack() as stack:
            with _translated(self.unreachable):
                connection, cursor, style = stack.enter_context(self._opened(writes=True))

            def execute(text: str, params: Mapping[str, Any]) -> int:
                with _translated(self.unreachable):
                    cursor.execute(*Statement.written(text).bound(style, params))
                    return self._changed(cursor)

            try:
                yield execute
            except BaseException:
                # A broken connection cannot roll back, and has committed nothing.
                with contextlib.suppress(Exception):
                    connection.rollback()
                raise
            with _translated(self.unreachable):
                connection.commit()

    def _changed(self, cursor: Any) -> int:
        return int(cursor.rowcount)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sqlite(_Driver):
    """A file of SQLite; reading opens it read-only."""

    path: Path

    @property
    def name(self) -> str:
        return f"sqlite:///{self.path}"

    @contextlib.contextmanager
    def _opened(self, *, writes: bool) -> Iterator[tuple[Any, Any, str]]:
        # With a mode, since a path alone would create an empty file for a misspelt name.
        address = f"file:{quote(str(self.path.absolute()))}?mode={'rw' if writes else 'ro'}"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
            if writes:
                # A transaction that begins as a reader's is refused if another process wrote meanwhile.
                connection.execute("BEGIN IMMEDIATE")
            yield connection, connection.cursor(), "named"


@dataclass(frozen=True, kw_only=True, slots=True)
class DuckDb(_Driver):
    """A file of DuckDB, or a database in memory, whose statements name files: ``FROM 'drives/*.parquet'``."""

    path: str = field(repr=False)
    """Empty for a database in memory. It may contain a token: ``md:campaigns?motherduck_token=…``."""

    @property
    def name(self) -> str:
        return f"duckdb:///{_without_secrets(self.path)}" if self.path else "duckdb://"

    @contextlib.contextmanager
    def _opened(self, *, writes: bool) -> Iterator[tuple[Any, Any, str]]:
        try:
            import duckdb
        except ImportError as error:
            raise MissingDependency("SQL over files needs DuckDB: python3 -m pip install 'raysm[duckdb]'") from error
        # A database in memory cannot be opened read-only.
        with duckdb.connect(self.path or ":memory:", read_only=bool(self.path) and not writes) as connection:
            if writes:
                connection.begin()
            yield connection, connection, "qmark"

    def _changed(self, cursor: Any) -> int:
        # DuckDB answers with the number of rows, as a row.
        row = cursor.fetchone()
        return int(row[0]) if row and isinstance(row[0], int) else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection(_Driver):
    """An open connection of the user. raysm never closes it, and commits only what it writes itself."""

    connection: Any

    @property
    def name(self) -> str:
        return f"the connection of {type(self.connection).__module__.partition('.')[0]}"

    @contextlib.contextmanager
    def _opened(self, *, writes: bool) -> Iterator[tuple[Any, Any, str]]:
        style = self._style()
        with contextlib.closing(self.connection.cursor()) as cursor:
            yield self.connection, cursor, style

    def _style(self) -> str:
        # The class of a connection is in the driver's module or in a submodule.
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


READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
    "mysql": "START TRANSACTION READ ONLY",
    "mariadb": "START TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}
"""How a transaction that cannot write begins, by the dialect.
https://www.postgresql.org/docs/current/sql-set-transaction.html, https://dev.mysql.com/doc/refman/8.4/en/commit.html"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SqlAlchemy(Database):
    """A database that SQLAlchemy reaches by its address: ``postgresql://…``, ``mysql+pymysql://…``."""

    address: str = field(repr=False)
    """It may contain a password, so messages never show it."""

    @property
    def name(self) -> str:
        url = self._made(lambda: _sqlalchemy().make_url(self.address))
        return _without_secrets(str(url.render_as_string(hide_password=True)))

    @property
    def is_here(self) -> bool:
        """Whether its address names no host, or this machine."""
        return urlsplit(self.address).hostname in (None, "localhost", "127.0.0.1", "::1")

    def select(self, statement: Statement, params: Mapping[str, Any], max_rows: int) -> Answer:
        sqlalchemy = _sqlalchemy()
        try:
            # Closing the connection rolls back, so that a statement which writes nevertheless leaves nothing.
            with self._engine() as engine, engine.connect() as connection:
                begin = READ_ONLY.get(engine.dialect.name)
                if begin is not None:
                    connection.exec_driver_sql(begin)
                text = sqlalchemy.text(statement.for_sqlalchemy())
                # With a server-side cursor, if the driver has one: otherwise the client first fetches all rows.
                result = connection.execution_options(stream_results=True).execute(text, dict(params))
                return tuple(result.keys()), [tuple(row) for row in result.fetchmany(max_rows)]
        except sqlalchemy.exc.SQLAlchemyError as error:
            # An error without a statement happened on the way to the database.
            is_away = getattr(error, "statement", None) is None or getattr(error, "connection_invalidated", False)
            meaning = self.unreachable if is_away and hasattr(error, "orig") else self.refused
            raise meaning(getattr(error, "orig", None) or error) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        sqlalchemy = _sqlalchemy()
        try:
            with self._engine() as engine, engine.begin() as connection:
                yield lambda text, params: int(connection.execute(sqlalchemy.text(text), dict(params)).rowcount)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise self.unreachable(getattr(error, "orig", None) or error) from error

    @contextlib.contextmanager
    def _engine(self) -> Iterator[Any]:
        engine = self._made(lambda: _sqlalchemy().create_engine(self.address))
        try:
            yield engine
        finally:
            engine.dispose()

    def _made(self, make: Callable[[], Any]) -> Any:
        scheme = self.address.partition("://")[0]
        try:
            return make()
        except ModuleNotFoundError as error:  # the driver
            raise MissingDependency(f"{scheme}:// needs {error.name}: python3 -m pip install {error.name}") from error
        except (_sqlalchemy().exc.ArgumentError, ValueError) as error:  # its text contains the address
            raise InvalidRequest(f"SQLAlchemy cannot parse the address {scheme}://…; check it") from error
        except _sqlalchemy().exc.NoSuchModuleError as error:
            raise InvalidRequest(
                f"SQLAlchemy knows no database {scheme!r}; install its dialect, or check the address"
            ) from error


def _sqlalchemy() -> Any:
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingDependency(
            "a database other than SQLite needs SQLAlchemy, unless you give an open connection: "
            "python3 -m pip install 'raysm[sql]'"
        ) from error
    return sqlalchemy


def database_of(on: Any, secrets: Callable[[str], str] | None = None) -> Database:
    """Return the database that ``on`` names.

    Args:
        on: An open connection, a path, an address, ``env:NAME``, or the ARN of a secret.
        secrets: Returns the text of a secret by its ARN; None asks Secrets Manager with the caller's credentials.

    Raises:
        InvalidRequest: It names no database.
    """
    address = _resolved(on, secrets or _secret)
    if isinstance(address, str) and address.startswith("sqlite:///"):
        # As SQLAlchemy reads it: three slashes and a relative path, or four and an absolute one.
        return Sqlite(path=Path(unquote(address.removeprefix("sqlite:///"))))
    if isinstance(address, str) and address.startswith("duckdb://"):
        return DuckDb(path=address.removeprefix("duckdb://").removeprefix("/"))
    if isinstance(address, str) and "://" in address:
        return SqlAlchemy(address=address)
    if isinstance(address, str | Path) and Path(address).suffix.lower() in (".db", ".sqlite", ".sqlite3"):
        return Sqlite(path=Path(address))
    if not isinstance(address, type) and all(hasattr(address, name) for name in ("cursor", "commit", "rollback")):
        return Connection(connection=address)
    # The value of a variable or a secret is not shown: it may be a mistyped password.
    shown = repr(on) if on is address else f"what {on} says"
    raise InvalidRequest(
        f"{shown} is no database; give an open connection, a path.db, sqlite:///path, duckdb://, postgresql://…, "
        "env:NAME of a variable that holds such an address, or the ARN of a secret"
    )


def variable_of(on: Any) -> str | None:
    """Return the name of the variable that holds the address, or None."""
    return on.removeprefix(VARIABLE) if isinstance(on, str) and on.startswith(VARIABLE) else None


def kept_name(on: Any) -> str | None:
    """Return the name by which a grid finds the database again; None for connections and addresses with passwords."""
    if not isinstance(on, str | os.PathLike):
        return None
    text = str(on)
    is_address = "://" in text and not text.startswith((VARIABLE, SECRET))
    return None if is_address and ("@" in text or _without_secrets(text) != text) else text


def _without_secrets(address: str) -> str:
    return SECRET_OPTION.sub(r"\1***", address)


def _resolved(on: Any, secrets: Callable[[str], str]) -> Any:
    name = variable_of(on)
    if name is not None:
        # The user chose this variable; raysm's own are read in bootstrap/environment.py.
        address = os.environ.get(name)  # noqa: TID251
        if not address:
            raise InvalidRequest(f"{on}: there is no variable {name}; export {name}=postgresql://…")
        return address
    if isinstance(on, str) and on.startswith(SECRET) and ":secretsmanager:" in on:
        return _address(secrets(on), on)
    return on


def _secret(arn: str) -> str:
    import boto3

    from raysm.client.service import translated

    with translated("get_secret_value"):
        client = boto3.client("secretsmanager", region_name=arn.split(":")[3])
        return str(client.get_secret_value(SecretId=arn)["SecretString"])


def _address(secret: str, arn: str) -> str:
    """Return the address in a secret: its text, or an address made from the fields that RDS stores.

    https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_secret_json_structure.html
    """
    try:
        parts = json.loads(secret)
        engine = {"postgres": "postgresql", "aurora-postgresql": "postgresql"}.get(parts["engine"], parts["engine"])
        user, password = (quote(str(parts[name]), safe="") for name in ("username", "password"))
        port = f":{parts['port']}" if parts.get("port") else ""
        return f"{engine}://{user}:{password}@{parts['host']}{port}/{parts.get('dbname', '')}"
    except KeyError as error:
        raise InvalidRequest(
            f"the secret {arn} has no field {error.args[0]!r}; store the fields of RDS, or an address as plain text"
        ) from error
    except (ValueError, TypeError):
        return secret
