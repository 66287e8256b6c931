"""Plans of tensor parallelism."""

from types import SimpleNamespace

import pytest
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.loop import session as sessions
from raysm.workloads.training.parallel.tensors import resolve_plan
from tests.support.parallel_modes import Attention, Transformer

WIDTH, HIDDEN = 8, 64


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)


@pytest.fixture(autouse=True)
def _no_session_left():
    yield
    sessions.end()


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
        (Mlp(), None, r"tensor=4: Mlp has no tensor plan; pass plan="),
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
