"""One row of a pack in a worker process: its script as a program of its own, and the files that it leaves.

What flows in is a row, what flows out is how it ended. Whatever its program does, it is the row alone that fails.
"""

import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.bootstrap.variables import retold_variables
from raysm.contract import payload
from raysm.contract.names import STATE
from raysm.contract.result import MODEL, RowOutcome
from raysm.request.pack import PackedRow
from raysm.workloads import script_main
from raysm.workloads.script_process import TAIL_LINES, headline, kill, lines_of, started

__all__ = ["RowBlock", "sizes_below", "run_row"]

DATA = "data"
"""In a row's folder: what its program wrote into $SM_OUTPUT_DATA_DIR."""

STATE_FOLDER = "state"
"""In a row's folder: what $RAYSM_STATE names, from which a row that was interrupted goes on."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A row, as a block of ``map_blocks``."""

    row: PackedRow
    """Which."""
    script: str
    """The script's path in the source that travels."""

    def __str__(self) -> str:
        """Return its name in messages."""
        # Not the row itself: its environment may hold what is not to stand in a log.
        return f"row {self.row.key}"


def run_row(block: RowBlock) -> RowOutcome:
    """Run a row to its end, on this instance; return how it ended."""
    here, row, begun_s = environment.read(), block.row, time.monotonic()
    folder, scratch = here.paths.rows / row.name, here.paths.scratch / "rows" / row.name
    # What a process that was killed has left of the same row.
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        for name in (MODEL, DATA):
            # Made by us: scripts for SageMaker expect the folders to be there.
            (scratch / name).mkdir(parents=True)
        reason = _run(block, here, folder, scratch)
        if not reason:
            _place(scratch, folder)
    except OSError as error:
        # A full disk is this row's fault as far as anybody can tell: the others go on while there is room for them.
        reason = f"{type(error).__name__}: {error}"
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    # Nothing is raised: Ray would try the row again, and so would the job be ended by it.
    return RowOutcome(
        state="failed" if reason else "done",
        reason=reason,
        seconds=round(time.monotonic() - begun_s, 3),
        host=here.current_host,
        files={} if reason else dict(sizes_below(folder)),
    )


def _run(block: RowBlock, here: Environment, folder: Path, scratch: Path) -> str:
    """Run the script; return why it failed, empty where it did not."""
    row, source = block.row, here.payload / payload.SOURCE
    folders = {"model_dir": str(scratch / MODEL), "output_data_dir": str(scratch / DATA)}
    own = retold_variables(environment.inherited(), row.hyperparameters, folders)
    (folder / STATE_FOLDER).mkdir(parents=True, exist_ok=True)
    variables = {**own, STATE: str(folder / STATE_FOLDER), **row.environment}
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    is_late = threading.Event()
    with started(script_main.command(str(source / block.script), row.args), source, variables) as process:

        def end() -> None:
            is_late.set()
            kill(process)

        # Not communicate(timeout=…): a row's lines are to stand in the log as they come.
        timer = threading.Timer(row.max_runtime_s, end)
        timer.daemon = True
        timer.start()
        try:
            for line in lines_of(process):
                # Whose line it is: the log is that of all rows of the job.
                sys.stdout.write(f"[{row.key}] {line}")
                tail.append(line.rstrip())
            status = process.wait()
        finally:
            timer.cancel()
    if is_late.is_set():
        return f"the row took longer than its {row.max_runtime_s} s (max_runtime_s), and was ended"
    return headline(status, tail) if status else ""


def _place(scratch: Path, folder: Path) -> None:
    """Bring what a row has left where it belongs."""
    for name in (MODEL, DATA):
        shutil.rmtree(folder / name, ignore_errors=True)
        # Moved, not copied: both are on one disk where the base folder is, and a model may have gigabytes.
        shutil.move(scratch / name, folder / name)


def sizes_below(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield the files that a row has left, by their names below its folder, each with its size."""
    for part in (MODEL, DATA):
        for path in sorted((folder / part).rglob("*")):
            if path.is_file():
                yield path.relative_to(folder).as_posix(), path.stat().st_size
