"""``raysm.Session``: a cluster that stays, called in milliseconds from wherever its user is.

Nothing of a session lives in the handle: another process has all of it by ``raysm.Session.attach(name)``.
"""

import contextlib
import dataclasses
import logging
import pkgutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from raysm.client.job.handle import Job
from raysm.client.options import SubmitOptions
from raysm.client.service import Service, connect
from raysm.client.session.arguments import check_instance, check_number, check_text
from raysm.client.session.current import inside
from raysm.client.session.functions import SessionFunctions, SessionNamespace
from raysm.client.session.opened import Opened, as_state
from raysm.client.session.starting import SessionLimits, Show, check_free, find, place_of, prepared
from raysm.client.session.wire import require_aiohttp
from raysm.client.tunnel.tunnel import Tunnel
from raysm.contract.names import TASK_TAG
from raysm.contract.session import SHELL, CallRequest, SessionState
from raysm.errors import InvalidRequest, NotDone, RaysmError, SessionEnded
from raysm.request import Target
from raysm.request.options import check_names

__all__ = ["Session"]

INTERRUPTED_S = 5.0
"""How long ``close`` waits for calls that it interrupts: the head gives them two seconds, then it gives them up."""

CLOSED_S = 10.0
"""How long ``close`` waits for the end of the job: on this machine that takes a second or two."""

_log = logging.getLogger("raysm")


