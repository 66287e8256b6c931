"""What runs in a process of Ray's for a session: a call, a batch of items, a command.

What flows in are pickles, read here and nowhere else in the session; what flows out are encoded outcomes.
"""

import contextlib
import functools
import os
import pickle
import subprocess
import time
from collections.abc import Callable
from typing import Any

from raysm.contract.session import Outcome
from raysm.workloads.session.outcomes import outcome_of
from raysm.workloads.session.relay import Place, SocketLine, Standing

__all__ = ["CallProcess", "batch", "shell"]

KEPT_OUTPUT = 1 << 20
"""Bytes of a command's output, the last ones."""


class CallProcess:
    """A process that does calls, one after the other; an actor of Ray's."""

    def __init__(self, place: Place) -> None:
        """Connect with the session."""
        self._standing = Standing(place.folder, SocketLine(place.socket).send)

    def pid(self) -> int:
        """Return by which number it is signalled."""
        return os.getpid()

    def call(self, id: str, pickled: bytes, name: str, host: str) -> tuple[bytes, bool, int]:
        """Call a pickled function.

        Returns:
            Its outcome, encoded; whether that is a failure; how many messages with output were sent before.
        """

        def work() -> Any:
            # Within the outcome: what cannot be read here is the call's failure, with its traceback.
            function, args, kwargs = pickle.loads(pickled)
            return function(*args, **kwargs)

        with self._standing.call(id) as printed:
            outcome = outcome_of(work, name=name, host=host)
        return outcome.encode(), outcome.error is not None, printed.messages


def batch(function: bytes, items: bytes, first: int, retries: int, return_exceptions: bool) -> tuple[bytes, bool]:
    """Call a pickled function with each of the items; return the seconds that took, and their outcomes, as one.

    Args:
        function: The pickled ``(function, args, kwargs)``; an item comes before its arguments.
        items: A pickled list of pickled items: whoever cuts a batch in two need not be able to read them.
        first: The number of its first item among all.
        retries: How often an item is tried again whose function raised.
        return_exceptions: Whether items behind one that failed are worked on, too.
    """
    began_s = time.perf_counter()
    fn, args, kwargs = pickle.loads(function)
    outcomes: list[Outcome] = []
    # Each is read when its turn comes: an item that cannot be read fails alone.
    for number, item in enumerate(pickle.loads(items), start=first):
        work = functools.partial(_apply, fn, item, args, kwargs)
        outcomes.append(_item(work, number, retries))
        if outcomes[-1].error is not None and not return_exceptions:
            break
    # Of plain bytes: whoever passes them on need not be able to read the values.
    encoded = [outcome.encode() for outcome in outcomes]
    return Outcome(pickled=pickle.dumps((time.perf_counter() - began_s, encoded))).encode(), False


def _apply(fn: Callable[..., Any], item: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return fn(pickle.loads(item), *args, **kwargs)


def _item(work: Callable[[], Any], number: int, retries: int) -> Outcome:
    outcome = outcome_of(work, name=f"item {number}", item=number)
    for _ in range(retries):
        # Who interrupts wants no further attempt.
        if outcome.error is None or outcome.error.cancelled:
            break
        outcome = outcome_of(work, name=f"item {number}", item=number)
    return outcome


def shell(command: str, folder: str) -> tuple[bytes, bool]:
    """Run a command by the shell; return its exit code and the end of its output."""

    def work() -> dict[str, Any]:
        with contextlib.chdir(folder or "."):
            done = subprocess.run(
                command,
                shell=True,
                # Nobody sits there: a command that asks would wait for ever.
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # In one stream, in the order in which they came up: of two nobody could tell it any more.
                stderr=subprocess.STDOUT,
                check=False,
            )
        return {"exit_code": done.returncode, "output": done.stdout[-KEPT_OUTPUT:].decode(errors="replace")}

    outcome = outcome_of(work, name=command)
    return outcome.encode(), outcome.error is not None
