"""Records that a full disk refused are written as soon as it has room."""

import pytest

from raysm.local.server.records import RecordFiles


@pytest.fixture
def files():
    return RecordFiles()


@pytest.fixture
def blocked(tmp_path):
    """A path that cannot be written, as if the disk were full, until ``unblock``."""
    folder = tmp_path / "jobs" / "a"
    folder.parent.mkdir()
    folder.write_text("a file where the folder belongs")
    return folder / "record.json"


def unblock(path):
    path.parent.unlink()


def test_a_record_that_could_not_be_written_is_written_by_the_next_retry_that_can(files, blocked, tmp_path, caplog):
    files.write_or_retry("training job a", blocked, "ended", tmp_path / "jobs")
    files.retry()
    assert files.unwritten() == ["training job a"]
    unblock(blocked)
    files.retry()
    assert (blocked.read_text(), files.unwritten()) == ("ended", [])
    assert [record.message for record in caplog.records] == [
        f"the record of the training job a was not written, and will be tried again: [Errno 17] File exists: "
        f"'{blocked.parent}'",
        "the record of the training job a, which a full disk had refused, is written now",
    ]


def test_a_later_change_that_could_be_written_is_not_replaced_by_an_earlier_one(files, blocked, tmp_path):
    files.write_or_retry("training job a", blocked, "stopping", tmp_path / "jobs")
    unblock(blocked)
    files.write_or_retry("training job a", blocked, "ended", tmp_path / "jobs")
    files.retry()
    assert blocked.read_text() == "ended"


def test_the_record_of_a_job_that_was_deleted_is_not_written_again(files, blocked, tmp_path):
    files.write_or_retry("training job a", blocked, "ended", tmp_path / "jobs")
    unblock(blocked)
    files.forget(tmp_path / "jobs" / "a")
    files.retry()
    assert not blocked.exists()


def test_a_folder_that_was_deleted_is_not_made_again(files, tmp_path):
    gone = tmp_path / "gone"
    files.write_or_retry("training job a", gone / "record.json", "ended", gone)
    files.retry()
    assert (gone.exists(), files.unwritten()) == (False, [])
