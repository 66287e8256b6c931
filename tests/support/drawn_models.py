"""Small models, data and layouts that property tests draw: a picklable value from which all follows by its seed."""

import dataclasses

import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Subset, TensorDataset

from raysm.features.training.cluster.engines.pipeline import UNRETURNED
from raysm.training import Parallel
from tests.support.parallel_modes import Attention

FEATURES, WIDTH, HIDDEN, CLASSES, TOKENS = 6, 12, 24, 5, 3
"""The widths divide by 2, 3 and 4; the heads of the attentions, four, by 2 and 4 only."""


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), inner

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Named(nn.Module):
    """Two layers with the field's names; ``between`` is what the names do not tell."""

    def __init__(self, between):
        super().__init__()
        self.fc1, self.fc2, self.between = (
            nn.Linear(WIDTH, HIDDEN),
            nn.Linear(HIDDEN, WIDTH),
            between,
        )

    def forward(self, x):
        return self.fc2(self.between(self.fc1(x)))


class Leaking(nn.Module):
    """The hidden values are used beside the pair, too."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x):
        hidden = torch.tanh(self.fc1(x))
        return self.fc2(hidden) + hidden.mean(-1, keepdim=True)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (
            nn.Linear(WIDTH, HIDDEN, bias=False),
            nn.Linear(WIDTH, HIDDEN, bias=False),
        )
        self.w2 = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.left(x) * torch.sigmoid(self.right(x))


class Idle(nn.Module):
    """A part that its forward never uses."""

    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.used(x))


class BatchNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def forward(self, x):
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


BLOCKS = {
    "linear": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()),
    "mlp": lambda: Residual(
        nn.Sequential(
            nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Dropout(0.0), nn.Linear(HIDDEN, WIDTH)
        )
    ),
    "named": lambda: Residual(Named(nn.Sequential(nn.GELU(), nn.Dropout(0.0)))),
    "softmax": lambda: Residual(Named(nn.Softmax(-1))),
    "leaking": lambda: Residual(Leaking()),
    "gated": lambda: Residual(Gated()),
    "attention": lambda: Residual(Attention(WIDTH, 4)),
    "encoder": lambda: nn.TransformerEncoderLayer(WIDTH, 4, HIDDEN, dropout=0.0, batch_first=True),
    "branches": lambda: Residual(Branches()),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "idle": lambda: Residual(Idle()),
    "batch norm": BatchNormed,
    "dropout": lambda: nn.Dropout(0.3),
}
"""Makers of blocks, [rows, TOKENS, WIDTH] -> the same shape."""

CUTS = {
    "mlp": {"inner.0": "colwise", "inner.3": "rowwise"},
    "named": {"inner.fc1": "colwise", "inner.fc2": "rowwise"},
    "gated": {"inner.w1": "colwise", "inner.w3": "colwise", "inner.w2": "rowwise"},
    "attention": {f"inner.{name}_proj": "colwise" for name in "qkv"}
    | {"inner.out_proj": "rowwise"},
    "encoder": {"linear1": "colwise", "linear2": "rowwise"},
}
"""Which layers of a block a tensor group cuts, by the block's kind."""

EXACT = tuple(kind for kind in BLOCKS if kind not in ("batch norm", "dropout"))
"""Blocks by which each row's result follows from that row and the weights alone."""


class Chain(nn.Module):
    """Blocks one after the other, between an embedding and a head."""

    def __init__(self, drawn):
        super().__init__()
        if drawn.early:
            # Declared first, called last, and (of the last block) the same parameters: it has the
            # first name of each.
            self.early = BLOCKS[drawn.blocks[-1]]()
        if drawn.unused:
            self.unused = nn.Linear(WIDTH, 2)
            self.register_buffer("idle", torch.tensor([1.0, 2.0]))
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(BLOCKS[kind]() for kind in drawn.blocks)
        self.head = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("scale", torch.tensor(0.5))
        if drawn.early:
            share(self.layers[-1], self.early)
        if drawn.tied is not None:
            first, second = drawn.tied
            share(self.layers[first], self.layers[second])
        if drawn.frozen is not None:
            self.layers[drawn.frozen].requires_grad_(False)
        # Weights that two blocks share cannot be cut.
        shared = {*(drawn.tied or ()), *([len(drawn.blocks) - 1] if drawn.early else ())}
        self.tp_plan = {
            f"layers.{number}.{name}": style
            for number, kind in enumerate(drawn.blocks)
            if number not in shared
            for name, style in CUTS.get(kind, {}).items()
        }
        self.is_skipping, self.calls_early = drawn.skipping, drawn.early

    def forward(self, x):
        x = self.embed(x)
        first = x
        for layer in self.layers:
            x = layer(x)
        if self.calls_early:
            x = self.early(x)
        if self.is_skipping:
            x = x + first * self.scale
        return self.head(x.mean(1))


