"""Checkpoints of a training: saved in the background and on SIGTERM, and resumed from.

A training resumes from the newest whole checkpoint. Each instance has the files of its own workers.
``manifest`` says when a checkpoint is whole, ``shards`` writes and reads it, and ``transfer``
fetches files that an instance lacks.
"""

import contextlib
import math
import secrets
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor

from raysm.core.request.options import check_counts
from raysm.errors import InvalidConfig, InvalidRequest, MetricDiverged
from raysm.features.training.cluster.checkpoint import shards
from raysm.features.training.cluster.checkpoint.manifest import (
    MANIFEST,
    Best,
    FileRecord,
    Manifest,
    choose_outdated,
    is_intact,
    list_folders,
    read_manifests,
    remove,
    step_of,
)
from raysm.features.training.cluster.checkpoint.transfer import CheckpointTransfer
from raysm.features.training.cluster.loop.position import UNSHARDED
from raysm.features.training.cluster.loop.random_state import (
    capture_state,
    restore_state,
    seed_all,
    seed_of,
)
from raysm.features.training.cluster.loop.session import Observer, Session
from raysm.features.training.cluster.loop.step_loss import StepLoss
from raysm.features.training.cluster.loop.stream import bytes_of, position_of
from raysm.features.training.cluster.parallel.trainer import Trainer
from raysm.instance import environment

RANDOM = "random"
"""Entry of a checkpoint: the states of all ranks' random generators, by rank."""

STREAM = "stream"
"""Entry of a checkpoint: the positions in a stream of all data ranks, by data rank."""

OPTIMIZER = "optimizer."

