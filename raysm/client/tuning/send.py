"""Sends a sweep to the service as a tuning job: payload and call flow out, and the handle on what was made."""

import logging
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from raysm.client.options import SubmitOptions
from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.submit import prepare
from raysm.client.sweep import Sweep
from raysm.client.tuning.call import TuningOptions, request_of
from raysm.client.tuning.handle import Tuning
from raysm.client.tuning.sought import of_sweep
from raysm.errors import InvalidRequest
from raysm.request import Target
from raysm.request.sweep import SweepWorkload, require_sweep

__all__ = ["PreparedTuning", "prepare_tuning", "tune"]

LONGEST_NAME = 32
"""Of a tuning job's name, by the service's model."""

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True)
class PreparedTuning:
    """A tuning job that is ready to be sent; nothing of it is on the service yet."""

    name: str
    """Of the tuning job."""
    sweep: SweepWorkload
    """What is tried."""
    request: Mapping[str, Any]
    """The call that ``send`` makes, as it is."""
    job: Prepared
    """The sweep as one job, of which each trial's is made."""

    def send(self) -> Tuning:
        """Upload what has changed, send the call, and return the handle.

        Raises:
            ServiceError: The service refused; nothing of the tuning job is left but data that can be used again.
        """
        service = self.job.service
        with self.job.brought():
            service.call("sagemaker", "create_hyper_parameter_tuning_job", **self.request)
        return Tuning(self.name, of_sweep(self.sweep), service)


def prepare_tuning(job: Prepared, options: TuningOptions) -> PreparedTuning:
    """Make a tuning job of a sweep that would else be one job; nothing is sent.

    Args:
        job: The sweep as one job.
        options: What a tuning job is asked beside.

    Raises:
        InvalidRequest: The service cannot do what is asked for.
    """
    request, sweep = job.request, require_sweep(job.request.workload)
    if request.kind != "training":
        raise InvalidRequest(f"tune: trials are training jobs, got kind={request.kind!r}")
    # Else they would be dropped without a word: a definition has a place for neither.
    if request.checkpoint_uri is not None:
        raise InvalidRequest(
            "tune: all trials of a tuning job would have one checkpoint_uri; drop it, and let the trials be short, or "
            "send the sweep as a job"
        )
    if request.limits.max_restarts:
        raise InvalidRequest(
            f"tune: max_restarts={request.limits.max_restarts} is of a job that raysm follows, and the trials of a "
            "tuning job are launched by the service; drop it, or give them more time (limits.max_runtime_s)"
        )
    # No refusal: it may stand in the project's file, for its other jobs.
    if request.tracking is not None and not request.is_tracked_by_head:
        _log.warning(
            "tune: the trials are not copied to %s, a file of this machine, which a tuning job does not reach; an "
            "MLflow server (http://…, or an ARN) gets a run of each",
            request.tracking,
        )
    # Not the job's: a tuning job's name has half the characters, and its trials' begin with it.
    name = _name(job.task)
    call = request_of(name, sweep, job.plan.request, options, takes_files=job.service.target.takes_files)
    return PreparedTuning(name=name, sweep=sweep, request=call, job=job)


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
    names = tuple(str(getattr(parent, "name", parent)) for parent in parents)
    tuning = TuningOptions(parallel=parallel, parents=names)
    return prepare_tuning(prepare(sweep, on=on, **options), tuning).send()


def _name(task: str) -> str:
    # The second and some chance: each call is a tuning job of its own, and all have to differ.
    suffix = f"{time.strftime('%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    begin = re.sub(r"[^a-zA-Z0-9-]", "-", task)[: LONGEST_NAME - len(suffix) - 1].strip("-")
    return f"{begin}-{suffix}"
