import re

import pytest
import torch
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.tensors.plan import check_pairs, check_plan, derive_plan, watch_first_forward
from tests.support.drawn_models import HIDDEN, WIDTH, Gated, Leaking, Named, Residual, share
from tests.support.parallel_modes import Attention, Transformer


def test_pairs_of_linear_layers_and_attentions_are_found():
    plan = derive_plan(Transformer(depth=1), 2).cuts
    assert plan == {
        "layers.0.attention.q_proj": "colwise",
        "layers.0.attention.k_proj": "colwise",
        "layers.0.attention.v_proj": "colwise",
        "layers.0.attention.out_proj": "rowwise",
        "layers.0.mlp.0": "colwise",
        "layers.0.mlp.2": "rowwise",
    }


def test_the_mlp_of_torchs_own_layer_is_found_and_its_attention_left_whole():
    plan = derive_plan(nn.TransformerEncoderLayer(8, 2, 16), 2).cuts
    assert plan == {"linear1": "colwise", "linear2": "rowwise"}


def test_a_gated_mlp_is_cut_in_all_three():
    assert derive_plan(Gated(), 2).cuts == {"w1": "colwise", "w3": "colwise", "w2": "rowwise"}


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 4)),
        nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 4)),
        Attention(6, 3),
    ],
    ids=["what lies between mixes outputs", "the width does not divide", "the heads do not divide"],
)
def test_what_cannot_be_cut_rightly_stays_whole(model):
    assert derive_plan(model, 2).cuts == {}


def test_an_attention_that_does_not_tell_the_size_of_its_heads_stays_whole():
    attention = Attention(8, 2)
    del attention.head_dim
    assert derive_plan(attention, 2).cuts == {}


