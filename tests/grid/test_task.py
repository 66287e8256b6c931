"""Rows, attempts and rules check their fields."""

import math

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.task import Attempt, Rules, Task

HOUR = Attempt(task="a", number=1, name="g-a-a1", region="us-east-1", instance_type="ml.m5.large", count=2)


def attempt(**changes):
    values = {name: getattr(HOUR, name) for name in ("task", "number", "name", "region", "instance_type", "count")}
    return Attempt(**values | changes)


def test_of_a_choice_it_has_the_type_and_the_price_that_the_service_took():
    chosen = attempt(usd_per_hour=9.0, choice='{"ml.m5.large": 1.0, "ml.p5.48xlarge": 9.0}')
    assert chosen.types == ("ml.m5.large", "ml.p5.48xlarge")
    assert chosen.settled("ml.m5.large") == {"instance_type": "ml.m5.large", "usd_per_hour": 1.0, "choice": ""}
    assert chosen.settled(None) == {}
    assert (HOUR.types, HOUR.settled("ml.m5.large")) == (("ml.m5.large",), {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parallel", 0),
        ("retries", -1),
        ("brake", -1),
        ("patience_s", 0),
        ("budget_usd", 0),
        ("budget_usd", math.nan),
        ("give_up_s", math.nan),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name, value):
    with pytest.raises(InvalidRequest, match=rf"Rules\({name}=…\).*{value}"):
        Rules(**{name: value})


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"x": 2}},
        {"image": "other"},
        {"inputs": {"train": "s3://b/c"}},
        {"manifests": {"train": "s3://b/c"}},
    ],
)
def test_what_decides_the_result_changes_the_digest(change):
    assert Task(key="a").digest != Task(key="a", **change).digest
