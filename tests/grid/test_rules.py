"""Rules that cannot be are refused when they are made."""

import math

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rules import Rules


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


def test_by_default_there_is_no_budget_and_data_stay_where_they_are():
    assert (Rules().budget_usd, Rules().move_data) == (None, False)
