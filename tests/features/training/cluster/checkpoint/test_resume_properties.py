"""An interrupted training goes on as if nothing had happened: bit for bit in the same layout, else to 1e-5."""

import tempfile

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from raysm.errors import InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel
from tests.support.drawn_models import BLOCKS, EXACT, Drawn, drawn_trainings, layouts
from tests.support.interrupted_training import OPTIMIZERS, SCHEDULERS, Training, leg

TOLERANCE = 1e-5

REFUSALS = (
    "share the weights",
    "stages need as many blocks",
    "has no tensor plan",
    "does not divide",
    "whose gradients DDP waits for",
)
"""What may be said of a training that was drawn."""

# Not shrunk: that would train for minutes, and what is drawn is small.
PLAIN = settings(
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@st.composite
def trainings(draw, kinds=tuple(BLOCKS), multiple_of=1):
    """Draw a training that keeps checkpoints, and the steps after which it is interrupted."""
    drawn = draw(drawn_trainings(kinds=kinds, multiple_of=multiple_of))
    work = Training(
        drawn=drawn,
        optimizer=draw(st.none() | st.sampled_from(sorted(OPTIMIZERS))),
        scheduler=draw(st.none() | st.sampled_from(sorted(SCHEDULERS))),
        noisy=draw(st.booleans()),
        validates=draw(st.booleans()),
        every_steps=draw(st.integers(1, 2)),
    )
    steps = -(-drawn.rows // drawn.batch_size) * drawn.epochs
    return work, sorted(draw(st.sets(st.integers(1, steps), min_size=1, max_size=2)))


def degree(parallels):
    """Return what batch sizes have to divide by, for the layouts of two workers."""
    return max(
        [
            1,
            *(
                each.layout(2).data_ranks * each.microbatch_count
                for each in parallels
                if each is not None
            ),
        ]
    )


@st.composite
def in_one_layout(draw):
    parallel = draw(layouts(2))
    work, stops = draw(trainings(multiple_of=2 * degree([parallel])))
    return work, [(parallel, steps) for steps in [*stops, None]]


@st.composite
def in_several_layouts(draw):
    parallels = draw(st.lists(st.none() | layouts(2), min_size=3, max_size=3))
    work, stops = draw(trainings(EXACT, degree(parallels)))
    return work, list(zip(parallels, [*stops, None], strict=False))


def on_two(ranks):
    """Return what trains a leg: on both ranks, or in this process, which is alone, where the layout is None."""

    def train(work, parallel, folder, steps):
        if parallel is not None:
            return ranks.run(2, leg, work, parallel, folder, steps)
        try:
            return [leg(work, None, folder, steps)]
        finally:
            sessions.end()  # where it failed

    return train


def interrupted(train, work, legs):
    """Train leg after leg, each from the checkpoints of those before; return each leg's results, by rank."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for parallel, steps in legs:
            results.append(train(work, parallel, folder, steps))
            if isinstance(results[-1][0], InvalidRequest):
                break
    return results


def as_refusal(results):
    if not isinstance(results[0], InvalidRequest):
        return False
    assert any(reason in str(results[0]) for reason in REFUSALS), results[0]
    event("refused")
    return True


def check_in_one_layout(train, work, legs):
    parallel, _ = legs[0]
    undisturbed = train(work, parallel, None, None)
    if as_refusal(undisturbed):
        return
    for results, (_, steps) in zip(interrupted(train, work, legs), legs, strict=True):
        losses = results[0].losses
        assert losses == {step: undisturbed[0].losses[step] for step in losses}
        assert steps is None or max(losses, default=steps) == steps
        assert "warning" not in results[0].said
    event(f"gone on with {len(legs) - 1} times")
    for gone_on, expected in zip(results, undisturbed, strict=True):
        assert list(gone_on.weights) == list(expected.weights)
        assert [
            name
            for name in expected.weights
            if not gone_on.weights[name].equal(expected.weights[name])
        ] == []
        assert gone_on.drawn == expected.drawn
        assert gone_on.without_state == expected.without_state


def check_in_several_layouts(train, work, legs):
    undisturbed = train(work, None, None, None)[0]
    legs_results = interrupted(train, work, legs)
    saved = None
    for results, (parallel, _) in zip(legs_results, legs, strict=False):
        if as_refusal(results):
            return
        losses = results[0].losses
        assert losses == pytest.approx(
            {step: undisturbed.losses[step] for step in losses}, abs=TOLERANCE
        )
        layout = str(parallel.layout(2)) if parallel else "one worker"
        warned = "the workers' random numbers begin anew" in results[0].said
        assert warned == (saved not in (None, layout))
        if any(step % work.every_steps == 0 for step in losses):
            saved = layout
    event("gone on with elsewhere")
    weights = results[0].weights
    assert list(weights) == list(undisturbed.weights)
    assert (
        max(float((weights[name] - undisturbed.weights[name]).abs().max()) for name in weights)
        < TOLERANCE
    )


@given(case=trainings())
@settings(PLAIN, max_examples=3)
def test_one_worker_goes_on_bit_for_bit(ranks, case):
    work, stops = case
    check_in_one_layout(on_two(ranks), work, [(None, steps) for steps in [*stops, None]])


@given(case=in_one_layout())
@settings(PLAIN, max_examples=3)
def test_two_workers_go_on_bit_for_bit_in_the_same_layout(ranks, case):
    check_in_one_layout(on_two(ranks), *case)


@given(case=in_several_layouts())
@settings(PLAIN, max_examples=3)
def test_other_layouts_go_on_with_the_same_training(ranks, case):
    check_in_several_layouts(on_two(ranks), *case)


def in_many_cases(test):
    return pytest.mark.soak(pytest.mark.timeout(3600)(settings(PLAIN, max_examples=40)(test)))


@in_many_cases
@given(case=trainings())
def test_one_worker_goes_on_bit_for_bit_in_many_cases(ranks, case):
    work, stops = case
    check_in_one_layout(on_two(ranks), work, [(None, steps) for steps in [*stops, None]])


@in_many_cases
@given(case=in_one_layout())
def test_two_workers_go_on_bit_for_bit_in_many_cases(ranks, case):
    check_in_one_layout(on_two(ranks), *case)


@in_many_cases
@given(case=in_several_layouts())
def test_other_layouts_go_on_with_the_same_training_in_many_cases(ranks, case):
    check_in_several_layouts(on_two(ranks), *case)


DROPPING = Training(
    drawn=Drawn(blocks=("mlp", "dropout", "linear"), rows=40, batch_size=8, rule="adamw")
)


def differing(one, other):
    return {name for name in one if not one[name].equal(other[name])}


def test_gone_on_with_as_a_tensor_group_ranks_that_drew_apart_draw_alike(ranks, tmp_path):
    saved = ranks.run(2, leg, DROPPING, Parallel(data=2), tmp_path, 4)
    assert saved[0].drawn != saved[1].drawn
    first, second = ranks.run(2, leg, DROPPING, Parallel(tensor=2), tmp_path, None)
    assert first.drawn == second.drawn
    assert first.whole_everywhere
    assert not differing(first.whole_everywhere, second.whole_everywhere)
    assert "2 workers (data=2), now there are 2 (tensor=2)" in first.said
    assert "the workers' random numbers begin anew" in first.said


def test_three_replicas_go_on_to_the_last_bit(ranks, tmp_path):
    # DDP sums the gradients of its first step in another order than those of the later ones.
    work = Training(
        drawn=Drawn(blocks=("mlp", "encoder", "mlp"), rows=45, batch_size=9, rule="sgd")
    )
    undisturbed = ranks.run(3, leg, work, Parallel(data=3), None, None)
    ranks.run(3, leg, work, Parallel(data=3), tmp_path, 4)
    resumed = ranks.run(3, leg, work, Parallel(data=3), tmp_path, None)
    assert not differing(resumed[0].weights, undisturbed[0].weights)


@pytest.mark.parametrize("legs", [(None, Parallel(pipeline=2)), (Parallel(pipeline=2), None)])
def test_of_a_parameter_that_is_shared_one_worker_and_a_pipeline_know_the_same_name(
    ranks, tmp_path, legs
):
    work = Training(
        drawn=Drawn(blocks=("linear", "mlp"), early=True, rows=32, batch_size=16, rule="adamw")
    )
    undisturbed = alone(leg, work, None, None, None)
    parts = [
        ranks.run(2, leg, work, parallel, tmp_path, steps)[0]
        if parallel
        else alone(leg, work, None, tmp_path, steps)
        for parallel, steps in zip(legs, (2, None), strict=True)
    ]
    for part in parts:
        assert not isinstance(part, Exception), part
        assert part.losses == pytest.approx(
            {step: undisturbed.losses[step] for step in part.losses}, abs=1e-5
        )
    assert (
        max(float((undisturbed.weights[n] - t).abs().max()) for n, t in parts[-1].weights.items())
        < 1e-5
    )


def alone(function, *arguments):
    """Call a function in this process, as the only worker."""
    try:
        return function(*arguments)
    finally:
        sessions.end()
