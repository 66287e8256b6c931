"""One job for several regions: it runs in the first one that has instances for it.

The next region gets a job only when the job before it has ended, so that two of them never run.
"""

import functools
import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from raysm.core.client.images import registry_in
from raysm.core.client.job.chain import TransientErrors
from raysm.core.client.job.description import NEVER_RAN, Description, SecondaryStatus, Status
from raysm.core.client.options import WAIT_S
from raysm.core.client.storage.s3 import Storage, split
from raysm.core.protocol.job_api import TRAINING
from raysm.core.request import AWS
from raysm.core.request.durations import duration
from raysm.core.request.options import check_list
from raysm.core.request.targets import REGION
from raysm.errors import InvalidRequest, ServiceError

if TYPE_CHECKING:
    from raysm.core.client.job.handle import Job
    from raysm.core.client.plan import Plan
    from raysm.core.client.service import Service
    from raysm.core.request import JobRequest

NO_CAPACITY_CODE = r"CapacityExceeded|InsufficientCapacity"
"""Codes with which Create refuses a job for which there is no capacity."""

NO_CAPACITY_REASON = (
    r"^CapacityError|Unable to provision requested ML compute capacity"
    r"|[Ii]nsufficient\w*[ -]?[Cc]apacity|not enough capacity|InsufficientInstanceCapacity"
)
"""FailureReason of a job that got no instances, from public reports of real jobs."""

ENDS = (
    SecondaryStatus.STOPPING,
    SecondaryStatus.STOPPED,
    SecondaryStatus.FAILED,
    SecondaryStatus.MAX_WAIT_EXCEEDED,
)

REGIONAL = re.compile(r"arn:[^:]+:[^:]*:([a-z0-9-]+):")

_log = logging.getLogger("raysm")


def check_regions(service: "Service", regions: Sequence[str], wait_s: float | None) -> list[str]:
    """Return the names of the regions, if a job of ``service`` can be sent to one after another."""
    names = list(dict.fromkeys(check_list("", "regions", regions)))
    if len(names) < 2 or not all(REGION.fullmatch(name) for name in names):
        raise InvalidRequest(
            f"regions are at least two names of regions, us-east-1,eu-west-1, got {names}"
        )
    if wait_s is not None and not wait_s >= 0:
        raise InvalidRequest(f"region_wait_s must be at least 0 seconds, got {wait_s}")
    if isinstance(service.target, AWS) and service.target.region not in (None, *names):
        raise InvalidRequest(
            f"the region {service.target.region} is not among the regions {', '.join(names)}",
            remedy="leave it out, or name it among the regions",
        )
    return names


def why_no_capacity(description: Description) -> str | None:
    """Return why a job that has ended got no instances; None if it got some, or ended otherwise.

    A failure after the first instance has started is the program's, whatever its text says.
    """
    phases = [SecondaryStatus(status) for status, _, _ in description.transitions]
    if any(phase not in (*NEVER_RAN, *ENDS) for phase in phases):
        return None
    # The service's own text: it names an error of the program AlgorithmError.
    reason = str(description.answer.get("FailureReason") or "")
    if description.status is Status.FAILED and re.search(NO_CAPACITY_REASON, reason):
        return reason.partition("\n")[0]
    if description.secondary is SecondaryStatus.MAX_WAIT_EXCEEDED:
        return "no spot capacity within max_wait_s"
    return None


class Sendable(Protocol):
    """A job that is prepared for one region."""

    @property
    def request(self) -> "JobRequest": ...
    @property
    def plan(self) -> "Plan": ...
    @property
    def service(self) -> "Service": ...
    def send(self) -> "Job": ...
    def finished(self) -> "Job | None": ...


S = TypeVar("S", bound=Sendable)


