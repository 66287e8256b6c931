"""Databases from which rows are read, and to which the states of a grid's rows are written.

SQLite comes with Python, DuckDB reads files by SQL, and SQLAlchemy reaches other databases by their
addresses. A user may also pass an open connection of PEP 249. Statements have named parameters,
which the driver binds.
"""

import contextlib
import functools
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
"""The tokens of a statement. ``$tag$ … $tag$`` are strings of PostgreSQL, and ``::`` is its
cast."""

PLACEHOLDER = re.compile(r"\{\s*([A-Za-z_]\w*)?\s*(![rsa])?(:[^{}]*)?\}")
"""A placeholder of ``str.format``; ``{1,2}`` and ``{"a": 1}``, which SQL has, are none."""

READS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")

MARKS: Mapping[str, Callable[[str, int], str]] = {
    "qmark": lambda name, place: "?",
    "numeric": lambda name, place: f":{place + 1}",
    "named": lambda name, place: f":{name}",
    "format": lambda name, place: "%s",
    "pyformat": lambda name, place: f"%({name})s",
}
"""How a parameter is marked, by its name and position, for each ``paramstyle`` of PEP 249."""


def check_query(text: str, params: Mapping[str, Any]) -> None:
    """Check that a text is one statement that reads and takes exactly these parameters.

    It must not have a ``{placeholder}``.
    """
    braces = PLACEHOLDER.search(text)
    if braces:
        name = braces[1] or "since"
        raise InvalidRequest(
            f"the query has {braces[0]}; values are never put into SQL: "
            f"write :{name}, and give its value by params={{{name!r}: …}} (--param {name}=…)"
        )
    tokens = [
        token
        for token in TOKEN.finditer(text)
        if token.lastgroup != "comment" and not token[0].isspace()
    ]
    first = next((token[0].upper() for token in tokens if token[0] != "("), "")
    if first not in READS:
        raise InvalidRequest(
            f"the query begins with {first or 'nothing'}; it must only read: "
            "begin with SELECT or WITH"
        )
    # Semicolons at the very end are allowed; anything behind one is another statement.
    ends = [place for place, token in enumerate(tokens) if token.lastgroup == "end"]
    if ends and ends[0] != len(tokens) - len(ends):
        raise InvalidRequest("the query has several statements; give one, without a ; inside")
    names = _names(text)
    for name in names:
        if name not in params:
            raise InvalidRequest(
                f"the query takes :{name}, which has no value; "
                f"give params={{{name!r}: …}} (--param {name}=…)"
            )
    for name in params:
        if name not in names:
            raise InvalidRequest(
                f"the query takes no :{name}; "
                f"it takes {', '.join(f':{other}' for other in names) or 'none'}"
            )


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(token["name"] for token in TOKEN.finditer(text) if token["name"]))


def bound(text: str, style: str, params: Mapping[str, Any]) -> tuple[str, Any]:
    if style not in MARKS:
        raise InvalidRequest(
            f"the driver's paramstyle is {style!r}; raysm knows {', '.join(MARKS)}"
        )
    parts: list[str] = []
    order: list[str] = []
    for token in TOKEN.finditer(text):
        if token["name"]:
            parts.append(MARKS[style](token["name"], len(order)))
            order.append(token["name"])
        elif token.lastgroup != "end":
            # Such a driver formats the whole text, even what is inside quotes.
            parts.append(token[0].replace("%", "%%") if params and "format" in style else token[0])
    if style in ("named", "pyformat"):
        return "".join(parts), {name: params[name] for name in dict.fromkeys(order)}
    # These marks have no names: a parameter that occurs twice is passed twice.
    return "".join(parts), tuple(params[name] for name in order)


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """A SELECT whose rows are the rows of a grid; each column is a reserved name or a parameter.

    Raises:
        InvalidRequest: It is not one statement that reads, has a ``{placeholder}``, or its
            parameters are not those in ``params``.
    """

    sql: str = field(kw_only=False)
    """The statement, with ``:name`` where a value goes."""
    on: Any = field(repr=False)
    """The database: an open connection of PEP 249, a path, ``sqlite:///…``, ``duckdb://``,
    ``postgresql://…``, ``env:NAME`` of a variable that holds such an address, or the ARN of a
    secret that does."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Values by name; the driver binds them, and they never become part of the text."""

    def __post_init__(self) -> None:
        # Checked here rather than when it runs, so that the error points to the line that has the
        # mistake.
        check_query(self.sql, self.params)


