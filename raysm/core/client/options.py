"""The options of ``raysm.submit``: the types for editors and the text for people, in one place."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from raysm.core.client.service import Service
from raysm.core.request import (
    Cluster,
    Input,
    JobRequest,
    Limits,
    MetricDefinition,
    Ports,
    Security,
    Target,
)
from raysm.core.request import options as request_options
from raysm.core.request.job import AsArguments, hyperparameter_text
from raysm.errors import InvalidRequest

IfDone: TypeAlias = Literal["run", "skip"]

WAIT_S = 900.0
"""Default of ``region_wait_s``."""

BESIDE_A_REQUEST = ("wheels",)
"""Options of a job that a JobRequest lacks: files of this machine, which travel with the job."""


class SubmitOptions(TypedDict, total=False):
    """The options of a job beside its workload; None is the default of each.

    Attributes:
        cluster: The instances. AWS requires them; on this machine None is ``on.instances``
            instances.
        inputs: Channels by name: ``s3://…``, a local path, an ``Input``,
            ``other_job.output("data")``, ``job:NAME/data``, or data: a NumPy array, a torch tensor,
            a pandas or polars data frame.
        name: Name of the task, from which each run's own name is made; None is made from the
            workload.
        project: Jobs of one project share their prefix in the bucket.
        kind: The API that runs it.
        limits: Time, spot capacity, restarts.
        security: Networks, keys, isolation.
        environment: Variables of every instance; never secrets.
        hyperparameters: Given to the job in ``SM_HPS``, and shown with it; values other than text
            travel as JSON.
        hyperparameters_as_args: Give a script its hyperparameters as arguments too,
            ``--name value``; ``"sdk2"``
            spells them as the SageMaker SDK 2 does: ``True``, ``None``, ``-n``.
        tags: Tags of the job.
        metrics: Metrics that the service finds in the log.
        stop_on_nan: A metric that ends the job once a value of it is NaN or infinite.
        requirements: Packages that every instance installs with pip before it joins.
        pip_index: Where pip gets them: an address without a password, or the ARN of a CodeArtifact
            repository.
        wheels: Package files that travel with the job, in which pip looks first.
        tracking: Where metrics are copied to: ``sqlite:///mlflow.db``, an MLflow server's address,
            or an ARN.
        checkpoint_uri: Prefix of the state that survives runs; None is one of the task.
        output_uri: Prefix of results; None is one of the project.
        grace_s: Seconds that user code has after SIGTERM; None is 100, and 60 on spot capacity.
        ports: Ports of the cluster.
    """

    cluster: Cluster | None
    inputs: Mapping[str, str | Path | Input | Any] | None
    name: str | None
    project: str
    kind: Literal["training", "processing"]
    limits: Limits | None
    security: Security | None
    environment: Mapping[str, str] | None
    hyperparameters: Mapping[str, Any] | None
    hyperparameters_as_args: AsArguments
    tags: Mapping[str, str] | None
    metrics: Sequence[MetricDefinition]
    stop_on_nan: str | None
    requirements: Sequence[str]
    pip_index: str | None
    wheels: Sequence[str | Path]
    tracking: str | None
    checkpoint_uri: str | None
    output_uri: str | None
    grace_s: float | None
    ports: Ports | None


class SubmitKeywords(SubmitOptions, total=False):
    """Every keyword of ``raysm.submit``: the options of the job, and how it is sent.

    Attributes:
        on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
        if_done: ``skip`` returns the task's earlier job, completed or still running, if its source,
            inputs, parameters and raysm are unchanged.
        resume: Continue with the state of the task's latest job instead of an empty one.
        regions: At least two regions: the job runs in the first that has instances for it.
        region_wait_s: Seconds that it waits for instances in each of them but the last; None is
            900.
    """

    on: Target | Service | None
    if_done: IfDone
    resume: bool
    regions: Sequence[str] | None
    region_wait_s: float | None


def check_names(options: Mapping[str, Any]) -> None:
    request_options.check_names("raysm.submit", SubmitKeywords.__annotations__, options)


def of_request(request: JobRequest, options: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if value is not None and name not in BESIDE_A_REQUEST:
            raise InvalidRequest(
                f"{name} is given beside a JobRequest, which has its own; "
                f"give dataclasses.replace(request, {name}=…). Beside a request raysm.submit "
                f"takes on, if_done, resume and {', '.join(BESIDE_A_REQUEST)}"
            )
    # Not asdict, which would make dictionaries of cluster, inputs and workload too.
    fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(JobRequest)}
    return {name: value for name, value in fields.items() if name != "workload"} | dict(options)


def request_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(JobRequest)}
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in names or value is None:
            continue
        if isinstance(value, Mapping):
            value = dict(value)
        elif type(value) is list:
            value = tuple(value)
        fields[name] = value
    if "hyperparameters" in fields:
        # JobRequest does this too, but a grid sends its controller only these fields.
        given = fields["hyperparameters"]
        fields["hyperparameters"] = {
            name: hyperparameter_text(name, value) for name, value in given.items()
        }
    return fields


def default_of(name: str) -> Any:
    for field in dataclasses.fields(JobRequest):
        if field.name == name and field.default is not dataclasses.MISSING:
            return field.default
    own = {"if_done": "run", "resume": False, "wheels": (), "regions": (), "region_wait_s": WAIT_S}
    return own.get(name)
