"""Metrics in the lines of a job's log.

They are those of raysm's events, and those that the job's metric definitions find.
"""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from raysm.core.protocol.events import Event, Metric

RANK = re.compile(r"\[rank (\d+)\] ")
"""What the relay of a training puts before each line of a worker."""


class MetricPatterns:
    """The metric definitions of a job.

    Python's ``re`` cannot compile all expressions that the service takes.
    """

    def __init__(self, definitions: Iterable[tuple[str, str]]) -> None:
        self._expressions: list[tuple[str, re.Pattern[str]]] = []
        for name, regex in definitions:
            with contextlib.suppress(re.error):
                self._expressions.append((name, re.compile(regex)))

    def values(self, text: str) -> Iterator[tuple[str, float]]:
        """Yield the name and the value of each match in a line; NaN and infinities too."""
        for name, expression in self._expressions:
            for match in expression.finditer(text):
                # An expression without a group, or one that finds no number, does not fail the job.
                with contextlib.suppress(ValueError, IndexError, TypeError):
                    yield name, float(match.group(1))

    def metrics(self, text: str, event: Event | None, time_s: float) -> Iterator[Metric]:
        """Yield the metrics in a line of the log.

        ``event`` is the event in the line, and ``time_s`` when it was written, in seconds since the
        epoch.
        """
        if isinstance(event, Metric):
            yield event
        for name, value in self.values(text):
            # A definition that matches raysm's own events lets CloudWatch have the metric; its
            # value is known already.
            if not (isinstance(event, Metric) and event.name == name):
                label = RANK.match(text)
                rank = None if label is None else int(label[1])
                yield Metric(name=name, value=value, rank=rank, time_s=time_s)


def patterns_of(answer: Mapping[str, object]) -> MetricPatterns:
    """Return the metric definitions in an answer of Describe."""
    algorithm = answer.get("AlgorithmSpecification")
    definitions = algorithm.get("MetricDefinitions") or () if isinstance(algorithm, Mapping) else ()
    return _compiled(tuple((item["Name"], item["Regex"]) for item in definitions))


# Cached, since the table of experiments reads many jobs with the same definitions.
@functools.lru_cache(maxsize=64)
def _compiled(definitions: tuple[tuple[str, str], ...]) -> MetricPatterns:
    return MetricPatterns(definitions)
