"""``raysm.Session``: the handle of a cluster that stays up for many calls.

The handle holds no state of the session: another process gets an equal handle with
``raysm.Session.attach(name)``.
"""

import contextlib
import dataclasses
import logging
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from raysm.core.client.job.handle import Job
from raysm.core.client.options import SubmitOptions
from raysm.core.client.service import Service, connect
from raysm.core.client.submit import Prepared
from raysm.core.protocol.names import TASK_TAG
from raysm.core.request import Target
from raysm.core.request.options import check_names
from raysm.errors import InvalidRequest, NotDone, RaysmError, SessionEnded
from raysm.features.session.client.arguments import check_instance, check_number, check_text
from raysm.features.session.client.current import inside
from raysm.features.session.client.functions import SessionFunctions
from raysm.features.session.client.opened import Opened, as_state
from raysm.features.session.client.starting import (
    SessionLimits,
    Show,
    check_free,
    find,
    place_of,
    prepared,
)
from raysm.features.session.client.wire import require_aiohttp
from raysm.features.session.protocol import SHELL, CallRequest, SessionState

if TYPE_CHECKING:
    from raysm.core.client.tunnel import Tunnel

INTERRUPTED_S = 5.0
"""How long ``close`` waits for the calls that it interrupts. The head abandons them after two
seconds."""

CLOSED_S = 60.0
"""How long ``close`` waits for the end of a job on this machine, which usually takes a second or
two."""

_log = logging.getLogger("raysm")


