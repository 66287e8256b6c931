"""Short descriptions of a job: text for a terminal, HTML for a notebook."""

from datetime import UTC, datetime

from raysm.core.client.job.description import Description, SecondaryStatus, Status
from raysm.core.protocol.terminal_text import visible
from raysm.core.request import Target
from raysm.core.request.cluster import LOCAL_TYPE
from raysm.core.request.durations import duration

COLORS = {Status.COMPLETED: "#2e7d32", Status.FAILED: "#c62828", Status.STOPPED: "#616161"}


def text(job: Description, target: Target, now_s: float | None = None) -> str:
    line = f"<raysm job {job.name}: {' · '.join(words for words in _words(job, target, now_s) if words)}>"
    more = job.reason or (job.message if job.secondary is SecondaryStatus.PENDING else "")
    return visible(f"{line}\n{more}" if more else line)


def html(job: Description, target: Target, now_s: float | None = None) -> str:
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
        f'<span style="color:{color}">●</span> {name} <span style="color:{color}">{markup.escape(status)}</span>',
        markup.escape(" · ".join(words for words in rest if words)),
    ]
    if job.message and not job.status.is_terminal:
        parts.append(markup.escape(visible(job.message)))
    if job.reason:
        parts.append(
            f'<pre style="white-space:pre-wrap">{markup.escape(visible(job.reason))}</pre>'
        )
    return f"<div>{'<br>'.join(parts)}</div>"


def _words(job: Description, target: Target, now_s: float | None) -> list[str]:
    step = job.secondary.value
    status = f"{job.status} ({step})" if step and step != job.status.value else str(job.status)
    instances = " + ".join(
        f"{count} local instance{'' if count == 1 else 's'}"
        if kind == LOCAL_TYPE
        else f"{count} × {kind}"
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
