"""Describe's answer about a Training or Processing job as one frozen value.

It also gives short descriptions of the job.

An unknown status is UNKNOWN, with a warning and never an error: AWS adds some from time to time.
"""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from raysm.core.client.costs.cap import cap_that_ended, limit_of
from raysm.core.client.plan import outputs
from raysm.core.protocol.job_api import JobApi, settled
from raysm.core.protocol.names import counted
from raysm.core.protocol.terminal_text import visible
from raysm.core.request import Target
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.durations import duration

WRAPPED = re.compile(r"AlgorithmError: (.*?)(?:\s*, exit code: (\d+))?", re.DOTALL)
"""A failure file's text as the service wraps it, from public reports of real jobs; the service cuts
long texts off."""


class _Known(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> "_Known":
        text = f"the service reports the {cls.__name__} {value!r}, which this raysm does not know"
        warnings.warn(text, RuntimeWarning, 2)
        return cls("Unknown")


class Status(_Known):
    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    DELETING = "Deleting"
    UNKNOWN = "Unknown"

    @property
    def is_terminal(self) -> bool:
        """True if the status is final; a job with an UNKNOWN status may still run."""
        return self in (Status.COMPLETED, Status.FAILED, Status.STOPPED)


class SecondaryStatus(_Known):
    STARTING = "Starting"
    PENDING = "Pending"
    LAUNCHING = "LaunchingMLInstances"
    PREPARING = "PreparingTrainingStack"
    DOWNLOADING = "Downloading"
    DOWNLOADING_IMAGE = "DownloadingTrainingImage"
    TRAINING = "Training"
    UPLOADING = "Uploading"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    MAX_RUNTIME_EXCEEDED = "MaxRuntimeExceeded"
    MAX_WAIT_EXCEEDED = "MaxWaitTimeExceeded"
    COMPLETED = "Completed"
    FAILED = "Failed"
    INTERRUPTED = "Interrupted"
    RESTARTING = "Restarting"
    UPDATING = "Updating"
    NONE = ""
    UNKNOWN = "Unknown"


NEVER_RAN = (
    SecondaryStatus.STARTING,
    SecondaryStatus.PENDING,
    SecondaryStatus.LAUNCHING,
    SecondaryStatus.PREPARING,
)
"""Statuses of a job before its instances start to work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    name: str
    arn: str
    api: JobApi
    status: Status
    secondary: SecondaryStatus = SecondaryStatus.NONE
    message: str = ""
    """The service's message about the last change of the secondary status."""
    reason: str = ""
    instances: tuple[tuple[str, int], ...] = ()
    selected_type: str | None = None
    """The instance type that a job with a choice of types got; None without a choice, and until it
    is known."""
    created: datetime | None = None
    started: datetime | None = None
    ended: datetime | None = None
    billable_s: int | None = None
    """Seconds that are billed for each instance."""
    training_s: int | None = None
    """Seconds of training; on spot capacity more than are billed."""
    transitions: tuple[tuple[str, datetime | None, datetime | None], ...] = ()
    """Each secondary status with its begin and end."""
    answer: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def exceeded_runtime(self) -> bool:
        return self.status.is_terminal and self.secondary is SecondaryStatus.MAX_RUNTIME_EXCEEDED

    @property
    def used_budget_usd(self) -> float | None:
        """The cap in USD (``max_cost``) whose time limit ended the job; else None."""
        return cap_that_ended(self.answer) if self.reached_limit else None

    @property
    def reached_limit(self) -> bool:
        """True if it ended because its ``max_runtime_s`` was over.

        The limit that a cap on its cost allows counts, too.
        """
        if self.api.has_secondary_status:
            return self.exceeded_runtime
        # A Processing job has no secondary status that names its end.
        if self.status is not Status.STOPPED or self.started is None or self.ended is None:
            return False
        return (self.ended - self.started).total_seconds() >= limit_of(self.answer)

    @property
    def interruptions(self) -> tuple[float, ...]:
        """Seconds of training before each spot interruption, from the start or the previous one."""
        training: datetime | None = None
        seconds: list[float] = []
        for status, begin, _ in self.transitions:
            if status == SecondaryStatus.TRAINING:
                training = begin
            elif status == SecondaryStatus.INTERRUPTED:
                seconds.append((begin - training).total_seconds() if begin and training else 0.0)
        return tuple(seconds)


def outputs_of(description: Description) -> str:
    return outputs(description.api, description.name, description.answer)


def read(api: JobApi, answer: Mapping[str, Any]) -> Description:
    status = Status(answer.get(api.status_key, "Unknown"))
    transitions = answer.get("SecondaryStatusTransitions", ())
    return Description(
        name=answer[api.name_key],
        arn=answer[api.arn_key],
        api=api,
        status=status,
        secondary=SecondaryStatus(answer.get("SecondaryStatus", "")),
        message=transitions[-1].get("StatusMessage", "") if transitions else "",
        reason=_reason(api, status, answer),
        instances=_instances(api, answer),
        selected_type=answer.get("ResourceConfig", {}).get("SelectedInstanceType"),
        created=answer.get("CreationTime"),
        started=answer.get(api.start_time_key),
        ended=answer.get(api.end_time_key),
        billable_s=answer.get("BillableTimeInSeconds"),
        training_s=answer.get("TrainingTimeInSeconds"),
        transitions=tuple(
            (item.get("Status", ""), item.get("StartTime"), item.get("EndTime"))
            for item in transitions
        ),
        answer=answer,
    )


def _reason(api: JobApi, status: Status, answer: Mapping[str, Any]) -> str:
    # A Processing job has an exit message in any case.
    if api.has_exit_message and status is not Status.FAILED:
        return ""
    # Two keys may have the same text.
    texts = dict.fromkeys(_unwrapped(answer.get(key, "")) for key in api.reason_keys)
    return "\n".join(text for text in texts if text)


def _unwrapped(reason: str) -> str:
    """Return the job's own text from a wrapped reason.

    The service's reasons (ClientError: …) are returned unchanged.
    """
    wrapped = WRAPPED.fullmatch(reason)
    if wrapped is None:
        return reason
    # A killed instance leaves nothing but its exit code.
    return wrapped[1] or (f"exit code: {wrapped[2]}" if wrapped[2] else reason)


def _instances(api: JobApi, answer: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    cluster = answer
    for key in api.cluster_keys:
        cluster = cluster.get(key, {})
    # A cluster without groups has the keys of a group itself.
    groups = cluster.get("InstanceGroups") or [settled(cluster)]
    return tuple(
        (group.get("InstanceType", "?"), group.get("InstanceCount", 0)) for group in groups
    )


COLORS = {Status.COMPLETED: "#2e7d32", Status.FAILED: "#c62828", Status.STOPPED: "#616161"}


def render_text(job: Description, target: Target, now_s: float | None = None) -> str:
    line = (
        f"<raysm job {job.name}: "
        f"{' · '.join(words for words in _words(job, target, now_s) if words)}>"
    )
    more = job.reason or budget_used(job)
    if not more and job.secondary is SecondaryStatus.PENDING:
        more = job.message
    return visible(f"{line}\n{more}" if more else line)


def render_html(job: Description, target: Target, now_s: float | None = None) -> str:
    # Imported here: its table of entities takes 2 ms, and only a notebook needs it.
    import html as markup

    color = COLORS.get(job.status, "#1565c0")
    name = f"<b>{markup.escape(job.name)}</b>"
    link = target.console_link(job.arn, job.api.console_page, job.name)
    if link:
        # Without noopener, the console's page could control the notebook's.
        name = f'<a href="{markup.escape(link)}" target="_blank" rel="noopener">{name}</a>'
    status, *rest = _words(job, target, now_s)
    parts = [
        (
            f'<span style="color:{color}">●</span> {name} <span '
            f'style="color:{color}">{markup.escape(status)}</span>'
        ),
        markup.escape(" · ".join(words for words in rest if words)),
    ]
    if job.message and not job.status.is_terminal:
        parts.append(markup.escape(visible(job.message)))
    if reason := job.reason or budget_used(job):
        parts.append(f'<pre style="white-space:pre-wrap">{markup.escape(visible(reason))}</pre>')
    return f"<div>{'<br>'.join(parts)}</div>"


CONTINUE = (
    "the same command with --resume --max-cost USD continues with what the job saved "
    "(in Python: resume=True, limits=raysm.Limits(max_cost=…))"
)


def budget_used(job: Description) -> str:
    """Return how a job was ended by its cap and how to continue it, in two lines.

    The text is empty if something else ended it.
    """
    usd = job.used_budget_usd
    if usd is None:
        return ""
    continues = f"\n{CONTINUE}" if "CheckpointConfig" in job.answer else ""
    return f"stopped: its budget of {usd:g} USD is used{continues}"


def _words(job: Description, target: Target, now_s: float | None) -> list[str]:
    step = job.secondary.value
    status = f"{job.status} ({step})" if step and step != job.status.value else str(job.status)
    instances = " + ".join(
        counted(count, "local instance") if kind == LOCAL_TYPE else f"{count} × {kind}"
        for kind, count in job.instances
    )
    return [status, instances, _duration(job, now_s), target.describe()]


def _duration(job: Description, now_s: float | None) -> str:
    # A job that waits for capacity has no start; one that was stopped before its start took no
    # time.
    begin = job.started or (None if job.status.is_terminal else job.created)
    if begin is None:
        return ""
    end = job.ended or (datetime.now(UTC) if now_s is None else datetime.fromtimestamp(now_s, UTC))
    if begin.tzinfo is None:
        end = end.replace(tzinfo=None)
    # This clock may be behind the service's.
    spent = duration(max(0, round((end - begin).total_seconds())))
    return spent if job.started else f"sent {spent} ago"
