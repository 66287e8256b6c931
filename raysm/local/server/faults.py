"""Requests as AWS's protocols have them, and their refusals by the scenario.

The server's own paths do not fail.
"""

import functools
import io
import json
import re
import threading
from collections.abc import Mapping
from random import Random
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from werkzeug.wrappers import Request

from raysm.core.protocol.home import Clock
from raysm.core.protocol.names import LOCAL_REGION
from raysm.local.scenario import Api, Scenario
from raysm.local.server.batch import parse_operation
from raysm.local.server.moto_services import ACCOUNT
from raysm.local.server.validation import ApiError

SCOPE = re.compile(r"Credential=[^/]*/\d+/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
"""The region and the service in a signature."""

MAX_REQUEST = 16 << 20
DENIED = (
    f"User: arn:aws:sts::{ACCOUNT}:assumed-role/raysm-local/session is not authorized to perform: "
    f"{{0}} because no identity-based policy allows the {{0}} action"
)
FAILURE = ("InternalFailure", "The request processing has failed because of an unknown error.")
S3_FAILURE = ("InternalError", "We encountered an internal error. Please try again.")
REMOTE_DEBUG = "sagemaker:EnableRemoteDebug"

REST_IN_JSON = ("batch",)
"""Services with the operation in the path, and JSON bodies."""

REST_IN_XML = ("", "cloudfront", "route53", "s3")
"""Services with the operation in the path, and XML bodies; a request without a signature is one to
S3."""

PREFIXES = {"monitoring": "cloudwatch"}


class Call:
    """One request to AWS; its body is read only for what needs it, because an upload may be large.

    Attributes:
        request: The request.
        service: From the signature: ``sagemaker``, ``s3``; empty without one.
        region: From the signature, since all regions have this endpoint; without one the server's
            own.
        target: ``SageMaker.ListTags`` in some protocols; else empty.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        match = SCOPE.search(request.headers.get("Authorization", ""))
        self.region, self.service = match.groups() if match else (LOCAL_REGION, "")
        self.target: str = request.headers.get("X-Amz-Target", "")

    @property
    def _is_form(self) -> bool:
        return self.request.headers.get("Content-Type", "").startswith(
            "application/x-www-form-urlencoded"
        )

    @property
    def in_json(self) -> bool:
        if self.target or self.service in REST_IN_JSON:
            return True
        return not self._is_form and self.service not in REST_IN_XML

    @functools.cached_property
    def operation(self) -> str:
        if self.target:
            return self.target.rpartition(".")[2]
        if self.service in REST_IN_JSON:
            return parse_operation(self.request.method, self.request.path)
        return (
            parse_qs(self.body.decode(errors="replace")).get("Action", [""])[0]
            if self._is_form
            else ""
        )

    @functools.cached_property
    def body(self) -> bytes:
        if (self.request.content_length or 0) > MAX_REQUEST:
            raise ApiError(
                "RequestEntityTooLargeException", f"a request has at most {MAX_REQUEST} bytes", 400
            )
        body = self.request.get_data()
        self.request.environ["wsgi.input"] = io.BytesIO(body)
        return body

    @functools.cached_property
    def parameters(self) -> Mapping[str, Any]:
        try:
            parameters = json.loads(self.body or b"{}")
        except ValueError as error:
            raise ApiError("SerializationException", f"the request is not JSON: {error}") from None
        if not isinstance(parameters, dict):
            raise ApiError("SerializationException", "the request is not a JSON object")
        return parameters

    @property
    def action(self) -> str:
        """The action that a policy allows, ``sagemaker:ListTags``."""
        return f"{PREFIXES.get(self.service, self.service)}:{self.operation}"


class Faults:
    def __init__(self, scenario: Scenario, chance: Random, clock: Clock | None = None) -> None:
        self._scenario = scenario
        self._chance = chance
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        # Token buckets by region and operation: the tokens left, and the time at which they were
        # counted.
        self._left: dict[tuple[str, str], tuple[float, float]] = {}

    def refuse(self, call: Call) -> None:
        switches = self._scenario.of(call.region).api
        if call.action in switches.denied or _has_denied_condition(switches, call):
            code = "AccessDeniedException" if call.in_json else "AccessDenied"
            raise ApiError(code, DENIED.format(call.action), 403)
        is_s3 = call.service == "s3"
        # One draw for both, so that their shares add up.
        drawn = self._chance.random()
        if drawn < switches.throttled or not self._is_within_rate(
            call, switches.rates.get(call.operation)
        ):
            # botocore retries these codes.
            if is_s3:
                raise ApiError("SlowDown", "Please reduce your request rate.", 503)
            raise ApiError(
                "ThrottlingException" if call.in_json else "Throttling", "Rate exceeded", 400
            )
        if drawn < switches.throttled + switches.unavailable:
            code, message = S3_FAILURE if is_s3 else FAILURE
            raise ApiError(code, message, 500)

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
    if REMOTE_DEBUG not in switches.denied or not call.target:
        return False
    return bool((call.parameters.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"))


def xml_error(error: ApiError, service: str) -> bytes:
    """Return an error in XML; S3's has no envelope."""
    content = f"<Code>{escape(error.code)}</Code><Message>{escape(error.message)}</Message>"
    if service == "s3":
        return f"<Error>{content}<RequestId>0</RequestId></Error>".encode()
    told = f"<Error><Type>Sender</Type>{content}</Error>"
    return f"<ErrorResponse>{told}<RequestId>0</RequestId></ErrorResponse>".encode()
