"""What a namespace instance mounts, as a plan; ``keeper`` carries it out inside the instance's mount namespace.

The instance sees this machine's file system with these exceptions:

- Where the scenario says so, the channels are a file system of their own, of which nothing can be mapped to share.
- The folders of ``/opt/ml`` are those of its base folder, and the links in them are read-only; beside them there is as
  little room as on SageMaker's small ``/``. Nothing is made in this machine's ``/opt``: a folder of the instance's own
  is laid over it, into which each entry of this machine's but ``ml`` is bound, so that a Python that lives there goes
  on working.
- The Python environment that runs the instance is under an overlay: packages that the job installs go away with it.
- ``/dev/shm`` is its own, of its share's size; ``/proc`` shows its own processes.
- ``/etc/hosts`` names the instances of the job, ``/etc/resolv.conf`` no server.
- The folder of the job has this instance's part alone: no instance sees another's home.
- ``/tmp`` is its own, empty but for what has to stay visible (``keep``): the Python that runs, the folders on its
  ``sys.path``, raysm itself, the instance's home, the kernels that this machine has compiled.

All sources are named by this machine's paths, therefore whatever hides some of them (``/opt``, ``/dev/shm``,
``/tmp``) comes last.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from raysm.contract.store import make_folder
from raysm.errors import InvalidRequest
from raysm.local.instances import user_environment
from raysm.local.instances.base import InstanceSpec, Link

__all__ = ["Mount", "needed_by_python", "plan"]

Mount = tuple[str, str, str, str]
"""Kind (``bind``, ``bind_readonly``, ``overlay``, ``readonly``, ``mkdir``, or a file system's type),
source, target, options."""

ROOT, OPT, TMP, SHM = Path("/"), Path("/opt"), Path("/tmp"), Path("/dev/shm")


def needed_by_python() -> list[Path]:
    """Return what the Python that runs here needs, so that it runs in the instance too."""
    # It may be imported from a checkout that is on no prefix.
    package = Path(__file__).parents[3]
    paths: list[str | Path] = [
        sys.prefix,
        sys.exec_prefix,
        sys.base_prefix,
        sys.base_exec_prefix,
        Path(sys.executable).parent,
        package,
    ]
    return [Path(path).resolve() for path in [*paths, *sys.path] if path and Path(path).exists()]


def plan(spec: InstanceSpec, keep: Iterable[Path], hosts: Path, resolver: Path, opt: Path = OPT) -> list[Mount]:
    """Prepare the folders below ``spec.private`` and return the mounts, in order.

    Args:
        spec: The instance; what lies over this machine's folders is made below its ``private``.
        keep: Paths that stay visible although they lie below ``/tmp``.
        hosts: Becomes ``/etc/hosts``.
        resolver: Becomes ``/etc/resolv.conf``.
        opt: ``/opt``, or what stands for it in a test.

    Raises:
        InvalidRequest: This machine lacks a folder over which to mount.
    """
    for folder in (opt, TMP, SHM):
        if not folder.is_dir():
            raise InvalidRequest(f"instances of kind 'namespace' need the folder {folder}; make it, or use 'process'")
    overlays = user_environment.overlays(spec.private)
    # The overlays are first: what is bound from below them later is to be the instance's.
    mounts: list[Mount] = [("overlay", changes, lower, private) for lower, changes, private in overlays]
    mounts += [("proc", "proc", "/proc", "")]
    mounts += [
        ("bind", str(source), target, "")
        for source, target in ((hosts, "/etc/hosts"), (resolver, "/etc/resolv.conf"))
        # A mount needs something to lie over, and this machine's /etc gets nothing from us.
        if os.path.exists(target)
    ]
    mounts += [("bind", str(spec.base), str(spec.base), "")]
    mounts += [_link(link, spec.base) for link in spec.links]
    # After the links, which may come from the job's folder.
    mounts += _own_job(spec.private)
    closed = _closed(keep) if spec.scenario.container.user else []
    read_only = [*(lower for lower, _, _ in overlays), *map(str, (ROOT, opt, opt / "ml"))]
    if not spec.scenario.container.read_only:
        read_only = []
    mounts_by_place = [
        _own_folder(TMP, spec.private / "tmp", keep, mode=0o1777),
        *(_own_folder(path, spec.private / path.name, keep, mode=0o755) for path in closed),
    ]
    # What hides the folders that are laid over others comes behind those.
    mounts_by_place.sort(key=lambda mounts: spec.private.is_relative_to(mounts[-1][2]))
    return [
        *mounts,
        *_own_opt(opt, spec.private / "opt", _own_ml(spec, spec.private / "opt" / "ml")),
        ("tmpfs", "shm", str(SHM), f"size={spec.share.shm_bytes},mode=1777"),
        *(mount for mounts_over in mounts_by_place for mount in mounts_over),
        # Last: what was mounted before it stays as it is, and what is made from now on could not be.
        *(("readonly", "", path, "") for path in read_only),
    ]


def _own_job(private: Path) -> list[Mount]:
    """Return what hides the other instances' folders beside ``private``: instances share no disk on SageMaker."""
    staging = private / "job"
    (staging / private.name).mkdir(parents=True)
    return [("bind", str(private), str(staging / private.name), ""), ("bind", str(staging), str(private.parent), "")]


def _link(link: Link, base: Path) -> Mount:
    _mount_point(link.source, link.target, within=base)
    return ("bind_readonly", str(link.source), str(link.target), "")


def _own_ml(spec: InstanceSpec, target: Path) -> list[Mount]:
    """Return what becomes ``/opt/ml``: the documented folders on this machine's disk, all else on a small one."""
    size_mb = spec.scenario.container.root_mb
    # Of one folder, all would be closed where what lies beside the documented folders is.
    if not size_mb and not spec.scenario.container.read_only:
        return [("bind", str(spec.base), str(target), "")]
    folders = sorted(path for path in spec.base.iterdir() if path.is_dir())
    mounts: list[Mount] = [("tmpfs", "root", str(target), f"size={size_mb}m,mode=755")]
    for folder in folders:
        place = str(target / folder.name)
        mounts += [("mkdir", "", place, ""), ("bind", str(folder), place, "")]
    return mounts


def _own_opt(opt: Path, staging: Path, ml: Sequence[Mount]) -> list[Mount]:
    staging.mkdir()
    mounts: list[Mount] = []
    for entry in sorted(entry for entry in opt.iterdir() if entry.name != "ml"):
        target = staging / entry.name
        if entry.is_symlink():
            # mount follows a link: what it names would be bound, not the link.
            target.symlink_to(os.readlink(entry))
            continue
        _mount_point(entry, target, within=staging)
        mounts.append(("bind", str(entry), str(target), ""))
    (staging / "ml").mkdir()
    return [*mounts, *ml, ("bind", str(staging), str(opt), "")]


def _own_folder(folder: Path, staging: Path, keep: Iterable[Path], *, mode: int) -> list[Mount]:
    """Return what becomes ``folder``: an empty one, but for what has to stay visible."""
    staging.mkdir()
    # Not by mkdir's mode, of which the umask takes bits away.
    staging.chmod(mode)
    below = {path for path in keep if path.is_relative_to(folder) and path != folder}
    # A folder inside another one that stays visible is visible with it.
    outermost = sorted(path for path in below if not any(parent in below for parent in path.parents))
    mounts: list[Mount] = []
    for path in outermost:
        target = staging / path.relative_to(folder)
        _mount_point(path, target, within=staging)
        mounts.append(("bind", str(path), str(target), ""))
    return [*mounts, ("bind", str(staging), str(folder), "")]


def _closed(keep: Iterable[Path]) -> list[Path]:
    """Return the folders right below ``/``, as ``/root``, that keep other users from what has to stay visible."""
    folders = {Path("/", path.parts[1]) for path in keep if len(path.parts) > 2}
    return sorted(folder for folder in folders if not folder.stat().st_mode & 0o001)


def _mount_point(source: Path, target: Path, within: Path) -> None:
    if source.is_dir():
        make_folder(target, within)
    else:
        make_folder(target.parent, within)
        target.touch()
