"""Jobs of one task of a workflow, numbered, so that each try of the task finds those before it.

The names follow from the task alone, and the service takes a name once: two tries at once cannot
start two jobs.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from raysm.core.client.job.handle import Job, attach
from raysm.core.client.job.records import MAX_NAME
from raysm.core.client.service import Service
from raysm.errors import JobNotFound

DIGEST_CHARACTERS = 10
RUN_CHARACTERS = len("-20260102-030405-") + DIGEST_CHARACTERS + 2
"""What a job's name has after its task's: the time of the run, the digest, and the number."""


def task_name(text: str) -> str:
    """Return the name of a task in letters, digits and hyphens."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text)[:MAX_NAME].strip("-")


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedJobs:
    """The jobs of one task of a run.

    Attributes:
        task: The task's name, with which the jobs' names begin.
        run: When the run began.
        identity: What distinguishes the task from all others, as JSON takes it.
    """

    task: str
    run: datetime
    identity: Sequence[str | int | None]

    def name(self, number: int) -> str:
        digest = hashlib.sha256(json.dumps(self.identity).encode()).hexdigest()
        begin = self.task[: MAX_NAME - RUN_CHARACTERS].rstrip("-")
        run = self.run.astimezone(UTC)
        return f"{begin}-{run:%Y%m%d-%H%M%S}-{digest[:DIGEST_CHARACTERS]}{number:02x}"

    def last(self, service: Service) -> tuple[int, Job | None]:
        """Return the last job and its number; 0 and None if there is none."""
        number = 0
        job = None
        while True:
            try:
                job = attach(self.name(number + 1), service)
            except JobNotFound:
                return number, job
            number += 1
