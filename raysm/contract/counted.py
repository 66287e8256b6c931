"""A number with its noun: ``1 row``, ``3,000 rows``."""

__all__ = ["counted"]


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which takes an s unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
