"""Checkpoints of a training: saved in the background, resumed from the newest whole one, and saved on SIGTERM.

Each instance has the files of its own workers. ``manifest`` says when a checkpoint is whole, ``shards`` writes and
reads it, ``transfer`` brings files that an instance lacks, ``resume`` chooses the checkpoint.
"""

import atexit
import contextlib
import math
import secrets
import signal
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from raysm.bootstrap import environment
from raysm.errors import InvalidRequest
from raysm.workloads.training.checkpoint import resume, shards
from raysm.workloads.training.checkpoint.manifest import Best, FileRecord, Manifest, choose_outdated, remove
from raysm.workloads.training.checkpoint.transfer import CheckpointTransfer
from raysm.workloads.training.loop.batch import capture_state
from raysm.workloads.training.loop.session import Observer, Session
from raysm.workloads.training.parallel.trainer import Trainer


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """When to save checkpoints of a training, and which ones to keep."""

    every_steps: int = 500
    """Steps between two checkpoints, at least 1; a training that must stop saves after any step."""
    keep: int = 2
    """Number of the newest checkpoints to keep, at least 1. With 1, no whole checkpoint may be left if an instance
    dies before the service has copied its files.
    """
    best: Best | None = None
    """A metric and ``min`` or ``max``: the checkpoint with the best value is kept as well. ``loss`` is that of the
    step; the value of another metric is the last one that rank 0 reported.
    """
    folder: str | Path | None = None
    """The folder on each instance. In a job it is inside the job's folder for checkpoints, which the service keeps if
    the job has a checkpoint URI; None is ``raysm/training`` there. Outside of a job None is ``checkpoints`` in the
    working folder.
    """

    def __post_init__(self) -> None:
        for name in ("every_steps", "keep"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise InvalidRequest(f"Checkpoints: {name} must be a whole number of at least 1, got {value!r}")
        if self.best is not None and (len(self.best) != 2 or self.best[1] not in ("min", "max")):
            raise InvalidRequest(
                f"Checkpoints: best is a metric and 'min' or 'max', ('loss', 'min'), got {self.best!r}"
            )


@dataclass(kw_only=True, slots=True)
class _Saving:
    """A checkpoint that is being written."""

    manifest: Manifest
    """Without its files, which only rank 0 knows."""
    future: "Future[Any]"
    begun_s: float = field(default_factory=time.monotonic)


def attach(session: Session, trainer: Trainer, config: Checkpoints | None) -> "Checkpointing | None":
    """Resume from the newest whole checkpoint, and save from now on; every rank must call it.

    Without a config, only a job that keeps checkpoints gets the default one.
    """
    folder = None if config is None or config.folder is None else Path(config.folder)
    if session.in_job:
        instance = environment.read()
        if config is None and not instance.has_checkpoints:
            return None
        # Without a checkpoint URI, checkpoints outlive a restarted worker, but not the job.
        base = instance.paths.checkpoints if instance.has_checkpoints else instance.paths.scratch
        # Below a folder of raysm's own: the user's script may keep checkpoints of its own beside it.
        folder = base / "raysm" / "training" if folder is None else base / folder
    elif config is None:
        return None
    checkpointing = Checkpointing(session, trainer, config or Checkpoints(), folder or Path("checkpoints"))
    checkpointing.begin()
    session.observers.append(checkpointing)
    return checkpointing


class Checkpointing(Observer):
    """Saves the state of one rank."""

    def __init__(self, session: Session, trainer: Trainer, config: Checkpoints, folder: Path) -> None:
        self._session, self._trainer, self._config, self._folder = session, trainer, config, folder
        # A group of its own: saving in the background communicates while the training does.
        group = dist.new_group(backend="gloo") if session.cpu_group is not None else None
        self._group = group
        self._exchange = CheckpointTransfer(session.rank, session.hosts, group)
        self._staging = shards.stager()
        self._run = ""
        self._whole: list[Manifest] = []
        self._saving: _Saving | None = None
        self._random: resume.RestoreRandom | None = None
        self._before: Any = None
        self._over = False

    def begin(self) -> None:
        """Resume from the newest whole checkpoint, if there is one, and listen to SIGTERM."""
        # A new one for each start: files of this run must never complete a torn checkpoint of an earlier run.
        self._run = self._exchange.from_first(secrets.token_hex(4))
        self._folder.mkdir(parents=True, exist_ok=True)
        resumed = resume.resume(self._session, self._trainer, self._folder, self._exchange, self._group)
        self._whole, self._random = list(resumed.whole), resumed.random
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_sigterm)
        atexit.register(self.on_end)  # scripts do not call session.end()

    def on_loop_begin(self) -> None:
        """Restore the random generators of the checkpoint."""
        if self._random is not None:
            self._random()
            self._random = None

    def on_step_begin(self, step: int) -> None:
        self.on_loop_begin()

    def on_step_end(self, step: int, loss: float) -> None:
        """Save if it is time; if some rank received SIGTERM, save at once and exit."""
        if self._session.stop_agreed:
            self._stop(step, loss)
        elif step % self._config.every_steps == 0:
            self._save(step, loss)
        elif self._saving is not None and self._saving.future.done():
            self._settle()

    def on_end(self) -> None:
        if self._over:
            return
        self._over = True
        atexit.unregister(self.on_end)
        self._settle()
        self._staging.close()
        if self._before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        # Only noted, because a step that is interrupted half-way would leave the ranks in different states.
        self._session.stop_asked = True

    def _stop(self, step: int, loss: float) -> None:
        """Save this step, unless it is saved, and exit like a process that SIGTERM ends."""
        begun_s = time.monotonic()
        if step % self._config.every_steps != 0 or not self._is_saved(step):
            self._save(step, loss)
        self._settle()
        newest_step = self._whole[-1].step if self._whole else 0
        self._session.say(
            f"received SIGTERM: stopped after step {step}, the newest whole checkpoint is that of step {newest_step}"
            f" ({time.monotonic() - begun_s:.1f} s after the step)"
        )
        # This exit status tells a launcher that it is a stop and not a failure.
        raise SystemExit(128 + signal.SIGTERM)

    def _is_saved(self, step: int) -> bool:
        latest = self._saving.manifest if self._saving else self._whole[-1] if self._whole else None
        return latest is not None and latest.step == step and latest.run == self._run

    def _save(self, step: int, loss: float) -> None:
        session = self._session
        with session.span("checkpoint"):
            self._settle()
            manifest = self._exchange.from_first(self._manifest(step, loss))
            folder = self._folder / manifest.name

            def complete(files: Mapping[str, FileRecord]) -> None:
                replace(manifest, files=files).write(folder)

            state = self._trainer.state()
            # Rank 0 saves the state of all ranks, so that the loss of another instance loses nothing.
            random = self._exchange.to_first(capture_state())
            if random is not None:
                state[resume.RANDOM] = random
            # Written in the background, because a large model takes longer than many steps.
            future = shards.save(state, folder, group=self._group, staging=self._staging, complete=complete)
            self._saving = _Saving(manifest=manifest, future=future)

    def _manifest(self, step: int, loss: float) -> Manifest:
        session, best = self._session, self._config.best
        value = None
        if best is not None:
            value = loss if best[0] == "loss" else session.reported.get(best[0])
        return Manifest(
            step=step,
            epoch=session.position.epoch,
            offset=session.position.offset,
            workers=session.world_size,
            layout=str(self._trainer.layout),
            run=self._run,
            files={},
            order=session.position.order,
            value=value if value is not None and math.isfinite(value) else None,
            metric=None if best is None else best[0],
            reported={name: number for name, number in session.reported.items() if math.isfinite(number)},
        )

    def _settle(self) -> None:
        """Wait for the checkpoint that is being written, and remove those that it makes outdated.

        A checkpoint that cannot be written does not end the training: the next one may find room.
        """
        saving, self._saving = self._saving, None
        if saving is None:
            return
        step = saving.manifest.step
        # Not raised, because a traceback would keep the caller's frames alive, and with them loops that have ended.
        error = saving.future.exception()
        if error is not None and not isinstance(error, (Exception, CheckpointException)):
            raise error
        if error is not None:  # of the disk, of the network, or of a rank that died
            newest = f"that of step {self._whole[-1].step}" if self._whole else "none"
            self._session.say(
                f"the checkpoint of step {step} could not be written; the newest whole one is {newest}: {_cause(error)}"
            )
            self._remove([saving.manifest.name])
            return
        self._whole.append(saving.manifest)
        old = choose_outdated(self._whole, self._config.keep, self._config.best)
        self._whole = [manifest for manifest in self._whole if manifest.name not in old]
        self._remove(old)

    def _remove(self, names: list[str]) -> None:
        if self._exchange.is_leader:
            with contextlib.suppress(OSError):
                remove(self._folder, names)


def _cause(error: BaseException) -> str:
    """Return the last line of torch's long message, which has the reason."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
