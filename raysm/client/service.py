"""One service, AWS or the embedded SageMaker, at its endpoint: the only module that calls it.

It translates botocore's errors into raysm's. boto3 is imported on first use.
"""

import contextlib
import functools
import itertools
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from raysm.client.plan import Plan
from raysm.client.storage.places import Places, places_in
from raysm.client.targets import SET_REGION, Bucket, Clients, Resolved, connection_to
from raysm.client.targets.connection import Polling
from raysm.contract.home import Clock
from raysm.contract.job_api import JobApi
from raysm.errors import CredentialsExpired, JobNotFound, MissingDependency, ServiceError
from raysm.request import JobRequest, Local, Target

__all__ = ["Service", "connect"]

REMEDIES: Mapping[str, str] = {
    "AccessDenied": "the caller lacks this permission: add it to the user or role whose credentials are used",
    "UnrecognizedClient": "the credentials are not valid in this region: check the profile and the region",
    "InvalidClientTokenId": "the credentials are not valid: check the profile",
    "ResourceLimitExceeded": "ask for a higher quota in the console of Service Quotas, or take another instance type",
    "ResourceInUse": "a job of this name exists already; choose another name",
    "NoSuchBucket": "the bucket does not exist in this account and region; check AWS(bucket=…, region=…)",
    "Throttling": "too many calls at once: try again in a minute",
}
"""What to do, by the beginning of the error code."""

EXPIRED = ("ExpiredToken", "RequestExpired", "TokenRefreshRequired")
"""How the codes of errors begin that say that who calls has to log in again; S3 and the others have their own."""

LOGIN = "the credentials have expired: log in again (aws sso login), or renew them"

TRANSIENT = (
    "Throttl",  # ThrottlingException of most services, ThrottledException of some
    "TooManyRequests",
    "RequestLimitExceeded",
    "PriorRequestNotComplete",
    "SlowDown",
    "InternalError",  # S3's
    "InternalFailure",
    "InternalServer",  # …Error, …Exception
    "ServerException",  # AWS Batch's
    "ServiceUnavailable",
    "RequestTimeout",
    # HEAD's answer has no body: its status is all the code there is.
    "429",
    "500",
    "502",
    "503",
    "504",
)
"""How the codes of errors begin that pass. More than botocore's own retries know: they end after seconds."""