class Session(SessionFunctions):
    """A cluster that stays up for calls, cells and maps. As a context manager it starts and closes the session.

    Attributes:
        limits: When the session ends by itself.
    """

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
        """Describe a session; ``start`` or the ``with`` block submits its job.

        Args:
            on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
            idle_timeout_s: The session ends after this many seconds without a call while a client
                is attached.
            idle_timeout_detached_s: The same while no client is attached, because its laptop sleeps
                or its program ended.
            budget_usd: Maximum cost from the start of the head; None is no limit.
            price_per_hour: Price of one instance in USD; None uses raysm's table of public prices.
            max_runtime_s: Maximum run time of the job in seconds; None is a day.
            options: Options of the job, as in ``raysm.client.options.SubmitOptions``.

        Raises:
            InvalidRequest: An option does not exist.
        """
        # Checked against the names of both, so that a misspelled limit gets the right suggestion.
        limit_names = {field.name for field in dataclasses.fields(SessionLimits)}
        check_names("raysm.Session", [*limit_names, *SubmitOptions.__annotations__], options)
        self.limits = SessionLimits(
            idle_timeout_s=idle_timeout_s,
            idle_timeout_detached_s=idle_timeout_detached_s,
            budget_usd=budget_usd,
            price_per_hour=price_per_hour,
            max_runtime_s=max_runtime_s,
        )
        self._options: dict[str, Any] = dict(options)
        self._name: str | None = self._options.pop("name", None)
        # Connected here, so that an invalid target fails where the session is described.
        self._service = connect(on)
        self._open: Opened | None = None
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
        check_text("raysm.Session.attach: a name", name, "attach('digits')")
        # Without options, which were decided when the session started.
        session = cls(on=on)
        job = find(session._service, name)
        session._name = job.tags.get(TASK_TAG, name)
        session._connect(job, lambda event: None)
        return session

    def prepare(self) -> Prepared:
        """Return the job that ``start`` would send: ``prepare().plan`` is its API call. Sends nothing."""
        return prepared(self._name, self.limits, self._service, self._options)

    def start(self, show: Show | None = None) -> Self:
        """Submit the job of the session, and wait until it accepts calls.

        Args:
            show: Called with the job's events meanwhile. None logs one line with the logger
                ``raysm``, and the events if the start takes more than some seconds.

        Raises:
            InvalidRequest: The request is invalid, or the name is taken. Nothing was sent.
            JobFailed: The job ended before the session accepted calls.
        """
        if self._open is not None:
            return self
        require_aiohttp()
        # Validates the name before the service is asked for it.
        ready = self.prepare()
        # Without a name the session is called like its job, whose name is unique.
        if self._name is not None:
            check_free(self._service, self._name)
        self._begin(ready.send(), show)
        return self

    def _begin(self, job: Job, show: Show | None) -> None:
        try:
            self._connect(job, show)
        except BaseException:
            # After Ctrl-C, too: without a handle the job would keep running and costing money.
            try:
                job.cancel()
            except RaysmError as error:
                _log.warning(
                    "the session did not start, and its job %s cannot be stopped and may cost money: %s; raysm stop %s",
                    job.name,
                    error,
                    job.name,
                )
            raise

    def _connect(self, job: Job, show: Show | None) -> None:
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._exit.close()
        self.close()

    # Files and commands

    def put(self, local: str | Path, remote: str | None = None) -> str:
        """Send a file or a folder to the folder on the head where calls and cells run; return its path there.

        The processes of ``map`` and the other instances do not see it: pass them data as arguments,
        or by ``scatter``.

        Args:
            local: Path on this machine.
            remote: Path on the head; None keeps the name.
        """
        return self._opened.files.put(_path("put: a file", local), remote)

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
        check_text("get: a file of there", remote, "get('out.csv')")
        return self._opened.files.get(remote, _path("get: a file of here", local))

    def shell(self, command: str, on: str | None = None) -> int:
        """Run a shell command on an instance, print its output at its end, and return its exit code.

        Ctrl-C interrupts the command. Only the last MiB of the output is printed; redirect more to
        a file, and fetch that with ``get``.

        Args:
            command: The command line.
            on: The instance, such as ``algo-2``; None is the head.

        Raises:
            InvalidRequest: The command is not a string, or the instance does not exist.
        """
        check_text("shell: a command", command, "shell('nvidia-smi')")
        check_instance("shell", on)
        # The name is shortened, because the command may be a long script.
        request = CallRequest(kind=SHELL, name=command[:60], host=on or "")
        call = self._opened.call(request, [command.encode()])
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
        opened = self._opened
        return pkgutil.resolve_name("raysm.features.session.notebook.jupyter:open_jupyter")(
            self.name,
            address=opened.address,
            open_connection=opened.open_connection,
            start=opened.start_jupyter,
        )

    def tunnel(self, port: int, on: str | None = None, local_port: int = 0) -> "Tunnel":
        """Open a tunnel to a port of an instance; see ``Job.tunnel``."""
        check_instance("tunnel", on)
        return self.job.tunnel(port, on=on or self.state.hosts[0], local_port=local_port)

    # The end of the session

    def keep(self, minutes: float) -> SessionState:
        """Prevent an idle end for the next ``minutes``. ``budget_usd`` and ``max_runtime_s`` still apply.

        Raises:
            InvalidRequest: ``minutes`` is not a number above 0.
        """
        check_number("keep: minutes", minutes, example="keep(minutes=60)")
        return as_state(self._opened.ask("POST", "/keep", json={"seconds": 60 * minutes}))

    def close(self) -> None:
        """End the session and its job. Running calls are interrupted, and raise SessionEnded.

        On the embedded SageMaker this returns once the job has ended and its cores are free. On AWS
        the job takes minutes to stop, and does so after this returns. It is a no-op if the session
        has ended. If the head does not answer, the job is stopped instead.
        """
        if self._open is None:
            return
        opened, self._open = self._open, None
        try:
            opened.end_session()
            # The outcomes of the calls need the connection.
            opened.await_calls(INTERRUPTED_S)
        except SessionEnded:
            pass
        except RaysmError as error:
            # The service can stop the job without its head; otherwise the session would keep
            # costing money.
            _log.warning(
                "the session %s does not close, so its job is stopped instead: %s",
                opened.job.name,
                error,
            )
            opened.job.cancel()
        finally:
            opened.close()
        if not opened.job.service.target.is_billed:
            with contextlib.suppress(NotDone):
                opened.job.wait(CLOSED_S)

    def detach(self) -> None:
        """Disconnect and leave the session running; ``attach`` finds it until it ends."""
        if self._open is not None:
            opened, self._open = self._open, None
            opened.await_arrival()
            opened.close()


def _path(what: str, local: Any) -> Path:
    try:
        return Path(local)
    except TypeError as error:
        raise InvalidRequest(f"{what} is named by its path, got {local!r}") from error
