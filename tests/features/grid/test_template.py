"""From a row to its job: what the row says wins, columns stand where braces are, the others are hyperparameters."""

import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from raysm.core.request import AWS, Alternative, Cluster, Input, MetricDefinition
from raysm.errors import InvalidRequest
from raysm.features.grid.attempt import Attempt
from raysm.features.grid.market import Place
from raysm.features.grid.row import Row
from raysm.features.grid.rules import Rules
from raysm.features.grid.store.store import Store
from raysm.features.grid.template import (
    Template,
    check_names,
    fill,
    preparing,
    secret_of,
    with_rate,
)
from raysm.features.script.request import Script
from tests.support.sagemaker import REGION, aws

VALUES = {"lr": 0.125, "campaign": "Stuttgart 3", "region": "eu-central-1", "empty": None}


@pytest.mark.parametrize(
    "text",
    [
        "{lr.__class__}",
        "{lr[0]}",
        "{0}",
        "{}",
        "{lr!r}",
        "{lr:{campaign}}",
        '{"a": 1}',
        "{lr",
        "lr}",
    ],
)
def test_braces_hold_a_column_and_nothing_else(text):
    with pytest.raises(InvalidRequest, match="brace"):
        check_names(text, ["lr", "campaign"], "drives.csv")


def test_a_columns_name_may_have_blanks_and_signs():
    text = "{min leaf:.2f}/{a.b}/{alcohol %}"
    row = {"min leaf": 1.0, "a.b": 2, "alcohol %": "x"}
    check_names(text, row, "drives.csv")
    assert fill(text, row, "row 1") == "1.00/2/x"


def test_a_column_that_there_is_not_is_refused_with_the_one_that_comes_nearest():
    check_names("{lr}", ["lr"], "drives.csv")
    with pytest.raises(InvalidRequest, match=r"'campagn'.*\{campaign\}"):
        check_names("{campagn}", VALUES, "drives.csv")
    with pytest.raises(InvalidRequest, match="'zzz'.* lr; .*account"):
        check_names("{zzz}", ["lr"], "drives.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{empty}", "row 4.*'empty'"),
        ("{campaign:.2f}", "row 4.*'campaign'"),
    ],
)
def test_a_value_that_is_not_there_or_takes_no_such_format_is_refused_with_row_and_column(
    text, message
):
    with pytest.raises(InvalidRequest, match=message):
        fill(text, VALUES, "row 4")


@pytest.mark.parametrize(
    ("value", "form", "filled"),
    [
        ("0.00012345", ".3g", "0.000123"),
        ("7", "03", "007"),
        ("7", ".2f", "7.00"),
        ("9007199254740993", "d", "9007199254740993"),
        ("7", ">3", "  7"),
        ("0.125", "", "0.125"),
        ("0.125", ".3s", "0.1"),
        ("abcdef", ".3", "abc"),
    ],
)
def test_a_number_that_a_file_holds_as_text_takes_a_format_for_numbers(value, form, filled):
    assert fill(f"{{lr:{form}}}" if form else "{lr}", {"lr": value}, "row 1") == filled


@pytest.fixture
def grid(tmp_path):
    store = Store(tmp_path / "grid.db")
    yield store.make("drives", rules=Rules(), now=0.0)
    store.database.close()


def attempt(number=1, **changes):
    fields = {
        "row_key": "a", "number": number, "name": f"drives-abcdef-01234567-a{number}", "region": REGION,
        "instance_type": "ml.m5.large", "count": 2, "max_runtime_s": 77,
    }  # fmt: skip
    return Attempt(**fields | changes)


def maker(remote, grid, tmp_path, *args, services=None, **options):
    script = tmp_path / "train.py"
    script.write_text("print(1)\n")
    template = Template(workload=Script(str(script), args=args), target=aws(), options=options)
    return preparing(template, grid, "secret", services or (lambda target: remote.service))


def test_a_row_for_which_the_service_may_choose_a_type_names_all_of_them_in_one_call(
    remote, grid, tmp_path
):
    chosen = attempt(choice='{"ml.m5.large": 1.0, "ml.c5.large": 2.0}')
    call = maker(remote, grid, tmp_path)(Row(key="a"), chosen).plan.request
    assert call["ResourceConfig"]["InstancePreferences"] == [
        {"InstanceType": "ml.m5.large"},
        {"InstanceType": "ml.c5.large"},
    ]
    assert call["ResourceConfig"]["InstanceCount"] == 2
    assert "InstanceType" not in call["ResourceConfig"]


def test_a_grid_refuses_alternatives_with_a_count_of_their_own(remote, grid, tmp_path):
    cluster = Cluster("ml.m5.large", alternatives=(Alternative("ml.c5.large", 2),))
    with pytest.raises(InvalidRequest, match="names of types"):
        maker(remote, grid, tmp_path, cluster=cluster)(Row(key="a"), attempt())


def test_a_further_try_of_a_row_has_its_state_and_another_row_has_not(remote, grid, tmp_path):
    make = maker(remote, grid, tmp_path)
    first, second = (
        make(Row(key="a"), attempt(number)).request.checkpoint_uri for number in (1, 2)
    )
    assert first == second
    assert make(Row(key="b"), attempt()).request.checkpoint_uri != first
    own = make(Row(key="a", checkpoint="s3://own/state"), attempt())
    assert own.request.checkpoint_uri == "s3://own/state"


