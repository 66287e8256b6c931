"""The end of an attempt: record its cost, a backoff of its place, and its row's next state.

An end is one transaction, so that a killed controller has recorded all of it or nothing. Functions
run inside the caller's transaction. ``retry_policy`` says whether the row is tried again.
"""

from dataclasses import replace
from typing import Any

from raysm.core.client.job.description import Description
from raysm.features.grid.attempt import Attempt, AttemptState, most_billed_s
from raysm.features.grid.capacity import back_off_place, back_off_region, learn_quota, record_start
from raysm.features.grid.endings import Verdict, find_ending
from raysm.features.grid.retry_policy import LANDING_S, WATCH_S, row_state_after
from raysm.features.grid.row import RowState
from raysm.features.grid.store.store import Store


def _end(store: Store, attempt: Attempt, verdict: Verdict, now: float, **changes: Any) -> Attempt:
    changes |= {
        "state": AttemptState.ENDED,
        "ending": verdict.ending.name,
        "reason": verdict.reason,
        "ended_s": now,
    }
    return store.attempts.move(attempt, now, **changes)


def end_without_job(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    """End an attempt that was refused or never sent."""
    ended = _end(
        store, attempt, verdict, now, watch_s=now + WATCH_S if attempt.is_doubtful else 0.0
    )
    learn_quota(store, ended, verdict.reason, now)
    _judge_place(store, ended, verdict, now)
    _move_row(store, ended, verdict, now)
    # An earlier Create, whose answer was lost, may still be carried out: delay the row until that
    # is over.
    if attempt.is_doubtful:
        store.rows.delay(ended.row_key, now + LANDING_S)


def end_finished(
    store: Store, attempt: Attempt, verdict: Verdict, description: Description | None, now: float
) -> None:
    """End an attempt whose job has ended.

    ``description`` is None if the service no longer knows the job.
    """
    started = description.started if description else None
    ended = _end(
        store,
        attempt,
        verdict,
        now,
        # A job that List showed before Create was answered was sent, too, and is billed.
        sent_s=attempt.sent_s if attempt.sent_s is not None else now,
        **(start_times(description) if description else {}),
        training_s=description.training_s if description else None,
        billable_s=_billed_s(attempt, description),
        **(interrupted(description) if description else {}),
        **attempt.settled(description.selected_type if description else None),
    )
    add_cost(store, ended)
    if started:
        record_start(store, ended)
    _judge_place(store, ended, verdict, now)
    _move_row(store, ended, verdict, now)


def start_times(description: Description) -> dict[str, float]:
    """Return the fields of an attempt that follow from its instances' start; empty before it."""
    if description.started is None:
        return {}
    times = {"started_s": description.started.timestamp()}
    if description.created is not None:
        waited = description.started - description.created
        times["waited_s"] = waited.total_seconds()
    return times


def add_cost(store: Store, attempt: Attempt) -> None:
    # A job that the service never took costs nothing.
    if attempt.sent_s is None:
        return
    price = (attempt.usd_per_hour or 0.0) * attempt.count / 3600
    saved = (
        price * max(0.0, (attempt.training_s or 0.0) - (attempt.billable_s or 0.0))
        if attempt.spot
        else 0.0
    )
    store.costs.add(attempt, saved, is_waste=find_ending(attempt.ending).is_waste)


def end_orphan(store: Store, name: str, description: Description | None, now: float) -> None:
    """Record the end of an orphaned job.

    ``description`` is None if the service no longer knows it.
    """
    row = store.orphans.find(name)
    if row is None or row["ended_s"] is not None:
        return
    if description is not None and not description.status.is_terminal:
        return
    job = Attempt(
        row_key=row["task"] or "",
        number=0,
        name=name,
        region=row["region"],
        instance_type="",
        count=row["count"],
        max_runtime_s=row["max_runtime_s"],
        usd_per_hour=row["usd_per_hour"],
    )
    billable_s = _billed_s(job, description)
    store.orphans.change(name, ended_s=now, billable_s=billable_s)
    store.costs.add(replace(job, billable_s=billable_s), 0.0, is_waste=True)


def interrupted(description: Description) -> dict[str, Any]:
    worked_s = description.interruptions
    return {"interruptions": len(worked_s), "interrupted_s": sum(worked_s)}


def interruptions_text(attempt: Attempt) -> str:
    times = "once" if attempt.interruptions == 1 else f"{attempt.interruptions:,} times"
    return (
        f"spot capacity was interrupted {times}, "
        f"after {attempt.interrupted_s:,.0f} s of work: the job started again"
    )


def billed_s(description: Description) -> float | None:
    """Return the billed seconds of a job; None if the service does not say."""
    # The service leaves the field out for a job that never had instances.
    return (
        description.billable_s if description.started or description.billable_s is not None else 0.0
    )


def _billed_s(attempt: Attempt, description: Description | None) -> float:
    """Return the billed seconds of a job.

    If the service does not say, this is the most that it can be billed for.
    """
    seconds = None if description is None else billed_s(description)
    return most_billed_s(attempt.max_runtime_s) if seconds is None else seconds


def _judge_place(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    if verdict.ending.backoff_after:
        # If the service could choose among types, none of them was available.
        for name in attempt.types:
            back_off_place(store, replace(attempt, instance_type=name), verdict, now)
    if verdict.ending.closes_region:
        back_off_region(store, attempt.region, verdict.reason, now)


def _move_row(store: Store, attempt: Attempt, verdict: Verdict, now: float) -> None:
    record = store.rows.get(attempt.row_key)
    ending = verdict.ending
    reason = verdict.reason
    changes: dict[str, Any] = {}
    if ending.binds_region:
        store.rows.bind(record.row, attempt.region)
    counted: list[Attempt] = []
    if ending.max_count or ending.max_started:
        attempts = store.attempts.of_row(record.row.key)
        counted = [each for each in attempts if each.number > record.retries_reset_at]
    state, why = row_state_after(ending, record.retries_left, counted)
    reason = _noted(reason, why)
    if ending.row_state is RowState.WAITING:
        changes["retries_left"] = record.retries_left - ending.uses_retry
    # The user stopped the grid while the job ended in another way.
    if attempt.stop_reason == "user" and state is RowState.WAITING:
        state = RowState.STOPPED
    if state is RowState.DONE and attempt.interruptions:
        reason = "; ".join(filter(None, (reason, interruptions_text(attempt))))
    if state is RowState.FAILED and ending.advice:
        reason = _noted(reason, ending.advice.replace("NAME", store.grid().name))
    store.rows.move(record.row.key, RowState.PLACED, state, now, reason=reason, **changes)


def _noted(reason: str, note: str) -> str:
    first, newline, rest = reason.partition("\n")
    return "; ".join(filter(None, (first, note))) + newline + rest
