"""In the Batch job: the grid goes on from its record alone, whoever had it before."""

import shutil

import pytest

from raysm.errors import InvalidPayload, InvalidRequest
from raysm.grid.batch_job.taking_up import NOT_ALL_DONE, exit_code, take_up
from raysm.views.grid.handle import attach_grid


def run(laptop, running):
    """Run to the end; every job ends well once it is looked at again."""
    now = running.clock.now()
    while (wait_s := running.step(now)) is not None:
        now += max(wait_s, 1.0)
        laptop.end_jobs(now)


def test_the_rows_of_the_record_run_as_they_would_on_the_machine_that_handed_them_over(laptop, tmp_path):
    laptop.send()
    running = laptop.take_up(tmp_path / "job")
    run(laptop, running)
    assert exit_code(running) == 0
    running.close()
    assert len({call["TrainingJobName"] for call in laptop.fake.sagemaker.sent}) == 2
    # What the script imports has come the whole way.
    listed = laptop.service.call("s3", "list_objects_v2", Bucket=laptop.service.bucket.name)["Contents"]
    assert [item["Key"].rpartition("/source/")[2] for item in listed if "/source/" in item["Key"]] == [
        "helper.py",
        "train.py",
    ]
    assert attach_grid("drives").status().states == {"done": 2}


def test_the_next_attempt_knows_nothing_but_the_record_and_sends_nothing_twice(laptop, tmp_path):
    laptop.send()
    first = laptop.take_up(tmp_path / "first")
    first.step(first.clock.now())
    sent = [call["TrainingJobName"] for call in laptop.fake.sagemaker.sent]
    assert sent
    # Its host is lost, with all that lay there; it had let go, so that nobody waits for the end of its lease here.
    first.close()
    shutil.rmtree(tmp_path / "first")
    second = laptop.take_up(tmp_path / "second")
    run(laptop, second)
    second.close()
    assert sorted({call["TrainingJobName"] for call in laptop.fake.sagemaker.sent}) == sorted(
        call["TrainingJobName"] for call in laptop.fake.sagemaker.sent
    )
    assert attach_grid("drives").status().states == {"done": 2}


def test_rows_that_somebody_stopped_are_no_failure_and_others_are(laptop, tmp_path):
    laptop.send()
    running = laptop.take_up(tmp_path / "job")
    execute = running.store.database.connection.execute
    execute("UPDATE task SET state = 'stopped'")
    assert exit_code(running) == 0
    execute("UPDATE task SET state = 'failed' WHERE key = 'a'")
    assert exit_code(running) == NOT_ALL_DONE
    execute("UPDATE task SET state = 'done'")
    execute("UPDATE grid SET state = 'paused'")
    assert exit_code(running) == NOT_ALL_DONE
    running.close()


def test_what_is_not_there_or_not_as_it_was_is_refused(laptop, tmp_path):
    laptop.send()
    uri = laptop.handed_over
    with pytest.raises(InvalidRequest, match="there is nothing at s3://.*raysm grid run --via batch hands a grid over"):
        take_up(f"{uri}x", laptop.service, tmp_path, laptop.services)
    laptop.service.call("s3", "put_object", Bucket=uri.split("/")[2], Key="/".join(uri.split("/")[3:]), Body=b"other")
    with pytest.raises(InvalidPayload, match="is not as it was written"):
        take_up(uri, laptop.service, tmp_path, laptop.services)