class Service:
    """SageMaker, S3, CloudWatch Logs and STS of one target.

    Attributes:
        target: AWS or Local.
    """

    def __init__(
        self,
        target: Target,
        *,
        clients: Clients | None = None,
        polling: Polling | None = None,
        repeats: bool = True,
    ) -> None:
        """Connect to nothing yet.

        Args:
            target: Where to.
            clients: Returns the boto3 client of a service by name; None makes them from the target.
            polling: How often to poll; None suits the target.
            repeats: Whether botocore repeats calls of SageMaker that were throttled, or got lost.

        Raises:
            InvalidRequest: ``target`` is none.
        """
        self.target = target
        self._connection = connection_to(target)
        self._connection.repeats = repeats
        self._polling = polling
        self._injected = clients
        self._made: dict[str, Any] = {}
        self._lock = threading.RLock()
        # A number, not a flag: several may follow at once, each in a thread of its own.
        self._followers = 0

    def at(self, target: Target) -> "Service":
        """Return the service of another target, in another region for example; of the same one it is this."""
        return self if target == self.target else Service(target)

    def unrepeated(self) -> "Service":
        """Return this service with calls of SageMaker that are made once each.

        A grid repeats them by itself, at the rate that it has learned: botocore's own repetitions would use that up.
        """
        # Clients that were injected are the caller's own.
        return self if self._injected is not None else Service(self.target, polling=self._polling, repeats=False)

    @property
    def polling(self) -> Polling:
        """How often jobs are polled."""
        # Asked anew: the embedded SageMaker says how late its lines may be once it is there.
        return self._polling or self._connection.polling

    @property
    def home(self) -> Path:
        """Root folder of the embedded SageMaker; of AWS, where results are downloaded to."""
        return self._connection.home

    @property
    def profile(self) -> str:
        """The profile of the AWS configuration, for programs of AWS's that take one; empty is the default."""
        return self._connection.profile

    @property
    def clock(self) -> Clock:
        """The clock by which the service dates its answers: everybody's, but for an embedded one that runs faster."""
        # The clock behind injected clients is unknown.
        return Clock() if self._injected is not None else self._connection.clock

    @property
    def lists_quotas(self) -> bool:
        """Whether quotas can be asked for."""
        return self._connection.lists_quotas

    @property
    def lists_prices(self) -> bool:
        """Whether it has prices of its own, which GetProducts tells; else AWS's public ones hold."""
        return self._connection.lists_prices

    @functools.cached_property
    def region(self) -> str:
        """The region, from the target or from the AWS configuration.

        Raises:
            ServiceError: Neither names one.
        """
        return self._connection.region(self.client)

    @functools.cached_property
    def account(self) -> str:
        """The account's number; asks STS."""
        return str(self.call("sts", "get_caller_identity")["Account"])

    @functools.cached_property
    def bucket(self) -> Bucket:
        """The bucket of payloads and results; asks STS where the target names none."""
        return self._connection.bucket(lambda: self.region, lambda: self.account)

    @functools.cached_property
    def places(self) -> Places:
        """Where the things of jobs lie."""
        return places_in(self.bucket.name, self._connection.data_root)

    def resolve(self, request: JobRequest) -> Resolved:
        """Return the target as a job has it: on AWS with the image that it runs in.

        Raises:
            InvalidRequest: The job cannot be had there.
            ServiceError: It depends on the region, and none is set.
        """
        return self._connection.resolve(request, lambda: self.region)

    def client(self, name: str) -> Any:
        """Return the boto3 client of ``sagemaker``, ``s3``, ``logs``, ``cloudwatch``, ``sts`` and so on.

        Raises:
            MissingDependency: boto3, or what the embedded SageMaker needs, is not installed.
            ServiceError: The embedded SageMaker does not start, or the AWS configuration cannot be used.
        """
        if self._injected is not None:
            return self._injected(name)
        with self._lock:
            # boto3's clients may be shared by threads; the session that makes them may not.
            if name not in self._made:
                with translated(f"make the client of {name}"):
                    self._made[name] = self._make(name)
            return self._made[name]

    def wait_for_end(self, name: str, pause_s: float, most_s: float) -> None:
        """Wait until a job may have ended, as the target tells it best.

        Args:
            name: The job's.
            pause_s: Seconds, where the target does not tell by itself.
            most_s: Seconds after which the caller wants to be back.
        """
        self._connection.wait_for_end(name, pause_s, most_s)

    def wait_for_change(self, name: str, seen: int, pause_s: float, most_s: float) -> int:
        """Wait until a job may have written another line, as the target tells it best: ``Connection`` says how."""
        return self._connection.wait_for_change(name, seen, pause_s, most_s)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Within it, a job of this service is followed: a server that is told to end is not started again for it."""
        with self._lock:
            self._followers += 1
        try:
            yield
        finally:
            with self._lock:
                self._followers -= 1

    def _make(self, name: str) -> Any:
        try:
            return self._connection.make_client(name)
        except ModuleNotFoundError as error:
            if error.name not in ("boto3", "botocore"):
                raise
            raise MissingDependency("raysm needs boto3 to submit jobs: python3 -m pip install boto3") from error

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
                # Injected clients are the caller's own: there is nothing to make anew in their place.
                if self._injected is not None or not self._connection.reconnect(error, is_followed=self._followers > 0):
                    raise
                # All of them: each one holds the address of the server that is gone.
                with self._lock:
                    self._made.clear()
            return getattr(self.client(client), operation)(**parameters)

    def pages(self, client: str, operation: str, *, token: str = "NextToken", **parameters: Any) -> Iterator[Any]:
        """Yield the pages of an operation that lists; the next one is fetched when the caller needs it.

        Not by botocore's paginators, since each page is a call that may have to start the embedded server again.

        Args:
            client: As of ``call``.
            operation: As of ``call``, or as the API names it.
            token: The parameter that asks for the next page; an answer has it too, S3's with ``Next`` before it.
            parameters: Of the first call.
        """
        from botocore import xform_name

        while True:
            page = self.call(client, xform_name(operation), **parameters)
            yield page
            following = page.get("NextContinuationToken" if token == "ContinuationToken" else token)
            if not following:
                return
            parameters[token] = following

    def create(self, plan: Plan) -> str:
        """Send ``plan`` as it is; return the job's ARN."""
        return str(self._call_api(plan.api.create, **plan.request)[plan.api.arn_key])

    def describe(self, api: JobApi, name: str) -> dict[str, Any]:
        """Return what Describe says of a job."""
        return dict(self._call_api(api.describe, **{api.name_key: name}))

    def update(self, api: JobApi, name: str, **changes: Any) -> None:
        """Change a job that runs; of an API that can."""
        assert api.update is not None, "asked of the API before"
        self._call_api(api.update, **{api.name_key: name, **changes})

    def stop(self, api: JobApi, name: str) -> None:
        """Ask the service to stop a job."""
        self._call_api(api.stop, **{api.name_key: name})

    def delete(self, api: JobApi, name: str) -> None:
        """Have the service forget a job that has ended."""
        self._call_api(api.delete, **{api.name_key: name})

    def summaries(
        self,
        api: JobApi,
        *,
        contains: str | None = None,
        sent: tuple[datetime | None, datetime | None] = (None, None),
        limit: int,
    ) -> Iterator[dict[str, Any]]:
        """Yield what List says of the latest jobs.

        Args:
            api: Of which kind of jobs.
            contains: Part of the name.
            sent: After which moment, and before which one; None is any.
            limit: The maximum number of jobs.
        """
        # 100 is the API's maximum.
        query: dict[str, Any] = {"SortBy": "CreationTime", "SortOrder": "Descending", "MaxResults": min(limit, 100)}
        if contains:
            query["NameContains"] = contains
        bounds = zip(("CreationTimeAfter", "CreationTimeBefore"), sent, strict=True)
        query |= {name: moment for name, moment in bounds if moment is not None}
        pages = self.pages("sagemaker", api.list, **query)
        yield from itertools.islice((item for page in pages for item in page.get(api.summaries_key, ())), limit)

    def _call_api(self, operation: str, **parameters: Any) -> Any:
        from botocore import xform_name  # boto3's names of methods are made by it

        return self.call("sagemaker", xform_name(operation), **parameters)

    def tags(self, arn: str) -> dict[str, str]:
        """Return the tags of a job."""
        pages = self.pages("sagemaker", "list_tags", ResourceArn=arn)
        return {tag["Key"]: tag["Value"] for page in pages for tag in page.get("Tags", ())}


