"""A training loop as a workload: it is pickled here and called by every worker."""

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from raysm.core.client.source.function import PickledCall, check_call, code_digest, name_of
from raysm.core.client.units import PYTHON_VERSION
from raysm.core.request.workload import of_arguments
from raysm.errors import InvalidRequest
from raysm.features.training.request import Precision, TrainLoop


class DataParallel(PickledCall):
    """A workload: ``train_loop(config)``, called by every worker at once, on Ray Train.

    The result is rank 0's model. The process group and the device are ready when it is called;
    ``raysm.training`` does the rest. Without ``config`` the loop may take no argument.

    Attributes:
        train_loop: The function.
        config: Its argument.
    """

    default_title: ClassVar[str] = "train"

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
            train_loop: Takes ``config``, or nothing if there is none.
            config: Its argument, whose values can be pickled.
            precision: Precision of ``training.prepare`` unless the loop gives one.
            workers: Total number; None is the sum over all instances.
            workers_per_instance: None is one for each GPU, or one if the cluster has none.
            max_restarts: How often all workers are restarted after one of them failed.

        Raises:
            InvalidRequest: It is not a function, does not take the config, or a number is out of
                its range.
        """
        if not callable(train_loop):
            raise InvalidRequest(
                f"DataParallel: the first argument must be a function, got {train_loop!r}"
            )
        if config is not None and not isinstance(config, Mapping):
            raise InvalidRequest(
                f"DataParallel: config must be a mapping, {{'lr': 0.1}}, got {config!r}"
            )
        arguments: tuple[Any, ...] = (dict(config or {}),)
        with contextlib.suppress(ValueError):  # a built-in without a signature
            if config is None and not inspect.signature(train_loop).parameters:
                arguments = ()
        if arguments:
            check_call(
                "DataParallel:", train_loop, arguments, {}, "must take one argument, the config"
            )
        super().__init__(train_loop, arguments, {})
        self.train_loop = train_loop
        self.config = config
        # Created now, so that a number out of its range is refused where it is written.
        self._workload = TrainLoop(
            name=name_of(train_loop),
            python=PYTHON_VERSION,
            arguments=of_arguments(config or {}),
            code=code_digest(train_loop),
            precision=precision,
            workers=workers,
            workers_per_instance=workers_per_instance,
            max_restarts=max_restarts,
        )
