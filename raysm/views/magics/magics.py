"""The magics of one notebook: lines and cells flow in from IPython, a session carries them out.

What is wrong with a line is IPython's own kind of error, one line long; what fails in the session is shown as the
session tells it.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from raysm.client.project import load_options
from raysm.client.rendering import sentence
from raysm.client.session.current import current_session
from raysm.client.session.handle import Session
from raysm.contract import events
from raysm.contract.session import SERVING
from raysm.errors import InvalidRequest, MissingDependency, RaysmError
from raysm.request import Cluster
from raysm.views.magics.failing import in_one_line
from raysm.views.magics.remote_mode import MAGIC, RemoteMode
from raysm.views.magics.running import await_future, run_cell
from raysm.views.magics.words import COMMANDS, CellLine, CommandLine, read_cell, read_command, seconds

__all__ = ["Magics", "Opens", "Shell", "tell"]

SHAPE: Mapping[str, str] = {"instances": "count", "instance_type": "instance_type"}
"""What a line may say of a cluster, and the field of ``Cluster`` that it is."""


class Shell(Protocol):
    """IPython's shell, as far as the magics have to know it."""

    user_ns: dict[str, Any]
    execution_count: int


class Opens:
    """How sessions are begun and found."""

    def start(self, **options: Any) -> Session:
        """Return a session that was started; what it says of itself meanwhile is printed."""
        return Session(**options).start(tell)

    def attach(self, name: str, on: Any) -> Session:
        """Return a session that runs."""
        return Session.attach(name, on)


