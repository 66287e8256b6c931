"""A sweep in the driver, on the formed cluster.

It leaves a table of its trials and the files of the best.
"""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray

from raysm.core.protocol.events import (
    BEST,
    TABLE,
    TRIALS,
    Trial,
    Trials,
    best_of,
    where_diverged,
)
from raysm.core.protocol.names import TUNING_OBJECTIVE, counted
from raysm.core.protocol.result import ResultFile
from raysm.core.protocol.store import sha256_of
from raysm.errors import InvalidRequest
from raysm.features.sweep.cluster.run import Outcome, run_sweep
from raysm.features.sweep.cluster.study import Study, drawing_by
from raysm.features.sweep.request import SweepWorkload
from raysm.features.sweep.space import Choice
from raysm.instance.log import emit_event
from raysm.instance.work.failure import unpickled
from raysm.instance.work.nodes import cluster_nodes
from raysm.instance.work.parquet import write_parquet
from raysm.instance.work.runner import Runner, leave_on_sigterm


class SweepRunner(Runner[SweepWorkload]):
    def run(self, address: str) -> None:
        self.workload = apply_hyperparameters(self.workload, self.environment.hyperparameters)
        print(self.workload.plan, flush=True)  # noqa: T201
        ray.init(address=address, configure_logging=False)
        # The journal is on disk at all times, so SIGTERM may end the process anywhere.
        leave_on_sigterm()
        root = self.environment.paths.sweep(lasting=self.environment.has_checkpoints)
        draw = None
        if self.workload.draws_itself:
            _, (function,), _ = unpickled(self.payload.function, self.workload.title)
            draw = drawing_by(function, self.workload.title)
        try:
            study = Study(self.workload, draw, root)
            if done := len(study.entries):
                rest = (
                    ""
                    if done < self.workload.trials
                    else "; a larger number of trials would run more"
                )
                kept = counted(done, "trial")
                print(f"sweep: kept {kept} of the earlier run{rest}", flush=True)  # noqa: T201
            outcome = run_sweep(self.workload, study, cluster_nodes(), emit_event)
            described = write_result(
                outcome, self.workload, study.files, self.environment.paths.model
            )
        finally:
            ray.shutdown()
        self.describe_result(
            {"trials": outcome.seconds},
            packages=self.workload.packages,
            described=described,
            measures={
                "trials": float(len(outcome.entries)),
                "resumed_trials": float(outcome.resumed),
            },
            summary=". ".join([summarize(outcome, self.workload), *outcome.notes]),
        )


def apply_hyperparameters(
    workload: SweepWorkload, hyperparameters: Mapping[str, str]
) -> SweepWorkload:
    """Return the sweep to run: in a tuning job one trial with the values that the service chose."""
    # Only a tuning job sets this; a user's own hyperparameters may have any other name.
    if TUNING_OBJECTIVE not in hyperparameters:
        return workload
    missing = sorted(set(workload.space) - set(hyperparameters))
    if missing:
        raise InvalidRequest(
            f"the tuning job gave no value of {missing[0]!r}, which the sweep varies"
        )
    values = {
        name: Choice((item.read(hyperparameters[name]),)) for name, item in workload.space.items()
    }
    # stop=None, because the service, which sees the other trials, decides whether this one ends
    # early.
    return dataclasses.replace(
        workload,
        space=values,
        search="grid",
        trials=1,
        stop=None,
        concurrency=None,
        time_budget_s=None,
    )


def write_result(
    outcome: Outcome, workload: SweepWorkload, files: Path, folder: Path
) -> tuple[ResultFile, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    trials = tuple(entry.trial for entry in outcome.entries)
    best = best_of(trials, workload.mode)
    checkpoint = next((item.checkpoint for item in outcome.entries if item.trial is best), None)
    if checkpoint is not None:
        # A copy, because the sweep may be interrupted again before the result is complete.
        shutil.copytree(files / checkpoint, folder / BEST, dirs_exist_ok=True)
    number = None if best is None else best.number
    written = Trials(
        metric=workload.metric, mode=workload.mode, trials=trials, best=number, notes=outcome.notes
    )
    path = written.write(folder)
    # Both formats: JSON keeps every type, and tables are read from Parquet.
    table = to_table(trials)
    columns = [table.column(name).combine_chunks() for name in table.column_names]
    parquet = write_parquet(folder / TABLE, table.schema, [columns], units=("trials",))
    how = f'import json; trials = json.load(open("{TRIALS}"))["trials"]'
    size = path.stat().st_size
    shape = (len(trials),)
    units = ("trials",)
    sha256 = sha256_of(path)
    return parquet, ResultFile(
        name=TRIALS, shape=shape, units=units, bytes=size, sha256=sha256, how_to_read=how
    )


def to_table(trials: Sequence[Trial]) -> pa.Table:
    rows: dict[str, list[Any]] = {
        name: [getattr(trial, name) for trial in trials]
        for name in ("number", "status", "value", "reports", "seconds", "host", "reason")
    }
    for kind in ("params", "metrics"):
        # Trials have different names if a function draws their parameters.
        for name in dict.fromkeys(name for trial in trials for name in getattr(trial, kind)):
            rows[f"{kind}.{name}"] = [getattr(trial, kind).get(name) for trial in trials]
    return pa.table({name: _column(values) for name, values in rows.items()})


def summarize(outcome: Outcome, workload: SweepWorkload) -> str:
    trials = [entry.trial for entry in outcome.entries]
    best = best_of(trials, workload.mode)
    words = {"done": "done", "stopped": "ended early", "failed": "failed"}
    counts = Counter(
        "diverged" if where_diverged(trial) else words[trial.status] for trial in trials
    )
    text = ", ".join(
        f"{counts[word]} {word}" for word in (*words.values(), "diverged") if counts[word]
    )
    found = f"{len(trials)} trial{'s'[: len(trials) != 1]}"
    part = workload.describe_part_of_grid(len(trials))
    if best is None:
        return f"{found}{part}: {text}"
    params = ", ".join(f"{name} = {value}" for name, value in best.params.items())
    value = f"{workload.metric} = {best.value:.6g}"
    how = f"{text}; {workload.direction} {workload.metric}"
    summary = f"best of {found}{part} ({how}): {value} with {params} (trial {best.number})"
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
