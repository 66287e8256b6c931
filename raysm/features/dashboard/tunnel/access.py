"""The access to instances that opens tunnels and runs commands."""

import abc
from collections.abc import Sequence

from raysm.core.client.tunnel import Tunnel
from raysm.features.dashboard.tunnel.terminal import Terminal


class InstanceAccess(abc.ABC):
    """Access to the instances of jobs of one target; ``opening`` describes the arguments and errors."""

    @abc.abstractmethod
    def check(self) -> None:
        """Check what this machine needs for it; raise MissingDependency if a program is not installed."""

    @abc.abstractmethod
    def open_tunnel(self, job: str, host: str, port: int, local_port: int) -> Tunnel:
        """Return a tunnel to ``port`` on the loopback of the instance ``host`` of a running job."""

    @abc.abstractmethod
    def run(self, job: str, host: str, command: Sequence[str], terminal: Terminal) -> int:
        """Run a command in the instance before the user's terminal; return its exit code."""
