"""The trigger that waits for a job in Airflow's triggerer, and shows its log there."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

from airflow.triggers.base import BaseTrigger, TriggerEvent

from raysm.core.client.job.chain import TransientErrors
from raysm.core.client.job.handle import Job, attach
from raysm.core.client.logs.rendering import Rendering
from raysm.core.client.logs.stream import FOLLOW_S, JobStream
from raysm.core.client.service import connect
from raysm.core.request import Target
from raysm.core.request.codec import from_json
from raysm.errors import ServiceError


class JobTrigger(BaseTrigger):  # type: ignore[misc]  # mypy does not read Airflow
    """Waits until a job has ended, and writes its lines into the log of the task.

    Args:
        job: Its name.
        on: Its target as JSON, which Airflow stores with the trigger; None is ``Local()``.
        stops: Stop the job if a user ends or clears the task that waits.
    """

    def __init__(self, job: str, on: Mapping[str, Any] | None, stops: bool) -> None:
        super().__init__()
        self.job = job
        self.on = on
        self.stops = stops
        self._handle: Job | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kwargs = {"job": self.job, "on": self.on, "stops": self.stops}
        return f"{JobTrigger.__module__}.{JobTrigger.__qualname__}", kwargs

    async def run(self) -> AsyncIterator[TriggerEvent]:
        # Each look is in a thread, since boto3 would block all triggers of the process.
        job = await asyncio.to_thread(self._attached)
        errors = TransientErrors(job.service, job.name)
        rendering = Rendering()
        # The trigger takes the place of a client that waits: it sends follow-up jobs too.
        stream = JobStream(job.chain, send=True)
        pauses = job.service.polling.pauses()
        while not stream.is_over:
            try:
                if await asyncio.to_thread(self._show, stream, rendering):
                    pauses = job.service.polling.pauses()
                errors.reset()
            except ServiceError as error:
                errors.raise_unless_transient(error)
            if not stream.is_over:
                count = sum(number for _, number in job.instances)
                pause_s = min(next(pauses), FOLLOW_S)
                await asyncio.sleep(job.service.polling.between_looks(pause_s, count))
        for text in rendering.rest():
            self.log.info("%s", text)
        # Once a follow-up has continued the job, this is the follow-up's name.
        yield TriggerEvent({"job": job.name})

    async def on_kill(self) -> None:
        """Stop the job: a user has marked the waiting task, or cleared it."""
        if self.stops:
            await asyncio.to_thread(lambda: self._attached().cancel())

    def _attached(self) -> Job:
        if self._handle is None:
            target = None if self.on is None else from_json(cast(Any, Target), self.on, "on")
            self._handle = attach(self.job, connect(target))
        return self._handle

    def _show(self, stream: JobStream, rendering: Rendering) -> bool:
        """Write the new lines of the log; return whether there were any."""
        came = False
        for line in stream.new_lines(whole=False):
            came = True
            for text in rendering.render(line.host, line.text):
                self.log.info("%s", text)
        return came
