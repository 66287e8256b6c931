"""Functions and namespaces of a session: run, submit, map, exec, push and pull."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from raysm.client.session.arguments import check_instance, check_text, check_whole
from raysm.client.session.calls import Call, CellResult
from raysm.client.session.connected import ConnectedSession
from raysm.client.session.futures import gather
from raysm.client.session.mapping import MapOptions, Mapped
from raysm.client.source.function import Function, parcel_of_call, pickled_call
from raysm.contract.parcels import size_of
from raysm.contract.scattered import Scattered
from raysm.contract.session import CALL, CELL, DONE, PULL, PUSH, SCATTER, CallRequest
from raysm.errors import InvalidRequest

__all__ = ["SessionFunctions", "SessionNamespace"]

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
        return opened.call(request, parcel_of_call(function.fn, function.args, function.kwargs))

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
        fn: Callable[..., R],
        items: Iterable[Any],
        *more: Iterable[Any],
        ordered: bool = True,
        retries: int = 0,
        return_exceptions: bool = False,
        num_cpus: float = 1.0,
        num_gpus: float = 0.0,
    ) -> Iterator[R]:
        """Yield ``fn(item)`` for each of the items, which run on all instances; of several, ``fn(item, other, …)``.

        Items are taken while there is room, so that any number of them fits into memory; whoever takes no more results
        ends what is under way.

        Args:
            fn: The function.
            items: Any number.
            more: Further arguments, one of each for each item; the shortest ends the map.
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
        name = Function(fn, None, *([None] * len(more))).title()
        for each in (items, *more):
            if not isinstance(each, Iterable):
                raise InvalidRequest(f"map: items must be what a for loop takes, got {each!r}; [{each!r}] is one item")
        every = zip(items, *more, strict=False) if more else items
        opened.check_python(f"the function {name}")
        opened.check_ray(fn, (), {})
        # Once for all batches, under its digest: each of them sends only its items.
        pickled = pickled_call(fn, (), {})
        digest = hashlib.sha256(pickled).hexdigest()
        # Before the function is sent: where no process fits, nothing has to travel.
        slots = opened.slots(options)
        opened.send_function(digest, pickled)

        def submit(first: int, items: bytes) -> Call[Any]:
            return opened.call(options.request(name, opened.pickles, digest, first, bool(more)), [items])

        # Twice as many as run, so that none waits for a request to arrive.
        mapped = Mapped(every, options, 2 * slots + 1, submit, name=name, line=opened.line, pickled=opened.pickled_item)
        return mapped.results()

    def scatter(self, value: Any) -> Scattered:
        """Send a value once, into memory that the processes of all instances share; return what stands for it.

        In the arguments of ``run``, ``submit`` and ``push``, and in what a mapped function carries, it is the value
        itself. Its arrays can only be read. It stays until the session ends.

        Raises:
            InvalidRequest: It cannot be pickled, or the session runs another Python.
        """
        opened = self._opened
        opened.check_python("what is scattered")
        opened.check_ray(list, (value,), {})
        parcel = parcel_of_call(list, (value,), {}, what="what is scattered")
        request = CallRequest(kind=SCATTER, name="scatter", python=opened.pickles)
        return Scattered(opened.call(request, parcel).result(), size_of(parcel))

    @staticmethod
    def gather(calls: Any, *, return_exceptions: bool = False) -> Any:
        """Return the values of calls, in a list or in a dictionary; see ``raysm.gather``."""
        return gather(calls, return_exceptions=return_exceptions)

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


