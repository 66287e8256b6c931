"""The commands ``raysm prices``, ``raysm quotas`` and ``raysm image``."""

import json

import pytest

from raysm.cli.main import main
from raysm.features.grid.quotas_command import in_use_here
from raysm.features.grid.store.store import path_of
from tests.support.embedded_grids import embedded
from tests.support.grids import Bench
from tests.support.homes import in_home


def test_every_line_has_its_date_and_version_and_what_is_old_says_so(capsys):
    assert main(["prices", "ml.m5.xlarge"]) == 0
    line, way = capsys.readouterr().out.splitlines()
    assert line.startswith(
        "us-east-1        ml.m5.xlarge           0.2300 USD/h  as of 2025, version raysm-2025, "
    )
    assert line.endswith("days old")
    assert way == "new prices: raysm prices --refresh --on aws --regions us-east-1"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["ml.none.large"],
            "no price of ml.none.large in any region is known; check the name, or fetch it: raysm",
        ),
        (["--refresh"], "--refresh needs the regions whose prices to fetch"),
    ],
)
def test_what_is_not_known_is_said_with_the_way_to_it(argv, message, capsys):
    assert main(["prices", *argv]) == 2
    assert message in capsys.readouterr().err


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
        assert [(each["region"], each["usd_per_hour"]) for each in prices] == [
            ("eu-west-1", 1.5),
            ("us-east-1", 2.0),
        ]
        assert {each["as_of"] for each in prices} == {"2026-11-01"}

    def test_quotas_are_its_own_and_so_are_their_prices(self, capsys):
        assert main(["quotas", *REGIONS, "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [
            (each["region"], each["spot"], each["limit"], each["usd_per_hour"]) for each in rows
        ] == [
            ("eu-west-1", False, 1, 1.5),
            ("us-east-1", False, 3, 2.0),
            ("us-east-1", True, 5, 2.0),
        ]

    def test_a_quota_of_zero_is_an_answer_where_its_type_is_asked_for(self, capsys):
        assert main(["quotas", "ml.p5.48xlarge", "--regions", "us-east-1"]) == 0
        assert "0 instances    90.0000 USD/h  as of 2026-11-01" in capsys.readouterr().out
        assert main(["quotas", "ml.m5.large"]) == 2
        assert "above 0 in the embedded SageMaker; add --on aws" in capsys.readouterr().err

    def test_a_type_without_a_price_there_has_not_that_of_aws(self, capsys):
        assert main(["prices", "ml.m5.xlarge", "--regions", "us-east-1"]) != 0
        assert (
            "no price of ml.m5.xlarge in us-east-1 is known; set it in the scenario"
            in capsys.readouterr().err
        )

    def test_lists_of_aws_are_not_brought_for_it(self, capsys):
        assert main(["prices", "--refresh", "--regions", "us-east-1"]) != 0
        assert "drop --refresh" in capsys.readouterr().err


def test_what_grids_of_this_machine_have_open_is_in_use(tmp_path):
    with in_home(tmp_path):
        path_of("g").parent.mkdir(parents=True)
        bench = Bench(path_of("g").parent, rows=3)
        assert in_use_here() == {}
        bench.step()
        assert sum(in_use_here().values()) == bench.store.attempts.open_count() > 0
        bench.store.close()


def test_a_target_without_an_answer_is_an_error_and_no_empty_table(tmp_path, capsys):
    role = ["--on", "aws", "--role", "arn:aws:iam::123456789012:role/r", "--profile", "none-such"]
    with in_home(tmp_path):
        assert main(["quotas", "ml.g5.xlarge", "--regions", "us-east-1", *role]) != 0
    out, error = capsys.readouterr()
    assert out == ""
    assert "none-such" in error


@pytest.mark.parametrize(
    ("argv", "kind", "registry"),
    [
        (["--region", "eu-west-1"], "cpu", "763104351884.dkr.ecr.eu-west-1.amazonaws.com"),
        (
            ["--region", "cn-north-1", "--gpu"],
            "gpu",
            "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn",
        ),
    ],
)
def test_the_commands_build_on_awss_image_of_the_region_and_push_to_ones_own(
    argv, kind, registry, capsys
):
    assert main(["image", *argv]) == 0
    commands = capsys.readouterr().out
    assert f"-f containers/Dockerfile --build-arg BASE_IMAGE={registry}/pytorch:" in commands
    assert f"docker push ACCOUNT{registry[12:]}/raysm:{kind}" in commands
