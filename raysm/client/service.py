"""The only place that talks to AWS, or to the embedded SageMaker: one service at two endpoints.

What flows in are operations by name with their parameters, what flows out are botocore's answers; its errors are
translated here, once. boto3 is imported on first use.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raysm import __version__
from raysm.client import endpoint
from raysm.client.places import LOCAL_BUCKET, Places, default_bucket, places_of
from raysm.client.plan import Plan
from raysm.contract.home import home as home_of
from raysm.contract.job_api import JobApi
from raysm.errors import InvalidRequest, JobNotFound, MissingDependency, ServiceError
from raysm.request import AWS, Local, Target

__all__ = ["Pace", "Service", "connect"]

LOCAL_REGION = "us-east-1"
"""The embedded SageMaker answers for every region; its own clients use this one."""

REMEDIES: Mapping[str, str] = {
    "AccessDenied": "the caller lacks this permission: add it to the user or role whose credentials are used",
    "ExpiredToken": "the credentials have expired: log in again (aws sso login), or renew them",
    "UnrecognizedClient": "the credentials are not valid in this region: check the profile and the region",
    "InvalidClientTokenId": "the credentials are not valid: check the profile",
    "ResourceLimitExceeded": "ask for a higher quota in the console of Service Quotas, or take another instance type",
    "ResourceInUse": "a job of this name exists already; choose another name",
    "NoSuchBucket": "the bucket does not exist in this account and region; check AWS(bucket=…, region=…)",
    "Throttling": "too many calls at once: try again in a minute",
}
"""What to do, by the beginning of the error code."""

TRANSIENT = (
    "Throttling",
    "InternalFailure",
    "InternalServerError",
    "ServiceUnavailable",
    "RequestTimeout",
    "503",
    "500",
)
"""How the codes of errors begin that pass."""

HEARING_S = 20
"""Seconds for which the embedded SageMaker is asked to say when a job ends, before it is asked again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """How often a job is asked how it is: slower and slower, up to a limit."""

    first_s: float
    """Seconds until the second question."""
    most_s: float
    """Seconds between the later ones."""
    growth: float = 1.5
    """Each pause is so many times the one before."""
    patience_s: float = 300.0
    """Seconds for which the service may be away before whoever waits for a job is told."""
    late_s: float = 0.0
    """Seconds that the last lines of a job that has ended may need to reach the log service."""

    def pauses(self) -> Iterator[float]:
        """Yield the pauses, in seconds, without end."""
        pause = self.first_s
        while True:
            yield pause
            pause = min(self.most_s, pause * self.growth)


