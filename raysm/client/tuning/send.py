"""Sends a sweep to the service as a tuning job: payload and call flow out, and the handle on what was made."""

import re
import secrets
import time
from collections.abc import Sequence
from typing import Unpack, cast

from raysm.client.options import SubmitOptions
from raysm.client.service import Service
from raysm.client.submit import prepare
from raysm.client.sweep import Sweep
from raysm.client.tuning.call import TuningOptions, request_of
from raysm.client.tuning.handle import Tuning
from raysm.errors import InvalidRequest
from raysm.request import Target
from raysm.request.sweep import SweepWorkload

__all__ = ["tune"]

LONGEST_NAME = 32
"""Of a tuning job's name, by the service's model."""


def tune(
    sweep: Sweep,
    *,
    parallel: int = 1,
    parents: "Sequence[str | Tuning]" = (),
    on: "Target | Service | None" = None,
    **options: Unpack[SubmitOptions],
) -> Tuning:
    """Have the service search: a tuning job, whose trials are training jobs with a cluster each.

    For trials of half an hour and more, or a search that outlives this machine; many short trials are faster on the one
    cluster of ``raysm.submit(sweep)``. ``search="optuna"``, the default, is the service's Bayesian search; ``stop`` may
    be ``"median"``. A trial's image has to begin with raysm's bootstrap, as those of ``containers/`` do, or be one of
    AWS's framework images; neither was seen on AWS.

    Args:
        sweep: What is tried; its space are ranges.
        parallel: Trials at a time, at most.
        parents: Earlier tuning jobs, up to five, from which the search learns before it begins.
        on: As for ``submit``.
        options: As for ``submit``; of each trial's job.

    Raises:
        InvalidRequest: The service cannot do what is asked for; nothing was uploaded.
        ServiceError: The service refused, or cannot be reached.
    """
    if not isinstance(sweep, Sweep):
        raise InvalidRequest(f"tune takes raysm.Sweep(…), got {sweep!r}")
    if options.get("kind", "training") != "training":
        raise InvalidRequest(f"tune: trials are training jobs, got kind={options['kind']!r}")
    prepared = prepare(sweep, on=on, **options)
    service, workload = prepared.service, cast(SweepWorkload, prepared.request.workload)
    names = tuple(str(getattr(parent, "name", parent)) for parent in parents)
    name = _name(prepared.task)
    request = request_of(
        name,
        workload,
        prepared.plan.request,
        TuningOptions(parallel=parallel, parents=names),
        takes_files=service.target.takes_files,
    )
    with prepared.brought():
        service.call("sagemaker", "create_hyper_parameter_tuning_job", **request)
    return Tuning(name, workload, service)


def _name(task: str) -> str:
    # The second and some chance: each call is a tuning job of its own, and all have to differ.
    own = f"{time.strftime('%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    begin = re.sub(r"[^a-zA-Z0-9-]", "-", task)[: LONGEST_NAME - len(own) - 1].strip("-")
    return f"{begin}-{own}"
