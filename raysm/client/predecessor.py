"""Who had a state before, and whether it is free: only one job at a time may have it.

SageMaker brings what a running job writes among its checkpoints to their prefix, and removes there what it removes: of
two jobs with one prefix each would destroy what the other writes. A job that is being stopped still uploads. What flows
in is a request, what flows out is the prefix of its state, and a return once nobody else writes there.
"""

import logging
import math

from raysm.client import records
from raysm.client.chain import Chain, Patience
from raysm.client.description import Description, SecondaryStatus, Status
from raysm.client.service import Service
from raysm.client.storage import Storage
from raysm.contract.job_api import TRAINING, api_of
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.request import JobRequest

__all__ = ["await_predecessor", "state_of"]

ENDING = (SecondaryStatus.UPLOADING, SecondaryStatus.STOPPING, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
"""What a job does that ends by itself within minutes."""

_log = logging.getLogger("raysm")


def state_of(request: JobRequest, task: str, service: Service, *, resume: bool) -> str | None:
    """Return the prefix of a job's checkpoints: the one given, that of the task's latest job, or a new one.

    Returns:
        None where the API has none, or the workload keeps none.

    Raises:
        InvalidRequest: It is to be gone on with, and there is none.
    """
    api = api_of(request.kind)
    if not api.has_checkpoints:
        if resume:
            raise InvalidRequest(
                f"a {api.title} job has no checkpoints to resume from; submit with kind={TRAINING.kind!r}"
            )
        if getattr(request.workload, "in_state", False):
            raise InvalidRequest(
                f"a {api.title} job has no state for in_state; submit with kind={TRAINING.kind!r}, or drop in_state"
            )
        return None
    if request.checkpoint_uri is not None:
        return request.checkpoint_uri
    if not request.workload.keeps_state:
        if resume:
            raise InvalidRequest(
                f"{request.workload.label} keeps no state (keeps_state of {request.workload.kind}) to resume from; "
                "drop resume, or give checkpoint_uri"
            )
        return None
    prefix = service.places.records(request.project, task)
    latest = records.latest_of_state(prefix, Storage(service)) if resume else None
    return service.places.state(request.project, task, request.name) if latest is None else latest.state


def await_predecessor(prefix: str, state: str, service: Service) -> None:
    """Wait until the last job that had a state writes there no more, where that is soon.

    Args:
        prefix: Of the records of the task: another task's jobs are not known here.
        state: Prefix of the checkpoints.
        service: Where the jobs are.

    Raises:
        InvalidRequest: The job runs, and nobody knows for how long.
        ServiceError: The service refuses to tell, or has been away for minutes.
    """
    latest = records.latest_of_state(prefix, Storage(service), state)
    if latest is not None:
        _await_end(latest.job, service)


def _await_end(job: str, service: Service) -> None:
    # A Training job, whatever the new one is: no other has checkpoints.
    chain, patience, is_told = Chain(job, service=service, api=TRAINING), Patience(service, job), False
    for pause_s in service.polling.pauses():
        try:
            # Of a chain to which nobody has sent the next job, the last one has ended: this one goes on in its place.
            if chain.ended(send=False) or chain.known().status.is_terminal:
                return
            patience.heard()
            _refuse_running(chain.known())
            if not is_told:
                _log.warning("waiting until %s has saved its state, with which the new job goes on", chain.name)
                is_told = True
        # Whoever removed it could do so only once it had ended.
        except JobNotFound:
            return
        except ServiceError as error:
            patience.bear(error)
        service.wait_for_end(chain.name, pause_s, math.inf)


def _refuse_running(job: Description) -> None:
    if job.status is Status.STOPPING or job.secondary in ENDING:
        return
    raise InvalidRequest(
        f"{job.name} is {job.secondary or job.status}, and writes the state that this job would go on with: each would "
        f"destroy what the other one saves; stop it (raysm stop {job.name}), wait for its end (raysm result "
        f"{job.name}), or begin with a state of its own: without resume, with another checkpoint_uri"
    )
