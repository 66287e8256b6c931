"""A training loop as a workload: it is pickled here, and every worker of the cluster calls it."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from raysm.client.source.function import code_digest, name_of, pickled_call
from raysm.client.source.package import late_source
from raysm.client.units import python_version
from raysm.contract.source import Source
from raysm.errors import InvalidRequest
from raysm.request import TrainLoop
from raysm.request.programs import Precision
from raysm.request.workload import of_arguments

__all__ = ["DataParallel"]


class DataParallel:
    """A workload: ``train_loop(config)``, called by every worker at once, on Ray Train; the result is rank 0's model.

    Process group and device are there when it is called; ``raysm.training`` does the rest. Without ``config`` the loop
    may take no argument.

    Attributes:
        train_loop: The function.
        config: Its argument.
    """

    def __init__(
        self,
        train_loop: Callable[..., Any],
        *,
        config: Mapping[str, Any] | None = None,
        precision: Precision = "fp32",
        workers: int | None = None,
        workers_per_instance: int | None = None,
        max_restarts: int = 0,
    ) -> None:
        """Check the function and the numbers.

        Args:
            train_loop: Takes ``config``, or nothing where there is none.
            config: Its argument, of values that pickle.
            precision: What ``training.prepare`` computes in, where the loop does not say.
            workers: In all; None is what the instances have.
            workers_per_instance: None is one for each GPU, or one where the cluster has none.
            max_restarts: How often all workers are started anew after one of them failed.

        Raises:
            InvalidRequest: It is no function, does not take the config, or a number is out of its range.
        """
        if not callable(train_loop):
            raise InvalidRequest(f"DataParallel: the first argument must be a function, got {train_loop!r}")
        if config is not None and not isinstance(config, Mapping):
            raise InvalidRequest(f"DataParallel: config must be a mapping, {{'lr': 0.1}}, got {config!r}")
        self.train_loop, self.config = train_loop, config
        self._args = _arguments(train_loop, config)
        # Made now, so that a number out of its range is refused where it is written.
        self._workload = TrainLoop(
            name=name_of(train_loop),
            python=python_version(),
            arguments=of_arguments(config or {}),
            code=code_digest(train_loop),
            precision=precision,
            workers=workers,
            workers_per_instance=workers_per_instance,
            max_restarts=max_restarts,
        )

    def workload(self) -> TrainLoop:
        """Return what stands for it in the request."""
        return self._workload

    def pickled(self) -> bytes:
        """Return cloudpickle's bytes of the loop and its config; the user's own modules travel by value.

        Raises:
            InvalidRequest: Something of it cannot be pickled.
        """
        return pickled_call(self.train_loop, self._args, {})

    def source(self) -> Source | None:
        """Return the user's own modules that the loop imports when it is called: they travel as files."""
        return late_source(self.train_loop)

    def title(self) -> str:
        """Return the loop's name, which a job has that is given none."""
        return getattr(self.train_loop, "__name__", "train")

    def __repr__(self) -> str:
        return f"DataParallel({name_of(self.train_loop)})"


def _arguments(train_loop: Callable[..., Any], config: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """Return what the loop is called with: the config, or nothing where it takes nothing."""
    name, arguments = name_of(train_loop), (dict(config or {}),)
    try:
        signature = inspect.signature(train_loop)
    except ValueError:  # a built-in: the call itself will tell
        return arguments
    if config is None and not signature.parameters:
        return ()
    try:
        # Else the TypeError would come in the job, once the cluster has formed.
        signature.bind(*arguments)
    except TypeError as error:
        raise InvalidRequest(f"DataParallel: {name} must take one argument, the config: {error}") from None
    return arguments
