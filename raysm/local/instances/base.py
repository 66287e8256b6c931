"""The interface of every kind of instance.

For every kind:

- When the main process of an instance ends, for whatever reason, every process in the instance is killed.
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

from raysm.contract.connections import connect_to_own
from raysm.errors import InvalidRequest
from raysm.local.instances.share import Share
from raysm.local.scenario import Scenario

__all__ = ["Instance", "InstanceSpec", "Link", "Site", "Visit", "open_to_all", "to_loopback"]

CONNECT_S = 10.0
"""Loopback answers within microseconds; a machine that is busy may take longer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A file or folder of this machine that appears, without being copied, in an instance."""

    source: Path
    """Absolute, with symbolic links resolved."""
    target: Path
    """Absolute, below the instance's base folder; must not exist yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceSpec:
    """One instance to start."""

    host: str
    """Its name, ``algo-1``."""
    base: Path
    """The folder of this machine that is, or plays, the instance's ``/opt/ml``; it is there."""
    private: Path
    """A folder of this machine for the instance's own things: its home, its ``/tmp``; it is there."""
    command: tuple[str, ...]
    """The main process."""
    variables: Mapping[str, str]
    """Its environment, beside what the kind itself sets."""
    log_fd: int
    """Where stdout and stderr of everything in the instance go; stays the caller's."""
    links: tuple[Link, ...] = ()
    """What appears in it."""
    originals: tuple[Path, ...] = ()
    """Files and folders of the user's from which links come: nothing in the instance is to change them."""
    share: Share = field(default_factory=Share)
    """Its part of this machine."""
    scenario: Scenario = field(default_factory=Scenario)
    """What AWS would do to it."""


def to_loopback(port: int) -> socket.socket:
    """Return a connection to a port on the loopback of whoever calls this.

    Raises:
        OSError: Nobody listens there.
    """
    # By its name, as SSM's agent does it: some programs listen on ::1 alone.
    return socket.create_connection(("localhost", port), timeout=CONNECT_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Visit:
    """A command that was run in an instance, beside its main process."""

    exited: "Future[int]"
    """Its exit code, 128 + signal if it was killed."""
    leave: Callable[[], None]
    """Kills it; harmless when it has ended."""


class Instance(abc.ABC):
    """An instance that was started.

    Attributes:
        host: Its name.
        address: Its IPv4 address, as the others and this machine reach it.
        pid: Its main process, as this machine numbers it.
        exited: The exit code of the main process, 128 + signal if it was killed; set once everything in the instance
            is gone.
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
        """Kill everything in it and return when it is gone; harmless when repeated."""

    def connect(self, port: int) -> socket.socket:
        """Return a connection to ``port`` on the loopback of the instance.

        Raises:
            ForeignListener: The instance shares this machine's loopback, and another user's process listens there.
            OSError: Nobody listens there.
        """
        # Kinds whose instances have a loopback of their own enter it first, and nobody else's process is there.
        return connect_to_own("localhost", port, CONNECT_S)

    @abc.abstractmethod
    def enter(self, command: Sequence[str], *, stdin: str, stdout: str) -> Visit:
        """Run a command in it, beside the main process, with that one's environment.

        Args:
            command: What to run.
            stdin: The path, on this machine, of what it reads.
            stdout: Of what it writes to, also its errors; a terminal becomes the one that controls it.
        """

    def kill(self) -> None:
        """Kill the main process, and everything with it."""
        # Of the main process alone: what else is in the instance ends with it, as every kind promises.
        self.signal(signal.SIGKILL)

    def wait(self, timeout_s: float | None = None) -> int:
        """Return the exit code.

        Raises:
            TimeoutError: It did not end within ``timeout_s``.
        """
        try:
            return self.exited.result(timeout_s)
        except TimeoutError as error:  # the future's own has no message
            raise TimeoutError(f"{self.host} did not end within {timeout_s} s") from error


class Site(abc.ABC):
    """Where the instances of one job run, and what they share; a context manager.

    Attributes:
        interface: The network interface over which the instances reach each other.
    """

    interface: str
    plays: ClassVar[frozenset[str]] = frozenset()
    """The switches of a scenario's tables ``container`` and ``network`` that such instances can follow."""

    def check(self, scenario: Scenario) -> None:
        """Refuse a scenario that instances of this kind cannot play.

        Raises:
            InvalidRequest: It asks for what they cannot do; its defaults are played as far as they can.
        """
        for switch, value in scenario.switched():
            # What the other tables say the server plays itself, whatever its instances are.
            if switch.startswith(("container.", "network.")) and switch not in self.plays:
                raise InvalidRequest(
                    f"the scenario asks for {switch}={value!r}, which instances of this kind cannot play: use kind "
                    "'namespace', or take the switch out of the scenario"
                )

    @staticmethod
    def missing() -> str | None:
        """Return what this machine lacks for such a site, and the remedy; None if nothing."""
        return None

    @classmethod
    def open(cls, image: str | None) -> "Site":
        """Open a site whose instances run ``image``, where they run one.

        Raises:
            InvalidRequest: This machine lacks something for it; the message says what.
        """
        # Most kinds run what this machine has, and need no image.
        return cls()

    @property
    def protects(self) -> bool:
        """Whether what runs in the instances cannot change the originals of links."""
        return True

    @abc.abstractmethod
    def base_inside(self, base: Path) -> Path:
        """Return what an instance itself calls its base folder."""

    @abc.abstractmethod
    def start(self, specs: Sequence[InstanceSpec]) -> list[Instance]:
        """Start all instances of a job, the head first; none is left if one cannot be started.

        Raises:
            RaysmError: One of them could not be started; the message says which and why.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """End every instance and whatever they shared; harmless when repeated."""

    def __enter__(self) -> "Site":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_to_all(base: Path) -> None:
    """Let every user write below the folders of ``base``: a job that runs as another one than root has to."""
    for folder, _, _ in os.walk(base):
        if Path(folder) != base:
            os.chmod(folder, 0o777)
