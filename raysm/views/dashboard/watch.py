"""What a job says while its dashboard is looked at: lines flow in, values and the dashboard's place flow out."""

from collections.abc import Iterable

from raysm.client.dashboard_place import Place, place_told
from raysm.client.follow import JobStream
from raysm.client.job import Job
from raysm.contract.events import Event, Metric, parse
from raysm.views.dashboard.timeline import Timeline

__all__ = ["Watch"]


class Watch:
    """A cursor over a job's log, and what it has brought so far.

    Attributes:
        timeline: The values of its metrics.
        place: Where its dashboard answers; None as long as none does.
        is_over: Whether the job has ended, and nothing goes on with it.
    """

    def __init__(self, job: Job) -> None:
        """Stand before the first line."""
        self.timeline = Timeline()
        self.place: Place | None = None
        self.is_over = False
        self._stream = JobStream(job.chain)

    def read(self) -> list[Event]:
        """Look once at the log; return the events that have come. Blocks, and touches nothing else.

        Raises:
            ServiceError: The service does not answer just now.
        """
        events = (parse(line.text) for line in self._stream.new_lines())
        return [event for event in events if event is not None]

    def take(self, events: Iterable[Event]) -> None:
        """Keep what ``read`` has returned."""
        for event in events:
            if isinstance(event, Metric):
                self.timeline.add(event)
            # Of a follow-up job it is another one.
            self.place = place_told(event) or self.place
        self.is_over = self._stream.is_over
