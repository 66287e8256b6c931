"""The schedulers that ``prepare`` takes: who steps them, and which are refused.

What flows in is whatever the user made beside the optimizer; what flows out is whether a step of the training steps it.
"""

import inspect
from typing import Any

from torch.optim import Optimizer

from raysm.errors import InvalidRequest

__all__ = ["check_scheduler", "needs_metric"]

METHODS = ("step", "state_dict", "load_state_dict")
"""What a training asks of a scheduler: each step, and each checkpoint."""


def check_scheduler(scheduler: Any, optimizer: Optimizer) -> None:
    """Check that a training can step a scheduler, and keep it in its checkpoints.

    Raises:
        InvalidRequest: It is none, or that of another optimizer.
    """
    missing = [name for name in METHODS if not callable(getattr(scheduler, name, None))]
    # A class is what most people mean to call; its methods are there, and would fail in the first step.
    if missing or inspect.isclass(scheduler):
        raise InvalidRequest(
            f"scheduler is {scheduler!r}; it must be one of torch.optim.lr_scheduler, made with the optimizer: "
            "CosineAnnealingLR(optimizer, T_max=1000)"
        )
    # It would run, and change nothing that is trained.
    if getattr(scheduler, "optimizer", optimizer) is not optimizer:
        raise InvalidRequest(
            f"the scheduler, a {type(scheduler).__name__}, steps the rate of another optimizer than the one that is "
            "trained with; make it from that one"
        )


def needs_metric(scheduler: Any) -> bool:
    """Whether a step of the scheduler takes a value (``ReduceLROnPlateau``), which only the user's loop knows."""
    # By what it takes, not by its class: schedulers of other packages wait for a metric, too.
    parameters = inspect.signature(scheduler.step).parameters.values()
    return any(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )
