"""Training over all workers of a job: ``from raysm import training``.

The functions work alike in a ``DataParallel`` function, in a script started by ``raysm train`` or
by bare torchrun, and in one plain Python process, which is then the only worker.
"""

# At the top, though it takes seconds: raysm imports this module only when it is used.
import torch

from raysm.features.training.cluster.checkpoint.checkpoints import Checkpoints
from raysm.features.training.cluster.degrees import Parallel
from raysm.features.training.cluster.loop.learning_rate import scale
from raysm.features.training.cluster.loop.sampler import batches, epochs
from raysm.features.training.cluster.loop.session import current
from raysm.features.training.cluster.loop.stream import share
from raysm.features.training.cluster.model_file import save_model
from raysm.features.training.cluster.prepare import evaluate, prepare, step

__all__ = [
    "Checkpoints",
    "Parallel",
    "batches",
    "device",
    "epochs",
    "evaluate",
    "prepare",
    "rank",
    "report",
    "save_model",
    "scale",
    "share",
    "step",
    "world_size",
]


def rank() -> int:
    """Return this worker's number, from 0."""
    return current().rank


def world_size() -> int:
    """Return the number of workers."""
    return current().world_size


def device() -> torch.device:
    """Return where this worker computes."""
    return current().device


def report(*, step: int | None = None, **metrics: float) -> None:
    """Announce metrics of this step; those of rank 0 count.

    Args:
        step: None is the number of steps done.
        metrics: Values by name, the unit at the end of the name.
    """
    current().report(step=step, **metrics)
