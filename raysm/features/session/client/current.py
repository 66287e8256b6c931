"""The session whose ``with`` block this program is in.

Inside the block, functions decorated with ``raysm.remote`` are called in the session instead of
being sent as jobs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Shared by all threads, so that threads started inside the block use its session, too.
_entered: list[Any] = []


def current_session() -> Any:
    return _entered[-1] if _entered else None


@contextmanager
def inside(session: Any) -> Iterator[None]:
    _entered.append(session)
    try:
        yield
    finally:
        # Not pop(), because blocks in two threads may end in any order.
        _entered.remove(session)
