"""The command line of the user's program: a Python script, another script, or a command."""

from collections.abc import Sequence
from pathlib import Path

from raysm.core.protocol import script_main
from raysm.core.protocol.source import interpreter


def command_line(program: str, args: Sequence[str], *, source: Path, is_command: bool) -> list[str]:
    """Return the words that start a program.

    Args:
        program: A script by its path inside ``source``, or a command.
        args: The arguments.
        source: The folder with the user's source.
        is_command: True for a command, which the system finds by ``PATH``, or by a path in the
            working folder.
    """
    if is_command:
        return [program, *args]
    script = source / program
    before = interpreter(script)
    return [*before, str(script), *args] if before else script_main.command(str(script), args)
