"""``raysm.Session``: a cluster that stays, called in milliseconds from wherever its user is.

Nothing of a session lives in the handle: another process has all of it by ``raysm.Session.attach(name)``.
"""

import contextlib
import hashlib
import html
import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from raysm.client.function import Function, pickled_call, pickled_value
from raysm.client.job import Job
from raysm.client.options import SubmitOptions, check_names, default_of
from raysm.client.service import Service, connect
from raysm.client.session.calls import Call
from raysm.client.session.card import text
from raysm.client.session.current import inside
from raysm.client.session.finding import check_free, find
from raysm.client.session.mapping import MapOptions, Mapped
from raysm.client.session.opened import Opened, as_state
from raysm.client.session.outcomes import Shown
from raysm.client.session.starting import SessionLimits, Show, place_of, prepared
from raysm.client.session.wire import require_aiohttp
from raysm.client.tunnel.tunnel import Tunnel
from raysm.contract.keywords import documents_options
from raysm.contract.names import TASK_TAG
from raysm.contract.session import (
    CALL,
    CELL,
    DONE,
    PULL,
    PUSH,
    SHELL,
    CallRequest,
    SessionState,
)
from raysm.errors import NotDone, RaysmError, SessionEnded
from raysm.request import Target

__all__ = ["Session"]

P = ParamSpec("P")
R = TypeVar("R")

CLOSED_S = 10.0
"""How long ``close`` waits for the end of the job: on this machine that takes a second or two."""

FOLLOWED = (CALL, CELL)
"""Kinds of calls that are worth coming back to."""