def test_the_secret_of_a_grid_lies_beside_its_file_for_its_owner_alone_and_stays(tmp_path):
    secret = secret_of(tmp_path / "grid.db")
    assert len(secret) == 64
    assert secret_of(tmp_path / "grid.db") == secret
    assert stat.S_IMODE((tmp_path / "grid.key").stat().st_mode) == 0o600
    assert secret_of(tmp_path / "other.db") != secret


def test_runs_of_a_grid_that_begin_at_once_have_one_secret(tmp_path):
    for number in range(3):
        store = tmp_path / f"{number}.db"
        begins = threading.Barrier(4)

        def draw(store=store, begins=begins):
            begins.wait(60)
            return secret_of(store)

        with ThreadPoolExecutor(4) as pool:
            assert len({future.result() for future in [pool.submit(draw) for _ in range(4)]}) == 1


def test_a_job_of_a_grid_that_measures_lets_the_service_find_the_metric_and_a_users_own_counts(
    remote, grid, tmp_path
):
    measured = replace(grid, rules=Rules(rate="images_per_s"))

    def definitions(**options):
        call = maker(remote, measured, tmp_path, **options)(Row(key="a"), attempt()).plan.request
        return {
            each["Name"]: each["Regex"]
            for each in call["AlgorithmSpecification"]["MetricDefinitions"]
        }

    assert definitions() == {"images_per_s": with_rate((), "images_per_s")[0].regex}
    own = MetricDefinition(name="images_per_s", regex="speed=([0-9.]+)")
    assert definitions(metrics=(own,)) == {"images_per_s": own.regex}


HERE = Place(region="eu-central-1", instance_type="ml.g5.xlarge")
ROLE = "arn:aws:iam::123456789012:role/r"


def template(*args, target=None, **options):
    return Template(
        workload=Script("train.py", args=args), target=target or AWS(role=ROLE), options=options
    )


def row(**fields):
    return Row(**{"key": "stuttgart", "position": 4, **fields})


def test_columns_stand_in_the_arguments_and_the_others_are_hyperparameters():
    job = template("--lr", "{lr}", "--of", "{key}").job(
        row(parameters={"lr": 0.1, "depth": 4, "note": None}), HERE, 2
    )
    assert job.workload.args == ("--lr", "0.1", "--of", "stuttgart")
    assert job.options["hyperparameters"] == {"depth": "4"}


def test_folders_of_the_job_stay_in_braces_for_the_job_unless_a_column_has_the_name():
    check_names(("{channel_garden}/plants.csv", "{state}"), ["garden"], "rows.csv")
    rows = row(parameters={"state": "Bavaria"})
    shared = template(
        "{channel_garden}/plants.csv", "--state", "{state}", inputs={"garden": Input("s3://garden")}
    )
    job = shared.job(rows, HERE, 1)
    assert job.workload.args == ("{channel_garden}/plants.csv", "--state", "Bavaria")


@pytest.mark.parametrize("value", [-1.6e-05, "-relu"])
def test_an_option_and_a_value_that_begins_with_a_dash_are_one_word(value):
    job = template("--shift", "{shift}", "--lr", "0.1").job(
        row(parameters={"shift": value}), HERE, 1
    )
    assert job.workload.args == (f"--shift={value}", "--lr", "0.1")


def test_a_rows_own_columns_win_over_what_all_share():
    shared = template(
        inputs={
            "data": Input("s3://all", distribution="ShardedByS3Key"),
            "labels": Input("s3://labels-{region}"),
        },
        environment={"LEVEL": "1", "MODE": "{mode}"},
        tags={"team": "a"},
    )
    own = row(
        parameters={"mode": "fast"},
        inputs={"data": "s3://own"},
        environment={"LEVEL": "2"},
        tags={"team": "b"},
        checkpoint="s3://c",
        image="acme/own:{mode}",
        max_runtime_s=90,
    )
    job = shared.job(own, HERE, 1)
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
    job = template(inputs=shared).job(
        row(manifests={"data": "s3://b/m", "more": "s3://b/n"}), HERE, 1
    )
    assert job.options["inputs"] == {
        "data": Input("s3://b/m", distribution="ShardedByS3Key", manifest=True),
        "more": Input("s3://b/n", manifest=True),
    }


def test_rows_that_would_be_processing_jobs_are_refused_before_anything_is_sent():
    with pytest.raises(InvalidRequest, match="kind='processing'"):
        template(kind="processing").check([], "rows")


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"lr": None}, r"row 5 \(stuttgart\).*'lr'"),
        ({"lr": 1} | {f"c{n}": n for n in range(101)}, "101 hyperparameters"),
        ({"lr": 1, "text": "x" * 2501}, "'text'.*2,501"),
    ],
    ids=["empty", "too many", "too long"],
)
def test_what_cannot_be_a_job_is_refused_with_its_row(parameters, message):
    with pytest.raises(InvalidRequest, match=message):
        template("{lr}").job(row(parameters=parameters), HERE, 1)
