"""How long a job may run, how it is shut off, and which metrics are read from its log."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request.limits import MAX_RUNTIME_S, Limits, MetricDefinition, Security


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_runtime_s": MAX_RUNTIME_S + 1}, r"\(28 days\)"),
        ({"max_wait_s": 10}, "max_wait_s belongs to spot=True"),
        ({"spot": True, "max_runtime_s": 100, "max_wait_s": 99}, "max_wait_s=99 must be at least max_runtime_s=100"),
        ({"retry_attempts": 31}, "1 to 30, got 31"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_with_its_value(fields, message):
    with pytest.raises(InvalidRequest, match=message):
        Limits(**fields)


@pytest.mark.parametrize("fields", [{"subnets": ["subnet-1"]}, {"security_groups": ["sg-1"]}])
def test_half_a_network_is_refused(fields):
    with pytest.raises(InvalidRequest, match="go together; give both or neither"):
        Security(**fields)


def test_a_shell_into_an_isolated_job_is_refused():
    with pytest.raises(InvalidRequest, match="remote_debug needs a network; drop it or isolation"):
        Security(remote_debug=True, isolation=True)


@pytest.mark.parametrize(
    ("name", "regex", "message"),
    [
        ("", "x", "1 to 255 characters, got ''"),
        ("loss", "", "1 to 500 characters, got 0"),
        ("loss", "loss=(", r"'loss=\(' is not a regular expression"),
    ],
)
def test_a_metric_that_the_service_could_not_find_is_refused(name, regex, message):
    with pytest.raises(InvalidRequest, match=message):
        MetricDefinition(name, regex)
