"""The one object that says which copy of a grid's store holds, and whose lease it is.

Whoever writes it has the lease: each write is conditional on what the writer has read, so that of two machines one is
told that it was late. Frozen data; JSON flows in and out.
"""

import dataclasses
import json
from dataclasses import dataclass

from raysm.errors import InvalidConfig

__all__ = ["Head", "read_head"]

FORMAT = 1
"""Of the object; another one is not touched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What holds of a shared grid."""

    run: str
    """The six characters that tell the grid from a later one of the same name; empty before its first copy."""
    owner: str
    """Whose lease it is, or was last, for people: its machine and process."""
    holder: str
    """The same for programs: drawn by each controller, as two containers may be of one name, process and moment."""
    fence: int
    """Number of the lease: with each machine that takes over one more."""
    is_held: bool
    """Whether its owner has not let go of it; one that is heard of no more has lost it all the same."""
    serial: int
    """With each write one more: two heads alike would have one ETag, and a write between them went unseen."""
    number: int = 0
    """Of the copy; 0 is none yet."""
    parts: tuple[str, ...] = ()
    """Names of the objects that make it, the whole first, and behind it what has changed since."""
    whole_bytes: int = 0
    """Of the first part."""
    changed_bytes: int = 0
    """Of the others together."""
    digest: str = ""
    """Of the content that they make."""

    def content(self) -> bytes:
        """Return it as an object's content."""
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=1).encode()


def read_head(content: bytes) -> Head:
    """Return the head that an object holds.

    Raises:
        InvalidConfig: It is none, or of another raysm.
    """
    try:
        values = json.loads(content)
        if values.pop("format", None) != FORMAT:
            raise InvalidConfig("the grid's copy was written by another raysm; use the raysm that wrote it")
        return Head(**values | {"parts": tuple(values["parts"])})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidConfig(f"the head of the grid's copy cannot be read: {error}") from error
