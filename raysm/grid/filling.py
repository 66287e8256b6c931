"""From a row to its job: the request that all rows share flows in, with a row and its place; one job's flows out.

What a row says itself wins over what all share. Columns stand in braces wherever the shared request has a text; those
that stand nowhere are hyperparameters, so that nothing that was measured is lost.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from raysm.errors import InvalidRequest
from raysm.grid.place import Place
from raysm.grid.rows.template import check_names, fill, names_in
from raysm.grid.task import Task, Value
from raysm.request import Cluster, Input, Limits, Target, Workload

__all__ = ["GIVEN", "Filled", "Template"]

GIVEN = ("account", "count", "instance_type", "key", "region")
"""What every template may take, whatever the columns are."""

MOST_HYPERPARAMETERS = 100
MOST_CHARACTERS = 2_500
"""Of CreateTrainingJob, and of one value:
https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filled:
    """One row's job, as ``raysm.client.submit.prepare`` takes it."""

    workload: Workload
    """What it runs."""
    target: Target
    """Where it goes: the region of its place."""
    options: Mapping[str, Any]
    """All else."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """The request that the rows of a grid share."""

    workload: Workload
    """What every row runs."""
    target: Target
    """Where to; of its region and image each row has its own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """As ``raysm.submit`` takes them."""

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The columns that it takes."""
        return names_in([self.workload, self.options, getattr(self.target, "image", None)])

    def check(self, columns: Iterable[str], origin: str) -> None:
        """Refuse a template that takes what no row has.

        Raises:
            InvalidRequest: It names the column that comes nearest.
        """
        names = [*columns, *GIVEN]
        for part in (self.workload, dict(self.options), getattr(self.target, "image", None)):
            check_names(part, names, origin)

    def job(self, task: Task, place: Place, count: int, account: Callable[[], str] = lambda: "") -> Filled:
        """Return the job of a row in a place.

        Args:
            task: The row.
            place: Where it runs.
            count: Instances of its cluster.
            account: Returns the number of the account; asked for only where a template takes it.

        Raises:
            InvalidRequest: A value is not there in this row, or cannot be; the message names row and column.
        """
        where = f"row {task.position + 1} ({task.key})"
        values: dict[str, Value] = {
            **task.parameters,
            "key": task.key,
            "region": place.region,
            "instance_type": place.instance_type,
            "count": count,
            "account": account() if "account" in self.names else None,
        }
        options = dict(fill(dict(self.options), values, where))
        options["cluster"] = replace(
            options.get("cluster") or Cluster(), instance_type=place.instance_type, count=count
        )
        options["inputs"] = _inputs(options.get("inputs") or {}, task)
        for name, own in (("environment", task.environment), ("tags", task.tags)):
            options[name] = {**(options.get(name) or {}), **own}
        options["hyperparameters"] = self._hyperparameters(options.get("hyperparameters") or {}, task, where)
        options["limits"] = _limits(options.get("limits") or Limits(), task, place)
        if task.checkpoint is not None:
            options["checkpoint_uri"] = task.checkpoint
        return Filled(
            workload=fill(self.workload, values, where),
            target=_target(self.target, task, place, values, where),
            options={name: value for name, value in options.items() if value not in (None, {}, ())},
        )

    def _hyperparameters(self, shared: Mapping[str, str], task: Task, where: str) -> dict[str, str]:
        # A column that stands in a text reaches the program there; all others reach it as hyperparameters.
        own = {
            name: str(value) for name, value in task.parameters.items() if name not in self.names and value is not None
        }
        merged = {**shared, **own}
        if len(merged) > MOST_HYPERPARAMETERS:
            raise InvalidRequest(
                f"{where}: {len(merged)} columns and hyperparameters that no template takes, and SageMaker has "
                f"{MOST_HYPERPARAMETERS} at most; choose fewer columns"
            )
        for name, text in own.items():
            if len(text) > MOST_CHARACTERS:
                raise InvalidRequest(
                    f"{where}, column {name!r}: {len(text):,} characters, and a hyperparameter has at most "
                    f"{MOST_CHARACTERS:,}; put the text into a file, and its address into the column"
                )
        return merged


def _inputs(shared: Mapping[str, Any], task: Task) -> dict[str, Any]:
    inputs = dict(shared)
    for channel, uri in task.inputs.items():
        known = inputs.get(channel)
        # How a channel is shared among the instances is said for all rows; where it lies, by each.
        inputs[channel] = replace(known, uri=uri) if isinstance(known, Input) else uri
    return inputs


def _limits(limits: Limits, task: Task, place: Place) -> Limits:
    runtime_s = task.max_runtime_s or limits.max_runtime_s
    # On demand there is nothing to wait for, and Limits refuses a time for it.
    wait_s = limits.max_wait_s if place.spot and (limits.max_wait_s or 0) >= runtime_s else None
    return replace(limits, max_runtime_s=runtime_s, spot=place.spot, max_wait_s=wait_s)


def _target(target: Target, task: Task, place: Place, values: Mapping[str, Value], where: str) -> Target:
    changes: dict[str, Any] = {}
    image = task.image or getattr(target, "image", None)
    if image is not None and hasattr(target, "image"):
        changes["image"] = fill(image, values, where)
    there = target.in_region(place.region)
    return replace(there, **changes) if changes else there
