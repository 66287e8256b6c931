"""The home folder of the embedded SageMaker, the record of its server, and its clock.

::

    HOME/server.json    pid, port, start and version of the server, while it listens
    HOME/server.lock    locked by the server as long as it lives
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
"""The variable that names the home, unless the caller does."""

RECORD = "server.json"


def home(explicit: str | os.PathLike[str] | None = None) -> Path:
    """Return the home, absolute: ``explicit``, else ``$RAYSM_HOME``, else ``~/.raysm``; it need not be there."""
    # The one variable that the laptop's half reads by itself: boto3 reads AWS's.
    chosen = explicit or os.environ.get(VARIABLE) or "~/.raysm"  # noqa: TID251
    return Path(chosen).expanduser().absolute()


def lock_file(folder: Path) -> Path:
    """Return the file that the server of the home ``folder`` locks."""
    # A file of its own: the record is replaced by renaming, which would leave the lock with the old file.
    return folder / "server.lock"


def log_file(folder: Path) -> Path:
    """Return the file with stdout and stderr of the server of the home ``folder``."""
    return folder / "server.log"


def scenario_file(folder: Path) -> Path:
    """Return the file that every server of the home ``folder`` reads its scenario from; it need not be there."""
    return folder / "scenario.toml"


def sdk_config_file(folder: Path) -> Path:
    """Return the file that tells the SageMaker SDK what it cannot ask the server of the home ``folder``."""
    return folder / "sagemaker.yaml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Seconds since the epoch, as one service tells them.

    Raises:
        InvalidRequest: It would stand still, or run backwards.
    """

    speed: float = 1.0
    """Of its seconds, how many pass in one second."""
    begun_s: float = 0.0
    """When it began to run at this speed, in seconds since the epoch; before, it was everybody's."""

    def __post_init__(self) -> None:
        if not self.speed > 0:
            raise InvalidRequest(
                f"a clock's speed is above 0, got {self.speed:g}; 1 is everybody's, 60 an hour a minute"
            )

    def now(self) -> float:
        """Return the moment, in seconds since the epoch."""
        now_s = time.time()
        # Exactly the machine's own where it runs no faster: a sum of floats would differ in its last digits.
        return now_s if self.speed == 1.0 else self.begun_s + (now_s - self.begun_s) * self.speed

    def takes_s(self, seconds: float) -> float:
        """Return how many seconds of this machine so many of the clock's take."""
        return seconds / self.speed

    def sleep(self, seconds: float) -> None:
        """Let so many of the clock's seconds pass."""
        time.sleep(max(0.0, self.takes_s(seconds)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerRecord:
    """Where a server listens."""

    pid: int
    """Its process."""
    port: int
    """On 127.0.0.1."""
    started_s: float
    """Since the epoch."""
    version: str
    """Of raysm; a client of another version may not understand it."""
    speed: float = 1.0
    """How many seconds of its clock pass in one, by its scenario."""

    @property
    def clock(self) -> Clock:
        """The server's."""
        return Clock(speed=self.speed, begun_s=self.started_s)

    @property
    def url(self) -> str:
        """Its endpoint."""
        # By number: localhost may be ::1, where it does not listen.
        return f"http://127.0.0.1:{self.port}"

    @classmethod
    def read(cls, folder: Path) -> "ServerRecord | None":
        """Return the record in the home ``folder``; None if there is none that can be read.

        A record tells that a server was there, not that it still is: a killed one leaves it behind.
        """
        try:
            fields = read_json(folder / RECORD)
            return cls(
                pid=int(fields["pid"]),
                port=int(fields["port"]),
                started_s=float(fields["started_s"]),
                version=str(fields["version"]),
                speed=float(fields.get("speed", 1.0)),
            )
        except (InvalidConfig, KeyError, TypeError, ValueError):
            # Torn, or of another version: whether a server lives is for the lock to say, not for this file.
            return None

    def write(self, folder: Path) -> None:
        """Leave the record in the home ``folder``, whole from its first moment."""
        put(folder / RECORD, json.dumps(asdict(self)) + "\n", mode=0o600, within=folder)

    @staticmethod
    def remove(folder: Path) -> None:
        """Remove the record from the home ``folder``; harmless if it is not there."""
        with contextlib.suppress(FileNotFoundError):
            (folder / RECORD).unlink()
