"""What is asked of a cluster that stays."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request import JobRequest
from raysm.request.codec import from_json, to_json
from raysm.request.session import SessionWorkload


def test_it_travels_as_json():
    request = JobRequest(name="digits", workload=SessionWorkload(idle_timeout_s=60.0, budget_usd=2.0, usd_per_hour=1.0))
    assert from_json(JobRequest, to_json(request)) == request
    assert to_json(request)["workload"]["kind"] == "session"


@pytest.mark.parametrize("name", ["idle_timeout_s", "idle_timeout_detached_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "30m"])
def test_a_time_that_is_none_is_refused_with_its_name(name, value):
    with pytest.raises(InvalidRequest, match=f"{name} must be a number of seconds above 0"):
        SessionWorkload(**{name: value})


@pytest.mark.parametrize(
    "fields", [{"budget_usd": 0, "usd_per_hour": 1.0}, {"usd_per_hour": -1.0}, {"usd_per_hour": "1"}]
)
def test_money_that_is_none_is_refused(fields):
    with pytest.raises(InvalidRequest, match="must be a number above 0"):
        SessionWorkload(**fields)
