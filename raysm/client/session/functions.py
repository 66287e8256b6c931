"""The functions of a session: ``session.run``, ``submit`` and ``map``.

What flows in are functions with their arguments, pickled here with the user's own modules; what flows out are values,
futures, and iterators over results.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

from raysm.client.session.arguments import check_whole
from raysm.client.session.calls import Call
from raysm.client.session.connected import ConnectedSession
from raysm.client.session.mapping import MapOptions, Mapped
from raysm.client.source.function import Function, pickled_call
from raysm.contract.session import CALL, CELL, CallRequest
from raysm.errors import InvalidRequest

__all__ = ["SessionFunctions"]

P = ParamSpec("P")
R = TypeVar("R")

FOLLOWED = (CALL, CELL)
"""Kinds of calls that are worth coming back to."""


class SessionFunctions(ConnectedSession):
    """A session that calls functions, each in a process of its own."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Call[R]":
        """Have ``fn(*args, **kwargs)`` called on the head, in a process of its own that has joined Ray; do not wait.

        Returns:
            A future, with ``result()``, ``cancel()`` and ``logs()``.

        Raises:
            InvalidRequest: It does not take these arguments, something cannot be pickled (the message says what), or
                the session runs another Python; or another Ray, and something is an object of Ray's.
        """
        function = Function(fn, *args, **kwargs)
        opened = self._opened
        opened.check_python(f"the function {function.title()}")
        opened.check_ray(function.fn, function.args, function.kwargs)
        request = CallRequest(kind=CALL, name=function.title(), python=opened.pickles)
        return opened.call(request, function.pickled())

    def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do what ``submit`` does, print here what it prints there, and return its value; Ctrl-C interrupts it.

        Raises:
            Exception: What the function raised, with the remote traceback among its notes.
        """
        call = self.submit(fn, *args, **kwargs)
        call.show()
        return call.result()

    def map(
        self,
        fn: Callable[[Any], R],
        items: Iterable[Any],
        *,
        ordered: bool = True,
        retries: int = 0,
        return_exceptions: bool = False,
        num_cpus: float = 1.0,
        num_gpus: float = 0.0,
    ) -> Iterator[R]:
        """Yield ``fn(item)`` for each of the items, which run on all instances.

        Items are taken while there is room, so that any number of them fits into memory; whoever takes no more results
        ends what is under way.

        Args:
            fn: The function.
            items: Any number.
            ordered: Whether results come in the order of the items; else as they are finished.
            retries: How often an item is tried again whose function raised. One whose process died is tried three times
                anyhow, and those that shared its process with it.
            return_exceptions: Whether an exception is a result like any other; else the first one is raised.
            num_cpus: CPUs that each process takes.
            num_gpus: GPUs that each process takes.

        Raises:
            InvalidRequest: No instance has room for one process, or an option is out of its range.
            Exception: What the function raised; a note says with which item.
        """
        options = MapOptions(
            ordered=ordered,
            retries=retries,
            return_exceptions=return_exceptions,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
        )
        opened = self._opened
        name = Function(fn, None).title()
        if not isinstance(items, Iterable):
            raise InvalidRequest(f"map: items must be what a for loop takes, got {items!r}; [{items!r}] is one item")
        opened.check_python(f"the function {name}")
        opened.check_ray(fn, (), {})
        # Once for all batches, under its digest: each of them sends only its items.
        pickled = pickled_call(fn, (), {})
        digest = hashlib.sha256(pickled).hexdigest()
        # Before the function is sent: where no process fits, nothing has to travel.
        slots = opened.slots(options)
        opened.send_function(digest, pickled)

        def submit(first: int, items: bytes) -> Call[Any]:
            return opened.call(options.request(name, opened.pickles, digest, first), items)

        # Twice as many as run, so that none waits for a request to arrive.
        mapped = Mapped(items, options, 2 * slots + 1, submit, name=name, line=opened.line, pickled=opened.pickled_item)
        return mapped.results()

    def calls(self, limit: int = 20) -> "list[Call[Any]]":
        """Return the latest calls and cells of all clients, the latest first, also of a client that has died.

        Args:
            limit: At most so many.

        Raises:
            InvalidRequest: ``limit`` is no whole number above 0.
        """
        # Of 0 the slice below would be all of them.
        check_whole("calls: limit", limit, least=1)
        # Not batches, of which a map has thousands, nor what only moves values.
        calls = [status for status in self._opened.statuses() if status.kind in FOLLOWED]
        return [self._opened.follow(status) for status in reversed(calls[-limit:])]
