"""What a job will cost: a range of every phase that is billed, and no number where nobody knows."""

import pytest

from raysm import Cluster, InstanceGroup, JobRequest, Limits, Script
from raysm.client.costs.bill import FORMING, IMAGE, PACKAGES, Span, forecast, most_expensive
from raysm.client.costs.prices import Price, price_of

PRICE = Price(usd_per_hour=3.6, origin="a test's")
SHAPE = Cluster("ml.g5.xlarge", count=4)  # with disks of its own: no volume


def expected(cluster=SHAPE, **fields):
    given = {"region": "us-east-1", "price": PRICE, "computing_s": 100.0, "input_bytes": 10**9, "output_bytes": 0}
    return forecast(cluster, **given | {"lacks_ray": True} | fields)


def test_every_phase_that_is_billed_has_a_best_and_a_worst():
    phases = expected().phases
    assert phases == {
        "image": IMAGE,
        "packages": PACKAGES,
        "download": Span(2, 20),
        "forming": FORMING,
        "computing": Span(70, 150),
        "upload": Span(0, 0),
    }
    assert all(span.least_s <= span.most_s for span in phases.values())


def test_the_money_is_that_of_all_instances_at_best_and_at_worst():
    job = expected()
    assert job.billed == Span(
        IMAGE.least_s + PACKAGES.least_s + 2 + FORMING.least_s + 70,
        IMAGE.most_s + PACKAGES.most_s + 20 + FORMING.most_s + 150,
    )
    assert job.usd == (pytest.approx(4 * 0.001 * job.billed.least_s), pytest.approx(4 * 0.001 * job.billed.most_s))


def test_a_size_that_nobody_knows_makes_the_worst_unknown_and_not_nothing():
    job = expected(output_bytes=None)
    assert job.billed.most_s is None
    assert job.usd == (pytest.approx(4 * 0.001 * job.billed.least_s), None)
    billed, money = (text for _, text in job.lines("ml.g5.xlarge"))
    assert billed.startswith("at least 2 min of each instance (")
    assert money.startswith("at least 0.57 USD: 4 x 3.6 USD/h (a test's)")


def most(cluster, region="us-east-1", price=price_of, **limits):
    request = JobRequest(name="a", workload=Script("s.py"), cluster=cluster, limits=Limits(**limits))
    return most_expensive(request, region, price)


def test_of_a_job_about_which_nothing_is_known_its_limit_says_what_it_costs_at_most():
    assert most(Cluster("ml.m5.large", count=2), max_runtime_s=3600) == (
        "at most 0.24 USD with the volumes: 2 x ml.m5.large at 0.115 USD/h (on demand in us-east-1, as of 2026-09), "
        "for the 60 min that it may take"
    )


def test_of_a_choice_of_types_the_dearest_is_the_most_and_one_without_a_price_makes_it_unknown():
    prices = {"ml.g5.xlarge": 2.0, "ml.p3.2xlarge": 5.0}

    def price(name, region):
        return Price(usd_per_hour=prices[name], origin="a test's") if name in prices else None

    cluster = Cluster("ml.g5.xlarge", count=2, alternatives=("ml.p3.2xlarge",))
    dearest = most(Cluster("ml.p3.2xlarge", count=2), price=price, max_runtime_s=3600)
    assert most(cluster, price=price, max_runtime_s=3600) == dearest
    more = Cluster("ml.g5.xlarge", alternatives=("ml.p3.2xlarge", "ml.p4d.24xlarge"))
    assert most(more, price=price) == "unknown: no price of ml.p4d.24xlarge in us-east-1 is at hand"


def test_follow_ups_and_warm_pools_are_part_of_the_most():
    text = most(Cluster("ml.m5.large", keep_alive_s=1800), max_runtime_s=3600, max_restarts=2)
    assert text.startswith("at most 0.42 USD with the volumes: ")
    assert text.endswith("for the 3.5 h that it may take, its warm pool included")


def test_the_most_counts_the_volumes_of_all_instances_and_is_unknown_where_their_price_is():
    # 730 GB cost as much an hour as 1 GB does in a month: 0.14 USD in us-east-1.
    assert most(Cluster("ml.m5.large", count=2, volume_gb=730), max_runtime_s=3600).startswith("at most 0.51 USD with")
    assert most(Cluster("ml.m5.large"), "sa-east-1", lambda name, region: PRICE) == (
        "unknown: no price of the volume of ml.m5.large in sa-east-1 is at hand"
    )
    assert most(Cluster("ml.g5.xlarge"), max_runtime_s=3600).startswith("at most 1.41 USD: 1 x ml.g5.xlarge")


def test_of_groups_one_price_that_is_missing_makes_all_unknown():
    groups = [InstanceGroup("head", "ml.m5.large", 1), InstanceGroup("gpu", "ml.g4dn.xlarge", 2)]
    assert most(Cluster(groups=groups), max_runtime_s=3600).startswith(
        "at most 1.59 USD with the volumes: 1 x ml.m5.large"
    )
    assert most(Cluster(groups=groups), "eu-west-1") == (
        "unknown: no price of ml.m5.large or ml.g4dn.xlarge in eu-west-1 is at hand"
    )
