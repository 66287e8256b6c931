"""Which files of a channel are the user's, and in which order, by their names alone: names flow in, keys flow out.

Apart from what reads files, so that a client without Ray and NumPy can look at its inputs as the job will.
"""

import re
from pathlib import PurePath

__all__ = ["is_hidden", "natural"]


def is_hidden(name: str) -> bool:
    """Return whether a file is none of the user's data: ``.DS_Store``, ``_SUCCESS``, all of a folder ``_temporary``."""
    # As Spark leaves them beside its parts: _SUCCESS, and checksums in hidden files.
    return any(part.startswith((".", "_")) for part in PurePath(name).parts)


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what names are sorted by: ``part-2`` before ``part-10``."""
    pieces = re.findall(r"\d+|\D+", name)
    # Last the name itself: part-2 and part-02 are one to the numbers, and every instance must sort alike.
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in pieces], name
