"""A training of two ranks goes on: what of it is as it was, and what cannot be."""

import pytest

from raysm.training import Parallel
from raysm.workloads.training.loop import session as sessions
from tests.support.drawn_models import Drawn
from tests.support.interrupted_training import Training, leg

DROPPING = Training(drawn=Drawn(blocks=("mlp", "dropout", "linear"), rows=40, batch_size=8, rule="adamw"))


def differing(one, other):
    return {name for name in one if not one[name].equal(other[name])}


def test_gone_on_with_as_a_tensor_group_ranks_that_drew_apart_draw_alike(ranks, tmp_path):
    saved = ranks.run(2, leg, DROPPING, Parallel(data=2), tmp_path, 4)
    assert saved[0].drawn != saved[1].drawn
    first, second = ranks.run(2, leg, DROPPING, Parallel(tensor=2), tmp_path, None)
    assert first.drawn == second.drawn
    assert first.whole_everywhere
    assert not differing(first.whole_everywhere, second.whole_everywhere)
    assert "warning: it was saved by 2 workers (data=2), now there are 2 (tensor=2)" in first.said
    assert "the workers' random numbers begin anew" in first.said


def test_three_replicas_go_on_to_the_last_bit(ranks, tmp_path):
    # DDP sums the gradients of its first step in another order than those of the later ones.
    work = Training(drawn=Drawn(blocks=("mlp", "encoder", "mlp"), rows=45, batch_size=9, rule="sgd"))
    undisturbed = ranks.run(3, leg, work, Parallel(data=3), None, None)
    ranks.run(3, leg, work, Parallel(data=3), tmp_path, 4)
    resumed = ranks.run(3, leg, work, Parallel(data=3), tmp_path, None)
    assert not differing(resumed[0].weights, undisturbed[0].weights)


@pytest.mark.parametrize("legs", [(None, Parallel(pipeline=2)), (Parallel(pipeline=2), None)])
def test_of_a_parameter_that_is_shared_one_worker_and_a_pipeline_know_the_same_name(ranks, tmp_path, legs):
    work = Training(drawn=Drawn(blocks=("linear", "mlp"), early=True, rows=32, batch_size=16, rule="adamw"))
    undisturbed = alone(leg, work, None, None, None)
    parts = [
        ranks.run(2, leg, work, parallel, tmp_path, steps)[0] if parallel else alone(leg, work, None, tmp_path, steps)
        for parallel, steps in zip(legs, (2, None), strict=True)
    ]
    for part in parts:
        assert not isinstance(part, Exception), part
        assert part.losses == pytest.approx({step: undisturbed.losses[step] for step in part.losses}, abs=1e-5)
    assert max(float((undisturbed.weights[n] - t).abs().max()) for n, t in parts[-1].weights.items()) < 1e-5


def alone(function, *arguments):
    """Call a function in this process, as the only worker."""
    try:
        return function(*arguments)
    finally:
        sessions.end()
