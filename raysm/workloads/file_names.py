"""Which files of a channel are the user's, by their names alone: names flow in, answers flow out.

Apart from what reads files, so that a client without Ray and NumPy can look at its inputs as the job will.
"""

from pathlib import PurePath

__all__ = ["is_hidden"]


def is_hidden(name: str) -> bool:
    """Return whether a file is none of the user's data: ``.DS_Store``, ``_SUCCESS``, all of a folder ``_temporary``."""
    # As Spark leaves them beside its parts: _SUCCESS, and checksums in hidden files.
    return any(part.startswith((".", "_")) for part in PurePath(name).parts)