class Service:
    """SageMaker, S3, CloudWatch Logs and STS of one target.

    Attributes:
        target: AWS or Local.
        pace: How often jobs are polled.
    """

    def __init__(
        self, target: Target, *, clients: Callable[[str], Any] | None = None, pace: Pace | None = None
    ) -> None:
        """Connect to nothing yet.

        Args:
            target: Where to.
            clients: Returns the boto3 client of a service by name; None makes them from the target.
            pace: How often to poll; None suits the target.
        """
        self.target = target
        is_local = isinstance(target, Local)
        self.pace = pace or (Pace(first_s=0.1, most_s=0.5) if is_local else Pace(first_s=2.0, most_s=20.0, late_s=15.0))
        self._given = clients
        self._made: dict[str, Any] = {}
        self._session: Any = None
        self._url: str | None = None
        self._lock = threading.RLock()

    @functools.cached_property
    def home(self) -> Path:
        """Root folder of the embedded SageMaker; of AWS, where results are downloaded to."""
        return home_of(self.target.home if isinstance(self.target, Local) else None)

    @functools.cached_property
    def region(self) -> str:
        """The region, from the target or from the AWS configuration.

        Raises:
            ServiceError: Neither names one.
        """
        if isinstance(self.target, Local):
            return LOCAL_REGION
        region = self.target.region or self.client("sagemaker").meta.region_name
        if not region:
            raise ServiceError("no AWS region is set: give AWS(region=…), or run aws configure set region REGION")
        return str(region)

    @functools.cached_property
    def account(self) -> str:
        """The account's number; asks STS."""
        return str(self.call("sts", "get_caller_identity")["Account"])

    @functools.cached_property
    def bucket(self) -> str:
        """The bucket of payloads and results; asks STS where the target names none."""
        if isinstance(self.target, Local):
            return LOCAL_BUCKET
        return self.target.bucket or default_bucket(self.region, self.account)

    @functools.cached_property
    def places(self) -> Places:
        """Where the things of jobs lie."""
        return places_of(self.target, bucket=self.bucket, home=self.home if isinstance(self.target, Local) else None)

    def client(self, name: str) -> Any:
        """Return the boto3 client of ``sagemaker``, ``s3``, ``logs``, ``cloudwatch``, ``sts`` and so on.

        Raises:
            MissingDependency: boto3, or what the embedded SageMaker needs, is not installed.
            ServiceError: The embedded SageMaker does not start, or the AWS configuration cannot be used.
        """
        if self._given is not None:
            return self._given(name)
        with self._lock:
            if name not in self._made:
                with translated(f"make the client of {name}"):
                    self._made[name] = self._make(name)
            return self._made[name]

    def await_end(self, name: str, pause_s: float, most_s: float) -> None:
        """Wait until a job may have ended: ``pause_s``, or, of the embedded SageMaker, until it says so.

        To be asked twice a second would take 1 % of a core from the job.

        Args:
            name: The job's.
            pause_s: Seconds.
            most_s: Seconds after which the caller wants to be back.
        """
        hearing_s = int(min(HEARING_S, most_s))
        if self._url is None or hearing_s < 1 or not endpoint.hear_end(self._url, name, hearing_s):
            time.sleep(min(pause_s, most_s))

    def _make(self, name: str) -> Any:
        try:
            import boto3
            import botocore.session
            from botocore.config import Config
        except ImportError as error:
            raise MissingDependency("raysm needs boto3 to submit jobs: python3 -m pip install boto3") from error
        retries = {"mode": "standard", "max_attempts": 5}
        agent = f"raysm/{__version__}"
        if isinstance(self.target, AWS):
            if self._session is None:
                self._session = boto3.Session(profile_name=self.target.profile, region_name=self.target.region)
            config = Config(retries=retries, user_agent_extra=agent, max_pool_connections=32)
            return self._session.client(name, config=config)
        if self._session is None:
            # No variable names its profile: AWS_PROFILE may be one that this machine does not have.
            core = botocore.session.Session({"profile": (None, None, None, None)})
            self._session = boto3.Session(
                aws_access_key_id="raysm",
                aws_secret_access_key="raysm",
                region_name=LOCAL_REGION,
                botocore_session=core,
            )
        if self._url is None:
            self._url = endpoint.ensure(self.home)
        config = Config(
            retries=retries,
            user_agent_extra=agent,
            max_pool_connections=32,
            proxies={},  # the proxy of this machine's way out knows no loopback
            s3={"addressing_style": "path"},
        )
        return self._session.client(name, endpoint_url=self._url, config=config)

    def call(self, client: str, operation: str, **parameters: Any) -> Any:
        """Call one operation, ``call("s3", "head_object", Bucket=…, Key=…)``.

        Raises:
            JobNotFound: It is about a job that the service does not know.
            ServiceError: It failed; the message says which operation, why, and what to do.
        """
        with translated(operation):
            try:
                return getattr(self.client(client), operation)(**parameters)
            except Exception as error:
                if self._given is not None or isinstance(self.target, AWS) or not _is_refused(error):
                    raise
                self._forget()
            # The embedded server ends itself when it has been idle: start it again, and ask again, once.
            return getattr(self.client(client), operation)(**parameters)

    def _forget(self) -> None:
        with self._lock:
            self._made.clear()
            self._url = None

    def create(self, plan: Plan) -> str:
        """Send ``plan`` as it is; return the job's ARN."""
        return str(self._call_api(plan.api.create, **plan.request)[plan.api.arn_key])

    def describe(self, api: JobApi, name: str) -> dict[str, Any]:
        """Return what Describe says of a job."""
        return dict(self._call_api(api.describe, **{api.name_key: name}))

    def stop(self, api: JobApi, name: str) -> None:
        """Ask the service to stop a job."""
        self._call_api(api.stop, **{api.name_key: name})

    def delete(self, api: JobApi, name: str) -> None:
        """Have the service forget a job that has ended."""
        self._call_api(api.delete, **{api.name_key: name})

    def summaries(self, api: JobApi, *, contains: str | None = None, limit: int) -> Iterator[dict[str, Any]]:
        """Yield what List says of the latest jobs, at most ``limit``, those with ``contains`` in their names."""
        wanted: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": min(limit, 100)}
        if contains:
            wanted["NameContains"] = contains
        left = limit
        while left > 0:
            page = self._call_api(api.list, **wanted)
            yield from page.get(api.summaries_key, ())[:left]
            left -= len(page.get(api.summaries_key, ()))
            if not page.get("NextToken"):
                return
            wanted["NextToken"] = page["NextToken"]

    def _call_api(self, operation: str, **parameters: Any) -> Any:
        from botocore import xform_name  # boto3's names of methods are made by it

        return self.call("sagemaker", xform_name(operation), **parameters)

    def tags(self, arn: str) -> dict[str, str]:
        """Return the tags of a job."""
        found: dict[str, str] = {}
        more: dict[str, str] = {}
        while True:
            page = self.call("sagemaker", "list_tags", ResourceArn=arn, **more)
            found.update({tag["Key"]: tag["Value"] for tag in page.get("Tags", ())})
            if not page.get("NextToken"):
                return found
            more = {"NextToken": page["NextToken"]}


