"""Record a command and what it prints as a picture: ``python3 -m tests.support.record PICTURE.svg raysm demo``."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 100


def main(picture: str, *command: str) -> None:
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(
        Text.assemble(("$ ", "bold green"), (shlex.join(command), "bold")), soft_wrap=True
    )
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    console.print(Text.from_ansi(ran.stdout.rstrip()))
    svg = console.export_svg(title="raysm", unique_id="run")
    # Without rich's font, which a reader's browser would fetch from another host.
    svg = re.sub(r"@font-face \{.*?\}\n", "", svg, flags=re.DOTALL).replace(
        "Fira Code, monospace", "monospace"
    )
    Path(picture).write_text(re.sub(r"\s+$", "", svg, flags=re.MULTILINE) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
