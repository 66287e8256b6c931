"""Compare the state folders of a training's instances before its workers start; copy rank 0's.

Ranks that load different checkpoints train different weights without an error: DDP broadcasts the
weights once, when a model is wrapped, and never compares them.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from raysm.core.protocol.names import listed
from raysm.core.protocol.paths import Paths
from raysm.core.protocol.store import files_below
from raysm.instance.work.folders import CACHE, RECORD, copied_files

BLOCK_BYTES = 64 << 10
MAX_BLOCKS = 64
MAX_NAMED = 3
RISK = "Ranks that load different files train different weights: load on rank 0 and broadcast"

State = Mapping[str, str]
"""A digest of each file of a state folder, by name."""


def digest_state(folder: Path) -> dict[str, str]:
    """Digest the files that the user's code has written to ``folder``, which may not exist."""
    of_source = copied_files(folder)
    names = {path.relative_to(folder).as_posix(): path for path in files_below(folder)}
    return {
        name: sample_digest(path)
        for name, path in names.items()
        if name not in of_source and path.name != RECORD and CACHE not in path.parts
    }


def sample_digest(path: Path) -> str:
    """Digest a file's size and at most ``MAX_BLOCKS`` blocks of it, with the first and the last.

    Checkpoints have gigabytes. The checkpoints of two steps differ in nearly every block, and the
    end of a file of ``torch.save`` has a checksum of each tensor.
    """
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    last = max(0, size - BLOCK_BYTES)
    with path.open("rb") as file:
        for offset in sorted({last * number // (MAX_BLOCKS - 1) for number in range(MAX_BLOCKS)}):
            file.seek(offset)
            digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()


def describe_differences(states: Mapping[str, State]) -> str | None:
    """Say on which instances ranks would find other checkpoints than rank 0; None if all agree.

    The first host of ``states`` is that of rank 0. Folders without a common name hold the shards of
    their ranks, as those of ``torch.distributed.checkpoint``, and are not compared.
    """
    (first, of_rank_0), *others = states.items()
    parts = [
        part
        for host, state in others
        if (part := _describe_difference(host, state, first, of_rank_0))
    ]
    if not parts:
        return None
    has = f"has {_list_names(of_rank_0)}" if of_rank_0 else "has none"
    return (
        f"not all instances start from the same state: {first} (rank 0) {has}, "
        f"{listed(parts, MAX_NAMED)}"
    )


def describe_restored(paths: Paths, hosts: Sequence[str]) -> str | None:
    """Compare the states of ``hosts``, rank 0's first, as the service has restored them here.

    The service restores them when a job begins. What the other instances write later is not on this
    instance.
    """
    return describe_differences({host: digest_state(paths.state(host)) for host in hosts})


def _describe_difference(host: str, state: State, first: str, of_rank_0: State) -> str | None:
    if state == of_rank_0:
        return None
    if not state:
        return f"{host} has none"
    if not of_rank_0:
        return f"{host} has {_list_names(state)}"
    common = state.keys() & of_rank_0.keys()
    if not common:
        return None
    changed = [name for name in common if state[name] != of_rank_0[name]]
    if changed:
        return f"{host} has another {_list_names(changed)}"
    missing = of_rank_0.keys() - state.keys()
    if missing:
        return f"{host} lacks {_list_names(missing)}"
    return f"{host} also has {_list_names(state.keys() - of_rank_0.keys())}"


def _list_names(names: Mapping[str, str] | set[str] | list[str]) -> str:
    return listed(sorted(names), MAX_NAMED)


def remove_others(folder: Path, of_rank_0: State) -> list[str]:
    """Remove the files that rank 0 does not have; return the names of those to copy from it."""
    own = digest_state(folder)
    for name in own.keys() - of_rank_0.keys():
        (folder / name).unlink(missing_ok=True)
    return sorted(name for name, digest in of_rank_0.items() if own.get(name) != digest)
