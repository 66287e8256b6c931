"""Trains the same small model in every mode, one after the other, on four workers."""

import os
from functools import partial
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.data import TensorDataset

from raysm import training
from raysm.features.training.cluster.engines.pipeline import UNRETURNED
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel

WORKERS = 4

ROWS, BATCH, EPOCHS = 56, 32, 1
"""Two batches, since momentum shows in the second one; that is smaller, and does not divide into
micro-batches."""

MODES = {
    "ddp": Parallel(),
    "shard": Parallel(shard=4),
    "hybrid shard": Parallel(data=2, shard=2),
    "1f1b": Parallel(pipeline=4, schedule="1f1b", microbatches=8),
    "interleaved": Parallel(pipeline=2, schedule="interleaved", microbatches=4),
    "tensor": Parallel(tensor=4),
    "data x pipeline": Parallel(data=2, pipeline=2, microbatches=4, placement="spread"),
    "data x tensor": Parallel(data=2, tensor=2),
    "shard x tensor": Parallel(shard=2, tensor=2),
    "pipeline x tensor": Parallel(pipeline=2, tensor=2, schedule="gpipe", microbatches=4),
    "memory": Parallel(shard=2, pipeline=2, microbatches=4, optimize="memory", offload=True),
}

MAX_NORM = 0.5
"""Of the gradients, where they are clipped: about half of what most of them have."""

CLIPPED = ["hybrid shard", "interleaved", "data x pipeline", "shard x tensor", "memory"]
"""Modes that train clipped, beside those of ``ACCUMULATED``: gradients lie over the ranks each in
another way."""

ACCUMULATED = ["ddp", "shard", "tensor", "data x tensor"]
"""Modes that train with their slices in pieces, and clipped: the norm is that of all pieces."""

EVALUATED = ["ddp", "hybrid shard", "interleaved", "memory", "pipeline x tensor"]
"""Modes that have the outputs on other ranks, or the rows: they train with an evaluation, which
leaves no trace."""

TRAINED = {name: {} for name in MODES}
"""How each mode trains, once: what a mode does beside its steps costs a training more, were it
shown by itself."""
TRAINED |= {name: {"max_norm": MAX_NORM} for name in CLIPPED}
TRAINED |= {name: {"max_norm": MAX_NORM, "accumulate": 3} for name in ACCUMULATED}
for _name in EVALUATED:
    TRAINED[_name] = TRAINED[_name] | {"evaluate_by": 8}

UNSEEN = 21
"""Rows of an evaluation in batches of eight: neither divides by the workers."""

RELAY = ["ddp", "interleaved", "shard x tensor", "data x pipeline", "memory"]
"""Modes that hand their state on to each other: whole, in shards, by stages, by strided parts of
tensors."""

if not UNRETURNED:
    # torch 2.9 is refused.
    for _modes in (CLIPPED, EVALUATED, RELAY):
        _modes.remove("interleaved")
    del MODES["interleaved"], TRAINED["interleaved"]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.num_heads, self.head_dim = heads, width // heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(width, width) for _ in range(4)
        )

    def forward(self, x):
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.attention, self.norm2 = (
            nn.LayerNorm(width),
            Attention(width, heads),
            nn.LayerNorm(width),
        )
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    """What makes cutting hard: parameters of the root, a value that skips all blocks, a buffer, an optional input."""

    def __init__(self, width=16, heads=4, depth=4, blocks=None):
        super().__init__()
        # As Hugging Face's models carry it; layers without these parts stay whole.
        self.tp_plan = {f"layers.*.attention.{name}_proj": "colwise" for name in "qkv"} | {
            "layers.*.attention.out_proj": "rowwise",
            "layers.*.mlp.0": "colwise",
            "layers.*.mlp.2": "rowwise",
        }
        self.embed = nn.Linear(8, width)
        self.token = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.register_buffer("scale", torch.tensor(0.5))
        self.layers = nn.ModuleList(blocks or (Block(width, heads) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x, scale=None):
        x = self.embed(x)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1)
        first = x
        for layer in self.layers:
            x = layer(x)
        if scale is not None:
            x = x * scale
        return self.head(self.norm(x[:, 0] + first[:, -1] * self.scale))


def data():
    generator = torch.Generator().manual_seed(7)
    rows = torch.randn(ROWS, 5, 8, generator=generator)
    return TensorDataset(rows, torch.randint(10, (ROWS,), generator=generator))


def prepared(parallel, **options):
    """A model of seed 0, whatever was drawn before; other ranks than 0 begin with other weights."""
    torch.manual_seed(sessions.current().rank)
    model = Transformer()
    return training.prepare(
        model, sgd(model), parallel, loss=F.cross_entropy, **{"blocks": "layers"} | options
    )


