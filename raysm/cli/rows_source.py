"""Where rows come from as a command line says it: ``--rows``, or ``--sql`` with its ``--param``; a Source flows out."""

from collections.abc import Mapping

from raysm.cli.arguments import Arguments
from raysm.errors import InvalidRequest
from raysm.grid.rows.query import Query
from raysm.grid.rows.source import Source, source_of

__all__ = ["named_source"]


def named_source(arguments: Arguments) -> Source | None:
    """Return the source that the flags name; None where they name none.

    Raises:
        InvalidRequest: A value stands there without its query, or twice.
    """
    if arguments.param and not arguments.sql:
        raise InvalidRequest("--param goes with a query: --sql DATABASE QUERY")
    if arguments.columns and arguments.rows is None:
        raise InvalidRequest("--columns goes with --rows FILE, a file whose first line has no column names")
    if arguments.sql:
        database, text = arguments.sql
        return source_of(Query(text, on=database, params=_params(arguments.param)))
    if arguments.rows is None:
        return None
    source = source_of(arguments.rows)
    return source.with_columns(arguments.columns) if arguments.columns else source


def _params(texts: list[str]) -> Mapping[str, str]:
    params: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise InvalidRequest(f"--param takes NAME=VALUE, got {text!r}")
        # Which of the two is meant nobody can tell: a slip of a script that appends.
        if name in params:
            raise InvalidRequest(f"the parameter {name!r} is given twice")
        params[name] = value
    return params
