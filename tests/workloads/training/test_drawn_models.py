"""Any model in any mode follows one process to 1e-5 in float32, or is refused by name; never is it another function."""

import contextlib

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.workloads.training import session as sessions
from tests.support.drawn_models import drawn_trainings, layouts
from tests.support.standing_ranks import train

TOLERANCE = 1e-5

REFUSALS = (
    "stages cannot share weights",
    "stages need at least as many blocks",
    "no pair of linear layers was found",
    "whose gradients DDP waits for",
)
"""What may be said of a training that was drawn."""


@st.composite
def cases(draw):
    workers = draw(st.sampled_from([2, 2, 3, 4]))
    parallel = draw(layouts(workers))
    slices = parallel.layout(workers).data_ranks
    return workers, parallel, draw(drawn_trainings(multiple_of=slices * parallel.microbatch_count))


def alone(drawn):
    """Return losses and weights of one process."""
    with contextlib.ExitStack() as stack:
        stack.callback(sessions.end)
        return train(drawn, None)


def check(ranks, workers, parallel, drawn):
    """Check that the ranks do as one process does, or refuse alike."""
    results = ranks.run(workers, train, drawn, parallel)
    if isinstance(results[0], InvalidRequest):
        assert {str(result) for result in results} == {str(results[0])}
        assert any(reason in str(results[0]) for reason in REFUSALS), results[0]
        event("refused")
        return
    losses, weights = alone(drawn)
    event("followed")
    assert all(result[0] == results[0][0] for result in results)
    assert results[0][0] == pytest.approx(losses, abs=TOLERANCE)
    found = results[0][1]
    assert list(found) == list(weights)
    assert max(float((found[name] - weights[name]).abs().max()) for name in weights) < TOLERANCE


PLAIN = settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@given(case=cases())
@PLAIN
def test_a_drawn_training_follows_one_process_or_is_refused_by_name(ranks, case):
    check(ranks, *case)


@pytest.mark.long
@pytest.mark.timeout(3600)
@given(case=cases())
@settings(PLAIN, max_examples=1000)
def test_many_drawn_trainings_follow_one_process_or_are_refused_by_name(ranks, case):
    check(ranks, *case)
