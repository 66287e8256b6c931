"""What follows from the end of an attempt: its cost, a backoff of its place, its task's next state; and orphaned jobs.

An end is one transaction: a controller that is killed has done all of it, or nothing.
"""

from dataclasses import replace
from typing import Any

from raysm.client.job.description import Description
from raysm.grid.attempt import Attempt, AttemptState, TaskState
from raysm.grid.capacity import back_off_region, learn_quota, record_refusal, record_start
from raysm.grid.endings import Verdict, ending, same_reason
from raysm.grid.ledger import settle, settle_stray
from raysm.grid.records import GridRecord, TaskRecord
from raysm.grid.region import Listed
from raysm.grid.store import Store

__all__ = [
    "LANDING_S",
    "WATCH_S",
    "billed_s",
    "brake",
    "conclude",
    "end_stray",
    "interrupted",
    "live_strays",
    "note_stray",
    "refuse",
    "stray_asked",
    "tell_interruptions",
]

LANDING_S = 120.0
"""Seconds after a lost answer within which its Create may still be carried out: twice botocore's read timeout."""

WATCH_S = 900.0
"""Seconds for which a refused attempt whose first answer was lost is looked for nevertheless."""

FIRST = 10
"""How many times as many ends are looked at for the brake, as some of them say nothing of the tasks."""


