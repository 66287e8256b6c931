"""``raysm prices``: dated lines, the cheapest region first, and no price where none is known."""

import json

import pytest

from raysm.cli.main import main
from raysm.cli.prices import table_of
from raysm.client.costs.prices import PriceTable, RegionPrices

TABLE = PriceTable.of(
    [
        RegionPrices(region="us-east-1", as_of="2026-09", version="a", usd={"ml.g5.xlarge": 1.4, "ml.m5.large": 0.1}),
        RegionPrices(region="eu-west-1", as_of="2026-10", version="b", usd={"ml.g5.xlarge": 1.2}),
    ]
)


def test_of_one_type_the_cheapest_region_comes_first():
    assert [region for region, _, _ in table_of(TABLE, "ml.g5.xlarge", [])] == ["eu-west-1", "us-east-1"]


def test_all_are_by_region_and_type_and_some_regions_alone_where_they_are_asked_for():
    assert [each[:2] for each in table_of(TABLE, None, [])] == [
        ("eu-west-1", "ml.g5.xlarge"),
        ("us-east-1", "ml.g5.xlarge"),
        ("us-east-1", "ml.m5.large"),
    ]
    assert [each[0] for each in table_of(TABLE, None, ["eu-west-1"])] == ["eu-west-1"]


def test_every_line_has_its_date_and_version_and_what_is_old_says_so(capsys):
    assert main(["prices", "ml.m5.xlarge"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("us-east-1        ml.m5.xlarge     0.2300 USD/h  as of 2025, version raysm-2025, ")
    assert line.endswith("days old: raysm prices --refresh")


def test_as_json_it_is_a_list_for_programs(capsys):
    assert main(["prices", "--regions", "ap-south-1", "--json"]) == 0
    prices = json.loads(capsys.readouterr().out)
    assert {price["region"] for price in prices} == {"ap-south-1"}
    assert {price["version"] for price in prices} == {"20260921172504"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["ml.none.large"], "no price of ml.none.large in any region is at hand; bring it: raysm prices --refresh"),
        (["ml.g5.2large"], "no price of ml.g5.2large (did you mean ml.g5.2xlarge?) in any region is at hand"),
        (["--regions", "sa-east-1"], "no price of any type in sa-east-1"),
        (["--refresh"], "--refresh needs the regions whose prices to fetch"),
    ],
)
def test_what_is_not_known_is_said_with_the_way_to_it(argv, message, capsys):
    assert main(["prices", *argv]) == 2
    assert message in capsys.readouterr().err


def test_a_list_of_regions_has_no_gaps(capsys):
    with pytest.raises(SystemExit):
        main(["prices", "--regions", "us-east-1,,"])
    assert "is not a list of names" in capsys.readouterr().err
