"""The verbs of ``raysm grid`` about a grid that there is: what flows in is its name, what flows out is printed.

A grid's file is all that they need. Whatever is wished of it, the process that runs it finds there at its next step.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.printing import print_answer
from raysm.contract.store import put
from raysm.errors import InvalidRequest
from raysm.grid.attempt import TaskState
from raysm.grid.records import TaskRecord
from raysm.grid.snapshot import snapshot
from raysm.grid.store import Store, folder, path_of
from raysm.views.grid.report import report_page
from raysm.views.grid.screen import screen_lines

__all__ = ["VERBS", "opened"]

# Those first that somebody has to look at.
ORDER = (
    TaskState.FAILED,
    TaskState.IMPOSSIBLE,
    TaskState.STOPPED,
    TaskState.PLACED,
    TaskState.WAITING,
    TaskState.DONE,
    TaskState.SKIPPED,
)

AGAIN = (TaskState.FAILED, TaskState.IMPOSSIBLE, TaskState.STOPPED)
"""What ``retry`` takes up again; what is done stays done."""


@contextlib.contextmanager
def opened(name: str | None) -> Iterator[Store]:
    """Open the store of a grid.

    Args:
        name: None is the only one that there is.

    Raises:
        InvalidRequest: There is none of this name, or no name is given and there are several.
    """
    path = _only() if name is None else path_of(name)
    if not path.exists():
        known = ", ".join(_names()) or "none"
        raise InvalidRequest(f"there is no grid {path.stem!r} in {path.parent}; there are {known}")
    store = Store(path)
    try:
        yield store
    finally:
        # Not Store.close: that lets go of a lease, and this process has none.
        store.database.close()


def _names() -> list[str]:
    return sorted(path.stem for path in folder().glob("*.db"))


def _only() -> Path:
    names = _names()
    if len(names) != 1:
        raise InvalidRequest(f"name the grid; there are {', '.join(names) or 'none'}")
    return path_of(names[0])


def _status(arguments: Arguments, console: Console) -> None:
    with opened(arguments.grid) as store:
        view = snapshot(store, time.time())
    print_answer(view, screen_lines, console, as_json=arguments.json)


def _rows(arguments: Arguments, console: Console) -> None:
    if arguments.state is not None and arguments.state not in list(TaskState):
        raise InvalidRequest(f"--state is one of {', '.join(TaskState)}, got {arguments.state!r}")
    with opened(arguments.grid) as store:
        if arguments.json:
            print(json.dumps([_as_json(store, each) for each in store.tasks(arguments.state)], indent=1))
            return
        # As each is read: of 100,000 rows a reader sees the first ones at once.
        for each in store.tasks(arguments.state):
            reason = f"  {each.reason}" if each.reason else ""
            console.print(Text(f"{each.state:<10} {each.attempts:>2}  {each.task.key}{reason}"), soft_wrap=True)


def _as_json(store: Store, each: TaskRecord) -> dict[str, object]:
    attempts = store.attempts(each.task.key)
    last = attempts[-1] if attempts else None
    return {
        "key": each.task.key,
        "state": str(each.state),
        "reason": each.reason,
        "attempts": len(attempts),
        "job": None if last is None else last.name,
        "region": None if last is None else last.region,
        "instance_type": None if last is None else last.instance_type,
        "usd": None if last is None else last.usd,
        "parameters": dict(each.task.parameters),
    }


def _report(arguments: Arguments, console: Console) -> None:
    with opened(arguments.grid) as store:
        path = arguments.html or Path(f"{arguments.grid}.html")
        tasks = chain.from_iterable(store.tasks(state) for state in ORDER)
        put(path, report_page(snapshot(store, time.time()), tasks))
    console.print(Text(str(path)), soft_wrap=True)


def _stop(arguments: Arguments, console: Console) -> None:
    with opened(arguments.grid) as store:
        state, still = store.grid().state, store.open_count()
        if state == "closed":
            console.print(Text(f"{arguments.grid} is over; nothing is to be stopped"), soft_wrap=True)
            return
        store.change_grid("stopping", time.time(), why="the user stops it", fenced=False)
    text = f"{arguments.grid} stops: no further job is sent, and {still:,} open ones are stopped by whoever runs it"
    console.print(Text(text), soft_wrap=True)


def _retry(arguments: Arguments, console: Console) -> None:
    with opened(arguments.grid) as store:
        number = store.again(AGAIN, time.time())
    console.print(Text(f"{number:,} rows of {arguments.grid} wait to be tried again"), soft_wrap=True)


VERBS: Mapping[str, Callable[[Arguments, Console], None]] = {
    "status": _status,
    "rows": _rows,
    "report": _report,
    "stop": _stop,
    "retry": _retry,
}
"""What carries out each of them."""
