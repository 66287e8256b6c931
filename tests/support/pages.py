"""Pages of the docs: what they show as output, and a run of their commands from top to bottom, as a newcomer does."""

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"

VARIES = re.compile(
    r"…|\w+-\d{8}-\d{6}-\w{8}|\w+-\w{6}-\w{8}-a\d"  # names of jobs
    r"|(?<=127\.0\.0\.1:)\d+|(?<=\.py:)\d+|(?<=line )\d+|(?<=Python )[\d.]+|(?<=Ray )[\d.]+|(?<=host name )\w+"
    r"|[\d.]+(?= (?:cores|GB|GiB)\b)|\d{4}-\d\d\b|/root/\.raysm| {2,}"
)
"""What differs between two runs: ``…``, names, ports, lines of a program, versions, sizes, months,
folders, columns."""


def outputs(page):
    """Return what a page, by its path in docs, shows as output: the text of each of its text blocks."""
    return re.findall(r"```text\n(.*?)\n```", (DOCS / page).read_text(), re.DOTALL)


def assert_printed(shown, printed):
    """Assert that each line of ``shown`` is a line of ``printed``, except for what differs between two runs."""
    for line in shown.splitlines():
        pattern = ".*".join(map(re.escape, VARIES.split(line)))
        assert re.search(rf"^[ ]*{pattern}[ ]*$", printed, re.MULTILINE), (
            f"{line!r} is not in:\n{printed[-6000:]}"
        )


def run_page(page, folder, home, but=re.compile("$^")):
    """Write a page's Python files into ``folder`` and run its bash blocks there; return what they print.

    ``home`` is the RAYSM_HOME of the commands. Lines that ``but`` matches are left out.
    """
    script = ["set -euo pipefail\n"]
    for language, file, code in re.findall(
        r"```(bash|python)\n(?:# (\S+\.py)\n)?(.*?)```", page.read_text(), re.DOTALL
    ):
        if language == "bash":
            script.append(but.sub("", code))
        elif file:
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
    # The page's python3 and raysm are those that run this test.
    commands = folder / "bin"
    commands.mkdir(parents=True)
    for name, arguments in (("python3", ""), ("raysm", "-m raysm")):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"PATH": f"{commands}:{os.environ['PATH']}", "RAYSM_HOME": str(home)}
    done = subprocess.run(
        ["bash", "-c", "".join(script)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
