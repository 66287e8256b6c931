"""Compares all pairs, whatever the mode and wherever the rows lie: tasks go out, parts come in, with their progress."""

import math

from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.similarity.layouts.layout import Dispatch
from raysm.workloads.similarity.modes import Collector, Mode
from raysm.workloads.similarity.runs import Report, Run

__all__ = ["compare"]


def compare(run: Run, mode: Mode, dispatch: Dispatch, collector: Collector, report: Report) -> None:
    """Have every task done that no earlier run did, and its part taken in; announce the progress, in rows.

    Raises:
        NoRoom: The head's disk became full.
        BlockFailed: A task failed on every attempt.
        InstanceLost: An instance went away for good whose rows are nowhere else.
    """
    queue, rows = dispatch.queue(collector), run.queries.rows
    throttle = ProgressThrottle("similarity", rows, "rows", report.emit_event)
    # A task counts by its pairs; pieces of one that is given up count together as much as it did.
    whole = sum(task.area for task in dispatch.tasks)
    reached = 0.0
    pieces: dict[str, float] = {}
    report.count(dispatch.tasks, collector.recorded)
    function = dispatch.function(collector.comparing or mode, run.context)
    with report.phase("similarity"):
        for task, part in dispatch.parts(function, queue, collector.recorded):
            report.add(part)
            again = queue.finished(task, collector.take(task, part))
            # The next part comes while this name would still hold the last.
            del part
            area = pieces.pop(str(task), task.area)
            if again:
                total = sum(piece.area for piece in again)
                pieces |= {str(piece): area * piece.area / total for piece in again}
                continue
            reached += area
            throttle.reach(min(rows, math.floor(rows * reached / whole)))
        # The areas are fractions, and rounded down above: their sum may end a row short.
        throttle.reach(rows)
    report.sent_bytes.update(dispatch.sent_bytes(queue))