Execute = Callable[[str, Mapping[str, Any]], int]
"""Runs a statement that writes, with its parameters by name; returns the number of rows that it
changed."""

Opened = tuple[Any, Any, str]
"""A connection, its cursor and its ``paramstyle``."""

SECRET_OPTION = re.compile(
    r"([?&][^=&]*(?:passw|passphrase|pwd|token|secret|base64|(?:private|access|api)_?key)[^=&]*=)"
    r"[^&#]*",
    re.IGNORECASE,
)
"""Options of an address that hold a secret: ``?password=…``, ``?motherduck_token=…``. ``sslkey=…``
names a file, which is no secret."""

FETCH_ROWS = 5_000
"""Rows per fetch: some drivers otherwise fetch each row alone, others all rows into memory."""

BUSY_S = 30.0

VARIABLE = "env:"
SECRET = "arn:aws"


@dataclass(frozen=True, kw_only=True, slots=True)
class UserDatabase:
    name: str
    """Its name in messages, without passwords."""
    is_here: bool
    """True for a file, a connection or a server of this machine, which other machines cannot
    reach."""
    opened: Callable[[bool], AbstractContextManager[Opened]] = field(repr=False)
    """Opens it to write (True) or to read."""

    def select(
        self, text: str, params: Mapping[str, Any], max_rows: int
    ) -> tuple[tuple[str, ...], list[Any]]:
        """Return the columns' names and the first ``max_rows`` rows that a statement reads."""
        with self._open(writes=False) as (_, cursor, style), _translated(self._refused):
            changed, values = bound(text, style, params)
            # Some drivers format the text whenever they get parameters, even none.
            cursor.execute(changed, values) if values else cursor.execute(changed)
            columns = tuple(str(column[0]) for column in cursor.description or ())
            rows = list[Any]()
            while len(rows) < max_rows and (
                batch := cursor.fetchmany(min(FETCH_ROWS, max_rows - len(rows)))
            ):
                rows += map(tuple, batch)
            return columns, rows

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Execute]:
        with self._open(writes=True) as (connection, cursor, style):

            def execute(text: str, params: Mapping[str, Any]) -> int:
                with _translated(self._unreachable):
                    cursor.execute(*bound(text, style, params))
                    # DuckDB answers with the number of rows, as a row.
                    counted = (
                        cursor.fetchone()
                        if cursor.rowcount < 0 and cursor.description
                        else [cursor.rowcount]
                    )
                    return int(counted[0]) if counted and isinstance(counted[0], int) else 0

            try:
                yield execute
            except BaseException:
                # A broken connection cannot roll back, and has committed nothing.
                with contextlib.suppress(Exception):
                    connection.rollback()
                raise
            with _translated(self._unreachable):
                connection.commit()

    @contextlib.contextmanager
    def _open(self, *, writes: bool) -> Iterator[Opened]:
        with contextlib.ExitStack() as stack:
            with _translated(self._unreachable):
                opened = stack.enter_context(self.opened(writes))
            yield opened

    def _refused(self, error: BaseException) -> InvalidRequest:
        return InvalidRequest(f"{self.name} refuses the query: {_first_line(error)}")

    def _unreachable(self, error: BaseException) -> ServiceError:
        return ServiceError(f"{self.name} cannot be used: {_first_line(error)}", is_transient=True)


def _first_line(error: BaseException) -> str:
    # SQLAlchemy wraps the driver's error. The first line of a driver's message says what is wrong.
    error = getattr(error, "orig", None) or error
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


@contextlib.contextmanager
def _open_sqlite(path: Path, writes: bool) -> Iterator[Opened]:
    # SQLite itself would create an empty file for a misspelt name.
    if not path.exists():
        raise InvalidRequest(f"there is no file {path}; check the path of the database")
    address = f"file:{quote(str(path.absolute()))}?mode={'rw' if writes else 'ro'}"
    with contextlib.closing(
        sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
    ) as connection:
        if writes:
            # A transaction that begins as a reader's is refused if another process wrote meanwhile.
            connection.execute("BEGIN IMMEDIATE")
        yield connection, connection.cursor(), "named"


