"""Which database a query is for: ``on=`` flows in, a Database flows out. A further kind is a file, and a line here.

Addresses with passwords need not be written anywhere: ``env:NAME`` names a variable that holds one, and the ARN of a
secret one of Secrets Manager. What is kept of a grid is that name, and never what it stands for.
"""

import json
import os
import pkgutil
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from raysm.errors import InvalidRequest
from raysm.grid.rows.databases.database import Database, without_secrets

__all__ = ["DATABASES", "database_of", "kept_name", "variable_of"]

DATABASES = (
    "raysm.grid.rows.databases.sqlite:Sqlite",
    "raysm.grid.rows.databases.duckdb:DuckDb",
    "raysm.grid.rows.databases.dbapi:Dbapi",
    "raysm.grid.rows.databases.sqlalchemy:SqlAlchemy",
)
"""Who is asked, in this order; the last one takes every address."""

VARIABLE = "env:"
SECRET = "arn:aws"

Secrets = Callable[[str], str]
"""Returns the text of a secret by its ARN."""


def database_of(on: Any, secrets: Secrets | None = None) -> Database:
    """Return the database that ``on`` names.

    Args:
        on: An open connection, a path, an address, ``env:NAME``, or the ARN of a secret.
        secrets: How a secret is read; None asks Secrets Manager with the caller's own credentials.

    Raises:
        InvalidRequest: It names none.
    """
    address = _resolved(on, secrets or _secret)
    for name in DATABASES:
        database: Database | None = pkgutil.resolve_name(name).of(address)
        if database is not None:
            return database
    # Not shown where it came from a variable or a secret: it may be a password with a typo around it.
    shown = repr(on) if on is address else f"what {on} says"
    raise InvalidRequest(
        f"{shown} is no database; give an open connection, a path.db, sqlite:///path, duckdb://, postgresql://…, "
        "env:NAME of a variable that holds such an address, or the ARN of a secret"
    )


def variable_of(on: Any) -> str | None:
    """Return the name of the variable that says which database it is; None where something else does."""
    return on.removeprefix(VARIABLE) if isinstance(on, str) and on.startswith(VARIABLE) else None


def kept_name(on: Any) -> str | None:
    """Return by what a grid finds the database again, or None: a connection cannot be, nor what holds a password."""
    if not isinstance(on, str | os.PathLike):
        return None
    text = str(on)
    is_address = "://" in text and not text.startswith((VARIABLE, SECRET))
    return None if is_address and ("@" in text or without_secrets(text) != text) else text


def _resolved(on: Any, secrets: Secrets) -> Any:
    name = variable_of(on)
    if name is not None:
        # The user's own variable, of a name that he gives; raysm's are read in one place.
        address = os.environ.get(name)  # noqa: TID251
        if not address:
            raise InvalidRequest(f"{on}: there is no variable {name}; export {name}=postgresql://…")
        return address
    if isinstance(on, str) and on.startswith(SECRET) and ":secretsmanager:" in on:
        return _address(secrets(on), on)
    return on


def _secret(arn: str) -> str:
    # As of every ARN, the fourth part is the region.
    import boto3

    from raysm.client.service import translated

    with translated("get_secret_value"):
        client = boto3.client("secretsmanager", region_name=arn.split(":")[3])
        return str(client.get_secret_value(SecretId=arn)["SecretString"])


def _address(secret: str, arn: str) -> str:
    """Return the address of a secret: its text, or made of what RDS keeps there.

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
            f"the secret {arn} has no {error.args[0]!r}; keep an address in it, as one text"
        ) from error
    except (ValueError, TypeError):
        return secret
