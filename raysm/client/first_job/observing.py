"""What the script in the instances says, read from the log: lines flow in, observations flow out."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from raysm.client.first_job.probe import MARK
from raysm.client.logs import LogLine

__all__ = ["Observation", "observed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """One line of the script in the instances."""

    topic: str
    """What it is about."""
    host: str
    """Which instance says it."""
    values: dict[str, Any]
    """What it says."""


def observed(lines: Iterable[LogLine]) -> Iterator[Observation]:
    """Yield what the script said, of lines between which others stand."""
    for line in lines:
        if line.text.startswith(MARK):
            values = json.loads(line.text.removeprefix(MARK))
            # Of what runs without raysm the stream says which instance it is; of the rest the line does.
            yield Observation(topic=values.pop("topic"), host=values.pop("host"), values=values)
