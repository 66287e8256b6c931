"""The request of a grid, made in Python or from a file, and the addition of its rows to the store.

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
    max_cost = 500
    [batch]
    job_queue = "controllers"

All other keys and tables are those of a job's file: ``[limits]``, ``[environment]``,
``[inputs.data]``, ``on = "aws"``, ``[aws]``.
"""

import json
import logging
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from raysm.core.client.checks import check_instance_type
from raysm.core.client.settings import Key, Layer, absolute, check_values, nested, schema
from raysm.core.request import Limits
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.codec import from_json
from raysm.errors import InvalidRequest
from raysm.features.grid.corrections import correct
from raysm.features.grid.local_grids import read_target
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.sources.columns import REGION, parse_rows
from raysm.features.grid.sources.databases import Query
from raysm.features.grid.sources.source import MAX_ROWS, Source, source_from_description, source_of
from raysm.features.grid.store.store import GridState, Store, path_of
from raysm.features.grid.template import Template, check_names


@dataclass(frozen=True, kw_only=True, slots=True)
class GridRequest:
    name: str
    template: Template
    source: Source
    regions: tuple[str, ...] = ()
    """Regions where rows may run, the best first; empty means the regions of their data, else the
    target's own."""
    instance_types: tuple[str, ...] = ()
    """Types that the jobs may use, the best first."""
    count: int = 1
    markets: tuple[bool, ...] = (False,)
    """False for on-demand capacity, True for spot capacity, or both."""
    rules: Rules = field(default_factory=Rules)
    max_rows: int = MAX_ROWS
    identity: str | None = None
    """Distinguishes the grid from others of its name, as JSON, if its files were moved; None uses
    the template."""

    def __post_init__(self) -> None:
        path_of(self.name)
        for region in self.regions:
            if not REGION.fullmatch(region):
                raise InvalidRequest(f"{region!r} is not a region; write it like us-east-1")
        if self.count < 1:
            raise InvalidRequest(f"count must be at least 1 instance per job, got {self.count}")
        if self.max_rows < 1:
            raise InvalidRequest(f"max_rows must be at least 1, got {self.max_rows}")

        limits = self.template.options.get("limits")
        is_billed = self.template.target.is_billed
        is_capped_by_day = limits is not None and limits.max_cost_per_day is not None
        if is_capped_by_day and is_billed and self.rules.max_cost is None:
            raise InvalidRequest(
                "the jobs of a grid do not count for max_cost_per_day, "
                "and this grid has no cap of its own",
                remedy="give it one: --max-cost USD (in Python: raysm.Rules(max_cost=…))",
            )

    def read_rows(self) -> list[Row]:
        table = self.source.by(self.template.target).read(self.max_rows)
        self.template.check(table.columns, table.origin)
        return parse_rows(table)


MAX_NAMED = 20

_log = logging.getLogger("raysm")


def extend(store: Store, source: Source | None = None, *, max_rows: int = MAX_ROWS) -> int:
    """Add a source's new rows to a grid, and take over corrected values.

    Returns:
        How many rows are new.
    """
    grid = store.grid()
    if grid.state is GridState.STOPPING:
        raise InvalidRequest(
            f"the grid {grid.name!r} is being stopped and takes no new rows; "
            "wait until it is closed"
        )
    source = source or source_from_description(json.loads(grid.source))
    kept = read_target(path_of(grid.name))
    table = (source if kept is None else source.by(kept.target)).read(max_rows)
    # Report a column that was removed now, not when the first job is made.
    check_names(json.loads(grid.template), table.columns, table.origin)
    rows = parse_rows(table)
    check_types(dict.fromkeys(name for row in rows for name in row.instance_types))
    return join(store, rows)


def check_types(names: Iterable[str]) -> None:
    for name in names:
        if name != LOCAL_TYPE:
            check_instance_type(name)


