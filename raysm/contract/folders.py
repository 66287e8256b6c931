"""Folders that are made below one that has to be there.

``mkdir(parents=True)`` makes whatever lacks, also what somebody has just removed, or moved away to make another in its
place: who writes below a folder that is not his own to make names the one above which he makes nothing.
"""

from pathlib import Path

__all__ = ["make_folder"]


def make_folder(folder: Path, within: Path | None) -> None:
    """Make ``folder``, and what lacks between it and ``within``.

    Args:
        folder: Is ``within``, or lies below it; may be there.
        within: Is never made; None makes all that lacks.

    Raises:
        FileNotFoundError: ``within`` is not there; where ``folder`` is ``within``, nobody looks.
        ValueError: ``folder`` does not lie there.
    """
    if within is None:
        folder.mkdir(parents=True, exist_ok=True)
        return
    for name in folder.relative_to(within).parts:
        within = within / name
        # One by one, and no look before: what is removed between the look and the making would be made after all.
        within.mkdir(exist_ok=True)
