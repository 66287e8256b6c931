"""Records of jobs on a disk that cannot take them."""

import pytest

from raysm.contract.job_api import TRAINING
from raysm.local.server.records import JobRecord, Records
from raysm.local.server.validation import ApiError


def record():
    return JobRecord(
        kind="training", name="a", arn="arn:a", region="us-east-1", request={}, created_s=1.0, modified_s=1.0
    )


def test_a_job_that_cannot_be_written_is_not_there(tmp_path):
    records = Records(tmp_path)
    (tmp_path / "jobs" / "training").write_text("in the way")
    with pytest.raises(OSError, match="training"):
        records.add(record())
    with pytest.raises(ApiError):
        records.get(TRAINING, "a")
    (tmp_path / "jobs" / "training").unlink()
    records.add(record())
    assert Records(tmp_path).get(TRAINING, "a") == record()


def test_a_job_whose_folder_is_gone_does_not_make_it_anew(tmp_path):
    records = Records(tmp_path)
    records.add(record())
    (tmp_path / "jobs" / "training" / "a").rename(tmp_path / "elsewhere")
    records.advance(records.get(TRAINING, "a"), "Failed", "", status="Failed")
    assert records.get(TRAINING, "a").final
    assert list((tmp_path / "jobs").rglob("*")) == [tmp_path / "jobs" / "training"]


def test_a_new_job_is_not_written_into_another_home_of_the_same_name(tmp_path):
    records = Records(tmp_path / "home")
    (tmp_path / "home").rename(tmp_path / "elsewhere")
    (tmp_path / "home" / "jobs").mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="another folder now"):
        records.add(record())
    assert list((tmp_path / "home" / "jobs").iterdir()) == []


def block(tmp_path):
    """Make records that cannot be written, as if the disk were full; return the path in the way."""
    folder = tmp_path / "jobs" / "training" / "a"
    folder.rename(tmp_path / "aside")
    folder.write_text("a file where the folder belongs")
    return folder


def unblock(tmp_path, folder):
    folder.unlink()
    (tmp_path / "aside").rename(folder)


def test_a_record_that_could_not_be_written_is_written_by_the_next_retry_that_can(tmp_path, caplog):
    records = Records(tmp_path)
    records.add(record())
    folder = block(tmp_path)
    records.update(TRAINING, "a", status="Failed")
    records.retry()
    assert records.unwritten() == ["training job a"]
    unblock(tmp_path, folder)
    assert Records(tmp_path).get(TRAINING, "a").status == "InProgress"
    records.retry()
    assert records.unwritten() == []
    assert Records(tmp_path).get(TRAINING, "a").status == "Failed"
    first, last = (record.message for record in caplog.records)
    assert first.startswith("the record of the training job a was not written, and will be tried again: ")
    assert last == "the record of the training job a, which a full disk had refused, is written now"


def test_the_record_of_a_job_that_was_deleted_is_not_written_again(tmp_path):
    records = Records(tmp_path)
    records.add(record())
    folder = block(tmp_path)
    records.update(TRAINING, "a", status="Failed")
    records.delete(TRAINING, "a")
    folder.unlink()
    records.retry()
    assert not folder.exists()
