"""Cutting a model over the ranks of a layout, as far as one process can see it."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from raysm.errors import InvalidRequest
from raysm.training import Parallel
from raysm.workloads.training.degrees import Layout
from raysm.workloads.training.loop.session import Session
from raysm.workloads.training.parallel.optimizers import names_of_groups
from raysm.workloads.training.parallel.parallelize import Parallelizer


def parallelizer(**fields):
    session = Session(rank=0, world_size=1, local_rank=0, hosts=("algo-1",), device=torch.device("cpu"))
    fields = {"parallel": Parallel(), "layout": Layout()} | fields
    return Parallelizer(session=session, loss=functional.mse_loss, **fields)


def apply(cutting, model):
    return cutting.apply(model, names_of_groups(torch.optim.SGD(model.parameters(), lr=0.1), model))


def test_one_worker_has_the_model_as_it_is():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    cut = apply(parallelizer(), model)
    assert (cut.wrapped, cut.parts, cut.stages) == (model, model, None)
    assert cut.engine.averaged == {}


@pytest.mark.parametrize("field", [{"optimize": "memory"}, {"offload": True}])
def test_a_model_without_blocks_has_nothing_to_compute_again_or_to_offload(field):
    with pytest.raises(InvalidRequest, match="Linear has no Sequential or ModuleList .* name one by blocks"):
        apply(parallelizer(parallel=Parallel(**field)), nn.Linear(2, 1))


@pytest.mark.parametrize(
    ("layout", "is_plain"), [(Layout(data=4), True), (Layout(data=2, shard=2), False), (Layout(pipeline=2), False)]
)
def test_replicas_alone_are_plain(layout, is_plain):
    assert parallelizer(layout=layout).is_plain is is_plain