FAILED = "failed"
"""Name of an empty file in place of a checkpoint that could not be written."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoints:
    """When to save checkpoints of a training, and which ones to keep."""

    every_steps: int = 500
    """Steps between two checkpoints, at least 1; a training that must stop saves after any step."""
    keep: int = 2
    """Number of the newest checkpoints to keep, at least 1. With 1, no whole checkpoint may be left
    if an instance dies before the service has copied its files.
    """
    best: Best | None = None
    """A metric and ``min`` or ``max``: the checkpoint with the best value is kept as well. ``loss``
    is that of the step; the value of another metric is the last one that rank 0 reported.
    """
    folder: str | Path | None = None
    """The folder on each instance. In a job it is inside the job's folder for checkpoints, which
    the service keeps if the job has a checkpoint URI; None is ``raysm/training`` there. Outside of
    a job None is ``checkpoints`` in the working folder.
    """

    def __post_init__(self) -> None:
        check_counts("Checkpoints", 1, every_steps=self.every_steps, keep=self.keep)
        if self.best is not None and (len(self.best) != 2 or self.best[1] not in ("min", "max")):
            raise InvalidRequest(
                "Checkpoints: best is a metric and 'min' or 'max', ('loss', 'min'), got "
                f"{self.best!r}"
            )


def attach_checkpoints(session: Session, trainer: Trainer, config: Checkpoints | None) -> None:
    """Resume from the newest whole checkpoint, and save from now on; every rank must call it."""
    folder = None if config is None or config.folder is None else Path(config.folder)
    if session.in_job:
        instance = environment.read()
        if config is None and not instance.has_checkpoints:
            return
        # Without a checkpoint URI, checkpoints outlive a restarted worker, but not the job.
        base = instance.paths.checkpoints if instance.has_checkpoints else instance.paths.scratch
        # Below a folder of raysm's own: the user's script may keep checkpoints of its own beside
        # it.
        folder = base / "raysm" / "training" if folder is None else base / folder
    elif config is None:
        return
    checkpointing = Checkpointing(
        session, trainer, config or Checkpoints(), folder or Path("checkpoints")
    )
    checkpointing.begin()
    session.attach(checkpointing)


class Checkpointing(Observer):
    def __init__(
        self, session: Session, trainer: Trainer, config: Checkpoints, folder: Path
    ) -> None:
        self._session = session
        self._trainer = trainer
        self._config = config
        self._folder = folder
        # A group of its own: saving in the background communicates while the training does.
        group = dist.new_group(backend="gloo") if session.cpu_group is not None else None
        self._group = group
        self._exchange = CheckpointTransfer(session.rank, session.hosts, group)
        self._staging = shards.stager()
        self._run = ""
        self._whole: list[Manifest] = []
        # The last checkpoint, if it could not be written.
        self._failed: list[str] = []
        # The checkpoint that is being written; its manifest has no files, which only rank 0 knows.
        self._saving: tuple[Manifest, Future[Any]] | None = None
        # Called when the loop begins and not before: after a restart, the user's code draws again
        # what it drew before its loop, and must not use up the loop's numbers.
        self._random: Callable[[], None] | None = None
        self._before: Any = None

    def begin(self) -> None:
        # A new one for each start: files of this run must never complete a torn checkpoint of an
        # earlier run.
        self._run = self._exchange.from_first(secrets.token_hex(4))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._resume()
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._on_sigterm)

    def _resume(self) -> None:
        candidates = self._candidates()
        folders = set[str]().union(*self._exchange.gather(list_folders(self._folder)))
        lacking_of = dict.fromkeys(folders - {manifest.name for manifest in candidates}, {MANIFEST})
        while candidates:
            newest = candidates[-1]
            intact, unreadable = self._look_at_files(newest)
            has = self._exchange.by_host(intact)
            lacking = newest.files.keys() - set().union(*has.values())
            if not lacking:
                break
            self._raise_if_unreadable(newest, lacking, unreadable)
            lacking_of[newest.name] = lacking
            candidates.pop()
        self._report_unusable(lacking_of, candidates[-1].step if candidates else 0)
        self._remove(lacking_of)
        self._whole = candidates
        if candidates:
            self._load(newest, has)

    def _report_unusable(self, lacking_of: Mapping[str, set[str]], resumed_step: int) -> None:
        """Name the checkpoints whose steps are repeated because they cannot be used."""
        newer = [name for name in sorted(lacking_of) if step_of(name) > resumed_step]
        for name in newer:
            path = self._folder.absolute() / name / min(lacking_of[name])
            more = len(lacking_of[name]) - 1
            self._session.say(
                f"the checkpoint of step {step_of(name)} is incomplete or damaged; it is not used "
                "and is removed: no intact copy of "
                f"{path}{f' and {more} more files' if more else ''} was found"
            )
        if newer and not resumed_step:
            self._session.say(
                "there is no other checkpoint: the training starts from the beginning"
            )

    def _candidates(self) -> list[Manifest]:
        """Return the checkpoints that have a manifest on some instance, the oldest first."""
        here: tuple[dict[str, Manifest], str] = {}, ""
        # One rank for each instance: all of its ranks would read the same disk.
        if self._exchange.is_leader:
            try:
                here = read_manifests(self._folder), ""
            except InvalidConfig as error:
                here = {}, str(error)
        by_name: dict[str, Manifest] = {}
        for found, problem in self._exchange.gather(here):
            # Raised on every rank, because the others would wait for one that left alone.
            if problem:
                raise InvalidRequest(
                    f"a checkpoint cannot be read: {problem}; use the raysm that made it, or "
                    "another folder"
                )
            by_name |= found
        # Sorted by step before time: clocks of instances may differ by more than the time between
        # two saves.
        return sorted(by_name.values(), key=lambda manifest: (manifest.step, manifest.time_s))

    def _look_at_files(self, manifest: Manifest) -> tuple[set[str], dict[str, OSError]]:
        """Return the intact files, and those that cannot be read, of this rank's share of files."""
        rank_on_host, ranks = self._exchange.place
        # The ranks of an instance, which all read the same disk, share the digests of a large
        # checkpoint.
        names = sorted(manifest.files)[rank_on_host::ranks]
        intact = set[str]()
        unreadable: dict[str, OSError] = {}
        for name in names:
            try:
                if is_intact(self._folder / manifest.name / name, manifest.files[name]):
                    intact.add(name)
            except OSError as error:
                unreadable[name] = error
        return intact, unreadable

    def _raise_if_unreadable(
        self, manifest: Manifest, lacking: Collection[str], unreadable: Mapping[str, OSError]
    ) -> None:
        """Raise on every rank if a file of which no copy was found may be intact.

        Without the error, the checkpoint would be removed as damaged.
        """
        problems = {name: (error.errno, error.strerror) for name, error in unreadable.items()}
        for of_rank in self._exchange.gather(problems):
            for name, (number, text) in of_rank.items():
                if name in lacking:
                    path = self._folder.absolute() / manifest.name / name
                    raise OSError(
                        number,
                        f"the checkpoint of step {manifest.step} was kept, but a file of it cannot "
                        f"be read ({text}), and no other instance has a copy",
                        str(path),
                    )

    def _load(self, manifest: Manifest, has: Mapping[str, set[str]]) -> None:
        session = self._session
        trainer = self._trainer
        folder = self._folder / manifest.name
        layout = str(trainer.layout)
        # The metadata first: it says where every tensor is, and so which files this rank needs.
        moved = self._exchange.fetch(folder, {shards.METADATA}, has, manifest.files)
        keys = shards.entries(folder)
        state = trainer.state_to_read(
            name.removeprefix(OPTIMIZER) for name in keys if name.startswith(OPTIMIZER)
        )
        # The layout counts, not the number of workers: in another layout, ranks of a tensor group
        # need equal states.
        is_same_layout = manifest.layout == layout
        if is_same_layout:
            state[RANDOM] = []
        if STREAM in keys:
            state[STREAM] = []
        moved += self._exchange.fetch(folder, self._plan_files(state, folder), has, manifest.files)
        shards.load(state, folder, group=self._group)
        streams = state.pop(STREAM, [])
        trainer.load(state)
        position = session.position
        order = manifest.order
        position.steps = manifest.step
        position.epoch = manifest.epoch
        position.offset = manifest.offset
        position.order = order
        # For other shares, the epoch begins again.
        rank = 0 if order is not None and order.shares == UNSHARDED else session.data_rank
        position.stream = position_of(streams[rank]) if rank < len(streams) else None
        position.batch_before = order.batch_size if order else None
        session.reported |= manifest.reported
        if is_same_layout:
            own_state = state[RANDOM][session.rank]
            self._random = lambda: restore_state(own_state)
        else:
            # Another layout draws other numbers, but equal ones on ranks that must draw equal ones.
            seed = seed_of(torch.initial_seed(), manifest.step)
            self._random = lambda: seed_all(seed)
        if moved:
            session.say(f"{moved / 1e6:.1f} MB of the checkpoint came from other instances")
        where = ""
        if order:
            of = "a stream's" if order.samples is None else str(order.samples)
            where = f" (epoch {manifest.epoch}, {manifest.offset} of {of} samples)"
        afresh = (
            "a job submitted without resume starts"
            if session.in_job
            else "remove that folder to start"
        )
        session.say(
            f"goes on from the checkpoint of step {manifest.step}{where}, with its learning rate; "
            f"it is in {self._folder.absolute()}: {afresh} afresh"
        )
        if not is_same_layout:
            session.say(
                f"warning: it was saved by {manifest.workers} workers ({manifest.layout}), now "
                f"there are {session.world_size} ({layout}): the order of the data stays, the "
                "workers' random numbers begin anew"
            )

    def _plan_files(self, state: dict[str, Any], folder: Path) -> set[str]:
        """Return the files to read, once all ranks have checked that the checkpoint fits."""
        problem = ""
        needed = set[str]()
        entries = set[str]()
        saved_keys = set[str]()
        try:
            needed, entries, saved_keys = shards.plan(state, folder)
        except InvalidRequest as error:
            problem = str(error)
        answers = self._exchange.gather((problem, entries))
        problems = [text for text, _ in answers if text]
        needed_keys = set[str]().union(*(names for _, names in answers))
        unread = saved_keys - needed_keys - {RANDOM, STREAM}
        if not problems and unread:
            # Entries that this training does not read are those of a larger model, or of another
            # optimizer or scheduler; they would be lost silently.
            problems = [shards.describe_extra(unread, needed_keys)]
        if problems:
            raise InvalidRequest(
                f"the checkpoint {folder} is not one of this training: {problems[0]}; give "
                "Checkpoints another folder, or train with the model, optimizer and scheduler of "
                "the checkpoint"
            )
        return needed

    def on_loop_begin(self) -> None:
        if self._random is not None:
            self._random()
            self._random = None

    def on_step_begin(self, step: int) -> None:
        self.on_loop_begin()

    def on_step_end(self, step: int, loss: StepLoss) -> None:
        if self._session.stop_agreed:
            self._stop(step, loss)
        elif step % self._config.every_steps == 0:
            self._save(step, loss)
        elif self._saving is not None and self._saving[1].done():
            self._settle()

    def on_divergence(self) -> str:
        self._settle()
        if not self._whole:
            return "no checkpoint was saved before it"
        return f"the checkpoint of step {self._whole[-1].step} is the last one before it"

    def on_end(self) -> None:
        self._settle()
        self._staging.close()
        if self._before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before)

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        # Only noted, because a step that is interrupted half-way would leave the ranks in different
        # states.
        self._session.stop_asked = True

    def _stop(self, step: int, loss: StepLoss) -> None:
        begun_s = time.monotonic()
        self._save(step, loss)
        self._settle()
        newest_step = self._whole[-1].step if self._whole else 0
        self._session.say(
            f"received SIGTERM: stopped after step {step}, the newest whole checkpoint is that of "
            f"step {newest_step} ({time.monotonic() - begun_s:.1f} s after the step)"
        )
        # This exit status tells a launcher that it is a stop and not a failure.
        raise SystemExit(128 + signal.SIGTERM)

    def _check_weights(self, step: int) -> None:
        """Raise if the job ends at NaN and the weights are not finite."""
        if self._session.stop_on_nan is None:
            return
        # The loss of a step is that of the weights before it.
        weights = (
            weight.to_local() if isinstance(weight, DTensor) else weight
            for weight in self._trainer.parts.parameters()
        )
        is_diverged = not all(bool(weight.isfinite().all()) for weight in weights)
        rank = self._session.first_rank(is_diverged)
        if rank is not None:
            text = f"the weights are not finite after step {step} on rank {rank}"
            raise MetricDiverged(f"{text}; {self.on_divergence()}")

    def _save(self, step: int, loss: StepLoss) -> None:
        session = self._session
        # A training that ends at a loss that is not finite ends before it is saved.
        session.look_at_losses()
        self._check_weights(step)
        with session.span("checkpoint"):
            self._settle()
            manifest = self._exchange.from_first(self._manifest(step, loss))
            folder = self._folder / manifest.name

            def complete(files: Mapping[str, FileRecord]) -> None:
                replace(manifest, files=files).write(folder)

            state = self._trainer.state()
            # Rank 0 saves the state of all ranks, so that the loss of another instance loses
            # nothing.
            random = self._exchange.to_first(capture_state())
            if random is not None:
                state[RANDOM] = random
            stream = session.position.stream
            if stream is not None:
                kept = self._exchange.to_first((session.data_rank, bytes_of(stream)))
                if kept is not None:
                    by_rank = dict(kept)
                    state[STREAM] = [by_rank[rank] for rank in sorted(by_rank)]
            # Written in the background, because a large model takes longer than many steps.
            future = shards.save(
                state, folder, group=self._group, staging=self._staging, complete=complete
            )
            self._saving = manifest, future

    def _manifest(self, step: int, loss: StepLoss) -> Manifest:
        session = self._session
        best = self._config.best
        value = None
        if best is not None:
            value = float(loss) if best[0] == "loss" else session.reported.get(best[0])
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
            reported={
                name: number for name, number in session.reported.items() if math.isfinite(number)
            },
        )

    def _settle(self) -> None:
        """Wait for the checkpoint that is being written.

        A checkpoint that cannot be written does not end the training.
        """
        saving = self._saving
        self._saving = None
        if saving is None:
            return
        manifest, future = saving
        # Not raised, because a traceback would keep the caller's frames alive, and with them loops
        # that have ended.
        error = future.exception()
        if error is not None and not isinstance(error, (Exception, CheckpointException)):
            raise error
        if error is not None:  # of the disk, of the network, or of a rank that died
            before = ", nor any before it"
            if self._whole:
                before = f"; the newest whole one is that of step {self._whole[-1].step}"
            # The last line of torch's long message has the reason.
            lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [
                type(error).__name__
            ]
            self._session.say(
                f"the checkpoint of step {manifest.step} was not written{before}: {lines[-1]}"
            )
            self._remove([manifest.name, *self._failed])
            self._failed = [manifest.name]
            self._mark_failed(manifest.name)
            return
        self._whole.append(manifest)
        old = choose_outdated(self._whole, self._config.keep, self._config.best)
        self._whole = [each for each in self._whole if each.name not in old]
        self._remove([*old, *self._failed])
        self._failed = []

    def _remove(self, names: Iterable[str]) -> None:
        if self._exchange.is_leader:
            with contextlib.suppress(OSError):
                remove(self._folder, names)

    def _mark_failed(self, name: str) -> None:
        """Leave a folder without a manifest, by which a later start sees that steps are lost."""
        if self._exchange.is_leader:
            with contextlib.suppress(OSError):
                (self._folder / name).mkdir()
                # The service uploads files only, and an empty one fits on a full disk.
                (self._folder / name / FAILED).touch()
