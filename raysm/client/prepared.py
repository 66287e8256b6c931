"""A job that is ready to be sent: uploads, payload, call and record, in this order.

Whatever goes wrong on the way, the service has the job and the user its handle, or nothing is left of it: a payload
holds the token of its job. Of two jobs with one state, the second waits for the end of the first.
"""

import contextlib
import functools
import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from raysm import __version__
from raysm.client.checks import check_volume
from raysm.client.job import records
from raysm.client.job.chain import Chain, Patience
from raysm.client.job.description import Description, SecondaryStatus, Status
from raysm.client.job.handle import Job, attach
from raysm.client.plan import Plan
from raysm.client.service import Service
from raysm.client.storage.inputs import Upload, carry_out
from raysm.client.storage.payload import payload_uri, upload_payload
from raysm.client.storage.s3 import Storage
from raysm.client.units import python_version
from raysm.contract import payload
from raysm.contract.job_api import TRAINING, api_of
from raysm.contract.names import TRACKING_TAG
from raysm.contract.source import Source
from raysm.errors import InvalidRequest, JobNotFound, ServiceError
from raysm.request import Input, JobRequest

__all__ = ["Prepared", "await_predecessor", "state_of"]

_log = logging.getLogger("raysm")


ENDING = (SecondaryStatus.UPLOADING, SecondaryStatus.STOPPING, SecondaryStatus.MAX_RUNTIME_EXCEEDED)
"""What a job does that ends by itself within minutes."""


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
        InvalidRequest: The job runs, for an unknown time.
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
            # If no follow-up was sent, the last job of the chain has ended: this one goes on in its place.
            if chain.ended(send=False) or chain.known().status.is_terminal:
                return
            patience.heard()
            _refuse_running(chain.known())
            if not is_told:
                _log.warning("waiting until %s has saved its state, with which the new job goes on", chain.name)
                is_told = True
        # It could be removed only after its end.
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


MOST_LISTED = 10_000
"""Objects of the inputs that are looked at for a job without if_done='skip': ten calls, about a second. A million
took minutes, and money, before the job was even sent."""

FORBIDS_DEBUG = "or it may forbid remote debugging (sagemaker:EnableRemoteDebug)"


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
    uploads: tuple[Upload, ...]
    """Local data that goes to S3 first."""
    source: Source | None
    """What travels of the user's source."""
    contents: payload.Contents = field(repr=False)
    """All that travels, the job's token too."""
    source_digest: str
    """Of all that the result depends on but the state of its inputs."""
    image: str = ""
    """Which image was taken where none was named, for people; empty where none had to be."""
    shared: str | None = None
    """Prefix of what its payload shares with those of other jobs; None is nothing."""

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
        uploaded = {upload.channel for upload in self.uploads}
        return {channel: source for channel, source in self.request.inputs.items() if channel not in uploaded}

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
            leaves_payload: Whether the payload stays if it is unknown whether the job was made: a caller that sends the
                same job again needs it.

        Raises:
            InvalidRequest: The job whose state it goes on with runs, or the inputs are larger than the instances'
                volumes; nothing was uploaded.
            ServiceError: The service refused; nothing of the job is left but data that can be used again.
        """
        if self.has_old_state and self.state is not None:
            await_predecessor(self._records, self.state, self.service)
        inputs = self._look_at_inputs()
        self._check_volume(inputs)
        # Before the job is there: a file that vanishes meanwhile must not hide it from its sender.
        code = records.code_of(self.request.workload, self.source)
        with self.brought(leaves_payload=leaves_payload):
            self._create()
        self._remember(code, inputs)
        # Told, since ListTags would be a call, and a permission, of its own.
        sent_tags = {tag["Key"]: tag["Value"] for tag in self.plan.request["Tags"]}
        chain = Chain(self.request.name, service=self.service, api=self.plan.api, tags=sent_tags)
        if TRACKING_TAG in sent_tags:
            from raysm.client.logs.tracking import tracker_of

            tracker_of(chain, self.request.workload.parameters)
        return Job(chain, source=self.source)

    @contextlib.contextmanager
    def brought(self, *, leaves_payload: bool = False) -> Iterator[None]:
        """Upload what has changed and the payload; remove the payload if the block, which makes the job, fails.

        Args:
            leaves_payload: As of ``send``.
        """
        storage = self._storage
        storage.ensure_bucket(self.service.bucket, self.service.region)
        for upload in self.uploads:
            carry_out(upload, storage, self.request.security.output_kms_key)
        prefix = self.service.places.payload(self.request.project, self.request.name)
        try:
            self._send_payload(prefix)
            yield
        except BaseException as error:
            if leaves_payload and isinstance(error, ServiceError) and error.is_transient:
                raise
            # Whatever it was: an upload that Ctrl-C interrupts leaves nothing behind either.
            with contextlib.suppress(ServiceError):  # the reason is not to be hidden by a second one
                storage.remove(prefix)  # it holds the token of a job that never was
            raise

    def _send_payload(self, prefix: str) -> None:
        name = self.request.name
        if self.image:
            _log.info("%s runs in the image %s", name, self.image)
        if self.source is not None:
            if self.source.warning is not None:
                _log.warning(self.source.warning)
            _log.info("%s is sent with %s", name, self.source.summary)
        kms_key = self.request.security.output_kms_key
        upload_payload(self.contents, prefix, self.shared, self._storage, kms_key)

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
        """Return the state of the inputs; None if it was not asked for and takes long, or is not allowed."""
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

    def _remember(self, code: str, inputs: records.InputsState | None) -> None:
        request = self.request
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
            records.keep(record, self._records, self._storage, request.security.output_kms_key)
        except (ServiceError, OSError) as error:  # the job runs: its sender must get it
            _log.warning("the job %s is sent, but not remembered for if_done and resume: %s", request.name, error)
