"""Drawn trainings that are interrupted and gone on with, as the ranks of ``standing_ranks`` run them."""

import contextlib
import dataclasses
import io
import random
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils.data import Dataset, Subset

from raysm import training
from raysm.features.training.cluster.loop import session as sessions
from raysm.training import Parallel
from tests.support.drawn_models import Drawn

OPTIMIZERS = {
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.05, lr_decay=0.1, eps=0.01),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=0.01, amsgrad=True),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, nesterov=True
    ),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5, eps=0.01),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.01),
    "dampened": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.3),
}
"""Beside those of ``Drawn`` itself; with a large epsilon, so that rounding errors do not become
steps."""

SCHEDULERS = {
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    "exponential": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
}


class Noisy(Dataset):
    """Another data set with noise that is drawn anew for each sample of each epoch."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, row):
        inputs, target = self.dataset[row]
        return inputs + 0.1 * torch.rand(()) * random.random(), target


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """A drawn training, and how it is stepped, checked and kept."""

    drawn: Drawn
    """Model and data."""
    optimizer: str | None = None
    """Key of OPTIMIZERS; None is the drawn one's own."""
    scheduler: str | None = None
    """Key of SCHEDULERS; None is none."""
    noisy: bool = False
    """Whether the samples draw at random."""
    validates: bool = False
    """Whether each epoch ends with a look at other data."""
    every_steps: int = 2
    """Between two checkpoints."""

    def dataset(self):
        whole = self.drawn.dataset()
        return Subset(Noisy(whole), range(len(whole))) if self.noisy else whole


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leg:
    """What one rank knows when a part of a training is over."""

    losses: dict
    """Of each step, by its number."""
    weights: dict
    """The whole model on rank 0, on the others {}."""
    drawn: tuple
    """What this rank's random generators draw next."""
    whole_everywhere: dict
    """The parameters that this rank has uncut."""
    without_state: set
    """Names of the parameters without a state of the optimizer."""
    said: str
    """What was printed."""


def leg(work: Training, parallel: Parallel | None, folder: Path | None, steps: int | None) -> Leg:
    """Train on from what the folder has until the step; None is to the end."""
    model = work.drawn.model()
    make = OPTIMIZERS.get(work.optimizer)
    optimizer = make(model.parameters()) if make else work.drawn.optimizer(model)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        training.prepare(
            model,
            optimizer,
            parallel,
            loss=F.cross_entropy,
            blocks="layers",
            max_norm=work.drawn.max_norm,
            scheduler=SCHEDULERS[work.scheduler](optimizer) if work.scheduler else None,
            checkpoints=training.Checkpoints(every_steps=work.every_steps, folder=folder)
            if folder
            else None,
            seed=5,
        )
        losses = stepped(work, model, steps)
        prepared = sessions.current().trainer
        weights = prepared.full_state_dict()
        sessions.end()  # the last checkpoint is whole when another process goes on
    named = dict(prepared.parts.named_parameters())
    return Leg(
        losses=losses,
        weights=weights,
        drawn=(torch.rand(2).tolist(), random.random(), float(np.random.random())),
        whole_everywhere={
            n: p.detach().clone() for n, p in named.items() if type(p) is torch.nn.Parameter
        },
        without_state={
            name for name, parameter in named.items() if parameter not in prepared.optimizer.state
        },
        said=said.getvalue(),
    )


def stepped(work, model, steps):
    """Train until the step as people do, with a validation after each epoch; return the losses by step."""
    session, losses = sessions.current(), {}
    for _ in training.epochs(work.drawn.epochs):
        for batch in training.batches(
            work.dataset(), batch_size=work.drawn.batch_size, seed=work.drawn.seed
        ):
            loss = training.step(batch)
            losses[session.position.steps] = loss
            if session.position.steps == steps:
                return losses
        if work.validates:
            rows = training.batches(
                work.drawn.dataset(), batch_size=work.drawn.batch_size, shuffle=False
            )
            assert len(list(rows)) > 0
    return losses
