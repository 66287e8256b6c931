"""One row of a grid as one job: sent once, however often and from wherever it is tried."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from raysm.cli.main import main
from raysm.core.client.job.description import Status
from raysm.core.client.storage.s3 import Storage
from raysm.core.protocol.home import VARIABLE
from raysm.errors import InvalidRequest
from raysm.features.grid.batch_job.array_child import RowJobs, slice_of
from raysm.features.grid.row import Row
from raysm.features.grid.sources.source import source_from_description, source_of
from tests.support.embedded_grids import EmbeddedGrid, embedded

REGIONS = ("us-east-1", "eu-west-1")
ROWS = [{"key": "a", "region": "us-east-1"}, {"key": "b", "region": "eu-west-1"}, {"key": "c"}]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    with embedded(
        tmp_path_factory.mktemp("rows"), "[regions.eu-west-1.simulated]\nrun_s = 0.1\n"
    ) as home:
        yield EmbeddedGrid(home, REGIONS)


def jobs_in(grid, name, args=("{key}",)):
    request = grid.request(ROWS, name=name, args=args)
    return RowJobs(request, grid.service)


def jobs_of(grid, name):
    """Return the names of a grid's jobs in all regions."""
    listed = [grid.service(grid.target.in_region(region)) for region in REGIONS]
    pages = [
        one.call("sagemaker", "list_training_jobs", NameContains=name, MaxResults=100)
        for one in listed
    ]
    return sorted(job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"])


def test_a_row_goes_to_its_own_region_and_one_that_names_none_to_the_first(grid):
    row_jobs = jobs_in(grid, "places")
    assert [row_jobs.send(row).region for row in row_jobs.rows] == [
        "us-east-1",
        "eu-west-1",
        "us-east-1",
    ]
    assert len(jobs_of(grid, "places")) == 3


def test_rows_may_lie_in_s3_where_every_child_reads_them(grid):
    service = grid.service(grid.target)
    service.call("s3", "create_bucket", Bucket="arrays")
    Storage(service).write("s3://arrays/array.txt", b"b,eu-west-1\n")
    source = source_of("s3://arrays/array.txt").with_columns(("key", "region"))
    (row,) = replace(
        grid.request(ROWS, name="in-s3"), source=source_from_description(source.description)
    ).read_rows()
    assert (row.key, row.region) == ("b", "eu-west-1")
    with pytest.raises(InvalidRequest, match="s3://arrays/none.csv"):
        replace(grid.request(ROWS), source=source_of("s3://arrays/none.csv")).read_rows()


def test_a_child_on_another_machine_sends_no_second_job(grid, tmp_path, monkeypatch):
    first = jobs_in(grid, "elsewhere").send(Row(key="a", region="us-east-1"))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    again = jobs_in(grid, "elsewhere").send(Row(key="a", region="us-east-1"))
    assert (again.job.name, again.is_new) == (first.job.name, False)


def test_a_row_whose_job_did_not_end_well_is_sent_under_the_next_number(grid):
    row_jobs = jobs_in(grid, "number")
    first = row_jobs.send(row_jobs.rows[0])
    assert first.job.name.endswith("-a1")
    first.job.stop(timeout=120)
    assert first.job.status is Status.STOPPED
    assert row_jobs.send(row_jobs.rows[0]).job.name.endswith("-a2")
    assert len(jobs_of(grid, "number")) == 2


def test_rows_whose_keys_have_one_hash_have_a_job_each(grid, capsys):
    keys = ("row-2087905", "row-2212063")
    request = grid.request([{"key": key, "region": "us-east-1"} for key in keys], name="hash")
    row_jobs = RowJobs(request, grid.service)
    sent = [row_jobs.send(row) for row in row_jobs.rows]
    assert [each.is_new for each in sent] == [True, True]
    assert [each.job.name[-3:] for each in sent] == ["-a1", "-a2"]
    again = [row_jobs.send(row) for row in row_jobs.rows]
    assert [each.job.name for each in again] == [each.job.name for each in sent]
    assert main(["grid", "rows", "hash", "--regions", "us-east-1"]) == 0
    listed = capsys.readouterr().out
    assert all(key in listed for key in keys)


def test_another_request_of_the_same_name_is_other_jobs(grid):
    one = jobs_in(grid, "same").send(Row(key="a", region="us-east-1"))
    other = jobs_in(grid, "same", args=("{key}", "--more")).send(Row(key="a", region="us-east-1"))
    assert one.job.name != other.job.name


def test_rows_that_children_sent_are_listed_over_regions_each_with_its_last_job_and_result(
    grid, capsys
):
    row_jobs = jobs_in(grid, "listed")
    first, second, third = map(row_jobs.send, row_jobs.rows)
    first.job.stop(timeout=120)
    again = row_jobs.send(row_jobs.rows[0])
    # A grid whose jobs' names begin alike.
    jobs_in(grid, "listed-too").send(row_jobs.rows[0])
    assert second.job.wait(120) is Status.COMPLETED
    assert main(["grid", "rows", "listed", "--regions", ",".join(REGIONS)]) == 0
    table = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert table == [
        ["index", "state", "jobs", "key", "last", "job", "result", "reason"],
        ["0", "placed", "2", "a", again.job.name, "-"],
        ["1", "done", "1", "b", second.job.name, second.job.outputs],
        ["2", "placed", "1", "c", third.job.name, "-"],
    ]
    assert (
        main(["grid", "rows", "listed", "--regions", "eu-west-1", "--state", "done", "--json"]) == 0
    )
    (row,) = json.loads(capsys.readouterr().out)
    found = [
        row[name] for name in ("index", "key", "state", "job", "region", "instance_type", "result")
    ]
    assert found == [
        1,
        "b",
        "done",
        second.job.name,
        "eu-west-1",
        "ml.g5.xlarge",
        second.job.outputs,
    ]
    assert main(["grid", "rows", "nothing"]) == 2
    assert "there is no grid 'nothing'" in capsys.readouterr().err


def report_rate(grid, row, value):
    """Put a value of the metric images_per_s for the row's job, as the service finds it in a log."""
    service = grid.service(grid.target.in_region(row.region))
    dimensions = [{"Name": "TrainingJobName", "Value": row.job.name}]
    datum = {
        "MetricName": "images_per_s",
        "Dimensions": dimensions,
        "Timestamp": datetime.now(UTC),
        "Value": value,
    }
    service.client("cloudwatch").put_metric_data(
        Namespace="/aws/sagemaker/TrainingJobs", MetricData=[datum]
    )


def test_the_rates_of_the_jobs_that_children_sent_add_up_over_regions_while_they_run(grid, capsys):
    row_jobs = jobs_in(grid, "rated")
    first, second, third = map(row_jobs.send, row_jobs.rows)
    assert second.job.wait(120) is Status.COMPLETED
    for row, value in ((first, 750.0), (second, 100.0), (third, 1250.0)):
        report_rate(grid, row, value)
    command = ["grid", "rows", "rated", "--regions", ",".join(REGIONS), "--rate", "images_per_s"]
    assert main(command) == 0
    head, *lines, last = capsys.readouterr().out.splitlines()
    at = head.split().index("rate")
    assert [line.split()[at] for line in lines] == ["750", "100", "1,250"]
    # The second job has ended.
    assert last == "rate    2,000 images_per_s combined, of 2 running jobs"
    assert main([*command, "--json"]) == 0
    assert [row["rate"] for row in json.loads(capsys.readouterr().out)] == [750, 100, 1250]


def test_rates_that_no_running_job_has_reported_are_said_to_be_missing(grid, capsys):
    row_jobs = jobs_in(grid, "unrated")
    row_jobs.send(row_jobs.rows[0])
    assert (
        main(["grid", "rows", "unrated", "--regions", "us-east-1", "--rate", "images_per_s"]) == 0
    )
    assert "no running job has reported images_per_s" in capsys.readouterr().out


def test_a_row_without_a_type_of_instance_is_refused(grid):
    untyped = EmbeddedGrid(grid.home, REGIONS, types=())
    with pytest.raises(InvalidRequest, match="--instance-type"):
        jobs_in(untyped, "untyped")
    row_jobs = RowJobs(
        untyped.request([{"key": "a", "instance_type": "ml.m5.large"}], name="untyped"),
        grid.service,
    )
    with pytest.raises(InvalidRequest, match=r"row 2 \(b\)"):
        row_jobs.send(Row(key="b", position=1))


def rows(count):
    return [Row(key=str(number)) for number in range(count)]


@pytest.mark.parametrize("index", [3, -1])
def test_an_index_without_rows_says_how_large_the_array_is(index):
    with pytest.raises(InvalidRequest, match=r"array of 3\b"):
        list(slice_of(rows(5), index, 2))


@pytest.mark.parametrize(("index", "keys"), [(0, ["0", "1"]), (1, ["2", "3"]), (2, ["4"])])
def test_each_child_has_its_slice_and_the_last_one_what_is_left(index, keys):
    assert [row.key for row in slice_of(rows(5), index, 2)] == keys
