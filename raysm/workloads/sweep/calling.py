"""The call of a trial's function, in whichever of its workers."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["EndedEarly", "call", "end_training"]


class EndedEarly(SystemExit):
    """Raised in a report of a trial that is not to go on: it passes through the user's code as an exit with 0 does."""


def call(function: Callable[..., Any], params: Mapping[str, Any], *, takes_config: bool) -> Any:
    """Call a function with parameters: each an argument of its own, or all of them as one mapping."""
    # A copy: a function that changes its config must not change what the journal has of the trial.
    try:
        return function(dict(params)) if takes_config else function(**params)
    except EndedEarly:
        raise
    except SystemExit as error:
        # sys.exit(0), with which many a main() ends, is an end like any other.
        if error.code not in (None, 0):
            raise
        return None


def end_training() -> None:
    """Forget the session of ``raysm.training``, where the function began one: the next trial begins its own."""
    # Looked up, not imported: torch would be, for functions that never train.
    session = sys.modules.get("raysm.workloads.training.loop.session")
    if session is not None:
        session.end()
