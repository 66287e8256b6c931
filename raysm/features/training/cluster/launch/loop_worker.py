"""One worker of a DataParallel: the user's loop inside a worker of Ray Train."""

import os
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from ray import train
from ray.train.torch import get_device, prepare_model

from raysm.core.protocol import payload, stack_signal
from raysm.core.protocol.machine import go_first
from raysm.errors import WorkerFailed
from raysm.features.training.cluster.launch.endings import EndedEarly, Endings
from raysm.features.training.cluster.launch.failure_attribution import (
    CAUSE_S,
    blame_early_end,
    is_consequence,
)
from raysm.features.training.cluster.launch.launch import say
from raysm.features.training.cluster.launch.output import Wire
from raysm.features.training.cluster.launch.placement import Group, Place, torchrun_variables
from raysm.features.training.cluster.loop import session
from raysm.features.training.cluster.model_file import save_model
from raysm.features.training.cluster.usage import Usage
from raysm.features.training.request import Precision
from raysm.instance import environment
from raysm.instance.log import emit_event
from raysm.instance.work import folders
from raysm.instance.work.failure import unpickled
from raysm.instance.work.forks import ending_forks

RAY_TRAINS_OWN = ("MASTER_ADDR", "MASTER_PORT")
"""Ray Train sets these, and has made the process group with them, before the loop begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    name: str
    places: tuple[Place, ...]
    group: Group
    wire: Wire
    precision: Precision
    threads: int | None
    """OMP_NUM_THREADS if the user has set it."""


class LoopFailed(Exception):
    def __init__(self, at_s: float, error: WorkerFailed, stopped: bool) -> None:
        self.at_s = at_s
        self.error = error
        self.stopped = stopped
        super().__init__(at_s, error, stopped)

    def __str__(self) -> str:
        return str(self.error)


def run_loop(config: dict[str, WorkerSpec]) -> None:
    go_first()
    _Worker(config["spec"]).run()


def train_and_save(loop: Callable[[], object], finish: Callable[[], None] = lambda: None) -> None:
    """Call the loop, then ``finish``, and save the model unless the loop has saved it."""
    try:
        with ending_forks():
            loop()
    except SystemExit as error:
        # Many main() functions end with sys.exit(0): the trained model must not be lost.
        if error.code not in (None, 0):
            raise
    # Before the model is saved, since all ranks take part in that.
    finish()
    trained = session.current()
    if trained.trainer is not None and not trained.model_saved:
        save_model()


class _Worker:
    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._rank = train.get_context().get_world_rank()
        self._place = next(place for place in spec.places if self._rank in place.ranks)
        self._local_rank = self._rank - self._place.first_rank
        self._stop_asked = False
        self._session: session.Session | None = None
        self._endings: Endings | None = None

    def run(self) -> None:
        spec = self._spec
        stack_signal.register(f"rank {self._rank}")
        instance = environment.read()
        variables = torchrun_variables(self._place, self._local_rank, spec.group, spec.threads)
        # Ray Train's own values count instances by IP address, by which instances of one machine
        # would be one.
        environment.tell(
            {name: value for name, value in variables.items() if name not in RAY_TRAINS_OWN}
        )
        # OMP_NUM_THREADS is read when torch is imported, which Ray Train has done by now.
        torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
        os.chdir(folders.make_folder(instance, instance.payload / payload.SOURCE))
        with ExitStack() as open_until_end:
            open_until_end.enter_context(spec.wire.instead_of_output(self._rank, self._stop))
            # The figures are those of the instance: one of its workers emits them.
            if self._local_rank == 0:
                has_gpus = self._place.gpus > 0
                open_until_end.enter_context(
                    Usage(self._place.node.host, emit_event, say, has_gpus=has_gpus)
                )
            try:
                self._call(*unpickled(instance.payload / payload.FUNCTION, spec.name))
            except BaseException as error:
                failed = self._describe_failure(error)
                if failed is not None:
                    # ``from None``, because Ray would print the chained exception too.
                    raise self._attribute(failed) from None

    def _attribute(self, failed: LoopFailed) -> LoopFailed:
        """Return the failure, with a rank that ended early as its cause if there is one."""
        if not is_consequence(failed.error):
            return failed
        early = [] if self._endings is None else self._endings.early()
        if early:
            blamed = blame_early_end(failed.error, early)
            return LoopFailed(failed.at_s, blamed, failed.stopped)
        if not failed.stopped:
            # Ray Train ends all workers at the first failure that it sees, and it sees a killed
            # process later than a peer does. This worker waits, so that the cause comes first.
            time.sleep(CAUSE_S)
        return failed

    def _call(self, loop: Any, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._session = session.begin(
            device=get_device(),
            replicate=lambda model, options: prepare_model(
                model, parallel_strategy_kwargs=dict(options)
            ),
            precision=self._spec.precision,
        )
        self._session.stop_asked = self._stop_asked
        self._endings = Endings(self._session, say)
        try:
            with self._endings as endings:
                train_and_save(lambda: loop(*args, **named), endings.finish)
        finally:
            session.end()

    def _stop(self) -> None:
        self._stop_asked = True
        if self._session is not None:
            self._session.stop_asked = True

    def _describe_failure(self, error: BaseException) -> LoopFailed | None:
        frames = error.__traceback__
        # The user's traceback begins after the frames of this file.
        while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
            frames = frames.tb_next
        kind = type(error).__qualname__
        text = str(error)
        trace = ""
        code = 1
        if isinstance(error, SystemExit):
            # sys.exit(0) ends a loop well, as it does a script.
            if error.code in (None, 0):
                return None
            code = error.code if isinstance(error.code, int) else 1
            kind = f"exit code {code}"
            text = "" if isinstance(error.code, int) else str(error.code)
        elif isinstance(error, EndedEarly):
            kind = text
            text = ""
        else:
            if type(error).__module__ != "builtins":
                kind = f"{type(error).__module__}.{kind}"
            trace = "".join(traceback.format_exception(type(error), error, frames))
        failed = WorkerFailed(self._rank, self._place.node.host, kind, text, trace, code)
        return LoopFailed(time.time(), failed, self._stop_asked)
