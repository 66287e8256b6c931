"""The magics of one notebook, their options, and ``%load_ext raysm``."""

import argparse
import re
import shlex
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn, Protocol

from IPython.core.error import UsageError
from IPython.core.magic_arguments import MagicArgumentParser

from raysm.client.logs.rendering import sentence
from raysm.client.session.current import current_session
from raysm.client.session.handle import Session
from raysm.client.settings import load_options
from raysm.contract import events
from raysm.contract.session import SERVING
from raysm.errors import InvalidRequest, MissingDependency, RaysmError
from raysm.request import Cluster
from raysm.views.magics.cells import ALL, HEAD, await_cell, in_one_line, run_cell
from raysm.views.magics.remote_mode import MAGIC, Completer, RemoteMode

__all__ = ["CELL", "COMMANDS", "Magics", "Opens", "load_ipython_extension", "print_event", "unload_ipython_extension"]

UNITS_S = {"": 60.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class _Parser(MagicArgumentParser):  # type: ignore[misc]
    def __init__(self, prog: str) -> None:
        # IPython's own formatter is for docstrings.
        super().__init__(prog=prog, add_help=False, formatter_class=argparse.HelpFormatter)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {' '.join(self.format_usage().split())}")

    def read(self, line: str) -> Namespace:
        """Parse a line, split as a shell does."""
        try:
            options: Namespace = self.parse_args(shlex.split(line))
        except ValueError as error:
            self.error(f"{str(error).lower()} in {line.strip()!r}")
        return options


def _identifier(text: str) -> str:
    if not text.isidentifier():
        raise ArgumentTypeError(f"must be the name of a variable, got {text!r}")
    return text


def _identifiers(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not all(name.isidentifier() for name in names):
        raise ArgumentTypeError(f"must be names of variables, a,b, got {text!r}")
    return names


def _instances(text: str) -> tuple[str, ...]:
    # An instance that is named twice would run the cell twice.
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names or (len(names) > 1 and {ALL, HEAD} & {*names}):
        raise ArgumentTypeError(f"must be {HEAD}, {ALL}, or names of instances, algo-1,algo-2, got {text!r}")
    return names


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"must be a number from 1 on, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)?", text)
    if match is None or not float(match[1]):
        raise ArgumentTypeError(f"must be a time, 30m, 90s or 2h (a bare number is minutes), got {text!r}")
    return float(match[1]) * UNITS_S[match[2] or ""]


def _cell_parser() -> _Parser:
    parser = _Parser("%%raysm")
    add = parser.add_argument
    add("-s", "--session", metavar="NAME", help="the session's name, or the variable that holds it")
    add("--push", metavar="NAMES", type=_identifiers, default=(), help="variables of the notebook to send before")
    add("--pull", metavar="NAMES", type=_identifiers, default=(), help="variables of the session to fetch afterwards")
    # The other spellings are those of ipyparallel's %%px.
    add("--on", "--targets", "-t", metavar="WHERE", type=_instances, default=(), help="head, all, or instances")
    add("-o", "--out", metavar="NAME", type=_identifier, help="the variable that gets the future")
    add("--async", "-a", "--noblock", dest="is_async", action="store_true", help="do not wait; return the future")
    add("--block", "-b", dest="is_async", action="store_false", help=argparse.SUPPRESS)
    # What `%raysm on` writes: the source is the whole cell, without a line of the magic's own.
    add("--whole", action="store_true", help=argparse.SUPPRESS)
    return parser


def _command_parsers() -> dict[str, _Parser]:
    names = ("start", "connect", "status", "result", "dashboard", "keep", "close", "on", "off")
    parsers = {name: _Parser(f"%raysm {name}") for name in names}
    for name in ("start", "status", "dashboard", "close", "on"):
        parsers[name].add_argument("name", metavar="NAME", nargs="?")
    parsers["connect"].add_argument("name", metavar="NAME")
    parsers["keep"].add_argument("seconds", metavar="TIME", type=_seconds)
    for name in ("start", "connect"):
        parsers[name].add_argument("--profile", metavar="NAME", help="of raysm.toml")
    add = parsers["start"].add_argument
    add("--instances", "-n", dest="count", metavar="NUMBER", type=_count)
    add("--type", dest="instance_type", metavar="TYPE", help="ml.g5.2xlarge")
    add("--idle", dest="idle_timeout_s", metavar="TIME", type=_seconds, help="ends after so long without a call")
    add("--detached", dest="idle_timeout_detached_s", metavar="TIME", type=_seconds, help="the same without a client")
    add("--budget", dest="budget_usd", metavar="USD", type=float)
    return parsers


CELL = _cell_parser()
COMMANDS: Mapping[str, _Parser] = _command_parsers()


class Shell(Protocol):
    """The parts of IPython's shell that the magics use."""

    user_ns: dict[str, Any]
    execution_count: int


class Opens:
    """Starts and finds sessions."""

    def start(self, **options: Any) -> Session:
        """Return a new session; its progress is printed."""
        return Session(**options).start(print_event)

    def attach(self, name: str, on: Any) -> Session:
        """Return a running session."""
        return Session.attach(name, on)


class Magics:
    """``%raysm`` and ``%%raysm`` of one shell.

    Attributes:
        mode: Whether all cells run in the session.
    """

    def __init__(self, shell: Shell, opens: Opens | None = None) -> None:
        """Connect to nothing yet.

        Args:
            shell: Has the notebook's variables.
            opens: None starts and finds raysm's sessions.
        """
        self.mode = RemoteMode()
        self._shell, self._opens = shell, opens or Opens()
        self._current: Session | None = None
        self._attached: dict[str, Session] = {}
        self._latest: tuple[Session, Any] | None = None

    def raysm(self, line: str, cell: str | None = None) -> Any:
        """Run a cell in a session of a cluster, or manage the session.

        %raysm start [NAME] [--instances 2] [--type ml.g5.2xlarge] [--idle 30m] [--detached 5m] [--budget 20]
        %raysm connect NAME | status | dashboard | result | keep 60 | close | on | off

        %%raysm [-s NAME] [--on head|all|algo-2] [--push a,b] [--pull model] [-o future] [--async]
        """
        try:
            return self._command(line) if cell is None else self._cell(CELL.read(line), cell)
        except RaysmError as error:
            # An exception of the cell is shown as the session reported it.
            if hasattr(error, "_render_traceback_"):
                raise
            if isinstance(error, InvalidRequest | MissingDependency):
                raise UsageError(str(error)) from None
            raise in_one_line(error) from None

    def _cell(self, options: Namespace, source: str) -> Any:
        if options.is_async and options.pull:
            raise UsageError("--pull fetches after the cell's end, which --async does not wait for: use one of them")
        session, variables = self._session(options.session), self._shell.user_ns
        value = run_cell(session, options, source, variables, self._shell.execution_count)
        if options.is_async:
            self._latest = session, variables[options.out] if options.out is not None else value
        return value

    def _command(self, line: str) -> Any:
        name, _, rest = (line.strip() or "status").partition(" ")
        if name not in COMMANDS:
            raise UsageError(f"there is no command {name!r}; %raysm has {', '.join(COMMANDS)}")
        options = COMMANDS[name].read(rest)
        match name:
            case "start":
                return self._start(options)
            case "connect":
                self._current = self._variable(options.name) or self._attach(options.name, options.profile)
                return self._current
            case "status":
                return self._session(options.name)
            case "dashboard":
                return self._session(options.name).dashboard()
            case "result":
                if self._latest is None:
                    raise UsageError("no cell was sent with --async")
                return await_cell(*self._latest)
            case "keep":
                session = self._session(None)
                session.keep(minutes=options.seconds / 60)
                return session
            case "close":
                self._close(self._session(options.name))
            case "on":
                self._current = session = self._session(options.name)
                self.mode.is_on = True
                print(f"every cell runs in the session {session.name} now, until %raysm off")  # noqa: T201
            case "off":
                self.mode.is_on = False
                print("cells run here again")  # noqa: T201
        return None

    def _start(self, options: Namespace) -> Session:
        given = {name: value for name, value in vars(options).items() if value is not None}
        # Options of the line override those of the profile.
        base: dict[str, Any] = dict(load_options(profile=given.pop("profile"))) if "profile" in given else {}
        shape = {name: given.pop(name) for name in ("count", "instance_type") if name in given}
        if shape:
            base["cluster"] = replace(base.get("cluster") or Cluster(), **shape)
        self._current = self._opens.start(**base, **given)
        if options.name is not None:
            # Replaces an ended session of the same name.
            self._attached[options.name] = self._current
        return self._current

    def _close(self, session: Session) -> None:
        name = session.name
        session.close()
        # It may be known by its job's name too.
        self._attached = {known: other for known, other in self._attached.items() if other is not session}
        if session is self._current:
            self._current = None
            self.mode.is_on = False
        print(f"the session {name} is closed")  # noqa: T201

    def session_of(self, cell: str) -> Session | None:
        """Return the session in which a cell would run, if it is open; connects to nothing."""
        line = cell.lstrip().partition("\n")[0].removeprefix(MAGIC) if cell.lstrip().startswith(MAGIC) else ""
        try:
            # Completion calls this while the line is still incomplete.
            name = CELL.read(line).session
        except UsageError:
            return None
        return self._current or _entered() if name is None else self._attached.get(name) or self._variable(name)

    def _session(self, name: str | None) -> Session:
        if name is not None:
            return self._variable(name) or self._attached.get(name) or self._attach(name, None)
        session = self._current or _entered()
        if session is None:
            raise UsageError("no session is connected: %raysm start begins one, %raysm connect NAME finds one")
        return session

    def _attach(self, name: str, profile: str | None) -> Session:
        on = load_options(profile=profile).get("on") if profile is not None else None
        # Kept: connecting takes a second, which each cell with -s NAME would pay.
        self._attached[name] = self._opens.attach(name, on)
        return self._attached[name]

    def _variable(self, name: str) -> Session | None:
        value = self._shell.user_ns.get(name)
        return value if isinstance(value, Session) else None


def _entered() -> Session | None:
    session = current_session()
    return session if isinstance(session, Session) else None


def print_event(event: Any) -> None:
    """Print the progress of a session that starts."""
    match event:
        # The event contains an address that only the client needs.
        case events.State(name=name) if name == SERVING:
            print("the session takes calls")  # noqa: T201
        case events.State(name="joined" | "formed"):
            print(sentence(event))  # noqa: T201


class _Loaded:
    """What was added to one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        magics = Magics(shell)
        self._mode, self._completer = magics.mode, Completer(magics.mode, magics.session_of)
        self._matcher = self._completer.matcher()
        shell.register_magic_function(magics.raysm, magic_kind="line_cell", magic_name="raysm")
        shell.input_transformers_cleanup.append(self._mode)
        shell.Completer.custom_matchers.append(self._matcher)

    def remove(self) -> None:
        for table in self._shell.magics_manager.magics.values():
            table.pop("raysm", None)
        self._shell.input_transformers_cleanup.remove(self._mode)
        self._shell.Completer.custom_matchers.remove(self._matcher)
        self._completer.close()


_loaded: dict[int, _Loaded] = {}
"""By shell: a process may have several."""


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a shell of IPython; harmless when repeated."""
    if id(shell) not in _loaded:
        _loaded[id(shell)] = _Loaded(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics; sessions go on."""
    loaded = _loaded.pop(id(shell), None)
    if loaded is not None:
        loaded.remove()
