"""Tests of ``raysm.features.scaling.table``."""

import pytest

from raysm.features.scaling.table import BAR, Measured, Scaling, chart_lines, notes, table_lines
from tests.support.pages import outputs


def measured(instances, seconds, **fields):
    values = {"job": f"rows-{instances}", "billed_s": seconds + 60, "usd": 0.5, "metric": 0.91}
    return Measured(instances=instances, seconds=seconds, **values | fields)


THREE = Scaling(jobs=(measured(1, 100.0), measured(2, 50.0), measured(4, 40.0)), metric="accuracy")


def test_speedup_and_efficiency_compare_each_size_with_the_smallest():
    assert [THREE.speedup(job) for job in THREE.jobs] == [1.0, 2.0, 2.5]
    assert [THREE.efficiency(job) for job in THREE.jobs] == [1.0, 1.0, 0.625]


def test_the_smallest_size_may_have_more_than_one_instance():
    scaling = Scaling(jobs=(measured(2, 60.0), measured(6, 20.0)))
    assert scaling.efficiency(scaling.jobs[1]) == pytest.approx(1.0)


def test_the_table_has_a_row_for_each_size_with_its_cost_metric_and_job():
    head, *rows = (line.split() for line in table_lines(THREE))
    assert head == "instances seconds speed-up efficiency billed cost accuracy job".split()
    assert rows[2] == "4 40.0 2.50 62% 4 x 100 s 0.50 USD 0.91 rows-4".split()


def test_an_unknown_cost_and_a_metric_that_was_not_reported_are_a_dash_and_never_0():
    job = measured(1, 9.0, billed_s=None, usd=None, metric=None)
    row = table_lines(Scaling(jobs=(job,), metric="loss"))[1]
    assert row.split() == ["1", "9.0", "1.00", "100%", "-", "-", "-", "rows-1"]


def test_a_bar_is_as_long_as_the_speedup_and_a_dot_is_where_it_would_end_without_loss():
    lines = chart_lines(THREE)[1:]
    assert [line.count("█") for line in lines] == [BAR // 4, BAR // 2, 25]
    assert [line.find("·") for line in lines] == [-1, -1, 6 + BAR - 1]


def test_more_than_the_ideal_speedup_fits_into_the_chart():
    lines = chart_lines(Scaling(jobs=(measured(1, 100.0), measured(2, 20.0))))[1:]
    assert lines[1] == f"    2 {'█' * BAR} 5.00"


def test_only_emulated_instances_share_cores_and_are_said_to():
    assert not notes(THREE)
    assert "share" in notes(Scaling(jobs=THREE.jobs, is_shared=True))[0]


def test_the_guide_shows_a_table_and_a_chart_as_they_are_printed():
    jobs = (
        measured(1, 1.285, job="similarity-20261129-171137-bc432383", billed_s=4, usd=None),
        measured(2, 1.2, job="similarity-20261129-171137-6470b263", billed_s=5, usd=None),
    )
    scaling = Scaling(jobs=jobs, is_shared=True)
    shown = "\n".join([*table_lines(scaling), "", *chart_lines(scaling)])
    assert outputs("guides/scaling.md") == [shown]
