"""The session whose ``with`` block this program is in.

Inside the block, functions decorated with ``raysm.remote`` are called in the session instead of
being sent as jobs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Shared by all threads, so that threads started inside the block use its session, too.
_sessions: list[Any] = []


def current_session() -> Any:
    return _sessions[-1] if _sessions else None


@contextmanager
def make_current(session: Any) -> Iterator[None]:
    _sessions.append(session)
    try:
        yield
    finally:
        # Not pop(), because blocks in two threads may end in any order.
        _sessions.remove(session)
