"""Any model in any mode follows one process to 1e-5 in float32, or is refused by name; never is it another function."""

import contextlib

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.engines.pipeline import UNRETURNED
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel
from tests.support.drawn_models import Drawn, drawn_trainings, layouts
from tests.support.standing_ranks import train

TOLERANCE = 1e-5

REFUSALS = (
    "share the weights",
    "stages need as many blocks",
    "has no tensor plan",
    "whose gradients DDP waits for",
    "does not divide",
    "schedule='interleaved' gets wrong gradients from torch 2.9",
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
    """Check that the ranks do as one process does, or refuse alike; return which of the two."""
    results = ranks.run(workers, train, drawn, parallel)
    if isinstance(results[0], InvalidRequest):
        assert {str(result) for result in results} == {str(results[0])}
        assert any(reason in str(results[0]) for reason in REFUSALS), results[0]
        return "refused"
    losses, weights = alone(drawn)
    assert all(result[0] == results[0][0] for result in results)
    assert results[0][0] == pytest.approx(losses, abs=TOLERANCE)
    found = results[0][1]
    assert list(found) == list(weights)
    assert max(float((found[name] - weights[name]).abs().max()) for name in weights) < TOLERANCE
    return "followed"


@pytest.mark.parametrize(
    ("parallel", "drawn", "outcome"),
    [
        (
            Parallel(pipeline=2, microbatches=2),
            Drawn(blocks=("linear", "linear"), early=True, rows=20),
            "followed",
        ),
        (
            Parallel(pipeline=2, microbatches=2),
            Drawn(blocks=("idle", "mlp"), unused=True, rows=20, rule="adamw"),
            "followed",
        ),
        (
            Parallel(tensor=2),
            Drawn(blocks=("softmax", "named", "gated"), frozen=1, rows=20),
            "followed",
        ),
        (
            Parallel(tensor=2),
            Drawn(blocks=("leaking", "attention", "encoder"), rows=20),
            "followed",
        ),
        (
            Parallel(tensor=2),
            Drawn(blocks=("mlp", "named", "mlp"), tied=(0, 2), rows=20),
            "followed",
        ),
        (
            Parallel(shard=2),
            Drawn(blocks=("gated", "mlp", "gated"), tied=(0, 2), rows=20),
            "followed",
        ),
        (
            Parallel(data=2),
            Drawn(blocks=("linear", "linear"), unused=True, rows=16, epochs=1),
            "refused",
        ),
    ],
    ids=[
        "a stage's shared parameter with another first name",
        "what forward never uses, in a pipeline",
        "layers with known names and a softmax between them",
        "hidden values that are used elsewhere",
        "tied weights of which one might be cut",
        "tied weights of two shards' blocks",
        "what forward never uses, in replicas",
    ],
)
def test_a_model_that_once_went_wrong_follows_one_process_or_is_refused_by_name(
    ranks, parallel, drawn, outcome
):
    assert check(ranks, 2, parallel, drawn) == outcome


TIES = {
    "three stages, of which the middle one has no copy": (
        3,
        Parallel(pipeline=3, microbatches=3),
        (0, 3),
        "followed",
    ),
    "stages of two workers, of two each": (
        2,
        Parallel(pipeline=2, schedule="interleaved", microbatches=2),
        (0, 3),
        "followed",
    ),
    "shards": (
        4,
        Parallel(shard=2, pipeline=2, microbatches=2, optimize="memory"),
        (0, 3),
        "followed",
    ),
    "cut tensors": (4, Parallel(pipeline=2, tensor=2, microbatches=2), (0, 3), "followed"),
    "shards of two stages of one worker": (
        4,
        Parallel(shard=2, pipeline=2, schedule="interleaved", microbatches=2),
        (0, 2),
        "refused",
    ),
}
"""Workers, how they are cut, which of four blocks have the same weights, and what comes of it."""


@pytest.mark.parametrize("case", TIES)
def test_weights_that_stages_share_follow_one_process(ranks, case):
    workers, parallel, tied, outcome = TIES[case]
    blocks = ("mlp", "gated", "mlp", "mlp")
    # Clipped: a copy that counted twice would make all gradients too short.
    drawn = Drawn(blocks=blocks, tied=tied, rows=40, batch_size=24, rule="adamw", max_norm=0.3)
    is_refused = parallel.schedule == "interleaved" and not UNRETURNED
    assert check(ranks, workers, parallel, drawn) == ("refused" if is_refused else outcome)


PLAIN = settings(
    max_examples=8,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@given(case=cases())
@PLAIN
def test_a_drawn_training_follows_one_process_or_is_refused_by_name(ranks, case):
    event(check(ranks, *case))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@given(case=cases())
@settings(PLAIN, max_examples=40)
def test_many_drawn_trainings_follow_one_process_or_are_refused_by_name(ranks, case):
    event(check(ranks, *case))
