"""The command ``raysm``."""

import io
import pkgutil
import sys
from collections.abc import Sequence

try:
    from rich.text import Text

    from raysm.cli.arguments import parse
    from raysm.cli.console import Console, Interrupted, discard_unread_output, process_started_s, say_last
    from raysm.errors import CredentialsExpired, InvalidConfig, InvalidRequest, MissingDependency, NoRoom, RaysmError
    from raysm.workloads.script_main import leave_at_once_after_exit_handlers
except KeyboardInterrupt:  # these imports take most of the time until a command begins
    sys.exit(130)

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""

OUTPUT_CLOSED = 141
"""128 + SIGPIPE, as shells report it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        0 for success; 1 if a job, a row of a grid or a trial of a sweep failed (the result of the best other trial is
        still fetched), or the doctor found a problem; 2 if the request is invalid; 3 if the doctor found no problem but
        could not check everything; 4 if the credentials have expired and the job keeps running; 130 after Ctrl-C;
        141 if the reader of stdout was gone and the job was stopped.
    """
    if argv is not None:
        return _run(argv)
    # Tearing down the interpreter with all that a job needs would take a quarter of a second after the last line.
    set_exit_status = leave_at_once_after_exit_handlers()
    status = 1
    try:
        status = _run(None)
    except KeyboardInterrupt:  # while the arguments are parsed, or a second one
        status = INTERRUPTED
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        raise
    finally:
        set_exit_status(status)
    return status


def _run(argv: Sequence[str] | None) -> int:
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
        return pkgutil.resolve_name(arguments.run)(arguments, Console()) or 0
    except KeyboardInterrupt as error:
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
        errors.print(Text(f"raysm: {error}"), soft_wrap=True)
        return error.exit_status if isinstance(error, CredentialsExpired) else 1
