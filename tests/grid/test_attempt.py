"""An attempt is one job: what it cost, and what it can cost."""

import pytest

from raysm.grid.attempt import Attempt, AttemptState, TaskState

HOUR = Attempt(task="a", number=1, name="g-a-a1", region="us-east-1", instance_type="ml.m5.large", count=2)


def attempt(**changes):
    values = {name: getattr(HOUR, name) for name in ("task", "number", "name", "region", "instance_type", "count")}
    return Attempt(**values | changes)


def test_an_attempt_costs_what_is_billed_of_all_its_instances():
    assert attempt(usd_per_hour=3.0, billable_s=1800).usd == 3.0


@pytest.mark.parametrize("unknown", [{"usd_per_hour": 3.0}, {"billable_s": 60}])
def test_what_is_not_known_is_not_nothing(unknown):
    assert attempt(**unknown).usd is None


def test_at_worst_it_runs_to_its_limit():
    assert attempt(usd_per_hour=3.0, max_runtime_s=7200).worst_usd == 12.0
    assert attempt(max_runtime_s=7200).worst_usd is None


def test_of_a_choice_it_has_the_type_and_the_price_that_the_service_took():
    chosen = attempt(usd_per_hour=9.0, choice='{"ml.m5.large": 1.0, "ml.p5.48xlarge": 9.0}')
    assert chosen.types == ("ml.m5.large", "ml.p5.48xlarge")
    assert chosen.settled("ml.m5.large") == {"instance_type": "ml.m5.large", "usd_per_hour": 1.0, "choice": ""}
    assert chosen.settled(None) == {}
    assert (HOUR.types, HOUR.settled("ml.m5.large")) == (("ml.m5.large",), {})


def test_it_begins_as_an_intent():
    assert HOUR.state is AttemptState.INTENDED


def test_a_task_that_waits_or_is_placed_is_not_over():
    assert [state.value for state in TaskState if not state.final] == ["waiting", "placed"]
