"""The namespaces of a session, one on each instance: ``session.exec``, ``push`` and ``pull``.

What flows in are source, which any Python reads, and pickled values by their names; what flows out are what the last
line of a cell shows, and values.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.client.session.arguments import check_instance, check_text
from raysm.client.session.calls import Call
from raysm.client.session.connected import ConnectedSession
from raysm.client.session.outcomes import Shown
from raysm.client.source.function import pickled_call
from raysm.contract.session import CELL, DONE, PULL, PUSH, CallRequest
from raysm.errors import InvalidRequest

__all__ = ["SessionNamespace"]


class SessionNamespace(ConnectedSession):
    """A session that runs source in namespaces that stay."""

    def exec(self, source: str, *, args: Sequence[str] = (), filename: str = "", on: str | None = None) -> Shown | None:
        """Run source in a namespace that stays, and print here what it prints there; Ctrl-C interrupts it.

        Args:
            source: Python, of whatever version: it is read there.
            args: ``sys.argv[1:]``, where it is a file.
            filename: What tracebacks call it.
            on: The instance, ``algo-2``, each of which has a namespace of its own; None is the head.

        Returns:
            What its last line shows, where that is an expression with a value; None else.

        Raises:
            Exception: What it raised, with the remote traceback among its notes.
        """
        # Source, and no pickle: so this works from another Python than the session's, too.
        call = self.cell(source, args=args, filename=filename, on=on)
        call.show()
        return call.result()

    def cell(
        self, source: str, *, args: Sequence[str] = (), filename: str = "", on: str | None = None
    ) -> "Call[Shown | None]":
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
        return self._opened.call(request, source.encode())

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
        pickled = pickled_call(dict, (), values, what="what is pushed")
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
        values: Mapping[str, Any] = self._opened.call(request, json.dumps(names).encode()).result()
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
