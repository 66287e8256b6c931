"""The service of one target, AWS or the embedded SageMaker: the only module that calls it.

It translates botocore's errors into raysm's. boto3 is imported on first use.
"""

import contextlib
import functools
import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from raysm.core.client.plan import Plan
from raysm.core.client.storage.places import Places, places_in
from raysm.core.client.targets.connection import SET_REGION, Bucket, Clients, Polling, connection_to
from raysm.core.protocol.home import Clock
from raysm.core.protocol.job_api import JobApi
from raysm.core.request import Local, Target
from raysm.errors import CredentialsExpired, JobNotFound, MissingDependency, ServiceError

REMEDIES: Mapping[str, str] = {
    "AccessDenied": (
        "the caller lacks this permission: add it to the user or role whose credentials are used"
    ),
    "UnrecognizedClient": (
        "the credentials are not valid in this region: check the profile and the region"
    ),
    "InvalidClientTokenId": "the credentials are not valid: check the profile",
    "ResourceLimitExceeded": (
        "ask for a higher quota in the console of Service Quotas, or take another instance type"
    ),
    "ResourceInUse": "a job of this name exists already; choose another name",
    "NoSuchBucket": (
        "the bucket does not exist in this account and region; check AWS(bucket=…, region=…)"
    ),
    "Throttling": "too many calls at once: try again in a minute",
}
"""Remedies by the beginning of the error code: S3 says AccessDenied, and SageMaker
AccessDeniedException."""

EXPIRED = ("ExpiredToken", "RequestExpired", "TokenRefreshRequired")
CHECK_PROXY = "check the proxy, and AWS_ENDPOINT_URL"
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
    # The answer to HEAD has no body: its status is the code.
    "429",
    "500",
    "502",
    "503",
    "504",
)
"""Beginnings of the codes of transient errors: more than botocore's own retries know, which give up
after seconds."""


