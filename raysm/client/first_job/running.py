"""Sends the jobs of the first hour one after the other, follows each to its end, and gathers what was seen.

What flows in are a service, instances and records, what flows out are Outcomes. A job that ends in another way than it
has to is an outcome too: the next one is sent all the same.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from raysm.client.description import Description, outputs_of
from raysm.client.first_job.entering import enter
from raysm.client.first_job.observing import Observation, observed
from raysm.client.first_job.records import Records
from raysm.client.first_job.trials import TRIALS, Trial, prepared
from raysm.client.job import Job
from raysm.client.logs import LogLine
from raysm.client.service import Service
from raysm.client.storage import Storage
from raysm.errors import RaysmError
from raysm.request import Cluster

__all__ = ["Outcome", "run_trials"]

WAIT_S = 3600.0
"""Seconds after which a job that has not ended is stopped: it may wait for capacity, but not for ever."""

SMALL = 4096
"""Bytes up to which what lies in S3 is kept with its content."""

DATA_BYTES = 1 << 16
"""Of the file that the jobs are given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of one trial."""

    trial: Trial
    """Which one."""
    description: Description | None = None
    """The job at its end; None where there is none."""
    observations: tuple[Observation, ...] = ()
    """What its instances said."""
    objects: dict[str, str] = field(default_factory=dict)
    """What it left in S3, by the name below its outputs or its checkpoints: the content of the small ones."""
    delay_s: float | None = None
    """How long its last line took to arrive here."""
    obstacle: str = ""
    """Why it could not be sent or followed."""

    @property
    def is_good(self) -> bool:
        """Whether it ended as it has to."""
        return not self.obstacle and self.description is not None and self.description.status is self.trial.ends

    def said(self, topic: str) -> list[Observation]:
        """Return what its instances said of a topic."""
        return [item for item in self.observations if item.topic == topic]


def run_trials(
    service: Service,
    cluster: Cluster,
    records: Records,
    *,
    folder: Path,
    options: Mapping[str, Any] | None = None,
    trials: Sequence[Trial] = TRIALS,
    show: Callable[[str], None] = lambda text: None,
) -> Generator[Outcome, None, None]:
    """Yield what becomes of each trial; one that runs when the caller goes away is stopped.

    Args:
        service: Where the jobs go.
        cluster: On what.
        records: Where what is seen is written.
        folder: A folder for the file that the jobs are given.
        options: What else all jobs need, as ``raysm.submit`` takes it: networks and keys, tags, an index.
        trials: Which.
        show: Is told what happens, line by line.
    """
    # Bytes that are known: whoever maps the file sees whether they are the right ones.
    (folder / "numbers.bin").write_bytes(bytes(range(256)) * (DATA_BYTES // 256))
    for trial in trials:
        # Before anything is sent: calls are recorded under the name of the trial that makes them.
        records.trial = trial.name
        show(f"{trial.name}: {trial.purpose}")
        try:
            job = prepared(trial, service, cluster, folder, options or {}).send()
        except RaysmError as error:
            yield _kept(Outcome(trial=trial, obstacle=str(error)), [], records)
            continue
        show(f"  {job.name}")
        yield _followed(trial, job, records, show)


def _followed(trial: Trial, job: Job, records: Records, show: Callable[[str], None]) -> Outcome:
    lines: list[LogLine] = []
    entered: list[Observation] = []
    delay_s, obstacle = None, ""
    began_s = time.monotonic()
    try:
        for line in job.lines(follow=True):
            lines.append(line)
            # Of the last line: by the clocks of the service and of this machine, which is enough for seconds.
            delay_s = time.time() - line.time_s
            for ready in _readiness(line):
                # Of a bare job each instance says it: for the second one, the job may be stopped already.
                if trial.stops and not job.done():
                    show("  it is ready; stopping it")
                    job.cancel()
                if trial.is_entered:
                    show("  it is ready; opening a tunnel")
                    entered.append(enter(job, int(ready.values["port"])))
            if time.monotonic() - began_s > WAIT_S:
                obstacle = f"it had not ended after {WAIT_S:.0f} s"
                break
        else:
            # The log has ended, and so has the job: what is left is the service's own tidying.
            job.wait(60)
    except RaysmError as error:
        obstacle = str(error)
    finally:
        # Also where the caller was interrupted: an instance that nobody waits for costs money.
        if not job.done():
            job.cancel()
    outcome = Outcome(
        trial=trial,
        description=job.describe(),
        observations=(*observed(lines), *entered),
        objects=_objects(job),
        delay_s=delay_s,
        obstacle=obstacle,
    )
    return _kept(outcome, lines, records)


def _readiness(line: LogLine) -> list[Observation]:
    """Return what a line says of being ready for what is to happen to the job; nothing of all others."""
    return [item for item in observed([line]) if item.topic == "ready"]


def _objects(job: Job) -> dict[str, str]:
    storage, description = Storage(job.service), job.describe()
    objects: dict[str, str] = {}
    checkpoints = description.answer.get("CheckpointConfig", {}).get("S3Uri")
    # A Processing job has no checkpoints, and so no place of theirs.
    for prefix, place in (("output", outputs_of(description)), ("checkpoints", checkpoints)):
        for item in storage.folder(place) if place else ():
            # What is larger is a model or a log; how large it is answers the question.
            content = storage.read(item.uri) if item.size <= SMALL else None
            objects[f"{prefix}/{item.name}"] = (
                (content or b"").decode(errors="replace") if content else f"{item.size} bytes"
            )
    return objects


def _kept(outcome: Outcome, lines: Sequence[LogLine], records: Records) -> Outcome:
    records.keep("log.txt", "".join(f"{line.host} {line.text}\n" for line in lines) or "(no line)\n")
    for host in sorted({item.host for item in outcome.observations}):
        topics = {item.topic: item.values for item in outcome.observations if item.host == host}
        records.keep(f"{host}.json", topics)
    records.keep("objects.json", outcome.objects)
    answer = {} if outcome.description is None else dict(outcome.description.answer)
    records.keep("description.json", {name: item for name, item in answer.items() if name != "ResponseMetadata"})
    return outcome
