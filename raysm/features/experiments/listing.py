"""The jobs of the service as rows of the table of experiments, with trials of sweeps and calls.

A job that has ended does not change any more, so it is read once and kept in a SQLite file on this
machine. The file only copies what the service knows: a damaged file is replaced.
"""

import contextlib
import itertools
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from raysm.core.client.costs.bill import bill_of, usd_so_far
from raysm.core.client.costs.prices import price_of
from raysm.core.client.job import records
from raysm.core.client.job.description import Description, Status, read
from raysm.core.client.job.experiment import (
    Curve,
    Divergences,
    Experiment,
    Summary,
    curves_of,
    summary_of,
    thinned,
)
from raysm.core.client.job.records import RUN
from raysm.core.client.logs.stream import LogReader
from raysm.core.client.service import Service
from raysm.core.client.storage.s3 import Storage, in_parallel
from raysm.core.protocol.events import Metric, SessionCall, Trial, parse, where_diverged
from raysm.core.protocol.home import private_folder
from raysm.core.protocol.job_api import APIS, JobApi, api_of
from raysm.core.protocol.metric_patterns import MetricPatterns, patterns_of
from raysm.core.protocol.names import FIRST_TAG, PROJECT_TAG, TASK_TAG, WORKLOAD_TAG
from raysm.core.request.durations import parse_duration
from raysm.core.request.workload import typed
from raysm.errors import InvalidRequest, JobNotFound, ServiceError

T = TypeVar("T")

VERSION = 6
"""Part of the file's name: another version of the rows has another file."""
BUSY_S = 10.0
SCHEMA = """
create table if not exists jobs (
    arn text primary key, row text not null, curves text not null, trials text not null
)
"""

FOREIGN_HYPERPARAMETERS = "sagemaker_"
"""The prefix of hyperparameters by which the SageMaker SDK talks to its own images."""