class Magics:
    """``%raysm`` and ``%%raysm`` of one shell.

    Attributes:
        mode: Whether every cell is remote.
    """

    def __init__(self, shell: Shell, opens: Opens | None = None) -> None:
        """Connect to nothing yet.

        Args:
            shell: Has the notebook's variables.
            opens: None is raysm's own.
        """
        self.mode = RemoteMode()
        self._shell, self._opens = shell, opens or Opens()
        self._current: Session | None = None
        self._attached: dict[str, Session] = {}
        self._latest: tuple[Session, Any] | None = None
        # Bound at once: a command without its method fails here, and not when somebody types it.
        self._commands: dict[str, Callable[[CommandLine], Any]] = {name: getattr(self, f"_{name}") for name in COMMANDS}

    def raysm(self, line: str, cell: str | None = None) -> Any:
        """Run a cell in a session of a cluster, or see to the session.

        %raysm start [NAME] [--instances 2] [--type ml.g5.2xlarge] [--idle 30m] [--detached 5m] [--budget 20]
        %raysm connect NAME | status | dashboard | keep 60 | close | on | off

        %raysm result

        %%raysm [-s NAME] [--on head|all|algo-2] [--push a,b] [--pull model] [-o future] [--async]
        """
        try:
            if cell is None:
                command = read_command(line)
                return self._commands[command.name](command)
            how = read_cell(line)
            session = self._session(how.session)
            # Looked up by each cell: the session may have been closed, or another one begun, since the last.
            return self._run(session, how, cell)
        except (InvalidRequest, MissingDependency) as error:
            # One that a cell has raised is to be shown as the session tells it, as every other error of its own.
            if hasattr(error, "_render_traceback_"):
                raise
            raise _usage_error(str(error)) from None
        except RaysmError as error:
            raise (error if hasattr(error, "_render_traceback_") else in_one_line(error)) from None

    def _run(self, session: Session, how: CellLine, cell: str) -> Any:
        variables = self._shell.user_ns
        value = run_cell(session, how, cell, variables, self._shell.execution_count)
        if how.is_async:
            self._latest = session, variables[how.out] if how.out is not None else value
        return value

    def session_of(self, cell: str) -> Session | None:
        """Return the session in which a cell runs, as far as one is open: nothing is connected to for this."""
        line = cell.lstrip().partition("\n")[0].removeprefix(MAGIC) if cell.lstrip().startswith(MAGIC) else ""
        try:
            # Asked at every keystroke of a completion: a line that is not finished is no error.
            name = read_cell(line).session
        except InvalidRequest:
            return None
        return self._current or _entered() if name is None else self._attached.get(name) or self._variable(name)

    # Commands, by their names in COMMANDS

    def _start(self, command: CommandLine) -> Session:
        options = dict(command.options)
        # What is typed stands above what the profile says, and below nothing.
        base: dict[str, Any] = dict(load_options(profile=options.pop("profile"))) if "profile" in options else {}
        shape: dict[str, Any] = {field: options.pop(name) for name, field in SHAPE.items() if name in options}
        if shape:
            base["cluster"] = replace(base.get("cluster") or Cluster(), **shape)
        if command.word is not None:
            base["name"] = command.word
        self._current = self._opens.start(**base, **options)
        # One of its name that has ended would else go on being asked by `-s NAME`.
        if command.word is not None:
            self._attached[command.word] = self._current
        return self._current

    def _connect(self, command: CommandLine) -> Session:
        assert command.word is not None, "read_command has seen to it"
        profile = command.options.get("profile")
        self._current = self._variable(command.word) or self._attach(command.word, profile)
        return self._current

    def _status(self, command: CommandLine) -> Session:
        return self._session(command.word)

    def _result(self, command: CommandLine) -> Any:
        if self._latest is None:
            raise InvalidRequest("no cell was sent with --async; %%raysm --async sends one without waiting for it")
        return await_future(*self._latest)

    def _dashboard(self, command: CommandLine) -> Any:
        return self._session(command.word).dashboard()

    def _keep(self, command: CommandLine) -> Session:
        session = self._session(None)
        session.keep(minutes=seconds(command.word or "") / 60)
        return session

    def _close(self, command: CommandLine) -> None:
        session = self._session(command.word)
        name = session.name
        session.close()
        # By what it is, not by its name: it may be known under its job's name, too.
        self._attached = {session_name: other for session_name, other in self._attached.items() if other is not session}
        if session is self._current:
            self._current = None
            self.mode.is_on = False
        print(f"the session {name} is closed")  # noqa: T201

    def _on(self, command: CommandLine) -> None:
        self._current = session = self._session(command.word)
        self.mode.is_on = True
        print(f"every cell runs in the session {session.name} now, until %raysm off")  # noqa: T201

    def _off(self, command: CommandLine) -> None:
        self.mode.is_on = False
        print("cells run here again")  # noqa: T201

    # Sessions

    def _session(self, name: str | None) -> Session:
        if name is not None:
            return self._variable(name) or self._attached.get(name) or self._attach(name, None)
        session = self._current or _entered()
        if session is None:
            raise InvalidRequest("no session is connected: %raysm start begins one, %raysm connect NAME finds one")
        return session

    def _attach(self, name: str, profile: str | None) -> Session:
        on = load_options(profile=profile).get("on") if profile is not None else None
        # Kept: each cell with -s NAME would otherwise connect anew, a second each.
        self._attached[name] = self._opens.attach(name, on)
        return self._attached[name]

    def _variable(self, name: str) -> Session | None:
        value = self._shell.user_ns.get(name)
        # A variable of that name which is something else is not meant.
        return value if isinstance(value, Session) else None


def _entered() -> Session | None:
    session = current_session()
    return session if isinstance(session, Session) else None


def tell(event: Any) -> None:
    """Print what a session says of itself while it begins, as far as its user wants to know it."""
    match event:
        # Its address is of no use to anybody but the client.
        case events.State(name=name) if name == SERVING:
            print("the session takes calls")  # noqa: T201
        case events.State(name="joined" | "formed"):
            print(sentence(event))  # noqa: T201


def _usage_error(text: str) -> Exception:
    from IPython.core.error import UsageError

    error: Exception = UsageError(text)
    return error
