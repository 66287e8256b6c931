"""What is said of where a training goes on; ``test_interrupted`` has trainings that do."""

import pytest

from raysm.workloads.training.checkpoint.resume import repeated
from raysm.workloads.training.checkpoint.step_marker import Reached


@pytest.mark.parametrize(
    ("reached", "said"),
    [
        (Reached(9), "no step is"),
        (Reached(4), "no step is"),
        (Reached(10), "1 step is"),
        (Reached(12), "3 steps are"),
        (Reached(9, is_exact=False), "the steps since then are"),
        (Reached(12, is_exact=False), "the steps since then, 3 or more, are"),
    ],
)
def test_how_many_steps_are_done_again_is_said_as_exactly_as_it_is_known(reached, said):
    assert repeated(9, reached) == said
