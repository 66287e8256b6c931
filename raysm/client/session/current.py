"""The session inside of which this program is just now: ``with raysm.Session(…)``.

What is decorated with ``raysm.remote`` is then called there, and not sent as a job of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

__all__ = ["Submits", "current_session", "inside"]


class Submits(Protocol):
    """A session, as far as a decorated function has to know it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have a function called there."""


# Of the process, not of the thread: those that a program starts inside of the block are inside, too.
_entered: list[Submits] = []


def current_session() -> Submits | None:
    """Return the session whose block was entered last; None outside of any."""
    # The innermost, where blocks stand within each other.
    return _entered[-1] if _entered else None


@contextmanager
def inside(session: Submits) -> Iterator[None]:
    """Be inside of ``session``."""
    _entered.append(session)
    try:
        yield
    finally:
        # Not pop(): blocks of two threads may end in any order.
        _entered.remove(session)