@contextlib.contextmanager
def _open_duckdb(path: str, writes: bool) -> Iterator[Opened]:
    try:
        import duckdb
    except ImportError as error:
        raise MissingDependency(
            "SQL over files needs DuckDB: python3 -m pip install 'raysm[duckdb]'"
        ) from error
    # A database in memory cannot be opened read-only.
    with duckdb.connect(path or ":memory:", read_only=bool(path) and not writes) as connection:
        if writes:
            connection.begin()
        yield connection, connection, "qmark"


@contextlib.contextmanager
def _open_connection(connection: Any, writes: bool) -> Iterator[Opened]:
    """Use an open connection of the user, which raysm never closes."""
    # The class of a connection is in the driver's module or in a submodule.
    module = type(connection).__module__
    style = None
    while module and not isinstance(style, str):
        style = getattr(sys.modules.get(module), "paramstyle", None)
        module = module.rpartition(".")[0]
    if not isinstance(style, str):
        raise InvalidRequest(
            f"{_connection_name(connection)} does not say how it marks parameters (PEP 249's "
            "paramstyle); give an address instead: Query(…, on='postgresql://…')"
        )
    with contextlib.closing(connection.cursor()) as cursor:
        yield connection, cursor, style


def _connection_name(connection: Any) -> str:
    return f"the connection of {type(connection).__module__.partition('.')[0]}"


READ_ONLY = {
    "postgresql": "SET TRANSACTION READ ONLY",
    "oracle": "SET TRANSACTION READ ONLY",
    "mysql": "START TRANSACTION READ ONLY",
    "mariadb": "START TRANSACTION READ ONLY",
    "sqlite": "PRAGMA query_only = ON",
}
"""How a transaction that cannot write begins, by the dialect.
https://www.postgresql.org/docs/current/sql-set-transaction.html,
https://dev.mysql.com/doc/refman/8.4/en/commit.html"""