def connect(on: "Target | Service | None") -> Service:
    """Return the service of a target; None is the embedded SageMaker of this machine."""
    if isinstance(on, Service):
        return on
    if on is not None and not isinstance(on, (AWS, Local)):
        raise InvalidRequest(f"on must be raysm.AWS(role=…) or raysm.Local(), got {on!r}")
    return Service(Local() if on is None else on)


@contextlib.contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn botocore's errors into raysm's, once, at the boundary."""
    try:
        yield
    except Exception as error:
        found = _translate(action, error)
        if found is None:
            raise
        raise found from error


def _translate(action: str, error: Exception) -> ServiceError | None:
    try:
        from boto3.exceptions import Boto3Error
        from botocore import exceptions
    except ImportError:
        return None
    if isinstance(error, exceptions.ClientError):
        return _refusal(action, error.response.get("Error", {}))
    if isinstance(error, (exceptions.NoCredentialsError, exceptions.PartialCredentialsError)):
        return ServiceError(
            f"{action}: no AWS credentials were found; run aws configure or aws sso login, or give AWS(profile=…)"
        )
    if isinstance(error, exceptions.NoRegionError):
        return ServiceError(
            f"{action}: no AWS region is set; give AWS(region=…), or run aws configure set region REGION"
        )
    if isinstance(error, exceptions.BotoCoreError):
        network = (exceptions.HTTPClientError, exceptions.ConnectionError)
        return ServiceError(f"{action}: {error}", is_transient=isinstance(error, network))
    if isinstance(error, Boto3Error):
        cause = error.__cause__ or error.__context__
        if isinstance(cause, exceptions.ClientError):
            return _refusal(action, cause.response.get("Error", {}))
        return ServiceError(f"{action}: {error}")
    return None


def _refusal(action: str, error: Mapping[str, str]) -> ServiceError:
    code, message = error.get("Code", ""), error.get("Message", "")
    said = any(words in message.lower() for words in ("not found", "could not find"))
    missing = code == "ResourceNotFound" or (code == "ValidationException" and said)
    if missing and "_job" in action:
        return JobNotFound(f"there is no such job: {message}", code=code)
    remedy = next((text for begin, text in REMEDIES.items() if code.startswith(begin)), "")
    text = f"{action}: {code}: {message}" + (f"; {remedy}" if remedy else "")
    return ServiceError(text, code=code, is_transient=code.startswith(TRANSIENT))


def _is_refused(error: Exception) -> bool:
    from botocore.exceptions import EndpointConnectionError

    return isinstance(error, EndpointConnectionError)
