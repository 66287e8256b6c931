"""Records of jobs on a disk that cannot take them."""

import pytest

from raysm.contract.job_api import TRAINING
from raysm.local.server.api_error import ApiError
from raysm.local.server.records import JobRecord, Records


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


def test_a_job_ends_though_its_end_cannot_be_written(tmp_path):
    records = Records(tmp_path)
    records.add(record())
    (tmp_path / "jobs").rename(tmp_path / "elsewhere")
    (tmp_path / "jobs").write_text("in the way")
    records.advance(records.get(TRAINING, "a"), "Failed", "", status="Failed")
    assert records.get(TRAINING, "a").final
