"""From what the user says to a job that runs: request, plan, checks, uploads, call, in this order.

``prepare`` does all that can be done without sending anything: its plan is the very call that ``send`` makes.
"""

import contextlib
import functools
import logging
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from raysm import __version__
from raysm.client import records, uploads
from raysm.client.chain import Chain
from raysm.client.description import Status
from raysm.client.first_look import check_inputs
from raysm.client.function import python_version
from raysm.client.job import Job, attach
from raysm.client.options import IfDone, SubmitOptions, check_names, default_of, of_request, request_fields
from raysm.client.package import Wrapped, package_of
from raysm.client.payload_place import payload_uri
from raysm.client.plan import Plan, plan
from raysm.client.predecessor import await_predecessor, state_of
from raysm.client.ray_requirement import check_ray
from raysm.client.service import Service, connect
from raysm.client.service_model_check import check as check_plan
from raysm.client.storage import Storage
from raysm.client.tags import tags_of
from raysm.client.tracking import absolute_place, tracker_of
from raysm.client.volume_check import check_volume
from raysm.contract import payload
from raysm.contract.keywords import documents_options
from raysm.contract.source import Source
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.request import Cluster, Input, JobRequest, Target, Workload
from raysm.request.codec import from_json, to_json
from raysm.request.job import NAME_PATTERN

__all__ = ["Prepared", "prepare", "submit"]

REFERENCE = "job:"
"""How an input that another job left begins: ``job:NAME/data``."""

MOST_LISTED = 10_000
"""Objects of the inputs that are looked at for a job that nobody wants to skip: ten calls, about a second. A million
took minutes, and money, before the job was even sent."""

FORBIDS_DEBUG = "or it may forbid remote debugging (sagemaker:EnableRemoteDebug)"