@pytest.mark.parametrize(
    ("plan", "named"),
    [
        ({}, "no pair of linear layers was found in Transformer .*; say what to cut: plan="),
        ({"nowhere": "colwise"}, "Transformer has no module 'nowhere'"),
        ({"head": "diagonal"}, "'head' is 'diagonal'; it must be 'colwise', 'rowwise' or a ParallelStyle"),
        ({"head": "colwise"}, "'head' has a width of 10, which tensor=4 does not divide"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(plan, named):
    with pytest.raises(InvalidRequest, match=named):
        check_plan(Transformer(), plan, 4)


class Masked(Attention):
    """Has to be given a mask."""

    def forward(self, x, mask):
        return super().forward(x) * mask


class Mixing(Attention):
    """Its heads talk to each other."""

    def forward(self, x):
        heads = self.v_proj(x + self.q_proj(x).mean() + self.k_proj(x).mean())
        return self.out_proj(heads.unflatten(-1, (self.num_heads, self.head_dim)).softmax(-2).flatten(-2))


class Within(nn.Module):
    """Calls a block with a mask of its own making."""

    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        return self.block(x, torch.ones(x.shape[0], 1, 1))


MIXED = "what its forward does between .* mixes their outputs"
NEEDED = "needs the whole outputs of the layers that would be cut"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (Named(nn.Softmax(-1)), MIXED),
        (Named(nn.LayerNorm(HIDDEN)), NEEDED),
        (Leaking(), NEEDED),
        (Mixing(12, 4), f"{MIXED}|{NEEDED}"),
        (Masked(12, 4), "could not be tried .*give prepare an example batch"),
    ],
    ids=["softmax", "layer norm", "hidden values used elsewhere", "heads that talk", "unknown inputs"],
)
def test_a_pair_that_its_names_alone_speak_for_stays_whole_with_the_reason(module, reason):
    derived = derive_plan(nn.Sequential(module), 2)
    assert derived.cuts == {}
    assert list(derived.left) == ["0"]
    assert re.search(reason, derived.left["0"])


def test_the_functions_between_a_pair_may_be_anything_elementwise():
    module = Named(nn.Sequential(nn.GELU(), nn.Dropout(0.5)))
    assert derive_plan(nn.Sequential(Residual(module)), 3).cuts == {"0.inner.fc1": "colwise", "0.inner.fc2": "rowwise"}


@pytest.mark.parametrize("zeros", ["fc1", "fc2"])
def test_weights_that_begin_as_zeros_do_not_hide_what_mixes(zeros):
    module = Named(nn.Softmax(-1))
    nn.init.zeros_(module.get_submodule(zeros).weight)
    nn.init.zeros_(module.get_submodule(zeros).bias)
    assert derive_plan(module, 2).cuts == {}


def test_with_an_example_a_module_is_tried_on_what_the_model_gives_it():
    model = Within(Masked(12, 4))
    assert derive_plan(model, 2).cuts == {}
    derived = derive_plan(model, 2, [torch.randn(5, 3, 12)])
    assert derived.left == {}
    assert derived.cuts == {
        **{f"block.{name}": "colwise" for name in ("q_proj", "k_proj", "v_proj")},
        "block.out_proj": "rowwise",
    }


def test_a_pair_that_the_model_never_calls_as_a_whole_stays_whole():
    class Past(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Named(nn.GELU())

        def forward(self, x):
            return self.block.fc2(self.block.fc1(x).softmax(-1))

    assert derive_plan(Past(), 2, [torch.randn(4, WIDTH)]).left == {"block": "the model never calls it as a whole"}


def test_layers_whose_weights_others_have_too_stay_whole():
    model = nn.Sequential(Named(nn.GELU()), Named(nn.GELU()))
    share(model[0].fc1, model[1].fc1)
    derived = derive_plan(model, 2)
    assert derived.cuts == {}
    assert derived.left["0"] == "its weights are shared (0.fc1 = 1.fc1)"


def test_one_module_with_two_names_is_cut():
    module = Named(nn.GELU())
    assert derive_plan(nn.Sequential(module, module), 2).cuts == {"0.fc1": "colwise", "0.fc2": "rowwise"}


def test_a_trial_leaves_no_trace():
    class Counting(Named):
        def __init__(self):
            super().__init__(nn.Dropout(0.5))
            self.norm = nn.BatchNorm1d(3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return super().forward(self.norm(x)).add_(x)

    model = nn.Sequential(Counting(), Attention(WIDTH, 4))
    model[0].norm.eval()
    example = [torch.randn(4, 3, WIDTH)]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes, random, fast = [module.training for module in model.modules()], torch.get_rng_state(), mha_fast()
    assert len(derive_plan(model, 2, example).cuts) == 6
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert mha_fast() == fast
    assert model[1].num_heads == 4
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def mha_fast():
    return torch.backends.mha.get_fastpath_enabled()


def test_a_plan_of_the_user_that_would_compute_something_else_is_refused():
    model = nn.Sequential(Named(nn.Softmax(-1)), Named(nn.GELU()))
    plan = {f"{block}.fc1": "colwise" for block in range(2)} | {f"{block}.fc2": "rowwise" for block in range(2)}
    with pytest.raises(InvalidRequest, match=r"plan: 0 would compute something else: .*leave 0\.fc1, 0\.fc2 out of it"):
        check_pairs(model, plan, 2)
    check_pairs(model, {name: style for name, style in plan.items() if name.startswith("1")}, 2)
    check_pairs(Masked(12, 4), {"q_proj": "colwise", "out_proj": "rowwise"}, 2)


def test_an_example_that_the_model_does_not_take_is_refused():
    with pytest.raises(InvalidRequest, match="cannot be computed on two rows of the example .*give a batch like those"):
        derive_plan(Transformer(), 2, [torch.randn(4, 5, 9)])


class Tapped(nn.Module):
    """Goes through its layers one by one, and looks at each output."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        outputs = [x]
        for layer in self.layers:
            outputs.append(layer(outputs[-1]))
        return torch.stack(outputs).sum(0)


def test_layers_that_are_called_one_by_one_are_found_by_an_example_or_in_the_first_forward():
    model, x = Tapped(), torch.randn(4, 8)
    assert derive_plan(model, 2, [x]).left == {"layers": "the model never calls it as a whole"}
    plan = derive_plan(model, 2).cuts
    assert plan == {"layers.0": "colwise", "layers.2": "rowwise"}
    watch_first_forward(model, plan)
    with pytest.raises(
        InvalidRequest, match=r"layers\.0 is cut .* calls it outside of layers; give prepare an example"
    ):
        model(x)


def test_only_the_first_forward_is_watched():
    model = nn.Sequential(Named(nn.GELU()), Named(nn.GELU()))
    watch_first_forward(model, derive_plan(model, 2).cuts)
    model(torch.randn(4, WIDTH))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
