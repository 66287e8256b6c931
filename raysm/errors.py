"""Every error that raysm raises, as one tree.

::

    RaysmError
    ├── InvalidRequest (ValueError)     what was asked for cannot be; the message says what, the value and the remedy
    │   └── InvalidInput                the data cannot be used: wrong shape, NaN, not enough rows
    ├── InvalidConfig (ValueError)      a file that the service or the payload brought cannot be used
    │   └── InvalidPayload              the payload is missing, torn, or does not match its digests
    ├── MissingDependency               a package that this half needs is not installed
    ├── NoRoom                          a disk has not enough room for what will be written
    ├── ClusterError
    │   ├── ClusterNotFormed            instances did not join before the deadline
    │   ├── InstanceLost                an instance died while the job ran
    │   └── RayFailed                   a Ray process ended that had to live
    ├── BlockFailed                     a share-nothing block failed as often as it may
    └── JobFailed                       a job ended otherwise than Completed

Foreign errors are translated into these once, at the boundary, with ``from``.
"""

__all__ = [
    "BlockFailed",
    "ClusterError",
    "ClusterNotFormed",
    "InstanceLost",
    "InvalidConfig",
    "InvalidInput",
    "InvalidPayload",
    "InvalidRequest",
    "JobFailed",
    "MissingDependency",
    "NoRoom",
    "RayFailed",
    "RaysmError",
]


class RaysmError(Exception):
    """The root of all errors of raysm."""


class InvalidRequest(RaysmError, ValueError):
    """What was asked for cannot be; nothing was started."""


class InvalidInput(InvalidRequest):
    """The data of a channel cannot be used by the workload."""


class InvalidConfig(RaysmError, ValueError):
    """A configuration file in the instance cannot be used."""


class InvalidPayload(InvalidConfig):
    """The payload is missing, torn, or does not match its digests."""


class MissingDependency(RaysmError):
    """A package that this half of raysm needs is not installed."""


class NoRoom(RaysmError):
    """A disk has not enough room for what would be written."""


class ClusterError(RaysmError):
    """The instances are, or have become, no whole cluster."""


class ClusterNotFormed(ClusterError):
    """Instances did not join before the deadline."""


class InstanceLost(ClusterError):
    """An instance died while the job ran."""


class RayFailed(ClusterError):
    """A Ray process ended that had to live."""


class BlockFailed(RaysmError):
    """A block of share-nothing work failed on every attempt.

    Attributes:
        block: What the task was told, as text.
        attempts: How often it was tried.
        remote_traceback: The last traceback, as the instance printed it.
    """

    def __init__(self, block: str, attempts: int, remote_traceback: str) -> None:
        """Keep the parts and build the message from them."""
        self.block = block
        self.attempts = attempts
        self.remote_traceback = remote_traceback
        super().__init__(f"{block} failed {attempts} times; the last time with:\n{remote_traceback}")

    def __reduce__(self) -> tuple[type["BlockFailed"], tuple[str, int, str]]:
        """Pickle by parts: the default would call the constructor with the message alone."""
        return type(self), (self.block, self.attempts, self.remote_traceback)


class JobFailed(RaysmError):
    """A job ended otherwise than Completed; the message is its failure reason."""
