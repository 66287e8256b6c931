"""How long a grid keeps trying, and when it gives up.

| what | the grid backs off | the grid gives up |
| --- | --- | --- |
| Create without an answer | 5, 10, 20 … 120 s | never: its region accepts or refuses it some day |
| an attempt | | it waits for instances for ``Rules.patience_s``, or its job is gone (``GONE_S``) |
| a place | 1, 2, 4 … 60 min after a refusal | never: one job at a time asks again |
| a region | 15, 30, 60 … 600 s without an answer | never |
| a row | | its retries or the limits of an ending are used up, or no place takes it |
| the grid | | its first ``Rules.brake`` jobs failed for one reason: it pauses |

Functions of values and the time: nothing here reads the store or calls the service. ``endings`` has
the limits of each class of ends.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from raysm.features.grid.attempt import Attempt
from raysm.features.grid.endings import Ending, find_ending, reason_key
from raysm.features.grid.row import RowState

# -- a call

REPEAT_CREATE_S = 5.0
MAX_REPEAT_CREATE_S = 120.0
"""Backoff of a Create whose answer was lost: 5, 10, 20 … s."""

LANDING_S = 120.0
"""Seconds after a lost answer in which the Create may still be carried out: twice botocore's read
timeout."""

WATCH_S = 900.0
"""Seconds in which a refused attempt's job may still appear, if the answer to an earlier Create was
lost."""

GONE_S = 900.0
"""Seconds after Create after which a job that the service does not know counts as gone."""

REPEAT_STOP_S = 120.0
"""Seconds after which a job that still runs is asked to stop again; SageMaker gives it as long to
save its work."""


def create_backoff_s(attempt: Attempt, ending: Ending) -> float:
    """Return the pause before the same Create is sent again; 0 if the service has answered."""
    if not ending.is_doubtful:
        return 0.0
    return _doubled_s(REPEAT_CREATE_S, attempt.calls, MAX_REPEAT_CREATE_S)


def _doubled_s(first_s: float, times: int, max_s: float) -> float:
    # Not more doublings than reach the maximum: after a thousand failures a float would overflow.
    doublings = min(times, math.ceil(math.log2(max_s / first_s)))
    return min(max_s, first_s * 2.0**doublings)


# -- a place and a region

PLACE_BACKOFF_S = 60.0
MAX_PLACE_BACKOFF_S = 3_600.0
"""Backoff of a place: 1, 2, 4 … 60 minutes. Users measured waits of 28 to 58 minutes for GPUs."""

REGION_BACKOFF_S = 15.0
MAX_REGION_BACKOFF_S = 600.0
"""Backoff of a region that does not answer, or denies access."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    failures: int
    """Failures in a row."""
    since_s: float | None
    """When they began; None if the region has answered since."""
    until_s: float


def next_backoff(
    last: Backoff | None, now: float, *, first_s: float, max_s: float, threshold: int = 1
) -> Backoff | None:
    """Return the backoff of a place or a region after one more failure; None if the last one lasts.

    The backoff starts with failure number ``threshold`` and doubles with each further one. Failures
    while it lasts do not count, since jobs that were sent together fail together.
    """
    # A backoff that ends later than any can is one of a clock that was set back since.
    if last is not None and now < last.until_s <= now + max_s:
        return None
    failures = 1
    since_s = now
    # If nothing was sent for longer than the longest backoff, a series of failures begins anew.
    if last is not None and now - last.until_s <= max_s:
        failures = last.failures + 1
        since_s = now if last.since_s is None else last.since_s
    until_s = now
    if failures >= threshold:
        until_s += _doubled_s(first_s, failures - threshold, max_s)
    return Backoff(failures=failures, since_s=since_s, until_s=until_s)


# -- a row


def row_state_after(
    ending: Ending, retries_left: int, counted: Sequence[Attempt]
) -> tuple[RowState, str]:
    """Return the state of a row after an attempt, and why it failed if it is not tried again.

    Args:
        ending: How the attempt ended.
        retries_left: The row's retries before this end.
        counted: The row's attempts since the user last queued it, with this one; may be empty if
            the ending has no limit.
    """
    if ending.row_state is not RowState.WAITING:
        return ending.row_state, ""
    if ending.uses_retry and retries_left < 1:
        return RowState.FAILED, "its retries are used up"
    alike = [each for each in counted if each.ending == ending.name]
    if ending.max_count and len(alike) >= ending.max_count:
        return RowState.FAILED, f"{len(alike)} attempts ended like this"
    started = sum(each.started_s is not None for each in alike)
    if ending.max_started and started >= ending.max_started:
        why = f"{started} jobs ended like this after their instances had started"
        return RowState.FAILED, why
    return RowState.WAITING, ""


def is_hopeless(stuck_since_s: Collection[float], give_up_s: float, now: float) -> bool:
    """Whether no place of a row has taken a job for ``Rules.give_up_s``.

    ``stuck_since_s`` has the time since when each place has taken none; it is empty if one takes
    jobs.
    """
    # Not the row's own wait, which is long if other rows come first.
    return bool(stuck_since_s) and now - max(stuck_since_s) > give_up_s


def hopeless_reason(refusals: Mapping[str, str], give_up_s: float) -> str:
    """Return the reason of a row that no place takes, with the last refusal of each place."""
    # Reasons are counted by their text, so they leave out how long each backoff lasts.
    places = "; ".join(f"{place}: {why}" for place, why in refusals.items())
    return (
        f"given up: for {give_up_s / 3600:g} h no place took a job ({places}); "
        "give more types or regions, or wait"
    )


def impossible_reason(reasons: Mapping[str, str]) -> str:
    """Return the reason of a row that no place can ever take."""
    places = "; ".join(f"{place}: {why}" for place, why in reasons.items())
    return places or "the grid has no places"


# -- the grid

ENDS_READ_PER_LIMIT = 10
"""Factor by which the brake reads more ends than it needs, since some say nothing about the
program."""


def reason_to_pause(grid: str, brake: int, first_ends: Sequence[Attempt]) -> str | None:
    """Return why the grid pauses if its first jobs all failed for the same reason; else None."""
    # Only ends that say something about the program: missing capacity is not the user's error.
    telling = [
        end
        for end in first_ends
        if find_ending(end.ending).is_users_error or end.started_s is not None
    ]
    ends = telling[:brake]
    if len(ends) < brake or not all(find_ending(end.ending).is_users_error for end in ends):
        return None
    if len({reason_key(end.reason) for end in ends}) > 1:
        return None
    first_line = ends[0].reason.partition("\n")[0]
    return (
        f"the first {brake} jobs failed for one reason: {first_line}; "
        f"correct it and raysm grid retry {grid}, or continue with raysm grid run --go-on"
    )
