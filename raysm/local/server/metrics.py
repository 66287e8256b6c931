"""Metrics that a job's regular expressions find in its log.

The job's record keeps the last value of each metric. CloudWatch gets all of them, as on SageMaker.
"""

import contextlib
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.local.server.moto_services import MotoServices
from raysm.local.server.records import JobRecord

__all__ = ["MetricScanner"]

BATCH = 500
"""Values that one call takes."""


class MetricScanner:
    """Finds the metrics of one job."""

    def __init__(self, moto: MotoServices, record: JobRecord, definitions: Sequence[Mapping[str, str]]) -> None:
        """Look for ``definitions`` (Name, Regex); an expression that Python cannot read finds nothing."""
        self._moto = moto
        self._job, self._api, self._region = record.name, record.api, record.region
        self._expressions: list[tuple[str, re.Pattern[str]]] = []
        for definition in definitions:
            with contextlib.suppress(re.error):
                self._expressions.append((definition["Name"], re.compile(definition["Regex"])))
        self._lock = threading.Lock()
        self._last: dict[str, Mapping[str, Any]] = {}
        self._unsent: list[Mapping[str, Any]] = []

    def line(self, text: str) -> None:
        """Look at one line."""
        for name, expression in self._expressions:
            for match in expression.finditer(text):
                # The expression may have no group, or find no number: a metric is no reason to fail a job.
                with contextlib.suppress(ValueError, IndexError, TypeError):
                    value = float(match.group(1))
                    # CloudWatch takes no other, and would refuse the whole call.
                    if math.isfinite(value):
                        self._keep({"MetricName": name, "Value": value, "Timestamp": time.time()})

    def _keep(self, metric: Mapping[str, Any]) -> None:
        with self._lock:
            self._last[metric["MetricName"]] = metric
            self._unsent.append(metric)

    def last(self) -> tuple[Mapping[str, Any], ...]:
        """Return the last value of each metric."""
        with self._lock:
            return tuple(self._last.values())

    def send(self) -> None:
        """Pass on to CloudWatch what was found since the last call."""
        with self._lock:
            # Taken under the lock, sent without it: the job's lines must not wait for moto.
            unsent, self._unsent = self._unsent, []
        dimensions = [{"Name": self._api.name_key, "Value": self._job}]
        for start in range(0, len(unsent), BATCH):
            data = [{**metric, "Dimensions": dimensions} for metric in unsent[start : start + BATCH]]
            cloudwatch = self._moto.client("cloudwatch", self._region)
            # SageMaker's namespaces of metrics are called as its groups of logs.
            cloudwatch.put_metric_data(Namespace=self._api.log_group, MetricData=data)
