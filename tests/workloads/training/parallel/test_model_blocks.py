"""The blocks of a model."""

import pytest
from torch import nn

from raysm.errors import InvalidRequest
from raysm.workloads.training.parallel.blocks import block_names, container_of_blocks


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.single = nn.Sequential(nn.Linear(64, 64))


def test_the_container_with_the_most_parameters_is_taken_and_one_of_one_is_none():
    assert container_of_blocks(Transformer()) == "layers"
    assert block_names(Transformer()) == ["layers.0", "layers.1", "layers.2"]


def test_a_container_can_be_named_and_the_model_itself_may_be_it():
    assert block_names(Transformer(), "stem") == ["stem.0", "stem.1"]
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    assert container_of_blocks(model) == ""
    assert block_names(model) == ["0", "1"]


def test_a_model_without_blocks_has_none():
    assert container_of_blocks(nn.Linear(2, 2)) is None
    assert block_names(nn.Linear(2, 2)) == []


def test_what_is_no_container_is_refused_with_those_that_are():
    with pytest.raises(InvalidRequest, match="'single' is no Sequential .* of Transformer .*'stem', 'layers'"):
        block_names(Transformer(), "single")
