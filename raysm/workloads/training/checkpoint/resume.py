"""Resume a training from the newest checkpoint that is whole, taking all instances together."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from raysm.errors import InvalidConfig, InvalidRequest
from raysm.workloads.training.checkpoint import shards
from raysm.workloads.training.checkpoint.manifest import Manifest, is_intact, list_folders, read_manifests, remove
from raysm.workloads.training.checkpoint.transfer import CheckpointTransfer
from raysm.workloads.training.loop.batch import restore_state, seed_all, seed_of
from raysm.workloads.training.loop.session import Session
from raysm.workloads.training.parallel.trainer import Trainer

RANDOM = "random"
"""Entry of a checkpoint: the states of all ranks' random generators, by rank."""

OPTIMIZER = "optimizer."
"""Prefix of the optimizer's entries in a checkpoint."""

RestoreRandom: TypeAlias = Callable[[], None]
"""Restores this rank's random generators. Called when the loop begins and not before: after a restart, the user's code
draws again what it drew before its loop, and must not use up the loop's numbers."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The whole checkpoints that were found, and the random state of the last one."""

    whole: tuple[Manifest, ...] = ()
    """The whole checkpoints, the oldest first; training resumes from the last one."""
    random: RestoreRandom | None = None
    """Called when the loop begins; None if training starts from the beginning."""


def resume(
    session: Session,
    trainer: Trainer,
    folder: Path,
    exchange: CheckpointTransfer,
    group: "dist.ProcessGroup | None",
) -> ResumePoint:
    """Load the newest whole checkpoint of all instances, if there is one; every rank must call it.

    Raises:
        InvalidRequest: The checkpoint is of another model or optimizer, or another version of raysm wrote it.
    """
    candidates = _candidates(folder, exchange)
    folders = set[str]().union(*exchange.gather(list_folders(folder)))
    torn = folders - {manifest.name for manifest in candidates}
    while candidates:
        newest = candidates[-1]
        has = exchange.by_host(_intact(folder / newest.name, newest, exchange))
        lacking = newest.files.keys() - set().union(*has.values())
        if not lacking:
            break
        session.say(
            f"the checkpoint of step {newest.step} is not whole, and passed over: {min(lacking)}"
            f"{f' and {len(lacking) - 1} more files are' if len(lacking) > 1 else ' is'} on no instance, or torn"
        )
        torn.add(candidates.pop().name)
    if exchange.is_leader:
        remove(folder, torn)
    if not candidates:
        return ResumePoint()
    random = _load(session, trainer, folder / newest.name, newest, has, exchange, group)
    _say(session, newest, folder, str(trainer.layout))
    return ResumePoint(tuple(candidates), random)


def _candidates(folder: Path, exchange: CheckpointTransfer) -> list[Manifest]:
    by_name: dict[str, Manifest] = {}
    # One rank for each instance: all of its ranks would read the same disk.
    for manifests, problem in exchange.gather(_readable(folder) if exchange.is_leader else ({}, "")):
        # Raised on every rank, because the others would wait for one that left alone.
        if problem:
            raise InvalidRequest(
                f"a checkpoint cannot be read: {problem}; use the raysm that made it, or give another folder to"
                " Checkpoints"
            )
        by_name |= manifests
    # Sorted by step before time: clocks of instances may differ by more than the time between two saves.
    return sorted(by_name.values(), key=lambda manifest: (manifest.step, manifest.time_s))


def _readable(folder: Path) -> tuple[dict[str, Manifest], str]:
    """Return the manifests of this instance, and the error of one that cannot be read."""
    try:
        return read_manifests(folder), ""
    except InvalidConfig as error:
        return {}, str(error)


def _intact(checkpoint: Path, manifest: Manifest, exchange: CheckpointTransfer) -> set[str]:
    """Return the files that are intact on this instance, among those that this rank checks."""
    rank_on_host, ranks = exchange.place
    # The ranks of an instance, which all read the same disk, share the digests of a large checkpoint.
    names = sorted(manifest.files)[rank_on_host::ranks]
    return {name for name in names if is_intact(checkpoint / name, manifest.files[name])}


def _load(
    session: Session,
    trainer: Trainer,
    checkpoint: Path,
    manifest: Manifest,
    has: Mapping[str, set[str]],
    exchange: CheckpointTransfer,
    group: "dist.ProcessGroup | None",
) -> RestoreRandom:
    # The metadata first: it says where every tensor is, and so which files this rank needs.
    moved = exchange.fetch(checkpoint, {shards.METADATA}, has, manifest.files)
    keys = shards.entries(checkpoint)
    state = trainer.state_to_read(name.removeprefix(OPTIMIZER) for name in keys if name.startswith(OPTIMIZER))
    # The layout counts, not the number of workers: in another layout, ranks of a tensor group need equal states.
    is_same_layout = manifest.layout == str(trainer.layout)
    if is_same_layout:
        state[RANDOM] = []
    needed = _planned(state, checkpoint, manifest, exchange)
    moved += exchange.fetch(checkpoint, needed, has, manifest.files)
    if moved:
        session.say(f"{moved / 1e6:.1f} MB of the checkpoint came from other instances")
    shards.load(state, checkpoint, group=group)
    trainer.load(state)
    position = session.position
    position.steps, position.epoch, position.offset = manifest.step, manifest.epoch, manifest.offset
    position.order = manifest.order
    position.batch_before = manifest.order.batch_size if manifest.order else None
    session.reported |= manifest.reported
    if is_same_layout:
        own_state = state[RANDOM][session.rank]
        return lambda: restore_state(own_state)
    # Another layout draws other numbers, but equal ones on ranks that must draw equal ones.
    seed = seed_of(torch.initial_seed(), manifest.step)
    return lambda: seed_all(seed)


def _planned(state: dict[str, Any], checkpoint: Path, manifest: Manifest, exchange: CheckpointTransfer) -> set[str]:
    """Return the files that this rank needs, after all ranks have checked that the checkpoint is of this model."""
    problem, needed, entries, saved_keys = "", set[str](), set[str](), set[str]()
    try:
        needed, entries, saved_keys = shards.plan(state, checkpoint)
    except InvalidRequest as error:
        problem = str(error)
    answers = exchange.gather((problem, entries))
    problems = [text for text, _ in answers if text]
    unread = saved_keys - {RANDOM}.union(*(names for _, names in answers))
    if not problems and unread:
        # Entries that this model does not read are those of a larger one, which would be lost silently.
        problems = [f"it has {min(unread)}, which they do not have"]
    if problems:
        raise InvalidRequest(
            f"the checkpoint {checkpoint} is not that of this model and optimizer: {problems[0]}; give another folder"
            " to Checkpoints, or the model that it was made of"
        )
    return needed


def _say(session: Session, manifest: Manifest, folder: Path, layout: str) -> None:
    where = (
        f" (epoch {manifest.epoch}, {manifest.offset} of {manifest.order.samples} samples)" if manifest.order else ""
    )
    afresh = "a job submitted without resume starts" if session.in_job else "remove that folder to start"
    session.say(
        f"goes on from the checkpoint of step {manifest.step}{where}, with its learning rate; it is in"
        f" {folder.absolute()}: {afresh} afresh"
    )
    if manifest.layout != layout:
        session.say(
            f"warning: it was saved by {manifest.workers} workers ({manifest.layout}), now there are"
            f" {session.world_size} ({layout}): the order of the data stays, the workers' random numbers begin anew"
        )
