"""Refuse requests, or drop their answers, as the scenario says.

Requests to the server's own paths do not fail.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from raysm.contract.home import Clock
from raysm.contract.names import LOCAL_REGION
from raysm.local.scenario import Api, Scenario
from raysm.local.server.moto_services import ACCOUNT
from raysm.local.server.validation import ApiError

SCOPE = re.compile(r"Credential=[^/]*/\d+/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
"""The region and the service in a signature."""

REMOTE_DEBUG = "sagemaker:EnableRemoteDebug"

REST_IN_JSON = ("batch",)
"""Services with the operation in the path, and JSON bodies."""

REST_IN_XML = ("", "cloudfront", "route53", "s3")
"""Services with the operation in the path, and XML bodies; a request without a signature is one to S3."""

PREFIXES = {"monitoring": "cloudwatch"}
"""Prefixes of actions that differ from the service's name in the signature."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request to AWS."""

    service: str
    """From the signature: ``sagemaker``, ``s3``; empty without one."""
    region: str
    """From the signature; without one the server's own."""
    operation: str
    """``ListTags``; empty if the protocol does not name it, as for S3."""
    parameters: Mapping[str, Any]
    """The parameters of a request in JSON."""
    in_json: bool
    """The answer is JSON; otherwise it is XML."""

    @classmethod
    def of(
        cls,
        headers: Mapping[str, str],
        body: Callable[[], bytes],
        parameters: Callable[[], Mapping[str, Any]],
        operation_of_path: Callable[[], str] = str,
    ) -> "Call":
        """Read a request.

        Args:
            headers: The headers.
            body: Returns the body; called only for forms, because an upload may be large.
            parameters: Returns the body as JSON; called only for requests in JSON.
            operation_of_path: Returns the operation of method and path; called for services in REST_IN_JSON.
        """
        match = SCOPE.search(headers.get("Authorization", ""))
        region, service = match.groups() if match else (LOCAL_REGION, "")
        target = headers.get("X-Amz-Target", "")
        if target:
            operation = target.rpartition(".")[2]
            return cls(service=service, region=region, operation=operation, parameters=parameters(), in_json=True)
        if service in REST_IN_JSON:
            named = operation_of_path()
            return cls(service=service, region=region, operation=named, parameters=parameters(), in_json=True)
        operation, in_json = "", service not in REST_IN_XML
        if headers.get("Content-Type", "").startswith("application/x-www-form-urlencoded"):
            operation, in_json = parse_qs(body().decode(errors="replace")).get("Action", [""])[0], False
        return cls(service=service, region=region, operation=operation, parameters={}, in_json=in_json)

    @property
    def action(self) -> str:
        """The action that a policy allows, ``sagemaker:ListTags``."""
        return f"{PREFIXES.get(self.service, self.service)}:{self.operation}"


class Faults:
    """Decides which requests fail; every method may be called from any thread."""

    def __init__(self, scenario: Scenario, chance: Random, clock: Clock | None = None) -> None:
        self._scenario = scenario
        self._chance = chance
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        # Token buckets by region and operation: the tokens left, and the time at which they were counted.
        self._left: dict[tuple[str, str], tuple[float, float]] = {}

    def refuse(self, call: Call) -> None:
        """Raise ApiError for an action that the policy denies, and for throttled and failing requests."""
        switches = self._scenario.of(call.region).api
        if call.action in switches.denied or _has_denied_condition(switches, call):
            raise ApiError("AccessDeniedException" if call.in_json else "AccessDenied", _denial(call), 403)
        # One draw for both, so that their shares add up.
        drawn = self._chance.random()
        if drawn < switches.throttled or not self._is_within_rate(call, switches.rates.get(call.operation)):
            raise _throttled(call)
        if drawn < switches.throttled + switches.unavailable:
            raise _unavailable(call)

    def loses_answer(self, region: str) -> bool:
        """Return whether to drop the answer of a request that was carried out."""
        return self._chance.random() < self._scenario.of(region).api.answers_lost

    def _is_within_rate(self, call: Call, rate: float | None) -> bool:
        if rate is None:
            return True
        with self._lock:
            now = self._clock.now()
            left, at_s = self._left.get((call.region, call.operation), (1.0, now))
            # At least one token, else a rate below one a second would refuse every request.
            left = min(max(1.0, rate), left + (now - at_s) * rate)
            # A refused request takes no token.
            is_within = left >= 1.0
            self._left[call.region, call.operation] = (left - 1.0 if is_within else left, now)
        return is_within


def _has_denied_condition(switches: Api, call: Call) -> bool:
    # UpdateTrainingJob has the key too.
    config = call.parameters.get("RemoteDebugConfig") or {}
    return REMOTE_DEBUG in switches.denied and bool(config.get("EnableRemoteDebug"))


def _denial(call: Call) -> str:
    return (
        f"User: arn:aws:sts::{ACCOUNT}:assumed-role/raysm-local/session is not authorized to perform: {call.action} "
        f"because no identity-based policy allows the {call.action} action"
    )


def _throttled(call: Call) -> ApiError:
    # botocore retries these codes.
    if call.service == "s3":
        return ApiError("SlowDown", "Please reduce your request rate.", 503)
    return ApiError("ThrottlingException" if call.in_json else "Throttling", "Rate exceeded", 400)


def _unavailable(call: Call) -> ApiError:
    if call.service == "s3":
        return ApiError("InternalError", "We encountered an internal error. Please try again.", 500)
    return ApiError("InternalFailure", "The request processing has failed because of an unknown error.", 500)


def xml_error(error: ApiError, service: str) -> bytes:
    """Return an error in XML; S3's has no envelope."""
    content = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    if service == "s3":
        return f"<Error>{content}<RequestId>0</RequestId></Error>".encode()
    return (
        f"<ErrorResponse><Error><Type>Sender</Type>{content}</Error><RequestId>0</RequestId></ErrorResponse>".encode()
    )