class Service:
    """SageMaker, S3, CloudWatch Logs and STS of one target.

    ``connection`` has what differs between targets.
    """

    def __init__(
        self,
        target: Target,
        *,
        clients: Clients | None = None,
        polling: Polling | None = None,
        repeats: bool = True,
    ) -> None:
        """Prepare a service; the first call connects.

        Without ``repeats`` each call of SageMaker is sent once: a grid has its own retries, at the
        rate that it learned.
        """
        self.target = target
        self.connection = connection_to(target)
        self.connection.repeats = repeats
        self._polling = polling
        self._injected = clients
        self._clients: dict[str, Any] = {}
        self._lock = threading.RLock()
        self._followers = 0

    def at(self, target: Target) -> "Service":
        return self if target == self.target else Service(target)

    def unrepeated(self) -> "Service":
        return (
            self
            if self._injected is not None
            else Service(self.target, polling=self._polling, repeats=False)
        )

    def in_other_regions(self) -> "Iterator[Service]":
        """Yield the services of other regions in which a job is looked for by its name alone."""
        if self._injected is None:
            for region in self.connection.other_regions():
                yield Service(self.target.reaching((region,)), polling=self._polling)

    @property
    def polling(self) -> Polling:
        """How often jobs are polled, and how late log lines may be.

        An embedded server reports this once it runs.
        """
        return self._polling or self.connection.polling

    @property
    def home(self) -> Path:
        return self.connection.home

    @property
    def clock(self) -> Clock:
        return Clock() if self._injected is not None else self.connection.clock

    @functools.cached_property
    def region(self) -> str:
        return self.connection.region(self.client)

    @functools.cached_property
    def account(self) -> str:
        return str(self.call("sts", "get_caller_identity")["Account"])

    @functools.cached_property
    def bucket(self) -> Bucket:
        return self.connection.bucket(lambda: self.region, lambda: self.account)

    @functools.cached_property
    def places(self) -> Places:
        return places_in(self.bucket.name, self.connection.data_root)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Mark a job as followed while the block runs.

        Thus an embedded server that was shut down stays down.
        """
        # A counter, since several threads may follow jobs of one service.
        with self._lock:
            self._followers += 1
        try:
            yield
        finally:
            with self._lock:
                self._followers -= 1

    def client(self, name: str) -> Any:
        if self._injected is not None:
            return self._injected(name)
        # boto3's clients may be shared by threads, but not the session that creates them.
        with self._lock:
            if name not in self._clients:
                try:
                    with translated(f"make the client of {name}"):
                        self._clients[name] = self.connection.make_client(name)
                except ModuleNotFoundError as error:
                    if error.name not in ("boto3", "botocore"):
                        raise
                    raise MissingDependency(
                        "raysm needs boto3 to submit jobs: python3 -m pip install boto3"
                    ) from error
            return self._clients[name]

    def call(self, client: str, operation: str, **parameters: Any) -> Any:
        """Call one operation: ``call("s3", "head_object", Bucket=…, Key=…)``.

        Raises:
            JobNotFound, ServiceError: The job does not exist, or the call failed.
        """
        with translated(operation, self.connection.remedies):
            try:
                return getattr(self.client(client), operation)(**parameters)
            except Exception as error:
                if self._injected is not None or not self.connection.reconnect(
                    error, is_followed=self._followers > 0
                ):
                    raise
                # Every client has the address of the server that is gone.
                with self._lock:
                    self._clients.clear()
            return getattr(self.client(client), operation)(**parameters)

    def pages(
        self, client: str, operation: str, *, token: str = "NextToken", **parameters: Any
    ) -> Iterator[Any]:
        """Yield the pages of an operation that lists; each is fetched when the caller needs it.

        botocore's paginators cannot restart the embedded server between two pages. ``token`` is the
        parameter for the next page, also in the answer; S3's answer has ``Next`` in front of it.
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
        return str(self._call_api(plan.api.create, **plan.request)[plan.api.arn_key])

    def describe(self, api: JobApi, name: str) -> dict[str, Any]:
        answer = dict(self._call_api(api.describe, **{api.name_key: name}))
        if api.name_key not in answer:  # botocore takes an answer without a body for an empty one
            raise ServiceError(
                f"{api.describe}: the answer is not AWS's: it is empty",
                is_transient=True,
                remedy=CHECK_PROXY,
            )
        return answer

    def update(self, api: JobApi, name: str, **changes: Any) -> None:
        assert api.update is not None, "checked by the caller"
        self._call_api(api.update, **{api.name_key: name, **changes})

    def stop(self, api: JobApi, name: str) -> None:
        self._call_api(api.stop, **{api.name_key: name})

    def delete(self, api: JobApi, name: str) -> None:
        self._call_api(api.delete, **{api.name_key: name})

    def tags(self, arn: str) -> dict[str, str]:
        pages = self.pages("sagemaker", "list_tags", ResourceArn=arn)
        return {tag["Key"]: tag["Value"] for page in pages for tag in page.get("Tags", ())}

    def summaries(
        self,
        api: JobApi,
        *,
        contains: str | None = None,
        sent: tuple[datetime | None, datetime | None] = (None, None),
        limit: int,
    ) -> Iterator[dict[str, Any]]:
        # 100 is the API's maximum.
        query: dict[str, Any] = {
            "SortBy": "CreationTime",
            "SortOrder": "Descending",
            "MaxResults": min(limit, 100),
        }
        optional = {
            "NameContains": contains or None,
            "CreationTimeAfter": sent[0],
            "CreationTimeBefore": sent[1],
        }
        query |= {name: value for name, value in optional.items() if value is not None}
        pages = self.pages("sagemaker", api.list, **query)
        yield from itertools.islice(
            (item for page in pages for item in page.get(api.summaries_key, ())), limit
        )

    def _call_api(self, operation: str, **parameters: Any) -> Any:
        from botocore import xform_name

        return self.call("sagemaker", xform_name(operation), **parameters)