class InRegions(Generic[S]):
    """A job that is prepared for several regions.

    Attributes:
        prepared: The job in each region, the best first; its names differ.
        wait_s: Seconds that it waits for instances in each region but the last.
        current: The one that was sent last, or is sent next.
        is_leaving: True if ``current`` has ended without instances, or was asked to stop.
        waits_for: What ``send`` waits for, a sentence; empty before the first job is sent.
    """

    def __init__(self, prepared: Sequence[S], wait_s: float | None = None) -> None:
        """Check that each region can read and write all that the job names.

        Raises:
            InvalidRequest: A part of the job is in another region; nothing was sent.
        """
        self.prepared = prepared
        self.wait_s = WAIT_S if wait_s is None else wait_s
        self.current = prepared[0]
        self.is_leaving = False
        self.waits_for = ""
        for each in prepared:
            if each.plan.api is not TRAINING:
                raise InvalidRequest(
                    f"regions are for Training jobs: a {each.plan.api.title} job does not tell "
                    "whether it has its instances; drop kind"
                )
            for what, region, remedy in _elsewhere(each):
                raise InvalidRequest(
                    f"{what} is in {region}, and a job in {each.service.region} cannot use it",
                    remedy=f"leave {each.service.region} out of the regions, or {remedy}",
                )

    def finished(self) -> "Job | None":
        """Return an equal job that has run, or runs, in one of the regions."""
        return next((done for each in self.prepared if (done := each.finished())), None)

    def send(self) -> "Job":
        """Send the job to one region after the other, until one has instances for it.

        In the last region it waits as any job does.

        Raises:
            ServiceError: The last region refused it too, or another error than a lack of capacity.
        """
        refusals: list[str] = []
        for each in self.prepared:
            region = each.service.region
            is_last = each is self.prepared[-1]
            self.current = each
            self.is_leaving = False
            if is_last:
                self.waits_for = ""
            else:
                self.waits_for = f"waiting: {each.request.name} has no instances in {region} yet"
            reason: str | None
            try:
                job = each.send()
            except ServiceError as error:
                if not _is_refusal(error):
                    raise
                reason = error.problem
                if is_last:
                    told = "; ".join([*refusals, f"{region}: {reason}"])
                    raise ServiceError(
                        f"no region takes the job: {told}", code=error.code, remedy=error.remedy
                    ) from error
            else:
                reason = None if is_last else self._await_instances(job)
                if reason is None:
                    return job
            self.is_leaving = True
            refusals.append(f"{region}: {reason}")
            _log.warning("no instances in %s: %s; the next region is tried", region, reason)
        raise AssertionError("the last region takes or refuses the job")

    def _await_instances(self, job: "Job") -> str | None:
        """Wait until the job has instances or has ended; return why it has to go elsewhere."""
        deadline_s = time.monotonic() + self.wait_s
        errors = TransientErrors(job.service, job.name)
        for pause_s in job.service.polling.pauses():
            left_s = deadline_s - time.monotonic()
            try:
                description = job.describe()
                errors.reset()
                if description.status.is_terminal:
                    return _why_ended(job, description)
                # Another user stops it, or it works.
                if description.status is Status.STOPPING or description.secondary not in NEVER_RAN:
                    return None
                # A job that prepares its instances has them.
                if left_s <= 0 and description.secondary is not SecondaryStatus.PREPARING:
                    return self._leave(job)
            except ServiceError as error:
                errors.raise_unless_transient(error)
                # It may have got its instances meanwhile.
                self.is_leaving = False
            job.service.connection.wait_for_end(
                job.name, pause_s, min(pause_s, left_s) if left_s > 0 else pause_s
            )
        raise AssertionError("the pauses do not end")

    def _leave(self, job: "Job") -> str | None:
        """Stop a job that waits for instances, and wait for its end: until then it may start."""
        region = job.service.region
        self.is_leaving = True
        self.waits_for = f"waiting: {job.name} in {region} is being stopped"
        try:
            job.stop()
        except ServiceError as error:
            raise ServiceError(
                f"{job.name} has no instances in {region} yet, cannot be stopped, and may still "
                f"start, so no other job was sent: {error.problem}",
                code=error.code,
                is_transient=error.is_transient,
                remedy=f"stop it: raysm stop {job.name}",
            ) from error
        description = job.describe()
        if description.status is not Status.STOPPED:
            self.is_leaving = False
            return _why_ended(job, description)
        if description.billable_s:
            _log.warning(
                "%s got its instances in %s when it was stopped: %d s are billed",
                job.name,
                region,
                description.billable_s,
            )
        return f"none within {duration(self.wait_s)}"


def _why_ended(job: "Job", description: Description) -> str | None:
    job.done()  # deletes its payload
    return why_no_capacity(description)


def _is_refusal(error: ServiceError) -> bool:
    # A quota that is used up or 0 lets no job start there either, and costs nothing.
    return error.code.startswith("ResourceLimitExceeded") or bool(
        re.search(NO_CAPACITY_CODE, error.code)
    )


def _elsewhere(prepared: Sendable) -> Iterator[tuple[str, str, str]]:
    """Yield what the job needs and its region does not have: what, where, and a remedy."""
    service = prepared.service
    request = prepared.plan.request
    if "VpcConfig" in request:
        yield "the network of subnets and security_groups", "one region", "drop the network"
    image = registry_in(request["AlgorithmSpecification"].get("TrainingImage", ""))
    if image is not None and image.region != service.region:
        yield (
            f"the image {request['AlgorithmSpecification']['TrainingImage']}",
            image.region,
            "name no image: AWS's own is in every region",
        )
    for preference in prepared.request.cluster.preferences:
        plan_arn = REGIONAL.match(preference.training_plan or "")
        if plan_arn is not None and plan_arn[1] != service.region:
            yield "the training plan", plan_arn[1], "drop it"
    foreign_region = _foreign_regions(service)
    for channel, source in prepared.request.inputs.items():
        region = foreign_region(source.uri)
        if region is not None:
            yield f"the input {channel!r}, {source.uri},", region, "copy the data to a bucket there"
    outputs = {**request["OutputDataConfig"], **request.get("CheckpointConfig", {})}
    for name in ("S3OutputPath", "S3Uri"):
        region = foreign_region(outputs.get(name, ""))
        if region is not None:
            yield f"{outputs[name]}, for results or checkpoints,", region, "drop bucket and the URI"


def _foreign_regions(service: "Service") -> Callable[[str], str | None]:
    """Return a function that returns the region of a URI, or None if it is the service's."""

    @functools.cache
    def region_of(bucket: str) -> str | None:
        # The default bucket has its region in its name, and may not exist yet.
        if bucket == service.bucket.name and not service.bucket.is_named:
            return None
        try:
            region = Storage(service).bucket_region(bucket)
        except ServiceError as error:
            if error.code not in ("403", "AccessDenied"):
                raise
            return None  # the job's role may read what this user may not
        return None if region == service.region else region

    return lambda uri: region_of(split(uri)[0]) if uri.startswith("s3://") else None
