"""From an attempt to its job, ready to be sent: a template and services flow in, Prepared jobs flow out.

The same attempt always makes the same job, whoever prepares it and how often: its name, its secret and its checkpoint
follow from the grid's file, so that a call that is repeated finds its first one.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.submit import prepare
from raysm.contract.store import put_first
from raysm.grid.attempt import Attempt
from raysm.grid.filling import Filled, Template
from raysm.grid.gauge import definition
from raysm.grid.place import place_of
from raysm.grid.records import GridRecord
from raysm.grid.region import Prepare, token_of
from raysm.grid.task import Task
from raysm.request import MetricDefinition, Target

__all__ = ["Services", "preparing", "secret_of", "secret_path"]

Services = Callable[[Target], Service]
"""Returns the service of a target."""

SECRET_BYTES = 32


def preparing(template: Template, grid: GridRecord, secret: str, services: Services) -> Prepare:
    """Return what makes the jobs of a grid.

    Args:
        template: The request that its rows share.
        grid: Whose rows they are.
        secret: Of which those of its jobs are made.
        services: How a target is reached.
    """

    def make(task: Task, attempt: Attempt) -> Prepared:
        place = place_of(attempt)
        of_place = services(template.target.in_region(place.region))
        job = _filled(template, task, attempt, lambda: of_place.account)
        # A row's image is part of its target.
        service = of_place if job.target == of_place.target else services(job.target)
        options = dict(job.options)
        # What the budget counts with is what the service holds it to.
        options["limits"] = replace(options["limits"], max_runtime_s=attempt.max_runtime_s)
        # One of the row, not of the try: a row that was interrupted, or out of time, goes on from what it has saved.
        options["metrics"] = _with_rate(options.get("metrics") or (), grid.rules.rate)
        folder = f"{service.places.root}/grids/{grid.prefix}{task.key_hash}-{task.digest[:8]}"
        options.setdefault("checkpoint_uri", folder)
        options["name"] = f"{grid.prefix}{task.key_hash}"
        return prepare(
            job.package or job.workload,
            on=service,
            job_name=attempt.name,
            token=token_of(secret, attempt),
            shares=True,
            **options,
        )

    return make


def _filled(template: Template, task: Task, attempt: Attempt, account: Callable[[], str]) -> Filled:
    job = template.job(task, place_of(attempt), attempt.count, account)
    if not attempt.choice:
        return job
    cluster = replace(job.options["cluster"], alternatives=attempt.types[1:])
    return replace(job, options={**job.options, "cluster": cluster})


def _with_rate(metrics: Sequence[MetricDefinition], rate: str | None) -> tuple[MetricDefinition, ...]:
    # The user's own of this name counts: it says where else than in raysm.report the number stands.
    if rate is None or any(each.name == rate for each in metrics):
        return tuple(metrics)
    return (*metrics, definition(rate))


def secret_path(store: Path) -> Path:
    """Return where the secret of a grid lies, by its file."""
    return store.with_suffix(".key")


def secret_of(store: Path) -> str:
    """Return the secret of a grid, beside its file; it is drawn when it is first asked for.

    Args:
        store: The grid's file.
    """
    path = secret_path(store)
    if not path.exists():
        # Not in the store, of which a copy may be given to whoever wants to look at the grid. Of two runs that begin
        # at once both take the first one's: with another, a Create that is repeated would be another job's.
        put_first(path, secrets.token_hex(SECRET_BYTES), mode=0o600)
    return path.read_text(encoding="utf-8")