def handed_on(parallel):
    """Prepare for an epoch of the relay a model with half of the tensors: each is saved and loaded in every mode."""
    torch.manual_seed(sessions.current().rank)
    model = Transformer(blocks=[Block(16, 4), nn.Linear(16, 16), Block(16, 4), nn.Linear(16, 16)])
    return training.prepare(model, adam(model), parallel, loss=F.cross_entropy, blocks="layers")


def sgd(model):
    decayed = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    return torch.optim.SGD(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others}], lr=0.1, momentum=0.9
    )


def adam(model):
    # The gradients of the keys' biases are rounding errors: Adam would make steps of them but for a
    # large epsilon. Most stages have no part of the second group.
    head = list(model.head.parameters())
    others = [
        parameter for name, parameter in model.named_parameters() if not name.startswith("head.")
    ]
    return torch.optim.AdamW([{"params": others}, {"params": head, "lr": 0.02}], lr=0.01, eps=0.01)


def train(parallel, *, evaluate_by=None, **options):
    """Train; return losses, rank 0's final weights, and an evaluation in batches of ``evaluate_by``."""
    prepared(parallel, **options)
    losses, measured = [], []
    for batch in training.batches(data(), batch_size=BATCH, epochs=EPOCHS, seed=3):
        losses.append(training.step(batch))
        if evaluate_by and not measured:
            unseen = torch.utils.data.Subset(data(), range(UNSEEN))
            measured.append(
                training.evaluate(unseen, batch_size=evaluate_by, metrics={"accuracy": accuracy})
            )
    weights = sessions.current().trainer.full_state_dict()
    sessions.end()
    return losses, weights, measured


def accuracy(output, target):
    return (output.argmax(-1) == target).float().mean()


def evaluated_norms(parallel):
    """Train a model with batch norms for a step on shifted rows; return what an evaluation measures."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=1.0), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy)
    inputs, target = data().tensors
    rows = inputs[:, 0] + torch.arange(ROWS)[:, None] / 10
    # Before the step: it learns nothing, so that the averages alone tell the ranks from each other.
    optimizer.param_groups[0]["lr"] = 0.0
    for batch in training.batches(
        TensorDataset(rows, target), batch_size=ROWS, epochs=1, shuffle=False
    ):
        training.step(batch)
    measured = training.evaluate(TensorDataset(rows, target), batch_size=ROWS)
    sessions.end()
    return measured


def normed(parallel, precision="fp32"):
    """Train a model with batch norms in two batches; return its weights and running averages."""
    torch.manual_seed(0)
    layers = [layer for _ in range(2) for layer in (nn.Linear(8, 8), nn.BatchNorm1d(8))]
    model = nn.Sequential(*layers, nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training.prepare(model, optimizer, parallel, loss=F.cross_entropy, precision=precision)
    inputs, target = data().tensors
    for batch in training.batches(
        TensorDataset(inputs[:, 0], target), batch_size=ROWS // 2, epochs=1, seed=3
    ):
        training.step(batch)
    weights = sessions.current().trainer.full_state_dict()
    sessions.end()
    return weights


def relay(modes):
    """Train an epoch in each mode, each going on from what the one before has saved; return losses and weights."""
    losses, folder = [], Path("relay")
    for epoch, mode in enumerate(modes):
        handed_on(MODES[mode])
        session = sessions.current()
        if epoch:
            state = session.trainer.state()
            dcp.load(state, checkpoint_id=folder / f"epoch-{epoch - 1}")
            session.trainer.load(state)
        session.position.epoch = epoch
        losses += [
            training.step(batch)
            for batch in training.batches(data(), batch_size=ROWS, epochs=epoch + 1)
        ]
        dcp.save(session.trainer.state(), checkpoint_id=folder / f"epoch-{epoch}")
        weights = session.trainer.full_state_dict()
        sessions.end()
    return losses, weights


TRAININGS = {
    **{name: partial(train, parallel, **TRAINED[name]) for name, parallel in MODES.items()},
    "bf16": partial(train, Parallel(shard=2, pipeline=2, microbatches=4), precision="bf16"),
    "named": partial(train, Parallel(pipeline=2, data=2, microbatches=4), blocks=["layers.3"]),
    "norms evaluated, sharded": partial(evaluated_norms, Parallel(shard=4)),
    "norms evaluated": partial(evaluated_norms, Parallel()),
    "normed": partial(normed, Parallel(shard=4)),
    "normed, memory": partial(normed, Parallel(shard=4, optimize="memory")),
    "normed, bf16": partial(normed, Parallel(shard=4), "bf16"),
    "normed, pipeline": partial(normed, Parallel(data=2, pipeline=2, microbatches=2)),
    "relay": partial(relay, RELAY),
}
"""All that the ranks can be asked to train, by its name."""


def main(arguments):
    """Be one rank of a launch; leave in the folder what was found in each of the trainings that are named."""
    folder, *names = arguments
    torch.set_num_threads(1)
    os.chdir(folder)
    results = {name: TRAININGS[name]() for name in names}
    torch.save(results, f"rank-{training.rank()}.pt")
    torch.distributed.destroy_process_group()
