"""When it is enough, and which training job was best."""

import pytest

from raysm.local.server.tuning.progress import best_of, enough, failed, has_converged, not_improving
from raysm.local.server.tuning.records import Child
from raysm.local.server.tuning.trial import Objective
from tests.support.tuning import tuning_config

LEAST = Objective(metric="loss", kind="Minimize")
MOST = Objective(metric="accuracy", kind="Maximize")


def children(*values):
    """Return training jobs that have ended with values; None is one without."""
    return [
        Child(number=number, name=f"job-{number}", assignment={}, value=value, ended=True)
        for number, value in enumerate(values)
    ]


def test_the_best_is_the_least_or_the_greatest_and_of_equal_ones_the_first():
    assert best_of(children(3.0, 1.0, 2.0, 1.0), LEAST).number == 1
    assert best_of(children(3.0, 1.0, 3.0), MOST).number == 0
    assert best_of(children(None, None), LEAST) is None


def test_not_improving_counts_the_values_since_the_best():
    assert not_improving(children(3.0, 1.0, 2.0, None, 4.0), LEAST) == 2
    assert not_improving([], LEAST) == 0


@pytest.mark.parametrize(
    ("criteria", "values", "words"),
    [
        ({"TargetObjectiveMetricValue": 0.5}, (0.9, 0.4), "job-1 reached TargetObjectiveMetricValue, 0.5"),
        ({"TargetObjectiveMetricValue": 0.5}, (0.9, 0.6), ""),
        (
            {"BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 3}},
            (0.1, 0.2, 0.3, 0.4),
            "3 training jobs were no better than the best one",
        ),
        ({"BestObjectiveNotImproving": {"MaxNumberOfTrainingJobsNotImproving": 3}}, (0.1, 0.2, 0.3), ""),
        ({"ConvergenceDetected": {"CompleteOnConvergence": "Enabled"}}, (1.0, 0.5) * 10, "it has converged"),
        ({"ConvergenceDetected": {"CompleteOnConvergence": "Disabled"}}, (1.0, 0.5) * 10, ""),
    ],
    ids=[
        "target reached",
        "target not reached",
        "not improving",
        "not yet",
        "converged",
        "convergence is not asked for",
    ],
)
def test_each_criterion_completes_a_tuning_job(criteria, values, words):
    config = tuning_config(TuningJobCompletionCriteria=criteria)
    assert enough(config, children(*values), LEAST, 0.0) == words


def test_the_time_is_a_limit_too():
    config = tuning_config(limits={"MaxRuntimeInSeconds": 120})
    assert enough(config, [], LEAST, 119.0) == ""
    assert enough(config, [], LEAST, 120.0) == "it ran for MaxRuntimeInSeconds, 120 s"


def test_what_still_gets_better_has_not_converged():
    assert not has_converged(children(*(1.0 - number / 20 for number in range(20))), LEAST)
    assert not has_converged(children(*[1.0] * 19), LEAST)


def test_after_five_failures_without_a_success_it_has_failed_in_the_words_of_aws():
    assert failed(children(None, None, None, None), None) == ""
    assert failed(children(*[None] * 5), None) == (
        "No training job succeeded after 5 attempts. Please take a look at the training job failures to get more "
        "details."
    )
    assert failed(children(None, None, None, None, 1.0), None) == ""


def test_of_fewer_than_five_all_have_to_fail():
    assert failed(children(None), 2) == ""
    assert failed(children(None, None), 2).startswith("No training job succeeded after 2 attempts.")
