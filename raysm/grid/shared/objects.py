"""Where the copies of a grid's store lie: names flow in, objects flow out. The one seam to S3 of what is shared."""

from typing import Protocol

from raysm.client.conditional import Versioned, read_versioned, write_versioned
from raysm.client.service import Service
from raysm.client.storage import Storage

__all__ = ["Objects", "S3Objects"]


class Objects(Protocol):
    """A folder that several machines write to. Every call may raise ``ServiceError``."""

    place: str
    """Its URI, for messages."""

    def read(self, name: str) -> Versioned | None:
        """Return an object; None where there is none."""

    def replace(self, name: str, content: bytes, version: str | None) -> str:
        """Write an object that is as it was read, None for one that was not there; return its new version.

        Raises:
            Outdated: It is not as it was read.
        """

    def put(self, name: str, content: bytes) -> None:
        """Write an object of a name that nobody else uses."""

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin so, in order."""

    def remove(self, name: str) -> None:
        """Remove an object; harmless where there is none."""


class S3Objects:
    """A folder of S3; see ``Objects``."""

    def __init__(self, service: Service, place: str, kms_key: str | None = None) -> None:
        """Take the service, the folder's URI without a slash at its end, and the key that encrypts what is written."""
        self.place = place
        self._service = service
        self._storage = Storage(service)
        self._kms_key = kms_key

    def make_bucket(self) -> None:
        """Make the bucket where it is not there; one that the user named has to be there.

        Raises:
            ServiceError: It may not be made, or used.
        """
        self._storage.ensure_bucket(self._service.bucket, self._service.region)

    def read(self, name: str) -> Versioned | None:
        """Return an object; None where there is none."""
        return read_versioned(self._service, self._uri(name))

    def replace(self, name: str, content: bytes, version: str | None) -> str:
        """Write an object that is as it was read; return its new version."""
        return write_versioned(self._service, self._uri(name), content, version, self._kms_key)

    def put(self, name: str, content: bytes) -> None:
        """Write an object of a name that nobody else uses."""
        self._storage.write(self._uri(name), content, self._kms_key)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin so, in order."""
        return [item.uri.removeprefix(f"{self.place}/") for item in self._storage.below(self._uri(prefix))]

    def remove(self, name: str) -> None:
        """Remove an object; harmless where there is none."""
        self._storage.remove_object(self._uri(name))

    def _uri(self, name: str) -> str:
        return f"{self.place}/{name}"
