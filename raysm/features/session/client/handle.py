"""``raysm.Session``: the handle of a cluster that stays up for many calls.

The handle holds no state of the session: another process gets an equal handle with
``raysm.Session.attach(name)``.
"""

import contextlib
import dataclasses
import html
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from raysm.core.client.job.handle import Job
from raysm.core.client.options import SubmitOptions
from raysm.core.client.service import Service, connect
from raysm.core.client.submit import Prepared
from raysm.core.protocol.names import TASK_TAG
from raysm.core.protocol.parcels import Scattered
from raysm.core.request import Target
from raysm.core.request.options import check_names
from raysm.errors import InvalidRequest, NotDone, RaysmError, SessionEnded
from raysm.features.session.client.calls import Call
from raysm.features.session.client.cell_result import CellResult
from raysm.features.session.client.checks import (
    check_above_0,
    check_instance,
    check_integer,
    check_string,
)
from raysm.features.session.client.connection import SessionConnection, parse_state
from raysm.features.session.client.current import make_current
from raysm.features.session.client.functions import Functions, MapOptions
from raysm.features.session.client.many_calls import MapResults, gather
from raysm.features.session.client.namespaces import Namespaces
from raysm.features.session.client.start import (
    SessionLimits,
    Show,
    await_server,
    check_name_is_free,
    find_session,
    prepare_session,
)
from raysm.features.session.client.view import describe_session, render_card
from raysm.features.session.client.wire import require_aiohttp
from raysm.features.session.protocol import CALL, CELL, SHELL, CallRequest, SessionState

if TYPE_CHECKING:
    from raysm.core.client.tunnel import Tunnel

CLOSE_GRACE_S = 5.0
"""How long ``close`` waits for the calls that it interrupts. The head abandons them after two
seconds."""

CLOSED_S = 60.0
"""How long ``close`` waits for the end of a job on this machine, which usually takes a second or
two."""

