"""What a cluster's dashboard last showed, as a file."""

import gzip
import json

import pytest

from raysm.contract.dashboard_record import (
    SNAPSHOT,
    DashboardRecord,
    line_of,
    pack,
    samples_of_lines,
    task_summaries,
    unpack,
)
from raysm.contract.events import Metric
from raysm.errors import InvalidConfig


def test_what_is_packed_comes_back():
    samples = (
        Metric(name="cpu_percent", host="algo-1", value=12.5, time_s=100.0),
        Metric(name="cpu_percent", host="algo-2", value=25.0, time_s=100.0),
        Metric(name="nodes", value=2.0, time_s=100.0),
    )
    record = DashboardRecord(time_s=123.5, answers={"api/jobs/": [{"job_id": "01"}]}, samples=samples)
    assert unpack(pack(record)) == record


def test_a_day_of_a_hundred_instances_is_small():
    samples = tuple(
        Metric(name="cpu_percent", host=f"algo-{host}", value=host + time_s / 7, time_s=float(time_s))
        for host in range(100)
        for time_s in range(200)
    )
    assert len(pack(DashboardRecord(time_s=0.0, samples=samples))) < 300_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nonsense",
        gzip.compress(b"no JSON"),
        gzip.compress(b"[]"),
        gzip.compress(b'{"raysm": 1}'),
        gzip.compress(json.dumps({"raysm": 1, "time_s": 0, "answers": {}, "samples": {"a": 3}}).encode()),
        pack(DashboardRecord(time_s=0.0))[:-9],
    ],
    # What gzip compresses begins with the second it did so: as names, two processes that collect would differ.
    ids=["empty", "nonsense", "no JSON", "a list", "no time", "samples of another kind", "cut"],
)
def test_what_is_no_record_is_refused(content):
    with pytest.raises(InvalidConfig, match=r"raysm/dashboard.json.gz is not what raysm left"):
        unpack(content)


def test_a_record_of_a_later_form_is_refused_as_that():
    with pytest.raises(InvalidConfig, match="by another version of raysm, in form 2"):
        unpack(gzip.compress(b'{"raysm": 2}'))


def test_what_is_told_while_a_job_runs_comes_back_but_for_a_line_that_is_not_whole():
    first = [Metric(name=name, host=host, time_s=7.0, value=1.5) for name in ("a", "b") for host in ("", "algo-2")]
    assert samples_of_lines(line_of(first) + line_of([]) + line_of(first)[:-3]) == first


def test_the_progress_of_a_job_is_asked_for_as_rays_page_does():
    by_name, by_lineage = task_summaries("01000000")
    assert by_name.endswith("filter_values=01000000")
    assert by_lineage == f"{by_name}&summary_by=lineage"


def test_the_most_important_answers_are_asked_for_first():
    assert SNAPSHOT[:4] == ("api/version", "api/jobs/", "logical/actors", "nodes?view=summary")
