"""Plans of tensor parallelism, and dropout in a tensor group."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from raysm import training
from raysm.errors import InvalidRequest
from raysm.training import Parallel
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.parallel.tensors import resolve_plan
from tests.support.parallel_modes import Attention, Transformer

WIDTH, HIDDEN = 8, 64


class Mlp(nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.between, self.after = nn.Dropout(p), nn.Dropout(p)

    def forward(self, x):
        return self.after(self.fc2(self.between(torch.tanh(self.fc1(x)))))


class Block(nn.Module):
    """A pair with a forward of its own, and one in a Sequential."""

    def __init__(self, p):
        super().__init__()
        self.mlp = Mlp(p)
        self.row = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.Tanh(), nn.Dropout(p), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x):
        return x + self.row(x + self.mlp(x))


PLAN = {"mlp.fc1": "colwise", "mlp.fc2": "rowwise", "row.0": "colwise", "row.3": "rowwise"}


class Model(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.layers = nn.ModuleList([Block(p), Block(p)])
        self.head = nn.Linear(WIDTH, 3)
        self.tp_plan = {f"layers.*.{name}": style for name, style in PLAN.items()}

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


def gone_on_with(folder, until):
    """Train from the newest checkpoint to a step; return the losses."""
    torch.manual_seed(0)
    model = Model(0.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = training.Checkpoints(every_steps=1, folder=folder)
    training.prepare(model, optimizer, Parallel(tensor=2), loss=F.cross_entropy, seed=5, checkpoints=kept)
    rows, target = torch.linspace(-1, 1, 12 * WIDTH).reshape(12, WIDTH), torch.arange(12) % 3
    losses = [training.step((rows, target)) for _ in range(sessions.current().position.steps, until)]
    sessions.end()
    return losses


def test_a_training_that_was_interrupted_drops_what_an_undisturbed_one_does(ranks, tmp_path):
    undisturbed = ranks.run(2, gone_on_with, tmp_path / "whole", 4)
    before = ranks.run(2, gone_on_with, tmp_path / "torn", 2)
    after = ranks.run(2, gone_on_with, tmp_path / "torn", 4)
    # To the last bit: with other masks, losses would differ in their second digit.
    assert [first + second for first, second in zip(before, after, strict=True)] == undisturbed
    assert len(after[0]) == 2


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
        self.config = SimpleNamespace(base_model_tp_plan={"layers.*.fc1": "colwise", "experts.*.fc1": "colwise"})
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
        (Model(0.0).layers[0], None, r"tensor=4: Block has no tensor plan; pass plan="),
        (Transformer(), {"nowhere": "colwise"}, "Transformer has no module 'nowhere'"),
        (Transformer(), {"head": "diagonal"}, "'head' is 'diagonal'; it must be 'colwise', 'rowwise' or a Parallel"),
        (Transformer(), {"head": "colwise"}, "'head' has a width of 10, which tensor=4 does not divide"),
        (Attention(12, 3), {"q_proj": "colwise"}, "Attention has num_heads=3, which tensor=4 does not divide"),
        (tied(), {"0.fc1": "colwise"}, r"the weights of '0.fc1' are shared \(0.fc1 = 1.fc1\)"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(model, plan, named):
    with pytest.raises(InvalidRequest, match=named):
        resolve_plan(model, plan, 4)
