"""What a grid learns of its own jobs."""

import random

import pytest

from raysm.grid.attempt import Attempt, AttemptState
from raysm.grid.estimates import SPOT_FACTOR, SPOT_RANGE, WAIT_S, Estimates
from raysm.grid.place import Place
from raysm.grid.task import Task

G5, P4 = "ml.g5.xlarge", "ml.p4d.24xlarge"


def ended(kind=G5, training_s=100.0, ending="OK", region="us-east-1", **more):
    times = {"sent_s": 0.0, "started_s": 60.0, "ended_s": 60 + (training_s or 0)} | more
    return Attempt(
        task="a", number=1, name="n", region=region, instance_type=kind, count=1, state=AttemptState.ENDED,
        ending=ending, training_s=training_s, **times,
    )  # fmt: skip


def learned(*attempts, task=None):
    experience = Estimates()
    for attempt in attempts:
        experience.learn(task or Task(key="a"), attempt)
    return experience


def test_nothing_is_known_at_first_but_what_the_row_and_people_say():
    experience = Estimates()
    assert experience.seconds(Task(key="a"), G5) is None
    assert experience.seconds(Task(key="a", expected_s=30), G5) == 30
    assert experience.wait_s(Place(region="us-east-1", instance_type=G5)) == WAIT_S
    spot = Place(region="us-east-1", instance_type=G5, spot=True)
    assert experience.billed_factor(spot) == SPOT_FACTOR
    assert experience.billed_range(spot) == SPOT_RANGE


def test_a_type_takes_the_median_of_its_done_rows_and_one_that_hung_does_not_decide():
    experience = learned(ended(training_s=90), ended(training_s=110), ended(training_s=9_000))
    assert experience.seconds(Task(key="b"), G5) == 110
    assert experience.samples(G5) == 3
    assert experience.seconds(Task(key="b"), P4) is None


def test_what_a_row_says_of_itself_is_corrected_by_what_rows_took():
    experience = learned(ended(training_s=200), task=Task(key="a", expected_s=100))
    assert experience.seconds(Task(key="b", expected_s=30), G5) == 60


@pytest.mark.parametrize("ending", ["USER", "CAPACITY", "TIME"])
def test_how_long_a_failed_row_ran_says_nothing(ending):
    assert learned(ended(ending=ending)).samples(G5) == 0


def test_a_place_lets_wait_as_long_as_it_did_and_one_that_nobody_tried_as_long_as_the_others():
    experience = learned(ended(started_s=30.0), ended(started_s=50.0), ended(started_s=None, ending="CAPACITY"))
    assert experience.wait_s(Place(region="us-east-1", instance_type=G5)) == 40
    assert experience.wait_s(Place(region="eu-west-1", instance_type=G5)) == 40


def test_spot_is_billed_for_the_share_that_was_seen_and_on_demand_for_all():
    experience = learned(ended(spot=True, billable_s=30.0), ended(spot=True, billable_s=50.0))
    spot = Place(region="us-east-1", instance_type=G5, spot=True)
    assert experience.billed_factor(spot) == pytest.approx(0.4)
    assert experience.billed_range(spot) == (0.3, 0.5)
    assert experience.billed_factor(Place(region="us-east-1", instance_type=G5)) == 1
    assert experience.billed_range(Place(region="us-east-1", instance_type=G5)) == (1, 1)


def test_within_three_rows_a_type_the_ranking_by_dollars_is_the_true_one():
    chance = random.Random(7)
    right = 0
    for _ in range(400):
        # Three types whose costs of a unit of work are a fourth apart; rows scatter by a tenth.
        order = chance.sample([1.0, 1.25, 1.5625], 3)
        prices = [chance.uniform(1, 40) for _ in range(3)]
        kinds = ["ml.a.x", "ml.b.x", "ml.c.x"]
        experience = Estimates()
        for kind, cost, price in zip(kinds, order, prices, strict=True):
            for _ in range(3):
                work = chance.uniform(50, 500)
                seconds = work * cost / price * chance.lognormvariate(0, 0.1)
                experience.learn(Task(key="a", expected_s=work), ended(kind, training_s=seconds))
        row = Task(key="b", expected_s=100)
        costs = [price * experience.seconds(row, kind) for kind, price in zip(kinds, prices, strict=True)]
        right += sorted(kinds, key=lambda kind: costs[kinds.index(kind)]) == sorted(
            kinds, key=lambda kind: order[kinds.index(kind)]
        )
    assert right >= 0.95 * 400
