"""``%raysm`` and ``%%raysm`` of one notebook, and ``%load_ext raysm``."""

import argparse
import concurrent.futures
import contextlib
import re
import shlex
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from IPython.core.completer import SimpleCompletion, context_matcher
from IPython.core.error import UsageError

from raysm.core.client.logs.rendering import sentence
from raysm.core.client.settings import load_options
from raysm.core.protocol import events
from raysm.core.request import Cluster
from raysm.core.request.durations import brief_duration, parse_duration
from raysm.errors import InvalidRequest, MissingDependency, RaysmError, SessionEnded
from raysm.features.session.client.current import current_session
from raysm.features.session.client.handle import Session
from raysm.features.session.notebook.cells import await_cell, in_one_line, run_cell
from raysm.features.session.protocol import SERVING

MAGIC = "%%raysm"
HERE = ("%raysm", "%%raysm")
"""Cells that begin so run here; other magics are the session's."""

NAME = re.compile(r"(?<![\w.)\]}'\"])[^\W\d]\w*(\.\w*)*$")
"""A name with dots, which can be completed without executing anything."""

COMPLETED_S = 2.0
"""The longest wait while the user types."""

COMMANDS = ("start", "connect", "status", "result", "dashboard", "keep", "close", "on", "off")


class _Parser(argparse.ArgumentParser):
    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, add_help=False, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; {' '.join(self.format_usage().split())}")

    def read(self, line: str) -> Namespace:
        try:
            options: Namespace = self.parse_args(shlex.split(line))
        except ValueError as error:
            self.error(f"{str(error).lower()} in {line.strip()!r}")
        return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _seconds(text: str) -> float:
    return _read_duration(text, bare=None)


def _kept_s(text: str) -> float:
    # As documented; the answer shows until when.
    return _read_duration(text, bare="m")


def _read_duration(text: str, bare: str | None) -> float:
    try:
        seconds = parse_duration(text, bare=bare)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not seconds:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text!r}")
    return seconds


def _cell_parser() -> _Parser:
    parser = _Parser("%%raysm")
    add = parser.add_argument
    add("-s", "--session", metavar="NAME", help="the session's name, or the variable that holds it")
    add(
        "--push",
        metavar="NAMES",
        type=_names,
        default=(),
        help="variables of the notebook to send before",
    )
    add(
        "--pull",
        metavar="NAMES",
        type=_names,
        default=(),
        help="variables of the session to fetch afterwards",
    )
    # The other spellings are those of ipyparallel's %%px.
    add(
        "--on",
        "--targets",
        "-t",
        metavar="WHERE",
        type=_names,
        default=(),
        help="head, all, or instances",
    )
    add("-o", "--out", metavar="NAME", help="the variable that gets the future")
    add(
        "--async",
        "-a",
        "--noblock",
        dest="is_async",
        action="store_true",
        help="do not wait; return the future",
    )
    add("--block", "-b", dest="is_async", action="store_false", help=argparse.SUPPRESS)
    # What `%raysm on` writes: the source is the whole cell, without a line of the magic's own.
    add("--whole", action="store_true", help=argparse.SUPPRESS)
    return parser


def _line_parser() -> _Parser:
    parser = _Parser("%raysm")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    parsers = {name: commands.add_parser(name, prog=f"%raysm {name}") for name in COMMANDS}
    for name in ("start", "status", "dashboard", "close", "on"):
        parsers[name].add_argument("name", metavar="NAME", nargs="?")
    parsers["connect"].add_argument("name", metavar="NAME")
    parsers["keep"].add_argument("seconds", metavar="TIME", type=_kept_s)
    for name in ("start", "connect"):
        parsers[name].add_argument("--profile", metavar="NAME", help="of raysm.toml")
    add = parsers["start"].add_argument
    add("--instances", "-n", dest="count", metavar="NUMBER", type=int)
    add("--type", dest="instance_type", metavar="TYPE", help="ml.g5.2xlarge")
    add(
        "--idle",
        dest="idle_timeout_s",
        metavar="TIME",
        type=_seconds,
        help="ends after so long without a call",
    )
    add(
        "--detached",
        dest="idle_timeout_detached_s",
        metavar="TIME",
        type=_seconds,
        help="the same without a client",
    )
    add(
        "--max-cost",
        "--budget",
        dest="max_cost",
        metavar="USD",
        type=float,
        help="the most that it may cost",
    )
    return parser


