"""What the first hour may cost."""

from raysm.client.first_job.costs import MOST_USD, costs
from raysm.client.first_job.trials import INSTANCES, TRIALS


def test_the_default_costs_less_than_it_may():
    # ml.m5.large in us-east-1.
    estimate = costs(TRIALS, INSTANCES * 0.115)
    assert 0 < estimate.likely_usd < estimate.most_usd <= MOST_USD


def test_the_most_is_what_the_limits_let_every_job_take():
    estimate = costs(TRIALS[:3], 3600)
    assert estimate.most_usd == 3 * (900 + 300)
    assert estimate.likely_usd == 3 * 300