class SessionNamespace(ConnectedSession):
    """A session that runs source in namespaces that stay."""

    def exec(self, source: str, *, args: Sequence[str] = (), filename: str = "", on: str | None = None) -> CellResult:
        """Run a cell in a namespace that stays, and show here what it prints and displays; Ctrl-C interrupts it.

        Args:
            source: As in a notebook: Python, magics such as ``%timeit``, ``!`` commands, ``name?``, ``await``.
            args: ``sys.argv[1:]``, where it is a file.
            filename: What tracebacks call it.
            on: The instance, ``algo-2``, each of which has a namespace of its own; None is the head.

        Returns:
            Its ``text``, its ``outputs`` with pictures and HTML, and as ``result`` what the last line shows.

        Raises:
            Exception: What it raised, with the remote traceback among its notes.
        """
        # Source, and no pickle: so this works from another Python than the session's, too.
        call = self.cell(source, args=args, filename=filename, on=on)
        call.show()
        return call.result()

    def cell(
        self, source: str, *, args: Sequence[str] = (), filename: str = "", on: str | None = None
    ) -> "Call[CellResult]":
        """Do what ``exec`` does, but do not wait, and print nothing.

        Raises:
            InvalidRequest: The source is no text, or ``args`` is one: its letters would be the arguments.
        """
        # An empty cell is a cell, as in a notebook; a function that was meant for run() is none.
        if not isinstance(source, str):
            raise InvalidRequest(f"exec: source must be a text of Python, got {source!r}; a function is for run(…)")
        if isinstance(args, str):
            raise InvalidRequest(f"exec: args is a list of arguments, got {args!r}; args={args.split()!r}, say")
        check_instance("exec", on)
        request = CallRequest(
            kind=CELL, name=filename or "a cell", args=tuple(map(str, args)), filename=filename, host=on or ""
        )
        return self._opened.call(request, [source.encode()])

    def push(self, on: str | None = None, /, **values: Any) -> None:
        """Put values into the namespace, by their names.

        Args:
            on: The instance; None is the head. By its place alone, so that a value may have any name.
            values: Each under the name that it gets.

        Raises:
            InvalidRequest: One cannot be pickled (the message says which, by its path), or there is none.
        """
        check_instance("push", on)
        if not values:
            raise InvalidRequest("push: there is no value to push; push(model=model), say")
        # Before anything is pickled: another Python reads bytecode wrongly, and not always with an error.
        self._opened.check_python("what is pushed")
        self._opened.check_ray(dict, (), values)
        pickled = parcel_of_call(dict, (), values, what="what is pushed")
        name = f"push of {', '.join(values)}"
        request = CallRequest(kind=PUSH, name=name, python=self._opened.pickles, host=on or "")
        self._opened.call(request, pickled).result()

    def pull(self, *names: str, on: str | None = None) -> Any:
        """Return a value of the namespace; of several names, a tuple.

        Args:
            names: In the namespace.
            on: The instance; None is the head.

        Raises:
            InvalidRequest: No name is given, or one is none.
            NameError: There is none of that name.
        """
        check_instance("pull", on)
        if not names:
            raise InvalidRequest("pull: there is no name of a value to pull; pull('model'), say")
        for each in names:
            check_text("pull: a name", each, "pull('model')")
        self._opened.check_python("what is pulled")
        name = f"pull of {', '.join(names)}"
        request = CallRequest(kind=PULL, name=name, python=self._opened.pickles, host=on or "")
        # All in one request, so that they are of one moment: between two, another client's cell may run.
        values: Mapping[str, Any] = self._opened.call(request, [json.dumps(names).encode()]).result()
        return values[names[0]] if len(names) == 1 else tuple(values[name] for name in names)

    def complete(self, text: str) -> list[str]:
        """Return how ``text``, a name of the namespace or ``name.attribute``, may go on."""
        # Empty is a text, too: Tab at the begin of a line.
        if not isinstance(text, str):
            raise InvalidRequest(f"complete: a text is completed, got {text!r}; complete('mod'), say")
        return [str(match) for match in self._opened.ask("POST", "/complete", json={"text": text})["matches"]]

    def interrupt(self) -> int:
        """Interrupt the cells that run or wait, of all clients; return how many."""
        cells = [status for status in self._opened.statuses() if status.kind == CELL and status.state != DONE]
        # The last first: one that waits would begin as soon as the one before it is interrupted.
        for status in reversed(cells):
            self._opened.ask("POST", f"/calls/{status.id}/interrupt")
        return len(cells)
