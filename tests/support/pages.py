"""Pages of the docs that are run from top to bottom, as a newcomer runs them."""

import os
import re
import subprocess
import sys


def run_page(page, folder, home, but=re.compile("$^")):
    """Write a page's Python files into ``folder`` and run its bash blocks there; return what they print.

    ``home`` is the RAYSM_HOME of the commands. Lines that ``but`` matches are left out.
    """
    script = ["set -euo pipefail\n"]
    for language, code in re.findall(r"```(bash|python)\n(.*?)```", page.read_text(), re.DOTALL):
        if language == "bash":
            script.append(but.sub("", code))
            continue
        path = folder / code.splitlines()[0].removeprefix("# ")
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
        ["bash", "-c", "".join(script)], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
