"""From a row to its job: what the row says wins, columns stand where braces are, the others are hyperparameters."""

import pytest

from raysm.errors import InvalidRequest
from raysm.grid.filling import GIVEN, Template
from raysm.grid.place import Place
from raysm.grid.task import Task
from raysm.request import AWS, Cluster, Input, Limits, Local, Script

HERE = Place(region="eu-central-1", instance_type="ml.g5.xlarge")
SPOT = Place(region="eu-central-1", instance_type="ml.g5.xlarge", spot=True)
ROLE = "arn:aws:iam::123456789012:role/r"


def template(*args, target=None, **options):
    return Template(workload=Script("train.py", args=args), target=target or AWS(role=ROLE), options=options)


def task(**fields):
    return Task(**{"key": "stuttgart", "position": 4, **fields})


def test_columns_stand_in_the_arguments_and_the_others_are_hyperparameters():
    job = template("--lr", "{lr}", "--of", "{key}").job(task(parameters={"lr": 0.1, "depth": 4, "note": None}), HERE, 2)
    assert job.workload.args == ("--lr", "0.1", "--of", "stuttgart")
    assert job.options["hyperparameters"] == {"depth": "4"}


@pytest.mark.parametrize("value", [-1.6e-05, "-relu"])
def test_an_option_and_a_value_that_begins_with_a_dash_are_one_word(value):
    job = template("--shift", "{shift}", "--lr", "0.1").job(task(parameters={"shift": value}), HERE, 1)
    assert job.workload.args == (f"--shift={value}", "--lr", "0.1")


def test_the_place_is_the_jobs_region_type_count_and_market():
    job = template(cluster=Cluster(volume_gb=100), limits=Limits(max_runtime_s=60)).job(task(), SPOT, 3)
    assert (job.target.region, job.options["cluster"]) == (
        "eu-central-1",
        Cluster("ml.g5.xlarge", count=3, volume_gb=100),
    )
    assert job.options["limits"] == Limits(max_runtime_s=60, spot=True)


def test_one_image_name_serves_all_regions():
    target = AWS(role=ROLE, image="{account}.dkr.ecr.{region}.amazonaws.com/train:1")
    job = template(target=target).job(task(), HERE, 1, account=lambda: "123456789012")
    assert job.target.image == "123456789012.dkr.ecr.eu-central-1.amazonaws.com/train:1"


def test_the_account_is_asked_for_only_where_it_is_taken():
    asked = []
    template("{region}").job(task(), HERE, 1, account=lambda: asked.append(1))
    assert asked == []


def test_a_rows_own_columns_win_over_what_all_share():
    shared = template(
        inputs={"data": Input("s3://all", distribution="ShardedByS3Key"), "labels": Input("s3://labels-{region}")},
        environment={"LEVEL": "1", "MODE": "{mode}"},
        tags={"team": "a"},
    )
    row = task(
        parameters={"mode": "fast"},
        inputs={"data": "s3://own"},
        environment={"LEVEL": "2"},
        tags={"team": "b"},
        checkpoint="s3://c",
        image="acme/own:{mode}",
        max_runtime_s=90,
    )
    job = shared.job(row, HERE, 1)
    assert job.options["inputs"] == {
        "data": Input("s3://own", distribution="ShardedByS3Key"),
        "labels": Input("s3://labels-eu-central-1"),
    }
    assert job.options["environment"] == {"LEVEL": "2", "MODE": "fast"}
    assert job.options["tags"] == {"team": "b"}
    assert job.options["checkpoint_uri"] == "s3://c"
    assert job.options["limits"].max_runtime_s == 90
    assert job.target.image == "acme/own:fast"
    assert "hyperparameters" not in job.options


def test_a_rows_manifest_is_read_as_one_and_shared_as_all_rows_are():
    shared = {"data": Input("s3://b/all/", distribution="ShardedByS3Key")}
    job = template(inputs=shared).job(task(manifests={"data": "s3://b/m", "more": "s3://b/n"}), HERE, 1)
    assert job.options["inputs"] == {
        "data": Input("s3://b/m", distribution="ShardedByS3Key", manifest=True),
        "more": Input("s3://b/n", manifest=True),
    }


def test_this_machine_plays_the_region_that_the_place_is_in():
    target = Local(regions=("us-east-1", "eu-central-1"))
    assert template(target=target).job(task(), HERE, 1).target == Local(regions=("eu-central-1",))


def test_a_row_that_runs_longer_than_all_may_wait_has_the_wait_that_follows_from_its_time():
    job = template(limits=Limits(spot=True, max_runtime_s=60, max_wait_s=100)).job(task(max_runtime_s=500), SPOT, 1)
    assert (job.options["limits"].max_runtime_s, job.options["limits"].max_wait_s) == (500, None)


def test_a_template_that_takes_no_column_of_the_rows_is_refused_and_what_every_row_has_is_known():
    template("{lr}", *(f"{{{name}}}" for name in GIVEN)).check(["lr"], "drives.csv")
    with pytest.raises(InvalidRequest, match=r"drives.csv has no column 'rl'; did you mean \{lr\}"):
        template("{rl}").check(["lr"], "drives.csv")
    with pytest.raises(InvalidRequest, match="no column 'acount'"):
        template(target=AWS(role=ROLE, image="{acount}/x")).check(["lr"], "drives.csv")


def test_rows_that_would_be_processing_jobs_are_refused_before_anything_is_sent():
    with pytest.raises(InvalidRequest, match="a grid runs training jobs, got kind='processing'; leave kind out"):
        template(kind="processing").check([], "rows")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lr": None}, r"row 5 \(stuttgart\): the column 'lr' is empty"),
        ({"lr": 1} | {f"c{n}": n for n in range(101)}, "101 hyperparameters .*at most 100"),
        ({"lr": 1, "text": "x" * 2501}, "column 'text': 2,501 characters"),
    ],
    ids=["empty", "too many", "too long"],
)
def test_what_cannot_be_a_job_is_refused_with_its_row(parameters, message):
    with pytest.raises(InvalidRequest, match=message):
        template("{lr}").job(task(parameters=parameters), HERE, 1)


def test_alternatives_are_the_grids_to_choose_and_never_a_jobs_own_beside_its_place():
    shared = template(cluster=Cluster("ml.p4d.24xlarge", volume_gb=100, alternatives=("ml.g5.xlarge",)))
    assert shared.job(task(), HERE, 2).options["cluster"] == Cluster("ml.g5.xlarge", count=2, volume_gb=100)
