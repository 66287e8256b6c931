"""Prices and quotas of an embedded SageMaker that plays a scenario are the scenario's, on the command line too."""

import json

import pytest

from raysm.cli.main import main
from tests.support.embedded_grids import embedded

SCENARIO = """
[regions.us-east-1.market]
usd_per_hour = {"ml.g5.xlarge" = 2.0, "ml.p5.48xlarge" = 90.0}
quotas = {"ml.g5.xlarge" = 3, "ml.p5.48xlarge" = 0}
spot_quotas = {"ml.g5.xlarge" = 5}

[regions.eu-west-1.market]
usd_per_hour = {"ml.g5.xlarge" = 1.5}
quotas = {"ml.g5.xlarge" = 1}
"""
REGIONS = ("--regions", "us-east-1,eu-west-1")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with embedded(tmp_path_factory.mktemp("market"), SCENARIO) as folder:
        yield folder


@pytest.mark.usefixtures("home")
class TestWhereAScenarioIsPlayed:
    """One server for all of these."""

    def test_prices_are_its_own(self, capsys):
        assert main(["prices", "ml.g5.xlarge", *REGIONS, "--json"]) == 0
        prices = json.loads(capsys.readouterr().out)
        assert [(each["region"], each["usd_per_hour"]) for each in prices] == [("eu-west-1", 1.5), ("us-east-1", 2.0)]
        assert {each["as_of"] for each in prices} == {"2026-11-01"}

    def test_quotas_are_its_own_and_so_are_their_prices(self, capsys):
        assert main(["quotas", *REGIONS, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(each["region"], each["spot"], each["limit"], each["usd_per_hour"]) for each in rows] == [
            ("eu-west-1", False, 1, 1.5),
            ("us-east-1", False, 3, 2.0),
            ("us-east-1", True, 5, 2.0),
        ]

    def test_a_quota_of_zero_is_an_answer_where_its_type_is_asked_for(self, capsys):
        assert main(["quotas", "ml.p5.48xlarge", "--regions", "us-east-1"]) == 0
        assert "0 instances; 90.0000 USD/h as of 2026-11-01" in capsys.readouterr().out

    def test_a_type_without_a_price_there_has_not_that_of_aws(self, capsys):
        assert main(["prices", "ml.m5.xlarge", "--regions", "us-east-1"]) != 0
        assert (
            "no price of ml.m5.xlarge in us-east-1 is at hand; the scenario says what it costs"
            in capsys.readouterr().err
        )

    def test_lists_of_aws_are_not_brought_for_it(self, capsys):
        assert main(["prices", "--refresh", "--regions", "us-east-1"]) != 0
        assert "drop --refresh" in capsys.readouterr().err
