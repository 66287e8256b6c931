"""Notice in the job's log that a metric became NaN or infinite.

The head reads the lines of the driver, which contain those of all workers: metrics that a program
reports, and those that the job's definitions find in what it prints.
"""

import math
import re
import threading
import time
from collections.abc import Callable

from raysm.core.protocol.events import Metric, describe_not_finite, parse
from raysm.core.protocol.metric_patterns import RANK, MetricPatterns
from raysm.core.request import JobRequest

MAY_BE = re.compile(rb"nan|inf", re.IGNORECASE)
"""What each value that is not finite contains, however it is spelled. Few lines contain it, so that
the others need not be parsed."""
MAX_CHARACTERS = 4096
"""Longer lines are read up to here: an expression of the user's may take quadratic time."""
MAX_QUOTED = 120


class DivergenceWatch:
    def __init__(
        self,
        request: JobRequest,
        say: Callable[[str], None],
        end: Callable[[str, bool], None],
    ) -> None:
        """Watch the metrics of a job.

        Args:
            request: The job's.
            say: Called once for each metric that becomes NaN or infinite, with a sentence.
            end: Called at the first such value of ``request.stop_on_nan``, with the sentence, and
                whether the program reported it, which then knows that the job ends.
        """
        self._patterns = MetricPatterns((item.name, item.regex) for item in request.metrics)
        self._stops_at = request.stop_on_nan
        self._say = say
        self._end = end
        # Two threads read the two streams of the driver.
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def look(self, lines: bytes) -> None:
        """Read complete lines of the driver's output."""
        if MAY_BE.search(lines) is None:
            return
        for each in lines.splitlines():
            if MAY_BE.search(each):
                self._read(each.decode(errors="replace")[:MAX_CHARACTERS])

    def _read(self, text: str) -> None:
        event = parse(text)
        for metric in self._patterns.metrics(text, event, time.time()):
            # Metrics of an instance describe the machine.
            if not math.isfinite(metric.value) and not metric.host:
                self._take(metric, text, is_reported=metric is event)

    def _take(self, metric: Metric, text: str, *, is_reported: bool) -> None:
        with self._lock:
            if metric.name in self._said:
                return
            self._said.add(metric.name)
        sentence = describe_not_finite(metric)
        if not is_reported:
            # A printed value has no step of its own, but its line may name one.
            sentence += f': "{_quote(text)}"'
        if metric.name == self._stops_at:
            self._say(f"{sentence}; the job ends, as --stop-on-nan {metric.name} asks")
            self._end(sentence, is_reported)
        else:
            self._say(sentence)


def _quote(text: str) -> str:
    bare = RANK.sub("", text, count=1).strip()
    return bare if len(bare) <= MAX_QUOTED else f"{bare[: MAX_QUOTED - 1]}…"
