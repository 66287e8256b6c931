"""What runs in a process of Ray's, called here."""

import pickle
import tracemalloc

import cloudpickle
import pytest

from raysm.contract.session import Outcome
from raysm.workloads.session import work

pytestmark = pytest.mark.usefixtures("by_value")


def batch(function, items, *, first=0, retries=0, return_exceptions=False):
    pickled = pickle.dumps([cloudpickle.dumps(item) for item in items])
    encoded, failed = work.batch(cloudpickle.dumps((function, (), {})), pickled, first, retries, return_exceptions)
    assert not failed
    took_s, outcomes = pickle.loads(Outcome.decode(encoded).pickled)
    assert took_s >= 0
    return [Outcome.decode(outcome) for outcome in outcomes]


def values(outcomes):
    return [pickle.loads(outcome.pickled) if outcome.error is None else outcome.error.item for outcome in outcomes]


def inverse(x):
    return 1 / x


def test_a_batch_has_an_outcome_for_each_item():
    assert values(batch(inverse, [1, 2, 4])) == [1.0, 0.5, 0.25]


def test_behind_an_item_that_failed_nothing_is_worked_on():
    assert values(batch(inverse, [1, 0, 2], first=10)) == [1.0, 11]


def test_unless_exceptions_are_results_like_others():
    assert values(batch(inverse, [1, 0, 2], first=10, return_exceptions=True)) == [1.0, 11, 0.5]


def test_an_item_is_tried_again_as_often_as_was_asked(tmp_path):
    def third_time(path):
        tries = int(path.read_text()) + 1 if path.exists() else 1
        path.write_text(str(tries))
        if tries < 3:
            raise OSError("not yet")
        return tries

    assert values(batch(third_time, [tmp_path / "a"], retries=1)) == [0]
    assert values(batch(third_time, [tmp_path / "b"], retries=2)) == [3]


def test_an_item_that_cannot_be_read_there_fails_alone():
    class Hostile:
        def __reduce__(self):
            return int, ("no number",)

    (outcome,) = batch(repr, [Hostile()])
    assert outcome.error.type == "ValueError"


def test_a_command_tells_its_exit_code_and_what_it_printed():
    encoded, failed = work.shell("echo out; echo err >&2; exit 3", "")
    assert not failed
    assert pickle.loads(Outcome.decode(encoded).pickled) == {"exit_code": 3, "output": "out\nerr\n"}


def test_of_a_command_that_prints_much_the_end_is_kept_and_no_more_is_ever_held():
    tracemalloc.start()
    try:
        encoded, _ = work.shell(f"head -c {64 * work.KEPT_OUTPUT} /dev/zero; echo end", "")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    output = pickle.loads(Outcome.decode(encoded).pickled)["output"]
    assert (len(output), output[-5:]) == (work.KEPT_OUTPUT, "\0end\n")
    assert peak_bytes < 16 * work.KEPT_OUTPUT


def test_a_command_runs_in_its_folder_and_has_no_input(tmp_path):
    encoded, _ = work.shell("pwd; cat", str(tmp_path))
    assert pickle.loads(Outcome.decode(encoded).pickled) == {"exit_code": 0, "output": f"{tmp_path}\n"}
