"""What Batch's jobs are sent to, kept in a file."""

import pytest

from raysm.local.server.api_error import ApiError
from raysm.local.server.batch.resources import Resource, Resources


def queue(name="q", region="us-east-1", **body):
    return Resource(part="job-queue", region=region, name=name, body=body)


def test_one_is_found_by_its_name_and_by_its_arn_in_its_own_region_alone(tmp_path):
    resources = Resources(tmp_path)
    made = resources.add(queue(priority=1))
    assert made.arn == "arn:aws:batch:us-east-1:123456789012:job-queue/q"
    assert resources.get("job-queue", "us-east-1", "q") == resources.get("job-queue", "us-east-1", made.arn) == made
    with pytest.raises(ApiError, match="q does not exist: there is no such job-queue in eu-west-1"):
        resources.get("job-queue", "eu-west-1", "q")
    with pytest.raises(ApiError, match="does not exist"):
        resources.get("job-queue", "eu-west-1", made.arn)


def test_a_name_is_given_once_in_a_region(tmp_path):
    resources = Resources(tmp_path)
    resources.add(queue())
    resources.add(queue(region="eu-west-1"))
    with pytest.raises(ApiError, match="already exists"):
        resources.add(queue())


def test_a_server_that_starts_anew_finds_what_there_was(tmp_path):
    before = Resources(tmp_path)
    before.change(before.add(queue(priority=1, state="ENABLED")), state="DISABLED")
    before.remove(before.add(queue("gone")))
    (there,) = Resources(tmp_path).all("job-queue")
    assert (there.body, there.is_enabled) == ({"priority": 1, "state": "DISABLED"}, False)


def test_nobody_else_reads_the_file(tmp_path):
    Resources(tmp_path).add(queue())
    assert (tmp_path / "batch" / "resources.json").stat().st_mode & 0o077 == 0


def test_a_file_that_was_deleted_with_its_folder_does_not_come_back_with_a_change(tmp_path):
    resources = Resources(tmp_path)
    made = resources.add(queue(priority=1))
    (tmp_path / "batch").rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        resources.change(made, priority=2)
    assert [path.name for path in tmp_path.iterdir()] == ["elsewhere"]
