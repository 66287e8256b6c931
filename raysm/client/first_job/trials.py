"""The jobs of the first hour, as data: what each is for, how it is asked for, and how it has to end.

Some are jobs as raysm sends them. Others have the same payload, and another program as their entry point: where raysm
itself would hide what SageMaker does, as with files of one name that several instances leave.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from raysm.client.description import Status
from raysm.client.first_job import probe
from raysm.client.plan import Plan
from raysm.client.prepared import Prepared
from raysm.client.service import Service
from raysm.client.submit import prepare
from raysm.contract.job_api import PROCESSING, TRAINING, JobApi, api_of
from raysm.contract.paths import Paths
from raysm.contract.payload import SOURCE
from raysm.request import Cluster, Input, Limits, Script

__all__ = ["INSTANCES", "MOST_S", "TRIALS", "Trial", "prepared"]

INSTANCES = 2
MOST_S = 900
"""Seconds that each may run: what the estimate of the costs is held to by SageMaker itself."""

ENTRY_KEYS: Mapping[JobApi, str] = {TRAINING: "AlgorithmSpecification", PROCESSING: "AppSpecification"}
"""Where an API has the entry point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One job."""

    name: str
    """Of the task, and of its folder of records."""
    purpose: str
    """What it shows."""
    mode: str
    """What the script in it does."""
    kind: str = TRAINING.kind
    """Whose API makes it."""
    spot: bool = False
    """Whether on spot capacity."""
    channel_mode: Literal["File", "FastFile"] = "File"
    """How its data is brought."""
    stops: bool = False
    """Whether it is stopped as soon as it says that it is ready."""
    is_entered: bool = False
    """Whether a tunnel is opened into it as soon as it says that it is ready, and at which port."""
    wait_s: float | None = None
    """Seconds for which its script waits for whoever is to reach it; None is as long as it may take on AWS."""
    is_bare: bool = False
    """Whether the script is the entry point of every instance, in place of raysm."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What else of the call is different, by its keys."""
    ends: Status = Status.COMPLETED
    """How it has to end."""


TRIALS: tuple[Trial, ...] = (
    Trial(
        name="training",
        purpose="two instances become one cluster, the log is followed, the result comes back",
        mode="cluster",
        # To see whether its files can be mapped into memory.
        channel_mode="FastFile",
    ),
    Trial(name="processing", purpose="the same as a Processing job", mode="cluster", kind=PROCESSING.kind),
    Trial(name="failing", purpose="a failure arrives with its reason", mode="fail", ends=Status.FAILED),
    Trial(
        name="stopped", purpose="a job that is stopped saves its state", mode="wait", stops=True, ends=Status.STOPPED
    ),
    Trial(name="tunnel", purpose="a port of the head is reached from here", mode="visited", is_entered=True),
    Trial(name="spot", purpose="spot capacity", mode="cluster", spot=True),
    Trial(
        name="outputs", purpose="whose file stays where instances leave one of the same name", mode="same", is_bare=True
    ),
    Trial(
        name="killed",
        purpose="what of the checkpoints is there after SIGKILL",
        mode="outlive",
        is_bare=True,
        # SIGKILL is SageMaker's own: it comes 120 s after the SIGTERM of a stop.
        stops=True,
        ends=Status.STOPPED,
    ),
    Trial(
        name="isolated",
        purpose="whether instances of an isolated Processing job reach each other",
        mode="isolated",
        kind=PROCESSING.kind,
        is_bare=True,
        # Not by Security, which the account's own, with its subnets and keys, may already be among the options.
        request={"NetworkConfig": {"EnableNetworkIsolation": True}},
    ),
)


def prepared(trial: Trial, service: Service, cluster: Cluster, data: Path, options: Mapping[str, Any]) -> Prepared:
    """Return the job of a trial, ready to be sent.

    Args:
        trial: Which one.
        service: Where it goes.
        cluster: On what.
        data: A folder with a file for its channel.
        options: What else all jobs need.

    Raises:
        InvalidRequest: It cannot be had there.
    """
    chosen: Any = {
        **options,
        "cluster": cluster,
        # The folder, though it has one file: FastFile takes no single object.
        "inputs": {"data": Input(str(data), mode=trial.channel_mode)},
        "limits": Limits(max_runtime_s=MOST_S, spot=trial.spot),
        "kind": trial.kind,
        "name": f"first-job-{trial.name}",
        "project": "first-job",
    }
    ready = prepare(Script(probe.__file__, args=_arguments(trial)), on=service, **chosen)
    return _changed(ready, trial) if trial.is_bare else ready


def _arguments(trial: Trial) -> tuple[str, ...]:
    return (trial.mode,) if trial.wait_s is None else (trial.mode, str(trial.wait_s))


def _changed(ready: Prepared, trial: Trial) -> Prepared:
    """Return the job with the script as the entry point of its instances."""
    # In depth: a plan is frozen, and the tables in its request are not.
    request: dict[str, Any] = copy.deepcopy(dict(ready.plan.request))
    api = api_of(trial.kind)
    script = Paths(api=api).payload / SOURCE / Path(probe.__file__).name
    specification = request[ENTRY_KEYS[api]]
    specification.pop("ContainerArguments", None)
    specification["ContainerEntrypoint"] = ["python3", str(script), *_arguments(trial)]
    for key, values in trial.request.items():
        request[key] = {**request.get(key, {}), **values}
    return replace(ready, plan=Plan(api=ready.plan.api, request=request))
