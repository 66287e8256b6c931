"""What a cluster's dashboard last showed, kept for when the cluster is gone: answers by path, and values by time.

The head writes it among the job's outputs, and whoever looks at the job afterwards reads it there. What flows in and
out is one small file.
"""

import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysm.contract.events import Metric
from raysm.errors import InvalidConfig

__all__ = [
    "DASHBOARD_RECORD",
    "DashboardRecord",
    "HISTORY",
    "SNAPSHOT",
    "TASKS",
    "history_key",
    "line_of",
    "pack",
    "samples_of_lines",
    "task_summaries",
    "unpack",
]

DASHBOARD_RECORD = "raysm/dashboard.json.gz"
"""Its name among the job's other outputs."""

# Raised where the form changes: a later client says so, and does not show half of it.
VERSION = 1
"""Of the file's form."""

MOST_BYTES = 64 << 20
"""Of the content; a file that becomes larger is not what was written."""

HISTORY = "raysm_history.jsonl"
"""Of a job that runs, the samples so far: a line for each look, among Ray's own logs on the head, where its dashboard
reads it out to whoever looks."""

TASKS = "api/v0/tasks?detail=1&limit=1000"

SNAPSHOT = (
    "api/version",
    "api/jobs/",
    "logical/actors",
    "nodes?view=summary",
    TASKS,
    "api/v0/placement_groups?detail=1&limit=1000",
    "api/cluster_status?format=1",
    "api/v0/cluster_metadata",
    "api/serve/applications/",
    "events",
    "timezone",
    "usage_stats_enabled",
)
"""What Ray's page asks for, the most important first; the details of a job, an actor, a node follow from it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DashboardRecord:
    """One dashboard, as it was last seen."""

    time_s: float
    """When, in seconds since the epoch."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """What was answered, JSON, by path and query as the page asks."""
    samples: tuple[Metric, ...] = ()
    """How busy the instances were."""


def task_summaries(job_id: str) -> tuple[str, str]:
    """Return the paths by which the page asks for the progress of one of Ray's jobs: by name, and by lineage."""
    by_name = f"api/v0/tasks/summarize?filter_keys=job_id&filter_predicates=%3D&filter_values={job_id}"
    return by_name, f"{by_name}&summary_by=lineage"


def history_key(node_id: str) -> str:
    """Return the path by which the dashboard tells the samples so far.

    Args:
        node_id: The head's, as Ray names it.
    """
    return f"api/v0/logs/file?node_id={node_id}&filename={HISTORY}&lines=-1"


def line_of(samples: Sequence[Metric]) -> str:
    """Return the samples of one look, which are of one time, as a line of ``HISTORY``."""
    by_name: dict[str, dict[str, float]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, {})[sample.host] = float(f"{sample.value:.6g}")
    return json.dumps([round(samples[0].time_s) if samples else 0, by_name], separators=(",", ":")) + "\n"


def samples_of_lines(text: str) -> list[Metric]:
    """Return the samples of a ``HISTORY``; the last line may be half a one, which is just being written.

    Raises:
        ValueError: It is none.
    """
    whole, _, _ = text.rpartition("\n")
    samples = []
    for line in whole.splitlines():
        time_s, by_name = json.loads(line)
        for name, by_host in by_name.items():
            samples += [
                Metric(name=name, host=host, time_s=float(time_s), value=float(value))
                for host, value in by_host.items()
            ]
    return samples


def pack(record: DashboardRecord) -> bytes:
    """Return the content of the file."""
    series: dict[str, dict[str, list[list[float]]]] = {}
    for sample in record.samples:
        # To the second and to six digits: thousands of them have to be small.
        point = [round(sample.time_s), float(f"{sample.value:.6g}")]
        series.setdefault(sample.name, {}).setdefault(sample.host, []).append(point)
    # Lists by name and host: a sample of its own as an object would be four times as long.
    content = {"raysm": VERSION, "time_s": record.time_s, "answers": dict(record.answers), "samples": series}
    return gzip.compress(json.dumps(content, separators=(",", ":")).encode(), compresslevel=5)


def unpack(content: bytes) -> DashboardRecord:
    """Return the record of a file.

    Raises:
        InvalidConfig: It is no such file, or of a later version.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            # At most so much: a few kilobytes of gzip can be gigabytes.
            data = json.loads(file.read(MOST_BYTES))
        if data["raysm"] != VERSION:
            raise InvalidConfig(f"the dashboard was kept by another version of raysm, in form {data['raysm']!r}")
        samples = tuple(_samples(data["samples"]))
        return DashboardRecord(time_s=float(data["time_s"]), answers=dict(data["answers"]), samples=samples)
    # It is a ValueError, too, and has its sentence already.
    except InvalidConfig:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidConfig(f"{DASHBOARD_RECORD} is not what raysm left: {error}") from error


def _samples(series: Mapping[str, Mapping[str, Iterable[tuple[float, float]]]]) -> Iterable[Metric]:
    for name, by_host in series.items():
        for host, points in by_host.items():
            yield from (Metric(name=name, host=host, time_s=time_s, value=value) for time_s, value in points)