def join(store: Store, rows: Iterable[Row]) -> int:
    """Add the rows whose keys are new, and compare the others with what is recorded.

    Returns:
        How many rows are new.

    Rows that are not done take the values of the source, except rows with an open job. Each row
    that differs is named in a warning; a row that is done or has an open job also says so in its
    reason.
    """
    options = json.loads(store.grid().template).get("options", {})
    limits = from_json(Limits, options.get("limits") or {}, "limits")
    # Each row gets its limit, so that the budget counts the limit that the service enforces.
    rows = [replace(row, max_runtime_s=row.max_runtime_s or limits.max_runtime_s) for row in rows]
    added = store.add(rows)
    if added < len(rows):
        differing = correct(store, rows)
        for each in differing[:MAX_NAMED]:
            _log.warning("row %s", each)
        if len(differing) > MAX_NAMED:
            _log.warning(
                "%s more rows differ from the source; raysm grid rows lists them",
                len(differing) - MAX_NAMED,
            )
    return added


# -- a grid's file

WORKLOAD = ("script", "args", "source_dir")
"""Keys of [workload] that may stand at the top, since nearly all grids run scripts."""

OWN = ("name", "regions", "instance_type", "count", "spot", "rows", "rules", "max_rows", "batch")
"""Keys that a job's file does not have, or has in another form."""

BATCH_KEYS: Mapping[str, type] = {
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
    layer: Layer | None = None
    name: str | None = None
    source: Source | None = None
    regions: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    count: int | None = None
    markets: tuple[bool, ...] | None = None
    rules: Rules | None = None
    max_rows: int | None = None
    batch: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``ControllerJob``."""


def read_grid_file(path: Path) -> GridFile:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidRequest(f"{path} cannot be read: {reason}") from error
    own = {name: data.pop(name) for name in OWN if name in data}
    short = {name: data.pop(name) for name in WORKLOAD if name in data}
    if short:
        # A torchrun script needs [workload] with kind = "torch_script".
        data["workload"] = {"kind": "script", **data.get("workload", {}), **short}

    def typed(name: str, hint: Any, value: Any) -> Any:
        return from_json(hint, value, f"{path}: {name}")

    def names(name: str) -> Any:
        value = own.get(name, [])
        return typed(name, tuple[str, ...], [value] if isinstance(value, str) else value)

    batch = typed("batch", Mapping[str, Any], own.get("batch", {}))
    for name in batch:
        if name not in BATCH_KEYS:
            raise InvalidRequest(f"{path}: [batch] has no {name!r}; it has {', '.join(BATCH_KEYS)}")
    return GridFile(
        layer=_layer(path, data),
        name=typed("name", str, own.get("name", path.stem)),
        source=None if "rows" not in own else _source(path, own["rows"]),
        regions=names("regions"),
        instance_types=names("instance_type"),
        count=typed("count", int | None, own.get("count")),
        markets=None if "spot" not in own else (typed("spot", bool, own["spot"]),),
        rules=None if "rules" not in own else typed("rules", Rules, own["rules"]),
        max_rows=typed("max_rows", int | None, own.get("max_rows")),
        batch={
            name: typed(f"batch.{name}", BATCH_KEYS[name], value) for name, value in batch.items()
        },
    )


def _layer(path: Path, data: Mapping[str, Any]) -> Layer:
    def origin(key: Key) -> str:
        return str(path)

    hints = schema(workload=True)
    tables = nested(check_values(data, hints, origin))
    # Paths are relative to the file, not to the current folder.
    located = absolute(tables, path.absolute().parent)
    return Layer(values=check_values(located, hints, origin), origin=origin)


def _source(path: Path, rows: Any) -> Source:
    if isinstance(rows, str):
        rows = {"file": rows}
    if not isinstance(rows, dict):
        raise InvalidRequest(
            f"{path}: rows is a table, [rows] with file=… or sql=… and on=…, got {rows!r}"
        )
    for name in rows:
        if name not in ROWS:
            raise InvalidRequest(f"{path}: [rows] has no {name!r}; it has {', '.join(ROWS)}")
    if ("file" in rows) == ("sql" in rows):
        raise InvalidRequest(
            f"{path}: [rows] has either a file or a query: file = …, or sql = … and on = …"
        )
    texts = {
        name: from_json(str, rows[name], f"{path}: rows.{name}")
        for name in ROWS[:3]
        if name in rows
    }
    if "file" in rows:
        file = texts["file"]
        return source_of(file if file.startswith("s3://") else path.absolute().parent / file)
    if "on" not in rows:
        raise InvalidRequest(
            f"{path}: [rows] has a query and no database: "
            "on = 'sqlite:///campaigns.db', or env:NAME"
        )
    return source_of(Query(texts["sql"], on=texts["on"], params=rows.get("params", {})))
