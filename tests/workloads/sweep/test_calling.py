"""The call of a trial's function."""

from raysm.workloads.sweep.calling import call, end_training


def test_parameters_are_arguments_or_one_mapping():
    assert call(lambda a, b: (a, b), {"a": 1, "b": 2}, takes_config=False) == (1, 2)
    params = {"a": 1}
    given = call(lambda config: config, params, takes_config=True)
    assert given == params
    assert given is not params


def test_the_next_trial_of_a_process_begins_its_own_training_session():
    from raysm.workloads.training.loop import session

    first = session.begin()
    end_training()
    assert session.current() is not first
    end_training()