_log = logging.getLogger("raysm")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A job that is ready to be sent; nothing of it is on the service yet."""

    request: JobRequest
    """What was asked for, its inputs by URI."""
    plan: Plan
    """The call that ``send`` makes, as it is."""
    task: str
    """Name of the task: of which the job is one run."""
    state: str | None
    """Checkpoint prefix; None for Processing, and of a workload that keeps no state."""
    has_old_state: bool
    """Whether another job may have had that prefix before."""
    service: Service
    """Where it goes."""
    uploads: tuple[uploads.Upload, ...]
    """Local data that goes to S3 first."""
    source: Source | None
    """What travels of the user's source."""
    contents: payload.Contents = field(repr=False)
    """All that travels, the job's token too."""
    source_digest: str
    """Of all that the result depends on but the state of its inputs."""
    image: str = ""
    """Which image was taken where none was named, for people; empty where none had to be."""

    @functools.cached_property
    def _state_of_inputs(self) -> records.InputsState:
        state = records.with_inputs(self.source_digest, self._inputs_of_others, self._storage)
        assert state is not None, "without a limit"
        return state

    @property
    def digest(self) -> str:
        """Of all that the result depends on; looks at every object of the inputs."""
        return self._state_of_inputs.digest

    @property
    def _inputs_of_others(self) -> Mapping[str, Input]:
        """The inputs that may change; of those that are uploaded the URIs say the content."""
        sent = {upload.channel for upload in self.uploads}
        return {channel: source for channel, source in self.request.inputs.items() if channel not in sent}

    @functools.cached_property
    def _storage(self) -> Storage:
        return Storage(self.service)

    @property
    def _records(self) -> str:
        return self.service.places.records(self.request.project, self.task)

    def finished(self) -> Job | None:
        """Return the latest job of the task that did the very same and is Completed, or is still at it; else None."""
        # Asked for here, also where no record is looked at: the job that is sent then has to be found by it.
        digest = self.digest
        for record in records.recorded(self._records, self._storage, self.source_digest):
            # Its name told a piece of another digest, in which the state of the inputs is not.
            if record.digest != digest:
                continue
            try:
                job = attach(record.job, self.service)
            except JobNotFound:
                continue
            # A job that is being stopped still runs, but will not bring what it was sent for.
            if (not job.done() and job.status is not Status.STOPPING) or job.status is Status.COMPLETED:
                return job
        return None

    def send(self, *, leaves_payload: bool = False) -> Job:
        """Upload what has changed, send the plan, and return the job.

        Where the job goes on with the state of one that is just ending, it waits for that end.

        Args:
            leaves_payload: Whether the payload stays where nobody knows whether the job was made: whoever sends the
                same job again until that is settled needs it.

        Raises:
            InvalidRequest: The job whose state it goes on with runs, or the inputs are larger than the instances'
                volumes; nothing was uploaded.
            ServiceError: The service refused; nothing of the job is left but data that can be used again.
        """
        storage, request, places = self._storage, self.request, self.service.places
        kms_key = request.security.output_kms_key
        if self.has_old_state and self.state is not None:
            await_predecessor(self._records, self.state, self.service)
        inputs = self._look_at_inputs()
        self._check_volume(inputs)
        # Before the job is there: a file that vanishes meanwhile must not hide it from who sent it.
        code = records.code_of(request.workload, self.source)
        storage.ensure_bucket(self.service.bucket, self.service.region)
        for upload in self.uploads:
            uploads.carry_out(upload, storage, kms_key)
        prefix = places.payload(request.project, request.name)
        try:
            with tempfile.TemporaryDirectory(prefix="raysm-payload-") as folder:
                packed = Path(folder) / "payload"
                if self.image:
                    _log.info("%s runs in the image %s", request.name, self.image)
                if self.source is not None:
                    if self.source.warning is not None:
                        _log.warning(self.source.warning)
                    _log.info("%s is sent with %s", request.name, self.source.summary)
                self.contents.write(packed)
                uploads.send_folder(packed, prefix, storage, kms_key)
            self._create()
        except BaseException as error:
            if leaves_payload and isinstance(error, ServiceError) and error.is_transient:
                raise
            # Whatever it was: an upload that Ctrl-C interrupts leaves nothing behind either.
            with contextlib.suppress(ServiceError):  # the reason is not to be hidden by a second one
                storage.remove(prefix)  # it holds the token of a job that never was
            raise
        record = records.Record(
            job=request.name,
            api=self.plan.api.create,
            digest="" if inputs is None else inputs.digest,
            state=self.state,
            submitted_s=time.time(),
            parameters=request.workload.parameters,
            code=code,
            versions={"raysm": __version__, "python": python_version()},
        )
        try:
            records.keep(record, self._records, storage, kms_key)
        except (ServiceError, OSError) as error:  # the job runs: whoever sent it must get it
            _log.warning("the job %s is sent, but not remembered for if_done and resume: %s", request.name, error)
        # Told, since ListTags would be a call, and a permission, of its own.
        sent_tags = {tag["Key"]: tag["Value"] for tag in self.plan.request["Tags"]}
        chain = Chain(request.name, service=self.service, api=self.plan.api, tags=sent_tags)
        tracker_of(chain, request.workload.parameters)
        return Job(chain, source=self.source)

    def _create(self) -> None:
        try:
            self.service.create(self.plan)
        except ServiceError as error:
            # An answer that was lost, and a call that was repeated for it: the job may be there nevertheless.
            if (error.is_transient or error.code.startswith("ResourceInUse")) and self._is_there():
                return
            if error.code.startswith("AccessDenied") and self.request.security.remote_debug:
                remedy = f"{FORBIDS_DEBUG}: {self.request.workload.without_remote_debug}"
                raise ServiceError(f"{error}; {remedy}", code=error.code) from error
            raise

    def _is_there(self) -> bool:
        """Whether the service has this very job: one of its name that brings its payload."""
        try:
            description = self.service.describe(self.plan.api, self.request.name)
        except ServiceError:
            return False
        return payload_uri(description) == payload_uri(self.plan.request)

    def _look_at_inputs(self) -> records.InputsState | None:
        """Return the state of the inputs; None where nobody asked for it and it takes long, or may not be known."""
        # Then if_done has had all of them looked at, and the cached property has put its value there.
        if "_state_of_inputs" in vars(self):
            return self._state_of_inputs
        inputs, source = self._inputs_of_others, self.source_digest
        try:
            state = records.with_inputs(source, inputs, self._storage, most=MOST_LISTED)
        except ServiceError:  # this user may not list them; the job's role may
            return None
        if state is None:
            _log.info(
                "%s is not remembered for if_done: its inputs are more than %s objects; send it with if_done='skip' to "
                "have them all looked at",
                self.request.name,
                f"{MOST_LISTED:,}",
            )
        return state

    def _check_volume(self, inputs: records.InputsState | None) -> None:
        if self.service.target.has_volumes:
            uploaded = {upload.channel: upload.size for upload in self.uploads}
            check_volume(self.request, uploaded | dict(inputs.sizes if inputs is not None else {}))


@documents_options(SubmitOptions, default_of=default_of)
def submit(
    workload: "Workload | Wrapped | JobRequest",
    *,
    on: "Target | Service | None" = None,
    if_done: IfDone = "run",
    resume: bool = False,
    **options: Unpack[SubmitOptions],
) -> Job:
    """Send a job, and return the handle on it; it does not wait.

    Args:
        workload: ``Script``, ``Function``, ``Similarity``, ``TorchScript``, ``DataParallel``, or one of a kind
            of your own; or a whole ``JobRequest``, whose name is the task's, and beside which of the options only
            ``wheels`` may stand.
        on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
        if_done: ``skip`` returns the job that did the very same before, or is still at it, if the source, the inputs,
            the parameters and raysm are unchanged.
        resume: Go on with the state that the task's latest job left, instead of with an empty one.
        options: As ``SubmitOptions`` says.

    Raises:
        InvalidRequest: What was asked for cannot be; nothing was uploaded.
        ServiceError: The service refused, or cannot be reached.
    """
    if if_done not in ("run", "skip"):
        raise InvalidRequest(f"if_done is 'run' or 'skip', got {if_done!r}")
    prepared = prepare(workload, on=on, resume=resume, **options)
    done = prepared.finished() if if_done == "skip" else None
    return done or prepared.send()