_log = logging.getLogger("raysm")

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """A cluster that stays up for calls, cells and maps.

    As a context manager it starts and closes the session.

    Attributes:
        limits: When the session ends by itself.
    """

    def __init__(
        self,
        *,
        on: Target | Service | None = None,
        idle_timeout_s: float = 1800.0,
        idle_timeout_detached_s: float = 300.0,
        max_cost: float | None = None,
        budget_usd: float | None = None,
        price_per_hour: float | None = None,
        max_runtime_s: int | None = None,
        **options: Unpack[SubmitOptions],
    ) -> None:
        """Describe a session; ``start`` or the ``with`` block submits its job.

        Args:
            on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
            idle_timeout_s: The session ends after this many seconds without a call while a client
                is attached.
            idle_timeout_detached_s: The same while no client is attached, because its laptop sleeps
                or its program ended.
            max_cost: USD that the session may cost; None is the ``max_cost`` of ``limits``, by
                default no limit. The session ends itself in time and says why; should it not, the
                service stops its job before it costs more.
            budget_usd: The older name of ``max_cost``.
            price_per_hour: Price of one instance in USD; None uses raysm's table of public prices.
            max_runtime_s: Maximum run time of the job in seconds; None is a day.
            options: Options of the job, as in ``raysm.client.options.SubmitOptions``.

        Raises:
            InvalidRequest: An option does not exist.
        """
        # Checked against the names of both, so that a misspelled limit gets the right suggestion.
        limit_names = {field.name for field in dataclasses.fields(SessionLimits)} | {"budget_usd"}
        check_names("raysm.Session", [*limit_names, *SubmitOptions.__annotations__], options)
        self.limits = SessionLimits(
            idle_timeout_s=idle_timeout_s,
            idle_timeout_detached_s=idle_timeout_detached_s,
            max_cost=budget_usd if max_cost is None else max_cost,
            price_per_hour=price_per_hour,
            max_runtime_s=max_runtime_s,
        )
        self._options: dict[str, Any] = dict(options)
        self._name: str | None = self._options.pop("name", None)
        # Connected here, so that an invalid target fails where the session is described.
        self._service = connect(on)
        self._connection: SessionConnection | None = None
        self._dashboard: Any = None
        self._exit = contextlib.ExitStack()

    @classmethod
    def attach(cls, name: str, on: Target | Service | None = None) -> Self:
        """Connect to a running session.

        Args:
            name: The name of the session or of its job.
            on: The target where it runs; None is the embedded SageMaker of this machine.

        Raises:
            JobNotFound: No running session has this name; the message lists those that run.
            SessionEnded: The session is ending.
        """
        check_string("raysm.Session.attach: a name", name, "attach('digits')")
        # Without options, which were decided when the session started.
        session = cls(on=on)
        job = find_session(session._service, name)
        session._name = job.tags.get(TASK_TAG, name)
        session._connect(job, lambda event: None)
        return session

    def prepare(self) -> Prepared:
        """Return the job that ``start`` would send; ``prepare().plan`` is its API call."""
        return prepare_session(self._name, self.limits, self._service, self._options)

    def start(self, show: Show | None = None) -> Self:
        """Submit the job of the session, and wait until it accepts calls.

        Args:
            show: Called with the job's events meanwhile. None logs one line with the logger
                ``raysm``, and the events if the start takes more than some seconds.

        Raises:
            InvalidRequest: The request is invalid, or the name is taken. Nothing was sent.
            JobFailed: The job ended before the session accepted calls.
        """
        if self._connection is not None:
            return self
        require_aiohttp()
        # Validates the name before the service is asked for it.
        ready = self.prepare()
        # Without a name the session is called like its job, whose name is unique.
        if self._name is not None:
            check_name_is_free(self._service, self._name)
        self._connect_or_cancel(ready.send(), show)
        return self

    def _connect_or_cancel(self, job: Job, show: Show | None) -> None:
        try:
            self._connect(job, show)
        except BaseException:
            # After Ctrl-C, too: without a handle the job would keep running and costing money.
            try:
                job.cancel()
            except RaysmError as error:
                _log.warning(
                    "the session did not start, and its job %s cannot be stopped and "
                    "may cost money: %s; raysm stop %s",
                    job.name,
                    error,
                    job.name,
                )
            raise

    def _connect(self, job: Job, show: Show | None) -> None:
        server = await_server(job, show)
        connection = SessionConnection(job, self._name or job.name, server)
        try:
            connection.open()
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def __enter__(self) -> Self:
        self.start()
        self._exit.enter_context(make_current(self))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit.close()
        self.close()

    # Its state

    @property
    def name(self) -> str:
        """The name of the session, or of its job if it has none."""
        return self._require_connection().context.session

    @property
    def job(self) -> Job:
        """The session's job."""
        return self._require_connection().job

    @property
    def state(self) -> SessionState:
        """The current state of the session."""
        return self._require_connection().fetch_state()

    def __repr__(self) -> str:
        return describe_session(self._fetch_state_or_none(), self._name)

    def _repr_html_(self) -> str:
        state = self._fetch_state_or_none()
        if state is None:
            return f"<p>{html.escape(repr(self))}</p>"
        link = "" if self._dashboard is None else self._dashboard.link
        return render_card(self._name or state.job, state, link)

    def _fetch_state_or_none(self) -> SessionState | None:
        with contextlib.suppress(RaysmError):
            return self.state
        return None

    def _require_connection(self) -> SessionConnection:
        if self._connection is None:
            which = "the session" if self._name is None else f"the session {self._name}"
            raise SessionEnded(
                f"{which} is not open: it was not started, or was closed or detached here; "
                "start() it, or find a running one by raysm.Session.attach(name)"
            )
        return self._connection

    @property
    def _functions(self) -> Functions:
        return Functions(self._require_connection())

    @property
    def _namespaces(self) -> Namespaces:
        return Namespaces(self._require_connection())

    # Functions

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Call[R]":
        """Start ``fn(*args, **kwargs)`` on the head and return a future.

        The function runs in a separate process, which has joined Ray.

        Returns:
            A future with ``result()``, ``cancel()`` and ``logs()``.

        Raises:
            InvalidRequest: The function does not accept these arguments; a value cannot be pickled;
                the session runs another Python; or it runs another Ray and an argument contains an
                object of Ray.
        """
        return self._functions.submit(fn, args, kwargs)

    def run(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``fn(*args, **kwargs)`` as ``submit`` does, print its output, and return its value.

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

        The processes have their own working folder, without the files of ``put``: pass data as
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
        options = MapOptions(
            ordered=ordered,
            retries=retries,
            return_exceptions=return_exceptions,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
        )
        return self._functions.map(fn, (items, *more), options)

    def scatter(self, value: Any) -> Scattered:
        """Send a value once into Ray's shared memory, and return a reference to it.

        Pass the reference to ``run``, ``submit`` or ``push``, or bind it to a mapped function with
        ``functools.partial``. The function then gets the value itself, with read-only arrays. The
        value stays until the session ends.

        Raises:
            InvalidRequest: The value cannot be pickled, or the session runs another Python.
        """
        return self._functions.scatter(value)

    @staticmethod
    def gather(calls: Any, *, return_exceptions: bool = False) -> Any:
        """Return the values of a list or dictionary of calls; see ``raysm.gather``."""
        return gather(calls, return_exceptions=return_exceptions)

    def calls(self, limit: int = 20) -> "list[Call[Any]]":
        """Return the latest calls and cells of all clients, the latest first.

        Calls of clients that have died are included.

        Args:
            limit: Maximum number of calls.

        Raises:
            InvalidRequest: ``limit`` is not a whole number above 0.
        """
        # With 0 the slice below would contain all calls.
        check_integer("calls: limit", limit, minimum=1)
        connection = self._require_connection()
        # Batches are left out, because a map has thousands, and so are pushes and pulls.
        calls = [status for status in connection.fetch_statuses() if status.kind in (CALL, CELL)]
        return [connection.follow(status) for status in reversed(calls[-limit:])]

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
        return self._namespaces.start_cell(source, args, filename, on)

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
        self._namespaces.push(values, on)

    def pull(self, *names: str, on: str | None = None) -> Any:
        """Return a value of the namespace, or a tuple of several.

        Args:
            names: Names in the namespace.
            on: The instance; None is the head.

        Raises:
            InvalidRequest: There is no name, or one is not a string.
            NameError: The namespace does not have such a name.
        """
        return self._namespaces.pull(names, on)

    def complete(self, text: str) -> list[str]:
        """Return completions of ``text``, a name of the namespace or ``name.attribute``."""
        return self._namespaces.complete(text)

    def interrupt(self) -> int:
        """Interrupt the running and waiting cells of all clients; return how many."""
        return self._namespaces.interrupt()

    # Files and commands

    def put(self, local: str | Path, remote: str | None = None) -> str:
        """Send a file or a folder to the head; return its path there.

        Calls and cells run in the folder that gets it. The processes of ``map`` and the other
        instances do not see it: pass them data as arguments, or by ``scatter``.

        Args:
            local: Path on this machine.
            remote: Path on the head; None keeps the name.
        """
        return self._require_connection().files.put(_parse_path("put: a file", local), remote)

    def get(self, remote: str, local: str | Path = ".") -> Path:
        """Fetch a file from the folder where calls and cells run; return its path here.

        Args:
            remote: Path on the head.
            local: A file or a folder on this machine.

        Raises:
            InvalidRequest: There is no such file on the head.
            ServiceError: The connection broke; a file of that name here is as it was.
            SessionEnded: The session has ended.
        """
        check_string("get: a file on the head", remote, "get('out.csv')")
        return self._require_connection().files.get(
            remote, _parse_path("get: a file on this machine", local)
        )

    def shell(self, command: str, on: str | None = None) -> int:
        """Run a shell command on an instance, print its output, and return its exit code.

        The output is printed when the command has ended: its last MiB; redirect more to a file, and
        fetch that with ``get``. Ctrl-C interrupts the command.

        Args:
            command: The command line.
            on: The instance, such as ``algo-2``; None is the head.

        Raises:
            InvalidRequest: The command is not a string, or the instance does not exist.
        """
        check_string("shell: a command", command, "shell('nvidia-smi')")
        check_instance("shell", on)
        # The name is shortened, because the command may be a long script.
        request = CallRequest(kind=SHELL, name=command[:60], host=on or "")
        call = self._require_connection().send_call(request, [command.encode()])
        # A command prints nothing before its end, but show() makes Ctrl-C interrupt it.
        call.show()
        done: Mapping[str, Any] = call.result()
        print(done["output"], end="")  # noqa: T201
        return int(done["exit_code"])

    def dashboard(self) -> Any:
        """Return Ray's dashboard at an address of this machine; see ``Job.dashboard``."""
        self._dashboard = self.job.dashboard()
        return self._dashboard

    def jupyter(self) -> Any:
        """Open JupyterLab on the head at an address of this machine.

        ``.url`` is the address. ``.close()``, the end of a ``with`` block or of this process closes
        it. Its kernels join the session's Ray. Notebooks are kept in the folder of calls and cells
        until the session ends; fetch them with ``get``.

        Raises:
            InvalidRequest: The head has no JupyterLab.
            RaysmError: JupyterLab does not start.
        """
        from raysm.features.session.notebook.jupyter import open_jupyter

        connection = self._require_connection()
        return open_jupyter(
            self.name,
            address=connection.address,
            open_connection=connection.open_connection,
            start=connection.start_jupyter,
        )

    def tunnel(self, port: int, on: str | None = None, local_port: int = 0) -> "Tunnel":
        """Open a tunnel to a port of an instance; see ``Job.tunnel``."""
        check_instance("tunnel", on)
        return self.job.tunnel(port, on=on or self.state.hosts[0], local_port=local_port)

    # The end of the session

    def keep(self, minutes: float) -> SessionState:
        """Prevent an idle end for the next ``minutes``.

        ``max_cost`` and ``max_runtime_s`` still apply.

        Raises:
            InvalidRequest: ``minutes`` is not a number above 0.
        """
        check_above_0("keep: minutes", minutes, example="keep(minutes=60)")
        answer = self._require_connection().ask("POST", "/keep", json={"seconds": 60 * minutes})
        return parse_state(answer)

    def close(self) -> None:
        """End the session and its job; running calls are interrupted, and raise SessionEnded.

        On the embedded SageMaker this returns once the job has ended and its cores are free. On AWS
        the job takes minutes to stop, and does so after this returns. It is a no-op if the session
        has ended. If the head does not answer, the job is stopped instead.
        """
        if self._connection is None:
            return
        connection = self._connection
        self._connection = None
        try:
            connection.end_session()
            # The outcomes of the calls need the connection.
            connection.wait_for_calls(CLOSE_GRACE_S)
        except SessionEnded:
            pass
        except RaysmError as error:
            # The service can stop the job without its head; otherwise the session would keep
            # costing money.
            _log.warning(
                "the session %s does not close, so its job is stopped instead: %s",
                connection.job.name,
                error,
            )
            connection.job.cancel()
        finally:
            connection.close()
        if not connection.job.service.target.is_billed:
            with contextlib.suppress(NotDone):
                connection.job.wait(CLOSED_S)

    def detach(self) -> None:
        """Disconnect and leave the session running; ``attach`` finds it until it ends."""
        if self._connection is not None:
            connection = self._connection
            self._connection = None
            connection.wait_until_sent()
            connection.close()


def _parse_path(what: str, local: Any) -> Path:
    try:
        return Path(local)
    except TypeError as error:
        raise InvalidRequest(f"{what} must be a path, got {local!r}") from error
