"""Records of tuning jobs outlive the server that wrote them."""

import os

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.tuning.records import LOST, Child, TuningRecord, TuningRecords
from tests.support.hand_clock import HandClock
from tests.support.tuning import tuning_request


def record(name="tuned", region="us-east-1", **fields):
    return TuningRecord(
        name=name,
        arn=f"arn:{name}",
        region=region,
        request=tuning_request(name),
        seed=1,
        created_s=1.0,
        modified_s=1.0,
        **fields,
    )


def test_what_was_written_is_read_again_with_its_training_jobs(tmp_path):
    records = TuningRecords(tmp_path, HandClock())
    records.add(record())
    child = Child(number=0, name="job", assignment={"lr": "0.1"}, losses=(2.0, 1.0), value=1.0, ended=True)
    changed = records.update(record(), status="Completed", children=(child,))
    assert TuningRecords(tmp_path, HandClock()).get("tuned", "us-east-1") == changed


def test_one_that_a_server_left_has_failed_and_says_why(tmp_path):
    TuningRecords(tmp_path, HandClock()).add(record())
    left = TuningRecords(tmp_path, HandClock()).get("tuned", "us-east-1")
    assert (left.status, left.failure_reason) == ("Failed", LOST)


def test_a_name_is_taken_once_in_each_region(tmp_path):
    records = TuningRecords(tmp_path, HandClock())
    records.add(record())
    records.add(record(region="eu-west-1"))
    with pytest.raises(ApiError, match="must be unique within an AWS account and region") as refused:
        records.add(record())
    assert refused.value.code == "ResourceInUse"


def test_what_is_deleted_is_gone_with_its_file(tmp_path):
    records = TuningRecords(tmp_path, HandClock())
    records.add(record())
    records.delete(record())
    with pytest.raises(ApiError, match="Requested resource not found"):
        records.get("tuned", "us-east-1")
    assert TuningRecords(tmp_path, HandClock()).all() == []


def test_a_record_is_closed_to_other_users(tmp_path):
    TuningRecords(tmp_path, HandClock()).add(record())
    (file,) = tmp_path.rglob("record.json")
    assert os.stat(file).st_mode & 0o077 == 0


def test_a_file_that_cannot_be_read_is_passed_over(tmp_path):
    TuningRecords(tmp_path, HandClock()).add(record())
    (file,) = tmp_path.rglob("record.json")
    file.write_text("{")
    assert TuningRecords(tmp_path, HandClock()).all() == []


def test_the_status_of_an_objective_follows_from_its_value_and_the_end():
    child = Child(number=0, name="job", assignment={})
    assert child.objective_status == "Pending"
    assert Child(number=0, name="job", assignment={}, ended=True).objective_status == "Failed"
    assert Child(number=0, name="job", assignment={}, ended=True, value=0.0).objective_status == "Succeeded"


def test_records_that_were_deleted_do_not_come_back_with_a_change(tmp_path):
    records = TuningRecords(tmp_path, HandClock())
    records.add(record())
    (tmp_path / "tuning").rename(tmp_path / "elsewhere")
    assert records.update(record(), status="Failed").final
    with pytest.raises(FileNotFoundError):
        records.add(record("another"))
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