class Session(SessionFunctions, SessionNamespace):
    """A cluster that stays up for calls, cells and maps; a context manager, at whose end it is closed.

    Attributes:
        limits: When it ends by itself.
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
        """Describe it; ``start``, or the ``with`` block, sends its job.

        Args:
            on: ``AWS(…)`` or ``Local(…)``; None is ``Local()``.
            idle_timeout_s: Seconds without a call after which it ends, while a client is attached.
            idle_timeout_detached_s: The same while none is: its laptop is closed, or its program has died.
            budget_usd: What it may cost from the start of its head; None is no limit.
            price_per_hour: What one instance costs, USD; None is what raysm's table of public prices says.
            max_runtime_s: Seconds for which its job may run, whatever happens; None is a day.
            options: Those of a job, as ``raysm.client.options.SubmitOptions`` lists them.

        Raises:
            InvalidRequest: It takes no such option.
        """
        # Both kinds at once: a typing error in the name of a limit is not one of submit's options.
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
        # As a task's name it would be lost among the options: sessions are found by it.
        self._name: str | None = self._options.pop("name", None)
        # Connected here: a target that cannot be is said where the session is described.
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
        check_text("raysm.Session.attach: a name", name, "attach('digits')")
        # No options: of a session that runs they are decided, and what it says of itself counts.
        session = cls(on=on)
        job = find(session._service, name)
        session._name = job.tags.get(TASK_TAG, name)
        session._connect(job, lambda event: None)
        return session

    def start(self, show: Show | None = None) -> Self:
        """Send its job, and wait until it takes calls; why a job waits is a warning of the logger ``raysm``.

        Args:
            show: Called with what the job says of itself meanwhile; None tells it to the logger ``raysm``, once the
                start has taken some seconds.

        Raises:
            InvalidRequest: What was asked for cannot be, or the name is taken; nothing was sent.
            JobFailed: Its job ended before it took calls.
        """
        if self._open is not None:
            return self
        require_aiohttp()
        # First, as it looks at the name: what cannot be one at all is no question for the service.
        ready = prepared(self._name, self.limits, self._service, self._options)
        # Whoever names none takes none away: the job's own name is the only one of its kind.
        if self._name is not None:
            check_free(self._service, self._name)
        self._begin(ready.send(), show)
        return self

    def _begin(self, job: Job, show: Show | None) -> None:
        try:
            self._connect(job, show)
        except BaseException:
            # Ctrl-C too: nobody would know of it any more, and it would go on costing.
            try:
                job.cancel()
            except RaysmError as error:
                _log.warning(
                    "the job %s of a session that could not be begun is not stopped either, and may go on costing: %s; "
                    "raysm stop %s",
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
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._exit.close()
        self.close()

    # Files and commands

    def put(self, local: str | Path, remote: str | None = None) -> str:
        """Send a file, or a folder with what is in it, to where calls and cells run; return its path there.

        Args:
            local: Here.
            remote: There; None is its own name.
        """
        return self._opened.files.put(_path("put: a file", local), remote)

    def get(self, remote: str, local: str | Path = ".") -> Path:
        """Bring a file from where calls and cells run; return its path here.

        Args:
            remote: There.
            local: Here: a file, or a folder.
        """
        check_text("get: a file of there", remote, "get('out.csv')")
        return self._opened.files.get(remote, _path("get: a file of here", local))

    def shell(self, command: str, on: str | None = None) -> int:
        """Run a command on an instance, print what it printed, and return its exit code; Ctrl-C interrupts it.

        Of what it printed it is the last MiB: a command that prints more is to write it into a file, for ``get``.

        Args:
            command: For the shell.
            on: The instance, ``algo-2``; None is the head.

        Raises:
            InvalidRequest: It is no text, or there is no such instance.
        """
        check_text("shell: a command", command, "shell('nvidia-smi')")
        check_instance("shell", on)
        # The beginning of the command is its name: a script of a page would fill every list of calls.
        request = CallRequest(kind=SHELL, name=command[:60], host=on or "")
        call = self._opened.call(request, [command.encode()])
        # It prints nothing before its end; but Ctrl-C interrupts it so, as it does a function and a cell.
        call.show()
        done: Mapping[str, Any] = call.result()
        print(done["output"], end="")  # noqa: T201
        return int(done["exit_code"])

    def dashboard(self) -> Any:
        """Return Ray's dashboard at an address of this machine; see ``Job.dashboard``."""
        self._dashboard = self.job.dashboard()
        return self._dashboard

    def jupyter(self) -> Any:
        """Return JupyterLab on the head, at an address of this machine; its kernels join the session's Ray.

        ``.url`` is its address, ``.close()`` shows it no more, and so does the end of a ``with`` block or of this
        process. Its notebooks lie where calls and cells run, and end with the session: ``get`` brings them here.

        Raises:
            InvalidRequest: The head has no JupyterLab.
            RaysmError: It does not start.
        """
        opened = self._opened
        return pkgutil.resolve_name("raysm.views.jupyter:open_jupyter")(
            self.name, address=opened.address, open_connection=opened.open_connection, start=opened.start_jupyter
        )

    def tunnel(self, port: int, on: str | None = None, local_port: int = 0) -> Tunnel:
        """Open a way to a port of one of its instances; see ``Job.tunnel``."""
        check_instance("tunnel", on)
        return self.job.tunnel(port, on=on or self.state.hosts[0], local_port=local_port)

    # Its end

    def keep(self, minutes: float) -> SessionState:
        """Put off the idle end: for so many minutes from now it does not come. Budget and max_runtime_s stay.

        Raises:
            InvalidRequest: ``minutes`` is no number above 0.
        """
        check_number("keep: minutes", minutes, example="keep(minutes=60)")
        return as_state(self._opened.ask("POST", "/keep", json={"seconds": 60 * minutes}))

    def close(self) -> None:
        """End it, and its job; calls that run are interrupted, and end with SessionEnded.

        One that has ended already is as good; of one whose head does not take it, the job is stopped.
        """
        if self._open is None:
            return
        opened, self._open = self._open, None
        try:
            opened.end_session()
            # Before the connection is: how they ended would never be known.
            opened.await_calls(INTERRUPTED_S)
        except SessionEnded:
            pass
        except RaysmError as error:
            # It would go on costing until it is idle, or for ever: the service can end its job without it.
            _log.warning("the session %s cannot be told to end, its job is stopped instead: %s", opened.job.name, error)
            opened.job.cancel()
        finally:
            opened.close()
        # On AWS a job takes minutes to stop: it was told to, and nobody needs to wait for that.
        with contextlib.suppress(NotDone):
            opened.job.wait(CLOSED_S)

    def detach(self) -> None:
        """Leave it to itself: it ends when it has been idle, and ``attach`` finds it until then."""
        if self._open is not None:
            opened, self._open = self._open, None
            opened.close()


def _path(what: str, local: Any) -> Path:
    try:
        return Path(local)
    except TypeError as error:
        raise InvalidRequest(f"{what} is named by its path, got {local!r}") from error