class _AlchemyCursor:
    """An SQLAlchemy connection as a cursor.

    It streams rows if the driver has a server-side cursor.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, text: str, params: Any = None) -> None:
        self._result = self._connection.exec_driver_sql(text, params)

    @property
    def description(self) -> list[tuple[str]] | None:
        return [(name,) for name in self._result.keys()] if self._result.returns_rows else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._result, name)


@contextlib.contextmanager
def _open_sqlalchemy(address: str, writes: bool) -> Iterator[Opened]:
    scheme = address.partition("://")[0]
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingDependency(
            "other databases than SQLite need SQLAlchemy or an open connection: "
            "python3 -m pip install 'raysm[sql]'"
        ) from error
    try:
        engine = sqlalchemy.create_engine(address)
    except ModuleNotFoundError as error:  # the driver
        raise MissingDependency(
            f"{scheme}:// needs {error.name}: python3 -m pip install {error.name}"
        ) from error
    except (sqlalchemy.exc.ArgumentError, ValueError) as error:  # its text contains the address
        raise InvalidRequest(
            f"SQLAlchemy cannot use the address {scheme}://…; "
            f"check it, or install the dialect of {scheme!r}"
        ) from error
    try:
        # Without parameters, drivers that format the text must not do so.
        options = {"stream_results": not writes, "no_parameters": True}
        # Closing the connection rolls back, so that a statement which writes nevertheless leaves
        # nothing.
        with engine.connect().execution_options(**options) as connection:
            if not writes and engine.dialect.name in READ_ONLY:
                connection.exec_driver_sql(READ_ONLY[engine.dialect.name])
            yield connection, _AlchemyCursor(connection), engine.dialect.paramstyle
    finally:
        engine.dispose()


def database_of(on: Any, secrets: Callable[[str], str] | None = None) -> UserDatabase:
    address = _resolved(on, secrets or _secret)
    if isinstance(address, str) and address.startswith("sqlite:///"):
        # As SQLAlchemy reads it: three slashes and a relative path, or four and an absolute one.
        return _sqlite(Path(unquote(address.removeprefix("sqlite:///"))))
    if isinstance(address, str) and address.startswith("duckdb://"):
        # It may contain a token: md:campaigns?motherduck_token=…
        file = address.removeprefix("duckdb://").removeprefix("/")
        return UserDatabase(
            name=redacted(address), is_here=True, opened=functools.partial(_open_duckdb, file)
        )
    if isinstance(address, str) and "://" in address:
        is_here = urlsplit(address).hostname in (None, "localhost", "127.0.0.1", "::1")
        return UserDatabase(
            name=redacted(address),
            is_here=is_here,
            opened=functools.partial(_open_sqlalchemy, address),
        )
    if isinstance(address, str | Path) and Path(address).suffix.lower() in (
        ".db",
        ".sqlite",
        ".sqlite3",
    ):
        return _sqlite(Path(address))
    if not isinstance(address, type) and all(
        hasattr(address, name) for name in ("cursor", "commit", "rollback")
    ):
        opened = functools.partial(_open_connection, address)
        return UserDatabase(name=_connection_name(address), is_here=True, opened=opened)
    # The value of a variable or a secret is not shown: it may be a mistyped password.
    shown = repr(on) if on is address else f"what {on} says"
    raise InvalidRequest(
        f"{shown} is no database; give an open connection, a path.db, sqlite:///path, duckdb://, "
        "postgresql://…, env:NAME of a variable that holds such an address, or the ARN of a secret"
    )


def _sqlite(path: Path) -> UserDatabase:
    return UserDatabase(
        name=f"sqlite:///{path}", is_here=True, opened=functools.partial(_open_sqlite, path)
    )


def variable_of(on: Any) -> str | None:
    return on.removeprefix(VARIABLE) if isinstance(on, str) and on.startswith(VARIABLE) else None


def kept_name(on: Any) -> str | None:
    """Return the name by which a grid finds the database again.

    It is None for connections, and for addresses with passwords.
    """
    if not isinstance(on, str | os.PathLike):
        return None
    text = str(on)
    is_address = "://" in text and not text.startswith((VARIABLE, SECRET))
    return None if is_address and ("@" in text or redacted(text) != text) else text


def redacted(address: str) -> str:
    # Up to the last @, since a password with an unquoted one is a common mistake.
    return SECRET_OPTION.sub(r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1:***@", address))


def _resolved(on: Any, secrets: Callable[[str], str]) -> Any:
    name = variable_of(on)
    if name is not None:
        # The user chose this variable; raysm's own are read in instance/environment.py.
        address = os.environ.get(name)  # noqa: TID251
        if not address:
            raise InvalidRequest(f"{on}: there is no variable {name}; export {name}=postgresql://…")
        return address
    if isinstance(on, str) and on.startswith(SECRET) and ":secretsmanager:" in on:
        return _address(secrets(on), on)
    return on


def _secret(arn: str) -> str:
    import boto3

    from raysm.core.client.service import translated

    with translated("get_secret_value"):
        client = boto3.client("secretsmanager", region_name=arn.split(":")[3])
        return str(client.get_secret_value(SecretId=arn)["SecretString"])


def _address(secret: str, arn: str) -> str:
    """Return the address in a secret: its text, or an address made from the fields that RDS stores.

    https://docs.aws.amazon.com/secretsmanager/latest/userguide/reference_secret_json_structure.html
    """
    try:
        parts = json.loads(secret)
        engine = {"postgres": "postgresql", "aurora-postgresql": "postgresql"}.get(
            parts["engine"], parts["engine"]
        )
        user, password = (quote(str(parts[name]), safe="") for name in ("username", "password"))
        port = f":{parts['port']}" if parts.get("port") else ""
        return f"{engine}://{user}:{password}@{parts['host']}{port}/{parts.get('dbname', '')}"
    except KeyError as error:
        raise InvalidRequest(
            f"the secret {arn} has no field {error.args[0]!r}; "
            "store the fields of RDS, or an address as plain text"
        ) from error
    except (ValueError, TypeError):
        return secret
