"""Models that are made without weights train as those that each worker makes whole: the same losses and weights."""

import functools
import shutil

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import HealthCheck, given, settings
from safetensors.torch import save_file
from torch import nn

from raysm import training
from raysm.errors import InvalidInput, InvalidRequest
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.parallel.deferred import parameters_without_memory
from raysm.training import Parallel
from tests.features.training.cluster.parallel.test_drawn_models import cases
from tests.support.drawn_models import Drawn
from tests.support.standing_ranks import train

CUTS = [
    Parallel(shard=4),
    Parallel(data=2, shard=2),
    Parallel(tensor=2, shard=2),
    Parallel(pipeline=2, shard=2, microbatches=2),
    Parallel(pipeline=2, tensor=2, microbatches=2),
]
DRAWN = Drawn(blocks=("gated", "mlp"), rows=20, rule="adamw")


def train_deferred(drawn, parallel, weights=None, **options):
    """Train like ``train``, by functions of the model and of the optimizer."""
    rank = training.rank()

    def make():
        model = drawn.model()
        with torch.no_grad():
            for parameter in set(model.parameters()):
                parameter.add_(rank)  # only the weights of rank 0 count
        return model

    training.prepare(
        make,
        drawn.optimizer,
        parallel,
        blocks="layers",
        loss=F.cross_entropy,
        max_norm=drawn.max_norm,
        weights=weights,
        **options,
    )
    order = {"batch_size": drawn.batch_size, "epochs": drawn.epochs, "seed": drawn.seed}
    losses = [training.step(batch) for batch in training.batches(drawn.dataset(), **order)]
    return losses, sessions.current().trainer.full_state_dict()


def check_equal(expected, found):
    if isinstance(expected[0], InvalidRequest):
        assert [str(each) for each in found] == [str(each) for each in expected]
        return
    assert [losses for losses, _ in found] == [losses for losses, _ in expected]
    weights, whole = found[0][1], expected[0][1]
    assert list(weights) == list(whole)
    assert all(torch.equal(weights[name], whole[name]) for name in whole)


@pytest.mark.parametrize("parallel", CUTS, ids=str)
def test_functions_of_the_model_and_the_optimizer_train_as_these_themselves(ranks, parallel):
    check_equal(ranks.run(4, train, DRAWN, parallel), ranks.run(4, train_deferred, DRAWN, parallel))


HOW = {
    "bf16": (Parallel(shard=2), {"precision": "bf16"}),
    "computed again": (Parallel(shard=2, optimize="memory"), {}),
    "activations offloaded": (Parallel(shard=2, offload=True), {}),
    "in pieces": (Parallel(shard=2), {"accumulate": 2}),
    "in pieces, gradients kept": (Parallel(shard=2, keep_gradients=True), {"accumulate": 2}),
    "weights offloaded": (Parallel(shard=2, offload_weights=True), {}),
}


@pytest.mark.parametrize("how", HOW)
def test_functions_train_as_the_model_itself_however_it_is_computed(ranks, how):
    parallel, options = HOW[how]
    whole = ranks.run(2, functools.partial(train, **options), DRAWN, parallel)
    check_equal(whole, ranks.run(2, functools.partial(train_deferred, **options), DRAWN, parallel))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no C++ compiler")
def test_functions_train_as_the_model_itself_if_blocks_are_compiled(ranks):
    whole, deferred = (
        ranks.run(2, functools.partial(training_of, compile=True), DRAWN, Parallel(shard=2))
        for training_of in (train, train_deferred)
    )
    check_equal(whole, deferred)


@pytest.mark.soak
@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(case=cases())
def test_any_model_in_any_mode_trains_the_same_from_a_function(ranks, case):
    workers, parallel, drawn = case
    check_equal(
        ranks.run(workers, train, drawn, parallel),
        ranks.run(workers, train_deferred, drawn, parallel),
    )


@pytest.mark.parametrize("parallel", [*CUTS, Parallel()], ids=str)
def test_weights_of_files_are_those_that_training_begins_with(ranks, tmp_path, parallel):
    other = Drawn(blocks=DRAWN.blocks, rows=20, rule="adamw", seed=7)
    names = [*other.model().state_dict()]
    half = len(names) // 2
    for number, part in enumerate((names[:half], names[half:])):
        tensors = {name: other.model().state_dict()[name] for name in part}
        save_file(tensors, tmp_path / f"model-{number}.safetensors")
    found = ranks.run(4, train_deferred, DRAWN, parallel, str(tmp_path))
    trained = functools.partial(train_loaded, str(tmp_path))
    check_equal(ranks.run(4, trained, DRAWN, parallel), found)


def train_loaded(folder, drawn, parallel):
    """Train like ``train``, from the values of another model, which each rank has whole."""
    other = Drawn(blocks=drawn.blocks, rows=20, rule="adamw", seed=7).model().state_dict()

    class Loaded(Drawn):
        def model(self):
            model = Drawn.model(self)
            model.load_state_dict(other)
            return model

    values = {name: getattr(drawn, name) for name in drawn.__dataclass_fields__}
    return train(Loaded(**values), parallel)


def test_file_without_a_parameter_or_with_another_shape_is_refused_on_every_rank(ranks, tmp_path):
    tensors = DRAWN.model().state_dict()
    name = "embed.weight"
    save_file(tensors | {name: torch.zeros(3, 1)}, tmp_path / "model.safetensors")
    parallel = Parallel(shard=4)
    for error in ranks.run(4, train_deferred, DRAWN, parallel, str(tmp_path)):
        assert isinstance(error, InvalidInput)
        assert f"{name} has the shape (3, 1)" in str(error)
    del tensors[name]
    save_file(tensors, tmp_path / "model.safetensors")
    for error in ranks.run(4, train_deferred, DRAWN, parallel, str(tmp_path)):
        assert isinstance(error, InvalidInput)
        assert name in str(error)


def train_another_each_time(parallel):
    sizes = iter([3, 4])
    training.prepare(
        lambda: nn.Sequential(nn.Linear(next(sizes), 2)),
        lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        parallel,
        loss=F.cross_entropy,
    )


def test_function_that_returns_another_model_each_time_is_refused_on_every_rank(ranks):
    for error in ranks.run(4, train_another_each_time, Parallel(shard=4)):
        assert isinstance(error, InvalidRequest)
        assert "must return the same each time" in str(error)


def test_parameters_have_no_memory_while_buffers_and_shared_parameters_stay_what_they_are():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.second = nn.Linear(4, 4)
            self.second.weight = self.first.weight
            self.first.bias.requires_grad_(False)
            self.register_buffer("table", torch.arange(4.0), persistent=False)

    with parameters_without_memory():
        model = Tied()
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model.first.weight is model.second.weight
    assert not model.first.bias.requires_grad
    assert model.table.tolist() == [0, 1, 2, 3]
    assert nn.Linear(2, 2).weight.device.type == "cpu"


def test_weights_for_a_model_that_is_no_function_are_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        with pytest.raises(InvalidRequest, match="must be a function"):
            training.prepare(model, optimizer, loss=F.mse_loss, weights="folder")
    finally:
        sessions.end()
