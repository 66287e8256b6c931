"""Rules that cannot be are refused when they are made."""

import math

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.rules import MOST_ROWS, Rules


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parallel", 0),
        ("retries", -1),
        ("brake", -1),
        ("patience_s", 0),
        ("budget_usd", 0),
        ("pack", 0),
        ("pack", 1001),
        ("pack_minutes", 0),
        ("row_cpus", 0),
        ("row_gpus", -1),
        ("budget_usd", math.nan),
        ("give_up_s", math.nan),
        ("pack_minutes", math.nan),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_name(name, value):
    with pytest.raises(InvalidRequest, match=rf"Rules\({name}=…\).*{value}"):
        Rules(**{name: value})


def test_by_default_there_is_no_budget_and_data_stay_where_they_are():
    assert (Rules().budget_usd, Rules().move_data) == (None, False)


def test_rows_share_jobs_only_where_it_is_said():
    assert (Rules().packs, Rules().most_rows) == (False, 1)
    assert (Rules(pack=20).packs, Rules(pack=20).most_rows) == (True, 20)
    assert (Rules(pack_minutes=30).packs, Rules(pack_minutes=30).most_rows) == (True, MOST_ROWS)
    assert Rules(pack=20, row_gpus=0).row_gpus == 0
