"""The case that the doctor looks at: one job that is to be sent, as far as it is known, and the account for it.

What flows in are options as files and flags chose them, and a service; nothing is asked before a check asks it.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from raysm.client.images.default_image import default_image
from raysm.client.plan import Plan
from raysm.client.service import Service
from raysm.client.targets import Bucket
from raysm.contract.job_api import TRAINING, JobApi, api_of
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Input, Limits, Security

__all__ = ["Case", "Intent", "intent_of"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Intent:
    """What job is to be sent; what nobody said yet is as a request has it by default."""

    kind: str = TRAINING.kind
    """Whose API makes it."""
    cluster: Cluster | None = None
    """The instances; None where nobody chose them."""
    limits: Limits = Limits()
    """Time, spot capacity."""
    security: Security = Security()
    """Networks and keys."""
    inputs: Mapping[str, Input] = field(default_factory=dict)
    """The channels."""
    requirements: tuple[str, ...] = ()
    """What pip installs in each instance."""
    wheels: tuple[str, ...] = ()
    """What travels for it."""
    pip_index: str | None = None
    """Where it looks; None is where the image says."""
    output_uri: str | None = None
    """Where the result goes; None is below the bucket."""
    checkpoint_uri: str | None = None
    """Where state is kept; None is below the bucket."""
    tracking: str | None = None
    """Where metrics are mirrored to; None is nowhere."""

    @property
    def choices(self) -> tuple[Mapping[str, int], ...]:
        """Number of instances by type, for each of those ways to have them of which one suffices; none is empty."""
        return () if self.cluster is None else self.cluster.choices

    @property
    def size(self) -> int:
        """Number of instances, of whichever types; 0 where nobody chose any."""
        return 0 if self.cluster is None else self.cluster.size


def intent_of(options: Mapping[str, Any]) -> Intent:
    """Return what the options of ``raysm.submit`` say of a job."""
    names = {item.name for item in fields(Intent)}
    # Options that no check looks at, such as variables and tags, are no fields of an Intent.
    return Intent(**{name: value for name, value in options.items() if name in names})


class Case:
    """One job that is to be sent, and the account that it is to run in.

    Attributes:
        service: The account.
        intent: The job.
        role: The ARN of the role that it runs as; None where nobody named one.
        plan: Makes the very call, for a job of which all is known; None where it is not.
    """

    def __init__(
        self,
        service: Service,
        intent: Intent,
        *,
        role: str | None = None,
        plan: Callable[[], Plan] | None = None,
    ) -> None:
        """Ask nothing yet."""
        self.service = service
        self.intent = intent
        self.role = role
        # Not the plan itself: to make it may ask AWS, and be refused, which is for a check to tell.
        self.plan = plan

    @property
    def api(self) -> JobApi:
        """The API that makes the job."""
        return api_of(self.intent.kind)

    @property
    def region(self) -> str:
        """Where the job runs."""
        return self.service.region

    @functools.cached_property
    def image(self) -> str:
        """The URI of the image that the job runs in.

        Raises:
            InvalidRequest: None is named, and AWS has none for these instances here.
        """
        target, cluster = self.service.target, self.intent.cluster
        if target.image is not None:
            return target.image
        if cluster is None:
            raise InvalidRequest("no image and no instance type is named; give --image, or --instance-type")
        # Of any Python: which one has to read a pickle is known of a workload alone.
        image, registry = default_image(cluster, self.region)
        return image.uri(registry)

    @property
    def bucket(self) -> Bucket:
        """Where payload and result go."""
        return self.service.bucket

    @functools.cached_property
    def caller(self) -> str:
        """The ARN of whoever asks."""
        # Asked once: the credentials' check, the policies' names and the partition all need it.
        return str(self.service.call("sts", "get_caller_identity")["Arn"])

    @functools.cached_property
    def partition(self) -> str:
        """The first word of an ARN behind ``arn:``: AWS's own, China's, GovCloud's."""
        return self.caller.split(":")[1]

    @property
    def keys(self) -> tuple[str, ...]:
        """The KMS keys that the job names."""
        security = self.intent.security
        # One key may be for both, and is looked at once.
        return tuple(dict.fromkeys(key for key in (security.volume_kms_key, security.output_kms_key) if key))

    def call(self, client: str, operation: str, **parameters: Any) -> Any:
        """Ask the account; raises ServiceError as ``Service.call`` does."""
        return self.service.call(client, operation, **parameters)
