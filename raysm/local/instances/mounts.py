"""What a namespace instance mounts, as a plan; ``keeper`` carries it out inside the instance's mount namespace.

The instance sees this machine's file system with these exceptions:

- ``/opt/ml`` is its base folder, and the links in it are read-only. Nothing is made in this machine's ``/opt``: a
  folder of the instance's own is laid over it, into which each entry of this machine's but ``ml`` is bound, so that a
  Python that lives there goes on working.
- ``/dev/shm`` is its own, of its share's size; ``/proc`` shows its own processes.
- ``/etc/hosts`` names the instances of the job, ``/etc/resolv.conf`` no server: there is no way out of the network.
- ``/tmp`` is its own, empty but for what has to stay visible (``keep``): the Python that runs, the folders on its
  ``sys.path``, raysm itself, the instance's home.

All sources are named by this machine's paths, therefore whatever hides some of them (``/opt``, ``/dev/shm``,
``/tmp``) comes last.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from raysm.errors import InvalidRequest
from raysm.local.instances.base import Link

__all__ = ["Mount", "needed_by_python", "plan"]

Mount = tuple[str, str, str, str]
"""Kind (``bind``, ``bind_readonly``, or a file system's type), source, target, options."""

OPT, TMP, SHM = Path("/opt"), Path("/tmp"), Path("/dev/shm")


def needed_by_python() -> list[Path]:
    """Return what the Python that runs here needs, so that it runs in the instance too."""
    # It may be imported from a checkout that is on no prefix.
    package = Path(__file__).parents[3]
    wanted: list[str | Path] = [
        sys.prefix,
        sys.exec_prefix,
        sys.base_prefix,
        sys.base_exec_prefix,
        Path(sys.executable).parent,
        package,
    ]
    return [Path(path).resolve() for path in [*wanted, *sys.path] if path and Path(path).exists()]


def plan(
    base: Path,
    private: Path,
    links: Sequence[Link],
    keep: Iterable[Path],
    hosts: Path,
    resolver: Path,
    shm_bytes: int,
    opt: Path = OPT,
) -> list[Mount]:
    """Prepare the folders below ``private`` and return the mounts, in order.

    Args:
        base: Becomes ``/opt/ml``; its links' targets are made in it.
        private: The folders that are laid over this machine's are made in it.
        links: What appears, read-only, below ``base``.
        keep: Paths that stay visible although they lie below ``/tmp``.
        hosts: Becomes ``/etc/hosts``.
        resolver: Becomes ``/etc/resolv.conf``.
        shm_bytes: Size of ``/dev/shm``.
        opt: ``/opt``, or what stands for it in a test.

    Raises:
        InvalidRequest: This machine lacks a folder over which to mount.
    """
    for folder in (opt, TMP, SHM):
        if not folder.is_dir():
            raise InvalidRequest(f"instances of kind 'namespace' need the folder {folder}; make it, or use 'process'")
    mounts: list[Mount] = [("proc", "proc", "/proc", "")]
    mounts += [
        ("bind", str(source), target, "")
        for source, target in ((hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf"))
        # A mount needs something to lie over, and this machine's /etc gets nothing from us.
        if os.path.exists(target)
    ]
    mounts += [("bind", str(base), str(base), "")]
    mounts += [_link(link) for link in links]
    *inside_tmp, over_tmp = _own_tmp(private / "tmp", keep)
    return [
        *mounts,
        *inside_tmp,
        *_own_opt(opt, private / "opt", base),
        ("tmpfs", "shm", str(SHM), f"size={shm_bytes},mode=1777"),
        over_tmp,
    ]


def _link(link: Link) -> Mount:
    if link.source.is_dir():
        link.target.mkdir(parents=True, exist_ok=True)
    else:
        link.target.parent.mkdir(parents=True, exist_ok=True)
        link.target.touch()
    return ("bind_readonly", str(link.source), str(link.target), "")


def _own_opt(opt: Path, staging: Path, base: Path) -> list[Mount]:
    staging.mkdir(parents=True)
    mounts: list[Mount] = []
    for entry in sorted(entry for entry in opt.iterdir() if entry.name != "ml"):
        target = staging / entry.name
        if entry.is_symlink():
            # mount follows a link: what it names would be bound, not the link.
            target.symlink_to(os.readlink(entry))
            continue
        _mount_point(entry, target)
        mounts.append(("bind", str(entry), str(target), ""))
    (staging / "ml").mkdir()
    return [*mounts, ("bind", str(base), str(staging / "ml"), ""), ("bind", str(staging), str(opt), "")]


def _own_tmp(staging: Path, keep: Iterable[Path]) -> list[Mount]:
    staging.mkdir(parents=True)
    # Not by mkdir's mode, of which the umask takes bits away.
    staging.chmod(0o1777)
    below = {path for path in keep if path.is_relative_to(TMP) and path != TMP}
    # A folder inside another one that stays visible is visible with it.
    outermost = sorted(path for path in below if not any(parent in below for parent in path.parents))
    mounts: list[Mount] = []
    for path in outermost:
        target = staging / path.relative_to(TMP)
        _mount_point(path, target)
        mounts.append(("bind", str(path), str(target), ""))
    return [*mounts, ("bind", str(staging), str(TMP), "")]


def _mount_point(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
