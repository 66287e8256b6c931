"""One trial in a worker process: what Ray Tune calls, around the function or the script of the user's.

What flows in is the trial's config, what flows out are results to Tune: each report with the value that counts, and a
last one that says how the trial ended. What user code raises is a result too: it would raise it again if it were tried
again, and Tune's retries are for processes and instances that die.
"""

import logging
import pkgutil
import random
import shutil
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import tune

from raysm.bootstrap import environment
from raysm.bootstrap.environment import Environment
from raysm.contract.names import TRIAL
from raysm.contract.payload import read_request
from raysm.errors import InvalidRequest, TrialFailed, WorkerFailed
from raysm.request.sweep import SweepWorkload
from raysm.workloads.sweep.calling import EndedEarly
from raysm.workloads.sweep.head_files import HeadFileSystem
from raysm.workloads.sweep.reports import RESTORED, Report, report_of
from raysm.workloads.sweep.schedulers import NOT_FINITE, VALUE

__all__ = [
    "ENDED",
    "METRICS",
    "TrialRun",
    "begin_in",
    "name_of",
    "number_of",
    "run_trial",
    "seed_all",
    "trial_folder",
    "trial_reason",
]

ENDED = "raysm_ended"
"""The key of the last result: how the trial ended, ``done`` or ``failed``."""

METRICS = "raysm_metrics"
"""The key of the metrics by their names; under names of their own they could be taken for Tune's."""

MODEL = "model"
"""In a trial's folder: what $SM_MODEL_DIR names meanwhile."""

TRACEBACK_CHARACTERS = 4000
"""Of its end: results travel to the head and into the log."""


@dataclass(kw_only=True)
class TrialRun:
    """One trial."""

    workload: SweepWorkload
    """Of the sweep."""
    here: Environment
    """What this instance was told."""
    number: int
    """Of the trial."""
    params: Mapping[str, Any]
    """What it tries."""
    folder: Path
    """For this trial alone, on this instance."""
    checkpoint: "tune.Checkpoint | None"
    """What it goes on from; the same is in ``folder`` already."""
    latest: dict[str, float] = field(default_factory=dict)
    """What was reported last, by name."""

    @property
    def seed(self) -> int | None:
        """What all of its processes draw by: their models begin with equal weights, also without DDP's broadcast."""
        return None if self.workload.seed is None else self.workload.seed + self.number

    @property
    def model(self) -> Path:
        """What $SM_MODEL_DIR names."""
        return self.folder / MODEL

    def take(self, report: Report) -> None:
        """Pass a report on to Tune; a trial that is to end now ends in here, by SystemExit."""
        # Before it counts: a report that breaks the rule must not be judged by it.
        self._check_checkpoint(report)
        self._tell(report)

    def end(self, value: object) -> None:
        """Tell what the function returned, and that the trial is done; files in the model folder are its last state."""
        returned = self.metrics_of(value)
        if returned:
            self.take_last(returned)
        self._tell_end({ENDED: "done"})

    def take_last(self, metrics: Mapping[str, float]) -> None:
        """Take the metrics that come without a checkpoint, at the end."""
        self._tell(report_of(metrics, None, None))

    def fail(self, error: BaseException) -> None:
        """Tell why the trial failed."""
        reason, lines = trial_reason(error)
        self._tell_end({ENDED: "failed", "reason": reason, "traceback": lines[-TRACEBACK_CHARACTERS:]})

    def _tell_end(self, how: Mapping[str, Any]) -> None:
        has_files = self.model.is_dir() and any(self.model.iterdir())
        checkpoint = tune.Checkpoint.from_directory(str(self.model)) if has_files else None
        # Without VALUE: this is no report, by which a scheduler would judge.
        tune.report({METRICS: dict(self.latest), **how}, checkpoint=checkpoint)

    def _tell(self, report: Report) -> None:
        self.latest = {name: value for name, value in self.latest.items() if name not in report.not_finite}
        self.latest |= report.metrics
        result: dict[str, Any] = {METRICS: dict(self.latest), "host": self.here.current_host}
        metric = self.workload.metric
        # A NaN compares with nothing: a scheduler that met one would never end a trial again.
        if metric in report.metrics:
            result[VALUE] = report.metrics[metric]
        elif metric in report.not_finite:
            result[NOT_FINITE] = True
        checkpoint = None if report.checkpoint is None else tune.Checkpoint.from_directory(report.checkpoint)
        try:
            tune.report(result, checkpoint=checkpoint)
        except SystemExit as error:
            # So that nobody takes it for an exit of the user's own code.
            raise EndedEarly(0) from error

    def metrics_of(self, value: object) -> dict[str, float]:
        """Return what a function's value says: the metric itself, or several by name; anything else says nothing."""
        named = value if isinstance(value, Mapping) else {self.workload.metric: value}
        # What is no number is passed over: functions also return models and messages.
        numbers = {str(name): _number(item) for name, item in named.items()}
        return {name: number for name, number in numbers.items() if number is not None}

    def _check_checkpoint(self, report: Report) -> None:
        stop = self.workload.stop
        if stop is not None and stop.needs_checkpoints and report.checkpoint is None:
            raise InvalidRequest(
                f"stop={stop.kind!r} lets trials go on with the weights of others, so every report has to bring them: "
                "raysm.report(…, checkpoint=folder); and begin with what raysm.restored() names"
            )