def refuse(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    """End an attempt that the service did not take, within a transaction."""
    # An earlier Create, whose answer was lost, may be on its way: the task waits until it would have landed.
    lands = attempt.is_doubtful
    ended = store.move(
        attempt,
        now,
        state=AttemptState.ENDED,
        ending=verdict.ending.name,
        reason=verdict.reason,
        ended_s=now,
        watch_s=now + WATCH_S if lands else 0.0,
    )
    learn_quota(store, ended, verdict.reason, now)
    _judge_place(store, ended, verdict, now)
    _follow(store, ended, verdict, now)
    if lands:
        store.hold(ended.task, now + LANDING_S)


def conclude(
    store: Store,
    attempt: Attempt,
    verdict: Verdict,
    description: Description | None,
    now: float,
) -> None:
    """End an attempt that the service says has ended, within a transaction.

    Args:
        store: The grid's.
        attempt: Open still.
        verdict: What its end means.
        description: What Describe says of it; without one nothing is known.
        now: Seconds since the epoch.
    """
    started = description.started if description else None
    ended = store.move(
        attempt,
        now,
        state=AttemptState.ENDED,
        ending=verdict.ending.name,
        reason=verdict.reason,
        # Found by List before its Create was answered, a job was sent all the same, and is billed.
        sent_s=attempt.sent_s if attempt.sent_s is not None else now,
        started_s=started.timestamp() if started else attempt.started_s,
        ended_s=now,
        training_s=description.training_s if description else None,
        billable_s=billed_s(description) if description else None,
        **(interrupted(description) if description else {}),
        **attempt.settled(description.selected_type if description else None),
    )
    settle(store, ended)
    if started:
        record_start(store, ended)
    _judge_place(store, ended, verdict, now)
    _follow(store, ended, verdict, now)


def interrupted(description: Description) -> dict[str, Any]:
    """Return what an attempt keeps of the interruptions of its job."""
    worked_s = description.interruptions
    return {"interruptions": len(worked_s), "interrupted_s": sum(worked_s)}


def tell_interruptions(store: Store, attempt: Attempt, now: float) -> None:
    """Note in the row's reason that its running job was interrupted, within a transaction."""
    store.explain(attempt.task, _interruptions(attempt), now)


def _interruptions(attempt: Attempt) -> str:
    times = "once" if attempt.interruptions == 1 else f"{attempt.interruptions:,} times"
    return (
        f"spot capacity was interrupted {times}, after {attempt.interrupted_s:,.0f} s of work: the job was started "
        "again"
    )


def billed_s(description: Description) -> float | None:
    """Return the seconds that a job is billed for; None where the service does not say."""
    # Of one that never had its instances it leaves the field out.
    return description.billable_s if description.started or description.billable_s is not None else 0.0


def _judge_place(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    if verdict.ending.backoff_after:
        # Of a choice there was none of any.
        for name in attempt.types:
            record_refusal(store, replace(attempt, instance_type=name), verdict, now)
    if verdict.ending.closes_region:
        back_off_region(store, attempt.region, verdict.reason, now)


def _follow(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    """Move the attempt's task to the state that follows from this end."""
    record, kind = store.task(attempt.task), verdict.ending
    state, reason = kind.then, verdict.reason
    changes: dict[str, Any] = {}
    if state is TaskState.WAITING:
        state, why = _again(store, record, verdict)
        reason = _noted(reason, why)
        changes["retries_left"] = record.retries_left - kind.uses_retry
    # A wish to stop it came in while it ended in another way: it is not tried again.
    if attempt.wish == "user" and state is TaskState.WAITING:
        state = TaskState.STOPPED
    if state is TaskState.DONE and attempt.interruptions:
        reason = f"{reason}; {_interruptions(attempt)}" if reason else _interruptions(attempt)
    if state is TaskState.FAILED and kind.advice:
        reason = _noted(reason, kind.advice)
    store.move_task(record.task.key, TaskState.PLACED, state, now, reason=reason, **changes)


def _noted(reason: str, note: str) -> str:
    """Return a reason with a note behind its first line, the error: below it may stand a traceback."""
    first, newline, rest = reason.partition("\n")
    return "; ".join(filter(None, (first, note))) + newline + rest


def _again(store: Store, record: TaskRecord, verdict: Verdict) -> tuple[TaskState, str]:
    """Return whether a task is tried again, and why not."""
    kind = verdict.ending
    if kind.uses_retry and record.retries_left < 1:
        return TaskState.FAILED, "its retries are used up"
    if kind.max_count or kind.max_started:
        counted = (each for each in store.attempts(record.task.key) if each.number > record.forgiven)
        alike = [each for each in counted if each.ending == kind.name]
        begun_jobs = sum(each.started_s is not None for each in alike)
        if kind.max_count and len(alike) >= kind.max_count:
            return TaskState.FAILED, f"{len(alike)} attempts ended like this"
        if kind.max_started and begun_jobs >= kind.max_started:
            return TaskState.FAILED, f"{begun_jobs} jobs ended like this after they had got their instances"
    return TaskState.WAITING, ""


def brake(store: Store, grid: GridRecord) -> str | None:
    """Return why the grid is to be paused: its first ends are all failures with one reason; None where it is not."""
    limit = grid.rules.brake
    if not limit or grid.goes_on:
        return None
    # Those that say something of the tasks: no capacity in one region is not the user's fault.
    telling = [
        end for end in store.first_ends(limit * FIRST) if ending(end.ending).pauses_grid or end.started_s is not None
    ]
    ends = telling[:limit]
    if len(ends) < limit or not all(ending(end.ending).pauses_grid for end in ends):
        return None
    if len({same_reason(end.reason) for end in ends}) > 1:
        return None
    first_line = ends[0].reason.partition("\n")[0]
    return (
        f"the first {limit} jobs failed for one reason: {first_line}; correct it and raysm grid retry, or "
        "raysm grid run --go-on"
    )


def note_stray(store: Store, listed: Listed, attempt: Attempt | None, region: str, now: float) -> bool:
    """Keep a job that nobody waits for, within a transaction; return whether Describe has something to tell of it."""
    execute = store.database.connection.execute
    row = execute("SELECT ended_s FROM stray WHERE name = ?", (listed.name,)).fetchone()
    if row is None:
        # Of a job that no attempt made nothing is known but its name.
        values = (
            listed.name,
            attempt.task if attempt else _task_of(store, listed.name),
            region,
            attempt.count if attempt else 1,
            attempt.usd_per_hour if attempt else None,
            attempt.max_runtime_s if attempt else 0,
            now,
        )
        execute(
            "INSERT INTO stray (name, task, region, count, usd_per_hour, max_runtime_s, seen_s) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            values,
        )
        store.log(now, "", "stray", "a job that nobody waits for is stopped", task=values[1], attempt=listed.name)
    return (row is None or row["ended_s"] is None) and listed.status.is_terminal


def _task_of(store: Store, name: str) -> str | None:
    """Return the task whose key's hash stands in a name; None where there is none."""
    # Through all rows: strays are few, and an index for them would be kept for every row.
    digits = name.removeprefix(store.grid().prefix).partition("-")[0]
    return next((record.task.key for record in store.tasks() if record.task.key_hash == digits), None)


def live_strays(store: Store, now: float, again_s: float) -> list[tuple[str, str]]:
    """Return region and name of those that are to be asked to stop, now or once more."""
    # Once more after a while: a Stop may be lost, or come before the service knows the job.
    rows = store.database.connection.execute(
        "SELECT region, name FROM stray WHERE ended_s IS NULL AND coalesce(asked_s, -1e18) <= ? ORDER BY seen_s",
        (now - again_s,),
    )
    return [(row[0], row[1]) for row in rows]


def stray_asked(store: Store, name: str, now: float) -> None:
    """Take note that one was asked to stop, within a transaction."""
    store.database.connection.execute("UPDATE stray SET asked_s = ? WHERE name = ?", (now, name))


def end_stray(store: Store, name: str, description: Description, now: float) -> None:
    """Take over the end of one, and its cost, within a transaction."""
    execute = store.database.connection.execute
    # Only while it is open: whoever tells of an end a second time must not have it billed twice.
    row = execute("SELECT * FROM stray WHERE name = ? AND ended_s IS NULL", (name,)).fetchone()
    if row is None or not description.status.is_terminal:
        return
    billable = billed_s(description)
    execute("UPDATE stray SET ended_s = ?, billable_s = ? WHERE name = ?", (now, billable, name))
    cost = Attempt(
        task=row["task"] or "", number=0, name=name, region=row["region"], instance_type="", count=row["count"],
        billable_s=billable, usd_per_hour=row["usd_per_hour"],
    )  # fmt: skip
    settle_stray(store, cost)
