"""Choose the folder for an instance's temporary files: writable and private.

Preferably it is below ``/tmp``.

The first program of the instance chooses it, logs the choice, and passes it on to every later
process in a variable.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from raysm.core.protocol import names
from raysm.core.protocol.paths import DEFAULT_BASE, Paths
from raysm.core.protocol.store import put
from raysm.errors import InvalidConfig
from raysm.instance.environment import base_paths
from raysm.instance.log import remark


def private_folder(paths: Paths) -> Path:
    paths.scratch.mkdir(parents=True, exist_ok=True)
    # mkdtemp creates it with the mode 0700; before a later chmod, others could open it.
    return Path(tempfile.mkdtemp(prefix="raysm-", dir=paths.scratch))


@contextlib.contextmanager
def private_tempdir(paths: Paths) -> Iterator[Path]:
    folder = private_folder(paths)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def private_token(token_file: Path, paths: Paths) -> Path:
    """Return a file with the token that only its owner can read.

    A download from S3 loses file modes. If the mode cannot be set, because the channel is read-only
    or belongs to another user, the file is copied.
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


# SageMaker mounts the volume of VolumeSizeInGB, or the NVMe, at /opt/ml/input, model, output,
# checkpoints and /tmp; everything else of /opt/ml lies on the small overlay of /.
# "We recommend that you use the /tmp directory as a scratch space":
# https://docs.aws.amazon.com/sagemaker/latest/dg/model-train-storage.html. `df` of real jobs shows
# the same (awslabs/graphstorm issues 354 and 949: 120 GB at /, 1008 GB at /tmp).
TEMP = Path("/tmp")
IN_MEMORY = ("tmpfs", "ramfs")
"""File systems that use the memory of the job, and so are the last choice."""
MOUNTS = Path("/proc/self/mounts")


def settle_scratch(environ: Mapping[str, str], temp: Path = TEMP) -> dict[str, str]:
    """Return the variables with the scratch folder added.

    If it is not set yet, choose, empty and log it.
    """
    if environ.get(names.SCRATCH):
        return dict(environ)
    paths = base_paths(environ)
    folders = [paths.scratch]
    # With another base folder, this is one of several instances on a machine, which share /tmp.
    if paths.base == DEFAULT_BASE:
        # A user who is not root can write /opt/ml/input but not /opt/ml.
        folders = sorted(
            [temp / "raysm", paths.scratch, paths.base / "input" / "raysm"],
            key=lambda folder: (_is_noexec(folder.parent), _is_in_memory(folder.parent)),
        )
    variables: dict[str, str] = {}
    obstacles = []
    for scratch in folders:
        try:
            empty_scratch(scratch)
        except OSError as error:
            obstacles.append(f"{scratch.parent} cannot be written ({error.strerror or error})")
            continue
        if len(folders) > 1:
            free_gb = shutil.disk_usage(scratch).free / 1e9
            remark(
                "; ".join(
                    [*obstacles, f"{scratch} has {free_gb:.1f} GB free for raysm's temporary files"]
                )
            )
            if scratch.parent != temp:
                # Ray spills objects to its temporary folder, so that needs space too. Otherwise it
                # stays below /tmp, where Ray's own tools look for a cluster.
                variables = {names.RAY_TEMP_DIR: str(scratch / "ray")} | (
                    {"TMPDIR": str(scratch)} if obstacles else {}
                )
        break
    else:
        try:
            # The system's folder for temporary files, for example TMPDIR.
            scratch = Path(tempfile.mkdtemp(prefix="raysm-"))
        except OSError as error:
            raise InvalidConfig(
                f"{' and '.join(obstacles)}, and there is no other place for temporary files: "
                f"raysm needs one that the container's user ({os.geteuid()}) can write; "
                "run the image as root, or mount one"
            ) from error
        remark(f"{'; '.join(obstacles)}; raysm's temporary files go to {scratch}")
    return {**variables, **environ, names.SCRATCH: str(scratch)}


def empty_scratch(scratch: Path) -> None:
    # A warm pool may keep files of an earlier job. rmtree fails on another user's files.
    if scratch.is_symlink():
        raise OSError(f"{scratch} is a symbolic link")
    if scratch.is_dir():
        shutil.rmtree(scratch)
    scratch.mkdir(mode=0o700, parents=True)
    # Some read-only mounts raise an error only for a write.
    with tempfile.TemporaryFile(dir=scratch) as file:
        file.write(b"raysm")


def _is_noexec(folder: Path) -> bool:
    """Return whether the file system refuses to run or load programs.

    Packages with compiled modules need that.
    """
    with contextlib.suppress(OSError):
        return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
    return False


def _is_in_memory(folder: Path) -> bool:
    kind = ""
    longest = -1
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            _, point, type_, *_ = [word.replace("\\040", " ") for word in line.split(" ")]
            # Of two mounts at one point, the later one hides the other.
            if folder.resolve().is_relative_to(point) and len(Path(point).parts) >= longest:
                kind = type_
                longest = len(Path(point).parts)
    return kind in IN_MEMORY
