import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from raysm import training
from raysm.errors import InvalidRequest
from raysm.features.training.cluster.degrees import Layout, Parallel
from raysm.features.training.cluster.loop import session as sessions
from raysm.features.training.cluster.model_file import MODEL_FILE, write

TWO_BY_TWO = ["algo-1", "algo-1", "algo-2", "algo-2"]


def test_clustered_stages_of_a_replica_are_neighbours_and_spread_ones_lie_on_different_instances():
    assert Layout(data=2, pipeline=2).groups("pipeline") == [[0, 1], [2, 3]]
    assert Layout(data=2, pipeline=2, placement="spread").groups("pipeline") == [[0, 2], [1, 3]]


def test_a_tensor_over_two_instances_is_refused_with_the_ranks_and_the_remedy():
    with pytest.raises(InvalidRequest, match="tensor=4: .*rank 2 on algo-2.* 2 workers"):
        Layout(tensor=4).check_hosts(TWO_BY_TWO)
    Layout(data=2, tensor=2).check_hosts(TWO_BY_TWO)


def test_another_number_of_workers_per_instance_than_asked_for_is_refused():
    with pytest.raises(
        InvalidRequest, match="workers_per_instance=8.*algo-1.* 2.*--workers-per-instance"
    ):
        Layout(data=4).check_hosts(TWO_BY_TWO, 8)


def parts(width=4):
    model = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 2))
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("parallel", "workers", "layout"),
    [
        (Parallel(), 4, Layout(data=4)),
        (Parallel(pipeline=2), 8, Layout(data=4, pipeline=2)),
        (Parallel(shard=None), 8, Layout(shard=8)),
        (Parallel(data=2, shard=None, tensor=2), 8, Layout(data=2, shard=2, tensor=2)),
        (Parallel(pipeline=4, placement="spread"), 4, Layout(pipeline=4, placement="spread")),
    ],
)
def test_a_degree_left_open_takes_what_the_workers_allow(parallel, workers, layout):
    assert parallel.layout(workers) == layout


@pytest.mark.parametrize(
    ("parallel", "workers", "named"),
    [
        (
            Parallel(data=2, pipeline=2),
            8,
            "data=2 x shard=1 x pipeline=2 x tensor=1 is 4.* 8",
        ),
        (Parallel(pipeline=3), 4, "shard=1 x pipeline=3 x tensor=1 is 3.* 4"),
        (Parallel(pipeline=8), 4, "is 8.* 4"),
    ],
)
def test_degrees_that_do_not_multiply_to_the_workers_are_refused_with_each_factor(
    parallel, workers, named
):
    with pytest.raises(InvalidRequest, match=named):
        parallel.layout(workers)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"offload_weights": True}, "offload_weights .*shards.*shard above 1"),
        ({"keep_gradients": True}, "keep_gradients .*shards.*shard above 1"),
        ({"unused_parameters": True, "pipeline": 2}, "unused_parameters .*pipeline=2"),
        ({"keep_gradients": True, "shard": 2, "pipeline": 2}, "keep_gradients .*pipeline=2"),
        ({"data": 0}, "data .*got 0"),
        ({"pipeline": 2.0}, "pipeline .*got 2.0"),
        ({"placement": "pack"}, "placement .*'pack'.*'cluster', 'spread'"),
        ({"schedule": "zero"}, "schedule .*'zero'.*'gpipe', '1f1b', 'interleaved'"),
        ({"microbatches": 4}, "microbatches .*pipeline"),
        ({"pipeline": 4, "microbatches": 2}, "microbatches=2 .*pipeline=4"),
        (
            {"pipeline": 2, "stages_per_worker": 2},
            "stages_per_worker .*schedule='interleaved'.*'1f1b'",
        ),
        (
            {"pipeline": 2, "schedule": "interleaved", "stages_per_worker": 1},
            "stages_per_worker of at least 2",
        ),
        (
            {"pipeline": 2, "schedule": "interleaved", "microbatches": 3},
            "microbatches=3 .*pipeline=2",
        ),
    ],
)
def test_fields_that_cannot_be_are_refused_by_name(fields, named):
    with pytest.raises(InvalidRequest, match=named):
        Parallel(**fields)


def test_a_batch_that_does_not_divide_into_micro_batches_is_refused_with_what_would():
    parallel = Parallel(pipeline=2, microbatches=4)
    parallel.check_batch(32, workers=4)
    with pytest.raises(InvalidRequest, match="batch_size=36.*microbatches=4.* 8"):
        parallel.check_batch(36, workers=4)


def test_prepare_refuses_what_does_not_fit_before_anything_is_changed():
    model, optimizer = parts()
    with pytest.raises(InvalidRequest, match=" 2.* workers, 1"):
        training.prepare(model, optimizer, Parallel(data=2), loss=functional.cross_entropy)
    with pytest.raises(InvalidRequest, match="'fp16'"):
        training.prepare(model, optimizer, loss=functional.cross_entropy, precision="fp16")
    with pytest.raises(InvalidRequest, match=r"\(4, 3\)"):
        training.prepare(parts()[0], optimizer, loss=functional.cross_entropy)
    with pytest.raises(InvalidRequest, match="step .*before training.prepare"):
        training.step((torch.zeros(1, 3), torch.zeros(1)))
    training.prepare(model, optimizer, loss=functional.cross_entropy)
    with pytest.raises(InvalidRequest, match="called already"):
        training.prepare(model, optimizer, loss=functional.cross_entropy)


def test_one_process_trains_as_the_plain_loop_does_bit_for_bit():
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(20, 3), torch.arange(20) % 2)
    torch.manual_seed(2)
    model, optimizer = parts()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    plain = []
    for _ in range(2):
        for first in range(0, 20, 8):
            loss = functional.cross_entropy(
                model(data[first : first + 8][0]), data[first : first + 8][1]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            plain.append(loss.item())
    torch.manual_seed(2)
    other, optimizer = parts()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    training.prepare(other, optimizer, loss=functional.cross_entropy, scheduler=scheduler)
    assert [
        training.step(batch)
        for batch in training.batches(data, batch_size=8, epochs=2, shuffle=False)
    ] == plain
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True)
    )


def test_recomputed_and_offloaded_blocks_train_as_kept_ones_do_bit_for_bit():
    found = []
    for parallel in (None, Parallel(optimize="memory"), Parallel(offload=True)):
        torch.manual_seed(3)
        model, optimizer = training.prepare(*parts(), parallel, loss=functional.cross_entropy)
        batch = (torch.linspace(-1, 1, 12).view(4, 3), torch.tensor([0, 1, 1, 0]))
        found.append([training.step(batch) for _ in range(3)])
        sessions.end()
    assert found[0] == found[1] == found[2]


class Tied(nn.Module):
    """An embedding whose weights are the output layer's, and a buffer that is a part of a larger tensor."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Embedding(5, 3)
        self.outside = nn.Linear(3, 5, bias=False)
        self.outside.weight = self.inside.weight
        self.register_buffer("part", torch.arange(10.0).view(2, 5).T[1:3])


def test_plain_torch_reads_it_tied_weights_included(tmp_path):
    torch.manual_seed(0)
    model, other = Tied(), Tied()
    path = write(model.state_dict(), tmp_path / "new")
    assert path == tmp_path / "new" / MODEL_FILE
    other.load_state_dict(load_file(path))
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
    assert path.stat().st_mode & 0o777 == 0o644
