"""What a rank needs in memory while a model is made and sharded, computed without the memory and the other ranks.

``python3 -m tests.benchmarks.model_memory --computed`` prints it for a model of 70 billion
parameters. raysm's own code cuts the model over a process group of torch that sends nothing, and
over tensors that have shapes and no values.
"""

import contextlib
from dataclasses import dataclass, fields

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.mem_tracker import MemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from raysm.features.training.cluster.engines.mean_loss import MeanLoss
from raysm.features.training.cluster.loop.session import Session
from raysm.features.training.cluster.parallel import deferred
from raysm.features.training.cluster.parallel.deferred import Weights, make_without_weights
from raysm.features.training.cluster.parallel.optimizers import names_of_groups
from raysm.features.training.cluster.parallel.parallelize import Parallelizer
from raysm.training import Parallel

CPU = torch.device("cpu")


@dataclass(frozen=True, kw_only=True)
class Llama:
    """Sizes of a model; by default those of Llama 3 70B."""

    width: int = 8192
    layers: int = 80
    hidden: int = 28672
    heads: int = 64
    key_heads: int = 8
    words: int = 128256

    def model(self):
        with torch.device("meta"):
            return Decoder(self)


class Layer(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        keys = sizes.key_heads * sizes.width // sizes.heads
        self.norms = nn.ModuleList(nn.RMSNorm(sizes.width) for _ in range(2))
        self.query = nn.Linear(sizes.width, sizes.width, bias=False)
        self.key = nn.Linear(sizes.width, keys, bias=False)
        self.value = nn.Linear(sizes.width, keys, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)
        self.gate = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.up = nn.Linear(sizes.width, sizes.hidden, bias=False)
        self.down = nn.Linear(sizes.hidden, sizes.width, bias=False)


class Decoder(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.embed = nn.Embedding(sizes.words, sizes.width)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.words, bias=False)


class WithRealMesh(Parallelizer):
    """Makes the mesh of real numbers, since it computes with them."""

    def make_mesh(self):
        with unset_fake_temporarily():
            return Parallelizer.make_mesh(self)


@contextlib.contextmanager
def real_offsets():
    """Let the place of a share be computed of real numbers."""
    compute = deferred.compute_local_shape_and_global_offset

    def real(*given):
        with unset_fake_temporarily():
            return compute(*given)

    deferred.compute_local_shape_and_global_offset = real
    try:
        yield
    finally:
        deferred.compute_local_shape_and_global_offset = compute


class MeasuredWeights(Weights):
    """Measures while it fills: before that a rank has its share alone."""

    def fill(self, parts):
        with MemTracker() as tracker:
            tracker.track_external(parts)
            Weights.fill(self, parts)
        peaks.append(tracker.get_tracker_snapshot("peak")[CPU]["Total"])


peaks = []
"""Of the fills so far."""


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Bytes of one rank."""

    model: int
    largest_tensor: int
    share: int
    making: int
    """The most while the model gets its weights."""


def compute_peak(sizes, ranks, per_instance=8):
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=ranks)
    try:
        return _compute_peak(sizes, ranks, per_instance)
    finally:
        dist.destroy_process_group()


def _compute_peak(sizes, ranks, per_instance):
    # Not rank 0, which sends the weights if there are no files.
    hosts = tuple(f"algo-{rank // per_instance + 1}" for rank in range(ranks))
    session = Session(rank=1, world_size=ranks, local_rank=1, hosts=hosts, device=CPU)
    parallel = Parallel(shard=ranks)
    model, weights = make_without_weights(sizes.model, session, None)
    whole = [parameter.nbytes for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(model.parameters())
    groups = names_of_groups(optimizer, model)
    parallelizer = WithRealMesh(
        session=session,
        parallel=parallel,
        layout=parallel.layout(ranks),
        loss=MeanLoss(F.mse_loss),
        blocks="layers",
        weights=MeasuredWeights(
            **{field.name: getattr(weights, field.name) for field in fields(weights)}
        ),
    )
    with FakeTensorMode(allow_non_fake_inputs=True), real_offsets():
        cut = parallelizer.apply(model, groups)
    share = sum(parameter.to_local().nbytes for parameter in cut.parts.parameters())
    return Peak(model=sum(whole), largest_tensor=max(whole), share=share, making=peaks.pop())


def report():
    for ranks in (16, 64):
        peak = compute_peak(Llama(), ranks)
        print(
            f"{ranks} ranks: the model {_gb(peak.model)}, its largest tensor "
            f"{_gb(peak.largest_tensor)}, a share {_gb(peak.share)}, most while it is made "
            f"{_gb(peak.making)}",
            flush=True,
        )


def _gb(count):
    return f"{count / 1e9:.1f} GB"
