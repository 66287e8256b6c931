"""Parse the arguments of one command, run it, and report its errors."""

import io
import os
import pkgutil
import sys
from collections.abc import Sequence

from rich.text import Text

from raysm.cli.arguments import parse
from raysm.cli.console import (
    Console,
    discard_unread_output,
    is_of_output,
    process_started_s,
    say_last,
)
from raysm.cli.interrupts import INTERRUPTED, OF_THE_PROCESS, REPEATED_S, Interrupted
from raysm.errors import (
    CredentialsExpired,
    InvalidConfig,
    InvalidRequest,
    MissingDependency,
    NoRoom,
    RaysmError,
)

OUTPUT_CLOSED = 141
"""128 + SIGPIPE, as shells report it."""


def run(argv: Sequence[str] | None) -> int:
    # Outside of the try block, because argparse reports errors itself and exits with 2.
    arguments = parse(sys.argv[1:] if argv is None else argv)
    if argv is None:
        # The user has waited for this command's imports too.
        arguments.started_s = process_started_s()
    # On stderr, which the user sees even if a pipe reads stdout.
    errors = Console(stderr=True)
    for stream in (sys.stdout, sys.stderr):
        # The name of a file may contain bytes that are not UTF-8; they are escaped.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        OF_THE_PROCESS.raise_if_lost()
        status = pkgutil.resolve_name(arguments.run)(arguments, Console()) or 0
        # Otherwise a full disk would be noticed only by the interpreter's end.
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as error:
        OF_THE_PROCESS.ignore_for(REPEATED_S)
        unsent = "; nothing was sent" if arguments.sends_job and not arguments.has_sent else ""
        say_last(errors, str(error) if isinstance(error, Interrupted) else f"interrupted{unsent}")
        discard_unread_output()
        return INTERRUPTED
    except BrokenPipeError:  # raysm logs NAME | head
        discard_unread_output()
        return OUTPUT_CLOSED if arguments.sends_job else 0
    # 2 as from argparse: nothing was sent, and the same command will fail again.
    except (InvalidRequest, InvalidConfig, MissingDependency, NoRoom) as error:
        errors.print(Text(f"raysm: {error}"), soft_wrap=True)
        return 2
    except (RaysmError, OSError) as error:
        say_last(errors, f"raysm: {_described(error)}")
        if isinstance(error, OSError) and is_of_output(error):
            discard_unread_output()
        return error.exit_status if isinstance(error, CredentialsExpired) else 1


def _described(error: Exception) -> str:
    match error:
        case FileNotFoundError(filename=None) if not _has_working_folder():
            return "the working folder was deleted; change to one that exists: cd"
        case OSError() if is_of_output(error):
            return f"the output cannot be written: {error.strerror}; the disk or device behind stdout or stderr is full"
    return str(error)


def _has_working_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