def name_of(number: int, trial_id: str) -> str:
    """Return what Tune calls a trial."""
    return f"trial-{number}-{trial_id}"


def number_of(name: str) -> int:
    """Return a trial's number from its name."""
    # Not from its config: in a population that is another trial's, once it goes on from the other's weights.
    return int(name.split("-")[1])


def run_trial(config: dict[str, Any]) -> None:
    """Do one trial; Tune calls it, in a thread of the trial's process."""
    instance = environment.read()
    # Read here: what Tune pickles into each trial is a few numbers so.
    workload: Any = read_request(instance.payload).workload
    with trial_folder(instance, tune.get_context().get_trial_id()) as folder:
        run = TrialRun(
            workload=workload,
            here=instance,
            number=number_of(tune.get_context().get_trial_name()),
            params=config["params"],
            folder=folder,
            checkpoint=_checkpoint(config),
        )
        _prepare(run)
        try:
            value = pkgutil.resolve_name(workload.trial)(run)
        except EndedEarly:
            raise
        except (Exception, SystemExit) as error:
            run.fail(error)
        else:
            run.end(value)


@contextmanager
def trial_folder(instance: Environment, name: str) -> Iterator[Path]:
    """Make the folder of one process of a trial on this instance, with that for its model in it; remove it after."""
    folder = instance.paths.scratch / "trials" / name
    # What a process that was killed has left of the same trial.
    shutil.rmtree(folder, ignore_errors=True)
    # Made by us: scripts for SageMaker expect $SM_MODEL_DIR to be there.
    (folder / MODEL).mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _checkpoint(config: Mapping[str, Any]) -> "tune.Checkpoint | None":
    latest = tune.get_checkpoint()
    # Tune's own is newer: this trial has been begun again within the same run.
    if latest is not None or config["restored"] is None:
        return latest
    import pyarrow.fs as pafs

    files = pafs.PyFileSystem(HeadFileSystem(config["files"]))
    return tune.Checkpoint(config["restored"], filesystem=files)


def _prepare(run: TrialRun) -> None:
    # It says of each checkpoint that it made it.
    logging.getLogger("ray.train").setLevel(logging.WARNING)
    begin_in(run.folder, run.checkpoint, run.seed)


def begin_in(folder: Path, checkpoint: Any, seed: int | None) -> None:
    """Let the code of a trial in this process find its folders and its checkpoint, and draw by the seed.

    Args:
        folder: The process's, made by ``trial_folder``.
        checkpoint: Tune's, that the trial goes on from; None where it begins.
        seed: None leaves chance as it is.
    """
    # A trial is begun again where it stopped: its code finds the folder by raysm.restored().
    if checkpoint is not None:
        checkpoint.to_directory(folder / RESTORED)
    environment.tell({TRIAL: str(folder), "SM_MODEL_DIR": str(folder / MODEL)})
    if seed is not None:
        seed_all(seed)


def seed_all(seed: int) -> None:
    """Seed the generators that a function may draw from without saying so; of what is not imported none is."""
    random.seed(seed)
    if "numpy" in sys.modules:
        # NumPy's old generator takes 32 bits only.
        sys.modules["numpy"].random.seed(seed % 2**32)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


def trial_reason(error: BaseException) -> tuple[str, str]:
    """Return why a trial failed: one line, and the traceback without raysm's own frames."""
    # What raysm itself says of a script or of another worker is a sentence, and has its lines with it.
    if isinstance(error, TrialFailed | WorkerFailed):
        return str(error), error.remote_traceback
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__name__}"
    lines = "".join(traceback.format_exception(kind, error, _user_frames(error)))
    return f"{name}: {error}".removesuffix(": "), lines


def _number(value: Any) -> float | None:
    """Return a number as a float: a tensor or an array of one value too, and no truth value or text."""
    # float(True) is 1.0, and float("1") too: both are more likely a slip than a metric.
    if value is None or isinstance(value, bool | str):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None


def _user_frames(error: BaseException) -> Any:
    frames = error.__traceback__
    while frames is not None and "raysm/workloads/sweep/" in Path(frames.tb_frame.f_code.co_filename).as_posix():
        frames = frames.tb_next
    return frames
