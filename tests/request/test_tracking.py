"""Where metrics are mirrored to."""

import pytest

from raysm.errors import InvalidRequest
from raysm.request import JobRequest, Script
from raysm.request.tracking import MANAGED, PLACES, SERVER, SQLITE, check_tracking, place_of

ARN = "arn:aws:sagemaker:eu-west-1:123456789012:mlflow-tracking-server/team"


@pytest.mark.parametrize(
    ("tracking", "place"),
    [
        ("sqlite:///mlflow.db", SQLITE),
        ("sqlite:////home/me/mlflow.db", SQLITE),
        ("http://127.0.0.1:5000", SERVER),
        ("https://mlflow.example/path", SERVER),
        (ARN, MANAGED),
        ("arn:aws:sagemaker:eu-west-1:123456789012:mlflow-app/app-ABC", MANAGED),
    ],
)
def test_its_kind_is_found_by_its_uri(tracking, place):
    assert place_of(tracking) is place
    check_tracking(tracking)


@pytest.mark.parametrize(
    "tracking",
    [
        "",
        "mlruns",
        "file:///mlruns",
        "./mlflow.db",
        "sqlite://",
        "sqlite:///",
        "postgresql://x",
        "databricks",
        "arn:aws:s3:::x",
    ],
)
def test_what_is_none_is_refused_with_those_that_there_are(tracking):
    with pytest.raises(InvalidRequest, match=r"give sqlite:///mlflow.db, http://.*, arn:aws:sagemaker"):
        check_tracking(tracking)


@pytest.mark.parametrize(
    "tracking",
    [
        "https://me:hunter2@mlflow.example",
        "https://hunter2@mlflow.example",
        "postgresql://me:hunter2@db.example/mlflow",
        "mysql+pymysql://me:hunter2@db.example/mlflow",
    ],
)
def test_a_password_in_it_is_refused_and_not_repeated(tracking):
    with pytest.raises(InvalidRequest, match="tracking has a password in it") as raised:
        check_tracking(tracking)
    assert "hunter2" not in str(raised.value)


def test_a_file_may_have_such_a_letter_in_its_path():
    check_tracking("sqlite:////home/me@example.org/mlflow.db")


@pytest.mark.parametrize("place", PLACES)
def test_each_says_how_it_is_written(place):
    assert place.form.fullmatch(place.example.replace("REGION:ACCOUNT", "eu-west-1:123456789012"))


def test_a_request_knows_who_writes_and_what_that_takes():
    def request(tracking):
        return JobRequest(name="digits", workload=Script("train.py"), tracking=tracking)

    assert [request(uri).is_tracked_by_head for uri in (None, "sqlite:///m.db", "http://m:5000", ARN)] == [
        False,
        False,
        True,
        True,
    ]
    assert request(ARN).packages == ("mlflow", "sagemaker_mlflow")
    assert request("sqlite:///m.db").packages == ()
    with pytest.raises(InvalidRequest, match="is not a place"):
        request("mlruns")
