"""What a scenario leaves to chance, and when: shares and pairs of moments, checked where they are read."""

import random

from raysm.errors import InvalidRequest

__all__ = ["check_pairs", "check_shares", "drawn", "within"]


def check_shares(table: str, **shares: float) -> None:
    """Refuse what is no share.

    Raises:
        InvalidRequest: It is below 0 or above 1.
    """
    for name, share in shares.items():
        # A percentage would pass for always: no draw is above 1.
        if not 0 <= share <= 1:
            raise InvalidRequest(f"the scenario's {table}.{name} is a share from 0 to 1, got {share}")


def check_pairs(what: str, pairs: tuple[tuple[float, ...], ...]) -> None:
    """Refuse what are no pairs of moments, the first before the second.

    Raises:
        InvalidRequest: One of them is none.
    """
    for pair in pairs:
        if len(pair) != 2 or pair[0] >= pair[1]:
            raise InvalidRequest(f"the scenario's {what} are pairs, from and to, in seconds: [[60, 120]], got {pair}")


def drawn(seconds: float, spread: float, chance: random.Random) -> float:
    """Return a number of seconds that differs from another one by at most a share of it."""
    return seconds * (1 + spread * (2 * chance.random() - 1)) if spread else seconds


def within(pairs: tuple[tuple[float, ...], ...], seconds: float) -> bool:
    """Whether a moment lies in one of these pairs."""
    return any(begin <= seconds < end for begin, end in pairs)
