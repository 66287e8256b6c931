"""The order of names with numbers in them, of hosts and of files alike: names flow in, keys to sort by flow out.

Standard library alone: the bootstrap sorts its hosts before anything is installed in the instance.
"""

import re

__all__ = ["natural"]


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what names are sorted by: ``part-2`` before ``part-10``, ``algo-2`` before ``algo-10``."""
    pieces = re.findall(r"\d+|\D+", name)
    # Last the name itself: part-2 and part-02 are one to the numbers, and every instance must sort alike.
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in pieces], name
