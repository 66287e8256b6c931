"""A database that rows are read from, and results written to: the interface, and what PEP 249 makes alike of all.

What flows in are statements with named parameters, what flows out are columns and rows.
"""

import abc
import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from raysm.errors import InvalidRequest, ServiceError
from raysm.grid.rows.statement import Statement

__all__ = ["Columns", "Database", "Execute", "Rows", "read_cursor", "without_secrets"]

Columns = tuple[str, ...]
Rows = list[tuple[Any, ...]]

Execute = Callable[[str, Mapping[str, Any]], int]
"""Runs a statement that writes, with its parameters by name; returns how many rows it changed."""

SECRET_OPTION = re.compile(
    r"([?&][^=&]*(?:passw|passphrase|pwd|token|secret|base64|(?:private|access|api)_?key)[^=&]*=)[^&#]*", re.IGNORECASE
)
"""What of an address opens the database, behind its path: ``?password=…`` where it connects by a socket,
``?motherduck_token=…``. Files of keys, ``sslkey=…``, are named there, and hold what they hold elsewhere."""

BATCH = 5_000
"""Rows that are taken from a driver at a time: some bring each by itself, others all at once into memory."""


class Database(abc.ABC):
    """One database."""

    @classmethod
    @abc.abstractmethod
    def of(cls, on: Any) -> "Database | None":
        """Return the database, if ``on`` names one of this kind; else None.

        Args:
            on: A connection, an address or a path; a variable or secret is resolved already.
        """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What a message and a grid's record call it; without a password."""

    @property
    def is_here(self) -> bool:
        """Whether it is a file or a connection of this machine, which no other one reaches."""
        return True

    @abc.abstractmethod
    def select(self, statement: Statement, params: Mapping[str, Any], most: int) -> tuple[Columns, Rows]:
        """Return the columns and the first ``most`` rows of what a statement reads.

        Raises:
            InvalidRequest: The database refuses the statement.
            ServiceError: It cannot be reached.
        """

    @abc.abstractmethod
    def transaction(self) -> contextlib.AbstractContextManager[Execute]:
        """Open a transaction; it is kept where the block ends well, else undone.

        Raises:
            ServiceError: The database cannot be reached, or refuses a statement.
        """

    def refused(self, error: Exception) -> InvalidRequest:
        """Return the error of a statement that the database refuses."""
        # Drivers' texts have several lines, the first of which says what it is.
        text = str(error).strip().splitlines()
        return InvalidRequest(f"{self.name} refuses the query: {text[0] if text else type(error).__name__}")

    def unreachable(self, error: Exception) -> ServiceError:
        """Return the error of a database that is away."""
        text = str(error).strip().splitlines()
        return ServiceError(
            f"{self.name} cannot be used: {text[0] if text else type(error).__name__}", is_transient=True
        )


def without_secrets(address: str) -> str:
    """Return an address with stars for the options by which whoever has it may open the database."""
    return SECRET_OPTION.sub(r"\1***", address)


def read_cursor(cursor: Any, most: int) -> tuple[Columns, Rows]:
    """Return the columns and the first ``most`` rows that a cursor of PEP 249 has."""
    columns = tuple(str(column[0]) for column in cursor.description or ())
    return columns, [tuple(row) for row in itertools.islice(_rows(cursor), most)]


def _rows(cursor: Any) -> Iterator[Any]:
    while batch := cursor.fetchmany(BATCH):
        yield from batch
