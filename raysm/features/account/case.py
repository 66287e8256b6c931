"""The input and output of the doctor's checks: a case (a job and its account) and findings."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from raysm.core.client.images import default_image
from raysm.core.client.plan import Plan
from raysm.core.client.service import Service
from raysm.core.client.targets.connection import Bucket
from raysm.core.protocol.job_api import TRAINING, JobApi, api_of
from raysm.core.request import Cluster, Input, Limits, Security
from raysm.errors import InvalidRequest, ServiceError


class State(StrEnum):
    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    name: str = ""
    state: State
    text: str
    remedy: str = ""
    """A command, a policy or a sentence."""
    needed: bool = True
    """True if jobs cannot run without it."""

    @property
    def word(self) -> str:
        if self.state is State.BAD and not self.needed:
            return "none"
        return {State.GOOD: "ok", State.BAD: "BAD", State.UNKNOWN: "?"}[self.state]


def good(text: str) -> Finding:
    return Finding(state=State.GOOD, text=text)


def bad(text: str, remedy: str, *, needed: bool = True) -> Finding:
    return Finding(state=State.BAD, text=text, remedy=remedy, needed=needed)


def unknown(text: str, remedy: str = "") -> Finding:
    return Finding(state=State.UNKNOWN, text=text, remedy=remedy)


def one_suffices(choices: Sequence[Sequence[Finding]]) -> Iterator[Finding]:
    """Yield the findings of all choices; only those of the best choices are needed."""
    gravity = (State.GOOD, State.UNKNOWN, State.BAD)
    worst = [
        max((gravity.index(finding.state) for finding in findings), default=0)
        for findings in choices
    ]
    for own, findings in zip(worst, choices, strict=True):
        yield from (
            replace(finding, needed=finding.needed and own <= min(worst)) for finding in findings
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """The job as far as it is known; the rest has a request's defaults.

    Its fields are options of ``raysm.submit``.
    """

    kind: str = TRAINING.kind
    cluster: Cluster | None = None
    limits: Limits = Limits()
    security: Security = Security()
    project: str = "*"
    """The project whose objects the role may change; all projects by default."""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    requirements: tuple[str, ...] = ()
    wheels: tuple[str, ...] = ()
    pip_index: str | None = None
    output_uri: str | None = None
    checkpoint_uri: str | None = None
    tracking: str | None = None

    @property
    def choices(self) -> tuple[Mapping[str, int], ...]:
        """Number of instances by type, for each choice of types of which one suffices."""
        return () if self.cluster is None else self.cluster.choices

    @property
    def size(self) -> int:
        """Number of instances; 0 if not chosen."""
        return 0 if self.cluster is None else self.cluster.size


def make_intent(options: Mapping[str, Any]) -> Intent:
    names = {item.name for item in fields(Intent)}
    return Intent(**{name: value for name, value in options.items() if name in names})


class Case:
    """A job that is to be sent, and the account that it is to run in.

    Attributes:
        service: The account.
        intent: The job.
        role: The ARN of the role that the job runs as; None if not given.
        plan: Makes the Create call; None if the job is not fully known. Making it may ask AWS and
            be refused.
        found_keys: ARNs of customer keys that S3 encrypts with, as checks find them: ``bucket_key``
            and ``input_key``.
    """

    def __init__(
        self,
        service: Service,
        intent: Intent,
        *,
        role: str | None = None,
        plan: Callable[[], Plan] | None = None,
    ) -> None:
        self.service = service
        self.intent = intent
        self.role = role
        self.plan = plan
        self.found_keys: dict[str, tuple[str, ...]] = {}

    @property
    def api(self) -> JobApi:
        return api_of(self.intent.kind)

    @property
    def region(self) -> str:
        return self.service.region

    @functools.cached_property
    def image(self) -> str:
        target = self.service.target
        cluster = self.intent.cluster
        if target.image is not None:
            return target.image
        if cluster is None:
            raise InvalidRequest(
                "no image and no instance type is given", remedy="give --image, or --instance-type"
            )
        image, registry = default_image(cluster, self.region)
        return image.uri(registry)

    @property
    def bucket(self) -> Bucket:
        return self.service.bucket

    @functools.cached_property
    def caller(self) -> str:
        return str(self.service.call("sts", "get_caller_identity")["Arn"])

    @property
    def partition(self) -> str:
        """``aws``, ``aws-cn`` or ``aws-us-gov``."""
        return self.caller.split(":")[1]

    def note_key(self, place: str, answer: Mapping[str, Any]) -> None:
        """Remember the KMS key that an answer of S3 names, unless the key is AWS's own."""
        key = answer.get("SSEKMSKeyId")
        if not key:
            return
        # The key of another account, or a question that is refused.
        with contextlib.suppress(ServiceError):
            if (
                self.call("kms", "describe_key", KeyId=key)["KeyMetadata"].get("KeyManager")
                == "AWS"
            ):
                return
        self.found_keys[place] = tuple(dict.fromkeys((*self.found_keys.get(place, ()), str(key))))

    def call(self, client: str, operation: str, **parameters: Any) -> Any:
        return self.service.call(client, operation, **parameters)
