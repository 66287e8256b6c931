"""The trials of a sweep as a file."""

from raysm.contract.events import Trial, line, parse
from raysm.contract.trials import Trials, best_of


def trial(number, value, status="done"):
    return Trial(number=number, status=status, value=value, params={"lr": 0.1})


def test_what_is_written_is_read_again(tmp_path):
    trials = Trials(
        metric="loss", mode="min", trials=(trial(0, 1.5), trial(1, None, "failed")), best=0, notes=("short",)
    )
    trials.write(tmp_path)
    assert Trials.read(tmp_path) == trials


def test_a_trial_is_an_event_of_one_line():
    one = trial(3, 0.5)
    assert parse(line(one)) == one


def test_the_best_is_the_first_of_equal_ones_and_never_a_failed_one():
    trials = [trial(0, None, "failed"), trial(1, 2.0), trial(2, 1.0, "stopped"), trial(3, 1.0), trial(4, 0.0, "failed")]
    assert best_of(trials, "min").number == 2
    assert best_of(trials, "max").number == 1
    assert best_of([trial(0, None, "failed")], "min") is None
