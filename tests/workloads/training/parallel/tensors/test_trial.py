"""Whether a pair of layers can be cut without changing what its module computes."""

import torch
from torch import nn

from raysm.workloads.training.parallel.tensors.trial import Pair, Trials, share_of_heads

PAIR = Pair(module="mlp", before=("fc1",), after="fc2")


class Mlp(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.fc1, self.fc2, self.between = nn.Linear(4, 8), nn.Linear(8, 4), between

    def forward(self, rows):
        return self.fc2(self.between(self.fc1(rows)))


class Model(nn.Module):
    def __init__(self, between):
        super().__init__()
        self.mlp = Mlp(between)
        self.num_heads = 4

    def forward(self, rows):
        return self.mlp(rows)


def objection(between, example=None):
    return Trials(Model(between), 2)([PAIR], example)[PAIR]


def test_an_elementwise_function_between_them_is_no_objection():
    assert objection(torch.relu) is None
    assert objection(torch.relu, (torch.ones(5, 4),)) is None


def test_what_mixes_the_columns_is_one():
    assert "mixes their outputs" in objection(lambda hidden: hidden.softmax(-1)).reason


def test_a_module_that_cannot_be_tried_is_left_without_a_proof():
    def fails(hidden):
        raise RuntimeError("not on made-up rows")

    answer = objection(fails)
    assert "could not be tried (RuntimeError: not on made-up rows)" in answer.reason
    assert not answer.is_proven


def test_an_attention_counts_a_share_of_its_heads_for_a_while():
    model = Model(torch.relu)
    with share_of_heads(model, 2):
        assert model.num_heads == 2
    assert model.num_heads == 4
