"""The interface of every kind of instance.

Every kind keeps these promises:

- When the main process of an instance ends, for whatever reason, every process in the instance is
  killed.
- A signal reaches only the main process, as with ``docker stop`` and ``docker kill``.
- Nothing remains when the site is closed, or when the process that opened it is killed.
"""

import abc
import os
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from raysm.core.protocol.connections import connect_to_own
from raysm.errors import InvalidRequest
from raysm.local.instances.share import Share
from raysm.local.scenario import Scenario

HOST_NAME = "aws"
"""The host name of every instance, as in real jobs (sagemaker-training-toolkit, issue 9)."""
CONNECT_S = 10.0
"""Loopback answers within microseconds; a busy machine may take longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A file or folder of this machine that appears in an instance without being copied."""

    source: Path
    """Absolute, with symbolic links resolved."""
    target: Path
    """Absolute, below the instance's base folder; must not exist yet."""
    is_mounted: bool = False
    """A folder of a file system: also new files in it are refused, where this machine can."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceSpec:
    host: str
    base: Path
    """An existing folder of this machine that is, or plays, the instance's ``/opt/ml``."""
    private: Path
    command: tuple[str, ...]
    variables: Mapping[str, str]
    """The environment, in addition to what the kind itself sets."""
    log_fd: int
    links: tuple[Link, ...] = ()
    originals: tuple[Path, ...] = ()
    """Files and folders of the user that links lead to; the instance must not change them."""
    share: Share = field(default_factory=Share)
    scenario: Scenario = field(default_factory=Scenario)


def to_loopback(port: int) -> socket.socket:
    """Connect to a port on the caller's loopback; raise OSError if nothing listens there."""
    # By name, as SSM's agent does it: some programs listen on ::1 alone.
    return socket.create_connection(("localhost", port), timeout=CONNECT_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningCommand:
    exited: "Future[int]"
    """The exit code, 128 + signal if the command was killed."""
    kill: Callable[[], None]
    """Kills the command; does nothing once it has ended."""


class Instance(abc.ABC):
    """An instance that was started.

    Attributes:
        host: Its name, ``algo-1``.
        address: The IPv4 address at which the other instances and this machine reach it.
        pid: Its main process, as this machine numbers it.
        exited: The exit code of the main process, 128 + signal if it was killed; set once
            everything in the instance is gone.
    """

    host: str
    address: str
    pid: int
    exited: "Future[int]"

    @abc.abstractmethod
    def signal(self, number: int) -> None:
        """Signal the main process alone; does nothing once it has ended."""

    @abc.abstractmethod
    def end(self) -> None:
        """Kill everything in the instance and return when it is gone; may be repeated."""

    def connect(self, port: int) -> socket.socket:
        """Connect to ``port`` on the loopback of the instance.

        Raise ForeignListener if another user listens there.
        """
        # Kinds with a loopback of their own override this: no other user's process is there.
        return connect_to_own("localhost", port, CONNECT_S)

    @abc.abstractmethod
    def enter(self, command: Sequence[str], *, stdin: str, stdout: str) -> RunningCommand:
        """Run a command beside the main process.

        A terminal as ``stdout`` becomes its controlling terminal.
        """

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> int:
        """Return the exit code.

        Raise TimeoutError if the instance does not end within ``timeout_s``.
        """
        try:
            return self.exited.result(timeout_s)
        except TimeoutError as error:  # the future's error has no message
            raise TimeoutError(f"{self.host} did not end within {timeout_s} s") from error


class Site(abc.ABC):
    """The place where the instances of one job run, and what they share; a context manager.

    ``interface`` is the network interface over which the instances reach each other.
    """

    interface: str
    plays: ClassVar[frozenset[str]] = frozenset()
    """The switches of a scenario's tables ``container`` and ``network`` that such instances can
    follow."""

    def check(self, scenario: Scenario) -> None:
        """Raise InvalidRequest for a switch that instances of this kind cannot play."""
        for switch, value in scenario.switched():
            # The server plays the other tables itself, whatever the instances are.
            if switch.startswith(("container.", "network.")) and switch not in self.plays:
                raise InvalidRequest(
                    f"the scenario asks for {switch}={value!r}, which instances of this kind "
                    "cannot play: use kind 'namespace', or take the switch out of the scenario"
                )

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks for such a site, and the remedy; None if nothing."""
        return None

    @classmethod
    def open(cls, image: str | None) -> "Site":
        """Open a site whose instances run ``image``.

        Kinds that run this machine's programs ignore it.
        """
        return cls()

    sees_machine: ClassVar[bool] = False
    """True if instances see this machine's files under their own names."""

    @property
    def protects(self) -> bool:
        """True if programs in the instances cannot change the files that links lead to."""
        return True

    @abc.abstractmethod
    def base_inside(self, base: Path) -> Path:
        """Return the path of the base folder inside an instance."""

    @classmethod
    def foreign_opt_ml(cls, specs: Sequence[InstanceSpec]) -> str | None:
        """Return why ``/opt/ml`` in the instances is this machine's.

        Return None if it is each instance's base folder.
        """
        return None

    @abc.abstractmethod
    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        """Start all instances, the head first.

        Raise RaysmError if one cannot be started: then none is left.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End every instance and whatever they shared; may be repeated."""

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_to_all(base: Path) -> None:
    """Let every user write below the folders of ``base``, for a job that does not run as root."""
    for folder, _, _ in os.walk(base):
        if Path(folder) != base:
            os.chmod(folder, 0o777)
