"""The calls of a session's handle."""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, ParamSpec, TypeVar

from raysm.core.client.source.function import (
    call_with_source,
    check_function,
    parcel_of_call,
    title_of,
)
from raysm.core.protocol.parcels import Scattered, size_of
from raysm.errors import InvalidRequest
from raysm.features.session.client.arguments import (
    check_instance,
    check_number,
    check_text,
    check_whole,
)
from raysm.features.session.client.calls import Call, CellResult, MapResults, gather
from raysm.features.session.client.connected import ConnectedSession
from raysm.features.session.client.mapping import Mapped
from raysm.features.session.protocol import (
    BATCH,
    CALL,
    CELL,
    DONE,
    FUNCTION,
    PULL,
    PUSH,
    SCATTER,
    CallRequest,
)

P = ParamSpec("P")
R = TypeVar("R")

FOLLOWED = (CALL, CELL)
"""Kinds of calls that ``calls()`` lists."""


class SessionFunctions(ConnectedSession):
    """The methods of a session that call functions, run cells and access its namespaces."""

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Call[R]":
        """Start ``fn(*args, **kwargs)`` on the head and return a future.

        The function runs in a process of its own, which has joined Ray.

        Returns:
            A future with ``result()``, ``cancel()`` and ``logs()``.

        Raises:
            InvalidRequest: The function does not accept these arguments; a value cannot be pickled;
                the session runs another Python; or it runs another Ray and an argument contains an
                object of Ray.
        """
        check_function(fn, args, kwargs)
        name, opened = title_of(fn), self._opened
        opened.check_python(f"the function {name}")
        opened.check_ray(f"a call of {name}", fn, args, kwargs)
        request = CallRequest(kind=CALL, name=name, python=opened.pickles)
        return opened.call(request, parcel_of_call(fn, args, kwargs))

    def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``fn(*args, **kwargs)`` as ``submit`` does, print its output here, and return its value.

        Ctrl-C interrupts the call.

        Raises:
            Exception: The exception of the function, with the remote traceback as a note.
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
    ) -> MapResults[R]:
        """Call ``fn(item)`` for each item on all instances; return an iterator over the results.

        With further iterables the call is ``fn(item, other, …)``. There may be any number of items,
        because the map takes items only as fast as the caller takes results. Closing the iterator
        interrupts the running items. ``raysm.progress`` draws a bar while it fetches all results.

        The processes have a working folder of their own, without the files of ``put``: pass data as
        arguments, or send a large value once with ``scatter``.

        Args:
            fn: The function.
            items: The items.
            more: Iterables with further arguments, one value for each item. The shortest iterable
                ends the map.
            ordered: Yield results in the order of the items; otherwise as they finish.
            retries: How often to retry an item whose function raised. If a process dies, its items
                run again one by one, each up to three times, whatever ``retries`` is.
            return_exceptions: Yield exceptions as results; otherwise the first one is raised.
            num_cpus: CPUs for each process.
            num_gpus: GPUs for each process.

        Raises:
            InvalidRequest: No instance has room for one process, or an option is out of range.
            Exception: The exception of the function; a note names the item.
        """
        check_whole("map: retries", retries)
        for what, value in (("num_cpus", num_cpus), ("num_gpus", num_gpus)):
            check_number(f"map: {what}", value, example=f"{what}=1")
        opened = self._opened
        check_function(fn, (None,) * (1 + len(more)), {})
        name = title_of(fn)
        for each in (items, *more):
            if not isinstance(each, Iterable):
                raise InvalidRequest(
                    f"map: items must be what a for loop takes, got {each!r}; [{each!r}] is one item"
                )
        opened.check_python(f"the function {name}")
        opened.check_ray(f"the function {name}", fn)
        # The function is sent once, under its digest. Batches send only their items.
        pickled = call_with_source(fn, (), {})
        digest = hashlib.sha256(pickled).hexdigest()
        # Raises if no process fits, before the function is sent.
        slots = opened.ask("GET", "/slots", params={"num_cpus": num_cpus, "num_gpus": num_gpus})[
            "slots"
        ]
        function = CallRequest(kind=FUNCTION, name=name, python=opened.pickles, function=digest)
        opened.call(function, [pickled]).result()
        how: dict[str, Any] = {
            "unpack": bool(more),
            "retries": retries,
            "return_exceptions": return_exceptions,
        }
        request = dataclasses.replace(
            function, kind=BATCH, num_cpus=num_cpus, num_gpus=num_gpus, **how
        )
        sized = [len(each) for each in (items, *more) if isinstance(each, Sized)]
        mapped = Mapped(
            zip(items, *more, strict=False) if more else items,
            lambda first, batch: opened.call(dataclasses.replace(request, first=first), [batch]),
            opened.pickled_item,
            # Twice as many batches as run at once, so that no process waits for the next request.
            window=2 * slots + 1,
            name=name,
            line=opened.line,
            ordered=ordered,
            return_exceptions=return_exceptions,
        )
        return MapResults(mapped.results(), min(sized) if len(sized) == 1 + len(more) else None)

    def scatter(self, value: Any) -> Scattered:
        """Send a value once into Ray's shared memory, and return a reference to it.

        Pass the reference to ``run``, ``submit`` or ``push``, or bind it to a mapped function with
        ``functools.partial``. The function then gets the value itself, with read-only arrays. The
        value stays until the session ends.

        Raises:
            InvalidRequest: The value cannot be pickled, or the session runs another Python.
        """
        opened = self._opened
        opened.check_python("what is scattered")
        opened.check_ray("what is scattered", list, value)
        parcel = parcel_of_call(list, (value,), {}, what="what is scattered")
        request = CallRequest(kind=SCATTER, name="scatter", python=opened.pickles)
        return Scattered(opened.call(request, parcel).result(), size_of(parcel))

    @staticmethod
    def gather(calls: Any, *, return_exceptions: bool = False) -> Any:
        """Return the values of a list or dictionary of calls; see ``raysm.gather``."""
        return gather(calls, return_exceptions=return_exceptions)

    def calls(self, limit: int = 20) -> "list[Call[Any]]":
        """Return the latest calls and cells of all clients, including clients that have died; the latest first.

        Args:
            limit: Maximum number of calls.

        Raises:
            InvalidRequest: ``limit`` is not a whole number above 0.
        """
        # With 0 the slice below would contain all calls.
        check_whole("calls: limit", limit, least=1)
        # Batches are left out, because a map has thousands, and so are pushes and pulls.
        calls = [status for status in self._opened.statuses() if status.kind in FOLLOWED]
        return [self._opened.follow(status) for status in reversed(calls[-limit:])]

    # Cells and namespaces

    def exec(
        self, source: str, *, args: Sequence[str] = (), filename: str = "", on: str | None = None
    ) -> CellResult:
        """Run a cell in a persistent namespace, and show its output here; Ctrl-C interrupts it.

        Args:
            source: Source as in a notebook: Python, magics such as ``%timeit``, ``!`` commands,
                ``name?``, ``await``.
            args: ``sys.argv[1:]`` if the source is a file's.
            filename: File name for tracebacks.
            on: The instance, such as ``algo-2``; None is the head. Each instance has a namespace of
                its own.

        Returns:
            All output as ``text``, and as ``outputs`` with pictures and HTML; ``result`` is the
            value of the last line.

        Raises:
            Exception: The exception of the cell, with the remote traceback as a note.
        """
        # The cell travels as source, not as a pickle, so the client may run another Python than the
        # session.
        call = self.cell(source, args=args, filename=filename, on=on)
        call.show()
        return call.result()

    def cell(
        self, source: str, *, args: Sequence[str] = (), filename: str = "", on: str | None = None
    ) -> "Call[CellResult]":
        """Start a cell as ``exec`` does, and return its future without waiting or printing.

        Raises:
            InvalidRequest: The source is not a string, or ``args`` is one.
        """
        # An empty cell is allowed, as in a notebook. A string of arguments would be split into its
        # letters.
        if not isinstance(source, str):
            raise InvalidRequest(
                f"exec: source must be a text of Python, got {source!r}; a function is for run(…)"
            )
        if isinstance(args, str):
            raise InvalidRequest(
                f"exec: args is a list of arguments, got {args!r}; args={args.split()!r}, say"
            )
        check_instance("exec", on)
        request = CallRequest(
            kind=CELL,
            name=filename or "a cell",
            args=tuple(map(str, args)),
            filename=filename,
            host=on or "",
        )
        return self._opened.call(request, [source.encode()])

    def push(self, on: str | None = None, /, **values: Any) -> None:
        """Store values in the namespace by name.

        Args:
            on: The instance; None is the head. Positional-only, so that a value may be named
                ``on``.
            values: The values by name.

        Raises:
            InvalidRequest: There is no value, one cannot be pickled, or the value ``on`` is the
                name of an instance.
        """
        check_instance("push", on)
        if on is None and str(values.get("on")).startswith("algo-"):
            raise InvalidRequest(
                f"push: an instance is the first argument: push({values['on']!r}, model=model)"
            )
        if not values:
            raise InvalidRequest("push: there is no value to push; push(model=model), say")
        # Checked before pickling, because another Python misreads bytecode, not always with an
        # error.
        self._opened.check_python("what is pushed")
        self._opened.check_ray("what is pushed", dict, values)
        pickled = parcel_of_call(dict, (), values, what="what is pushed")
        name = f"push of {', '.join(values)}"
        request = CallRequest(kind=PUSH, name=name, python=self._opened.pickles, host=on or "")
        self._opened.call(request, pickled).result()

    def pull(self, *names: str, on: str | None = None) -> Any:
        """Return a value of the namespace, or a tuple of several.

        Args:
            names: Names in the namespace.
            on: The instance; None is the head.

        Raises:
            InvalidRequest: There is no name, or one is not a string.
            NameError: The namespace does not have such a name.
        """
        check_instance("pull", on)
        if not names:
            raise InvalidRequest("pull: there is no name of a value to pull; pull('model'), say")
        for each in names:
            check_text("pull: a name", each, "pull('model')")
        self._opened.check_python("what is pulled")
        name = f"pull of {', '.join(names)}"
        request = CallRequest(kind=PULL, name=name, python=self._opened.pickles, host=on or "")
        # One request for all names, because another client's cell could run between two requests.
        values: Mapping[str, Any] = self._opened.call(
            request, [json.dumps(names).encode()]
        ).result()
        return values[names[0]] if len(names) == 1 else tuple(values[name] for name in names)

    def complete(self, text: str) -> list[str]:
        """Return completions of ``text``, a name of the namespace or ``name.attribute``."""
        # An empty text is allowed: Tab at the start of a line.
        if not isinstance(text, str):
            raise InvalidRequest(
                f"complete: a text is completed, got {text!r}; complete('mod'), say"
            )
        return [
            str(match)
            for match in self._opened.ask("POST", "/complete", json={"text": text})["matches"]
        ]

    def interrupt(self) -> int:
        """Interrupt the running and waiting cells of all clients; return how many."""
        cells = [
            status
            for status in self._opened.statuses()
            if status.kind == CELL and status.state != DONE
        ]
        # The last cell first: a waiting cell would start as soon as the cell before it is
        # interrupted.
        for status in reversed(cells):
            self._opened.ask("POST", f"/calls/{status.id}/interrupt")
        return len(cells)
