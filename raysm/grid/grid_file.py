"""A grid in a file: ``drives.toml`` flows in, what the grid says of itself and the options of its jobs flow out.

::

    script = "train.py"
    args = ["--lr", "{lr}"]
    regions = ["us-east-1", "eu-central-1"]
    instance_type = ["ml.g5.xlarge", "ml.g6.xlarge"]
    count = 2
    [rows]
    sql = "SELECT campaign AS key, region, uri AS input_data, lr FROM drives WHERE day >= :since"
    on = "env:CAMPAIGNS_URL"
    params = { since = "2026-10-01" }
    [rules]
    budget_usd = 500
    [batch]
    job_queue = "controllers"

All else is what a job's own file has: ``[limits]``, ``[environment]``, ``[inputs.data]``, ``on = "aws"``, ``[aws]``.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysm.client.project import absolute
from raysm.client.settings import Key, Layer, check_values, nested, schema
from raysm.errors import InvalidRequest
from raysm.grid.rows.query import Query
from raysm.grid.rows.source import Source, source_of
from raysm.grid.rules import Rules
from raysm.request.codec import from_json

__all__ = ["GridFile", "read_grid_file"]

WORKLOAD = ("script", "args", "source_dir")
"""Written at the top for short: a grid is of scripts nearly always."""

OWN = (
    "name",
    "regions",
    "instance_type",
    "count",
    "spot",
    "rows",
    "rules",
    "max_rows",
    "batch",
)
"""What a grid has, and a job has not, or has otherwise."""

BATCH: Mapping[str, type] = {
    "job_queue": str,
    "job_definition": str,
    "image": str,
    "job_role": str,
    "execution_role": str,
    "assign_public_ip": bool,
}

ROWS = ("file", "sql", "on", "params")


@dataclass(frozen=True, kw_only=True, slots=True)
class GridFile:
    """What a file says."""

    path: Path
    """Of it."""
    layer: Layer
    """The options of the jobs."""
    name: str
    """Of the grid; the file's own name unless it says another."""
    source: Source | None
    """Where the rows come from; None where the file does not say."""
    regions: tuple[str, ...] = ()
    """Where rows may run."""
    instance_types: tuple[str, ...] = ()
    """On which types."""
    count: int | None = None
    """Instances of each job."""
    markets: tuple[bool, ...] | None = None
    """Whether on spare capacity."""
    rules: Rules | None = None
    """What holds for all of it."""
    max_rows: int | None = None
    """More are refused."""
    batch: Mapping[str, Any] = field(default_factory=dict)
    """What is said of the Batch job that runs the grid, where one is to: fields of ``ControllerJob``."""


def read_grid_file(path: Path) -> GridFile:
    """Read a grid's file.

    Raises:
        InvalidRequest: It cannot be read, or has a key that there is not, or a value of another type.
    """
    data = _data(path)
    of_grid = {name: data.pop(name) for name in OWN if name in data}
    short = {name: data.pop(name) for name in WORKLOAD if name in data}
    if short:
        # A torchrun script is written out: [workload] kind = "torch_script".
        data["workload"] = {"kind": "script", **data.get("workload", {}), **short}
    return GridFile(
        path=path,
        layer=_layer(path, data),
        name=_typed(path, "name", str, of_grid.get("name", path.stem)),
        source=None if "rows" not in of_grid else _source(path, of_grid["rows"]),
        regions=_names(path, "regions", of_grid.get("regions", [])),
        instance_types=_names(path, "instance_type", of_grid.get("instance_type", [])),
        count=_typed(path, "count", int | None, of_grid.get("count")),
        markets=None if "spot" not in of_grid else (_typed(path, "spot", bool, of_grid["spot"]),),
        rules=None if "rules" not in of_grid else _typed(path, "rules", Rules, of_grid["rules"]),
        max_rows=_typed(path, "max_rows", int | None, of_grid.get("max_rows")),
        batch=_batch(path, of_grid.get("batch", {})),
    )


def _data(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(f"{path} cannot be read: {reason}") from error


def _layer(path: Path, data: Mapping[str, Any]) -> Layer:
    def origin(key: Key) -> str:
        return str(path)

    hints = schema(workload=True)
    tables = nested(check_values(data, hints, origin))
    # As of every file of options, paths are relative to it, so that it means the same from every folder.
    located = absolute(tables, path.absolute().parent)
    return Layer(values=check_values(located, hints, origin), origin=origin)


def _source(path: Path, rows: Any) -> Source:
    if isinstance(rows, str):
        rows = {"file": rows}
    if not isinstance(rows, dict):
        raise InvalidRequest(f"{path}: rows is a table, [rows] with file=… or sql=… and on=…, got {rows!r}")
    for name in rows:
        if name not in ROWS:
            raise InvalidRequest(f"{path}: [rows] has no {name!r}; it has {', '.join(ROWS)}")
    if ("file" in rows) == ("sql" in rows):
        raise InvalidRequest(f"{path}: [rows] has either a file or a query: file = …, or sql = … and on = …")
    if "file" in rows:
        return source_of(path.absolute().parent / _typed(path, "rows.file", str, rows["file"]))
    if "on" not in rows:
        raise InvalidRequest(f"{path}: [rows] has a query and no database: on = 'sqlite:///campaigns.db', or env:NAME")
    sql, on = (_typed(path, f"rows.{name}", str, rows[name]) for name in ("sql", "on"))
    return source_of(Query(sql, on=on, params=rows.get("params", {})))


def _batch(path: Path, value: Any) -> Mapping[str, Any]:
    named: Mapping[str, Any] = _typed(path, "batch", Mapping[str, Any], value)
    for name in named:
        if name not in BATCH:
            raise InvalidRequest(f"{path}: [batch] has no {name!r}; it has {', '.join(BATCH)}")
    return {name: _typed(path, f"batch.{name}", BATCH[name], each) for name, each in named.items()}


def _names(path: Path, name: str, value: Any) -> tuple[str, ...]:
    # One type is a text, several are a list.
    listed: tuple[str, ...] = _typed(path, name, tuple[str, ...], [value] if isinstance(value, str) else value)
    return listed


def _typed(path: Path, name: str, hint: Any, value: Any) -> Any:
    return from_json(hint, value, f"{path}: {name}")