class Session:
    """A cluster that stays up for calls, cells and maps; a context manager, at whose end it is closed.

    Attributes:
        limits: When it ends by itself.
    """

    @documents_options(SubmitOptions, default_of=default_of)
    def __init__(
        self,
        *,
        on: Target | Service | None = None,
        idle_timeout_s: float = 1800.0,
        idle_timeout_detached_s: float = 300.0,
        budget_usd: float | None = None,
        price_per_hour: float | None = None,
        max_runtime_s: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> None:
        """Describe it; ``start``, or the ``with`` block, sends its job.

        Args:
            on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
            idle_timeout_s: Seconds without a call after which it ends, while a client is attached.
            idle_timeout_detached_s: The same while none is: its laptop is closed, or its program has died.
            budget_usd: What it may cost from the start of its head; None is no limit.
            price_per_hour: What one instance costs, USD; None is what raysm's table of public prices says.
            max_runtime_s: Seconds for which its job may run, whatever happens; None is a day.
            options: As ``SubmitOptions`` says.

        Raises:
            InvalidRequest: ``raysm.submit`` takes no such option.
        """
        check_names(options)
        self.limits = SessionLimits(
            idle_timeout_s=idle_timeout_s,
            idle_timeout_detached_s=idle_timeout_detached_s,
            budget_usd=budget_usd,
            price_per_hour=price_per_hour,
            max_runtime_s=max_runtime_s,
        )
        self._options: dict[str, Any] = dict(options)
        self._name: str | None = self._options.pop("name", None)
        self._service = connect(on)
        self._open: Opened | None = None
        self._dashboard: Any = None
        self._exit = contextlib.ExitStack()

    @classmethod
    def attach(cls, name: str, on: Target | Service | None = None) -> Self:
        """Return the handle on a session that runs.

        Args:
            name: As it was named, or its job.
            on: Where it is; None is the embedded SageMaker of this machine.

        Raises:
            JobNotFound: There is none of that name; the message has the nearest ones.
            SessionEnded: It is just ending.
        """
        session = cls(on=on)
        job = find(session._service, name)
        session._name = job.tags.get(TASK_TAG, name)
        session._connect(job, lambda event: None)
        return session

    def start(self, show: Show = lambda event: None) -> Self:
        """Send its job, and wait until it takes calls.

        Args:
            show: Called with what the job says of itself meanwhile.

        Raises:
            InvalidRequest: What was asked for cannot be, or the name is taken; nothing was sent.
            JobFailed: Its job ended before it took calls.
        """
        if self._open is not None:
            return self
        require_aiohttp()
        # Whoever names none takes none away: the job's own name is the only one of its kind.
        if self._name is not None:
            check_free(self._service, self._name)
        job = prepared(self._name, self.limits, self._service, self._options).send()
        try:
            self._connect(job, show)
        except BaseException:
            # Ctrl-C too: nobody would know of it any more, and it would go on costing.
            with contextlib.suppress(RaysmError):
                job.cancel()
            raise
        return self

    def _connect(self, job: Job, show: Show) -> None:
        opened = Opened(job, self._name or job.name, place_of(job, show))
        try:
            opened.begin()
        except BaseException:
            opened.close()
            raise
        self._open = opened

    def __enter__(self) -> Self:
        self.start()
        self._exit.enter_context(inside(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()
        self.close()

    # What it is, and how

    @property
    def _here(self) -> "Opened":
        if self._open is None:
            raise SessionEnded(
                f"the session {self._name or ''} is not open: start() it, or use it as a context manager; one that "
                "runs already is found by raysm.Session.attach(name)".replace("  ", " ")
            )
        return self._open

    @property
    def name(self) -> str:
        """As it was named; else its job's name."""
        return self._here.line.session

    @property
    def job(self) -> Job:
        """The job that it is."""
        return self._here.job

    @property
    def state(self) -> SessionState:
        """How it is now."""
        return self._here.state()

    # Calls

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Call[R]":
        """Have ``fn(*args, **kwargs)`` called on the head, in a process of its own that has joined Ray; do not wait.

        Returns:
            A future, with ``result()``, ``cancel()`` and ``logs()``.

        Raises:
            InvalidRequest: It does not take these arguments, something cannot be pickled (the message says what), or
                the session runs another Python.
        """
        function = Function(fn, *args, **kwargs)
        here = self._here
        here.check_python(f"the function {function.title()}")
        request = CallRequest(kind=CALL, name=function.title(), python=here.pickles)
        return here.call(request, function.pickled())

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
            InvalidRequest: No instance has room for one process.
            Exception: What the function raised; a note says with which item.
        """
        options = MapOptions(
            ordered=ordered,
            retries=retries,
            return_exceptions=return_exceptions,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
        )
        here = self._here
        name = Function(fn, None).title()
        here.check_python(f"the function {name}")
        pickled = pickled_call(fn, (), {})
        digest = hashlib.sha256(pickled).hexdigest()
        slots = here.slots(options)
        here.send_function(digest, pickled)

        def submit(first: int, items: bytes) -> Call[Any]:
            return here.call(options.request(name, here.pickles, digest, first), items)

        # Twice as many as run, so that none waits for a request to arrive.
        mapped = Mapped(items, options, 2 * slots + 1, submit, name=name, session=self.name, pickled=pickled_value)
        return mapped.results()

    def calls(self, limit: int = 20) -> "list[Call[Any]]":
        """Return the latest calls and cells of all clients, the latest first, also of a client that has died.

        Args:
            limit: At most so many.
        """
        known = [status for status in self._here.statuses() if status.kind in FOLLOWED]
        return [self._here.follow(status) for status in reversed(known[-limit:])]

    # Cells

    def exec(self, source: str, *, args: Sequence[str] = (), filename: str = "") -> Shown | None:
        """Run source in the session's one namespace, and print here what it prints there; Ctrl-C interrupts it.

        Args:
            source: Python, of whatever version: it is read there.
            args: ``sys.argv[1:]``, where it is a file.
            filename: What tracebacks call it.

        Returns:
            What its last line shows, where that is an expression with a value; None else.

        Raises:
            Exception: What it raised, with the remote traceback among its notes.
        """
        call = self.cell(source, args=args, filename=filename)
        call.show()
        return call.result()

    def cell(self, source: str, *, args: Sequence[str] = (), filename: str = "") -> "Call[Shown | None]":
        """Do what ``exec`` does, but do not wait, and print nothing."""
        request = CallRequest(kind=CELL, name=filename or "a cell", args=tuple(map(str, args)), filename=filename)
        return self._here.call(request, source.encode())

    def push(self, **values: Any) -> None:
        """Put values into the namespace, by their names.

        Raises:
            InvalidRequest: One cannot be pickled; the message says which, by its path.
        """
        self._here.check_python("what is pushed")
        pickled = pickled_call(dict, (), values)
        request = CallRequest(kind=PUSH, name=f"push of {', '.join(values)}", python=self._here.pickles)
        self._here.call(request, pickled).result()

    def pull(self, *names: str) -> Any:
        """Return a value of the namespace; of several names, a tuple.

        Raises:
            NameError: There is none of that name.
        """
        self._here.check_python("what is pulled")
        request = CallRequest(kind=PULL, name=f"pull of {', '.join(names)}", python=self._here.pickles)
        values: Mapping[str, Any] = self._here.call(request, json.dumps(names).encode()).result()
        return values[names[0]] if len(names) == 1 else tuple(values[name] for name in names)

    def complete(self, text: str) -> list[str]:
        """Return how ``text``, a name of the namespace or ``name.attribute``, may go on."""
        return [str(match) for match in self._here.ask("POST", "/complete", json={"text": text})["matches"]]

    def interrupt(self) -> int:
        """Interrupt the cells that run or wait, of all clients; return how many."""
        cells = [status for status in self._here.statuses() if status.kind == CELL and status.state != DONE]
        for status in cells:
            self._here.ask("POST", f"/calls/{status.id}/interrupt")
        return len(cells)

    # Files and commands

    def put(self, local: str | Path, remote: str | None = None) -> str:
        """Send a file, or a folder with what is in it, to where calls and cells run; return its path there.

        Args:
            local: Here.
            remote: There; None is its own name.
        """
        return self._here.files.put(Path(local), remote)

    def get(self, remote: str, local: str | Path = ".") -> Path:
        """Bring a file from where calls and cells run; return its path here.

        Args:
            remote: There.
            local: Here: a file, or a folder.
        """
        return self._here.files.get(remote, Path(local))

    def shell(self, command: str, on: str | None = None) -> int:
        """Run a command on an instance, print what it printed, and return its exit code.

        Args:
            command: For the shell.
            on: The instance, ``algo-2``; None is the head.
        """
        request = CallRequest(kind=SHELL, name=command[:60], host=on or "")
        done: Mapping[str, Any] = self._here.call(request, command.encode()).result()
        print(done["output"], end="")  # noqa: T201
        return int(done["exit_code"])

    def dashboard(self) -> Any:
        """Return Ray's dashboard at an address of this machine; see ``Job.dashboard``."""
        self._dashboard = self.job.dashboard()
        return self._dashboard

    def tunnel(self, port: int, on: str | None = None, local_port: int = 0) -> Tunnel:
        """Open a way to a port of one of its instances; see ``Job.tunnel``."""
        return self.job.tunnel(port, on=on or self.state.hosts[0], local_port=local_port)

    # Its end

    def keep(self, minutes: float) -> SessionState:
        """Put off the idle end: for so many minutes from now it does not come. Budget and max_runtime_s stay."""
        return as_state(self._here.ask("POST", "/keep", json={"seconds": 60 * minutes}))

    def close(self) -> None:
        """End it, and its job; calls that run are interrupted. One that has ended already is as good."""
        if self._open is None:
            return
        opened, self._open = self._open, None
        with contextlib.suppress(SessionEnded):
            opened.ask("POST", "/close", json={"why": "it was closed"})
        opened.close()
        with contextlib.suppress(NotDone):
            opened.job.wait(CLOSED_S)

    def detach(self) -> None:
        """Leave it to itself: it ends when it has been idle, and ``attach`` finds it until then."""
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()

    # For people

    def __repr__(self) -> str:
        return text(self._glance(), self._name)

    def _repr_html_(self) -> str:
        state = self._glance()
        if state is None:
            return f"<p>{html.escape(repr(self))}</p>"
        link = "" if self._dashboard is None else self._dashboard.link
        card: str = pkgutil.resolve_name("raysm.views.card.session_card:session_card")(
            self._name or state.job, state, link
        )
        return card

    def _glance(self) -> SessionState | None:
        with contextlib.suppress(RaysmError):
            return self.state
        return None
