"""Run cells in the namespaces of a session, and move values in and out of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.core.client.source.function import parcel_of_call
from raysm.errors import InvalidRequest
from raysm.features.session.client.calls import Call
from raysm.features.session.client.cell_result import CellResult
from raysm.features.session.client.checks import check_instance, check_string
from raysm.features.session.client.connection import SessionConnection
from raysm.features.session.protocol import CELL, DONE, PULL, PUSH, CallRequest


class Namespaces:
    """The namespaces of a session, one on each instance; ``Session`` describes the methods."""

    def __init__(self, connection: SessionConnection) -> None:
        self._connection = connection

    def start_cell(
        self, source: str, args: Sequence[str], filename: str, host: str | None
    ) -> Call[CellResult]:
        # An empty cell is allowed, as in a notebook. A string of arguments would be split into its
        # letters.
        if not isinstance(source, str):
            raise InvalidRequest(
                f"exec: source must be a string of Python, got {source!r}; a function is for run(…)"
            )
        if isinstance(args, str):
            raise InvalidRequest(
                f"exec: args is a list of arguments, got {args!r}; args={args.split()!r}, say"
            )
        check_instance("exec", host)
        # Sent as source, not as a pickle, so the client may run another Python than the session.
        request = CallRequest(
            kind=CELL,
            name=filename or "a cell",
            args=tuple(map(str, args)),
            filename=filename,
            host=host or "",
        )
        return self._connection.send_call(request, [source.encode()])

    def push(self, values: dict[str, Any], host: str | None) -> None:
        check_instance("push", host)
        if host is None and str(values.get("on")).startswith("algo-"):
            raise InvalidRequest(
                f"push: an instance is the first argument: push({values['on']!r}, model=model)"
            )
        if not values:
            raise InvalidRequest("push: there is no value to push; push(model=model), say")
        # Checked before pickling, because another Python misreads bytecode, not always with an
        # error.
        self._connection.check_python("what is pushed")
        self._connection.check_ray("what is pushed", dict, values)
        pickled = parcel_of_call(dict, (), values, what="what is pushed")
        request = CallRequest(
            kind=PUSH,
            name=f"push of {', '.join(values)}",
            python=self._connection.pickle_version,
            host=host or "",
        )
        self._connection.send_call(request, pickled).result()

    def pull(self, names: Sequence[str], host: str | None) -> Any:
        check_instance("pull", host)
        if not names:
            raise InvalidRequest("pull: there is no name of a value to pull; pull('model'), say")
        for each in names:
            check_string("pull: a name", each, "pull('model')")
        self._connection.check_python("what is pulled")
        request = CallRequest(
            kind=PULL,
            name=f"pull of {', '.join(names)}",
            python=self._connection.pickle_version,
            host=host or "",
        )
        # One request for all names, because another client's cell could run between two requests.
        call = self._connection.send_call(request, [json.dumps(names).encode()])
        values: Mapping[str, Any] = call.result()
        return values[names[0]] if len(names) == 1 else tuple(values[name] for name in names)

    def complete(self, text: str) -> list[str]:
        # An empty string is allowed: Tab at the start of a line.
        if not isinstance(text, str):
            raise InvalidRequest(
                f"complete: a string is completed, got {text!r}; complete('mod'), say"
            )
        answer = self._connection.ask("POST", "/complete", json={"text": text})
        return [str(match) for match in answer["matches"]]

    def interrupt(self) -> int:
        cells = [
            status
            for status in self._connection.fetch_statuses()
            if status.kind == CELL and status.state != DONE
        ]
        # The last cell first: a waiting cell would start as soon as the cell before it is
        # interrupted.
        for status in reversed(cells):
            self._connection.ask("POST", f"/calls/{status.id}/interrupt")
        return len(cells)
