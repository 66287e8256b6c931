"""The way to a port on an instance's loopback, for as long as it is needed."""

from typing import Protocol

from raysm.client.job import Job

__all__ = ["Way", "open_way"]


class Way(Protocol):
    """An open way."""

    @property
    def address(self) -> str:
        """``127.0.0.1:PORT``, on this machine."""

    def close(self) -> None:
        """Close it."""


class _Here:
    """Of an instance that is a process of this machine."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"

    def close(self) -> None:
        """There is nothing to close."""


def open_way(job: Job, port: int) -> Way:
    """Open a way to ``port`` of the job's head."""
    return _Here(port)
