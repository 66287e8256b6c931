"""``raysm quotas``: what the account may have, what grids of here use of it, and what it costs."""

import pytest

from raysm.cli.main import main
from raysm.cli.quotas import fitting, in_use_here
from raysm.client.costs.prices import PriceTable, RegionPrices
from raysm.grid.place import Place, Quota
from raysm.grid.store import path_of
from tests.support.grids import Bench
from tests.support.homes import in_home

G5 = Place(region="us-east-1", instance_type="ml.g5.xlarge")
SPOT = Place(region="us-east-1", instance_type="ml.g5.xlarge", spot=True)
P5 = Place(region="eu-west-1", instance_type="ml.p5.48xlarge")
QUOTAS = {G5: Quota(limit=40), SPOT: Quota(limit=0), P5: Quota(limit=2)}
PRICES = PriceTable.of([RegionPrices(region="us-east-1", as_of="2026-11-01", version="v1", usd={"ml.g5.xlarge": 1.4})])


def test_what_is_zero_is_left_out_unless_its_type_is_asked_for():
    assert [each.place for each in fitting(QUOTAS, {}, PRICES)] == [P5, G5]
    assert [each.place for each in fitting(QUOTAS, {}, PRICES, is_asked=True)] == [P5, G5, SPOT]


def test_each_has_its_limit_what_is_in_use_and_its_price_with_its_date():
    unknown, known = fitting(QUOTAS, {G5: 7}, PRICES)
    assert known.as_dict() == {
        "region": "us-east-1", "instance_type": "ml.g5.xlarge", "spot": False, "limit": 40, "in_use_by_grids": 7,
        "usd_per_hour": 1.4, "as_of": "2026-11-01", "version": "v1",
    }  # fmt: skip
    assert (unknown.in_use, unknown.as_dict()["usd_per_hour"]) == (0, None)


def test_what_grids_of_this_machine_have_open_is_in_use(tmp_path):
    with in_home(tmp_path):
        path_of("g").parent.mkdir(parents=True)
        bench = Bench(path_of("g").parent, rows=3)
        assert in_use_here() == {}
        bench.step()
        assert sum(in_use_here().values()) == bench.store.open_count() > 0
        bench.store.close()


def test_a_target_without_an_answer_is_an_error_and_no_empty_table(tmp_path, capsys):
    role = ["--on", "aws", "--role", "arn:aws:iam::123456789012:role/r", "--profile", "none-such"]
    with in_home(tmp_path):
        assert main(["quotas", "ml.g5.xlarge", "--regions", "us-east-1", *role]) != 0
    out, error = capsys.readouterr()
    assert out == ""
    assert "none-such" in error


def test_a_list_of_regions_has_no_gaps(capsys):
    with pytest.raises(SystemExit):
        main(["quotas", "--regions", "us-east-1,,eu-west-1"])
    assert "is not a list of names" in capsys.readouterr().err
