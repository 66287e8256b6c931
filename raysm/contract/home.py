"""The home folder of the embedded SageMaker, the record of its server, and its clock.

::

    HOME/server.json    pid, port, start and version of the server, while it listens
    HOME/server.lock    locked by the server while it runs
    HOME/server.log     what the server wrote
    HOME/scenario.toml  the scenario of this home: raysm local up --scenario
    HOME/sagemaker.yaml configuration of the SageMaker SDK for this server: SAGEMAKER_USER_CONFIG_OVERRIDE names it
"""

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from raysm.contract.store import put, read_json
from raysm.errors import InvalidConfig, InvalidRequest

VARIABLE = "RAYSM_HOME"
RECORD = "server.json"


def home(explicit: str | os.PathLike[str] | None = None) -> Path:
    """Return the home, absolute: ``explicit``, else ``$RAYSM_HOME``, else ``~/.raysm``; it need not exist."""
    # The only variable that raysm itself reads on the laptop: boto3 reads AWS's.
    chosen = explicit or os.environ.get(VARIABLE) or "~/.raysm"  # noqa: TID251
    return Path(chosen).expanduser().absolute()


def lock_file(folder: Path) -> Path:
    # Not the record, which is replaced by renaming: the lock would stay with the old file.
    return folder / "server.lock"


def log_file(folder: Path) -> Path:
    return folder / "server.log"


def scenario_file(folder: Path) -> Path:
    return folder / "scenario.toml"


def sdk_config_file(folder: Path) -> Path:
    return folder / "sagemaker.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """A clock that may run faster than the machine's."""

    speed: float = 1.0
    """Seconds of this clock in one real second."""
    begun_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise InvalidRequest(
                f"a clock's speed must be above 0, got {self.speed:g}; 1 is real time, 60 makes an hour a minute"
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
    """The record of a server that listens on 127.0.0.1."""

    pid: int
    port: int
    started_s: float
    version: str
    """Version of raysm; a client of another version may not understand the server."""
    speed: float = 1.0

    @property
    def clock(self) -> Clock:
        return Clock(speed=self.speed, begun_s=self.started_s)

    @property
    def url(self) -> str:
        # A number, because localhost may be ::1, where the server does not listen.
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def read(cls, folder: Path) -> "ServerRecord | None":
        """Return the record in a home, if it is readable; a killed server leaves it behind, but not its lock."""
        try:
            fields = read_json(folder / RECORD)
            return cls(
                pid=int(fields["pid"]),
                port=int(fields["port"]),
                started_s=float(fields["started_s"]),
                version=str(fields["version"]),
                # The record of an older server lacks this; it must be found, to report its version.
                speed=float(fields.get("speed", 1.0)),
            )
        except (InvalidConfig, KeyError, TypeError, ValueError):
            return None

    def write(self, folder: Path) -> None:
        put(folder / RECORD, json.dumps(asdict(self)) + "\n", mode=0o600, within=folder)

    @staticmethod
    def remove(folder: Path) -> None:
        with contextlib.suppress(FileNotFoundError):
            (folder / RECORD).unlink()
