"""What has to be the same in every instance of a job, said when a worker joins and compared by the head."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Identity"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What has to be the same in every instance."""

    payload: str
    """Digest of the payload."""
    python: str
    """Version of Python, ``3.11.7``: Ray refuses even another patch level."""
    ray: str
    """Version of Ray."""
    raysm: str
    """Version of raysm."""

    def difference(self, other: Mapping[str, Any]) -> str | None:
        """Return what ``other``, a worker's identity as it was sent, has otherwise than this one, the head's."""
        for name, mine in asdict(self).items():
            theirs = other.get(name)
            if theirs == mine:
                continue
            # Without the two digests, which would tell people nothing.
            if name == "payload":
                return "its payload is not the head's: the digests differ, so it was told another request or source"
            return f"it has {name} {theirs}, the head has {name} {mine}: use one image for all instances"
        return None