CELL = _cell_parser()
LINE = _line_parser()


def _started(**options: Any) -> Session:
    return Session(**options).start(_print_event)


def _print_event(event: Any) -> None:
    match event:
        # The event contains an address that only the client needs.
        case events.State(name=name) if name == SERVING:
            print("the session accepts calls")  # noqa: T201
        case events.State(name="joined" | "formed"):
            print(sentence(event))  # noqa: T201


class Magics:
    """``%raysm`` and ``%%raysm`` of one shell of IPython.

    Attributes:
        mode: Whether all cells run in the session.
    """

    def __init__(
        self,
        shell: Any,
        start: Callable[..., Session] = _started,
        attach: Callable[[str, Any], Session] = Session.attach,
    ) -> None:
        self.mode = RemoteMode()
        self._shell = shell
        self._start_session = start
        self._attach_session = attach
        self._current: Session | None = None
        self._attached: dict[str, Session] = {}
        self._latest: tuple[Session, Any] | None = None

    def raysm(self, line: str, cell: str | None = None) -> Any:
        """Run a cell in a session of a cluster, or manage the session.

        %raysm start [NAME] [--instances 2] [--type ml.g5.2xlarge] [--idle 30m] [--detached 5m]
            [--max-cost 20]
        %raysm connect NAME | status | dashboard | result | keep 60m | close | on | off

        %%raysm [-s NAME] [--on head|all|algo-2] [--push a,b] [--pull model] [-o future] [--async]
        """
        try:
            return (
                self._command(LINE.read(line.strip() or "status"))
                if cell is None
                else self._cell(line, cell)
            )
        except RaysmError as error:
            # An exception of the cell is shown as the session reported it.
            if hasattr(error, "_render_traceback_"):
                raise
            if isinstance(error, InvalidRequest | MissingDependency):
                raise UsageError(str(error)) from None
            raise in_one_line(error) from None

    def _cell(self, line: str, source: str) -> Any:
        options = CELL.read(line)
        if options.is_async and options.pull:
            raise UsageError(
                "--pull fetches after the cell's end, "
                "which --async does not wait for: use one of them"
            )
        session = self._session(options.session)
        variables = self._shell.user_ns
        try:
            value = run_cell(session, options, source, variables, self._shell.execution_count)
        except SessionEnded:
            # The next cell may use a later session of that name. This one fails, because the
            # variables are lost.
            self._forget(session)
            raise
        if options.is_async:
            self._latest = session, variables[options.out] if options.out is not None else value
        return value

    def _command(self, options: Namespace) -> Any:
        match options.command:
            case "start":
                return self._start(options)
            case "connect":
                self._current = self._variable(options.name) or self._attach(
                    options.name, options.profile
                )
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
                duration = brief_duration(options.seconds)
                print(f"no idle end of {session.name} for the next {duration}")  # noqa: T201
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
        given = {
            name: value
            for name, value in vars(options).items()
            if value is not None and name != "command"
        }
        # Options of the line override those of the profile.
        base: dict[str, Any] = (
            dict(load_options(profile=given.pop("profile"))) if "profile" in given else {}
        )
        shape = {name: given.pop(name) for name in ("count", "instance_type") if name in given}
        if shape:
            base["cluster"] = replace(base.get("cluster") or Cluster(), **shape)
        self._current = self._start_session(**base, **given)
        if options.name is not None:
            # Replaces an ended session of the same name.
            self._attached[options.name] = self._current
        return self._current

    def _close(self, session: Session) -> None:
        name = session.name
        session.close()
        if session is self._current:
            self.mode.is_on = False
        self._forget(session)
        print(f"the session {name} is closed")  # noqa: T201

    def _forget(self, session: Session) -> None:
        # It may be known by its job's name too.
        self._attached = {
            known: other for known, other in self._attached.items() if other is not session
        }
        if session is self._current:
            self._current = None

    def session_of(self, cell: str) -> Session | None:
        """Return the session in which a cell would run, if it is open; connects to nothing."""
        line = (
            cell.lstrip().partition("\n")[0].removeprefix(MAGIC)
            if cell.lstrip().startswith(MAGIC)
            else ""
        )
        try:
            # Completion calls this while the line is still incomplete.
            name = CELL.read(line).session
        except UsageError:
            return None
        return (
            self._current or _entered()
            if name is None
            else self._attached.get(name) or self._variable(name)
        )

    def _session(self, name: str | None) -> Session:
        if name is not None:
            return self._variable(name) or self._attached.get(name) or self._attach(name, None)
        session = self._current or _entered()
        if session is None:
            raise UsageError(
                "no session is connected: %raysm start begins one, %raysm connect NAME finds one"
            )
        return session

    def _attach(self, name: str, profile: str | None) -> Session:
        on = load_options(profile=profile).get("on") if profile is not None else None
        # Kept: connecting takes a second, which each cell with -s NAME would pay.
        self._attached[name] = self._attach_session(name, on)
        return self._attached[name]

    def _variable(self, name: str) -> Session | None:
        value = self._shell.user_ns.get(name)
        return value if isinstance(value, Session) else None


