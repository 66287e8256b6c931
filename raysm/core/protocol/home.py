"""The home folder of the embedded SageMaker, the record of its server, and its clock.

::

    HOME/server.json      pid, port, socket, start and version of the server, while it listens
    HOME/server-PID.sock  the server's Unix socket, for raysm's own clients
    HOME/server.lock      locked by the server while it runs
    HOME/server.log       what the server wrote
    HOME/scenario.toml    the scenario of this home: raysm local up --scenario
    HOME/costs.db         what the jobs cost that this user has sent, by day
    HOME/sagemaker.yaml   configuration of the SageMaker SDK for this server:
                          SAGEMAKER_USER_CONFIG_OVERRIDE names it
"""

import contextlib
import errno
import json
import os
import stat
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from raysm.core.protocol.names import LOCAL_REGION
from raysm.core.protocol.store import put, read_json
from raysm.core.protocol.trust import find_distrust
from raysm.errors import InvalidConfig, InvalidRequest

VARIABLE = "RAYSM_HOME"
RECORD = "server.json"
JOBS = "jobs"


def home(explicit: str | os.PathLike[str] | None = None) -> Path:
    """Return the absolute home: ``explicit``, else ``$RAYSM_HOME``, else ``~/.raysm``.

    The folder need not exist.

    Raises:
        InvalidRequest: Another user owns it or may write to it, so that its pickles and programs
            may be his; or this user may not open it.
    """
    # The only variable that raysm itself reads on the laptop: boto3 reads AWS's.
    chosen = explicit or os.environ.get(VARIABLE) or "~/.raysm"  # noqa: TID251
    folder = Path(chosen).expanduser().absolute()
    try:
        distrust = find_distrust(folder)
        if distrust is None and folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except (FileNotFoundError, NotADirectoryError):
        return folder
    except (OSError, RuntimeError) as error:
        raise unusable(folder, error) from error
    if distrust is not None:
        raise InvalidRequest(
            f"the home {folder} is not used, because {distrust.reason}",
            remedy=f"set {VARIABLE} to a folder of your own"
            # What others have put there would run as this user.
            + (
                f", or, if all that lies in this one is yours, run {distrust.command}"
                if distrust.command
                else ""
            ),
        )
    return folder


def unusable(folder: Path, error: Exception) -> InvalidRequest:
    """Return the error for a home that cannot be opened or written."""
    reason = getattr(error, "strerror", None) or str(error)
    path = getattr(error, "filename", None)
    if path is not None and str(path) != str(folder):
        reason = f"{reason}: {path}"
    return InvalidRequest(
        f"the home {folder} cannot be used: {reason}",
        remedy=f"name another one by {VARIABLE} or Local(home=…)",
    )


def _is_shared(root: Path) -> bool:
    """Return whether other programs need the folder, too.

    This is so for the user's home folder, one above it, and a top-level one.
    """
    try:
        return len(root.parts) < 3 or Path.home().is_relative_to(root)
    except RuntimeError:  # a container may have a user without a home folder
        return False


def private_folder(root: Path, *names: str) -> Path:
    """Return a folder of the home ``root``, created if it is missing.

    Only this user can open it and those above it.

    Folders that an earlier release left open are closed. The home itself keeps its mode if it is
    the user's home folder, lies above it, or lies at the top of the file system: other programs
    need these.

    Raises:
        InvalidRequest: A folder belongs to another user, or cannot be created.
    """
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        for depth in range(len(names) + 1):
            path = root.joinpath(*names[:depth])
            path.mkdir(mode=0o700, exist_ok=True)
            is_shared = path == root and _is_shared(root)
            mode = stat.S_IMODE(path.stat().st_mode)
            # Windows has no such modes.
            if mode & 0o077 and not is_shared and hasattr(os, "geteuid"):
                path.chmod(0o700)
    except (OSError, RuntimeError) as error:
        raise unusable(root, error) from error
    return root.joinpath(*names)


def lock_file(folder: Path) -> Path:
    # Not the record, which is replaced by renaming: the lock would stay with the old file.
    return folder / "server.lock"


def log_file(folder: Path) -> Path:
    return folder / "server.log"


def scenario_file(folder: Path) -> Path:
    return folder / "scenario.toml"


def file_systems_folder(folder: Path) -> Path:
    """Return the folder whose folders, or links, stand for file systems of AWS, by their ids."""
    return folder / "file-systems"


def sdk_config_file(folder: Path) -> Path:
    return folder / "sagemaker.yaml"


def jobs_folder(folder: Path, kind: str, region: str) -> Path:
    """Return the folder of one kind's jobs in a region, within which their names are unique."""
    return folder / JOBS / (kind if region == LOCAL_REGION else f"{kind}@{region}")


def regions_with_jobs(folder: Path) -> list[str]:
    """Return the regions other than the default one that have jobs, or had some."""
    return sorted({path.name.partition("@")[2] for path in (folder / JOBS).glob("*@*")})


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """A clock that may run faster than the machine's."""

    speed: float = 1.0
    """Seconds of this clock in one real second."""
    begun_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise InvalidRequest(
                f"a clock's speed must be above 0, got {self.speed:g}; "
                "1 is real time, 60 makes an hour a minute"
            )

    def now(self) -> float:
        now_s = time.time()
        # At speed 1 exactly the machine's time: a sum of floats would differ in its last digits.
        return now_s if self.speed == 1.0 else self.begun_s + (now_s - self.begun_s) * self.speed

    def takes_s(self, seconds: float) -> float:
        return seconds / self.speed

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, self.takes_s(seconds)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRecord:
    """The record of a server that listens on a Unix socket and on 127.0.0.1."""

    pid: int
    port: int
    started_s: float
    version: str
    """Version of raysm; a client of another version may not understand the server."""
    speed: float = 1.0
    socket: str = ""
    """Path of its Unix socket, in the file relative to the home; empty in the record of an older
    server."""

    @property
    def clock(self) -> Clock:
        return Clock(speed=self.speed, begun_s=self.started_s)

    @property
    def url(self) -> str:
        """The address for boto3 and the SageMaker SDK.

        raysm's own clients use the socket, whose owner they check.
        """
        # A number, because localhost may be ::1, where the server does not listen.
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def read(cls, folder: Path) -> "ServerRecord | None":
        """Return the record in a home, if it is readable.

        A killed server leaves it behind, but not its lock.
        """
        try:
            fields = read_json(folder / RECORD)
            return cls(
                pid=int(fields["pid"]),
                port=int(fields["port"]),
                started_s=float(fields["started_s"]),
                version=str(fields["version"]),
                # The record of an older server lacks this; it must be found, to report its version.
                speed=float(fields.get("speed", 1.0)),
                socket=str(folder / fields["socket"]) if fields.get("socket") else "",
            )
        except (InvalidConfig, KeyError, TypeError, ValueError):
            return None

    def write(self, folder: Path) -> None:
        put(folder / RECORD, json.dumps(asdict(self)) + "\n", mode=0o600, within=folder)

    @staticmethod
    def remove(folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            (folder / RECORD).unlink()
