"""How an attempt may end, or fail to begin, and what follows from each: one value a class, one table of them.

``raysm.grid.classify`` finds the class by the service's words; whoever carries out what follows asks the class itself.
"""

from dataclasses import dataclass

from raysm.grid.attempt import TaskState

__all__ = ["ENDINGS", "Ending", "ending"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """One class of ends."""

    name: str
    """As the store has it."""
    then: TaskState = TaskState.WAITING
    """What the task is then."""
    is_end: bool = True
    """Whether the attempt has ended: else the same Create is sent again."""
    is_doubtful: bool = False
    """Whether the Create may have been carried out nevertheless, or may be so later."""
    is_throttle: bool = False
    """Whether there were too many calls."""
    counts: bool = False
    """Whether it uses up one of the task's retries."""
    brakes: bool = False
    """Whether the first of a grid, all with the same reason, pause it: the user's own fault."""
    is_lack: bool = False
    """Whether the place has no more instances than those that it has given: these are as good as before."""
    blocks_from: int = 0
    """From the how manieth in a row a place is left alone for a while; 0 is never."""
    most: int = 0
    """Ends of this class after which the task fails; 0 is any number."""
    most_begun: int = 0
    """As ``most``, of those alone whose job had had its instances, and is paid for; 0 is any number."""
    closes_region: bool = False
    """Whether nothing is sent to the region for a while."""
    stays: bool = False
    """Whether the next attempt has to be in the same region."""
    is_waste: bool = True
    """Whether what it cost was for nothing."""
    advice: str = ""
    """What a person can do."""


ENDINGS: dict[str, Ending] = {
    each.name: each
    for each in (
        Ending(name="OK", then=TaskState.DONE, is_waste=False),
        # Not is_end: it costs nothing, and the place is as good as before.
        Ending(name="THROTTLED", is_end=False, is_throttle=True, advice="the grid sends more slowly"),
        Ending(name="MAYBE", is_end=False, is_doubtful=True, closes_region=True, advice="the same call is sent again"),
        Ending(name="QUOTA", blocks_from=1, advice="ask for a higher quota, or give more types or regions"),
        # Before its instances come it costs nothing, and ``Rules.give_up_s`` bounds it. A place that gives them and
        # takes them away is none that refuses: without a bound of its own such a task would be paid for without end.
        Ending(
            name="CAPACITY", is_lack=True, blocks_from=1, most_begun=8, advice="give more types or regions, or wait"
        ),
        # The service itself starts a job again by its RetryStrategy: one more here, then elsewhere.
        Ending(name="SERVICE", blocks_from=2, most=8, advice="SageMaker failed, not the row"),
        # No retry: see ``raysm.grid.classify.DETERMINISTIC``.
        Ending(
            name="ERROR",
            then=TaskState.FAILED,
            brakes=True,
            advice="the same program would fail again: correct it, or the row, then raysm grid retry",
        ),
        Ending(
            name="USER", counts=True, brakes=True, advice="read the job's log, correct the program, raysm grid retry"
        ),
        Ending(name="INVALID", then=TaskState.FAILED, brakes=True, advice="correct the request or the row"),
        Ending(name="DENIED", closes_region=True, advice="log in again, or ask for the permission named above"),
        # What it has reached lies with its checkpoint, in the bucket of its region.
        Ending(name="TIME", counts=True, stays=True, advice="raise max_runtime_s, or keep checkpoints"),
        # Costs nothing and says nothing, neither of the row nor of the place.
        Ending(name="LEFT", is_waste=False, advice="the row goes to another region of the grid"),
        Ending(name="STOPPED", then=TaskState.STOPPED, advice="raysm grid retry queues it again"),
        # Another's job of this very name: the next number's is free.
        Ending(name="CLASH", most=8, is_waste=False, advice="another job has this name: give the grid another --name"),
        # Again once here, once elsewhere; then a person has to look: these words were never seen before.
        Ending(name="UNKNOWN", blocks_from=1, most=3, advice="report this reason to raysm's authors"),
    )
}
"""By name."""


def ending(name: str) -> Ending:
    """Return the class of this name; of one that a newer raysm wrote, UNKNOWN."""
    return ENDINGS.get(name, ENDINGS["UNKNOWN"])
