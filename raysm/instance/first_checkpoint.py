"""Notice that a job on spot capacity saves nothing to continue from after an interruption."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from raysm.core.protocol.store import files_below

FIRST_CHECKPOINT_S = 600.0
"""Seconds after the start of the workload at which something should have been saved."""
ANSWER_S = 10.0
"""Seconds that the other instances have to say whether they have saved something."""
POLL_S = 0.1
WARNING = (
    "nothing was saved among the checkpoints in the first {minutes:g} minutes: "
    "after an interruption of spot capacity the job begins from nothing, "
    "unless the program saves elsewhere; write to $RAYSM_STATE, or add --in-state"
)
RECORD = ".raysm-source.json"
"""The file in a state folder that lists what came there from the source."""


def has_checkpoint(checkpoints: Path, state: Path, source: Path) -> bool:
    """Return whether a file is among the checkpoints, except the source's copies in ``state``."""
    with contextlib.suppress(OSError):  # a folder that the script changes meanwhile
        copies = {state / path.relative_to(source) for path in files_below(source)}
        copies.add(state / RECORD)
        return any(
            path not in copies and "__pycache__" not in path.parts
            for path in files_below(checkpoints)
        )
    return True


async def warn_without_checkpoint(
    has_own: Callable[[], bool],
    ask_others: Callable[[], Collection[str]],
    answers: Mapping[str, bool],
    say: Callable[[str], None],
    after_s: float,
) -> None:
    """Say once, ``after_s`` after the workload began, that no instance has saved anything.

    Args:
        has_own: Returns whether this instance has.
        ask_others: Asks the other instances, and returns their names.
        answers: Their answers, as they come.
        say: Takes the warning.
        after_s: Seconds to wait first.
    """
    await asyncio.sleep(after_s)
    if await asyncio.to_thread(has_own):
        return
    others = ask_others()
    deadline_s = time.monotonic() + ANSWER_S
    while not answers.keys() >= set(others) and time.monotonic() < deadline_s:
        await asyncio.sleep(POLL_S)
    if not any(answers.values()):
        say(WARNING.format(minutes=after_s / 60))
