"""The call of a trial's function."""

import sys

import pytest

from raysm.workloads.sweep.calling import EndedEarly, call, end_training


def test_parameters_are_arguments_or_one_mapping():
    assert call(lambda a, b: (a, b), {"a": 1, "b": 2}, takes_config=False) == (1, 2)
    params = {"a": 1}
    given = call(lambda config: config, params, takes_config=True)
    assert given == params
    assert given is not params


@pytest.mark.parametrize("code", [None, 0])
def test_an_exit_with_0_is_an_end_like_any_other(code):
    def leaves(x):
        sys.exit(code)

    assert call(leaves, {"x": 1}, takes_config=False) is None


@pytest.mark.parametrize("end", [SystemExit(3), SystemExit("no data"), EndedEarly(0)], ids=["3", "text", "early"])
def test_another_exit_and_the_end_of_a_trial_that_is_not_to_go_on_pass(end):
    def leaves(x):
        raise end

    with pytest.raises(SystemExit) as left:
        call(leaves, {"x": 1}, takes_config=False)
    assert left.value is end


def test_the_next_trial_of_a_process_begins_its_own_training_session():
    from raysm.workloads.training.loop import session

    first = session.begin()
    end_training()
    assert session.current() is not first
    end_training()