class Cache:
    """The rows, curves and trials of jobs that have ended; use it in one thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> dict[str, Experiment]:
        return {
            arn: Experiment.of_json(row) for arn, row in self._select("select arn, row from jobs")
        }

    def curves(self, arn: str, names: Iterable[str], call: str | None = None) -> dict[str, Curve]:
        """Return curves of a job; ``call`` is the ARN of one of its calls."""
        stored: dict[str, Any] = next(
            (
                json.loads(text)
                for (text,) in self._select("select curves from jobs where arn = ?", arn)
            ),
            {},
        )
        curves = stored.get(call or arn, {})
        return {name: [tuple(point) for point in curves[name]] for name in names if name in curves}

    def trials(self) -> dict[str, list[Experiment]]:
        rows = self._select("select arn, trials from jobs where trials <> '[]'")
        return {
            arn: [Experiment.of_json(row) for row in json.loads(trials)] for arn, trials in rows
        }

    def keep(self, jobs: Iterable["Reading"]) -> None:
        rows = []
        for job in jobs:
            curves = {job.row.arn: job.curves, **job.call_curves}
            trials = [row.as_json() for row in job.trials]
            rows.append((job.row.arn, job.row.as_json(), json.dumps(curves), json.dumps(trials)))
        if rows:
            with contextlib.suppress(sqlite3.Error, OSError, InvalidRequest):
                private_folder(self._path.parent.parent, self._path.parent.name)
                with self._opened() as file:
                    file.executemany("insert or replace into jobs values (?, ?, ?, ?)", rows)

    def forget(self, arns: Iterable[str]) -> None:
        rows = [(arn,) for arn in arns]
        if rows and self._path.exists():
            with contextlib.suppress(sqlite3.Error), self._opened() as file:
                file.executemany("delete from jobs where arn = ?", rows)

    def _select(self, statement: str, *values: str) -> list[tuple[str, ...]]:
        if not self._path.exists():
            return []
        try:
            with self._opened() as file:
                return file.execute(statement, values).fetchall()
        except sqlite3.DatabaseError:  # damaged
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            return []

    @contextlib.contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path, timeout=BUSY_S)) as file, file:
            file.execute(SCHEMA)
            yield file


PAGE = 100
"""Jobs per page of the service's list; each page is read and cached before the next one is
requested."""

MAX_LISTED = 1_000_000
"""More than any list has: pages are read only until enough rows are found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A filter for the jobs of a table.

    None and an empty ``status`` take all jobs; ``limit`` takes the latest ones.
    """

    project: str | None = None
    task: str | None = None
    status: tuple[Status, ...] = ()
    since: datetime | None = None
    contains: str | None = None
    limit: int = 100

    def takes(self, row: Experiment) -> bool:
        return (
            (self.project is None or row.project == self.project)
            and (self.task is None or row.task == self.task)
            and (not self.status or row.status in self.status)
            and (self.since is None or row.created >= self.since)
        )

    def may_take(self, name: str, created: datetime, status: Status) -> bool:
        # Jobs that raysm did not submit have neither project nor task, so their tags need not be
        # read.
        is_run = RUN.search(name) is not None or (self.project is None and self.task is None)
        return (
            is_run
            and (not self.status or status in self.status)
            and (self.since is None or created >= self.since)
        )


def parse_since(since: str | datetime | timedelta | None, now: datetime) -> datetime | None:
    match since:
        case None:
            return None
        case datetime():
            return since if since.tzinfo is not None else since.astimezone()
        case timedelta():
            return now - since
    # Ages and dates may lie outside of Python's calendar.
    with contextlib.suppress(ValueError, OverflowError):
        with contextlib.suppress(InvalidRequest):
            return now - timedelta(seconds=parse_duration(since))
        # A time without a zone is in this machine's zone.
        return datetime.fromisoformat(since.strip()).astimezone(UTC)
    raise InvalidRequest(
        "since is a time, 2026-11-01 or 2026-11-01T12:00, or how long ago, 12h, 7d or 1w; got "
        f"{since!r}"
    )


def open_cache(service: Service) -> Cache:
    where = f"{service.account}-{service.region}" if service.target.is_billed else "here"
    return Cache(service.home / "experiments" / f"{where}-{VERSION}.sqlite")


def experiments(service: Service, choice: Choice) -> list[Experiment]:
    if choice.limit < 1:
        raise InvalidRequest(f"limit must be at least 1, got {choice.limit}")
    cache = open_cache(service)
    cached = cache.rows()
    # As many of each API as are wanted in all: the latest jobs may all belong to one API.
    by_api = in_parallel(lambda api: list(_list_api(service, api, choice, cached, cache)), APIS)
    rows = sorted(itertools.chain(*by_api), key=lambda row: row.created_s, reverse=True)
    return rows[: choice.limit]


def with_trials(service: Service, rows: Iterable[Experiment]) -> list[Experiment]:
    cache = open_cache(service)
    kept = cache.rows()
    trials = cache.trials()

    def trials_of(row: Experiment) -> Sequence[Experiment]:
        if row.trial is not None:
            return ()
        if row.arn in kept:
            return trials.get(row.arn, ())
        reading = read_job(service, api_of(row.kind), row.name)
        return () if reading is None else reading.trials

    every = list(rows)
    of_each = in_parallel(trials_of, every)
    return [item for row, own in zip(every, of_each, strict=True) for item in (row, *own)]


def _list_api(
    service: Service, api: JobApi, choice: Choice, cached: dict[str, Experiment], cache: Cache
) -> Iterator[Experiment]:
    left = choice.limit
    named = _listed(service, api, choice)
    while left > 0 and (page := list(itertools.islice(named, min(PAGE, left)))):
        rows = [row for row in _read(service, api, page, cached, cache) if choice.takes(row)]
        yield from rows[:left]
        left -= len(rows)


def _listed(service: Service, api: JobApi, choice: Choice) -> Iterator[dict[str, Any]]:
    for item in service.summaries(api, contains=choice.contains, limit=MAX_LISTED):
        created: datetime = item["CreationTime"]
        # The list begins with the latest job.
        if choice.since is not None and created < choice.since:
            return
        if choice.may_take(item[api.name_key], created, Status(item[api.status_key])):
            yield item


def _read(
    service: Service,
    api: JobApi,
    page: list[dict[str, Any]],
    cached: dict[str, Experiment],
    cache: Cache,
) -> list[Experiment]:
    # On this machine a name, and with it the ARN, can be used again after `raysm rm`.
    created = {item[api.arn_key]: item["CreationTime"].timestamp() for item in page}
    known = {arn: cached[arn] for arn in created if arn in cached}
    rows = {
        arn: row
        for arn, row in known.items()
        if row.created_s == created[arn] and not _lacks_cost(service, row)
    }
    names = [item[api.name_key] for item in page if item[api.arn_key] not in rows]
    read = in_parallel(lambda name: read_job(service, api, name), names)
    readings = [reading for reading in read if reading is not None]
    cache.keep(reading for reading in readings if reading.is_final)
    rows |= {reading.row.arn: reading.row for reading in readings}
    return [rows[arn] for arn in created if arn in rows]


def _lacks_cost(service: Service, row: Experiment) -> bool:
    if row.cost_usd is not None or not row.is_billed or not row.instances:
        return False
    return all(
        price_of(instance_type, service.region) is not None for instance_type, _ in row.instances
    )


# ---- one job


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    row: Experiment
    curves: Mapping[str, Curve]
    trials: Sequence[Experiment]
    """The trials of a sweep, or the calls of a session that reported metrics."""
    is_final: bool
    """True if the job and what is known of it cannot change any more, so that it may be cached."""
    call_curves: Mapping[str, Mapping[str, Curve]] = field(default_factory=dict)
    """The curves of each call by its ARN."""


def read_job(service: Service, api: JobApi, name: str) -> Reading | None:
    try:
        description = read(api, service.describe(api, name))
    except JobNotFound:
        return None
    is_whole = True

    def optional(ask: Callable[[], T]) -> T | None:
        nonlocal is_whole
        try:
            return ask()
        except (ServiceError, OSError):
            is_whole = False
            return None

    tags = optional(lambda: service.tags(description.arn)) or {}
    record = optional(lambda: _record(service, tags, name))
    trials: list[Trial] = []
    calls: list[SessionCall] = []
    patterns = patterns_of(description.answer)
    metrics = (
        optional(lambda: list(_metrics(LogReader(service, api, name), patterns, trials, calls)))
        or []
    )
    curves = curves_of(metrics)
    diverged = Divergences(metrics)
    summaries = {name: summary_of(curve, diverged.first(name)) for name, curve in curves.items()}
    row = _row(service, description, tags, record, summaries)
    of_calls = call_rows(row, calls, metrics)
    is_late = row.ended_s is not None and time.time() - row.ended_s < service.polling.late_s
    return Reading(
        row=row,
        curves=_thinned(curves),
        trials=[*trial_rows(row, trials), *(call for call, _ in of_calls)],
        call_curves={call.arn: _thinned(own) for call, own in of_calls},
        # The last lines of a log arrive late, and a missing permission may be granted later.
        is_final=description.status.is_terminal and not is_late and is_whole,
    )


def _thinned(curves: Mapping[str, Curve]) -> dict[str, Curve]:
    return {name: thinned(curve) for name, curve in curves.items()}


def _row(
    service: Service,
    description: Description,
    tags: Mapping[str, str],
    record: records.Record | None,
    summaries: Mapping[str, Summary],
) -> Experiment:
    answer = description.answer
    given = answer.get("HyperParameters", {})
    hyperparameters = {
        name: typed(given[name]) for name in given if not name.startswith(FOREIGN_HYPERPARAMETERS)
    }
    # If the log is gone, the service's last values are left.
    final = {item["MetricName"]: item["Value"] for item in answer.get("FinalMetricDataList", ())}
    metrics = {
        name: Summary(last=value, lowest=value, highest=value, count=1)
        for name, value in final.items()
    }
    training = answer.get("AlgorithmSpecification", {})
    processing = answer.get("AppSpecification", {})
    return Experiment(
        name=description.name,
        arn=description.arn,
        kind=description.api.kind,
        status=description.status,
        secondary=description.secondary,
        message=description.reason
        or ("" if description.status.is_terminal else description.message),
        project=tags.get(PROJECT_TAG),
        task=tags.get(TASK_TAG),
        workload=tags.get(WORKLOAD_TAG),
        first=tags.get(FIRST_TAG),
        parameters={**hyperparameters, **({} if record is None else record.parameters)},
        metrics={**metrics, **summaries},
        instances=description.instances,
        created_s=_seconds(description.created) or 0.0,
        started_s=_seconds(description.started),
        ended_s=_seconds(description.ended),
        is_billed=service.target.is_billed,
        cost_usd=_cost(service, description),
        image=str(training.get("TrainingImage") or processing.get("ImageUri") or ""),
        code="" if record is None else record.code,
        versions={} if record is None else record.versions,
    )


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()


def _record(service: Service, tags: Mapping[str, str], name: str) -> records.Record | None:
    if PROJECT_TAG not in tags or TASK_TAG not in tags:
        return None
    prefix = service.places.records(tags[PROJECT_TAG], tags[TASK_TAG])
    # The record of a follow-up job is that of the first one.
    return records.of_job(tags.get(FIRST_TAG, name), prefix, Storage(service))


def _metrics(
    log: LogReader, patterns: MetricPatterns, trials: list[Trial], calls: list[SessionCall]
) -> Iterator[Metric]:
    for line in log.new_lines():
        event = parse(line.text)
        match event:
            case Trial() as trial:
                trials.append(trial)
            case SessionCall() as call:
                calls.append(call)
        yield from (
            metric for metric in patterns.metrics(line.text, event, line.time_s) if not metric.host
        )


def _cost(service: Service, description: Description) -> float | None:
    if not service.target.is_billed:
        return None
    bill = bill_of([description], service.region)
    return usd_so_far(description, service.region, time.time()) if bill is None else bill.usd


# ---- trials and calls

TRIAL_STATUS = {"done": Status.COMPLETED, "stopped": Status.STOPPED, "failed": Status.FAILED}


def trial_rows(job: Experiment, trials: Iterable[Trial]) -> list[Experiment]:
    latest = {trial.number: trial for trial in trials}
    return [_trial_row(job, latest[number]) for number in sorted(latest)]


def call_rows(
    job: Experiment, calls: Iterable[SessionCall], metrics: Iterable[Metric]
) -> list[tuple[Experiment, dict[str, Curve]]]:
    """Return the calls of a session that reported metrics as rows, each with its curves."""
    latest = {call.number: call for call in calls}
    of_call: dict[int | None, list[Metric]] = {}
    for metric in metrics:
        of_call.setdefault(metric.call, []).append(metric)
    rows = []
    for number, call in sorted(latest.items()):
        curves = curves_of(of_call.get(number, ()))
        params = {"call": call.name, **call.params}
        trial = Trial(number=number, status=call.status, params=params, reason=call.reason)
        row = _trial_row(job, replace(trial, seconds=call.seconds, time_s=call.time_s))
        rows.append(
            (
                replace(row, metrics={name: summary_of(curve) for name, curve in curves.items()}),
                curves,
            )
        )
    return rows


def _trial_row(job: Experiment, trial: Trial) -> Experiment:
    status = TRIAL_STATUS.get(trial.status)
    # If the job ended without the end of a trial, the trial was interrupted and a follow-up job
    # continues it.
    running = Status.STOPPED if job.status.is_terminal else Status.IN_PROGRESS
    ended_s = job.ended_s if status is None else trial.time_s
    return Experiment(
        name=f"{job.name}/{trial.number}",
        arn=f"{job.arn}/{trial.number}",
        trial=trial.number,
        kind=job.kind,
        status=status or running,
        message=trial.reason,
        project=job.project,
        task=job.task,
        workload=job.workload,
        first=job.first,
        parameters=dict(trial.params),
        metrics={
            name: Summary(
                last=value,
                lowest=value,
                highest=value,
                count=trial.reports,
                not_finite_from="" if math.isfinite(value) else where_diverged(trial),
            )
            for name, value in trial.metrics.items()
        },
        created_s=trial.time_s - trial.seconds,
        started_s=trial.time_s - trial.seconds,
        ended_s=ended_s,
        # Its job is billed: many trials share one cluster.
        is_billed=False,
        code=job.code,
        versions=job.versions,
    )
