"""Requests that fail on their way, told with the words and in the protocols of AWS's services."""

import contextlib
import json
from random import Random

from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from raysm.local.scenario import Api, Scenario
from raysm.local.server.faults import Call, Faults
from raysm.local.server.validation import ApiError
from tests.support.hand_clock import HandClock


def signed(service, **headers):
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential=a/20261122/us-east-1/{service}/aws4_request, x", **headers}


def requested(headers, body=b""):
    return Call(Request(EnvironBuilder(method="POST", headers=headers, data=body).get_environ()))


def call(service="sagemaker", operation="ListTags", **parameters):
    headers = signed(service, **{"X-Amz-Target": f"SageMaker.{operation}"})
    return requested(headers, json.dumps(parameters).encode())


def test_shares_of_requests_are_throttled_or_find_the_service_unavailable():
    faults, codes = Faults(Scenario(api=Api(throttled=0.2, unavailable=0.3)), Random(1)), []
    for _ in range(1000):
        try:
            faults.refuse(call())
        except ApiError as error:
            codes.append(error.code)
    assert 150 < codes.count("ThrottlingException") < 250
    assert 250 < codes.count("InternalFailure") < 350


def rated(**regions):
    scenario = Scenario(regions={name: Scenario(api=Api(**switches)) for name, switches in regions.items()})
    clock = HandClock()
    return Faults(scenario, Random(0), clock), clock


def in_region(region, operation="ListTrainingJobs"):
    headers = {
        "Authorization": f"AWS4-HMAC-SHA256 Credential=a/20261122/{region}/sagemaker/aws4_request, x",
        "X-Amz-Target": f"SageMaker.{operation}",
    }
    return requested(headers)


def test_of_a_rate_so_many_requests_a_second_are_answered_and_those_that_were_refused_count_for_nothing():
    faults, clock = rated(**{"eu-west-1": {"rates": {"ListTrainingJobs": 0.5}}})
    answered = 0
    for _ in range(1000):
        clock.pass_s(0.1)
        with contextlib.suppress(ApiError):
            faults.refuse(in_region("eu-west-1"))
            answered += 1
    # Never more than the rate and what is there at its beginning; less, by what a full bucket cannot take.
    assert 45 <= answered <= 51
