import pytest
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.tensor_plan import check_plan, derived_plan
from tests.support.parallel_modes import Attention, Transformer


def test_pairs_of_linear_layers_and_attentions_are_found():
    plan = derived_plan(Transformer(depth=1), 2)
    assert plan == {
        "layers.0.attention.q_proj": "colwise",
        "layers.0.attention.k_proj": "colwise",
        "layers.0.attention.v_proj": "colwise",
        "layers.0.attention.out_proj": "rowwise",
        "layers.0.mlp.0": "colwise",
        "layers.0.mlp.2": "rowwise",
    }


def test_the_mlp_of_torchs_own_layer_is_found_and_its_attention_left_whole():
    plan = derived_plan(nn.TransformerEncoderLayer(8, 2, 16), 2)
    assert plan == {"linear1": "colwise", "linear2": "rowwise"}


def test_a_gated_mlp_is_cut_in_all_three():
    model = nn.Module()
    model.gate_proj, model.up_proj, model.down_proj = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)
    assert derived_plan(model, 2) == {"gate_proj": "colwise", "up_proj": "colwise", "down_proj": "rowwise"}


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
    assert derived_plan(model, 2) == {}


def test_an_attention_that_does_not_tell_the_size_of_its_heads_stays_whole():
    attention = Attention(8, 2)
    del attention.head_dim
    assert derived_plan(attention, 2) == {}


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
