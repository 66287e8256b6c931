"""Models of whose parameters each rank uses others train as in one process."""

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm import training
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel

ROWS = 8


class Mixture(nn.Module):
    """Each row goes to the expert that its first feature names; the last expert never gets one."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, rows):
        chosen = rows[:, 0].long()
        found = torch.zeros_like(rows)
        for number in chosen.unique().tolist():
            found[chosen == number] = self.experts[number](rows[chosen == number])
        return rows + found * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Mixture() for _ in range(2))
        self.head = nn.Linear(4, 2)

    def forward(self, rows):
        for layer in self.layers:
            # The features that choose stay as they are.
            rows = torch.cat([rows[:, :1], layer(rows)[:, 1:]], 1)
        return self.head(rows)


def make():
    torch.manual_seed(0)
    model = Model()
    return model, adamw(model)


def adamw(model):
    # Momentum and weight decay would change a parameter whose gradient is zeros.
    return torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=0.1)


def data():
    """Batches of eight rows: the first half of each goes to one expert, the other half to another."""
    rows = torch.randn(4 * ROWS, 4, generator=torch.Generator().manual_seed(1))
    experts = torch.tensor([0, 1, 2, 0, 1, 1, 0, 2]).repeat_interleave(ROWS // 2)
    rows[:, 0] = experts
    return torch.utils.data.TensorDataset(rows, (rows[:, 1] > 0).long())


def train(parallel, accumulate=1, is_deferred=False):
    model, optimizer = (Model, adamw) if is_deferred else make()
    options = {"accumulate": accumulate, "blocks": "layers"}
    torch.manual_seed(0)  # a function of the model is called by prepare
    training.prepare(model, optimizer, parallel, loss=functional.cross_entropy, **options)
    order = {"batch_size": ROWS, "shuffle": False}
    losses = [float(training.step(batch)) for batch in training.batches(data(), **order)]
    return losses, sessions.current().trainer.full_state_dict()


@functools.cache
def in_one_process():
    model, optimizer = make()
    losses = []
    for inputs, target in training.batches(data(), batch_size=ROWS, shuffle=False):
        loss = functional.cross_entropy(model(inputs), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model.state_dict()


CUTS = {
    "replicas": (2, Parallel(unused_parameters=True), 1),
    "replicas, in pieces": (2, Parallel(unused_parameters=True), 2),
    "shards": (2, Parallel(shard=2, unused_parameters=True), 1),
    "shards, in pieces": (2, Parallel(shard=2, unused_parameters=True), 2),
    "shards, gradients kept": (
        2,
        Parallel(shard=2, unused_parameters=True, keep_gradients=True),
        2,
    ),
    "shards, computed again": (
        2,
        Parallel(shard=2, unused_parameters=True, optimize="memory"),
        1,
    ),
    "replicas of shards": (4, Parallel(data=2, shard=2, unused_parameters=True), 1),
}


@pytest.mark.parametrize("cut", CUTS)
def test_experts_that_only_some_ranks_use_train_as_in_one_process(ranks, cut):
    workers, parallel, accumulate = CUTS[cut]
    expected, weights = in_one_process()
    found = ranks.run(workers, train, parallel, accumulate)
    assert all(losses == pytest.approx(expected, abs=1e-5) for losses, _ in found)
    for name, tensor in weights.items():
        torch.testing.assert_close(found[0][1][name], tensor, atol=1e-5, rtol=0, msg=name)


def test_a_model_that_is_made_without_weights_trains_so_too(ranks):
    found = ranks.run(2, train, Parallel(shard=2, unused_parameters=True), 1, True)
    assert found[0][0] == pytest.approx(in_one_process()[0], abs=1e-5)


class Uneven(torch.utils.data.IterableDataset):
    """Rank 0 has two rows, of the first expert; rank 1 has six, of the second."""

    def __iter__(self):
        number, _ = training.share()
        for _ in range(2 + 4 * number):
            yield torch.tensor([float(number), 1.0, 2.0, 3.0]), torch.tensor(1)


def experts_of_steps():
    """Train on a stream; return the first expert's weights after each step, on rank 0."""
    model, optimizer = make()
    parallel = Parallel(shard=2, unused_parameters=True)
    training.prepare(model, optimizer, parallel, loss=functional.cross_entropy, blocks="layers")
    found = []
    for batch in training.batches(Uneven(), batch_size=4, sharded=True):
        training.step(batch)
        found.append(sessions.current().trainer.full_state_dict())
    return [state.get("layers.0.experts.0.weight") for state in found]


def test_an_expert_that_only_a_row_that_does_not_count_uses_keeps_its_weights(ranks):
    first, second, third = ranks.run(2, experts_of_steps)[0]
    assert torch.equal(first, second)
    assert torch.equal(second, third)
