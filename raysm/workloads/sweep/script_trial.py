"""A trial of a script: a program of its own, with its parameters as arguments; it ends with the trial.

What flows in is a ``TrialRun``, what flows out are the script's reports, by lines of its output, and all other lines as
they are. Its end is the trial's: another exit code than 0 is a failure, with the last lines that it wrote.
"""

import shutil
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from raysm.contract import payload
from raysm.errors import TrialFailed
from raysm.request.sweep import ScriptSweep
from raysm.workloads import script_main
from raysm.workloads.script_process import TAIL_LINES, headline, lines_of, started
from raysm.workloads.sweep.reports import parse
from raysm.workloads.sweep.trial import TrialRun

__all__ = ["arguments_of", "run_script"]


def run_script(run: TrialRun) -> None:
    """Run the script to its end; its reports go to the trial.

    Raises:
        TrialFailed: It ended otherwise than with 0; the text has its last line, and the lines before.
    """
    workload, source = cast(ScriptSweep, run.workload), run.here.payload / payload.SOURCE
    command = script_main.command(str(source / workload.script), [*arguments_of(run.params), *workload.args])
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    with started(command, source) as process:
        for line in lines_of(process):
            report = parse(line)
            if report is None:
                sys.stdout.write(line)
                # Reports are left out: of a script that failed they say nothing of why.
                tail.append(line.rstrip())
            else:
                run.take(report)
                if report.checkpoint is not None:
                    # A copy that was made for this line alone.
                    shutil.rmtree(report.checkpoint, ignore_errors=True)
        status = process.wait()
    if status:
        raise TrialFailed(headline(status, tail), "\n".join(tail))


def arguments_of(params: Mapping[str, Any]) -> list[str]:
    """Return parameters as arguments: ``--lr=0.01``, the flag alone for True, and nothing for False and None.

    Name and value are one word: argparse takes a second word that begins with ``-`` (-1.6e-05, -relu) as an option.
    """
    arguments: list[str] = []
    for name, value in params.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            # As argparse's store_true takes it.
            arguments.append(flag)
        elif value is not False and value is not None:
            arguments.append(f"{flag}={value}")
    return arguments
