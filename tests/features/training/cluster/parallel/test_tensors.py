"""Plans of tensor parallelism, and weights that layers share."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.degrees import Layout
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.parallel.stages import (
    Tie,
    check_ties,
    find_ties,
    partition_stages,
)
from raysm.features.training.cluster.parallel.tensors import resolve_plan
from raysm.training import Parallel
from tests.support.parallel_modes import Attention, Transformer

WIDTH, HIDDEN = 8, 64


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)


def test_a_plan_is_resolved_by_the_names_of_the_modules():
    plan = {"layers.*.mlp.0": "colwise", "layers.*.mlp.2": "rowwise"}
    assert resolve_plan(Transformer(depth=2), plan, 2) == {
        "layers.0.mlp.0": "colwise",
        "layers.1.mlp.0": "colwise",
        "layers.0.mlp.2": "rowwise",
        "layers.1.mlp.2": "rowwise",
    }


class HuggingFace(nn.Module):
    """Carries its plan as transformers' models do."""

    base_model_prefix = "model"
    _tp_plan = {"lm_head": "colwise_rep"}

    def __init__(self, tied=False):
        super().__init__()
        self.config = SimpleNamespace(
            base_model_tp_plan={"layers.*.fc1": "colwise", "experts.*.fc1": "colwise"}
        )
        self.model = nn.Module()
        self.model.embed = nn.Embedding(6, WIDTH)
        self.model.layers = nn.ModuleList([Mlp(), Mlp()])
        self.lm_head = nn.Linear(WIDTH, 6, bias=False)
        if tied:
            self.lm_head.weight = self.model.embed.weight


def test_a_hugging_face_plan_is_taken_from_the_model():
    plan = resolve_plan(HuggingFace(), None, 2)
    assert list(plan) == ["model.layers.0.fc1", "model.layers.1.fc1", "lm_head"]
    assert plan["model.layers.0.fc1"] == "colwise"
    # Its outputs are gathered, so a tied one can stay whole.
    assert "lm_head" not in resolve_plan(HuggingFace(tied=True), None, 2)


def tied():
    model = nn.Sequential(Mlp(), Mlp())
    model[1].fc1.weight = model[0].fc1.weight
    return model


@pytest.mark.parametrize(
    ("model", "plan", "named"),
    [
        (Mlp(), None, "tensor=4: Mlp .* plan="),
        (Transformer(), {"nowhere": "colwise"}, "Transformer .*'nowhere'"),
        (Transformer(), {"head": "diagonal"}, "'head' .*'diagonal'"),
        (Transformer(), {"head": "colwise"}, "'head' .* 10, .*tensor=4"),
        (Attention(12, 3), {"q_proj": "colwise"}, "Attention .*num_heads=3, .*tensor=4"),
        (tied(), {"0.fc1": "colwise"}, r"'0.fc1' .*shared.*0.fc1 = 1.fc1"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(model, plan, named):
    with pytest.raises(InvalidRequest, match=named):
        resolve_plan(model, plan, 4)


TOKENS = torch.arange(48).reshape(12, 4) % 7
"""Twelve texts of four words."""


class Language(nn.Module):
    """Words to words: what comes in, and what goes out, goes by the same matrix."""

    def __init__(self, by="layer"):
        super().__init__()
        self.embed = nn.Embedding(7, 8)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(8, 7, bias=False)
        self.by = by
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return (self.head(x) if self.by == "layer" else F.linear(x, self.embed.weight)).transpose(
            1, 2
        )


@pytest.mark.parametrize("by", ["layer", "matrix"])
def test_a_matrix_that_comes_in_and_goes_out_is_found_with_all_its_names(by):
    (tie,) = find_ties(partition_stages(Language(by), 3, "layers"))
    assert tie == Tie(names=("embed.weight", "head.weight"), stages=(0, 2))


TIE = Tie(names=("embed.weight", "head.weight"), stages=(0, 2))


@pytest.mark.parametrize(
    ("layout", "cut", "message"),
    [
        (Layout(shard=2, pipeline=2), [], "stages 1 and 3 .*embed.weight = head.weight"),
        (Layout(tensor=2, pipeline=3), ["head"], "plan .*tensor workers"),
    ],
)
def test_copies_that_could_not_stay_alike_are_refused(layout, cut, message):
    with pytest.raises(InvalidRequest, match=message):
        check_ties([TIE], layout, cut)


def trained(parallel, by):
    """Return the losses, rank 0's whole model, this rank's copies, and the names of this rank's optimizer state."""
    torch.manual_seed(0)
    model = Language(by)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, eps=1e-3)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy, blocks="layers")
    data = torch.utils.data.TensorDataset(TOKENS, TOKENS.roll(1, 1))
    losses = [training.step(batch) for batch in training.batches(data, batch_size=6, epochs=3)]
    trainer = sessions.current().trainer
    here = {name: tensor.detach().clone() for name, tensor in trainer.parts.state_dict().items()}
    entries = sorted(trainer.state()["optimizer"])
    weights = trainer.full_state_dict()
    sessions.end()
    return losses, weights, here, entries


@pytest.mark.parametrize("by", ["layer", "matrix"])
def test_copies_stay_alike_to_the_last_bit_and_are_one_parameter_in_checkpoints(ranks, by):
    alone = trained(None, by)
    first, last = ranks.run(2, trained, Parallel(pipeline=2, microbatches=3), by)
    assert first[0] == pytest.approx(alone[0], abs=1e-5)
    assert list(first[1]) == list(alone[1])
    assert max(float((first[1][name] - alone[1][name]).abs().max()) for name in alone[1]) < 1e-5
    for name in ("embed.weight", "head.weight"):
        assert torch.equal(first[2][name], last[2][name])
    # The names that one process has: its checkpoint is one of the pipeline, and the other way
    # round.
    assert sorted({*first[3], *last[3]}) == alone[3]
    assert "state.embed.weight.exp_avg" in last[3]
