"""From a workload and options to a job that is ready to be sent: request, plan and checks, in this order.

``prepare`` sends nothing: its plan is exactly the call that ``Prepared.send`` makes.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from raysm.client.checks import check as check_plan
from raysm.client.checks import check_inputs, check_ray
from raysm.client.job import records
from raysm.client.job.handle import Job, attach
from raysm.client.options import IfDone, SubmitOptions, check_names, of_request, request_fields
from raysm.client.plan import plan
from raysm.client.prepared import Prepared, state_of
from raysm.client.service import Service, connect
from raysm.client.source.package import Package, Wrapped, package_of
from raysm.client.storage.inputs import is_data, locate, save
from raysm.client.units import PYTHON_VERSION
from raysm.contract import payload
from raysm.contract.names import MAX_RESTARTS_TAG, PROJECT_TAG, PYTHON_TAG, TASK_TAG, TRACKING_TAG, WORKLOAD_TAG
from raysm.contract.payload import Parted
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, JobRequest, Target, Workload
from raysm.request.codec import from_json, to_json
from raysm.request.job import NAME_PATTERN

REFERENCE = "job:"


def submit(
    workload: "Workload | Wrapped | JobRequest",
    *,
    on: "Target | Service | None" = None,
    if_done: IfDone = "run",
    resume: bool = False,
    **options: Unpack[SubmitOptions],
) -> Job:
    """Send a job, and return its handle without waiting for it.

    Args:
        workload: ``Script``, ``Function``, ``Similarity``, ``TorchScript``, ``DataParallel``, or one of a kind of your
            own. Or a whole ``JobRequest``, whose name is the task's; then ``wheels`` is the only option allowed.
        on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
        if_done: ``skip`` returns the task's earlier job, completed or still running, if its source, inputs, parameters
            and raysm are unchanged.
        resume: Continue with the state of the task's latest job instead of an empty one.
        options: The options of a job, as ``raysm.client.options.SubmitOptions`` lists them.

    Raises:
        InvalidRequest: The request is not possible; nothing was uploaded.
        ServiceError: The service refused, or cannot be reached.
    """
    if if_done not in ("run", "skip"):
        raise InvalidRequest(f"if_done is 'run' or 'skip', got {if_done!r}")
    prepared = prepare(workload, on=on, resume=resume, **options)
    done = prepared.finished() if if_done == "skip" else None
    return done or prepared.send()


def prepare(
    workload: "Workload | Wrapped | Package | JobRequest",
    *,
    on: "Target | Service | None" = None,
    resume: bool = False,
    job_name: str | None = None,
    token: bytes | None = None,
    shares: bool = False,
    **options: Unpack[SubmitOptions],
) -> Prepared:
    """Do all steps of ``submit`` except sending: ``prepare(…).plan`` is exactly the call that ``.send()`` makes.

    Asks AWS for the account's number if the target names no bucket, and reads the task's records if ``resume`` is set.
    ``workload`` may be a package that many jobs share. ``job_name`` and ``token`` are for callers that must know the
    name before, or prepare a job twice. With ``shares``, what the job has in common with others is uploaded once and
    kept.
    """
    check_names(options)
    chosen: Mapping[str, Any] = options
    if isinstance(workload, JobRequest):
        chosen = of_request(workload, options)
        workload = workload.workload
    _check_types(chosen)
    service = connect(on)
    package = package_of(workload)
    task = _task(chosen.get("name"), package.title)
    id_columns = getattr(package.workload, "id_columns", ())
    channels = {
        channel: _input(channel, item, service, id_columns) for channel, item in (chosen.get("inputs") or {}).items()
    }
    # Before ``locate``, which reads every byte of local inputs for their digests if the target is AWS.
    check_inputs(package.workload, channels)
    located, needed = locate(channels, service.target, service.places)
    fields = {"cluster": chosen.get("cluster") or service.target.default_cluster(), **request_fields(chosen)}
    if "tracking" in fields:
        # Imported here, because most jobs are not tracked.
        from raysm.client.logs.tracking import absolute_place

        fields["tracking"] = absolute_place(fields["tracking"], on=service.target)
    request = JobRequest(**fields | {"name": task, "workload": package.workload, "inputs": located})
    # This checks the types of all values: an instance would refuse them only after the cluster has started.
    from_json(JobRequest, to_json(request))
    wheels = tuple(Path(wheel) for wheel in chosen.get("wheels") or ())
    _check_packages(request, wheels)
    target, image = service.connection.resolve(request, lambda: service.region)
    digest = records.digest_of(request, target, source=package.source, pickled=package.pickled, wheels=wheels)
    if job_name is not None and not NAME_PATTERN.fullmatch(job_name):
        raise InvalidRequest(f"job_name={job_name!r} is not 1 to 63 letters, digits and inner hyphens; rename it")
    # The name contains a piece of the digest, which does not depend on the name.
    request = replace(request, name=job_name or records.job_name(task, digest, time.time()))
    state = state_of(request, task, service, resume=resume)
    contents = payload.contents_of(request, source=package.source, function=package.pickled, wheels=wheels, token=token)
    shared = service.places.shared(Parted(contents).digest) if shares else None
    planned = plan(
        request,
        target=target,
        places=service.places,
        state=state,
        tags=job_tags(request, task),
        seal=contents.seal,
        shared=shared,
    )
    check_plan(planned, takes_files=service.target.takes_files)
    return Prepared(
        request=request,
        plan=planned,
        task=task,
        state=state,
        has_old_state=resume or request.checkpoint_uri is not None,
        service=service,
        uploads=tuple(needed),
        source=package.source,
        contents=contents,
        source_digest=digest,
        image=image,
        shared=shared,
    )


def _check_types(options: Mapping[str, Any]) -> None:
    cluster, inputs = options.get("cluster"), options.get("inputs")
    if cluster is not None and not isinstance(cluster, Cluster):
        raise InvalidRequest(f"cluster must be raysm.Cluster(…), got {cluster!r}")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidRequest(f"inputs must be channels by name, {{'train': 's3://…'}}, got {inputs!r}")
    for channel, item in (inputs or {}).items():
        if not (isinstance(item, (str, Path, Input)) or is_data(item)):
            raise InvalidRequest(
                f"the channel {channel!r} must be a path, a URI, raysm.Input(…), a NumPy array, a torch tensor, or a "
                f"pandas or polars data frame, got a {type(item).__name__}; save the data to a file and give its path"
            )
    for name in ("requirements", "wheels"):
        listed = options.get(name)
        if isinstance(listed, (str, Path)):
            raise InvalidRequest(f"{name} must be a list, got {listed!r}; write {name}=[{str(listed)!r}]")


def _task(name: str | None, title: str) -> str:
    if name is None:
        return re.sub(r"[^a-zA-Z0-9]+", "-", title).strip("-")[:63].strip("-") or "job"
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(f"the name {name!r} is not 1 to 63 letters, digits and inner hyphens; rename it")
    return name


def _input(channel: str, item: Any, service: Service, id_columns: Sequence[str]) -> Input:
    if is_data(item):
        return Input(str(save(channel, item, service.home, id_columns)))
    source = item if isinstance(item, Input) else Input(str(item))
    if not source.uri.startswith(REFERENCE):
        return source
    return replace(source, uri=_output_uri(channel, source.uri, service))


def _output_uri(channel: str, reference: str, service: Service) -> str:
    """Return the URI of the output that ``job:NAME/data`` refers to, once that job is done."""
    name, slash, output = reference.removeprefix(REFERENCE).partition("/")
    if not name:
        raise InvalidRequest(f"the channel {channel!r} is {reference!r}; write job:NAME/data or job:NAME/model")
    return attach(name, service).output(output if slash else "model").uri


def _check_packages(request: JobRequest, wheels: Sequence[Path]) -> None:
    payload.check_wheels(wheels)
    check_ray(request.requirements)
    for name in request.requirements:
        if name.endswith(".txt"):  # pip would look for a package of that name
            raise InvalidRequest(
                f"the requirement {name!r} is a file, not a package; give its lines: "
                f"requirements=Path({name!r}).read_text().splitlines()"
            )
    # Without a network pip cannot reach an index; wheels that travel with the job need none.
    if request.security.isolation and request.requirements and not wheels:
        raise InvalidRequest(
            "requirements cannot be installed from an index with security.isolation; let them travel: wheels=[…]"
        )


def job_tags(request: JobRequest, task: str) -> Mapping[str, str]:
    """Return the tags by which another process recognizes the job; all who may describe the job can read them."""
    tags = {PROJECT_TAG: request.project, TASK_TAG: task, WORKLOAD_TAG: request.workload.kind}
    if request.workload.returns_value:
        tags[PYTHON_TAG] = request.workload.pickled_by or PYTHON_VERSION
    if request.tracking is not None and not request.is_tracked_by_head:
        tags[TRACKING_TAG] = request.tracking
    if request.limits.max_restarts:
        tags[MAX_RESTARTS_TAG] = str(request.limits.max_restarts)
    return tags
