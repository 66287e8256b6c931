"""From a row to its job: the request that all rows share flows in, with a row and its place; one job's flows out.

What a row says itself wins over what all share. Columns stand in braces wherever the shared request has a text; those
that stand nowhere are hyperparameters, so that nothing that was measured is lost.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from raysm.client.source.package import Package
from raysm.errors import InvalidRequest
from raysm.grid.place import Place
from raysm.grid.rows.template import check_names, fill, names_in
from raysm.grid.task import Task, Value
from raysm.request import Cluster, Input, Limits, Target, Workload
from raysm.request.job import check_channels, hyperparameter_text

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
    package: Package | None = None
    """What travels with the workload, where that has been pickled for all rows."""


@dataclass(frozen=True, kw_only=True)
class Template:
    """The request that the rows of a grid share."""

    workload: Workload
    """What every row runs."""
    target: Target
    """Where to; of its region and image each row has its own."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """As ``raysm.submit`` takes them."""
    package: Package | None = None
    """What travels with the workload, where that is pickled: once, and the same for all rows."""

    @functools.cached_property
    def names(self) -> frozenset[str]:
        """The columns that it takes."""
        return names_in(self._parts)

    @property
    def output_kms_key(self) -> str | None:
        """The key of what the jobs leave, and of the grid's own record beside it; None is the bucket's."""
        security = self.options.get("security")
        return security.output_kms_key if security else None

    @property
    def _parts(self) -> tuple[Any, ...]:
        """What has texts that may hold columns."""
        # What was pickled was so before there were rows: a brace in it is one of the user's own.
        workload = () if self.package is not None else (self.workload,)
        return *workload, dict(self.options), getattr(self.target, "image", None)

    def check(self, columns: Iterable[str], origin: str) -> None:
        """Refuse a template that takes what no row has, or is none of a grid's.

        Raises:
            InvalidRequest: It names the column that comes nearest; or the rows would be Processing jobs.
        """
        if (kind := self.options.get("kind", "training")) != "training":
            # What a row keeps over its tries, its rate and its spot instances are what Training has alone.
            raise InvalidRequest(f"a grid runs training jobs, got kind={kind!r}; leave kind out")
        names = [*columns, *GIVEN]
        for part in self._parts:
            check_names(part, names, origin)
        if self.package is not None:
            _check_pickled(self.workload, names)

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
        # Without alternatives: where the service is to choose, the grid says among which, and counts what they cost.
        options["cluster"] = replace(
            options.get("cluster") or Cluster(), instance_type=place.instance_type, count=count, alternatives=()
        )
        options["inputs"] = _inputs(options.get("inputs") or {}, task)
        for name, of_task in (("environment", task.environment), ("tags", task.tags)):
            options[name] = {**(options.get(name) or {}), **of_task}
        options["hyperparameters"] = self._hyperparameters(options.get("hyperparameters") or {}, task, where)
        options["limits"] = _limits(options.get("limits") or Limits(), task, place)
        workload = self.workload if self.package is not None else _filled(self.workload, values, where)
        _check_inputs(workload, options["inputs"], count, where)
        if task.checkpoint is not None:
            options["checkpoint_uri"] = task.checkpoint
        return Filled(
            workload=workload,
            target=_target(self.target, task, place, values, where),
            options={name: value for name, value in options.items() if value not in (None, {}, ())},
            package=self.package,
        )

    def _hyperparameters(self, shared: Mapping[str, str], task: Task, where: str) -> dict[str, str]:
        # A column that stands in a text reaches the program there; all others reach it as hyperparameters.
        of_task = {
            name: hyperparameter_text(name, value)
            for name, value in task.parameters.items()
            if name not in self.names and value is not None
        }
        merged = {**shared, **of_task}
        if len(merged) > MOST_HYPERPARAMETERS:
            raise InvalidRequest(
                f"{where}: {len(merged)} hyperparameters (columns that are used nowhere are some), and SageMaker takes "
                f"at most {MOST_HYPERPARAMETERS}; leave out columns"
            )
        for name, text in of_task.items():
            if len(text) > MOST_CHARACTERS:
                raise InvalidRequest(
                    f"{where}, column {name!r}: {len(text):,} characters, but a hyperparameter has at most "
                    f"{MOST_CHARACTERS:,}; put the text into a file and the file's URI into the column"
                )
        return merged


def _filled(workload: Workload, values: Mapping[str, Value], where: str) -> Workload:
    """Return the workload of a row; an option and a value that begins with ``-`` become one word.

    argparse takes the second word of ``--shift -1.6e-05`` as another option; it reads ``--shift=-1.6e-05``.
    """
    filled: Any = fill(workload, values, where)
    args, template = getattr(filled, "args", ()), getattr(workload, "args", ())
    joined: list[str] = []
    for word, text in zip(args, template, strict=True):
        is_value = word is not text and text.startswith("{") and word.startswith("-")
        if is_value and joined and joined[-1].startswith("--") and "=" not in joined[-1]:
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    changed: Workload = filled if len(joined) == len(args) else replace(filled, args=tuple(joined))
    return changed


def _inputs(shared: Mapping[str, Any], task: Task) -> dict[str, Any]:
    inputs = dict(shared)
    for channel, uri in task.addresses.items():
        common = inputs.get(channel)
        # How a channel is shared among the instances is said for all rows; where it lies, by each.
        of_row = replace(common, uri=uri) if isinstance(common, Input) else uri
        inputs[channel] = _as_manifest(of_row) if channel in task.manifests else of_row
    return inputs


def _as_manifest(source: Input | str) -> Input:
    return replace(source if isinstance(source, Input) else Input(source), manifest=True)


def _check_inputs(workload: Workload, inputs: Mapping[str, Any], count: int, where: str) -> None:
    """Refuse a row whose inputs its workload cannot do with, while nothing of the grid is sent."""
    channels = {name: item if isinstance(item, Input) else Input(str(item)) for name, item in inputs.items()}
    try:
        check_channels(workload, channels, count)
    except InvalidRequest as error:
        raise InvalidRequest(f"{where}: {error}; a column input_NAME is the input NAME of its row") from error


def _check_pickled(workload: Workload, names: Iterable[str]) -> None:
    """Refuse an argument that reads as if it were filled for each row: it would reach the program with its braces."""
    # By what is shown of them: an argument may be an array of a gigabyte, or anything else without texts.
    for argument, value in workload.parameters.items():
        for name in names:
            if isinstance(value, str) and f"{{{name}}}" in value:
                raise InvalidRequest(
                    f"the argument {argument!r} of {workload.title} has {{{name}}}, and what is pickled is the same "
                    "for all rows: let the rows differ in their inputs (input_NAME) or environment (env_NAME), or take "
                    "a script"
                )


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
    in_region = target.in_region(place.region)
    return replace(in_region, **changes) if changes else in_region
