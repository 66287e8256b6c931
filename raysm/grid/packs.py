"""Rows that share a job, as the store has them: an attempt flows in, its rows flow out, and what they did there.

A pack keeps its name from its first job to its last: what is left of it when a job is lost goes on with the record that
the job left among its checkpoints, so that no row that is done is run again.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raysm.contract.result import RowOutcome
from raysm.grid.attempt import Attempt, TaskState
from raysm.grid.classify import Verdict, of_program
from raysm.grid.endings import ENDINGS
from raysm.grid.packing import Load, together
from raysm.grid.records import TaskRecord, task_record
from raysm.grid.store import NO_STRAY, Store
from raysm.grid.task import Task

__all__ = [
    "RowEnd",
    "job_verdict",
    "members",
    "note_members",
    "note_progress",
    "row_end",
    "sharing",
    "siblings",
    "task_of",
]

OK = "OK"
"""The ending of a job that ended well, whatever became of its rows."""


def members(store: Store, attempt: Attempt) -> list[TaskRecord]:
    """Return the rows that an attempt carries, in the order of their source."""
    if not attempt.pack:
        return [store.task(attempt.task)]
    # By the attempt, not by the pack: of a later job only those that were left when it was sent.
    rows = store.database.connection.execute(
        "SELECT task.* FROM pack JOIN task ON task.key = pack.task WHERE pack.attempt = ? ORDER BY position, key",
        (attempt.name,),
    )
    return [task_record(row) for row in rows]


def sharing(store: Store, attempt: Attempt) -> int:
    """Return how many rows an attempt carries."""
    query = "SELECT count(*) FROM pack WHERE attempt = ?"
    return int(store.database.connection.execute(query, (attempt.name,)).fetchone()[0]) if attempt.pack else 1


def task_of(store: Store, attempt: Attempt) -> Task:
    """Return what an attempt carries as one task; of a pack all that it was sent with, done or not."""
    records = members(store, attempt)
    return together([record.task for record in records]) if attempt.pack else records[0].task


def note_members(store: Store, attempt: Attempt, load: Load) -> None:
    """Keep which rows an attempt carries, within the transaction of its intent."""
    store.database.connection.executemany(
        "INSERT INTO pack VALUES (?, ?)", ((attempt.name, record.task.key) for record in load.records)
    )


def siblings(store: Store, pack: str, now: float) -> list[TaskRecord]:
    """Return the rows of a pack that wait; none while a job of it is open, or may not be sent yet."""
    # Two jobs with one record would each run what the other has begun.
    rows = store.database.connection.execute(
        "SELECT * FROM task WHERE pack = ?1 AND state = 'waiting' AND NOT EXISTS "
        "(SELECT 1 FROM attempt WHERE attempt.pack = ?1 AND attempt.state <> 'ended') "
        f"AND NOT EXISTS (SELECT 1 FROM task AS held WHERE held.pack = ?1 AND held.after_s > ?2) AND {NO_STRAY} "
        "ORDER BY priority DESC, expected_s DESC, position",
        (pack, now),
    )
    return [task_record(row) for row in rows]


def note_progress(store: Store, attempt: Attempt, outcomes: Mapping[str, RowOutcome], now: float) -> int:
    """Take over what rows of a job that runs have done, within a transaction; return how many are newly done.

    A row that failed is told, and stays: whether it is tried again is decided when its job has ended, since until then
    the same job might still be at it.
    """
    done = 0
    for record in members(store, attempt):
        outcome = outcomes.get(record.task.key_hash)
        # Told before: the record has all rows of the pack, those that earlier jobs of it have done among them.
        if outcome is None or record.state is not TaskState.PLACED:
            continue
        if outcome.state == "done":
            store.move_task(record.task.key, TaskState.PLACED, TaskState.DONE, now, reason="")
            done += 1
        elif outcome.state == "failed" and record.reason != outcome.reason:
            store.explain(record.task.key, outcome.reason, now)
    return done


@dataclass(frozen=True, kw_only=True, slots=True)
class RowEnd:
    """How a row ended in an attempt that has ended."""

    verdict: Verdict
    """What follows from it."""
    pack: str = ""
    """The pack that it belongs to from now on."""


def job_verdict(verdict: Verdict, outcomes: Mapping[str, RowOutcome]) -> Verdict:
    """Return how a job ended that several rows shared: where every row failed that it ran, it brought nothing."""
    failed = [outcome for outcome in outcomes.values() if outcome.state == "failed"]
    if verdict.ending.name != OK or not failed or len(failed) < len(outcomes):
        return verdict
    # So the brake sees a mistake in the script, and what it cost counts as wasted.
    return of_program(failed[0].reason)


def row_end(task: Task, attempt: Attempt, verdict: Verdict, outcomes: Mapping[str, RowOutcome]) -> RowEnd:
    """Return how a row ended whose job has: by the job's own record first, by the job's end where that says nothing.

    Args:
        task: The row.
        attempt: What carried it.
        verdict: The job's end, as the service says it.
        outcomes: By the hashes of the rows' keys.
    """
    outcome = outcomes.get(task.key_hash)
    if verdict.ending.name == "ERROR":
        # Raised by the job itself, not by the program of this row.
        verdict = Verdict(ending=ENDINGS["USER"], reason=verdict.reason)
    if outcome is not None and outcome.state == "done":
        return RowEnd(verdict=Verdict(ending=ENDINGS[OK], reason=""), pack=attempt.pack)
    if outcome is not None and outcome.state == "failed":
        # Free to share another job, with whichever rows wait then.
        return RowEnd(verdict=of_program(outcome.reason))
    if verdict.ending.name == OK:
        # Counted, so that a program that ends its job with 0 from within a row is not sent for ever.
        words = "its job ended well, and left no file of it"
        return RowEnd(verdict=Verdict(ending=ENDINGS["USER"], reason=words), pack=attempt.pack)
    if verdict.ending.counts and any(other.state == "running" for other in outcomes.values()):
        if outcome is None:
            return RowEnd(verdict=Verdict(ending=ENDINGS["UNBEGUN"], reason=verdict.reason), pack=attempt.pack)
        if not verdict.ending.stays:
            # One of those that ran has ended the job, its memory for one: alone it can end no other row.
            return RowEnd(verdict=verdict, pack=f"{attempt.pack}-{task.key_hash}")
    return RowEnd(verdict=verdict, pack=attempt.pack)
