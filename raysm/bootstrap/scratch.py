"""Choose the folder for an instance's temporary files: writable, private, and on the disk with the most room.

The first program of the instance chooses it, logs the choice, and passes it on to every later process in a variable.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from raysm.bootstrap.environment import base_paths
from raysm.bootstrap.log import remark
from raysm.contract import names
from raysm.contract.paths import DEFAULT_BASE, Paths
from raysm.contract.store import put
from raysm.errors import InvalidConfig


def private_folder(paths: Paths) -> Path:
    """Create a folder in the scratch folder that other users cannot read."""
    paths.scratch.mkdir(parents=True, exist_ok=True)
    # mkdtemp makes it 0700 at once: a chmod afterwards leaves a moment for others.
    return Path(tempfile.mkdtemp(prefix="raysm-", dir=paths.scratch))


@contextlib.contextmanager
def private_tempdir(paths: Paths) -> Iterator[Path]:
    """Yield a private folder, and remove it at the end."""
    folder = private_folder(paths)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def private_token(token_file: Path, paths: Paths) -> Path:
    """Return a file with the token that only its owner can read.

    A download from S3 loses file modes, and a channel may be read-only or owned by another user; then it is a copy.
    """
    with contextlib.suppress(OSError):
        if _is_private(token_file):
            return token_file
        token_file.chmod(0o600)
        if _is_private(token_file):
            return token_file
    copy = private_folder(paths) / token_file.name
    put(copy, token_file.read_bytes(), mode=0o600)
    return copy


def _is_private(path: Path) -> bool:
    status = path.stat()
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


# SageMaker mounts the volume of VolumeSizeInGB, or the NVMe, at /opt/ml/input, model, output, checkpoints and /tmp;
# everything else of /opt/ml lies on the small overlay of /. "We recommend that you use the /tmp directory as a scratch
# space": https://docs.aws.amazon.com/sagemaker/latest/dg/model-train-storage.html. `df` of real jobs shows the same
# (awslabs/graphstorm issues 354 and 949: 120 GB at /, 1008 GB at /tmp).
TEMP = Path("/tmp")

IN_MEMORY = ("tmpfs", "ramfs")
"""File systems whose room is the memory that the job computes in."""

MOUNTS = Path("/proc/self/mounts")


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """A disk that could hold the scratch folder, with its size and free space."""

    folder: Path
    """A folder of the disk, ``/tmp``."""
    scratch: Path
    """The scratch folder on it."""
    device: str = ""
    """The mounted device, ``/dev/nvme1n1``; empty if not known."""
    in_memory: bool = False
    """Whether it is a file system in memory."""
    size_bytes: int = 0
    """Size of the file system."""
    free_bytes: int = 0
    """Free space for this user."""
    obstacle: str = ""
    """Why it cannot be written; empty if it can."""

    def __str__(self) -> str:
        if self.obstacle:
            return f"{self.folder} cannot be written ({self.obstacle})"
        on = f" on {self.device}" if self.device else ""
        return f"{self.folder} has {self.free_bytes / 1e9:.1f} of {self.size_bytes / 1e9:.1f} GB free{on}"


def settle_scratch(environ: Mapping[str, str], temp: Path = TEMP) -> dict[str, str]:
    """Return the variables with the scratch folder added; choose, empty and log it if it is not set yet.

    Args:
        environ: This process's variables.
        temp: Stands for ``/tmp`` in a test.

    Raises:
        InvalidConfig: No folder can be written.
    """
    if environ.get(names.SCRATCH):
        return dict(environ)
    paths = base_paths(environ)
    places = {paths.base: paths.scratch}
    # A folder that plays /opt/ml plays it for one of several instances of a machine, and they all have one /tmp.
    if paths.base == DEFAULT_BASE:
        places = {temp: temp / "raysm", **places}
    disks = [look_at(folder, scratch) for folder, scratch in places.items()]
    disk = choose(disks)
    scratch = Path(_private_tempdir(disks)) if disk is None else disk.scratch
    if len(disks) > 1 or disk is None:
        remark(f"{'; '.join(map(str, disks))}; what raysm writes for itself goes to {scratch}")
    return {**_ray_variables(disks, scratch, temp), **environ, names.SCRATCH: str(scratch)}


def choose(disks: Sequence[Disk]) -> Disk | None:
    """Return the disk with the most free space, the first of equals; None if none can be written.

    A file system in memory is the last choice, because filling it ends the job.
    """
    usable = [disk for disk in disks if not disk.obstacle]
    rooms: dict[str, int] = {}
    for disk in usable:
        # Of one device the first look counts: between two, others write on it, and chance would decide.
        rooms.setdefault(_device_of(disk), disk.free_bytes)
    return max(usable, key=lambda disk: (not disk.in_memory, rooms[_device_of(disk)]), default=None)


def _device_of(disk: Disk) -> str:
    # Every file system in memory has the same name.
    return disk.device if disk.device and not disk.in_memory else str(disk.folder)


def look_at(folder: Path, scratch: Path, mounts: Path = MOUNTS) -> Disk:
    """Return the disk of ``folder``, and create ``scratch`` on it, empty, if possible.

    Args:
        folder: A folder of the disk.
        scratch: The folder to create; files of an earlier job in it are removed.
        mounts: The system's list of mounts.
    """
    device, kind = _mounted_at(folder, mounts)
    try:
        _empty(scratch)
        usage = shutil.disk_usage(scratch)
    except OSError as error:
        return Disk(folder=folder, scratch=scratch, device=device, obstacle=error.strerror or str(error))
    return Disk(
        folder=folder,
        scratch=scratch,
        device=device,
        in_memory=kind in IN_MEMORY,
        size_bytes=usage.total,
        free_bytes=usage.free,
    )


def _empty(scratch: Path) -> None:
    """Create the folder, empty, for this user alone.

    Raises:
        OSError: It cannot be created or written, or belongs to another user.
    """
    # A warm pool may keep what an earlier job left. rmtree follows no link, and fails on what is another user's.
    if scratch.is_dir():
        shutil.rmtree(scratch)
    scratch.mkdir(mode=0o700, parents=True)
    # Written to, not asked about: a read-only mount says so only then.
    with tempfile.TemporaryFile(dir=scratch) as file:
        file.write(b"raysm")


def _mounted_at(folder: Path, mounts: Path) -> tuple[str, str]:
    """Return the device and the type of the file system of ``folder``; two empty texts if not known."""
    device, kind, longest = "", "", -1
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return device, kind
    real = folder.resolve()
    for line in lines:
        source, point, type_, *_ = [word.replace("\\040", " ") for word in line.split(" ")]
        # Of two at one place, the later one lies over the other.
        if real.is_relative_to(point) and len(Path(point).parts) >= longest:
            device, kind, longest = source, type_, len(Path(point).parts)
    return device, kind


def _private_tempdir(disks: Sequence[Disk]) -> str:
    """Return a new folder in the system's place for temporary files, such as TMPDIR."""
    try:
        return tempfile.mkdtemp(prefix="raysm-")
    except OSError as error:
        raise InvalidConfig(
            f"{' and '.join(map(str, disks))}, and there is no other place for temporary files: raysm needs one that "
            f"the container's user ({os.geteuid()}) can write; run the image as root, or mount one"
        ) from error


def _ray_variables(disks: Sequence[Disk], scratch: Path, temp: Path) -> dict[str, str]:
    """Return variables that place Ray's sessions and temporary files on the chosen disk; the user's own win."""
    # Ray spills objects there. Below /tmp it is where Ray's own tools look for a cluster.
    if len(disks) == 1 or scratch.is_relative_to(temp):
        return {}
    values = {names.RAY_TEMP_DIR: str(scratch / "ray")}
    return values if not disks[0].obstacle else values | {"TMPDIR": str(scratch)}
