"""How this machine reaches the instances of a job: one class for AWS and one for the embedded SageMaker."""

import abc
from collections.abc import Sequence

from raysm.client.tunnel.terminal import Terminal
from raysm.client.tunnel.tunnel import Tunnel

__all__ = ["InstanceAccess"]


class InstanceAccess(abc.ABC):
    """Access to the instances of jobs of one target."""

    @abc.abstractmethod
    def check(self) -> None:
        """Check what this machine needs for it.

        Raises:
            MissingDependency: A program is not installed; the message says how to install it.
        """

    @abc.abstractmethod
    def open_tunnel(self, job: str, host: str, port: int, local_port: int) -> Tunnel:
        """Return a tunnel to ``port`` on the loopback of the instance ``host`` of a running job.

        Raises:
            InvalidRequest: The local port is taken.
            ServiceError: The instance cannot be reached.
        """

    @abc.abstractmethod
    def run(self, job: str, host: str, command: Sequence[str], terminal: Terminal) -> int:
        """Run a command in the instance before the user's terminal; return its exit code.

        Args:
            job: The job's name.
            host: The instance, ``algo-1``.
            command: Its words; empty is a shell.
            terminal: The user's. If it is no terminal, the command reads nothing.

        Raises:
            ServiceError: The instance cannot be reached, or the session ended before the command did.
        """
