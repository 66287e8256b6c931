"""The commands of sessions: raysm session start, list, attach, keep, close; and raysm exec."""

import code
import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from raysm.cli.arguments import Arguments
from raysm.cli.config import read_settings, service_to_read
from raysm.cli.console import Console, say_aside
from raysm.cli.sending import cluster, print_plan
from raysm.core.client.logs.rendering import sentence
from raysm.core.client.service import Service
from raysm.core.client.settings import Settings, packaged_options
from raysm.core.protocol.events import Event, State
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest
from raysm.features.session.client.handle import Session
from raysm.features.session.client.start import list_sessions
from raysm.features.session.client.view import describe_detached, list_facts

Read = Callable[[str], str]

OPTIONS_WITHOUT_MEANING = ("if_done", "resume", "regions", "region_wait_s")
"""Options of jobs that do not apply to sessions, which have neither result nor saved state, and
stay where they are."""


def run(arguments: Arguments, console: Console, service: Service | None = None) -> int:
    if arguments.command == "exec":
        return _exec(arguments, service or service_to_read(arguments))
    verbs = {"start": _start, "list": _list, "attach": _attach, "keep": _keep, "close": _close}
    verbs[arguments.verb](arguments, console, service)
    return 0


def _start(arguments: Arguments, console: Console, service: Service | None) -> None:
    settings = read_settings(arguments)
    session = Session(on=service or settings.target(), **choose_options(arguments, settings))
    if arguments.dry_run:
        print_plan(session.prepare())
        return
    progress = Console(stderr=True) if arguments.json else console

    def show(event: Event) -> None:
        match event:
            case State() if text := sentence(event):
                progress.print(Text(text), soft_wrap=True)

    session.start(show)
    _print_state(session, arguments, console)
    if not arguments.json:
        job = session.job
        _print_row(console, "dashboard", job.service.target.way_to_dashboard(job.name))
        # The state above counts this command as a client, which is about to detach.
        _print_row(
            console, *describe_detached(session.name, session.limits.idle_timeout_detached_s)
        )
    session.detach()


def choose_options(arguments: Arguments, settings: Settings) -> dict[str, Any]:
    # Called only for its check: its message names the flag.
    cluster(settings)
    options = {
        name: value
        for name, value in packaged_options(settings).items()
        if name not in OPTIONS_WITHOUT_MEANING
    }
    limits = {
        "idle_timeout_s": arguments.idle,
        "idle_timeout_detached_s": arguments.idle_detached,
        "max_cost": arguments.budget,
    }
    return options | {name: value for name, value in limits.items() if value is not None}


def _print_state(session: Session, arguments: Arguments, console: Console) -> None:
    state = session.state
    if arguments.json:
        print(json.dumps({"name": session.name} | to_json(state), indent=1))
        return
    console.print(Text(f"session {session.name}"), soft_wrap=True)
    for label, text in list_facts(state):
        _print_row(console, label, text)


def _print_row(console: Console, label: str, text: str) -> None:
    console.print(Text(f"  {label:<10}{text}"), soft_wrap=True)


def _list(arguments: Arguments, console: Console, service: Service | None) -> None:
    every = list(list_sessions(service or service_to_read(arguments)))
    if arguments.json:
        print(
            json.dumps(
                [asdict(session) | {"created": session.created.isoformat()} for session in every],
                indent=1,
            )
        )
        return
    if not every:
        console.print("no sessions", highlight=False)
        return
    table = Table("name", "job", "started", box=None, pad_edge=False)
    for session in every:
        table.add_row(Text(session.name), Text(session.job), f"{session.created:%Y-%m-%d %H:%M:%S}")
    console.print(table)


def _attach_to(arguments: Arguments, service: Service | None) -> Session:
    return Session.attach(arguments.name, service or service_to_read(arguments))


def _keep(arguments: Arguments, console: Console, service: Service | None) -> None:
    session = _attach_to(arguments, service)
    try:
        session.keep(arguments.time / 60)
        _print_state(session, arguments, console)
    finally:
        session.detach()


def _close(arguments: Arguments, console: Console, service: Service | None) -> None:
    session = _attach_to(arguments, service)
    name = session.name
    job = session.job.name
    session.close()
    if arguments.json:
        print(json.dumps({"name": name, "job": job}))
    else:
        console.print(Text(f"{name}: closed"))


def _attach(arguments: Arguments, console: Console, service: Service | None) -> None:
    session = _attach_to(arguments, service)
    try:
        _print_state(session, arguments, console)
        if not arguments.json:
            console.print(
                "Python prompt of the session; Ctrl-D leaves it, and the session keeps running",
                style="dim",
            )
            Prompt(session).interact(banner="", exitmsg="")
    finally:
        session.detach()


class Prompt(code.InteractiveConsole):
    """A prompt that reads Python and runs it in the session, until ``read`` raises EOFError."""

    def __init__(self, session: Session, read: Read = input) -> None:
        super().__init__()
        self._session = session
        self.raw_input = read  # type: ignore[assignment]

    def runsource(self, source: str, filename: str = "", symbol: str = "single") -> bool:
        """Run the typed lines, or return True if more lines are needed."""
        # The session reports errors of the syntax.
        with contextlib.suppress(SyntaxError, ValueError, OverflowError):
            # As in Python's own prompt, a block ends with an empty line.
            if code.compile_command(source, symbol=symbol) is None:
                return True
        _run_source(self._session, source, "", ())
        return False


def _exec(arguments: Arguments, service: Service) -> int:
    path = Path(arguments.file)
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the file {arguments.file!r} cannot be read: {error}") from error
    session = Session.attach(arguments.name, service)
    try:
        return _run_source(session, source, path.name, arguments.script_args)
    finally:
        session.detach()


def _run_source(session: Session, source: str, filename: str, args: tuple[str, ...]) -> int:
    """Run source; print its value or, as Python does, its traceback; return the exit code."""
    try:
        shown = session.exec(source, args=args, filename=filename)
    except Exception as error:  # any error of the user's code
        notes = getattr(error, "__notes__", None) or [f"{type(error).__name__}: {error}"]
        say_aside("\n".join(notes))
        return 1
    if shown.result is not None and not filename:
        print(repr(shown.result))
    return 0