def connect(on: "Target | Service | None") -> Service:
    """Return the service of a target; None is the embedded SageMaker of this machine."""
    if isinstance(on, Service):
        return on
    return Service(Local() if on is None else on)


@contextlib.contextmanager
def translated(action: str) -> Iterator[None]:
    """Turn botocore's errors into raysm's, once, at the boundary."""
    try:
        yield
    except Exception as error:
        meaning = _translate(action, error)
        if meaning is None:
            raise
        raise meaning from error


def _translate(action: str, error: Exception) -> ServiceError | None:
    try:
        from boto3.exceptions import Boto3Error
        from botocore import exceptions
        from botocore.parsers import ResponseParserError
    except ImportError:
        # Without botocore, the error is none of its own.
        return None
    match error:
        case exceptions.ClientError(response=response):
            return _refusal(action, response.get("Error", {}))
        case exceptions.NoCredentialsError() | exceptions.PartialCredentialsError():
            return ServiceError(
                f"{action}: no AWS credentials were found",
                remedy="run aws configure or aws sso login, or give AWS(profile=…)",
            )
        # None of botocore's own exceptions: a page of a proxy, or of a network that wants a login first.
        case ResponseParserError():
            return ServiceError(
                f"{action}: the answer is not AWS's: {error}",
                is_transient=True,
                remedy="check the proxy, and AWS_ENDPOINT_URL",
            )
        case exceptions.NoRegionError():
            return ServiceError(f"{action}: no AWS region is set", remedy=SET_REGION)
        # Of SSO the token itself is too old, so that no call is even made.
        case exceptions.SSOError() | exceptions.TokenRetrievalError() | exceptions.CredentialRetrievalError():
            return CredentialsExpired(f"{action}: {error}", remedy=LOGIN)
        # Before BotoCoreError, from which both are derived: these pass.
        case exceptions.HTTPClientError() | exceptions.ConnectionError() | exceptions.IncompleteReadError():
            return ServiceError(f"{action}: {error}", is_transient=True)
        case exceptions.BotoCoreError():
            return ServiceError(f"{action}: {error}")
        # boto3's transfers wrap what botocore raised: the code of the refusal is in there.
        case (
            Boto3Error(__cause__=exceptions.ClientError() as cause)
            | Boto3Error(__cause__=None, __context__=exceptions.ClientError() as cause)
        ):
            return _refusal(action, cause.response.get("Error", {}))
        case Boto3Error():
            return ServiceError(f"{action}: {error}")
    return None


def _refusal(action: str, error: Mapping[str, str]) -> ServiceError:
    code, message = error.get("Code", ""), error.get("Message", "")
    # SageMaker has no code for a job that is missing: of its ValidationExceptions only the message tells which.
    is_absent = any(words in message.lower() for words in ("not found", "could not find"))
    missing = code == "ResourceNotFound" or (code == "ValidationException" and is_absent)
    if missing and "_job" in action:
        return JobNotFound(f"there is no such job: {message}", code=code)
    if code.startswith(EXPIRED):
        return CredentialsExpired(f"{action}: {code}: {message}", code=code, remedy=LOGIN)
    # By how the code begins: S3 says AccessDenied, and SageMaker AccessDeniedException.
    remedy = next((text for begin, text in REMEDIES.items() if code.startswith(begin)), "")
    text = f"{action}: {code}: {message}"
    return ServiceError(text, code=code, is_transient=code.startswith(TRANSIENT), remedy=remedy)