def list_quotas(service: Service) -> Iterator[dict[str, Any]]:
    """Yield SageMaker's quotas in the service's region, the account's own before AWS's defaults.

    Service Quotas does not list quotas of the account that were never changed, so the defaults are
    needed; they must not replace the account's
    (https://docs.aws.amazon.com/general/latest/gr/sagemaker.html). There are thousands: a caller
    that has found its own stops reading.
    """
    for operation in ("list_service_quotas", "list_aws_default_service_quotas"):
        for page in service.pages(
            "service-quotas", operation, ServiceCode="sagemaker", MaxResults=100
        ):
            yield from page["Quotas"]


def services_in(target: Target, regions: Sequence[str]) -> list[Service]:
    """Return a service for each region, or that of the target if none is named."""
    if not regions:
        return [Service(target)]
    target = target.reaching(tuple(regions))
    return [Service(target.in_region(region)) for region in regions]


def connect(on: "Target | Service | None") -> Service:
    if isinstance(on, Service):
        return on
    return Service(Local() if on is None else on)


@contextlib.contextmanager
def translated(action: str, remedies: Mapping[str, str] | None = None) -> Iterator[None]:
    """Translate botocore's errors; ``remedies`` by beginnings of codes precede those for AWS."""
    try:
        yield
    except Exception as error:
        translation = _translate(action, error, {**REMEDIES, **(remedies or {})})
        if translation is None:
            raise
        raise translation from error


def _translate(action: str, error: Exception, remedies: Mapping[str, str]) -> ServiceError | None:
    try:
        from boto3.exceptions import Boto3Error
        from botocore import exceptions
        from botocore.parsers import ResponseParserError
    except ImportError:
        return None
    match error:
        case exceptions.ClientError(response=response):
            return _refusal(action, response.get("Error", {}), remedies)
        case exceptions.NoCredentialsError() | exceptions.PartialCredentialsError():
            return ServiceError(
                f"{action}: no AWS credentials were found",
                remedy=(
                    "run aws configure or aws sso login, "
                    "or give --profile … (in Python: AWS(profile=…))"
                ),
            )
        # Not one of botocore's exceptions: the page of a proxy, or of a network that wants a login
        # first.
        case ResponseParserError():
            return ServiceError(
                f"{action}: the answer is not AWS's: {error}", is_transient=True, remedy=CHECK_PROXY
            )
        case exceptions.NoRegionError():
            return ServiceError("no AWS region is set", remedy=SET_REGION)
        # With SSO, the token itself has expired, so botocore does not even make the call.
        case (
            exceptions.SSOError()
            | exceptions.TokenRetrievalError()
            | exceptions.CredentialRetrievalError()
        ):
            return CredentialsExpired(f"{action}: {error}", remedy=LOGIN)
        case (
            exceptions.HTTPClientError()
            | exceptions.ConnectionError()
            | exceptions.IncompleteReadError()
        ):
            return ServiceError(f"{action}: {error}", is_transient=True)
        case exceptions.BotoCoreError():
            return ServiceError(f"{action}: {error}")
        # boto3's transfers wrap botocore's error, which has the code.
        case (
            Boto3Error(__cause__=exceptions.ClientError() as cause)
            | Boto3Error(__cause__=None, __context__=exceptions.ClientError() as cause)
        ):
            return _refusal(action, cause.response.get("Error", {}), remedies)
        case Boto3Error():
            return ServiceError(f"{action}: {error}")
    return None


def _refusal(action: str, error: Mapping[str, str], remedies: Mapping[str, str]) -> ServiceError:
    code = error.get("Code", "")
    message = error.get("Message", "")
    # SageMaker has no code for a missing job: only the message of a ValidationException says so.
    is_absent = any(words in message.lower() for words in ("not found", "could not find"))
    if "_job" in action and (
        code == "ResourceNotFound" or (code == "ValidationException" and is_absent)
    ):
        return JobNotFound(f"there is no such job: {message}", code=code)
    text = f"{action}: {code}: {message}"
    if code.startswith(EXPIRED):
        return CredentialsExpired(text, code=code, remedy=LOGIN)
    remedy = next((text for begin, text in remedies.items() if code.startswith(begin)), "")
    return ServiceError(text, code=code, is_transient=code.startswith(TRANSIENT), remedy=remedy)
