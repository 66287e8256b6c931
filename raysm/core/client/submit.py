"""From a workload and options to a job: request, plan, checks, uploads, call and record.

``prepare`` sends nothing: its plan is exactly the call that ``Prepared.send`` makes. If a step of
sending fails, the payload is deleted, because it contains the token: either the service has the job
and the caller its handle, or nothing is left of it.
"""

import concurrent.futures
import contextlib
import functools
import hashlib
import json
import logging
import math
import os
import re
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from raysm import __version__
from raysm.core import features
from raysm.core.client.checks import check as check_plan
from raysm.core.client.checks import check_inputs, check_keys, check_ray, check_volume
from raysm.core.client.costs.cap import Cap
from raysm.core.client.costs.prices import cap_of, usd_per_hour
from raysm.core.client.cuda import check_cuda
from raysm.core.client.images import has_ray, python_of
from raysm.core.client.job import records
from raysm.core.client.job.chain import Chain, TransientErrors
from raysm.core.client.job.description import Description, SecondaryStatus, Status
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.options import IfDone, SubmitOptions, check_names, of_request, request_fields
from raysm.core.client.plan import Plan, plan
from raysm.core.client.regions import InRegions, check_regions
from raysm.core.client.service import Service, connect
from raysm.core.client.source.lock import (
    check_lock_python,
    is_requirements_file,
    with_project_packages,
)
from raysm.core.client.source.package import Package, Wrapped, package_of
from raysm.core.client.storage.inputs import Upload, carry_out, is_data, locate, save
from raysm.core.client.storage.payload import payload_uri, upload_payload
from raysm.core.client.storage.s3 import Storage
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.protocol import payload
from raysm.core.protocol.job_api import TRAINING, api_of
from raysm.core.protocol.names import (
    MAX_RESTARTS_TAG,
    NOT_KEPT,
    PROJECT_TAG,
    PYTHON_TAG,
    TASK_TAG,
    TRACKING_TAG,
    WORKLOAD_TAG,
    counted,
)
from raysm.core.protocol.source import Source
from raysm.core.request import AWS, Cluster, Input, JobRequest, Target, Workload
from raysm.core.request.codec import from_json, to_json
from raysm.core.request.file_systems import file_system_at
from raysm.core.request.job import NAME_PATTERN
from raysm.core.request.options import check_list
from raysm.errors import (
    InvalidInput,
    InvalidRequest,
    JobFailed,
    JobNotFound,
    ServiceError,
    did_you_mean,
)

if TYPE_CHECKING:
    from raysm.core.client.costs.ledger import Entry

_log = logging.getLogger("raysm")

FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)