def _entered() -> Session | None:
    session = current_session()
    return session if isinstance(session, Session) else None


class RemoteMode:
    """An input transformer of IPython that puts the magic's line before each cell while it is on.

    Attributes:
        is_on: Whether cells run in the session.
        has_side_effects: Makes IPython skip it when it checks whether a cell is complete.
    """

    has_side_effects = True

    def __init__(self) -> None:
        self.is_on = False

    def __call__(self, lines: list[str]) -> list[str]:
        first = next((line.strip() for line in lines if line.strip()), "")
        if not self.is_on or not first or first.startswith(HERE):
            return lines
        return [f"{MAGIC} --whole\n", *lines]

    def covers(self, cell: str) -> bool:
        return cell.lstrip().startswith(MAGIC) or (
            self.is_on and not cell.lstrip().startswith(HERE)
        )


class Completer:
    def __init__(self, mode: RemoteMode, session: Callable[[str], Any]) -> None:
        self._mode = mode
        self._session = session
        # In a thread, so that a broken connection does not block the user's typing.
        self._asking = concurrent.futures.ThreadPoolExecutor(1, "raysm completion")

    def matches(self, cell: str, before: str) -> tuple[str, list[str]]:
        """Return the name at the end of ``before``, the line up to the cursor, and completions."""
        word = NAME.search(before)
        session = self._session(cell) if word and self._mode.covers(cell) else None
        if word is None or session is None:
            return "", []
        completion = self._asking.submit(session.complete, word[0])
        with contextlib.suppress(RaysmError, concurrent.futures.TimeoutError):
            # Python's completer adds the parenthesis of a call.
            return word[0], [match.rstrip("( ") for match in completion.result(COMPLETED_S)]
        return "", []

    def matcher(self) -> Callable[[Any], Any]:
        @context_matcher()  # type: ignore[untyped-decorator]
        def raysm_matcher(context: Any) -> Any:
            name, matches = self.matches(context.full_text, context.text_until_cursor)
            # Names of this kernel do not exist in the session.
            completions = [SimpleCompletion(text=match, type="raysm") for match in matches]
            return {"completions": completions, "matched_fragment": name, "suppress": bool(matches)}

        matcher: Callable[[Any], Any] = raysm_matcher
        return matcher

    def close(self) -> None:
        self._asking.shutdown(wait=False, cancel_futures=True)


_loaded: dict[int, contextlib.ExitStack] = {}
"""By shell, of which a process may have several: what removes the magics from it."""


def load_ipython_extension(shell: Any) -> None:
    """Add the magics to a shell of IPython; harmless when repeated."""
    if id(shell) in _loaded:
        return
    magics = Magics(shell)
    completer = Completer(magics.mode, magics.session_of)
    matcher = completer.matcher()
    shell.register_magic_function(magics.raysm, magic_kind="line_cell", magic_name="raysm")
    shell.input_transformers_cleanup.append(magics.mode)
    shell.Completer.custom_matchers.append(matcher)
    remove = _loaded[id(shell)] = contextlib.ExitStack()
    remove.callback(completer.close)
    remove.callback(shell.Completer.custom_matchers.remove, matcher)
    remove.callback(shell.input_transformers_cleanup.remove, magics.mode)
    for table in shell.magics_manager.magics.values():
        remove.callback(table.pop, "raysm", None)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics; sessions go on."""
    _loaded.pop(id(shell), contextlib.ExitStack()).close()
