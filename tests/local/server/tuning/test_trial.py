"""An objective says which of two values is better."""

from raysm.local.server.tuning.trial import Objective


def test_less_loss_is_better_whichever_way_the_objective_goes():
    most = Objective.of({"Type": "Maximize", "MetricName": "accuracy"})
    least = Objective.of({"Type": "Minimize", "MetricName": "loss"})
    assert most.loss(0.9) < most.loss(0.8)
    assert least.loss(0.8) < least.loss(0.9)


def test_a_target_is_reached_by_what_is_as_good_or_better():
    most = Objective.of({"Type": "Maximize", "MetricName": "accuracy"})
    assert [most.reaches(value, 0.9) for value in (0.8, 0.9, 0.95)] == [False, True, True]