ENDING = (SecondaryStatus.UPLOADING, SecondaryStatus.STOPPING, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
MAX_LISTED = 10_000
"""Maximum number of input objects to list without if_done='skip': ten calls, about a second. A
million took minutes, and money, before the job was even sent."""


def state_of(request: JobRequest, task: str, service: Service, *, resume: bool) -> str | None:
    """Return the prefix of a job's checkpoints.

    It is the given one, that of the task's latest job, or a new one.

    None if the API or the workload has no checkpoints.
    """
    api = api_of(request.kind)
    if not api.has_checkpoints:
        if resume:
            raise InvalidRequest(
                f"a {api.title} job has no checkpoints to resume from; "
                f"submit with kind={TRAINING.kind!r}"
            )
        for option in ("in_state", "share_state"):
            if getattr(request.workload, option, False):
                raise InvalidRequest(
                    f"a {api.title} job has no state for {option}; "
                    f"submit with kind={TRAINING.kind!r}, or drop {option}"
                )
        return None
    if request.checkpoint_uri is not None:
        return request.checkpoint_uri
    if not request.workload.keeps_state:
        if resume:
            raise InvalidRequest(
                f"{request.workload.label} keeps no state (keeps_state of "
                f"{request.workload.kind}) to resume from; drop resume, or give checkpoint_uri"
            )
        return None
    prefix = service.places.records(request.project, task)
    latest = records.latest_of_state(prefix, Storage(service)) if resume else None
    if latest is not None and latest.state is not None:
        return _checked_state(
            latest.state, latest.job, service.places.state(request.project, task, ""), service
        )
    return service.places.state(request.project, task, request.name)


def _checked_state(state: str, job: str, own: str, service: Service) -> str:
    """Return the state of a record, if it can be trusted.

    A state can be trusted if it is below the task's ``own`` folder, or the service says that the
    job had it.

    People who may write to the bucket can write a record, and must not lead a job to another
    bucket.
    """
    if state.startswith(own) and "/../" not in state:
        return state
    try:
        kept = service.describe(TRAINING, job).get("CheckpointConfig", {}).get("S3Uri")
    except JobNotFound:
        kept = None
    if kept is None or kept.rstrip("/") != state.rstrip("/"):
        raise InvalidRequest(
            f"the record of {job} names the state {state}, "
            "but the service does not say that this job had it",
            remedy=f"if it is the right one, give it as checkpoint_uri (--checkpoint-uri {state})",
        )
    return state


def await_predecessor(prefix: str, state: str, service: Service) -> None:
    """Wait for the task's latest job that writes to ``state`` if it ends; refuse one that runs."""
    latest = records.latest_of_state(prefix, Storage(service), state)
    if latest is None:
        return
    # Only Training jobs have checkpoints, whatever the new job is.
    chain = Chain(latest.job, service=service, api=TRAINING)
    errors = TransientErrors(service, latest.job)
    is_reported = False
    for pause_s in service.polling.pauses():
        try:
            # A last job that has ended without its follow-up is done too: the new job takes the
            # follow-up's place.
            if chain.ended(send=False) or chain.known().status.is_terminal:
                _warn_of_lost_checkpoints(chain.known())
                return
            errors.reset()
            job = chain.known()
            if job.status is not Status.STOPPING and job.secondary not in ENDING:
                raise InvalidRequest(
                    f"{job.name} is {job.secondary or job.status}, and writes the state that "
                    "this job would continue: they would overwrite each other's checkpoints; "
                    f"stop it (raysm stop {job.name}), wait for its end (raysm "
                    f"result {job.name}), or start this job with its own state: "
                    "without resume, or with another checkpoint_uri"
                )
            if not is_reported:
                _log.warning(
                    "waiting until %s has saved its state, with which the new job continues",
                    chain.name,
                )
                is_reported = True
        except JobNotFound:  # only an ended job can be removed
            return
        except ServiceError as error:
            errors.raise_unless_transient(error)
        service.connection.wait_for_end(chain.name, pause_s, math.inf)


def _warn_of_lost_checkpoints(before: Description) -> None:
    for transition in before.answer.get("SecondaryStatusTransitions", ()):
        _, found, reason = transition.get("StatusMessage", "").partition(NOT_KEPT)
        if found:
            _log.warning(
                "%s: %s%s; the new job continues with those that were",
                before.name,
                NOT_KEPT,
                reason,
            )


@dataclass(frozen=True, kw_only=True)
class Prepared:
    request: JobRequest
    plan: Plan
    task: str
    state: str | None
    """Checkpoint prefix; None for Processing, and for a workload that keeps no state."""
    has_old_state: bool
    """True if another job may have had that prefix before."""
    service: Service
    uploads: tuple[Upload, ...]
    source: Source | None
    contents: payload.Contents = field(repr=False)
    source_digest: str
    """Digest of everything that the result depends on, except the state of the inputs."""
    image: str = ""
    """The image that raysm chose, for people; empty if the user named one, or if the target needs
    none."""
    packages: str = ""
    """Which file in the source folder names the packages to install, for people; empty without
    one."""
    shared: str | None = None
    """Prefix of the payload's part that other jobs use too; None if the payload is the job's
    alone."""
    cap: Cap | None = None
    """What it may cost, and the limit that follows; None without ``max_cost``, or where nothing is
    billed."""
    usd_per_hour: float | None = None
    """USD for all instances; None if it is unknown, or nothing is billed."""

    @functools.cached_property
    def _state_of_inputs(self) -> records.InputsState:
        state = records.with_inputs(self.source_digest, self._listed_inputs, self._storage)
        assert state is not None, "without a limit"
        return state

    @property
    def digest(self) -> str:
        """Digest of everything that the result depends on; lists every object of the inputs."""
        return self._state_of_inputs.digest

    @property
    def _listed_inputs(self) -> Mapping[str, Input]:
        """The inputs that may change; the URIs of those that are uploaded name their content."""
        known = {upload.channel for upload in self.uploads} | self._mounted.keys()
        return {
            channel: source
            for channel, source in self.request.inputs.items()
            if channel not in known
        }

    @property
    def _mounted(self) -> Mapping[str, Input]:
        """The inputs on file systems, whose files cannot be listed from here."""
        return {
            channel: source
            for channel, source in self.request.inputs.items()
            if file_system_at(source.uri) is not None
        }

    @functools.cached_property
    def _storage(self) -> Storage:
        return Storage(self.service)

    @property
    def _records(self) -> str:
        return self.service.places.records(self.request.project, self.task)

    def finished(self) -> Job | None:
        for channel, source in self._mounted.items():
            raise InvalidRequest(
                f"if_done='skip' cannot see whether the files of the channel {channel!r} have "
                f"changed: they are on a file system, {source.uri}; leave it out"
            )
        # Computed even if there is no record yet, because the record of the job that is sent next
        # needs it.
        digest = self.digest
        for record in records.recorded(self._records, self._storage):
            if record.digest != digest:
                continue
            # Who may write to the bucket can write a record, and must not choose a job of something
            # else.
            if not records.is_run_of(record.job, self.task, self.source_digest):
                continue
            try:
                job = attach(record.job, self.service)
            except JobNotFound:
                continue
            # A job that is being stopped still runs, but will not finish its work.
            if not job.done() and job.status is not Status.STOPPING:
                return job
            if job.status is Status.COMPLETED and not self._has_lost_its_result(job):
                return job
        return None

    def _has_lost_its_result(self, job: Job) -> bool:
        # A script may leave nothing.
        always_leaves = self.request.workload.returns_value or bool(self.request.workload.reader)
        if not always_leaves or self._storage.has_files(f"{job.outputs}/model"):
            return False
        _log.warning(
            "%s did the same, but its result was removed from %s/model: it is computed again",
            job.name,
            job.outputs,
        )
        return True

    def send(self, *, leaves_payload: bool = False) -> Job:
        """Upload what has changed, send the plan, and return the job.

        If the job continues with the state of one that is just ending, this waits for that end. If
        it is refused, nothing of it is left but data that can be used again. With
        ``leaves_payload`` the payload stays if it is unknown whether the job was created, for a
        caller that sends the same job again.
        """
        if self.has_old_state and self.state is not None:
            await_predecessor(self._records, self.state, self.service)
            # With a checkpoint_uri a job looks for old state without being asked to resume.
            if self.request.checkpoint_uri is None:
                self._warn_if_nothing_is_left(self.state)
        inputs = self._list_inputs()
        if self.service.target.has_volumes:
            sizes = {upload.channel: upload.size for upload in self.uploads}
            check_volume(self.request, sizes | dict(inputs.sizes if inputs is not None else {}))
        data = "" if inputs is None else self._digest_of_data(inputs)
        if self.has_old_state and self.state is not None and self.request.workload.identity:
            self._warn_of_other_data(self.state, data)
        # Before the job exists: if a file has vanished, the caller must not get an error instead of
        # the job's handle.
        code = records.code_of(self.request.workload, self.source)
        with self.counted(), self.uploaded(leaves_payload=leaves_payload):
            self._create()
        request = self.request
        record = records.Record(
            job=request.name,
            api=self.plan.api.create,
            digest="" if inputs is None else inputs.digest,
            state=self.state,
            submitted_s=time.time(),
            parameters=request.workload.parameters,
            code=code,
            versions={"raysm": __version__, "python": PYTHON_VERSION},
            data=data,
        )
        try:
            records.keep(record, self._records, self._storage, request.security.output_kms_key)
        except (ServiceError, OSError) as error:  # the job runs: its sender must get its handle
            _log.warning(
                "the job %s is sent, but not remembered for if_done and resume: %s",
                request.name,
                error,
            )
        # Passed on, since ListTags would be a call, and a permission, of its own.
        sent_tags = {tag["Key"]: tag["Value"] for tag in self.plan.request["Tags"]}
        chain = Chain(self.request.name, service=self.service, api=self.plan.api, tags=sent_tags)
        if TRACKING_TAG in sent_tags:
            features.view("track")(chain, self.request.workload.parameters)
        return Job(chain, source=self.source)

    def ledger_entry(self, *, name: str | None = None, jobs: int = 1) -> "Entry | None":
        """Return the cost for the ledger of the day; None if nothing is billed or has a price.

        ``name`` and ``jobs`` are those of a tuning job: what it may cost counts on the day on which
        it is sent.
        """
        if self.usd_per_hour is None:
            return None
        # Imported here, because jobs of this machine need no SQLite.
        from raysm.core.client.costs.ledger import Entry, most_usd, name_of

        most = jobs * most_usd(self.request, self.usd_per_hour, self.cap)
        return Entry(
            job=name or self.request.name,
            api=self.plan.api.kind,
            target=name_of(self.service.target),
            region=self.service.region,
            sent_s=time.time(),
            usd_per_hour=self.usd_per_hour,
            most_usd=most,
            usd=None if name is None else most,
        )

    @contextlib.contextmanager
    def counted(self, *, name: str | None = None, jobs: int = 1) -> Iterator[None]:
        """Count the job among those of the day, or refuse it.

        If the block fails to create it, it does not count.

        Raises:
            InvalidRequest: It could cost more than ``max_cost_per_day`` leaves.
        """
        entry = self.ledger_entry(name=name, jobs=jobs)
        cap_usd = self.request.limits.max_cost_per_day
        if entry is None:
            yield
            return
        from raysm.core.client.costs.ledger import Ledger

        ledger = Ledger(self.service.home)
        try:
            if cap_usd is not None:
                ledger.settle(self.service)
            ledger.reserve(entry, cap_usd)
        except ServiceError as error:
            if cap_usd is not None:
                raise
            _log.warning("%s does not count for max_cost_per_day: %s", entry.job, error)
        try:
            yield
        except BaseException as error:
            may_exist = isinstance(error, ServiceError) and error.is_transient
            if not may_exist and not (isinstance(error, KeyboardInterrupt) and self._exists()):
                with contextlib.suppress(ServiceError):  # it would hide the reason
                    ledger.release(entry.job)
            raise

    @contextlib.contextmanager
    def uploaded(self, *, leaves_payload: bool = False) -> Iterator[None]:
        """Upload what has changed and the payload.

        If the block, which creates the job, fails, delete the payload.
        """
        storage = self._storage
        kms_key = self.request.security.output_kms_key
        storage.ensure_bucket(self.service.bucket, self.service.region)
        for upload in self.uploads:
            carry_out(upload, storage, kms_key)
        name = self.request.name
        prefix = self.service.places.payload(self.request.project, name)
        try:
            if self.image:
                _log.info("%s runs in the image %s", name, self.image)
            if self.source is not None:
                if self.source.warning is not None:
                    _log.warning(self.source.warning)
                _log.info("%s is sent with %s", name, self.source.summary)
            if self.packages:
                _log.info("%s installs %s", name, self.packages)
            upload_payload(self.contents, prefix, self.shared, storage, kms_key)
            yield
        # Everything, because an upload that Ctrl-C interrupts must not leave a token behind either.
        except BaseException as error:
            if leaves_payload and isinstance(error, ServiceError) and error.is_transient:
                raise
            # Without it the job would fail, before its sender can stop it.
            if isinstance(error, KeyboardInterrupt) and self._exists():
                raise
            with contextlib.suppress(ServiceError):  # it would hide the reason
                storage.remove(prefix)
            raise

    def _create(self) -> None:
        try:
            # In a thread, for whose end the block waits: after Ctrl-C it is known whether the job
            # exists.
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(self.service.create, self.plan).result()
        except ServiceError as error:
            # If an answer was lost, or the call was repeated for it, the job may exist
            # nevertheless.
            if (error.is_transient or error.code.startswith("ResourceInUse")) and self._exists():
                return
            if error.code.startswith("AccessDenied") and self.request.security.remote_debug:
                raise ServiceError(
                    f"{error}; or it may forbid remote debugging (sagemaker:EnableRemoteDebug): "
                    f"{self.request.workload.without_remote_debug}",
                    code=error.code,
                ) from error
            raise

    def _exists(self) -> bool:
        try:
            description = self.service.describe(self.plan.api, self.request.name)
        except ServiceError:
            return False
        return payload_uri(description) == payload_uri(self.plan.request)

    def _warn_if_nothing_is_left(self, state: str) -> None:
        storage = Storage(self.service)
        workload = self.request.workload
        before = records.latest_of_state(self._records, storage, state)
        if before is not None and not storage.has_files(state):
            hint = ""
            if workload.leaves_working_folder:
                hint = "; --in-state (in_state=True) keeps the files of the working folder"
            _log.warning(
                "%s left no state to resume: the new job starts from the beginning%s",
                before.job,
                hint,
            )

    def _digest_of_data(self, inputs: records.InputsState) -> str:
        uris = {channel: source.uri for channel, source in sorted(self.request.inputs.items())}
        text = json.dumps([uris, dict(self.request.environment), inputs.listed], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _warn_of_other_data(self, state: str, data: str) -> None:
        """Warn if the trials that are kept ran on other data: metrics cannot be compared."""
        before = records.latest_of_state(self._records, self._storage, state)
        if before is not None and before.data and data and before.data != data:
            _log.warning(
                "the inputs or the environment of %s, whose trials are kept, were others: "
                "metrics of old and new trials may not be comparable; "
                "send this job without resume to begin again",
                before.job,
            )

    def _list_inputs(self) -> records.InputsState | None:
        # With if_done='skip', finished() has listed them: then the cached property has its value.
        if "_state_of_inputs" in vars(self):
            return self._state_of_inputs
        try:
            state = records.with_inputs(
                self.source_digest, self._listed_inputs, self._storage, max_objects=MAX_LISTED
            )
        except ServiceError:  # this user may not list them; the job's role may
            return None
        if state is None:
            text = (
                "%s is not remembered for if_done: its inputs are more than %s objects; "
                "if_done='skip' looks at all"
            )
            _log.info(text, self.request.name, f"{MAX_LISTED:,}")
        return state


REFERENCE = "job:"


def submit(
    workload: "Workload | Wrapped | Callable[[], Any] | JobRequest",
    *,
    on: "Target | Service | None" = None,
    if_done: IfDone = "run",
    resume: bool = False,
    regions: Sequence[str] | None = None,
    region_wait_s: float | None = None,
    **options: Unpack[SubmitOptions],
) -> Job:
    """Send a job, and return its handle without waiting for it.

    With ``regions`` this waits until the job has its instances, or is sent to the last region.

    Args:
        workload: ``Script``, ``Function``, ``Similarity``, ``TorchScript``, ``DataParallel``, or
            one of a kind of your own. A function without arguments may be given as it is. Or a
            whole ``JobRequest``, whose name is the task's; then ``wheels`` is the only option
            allowed.
        on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
        if_done: ``skip`` returns the task's earlier job, completed or still running, if its source,
            inputs, parameters and raysm are unchanged.
        resume: Continue with the state of the task's latest job instead of an empty one.
        regions: At least two regions: the job runs in the first that has instances for it.
        region_wait_s: Seconds that it waits for instances in each of them but the last; None is
            900.
        options: The options of a job, as ``raysm.client.options.SubmitOptions`` lists them.

    Raises:
        InvalidRequest: The request is not possible; nothing was uploaded.
        ServiceError: The service refused, or cannot be reached.
    """
    if if_done not in ("run", "skip"):
        raise InvalidRequest(f"if_done is 'run' or 'skip', got {if_done!r}")
    prepared: Prepared | InRegions[Prepared]
    if not regions:
        prepared = prepare(workload, on=on, resume=resume, **options)
    else:
        prepared = prepare_in_regions(
            workload, on=on, resume=resume, regions=regions, wait_s=region_wait_s, **options
        )
    done = prepared.finished() if if_done == "skip" else None
    return done or prepared.send()


def prepare(
    workload: "Workload | Wrapped | Callable[[], Any] | Package | JobRequest",
    *,
    on: "Target | Service | None" = None,
    resume: bool = False,
    job_name: str | None = None,
    token: bytes | None = None,
    shares: bool = False,
    own_tags: Mapping[str, str] | None = None,
    **options: Unpack[SubmitOptions],
) -> Prepared:
    """Do all steps of ``submit`` except sending.

    ``prepare(…).plan`` is exactly the call that ``.send()`` makes.

    Asks AWS for the account's number if the target names no bucket, and reads the task's records if
    ``resume`` is set. ``workload`` may be a package that many jobs share. ``job_name`` and
    ``token`` are for callers that must know the name before, or prepare a job twice. With
    ``shares``, what the job has in common with others is uploaded once and kept. ``own_tags`` are
    more tags of raysm.
    """
    check_names(options)
    chosen: Mapping[str, Any] = options
    if chosen.get("regions"):
        raise InvalidRequest("regions are for one job that raysm.submit sends; give one region")
    if isinstance(workload, JobRequest):
        chosen = of_request(workload, options)
        workload = workload.workload
    _check_types(chosen)
    service = connect(on)
    # Not every callable: a class may be the model of a batch, and an object may be a model.
    if isinstance(workload, FUNCTIONS):
        workload = _call_of(workload)
    package = package_of(workload)
    task = _task(chosen.get("name"), package.title)
    id_columns = getattr(package.workload, "id_columns", ())
    given = chosen.get("inputs") or {}
    channels = {
        channel: _input(channel, item, service, id_columns) for channel, item in given.items()
    }
    # Before ``locate``, which reads every byte of local inputs for their digests if the target is
    # AWS.
    try:
        check_inputs(package.workload, channels)
    except InvalidInput as error:
        # The user gave no file, and does not know the name of the one that raysm has saved.
        for channel in (name for name, item in given.items() if is_data(item)):
            file = Path(channels[channel].uri)
            shown = f"the {'data frame' if file.suffix == '.parquet' else 'array'} {channel!r}"
            error.args = (f"{error}".replace(str(file), shown).replace(file.name, shown),)
        raise
    wheels = tuple(Path(wheel) for wheel in chosen.get("wheels") or ())
    chosen, packages = with_project_packages(chosen, package.source, wheels)
    located, needed = locate(channels, service.target, service.places)
    fields = {
        "cluster": chosen.get("cluster") or service.target.default_cluster(),
        **request_fields(chosen),
    }
    if "tracking" in fields:
        fields["tracking"] = features.view("place_of_tracking")(
            fields["tracking"], on=service.target
        )
    request = JobRequest(**fields | {"name": task, "workload": package.workload, "inputs": located})
    # This checks the types of all values: an instance would refuse them only after the cluster has
    # started.
    from_json(JobRequest, to_json(request))
    _check_packages(request, wheels)
    target, image = service.connection.resolve(request, lambda: service.region)
    check_lock_python(request.requirements, target, _python_of(target))
    if isinstance(target, AWS):
        check_keys(request.security, lambda: service.region)
        check_cuda(
            request.cluster, target.image or "", request.requirements, wheels, _python_of(target)
        )
    if request.security.isolation and isinstance(target, AWS) and not has_ray(target.image, wheels):
        raise InvalidRequest(
            f"the image {target.image} has no Ray, "
            "and security.isolation leaves no way to install it",
            remedy=(
                "name an image that has Ray (raysm image prints how to build one), "
                "or add Ray's wheels: wheels=[…]"
            ),
        )
    digest = records.digest_of(
        request, target, source=package.source, pickled=package.pickled, wheels=wheels
    )
    if job_name is not None and not NAME_PATTERN.fullmatch(job_name):
        raise InvalidRequest(
            f"job_name={job_name!r} is not 1 to 63 letters, digits and inner hyphens; rename it"
        )
    # The name contains a piece of the digest, which does not depend on the name.
    request = replace(request, name=job_name or records.job_name(task, digest, time.time()))
    state = state_of(request, task, service, resume=resume)
    if resume and request.checkpoint_uri is None:
        _check_resumable(request, task, service)
    if resume and request.cluster.size > 1 and request.workload.has_state_by_rank:
        _log.warning(
            "each instance finds only the files that its own ranks saved, "
            "perhaps those of another epoch than rank 0's: "
            "load on rank 0 and broadcast, or add --share-state (share_state=True)"
        )
    contents = payload.contents_of(
        request, source=package.source, function=package.pickled, wheels=wheels, token=token
    )
    shared = service.places.shared(contents.shared_digest) if shares else None
    tags = {**job_tags(request, task), **(own_tags or {})}
    cap = cap_of(request.cluster, request.limits, service)
    planned = plan(
        request,
        target=target,
        places=service.places,
        state=state,
        tags=tags,
        seal=contents.seal,
        shared=shared,
        cap=cap,
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
        packages=packages,
        shared=shared,
        cap=cap,
        usd_per_hour=usd_per_hour(request.cluster, service, request.limits.price_per_hour),
    )


def prepare_in_regions(
    workload: "Workload | Wrapped | Callable[[], Any] | Package | JobRequest",
    *,
    on: "Target | Service | None" = None,
    regions: Sequence[str],
    wait_s: float | None = None,
    resume: bool = False,
    **options: Unpack[SubmitOptions],
) -> InRegions[Prepared]:
    """Do all steps of ``submit`` except sending, for each of several regions.

    Raises:
        InvalidRequest: The job cannot run in each of them.
    """
    service = connect(on)
    names = check_regions(service, regions, wait_s)
    if resume:
        raise InvalidRequest(
            "resume and regions do not go together: the state is in the region of the job that "
            "saved it",
            remedy="give that region alone",
        )
    target = service.target.reaching(tuple(names))
    return InRegions(
        [prepare(workload, on=service.at(target.in_region(name)), **options) for name in names],
        wait_s,
    )


def _check_resumable(request: JobRequest, task: str, service: Service) -> None:
    """Refuse to resume a sweep whose options differ.

    Warn if no earlier job exists, or if it had fewer instances.
    """
    latest = records.latest_of_state(
        service.places.records(request.project, task), Storage(service)
    )
    if latest is None:
        names = [str(item[TRAINING.name_key]) for item in service.summaries(TRAINING, limit=100)]
        hint = did_you_mean(task, {records.task_of(name) for name in names})
        _log.warning("%s has no earlier job to resume: it starts from the beginning%s", task, hint)
        return
    # A member of a mapping has a dotted name: space.lr.
    new, old = (
        {
            name: value
            for name, value in each.items()
            if name.partition(".")[0] in request.workload.identity
        }
        for each in (request.workload.parameters, latest.parameters)
    )
    if changed := [name for name in {**old, **new} if old.get(name) != new.get(name)]:
        texts = [
            f"{name} was {old.get(name, 'not given')}, is {new.get(name, 'not given')}"
            for name in changed
        ]
        raise InvalidRequest(
            f"{latest.job}, whose state this job would continue, "
            f"had other options: {'; '.join(texts)}",
            remedy="resume with its options, or send this job without resume",
        )
    if getattr(request.workload, "in_state", False) and not getattr(
        request.workload, "share_state", False
    ):
        with contextlib.suppress(JobNotFound):  # it was removed
            before = sum(count for _, count in attach(latest.job, service).describe().instances)
            if 0 < before < request.cluster.size:
                text = "%s ran on %s, and this job has %s: the new ones find no state"
                _log.warning(text, latest.job, counted(before, "instance"), request.cluster.size)


def _call_of(fn: Callable[[], Any]) -> Wrapped:
    # A function alone is short for raysm.Function(fn), which the feature of scripts has.
    wrap = features.view("wrap_function")
    try:
        call: Wrapped = wrap(fn)
        return call
    except InvalidRequest as error:
        raise InvalidRequest(
            str(error),
            remedy="give the arguments with the function: raysm.submit(raysm.Function(fn, …))",
        ) from error


def _check_types(options: Mapping[str, Any]) -> None:
    cluster = options.get("cluster")
    inputs = options.get("inputs")
    if cluster is not None and not isinstance(cluster, Cluster):
        raise InvalidRequest(f"cluster must be raysm.Cluster(…), got {cluster!r}")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InvalidRequest(
            f"inputs must be channels by name, {{'train': 's3://…'}}, got {inputs!r}"
        )
    for channel, item in (inputs or {}).items():
        if not (isinstance(item, (str, os.PathLike, Input)) or is_data(item)):
            fix = (
                'give job.output("model")'
                if isinstance(item, Job)
                else "save the data to a file and give its path"
            )
            raise InvalidRequest(
                f"the channel {channel!r} must be a path, a URI, raysm.Input(…), "
                "a NumPy array, a torch tensor, or a pandas or polars data frame, "
                f"got a {type(item).__name__}; {fix}"
            )
    for name in ("requirements", "wheels"):
        check_list("", name, options.get(name) or ())


def _task(name: str | None, title: str) -> str:
    if name is None:
        return re.sub(r"[^a-zA-Z0-9]+", "-", title).strip("-")[:63].strip("-") or "job"
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidRequest(
            f"the name {name!r} is not 1 to 63 letters, digits and inner hyphens; rename it"
        )
    return name


def _input(channel: str, item: Any, service: Service, id_columns: Sequence[str]) -> Input:
    if is_data(item):
        return Input(str(save(channel, item, service.home, id_columns)))
    source = item if isinstance(item, Input) else Input(os.fspath(item))
    if not source.uri.startswith(REFERENCE):
        return source
    name, slash, output = source.uri.removeprefix(REFERENCE).partition("/")
    if not name:
        raise InvalidRequest(
            f"the channel {channel!r} is {source.uri!r}; write job:NAME/data or job:NAME/model"
        )
    # Imported here, because few jobs read another one's output.
    from raysm.core.client.job.listing import find_job

    what = output if slash else "model"
    text = "the input %r is from %s, the last job of that name"
    job = find_job(name, service, told=lambda job: _log.warning(text, channel, job.name))
    if not job.done():
        _log.warning("the input %r waits for the end of the job %s", channel, job.name)
    try:
        uri = job.output(what).uri
    except Exception as error:
        # A function's own exception has the JobFailed as its cause.
        failed = error if isinstance(error, JobFailed) else error.__cause__
        if isinstance(error, InvalidRequest) and failed is None:
            refusal = f"nothing was sent: the input {channel!r} is {source.uri!r}, and {error}"
            raise InvalidRequest(refusal) from error
        if not isinstance(failed, JobFailed):
            raise
        message = (
            "nothing was sent: "
            f"the input {channel!r} is from a job that did not complete: {failed.headline}"
        )
        raise JobFailed(message, job=failed.job, reason=failed.reason) from error
    return replace(source, uri=uri)


def _python_of(target: Target) -> str | None:
    """Return the version of the instances' Python; None if it is unknown here."""
    if isinstance(target, AWS):
        return target.python or python_of(target.image or "")
    return PYTHON_VERSION if target.instance_kind != "docker" else None


def _check_packages(request: JobRequest, wheels: Sequence[Path]) -> None:
    payload.check_wheels(wheels)
    check_ray(request.requirements)
    for name in request.requirements:
        if name.endswith(".txt"):  # pip would look for a package of that name
            raise InvalidRequest(
                f"the requirement {name!r} is a file, not a package; give its lines: "
                f"requirements=Path({name!r}).read_text().splitlines()"
            )
        if is_requirements_file(name):
            raise InvalidRequest(
                f"the requirement {name!r} is a file, not a package",
                remedy="let it lie in the source folder and leave requirements out, "
                "or name it in raysm.toml and give **raysm.load_options()",
            )
    # Without a network pip cannot reach an index; wheels that travel with the job need none.
    if request.security.isolation and request.requirements and not wheels:
        raise InvalidRequest(
            "requirements cannot be installed from an index with security.isolation",
            remedy="send them: wheels=[…]; or take an image that has them, with requirements=[]",
        )


def job_tags(request: JobRequest, task: str) -> Mapping[str, str]:
    tags = {PROJECT_TAG: request.project, TASK_TAG: task, WORKLOAD_TAG: request.workload.kind}
    if request.workload.returns_value:
        tags[PYTHON_TAG] = request.workload.pickled_by or PYTHON_VERSION
    if request.tracking is not None and not request.is_tracked_by_head:
        tags[TRACKING_TAG] = request.tracking
    if request.limits.max_restarts:
        tags[MAX_RESTARTS_TAG] = str(request.limits.max_restarts)
    return tags