@documents_options(SubmitOptions, default_of=default_of)
def prepare(
    workload: "Workload | Wrapped | JobRequest",
    *,
    on: "Target | Service | None" = None,
    resume: bool = False,
    job_name: str | None = None,
    token: bytes | None = None,
    **options: Unpack[SubmitOptions],
) -> Prepared:
    """Do all of ``submit`` but the sending: ``prepare(…).plan`` is the very call that ``.send()`` makes.

    Takes what ``submit`` takes, but ``if_done``. Asks AWS for the account's number where the target names no bucket,
    and reads the task's records where ``resume`` is set.

    Args:
        workload: As ``submit`` takes it.
        on: The same.
        resume: The same.
        job_name: Exact name of the job, where whoever sends it has to know it before; None makes one that no other job
            has.
        token: The job's secret, where the same job may be prepared twice; None draws one.
        options: As ``SubmitOptions`` says.

    Raises:
        InvalidRequest: What was asked for cannot be.
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
    channels = {channel: _input(channel, item, service) for channel, item in (chosen.get("inputs") or {}).items()}
    # First: for AWS, the next step reads every byte of them for its digests.
    check_inputs(package.workload, channels)
    located, needed = uploads.locate(channels, service.target, service.places)
    fields = {"cluster": chosen.get("cluster") or service.target.default_cluster(), **request_fields(chosen)}
    if "tracking" in fields:
        fields["tracking"] = absolute_place(fields["tracking"])
    request = JobRequest(**fields | {"name": task, "workload": package.workload, "inputs": located})
    # A value of another type than its field's would be refused in the instance: after the start of a cluster.
    from_json(JobRequest, to_json(request))
    wheels = tuple(Path(wheel) for wheel in chosen.get("wheels") or ())
    _check_packages(request, wheels)
    resolved = service.resolve(request)
    target = resolved.target
    digest = records.digest_of(request, target, source=package.source, pickled=package.pickled, wheels=wheels)
    # Only now: a piece of the digest is in it, for which the name itself does not count.
    request = replace(request, name=_exact(job_name) or records.job_name(task, digest, time.time()))
    state = state_of(request, task, service, resume=resume)
    contents = payload.contents_of(request, source=package.source, function=package.pickled, wheels=wheels, token=token)
    planned = plan(
        request,
        target=target,
        places=service.places,
        state=state,
        tags=tags_of(request, task),
        seal=contents.seal,
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
        image=resolved.image,
    )


def _check_types(options: Mapping[str, Any]) -> None:
    """Refuse what would fail in a way that names no remedy: types are only hints to Python."""
    cluster, inputs = options.get("cluster"), options.get("inputs")
    if cluster is not None and not isinstance(cluster, Cluster):
        raise InvalidRequest(f"cluster must be raysm.Cluster(…), got {cluster!r}")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidRequest(f"inputs must be channels by name, {{'train': 's3://…'}}, got {inputs!r}")
    for channel, item in (inputs or {}).items():
        if not isinstance(item, (str, Path, Input)):
            raise InvalidRequest(
                f"the channel {channel!r} must be a path, a URI or raysm.Input(…), got a {type(item).__name__}; "
                "save the data to a file and give its path"
            )
    for name in ("requirements", "wheels"):
        listed = options.get(name)
        if isinstance(listed, (str, Path)):
            raise InvalidRequest(f"{name} must be a list, got {listed!r}; write {name}=[{str(listed)!r}]")


def _exact(name: str | None) -> str | None:
    if name is not None and not NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(f"job_name={name!r} is not 1 to 63 letters, digits and inner hyphens; rename it")
    return name


def _task(name: str | None, title: str) -> str:
    if name is None:
        return re.sub(r"[^a-zA-Z0-9]+", "-", title).strip("-")[:63].strip("-") or "job"
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(f"the name {name!r} is not 1 to 63 letters, digits and inner hyphens; rename it")
    return name


def _input(channel: str, item: str | Path | Input, service: Service) -> Input:
    if isinstance(item, Input):
        if not item.uri.startswith(REFERENCE):
            return item
        return replace(item, uri=_referred(channel, item.uri, service).uri)
    text = str(item)
    return _referred(channel, text, service) if text.startswith(REFERENCE) else Input(text)


def _referred(channel: str, reference: str, service: Service) -> Input:
    """Return what ``job:NAME/data`` refers to, once that job is done."""
    name, slash, output = reference.removeprefix(REFERENCE).partition("/")
    if not name:
        raise InvalidRequest(f"the channel {channel!r} is {reference!r}; write job:NAME/data or job:NAME/model")
    return attach(name, service).output(output if slash else "model")


def _check_packages(request: JobRequest, wheels: Sequence[Path]) -> None:
    payload.check_wheels(wheels)
    check_ray(request.requirements)
    for name in request.requirements:
        if name.endswith(".txt"):  # pip would look for a package of that name, on every instance
            raise InvalidRequest(
                f"the requirement {name!r} is a file, not a package; give its lines: "
                f"requirements=Path({name!r}).read_text().splitlines()"
            )
    if request.security.isolation and request.requirements and not wheels:
        raise InvalidRequest(
            "requirements cannot be installed from an index with security.isolation; let them travel: wheels=[…]"
        )
