"""The result of a sweep: the table of its trials, as JSON and as Parquet, and the files of the best one."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from raysm.contract.events import BEST, TABLE, TRIALS, Trial, Trials, best_of
from raysm.contract.result import ResultFile
from raysm.contract.store import sha256_of
from raysm.request.sweep import SweepWorkload
from raysm.workloads.parquet import write_parquet
from raysm.workloads.sweep.run import Outcome

__all__ = ["summary_of", "table_of", "write_result"]


def write_result(outcome: Outcome, workload: SweepWorkload, files: Path, folder: Path) -> tuple[ResultFile, ...]:
    """Write the result into ``folder``; return a description of its tables.

    Args:
        outcome: What the sweep found.
        workload: The sweep.
        files: Folder of the trials' checkpoints.
        folder: The head's model folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    trials = tuple(entry.trial for entry in outcome.entries)
    best = best_of(trials, workload.mode)
    checkpoint = next((item.checkpoint for item in outcome.entries if item.trial is best), None)
    if checkpoint is not None:
        # A copy, because the sweep may be interrupted again before the result is complete.
        shutil.copytree(files / checkpoint, folder / BEST, dirs_exist_ok=True)
    number = None if best is None else best.number
    written = Trials(metric=workload.metric, mode=workload.mode, trials=trials, best=number, notes=outcome.notes)
    path = written.write(folder)
    # Both formats: JSON keeps every type, and Parquet is what tables are read from.
    table = table_of(trials)
    columns = [table.column(name).combine_chunks() for name in table.column_names]
    parquet = write_parquet(folder / TABLE, table.schema, [columns], units=("trials",))
    described = ResultFile(
        name=TRIALS,
        shape=(len(trials),),
        units=("trials",),
        bytes=path.stat().st_size,
        sha256=sha256_of(path),
        how_to_read=f'import json; trials = json.load(open("{TRIALS}"))["trials"]',
    )
    return parquet, described


def table_of(trials: Sequence[Trial]) -> pa.Table:
    """Return one row for each trial: its own fields, parameters (``params.lr``) and metrics (``metrics.loss``)."""
    rows: dict[str, list[Any]] = {
        name: [getattr(trial, name) for trial in trials]
        for name in ("number", "status", "value", "reports", "seconds", "host", "reason")
    }
    for kind in ("params", "metrics"):
        # Trials have different names if a function draws their parameters.
        for name in dict.fromkeys(name for trial in trials for name in getattr(trial, kind)):
            rows[f"{kind}.{name}"] = [getattr(trial, kind).get(name) for trial in trials]
    return pa.table({name: _column(values) for name, values in rows.items()})


def summary_of(outcome: Outcome, workload: SweepWorkload) -> str:
    """Describe the best trial, the direction that made it the best, and how many trials failed and why."""
    trials = [entry.trial for entry in outcome.entries]
    best = best_of(trials, workload.mode)
    counts = {status: sum(trial.status == status for trial in trials) for status in ("done", "stopped", "failed")}
    words = {"done": "done", "stopped": "ended early", "failed": "failed"}
    text = ", ".join(f"{count} {words[status]}" for status, count in counts.items() if count)
    found = f"{len(trials)} trial{'s'[: len(trials) != 1]}"
    if best is None:
        return f"{found}: {text}"
    params = ", ".join(f"{name} = {value}" for name, value in best.params.items())
    value = f"{workload.metric} = {best.value:.6g}"
    summary = (
        f"best of {found} ({text}; {workload.direction} {workload.metric}): {value} with {params} (trial {best.number})"
    )
    failed = [trial for trial in trials if trial.status == "failed"]
    if not failed:
        return summary
    reason = (failed[0].reason.splitlines() or ["no reason was recorded"])[0]
    return f"{summary}. {len(failed)} of {found} failed, trial {failed[0].number} with: {reason}"


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    # OverflowError is a number beyond 64 bits, for example a seed.
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        # Numbers and texts in one choice become one column of texts.
        return pa.array([None if value is None else str(value) for value in values])