def share(owner, other):
    """Give ``other`` the very parameters of ``owner``, a module of the same kind."""
    for name, module in other.named_modules():
        for leaf in module._parameters:
            module._parameters[leaf] = owner.get_submodule(name)._parameters[leaf]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawn:
    """A model, its data and how it is trained."""

    blocks: tuple[str, ...]
    """Kinds of the blocks, keys of BLOCKS."""
    tied: tuple[int, int] | None = None
    """Two blocks of one kind with the same parameters."""
    early: bool = False
    """Whether a module that is declared before all others, and called after the last block, shares
    that one's."""
    unused: bool = False
    """Whether there are a layer and a buffer that forward never uses."""
    frozen: int | None = None
    """A block whose parameters are not trained."""
    skipping: bool = False
    """Whether the blocks' input is used again after the last one."""
    rule: str = "sgd"
    """``sgd`` (momentum, weight decay), or ``adamw`` with two groups."""
    max_norm: float | None = None
    """Of all gradients."""
    rows: int = 40
    """Samples."""
    batch_size: int = 16
    """Global."""
    epochs: int = 2
    """Passes."""
    subset: bool = False
    """Whether the data set is a Subset of another one, in another order."""
    seed: int = 0
    """Of weights, data and order."""

    def model(self):
        """Return the model; what was drawn before does not matter."""
        with torch.random.fork_rng([]):
            torch.manual_seed(self.seed)
            return Chain(self)

    def optimizer(self, model):
        if self.rule == "sgd":
            return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        # A large epsilon: gradients that are rounding errors (keys' biases) must not become steps.
        head = list(model.head.parameters())
        others = [
            parameter
            for name, parameter in model.named_parameters()
            if not name.startswith("head.")
        ]
        return torch.optim.AdamW(
            [{"params": others}, {"params": head, "lr": 0.02}], lr=0.01, eps=0.01
        )

    def dataset(self):
        """Return the data set of ``rows`` samples: float32[TOKENS, FEATURES], int64[]."""
        generator = torch.Generator().manual_seed(self.seed + 1)
        inputs = torch.randn(self.rows, TOKENS, FEATURES, generator=generator)
        labels = torch.randint(CLASSES, (self.rows,), generator=generator)
        whole = TensorDataset(inputs, labels)
        return Subset(whole, list(reversed(range(self.rows)))) if self.subset else whole


@st.composite
def drawn_trainings(draw, *, kinds=EXACT, multiple_of=1):
    """Draw a training of ``kinds`` of blocks; ``multiple_of`` divides its batch size."""
    blocks = tuple(draw(st.lists(st.sampled_from(kinds), min_size=2, max_size=5)))
    pairs = [
        (first, second)
        for second in range(len(blocks))
        for first in range(second)
        if blocks[first] == blocks[second] and blocks[first] != "dropout"
    ]
    batch_size = multiple_of * draw(st.integers(1, max(1, 24 // multiple_of)))
    return Drawn(
        blocks=blocks,
        tied=draw(st.none() | st.sampled_from(pairs)) if pairs else None,
        early=draw(st.booleans()),
        unused=draw(st.integers(0, 3)) == 0,
        frozen=draw(st.none() | st.integers(0, len(blocks) - 1)),
        skipping=draw(st.booleans()),
        rule=draw(st.sampled_from(["sgd", "adamw"])),
        max_norm=draw(st.sampled_from([None, 0.3])),
        # At least one whole batch, and mostly a short one after it.
        rows=batch_size + draw(st.integers(0, 2 * batch_size - 1)),
        batch_size=batch_size,
        epochs=draw(st.integers(1, 2)),
        subset=draw(st.booleans()),
        seed=draw(st.integers(0, 1000)),
    )


@st.composite
def layouts(draw, workers):
    """Draw a ``Parallel`` whose degrees multiply to ``workers``."""
    degrees = {"data": 1, "shard": 1, "pipeline": 1, "tensor": 1}
    rest = workers
    for prime in (2, 3):
        while rest % prime == 0:
            degrees[draw(st.sampled_from(sorted(degrees)))] *= prime
            rest //= prime
    assert rest == 1, f"{workers} workers have a factor that no degree was given"
    options = {"optimize": draw(st.sampled_from(["speed", "memory"]))}
    if degrees["pipeline"] > 1:
        schedule = draw(
            st.sampled_from(["gpipe", "1f1b", *(["interleaved"] if UNRETURNED else [])])
        )
        options |= {"schedule": schedule, "placement": draw(st.sampled_from(["cluster", "spread"]))}
        fewest = {"gpipe": 1, "1f1b": degrees["pipeline"], "interleaved": degrees["pipeline"]}[
            schedule
        ]
        options["microbatches"] = fewest * draw(st.integers(1, 2))
    return Parallel(**degrees, **options)
