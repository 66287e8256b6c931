"""A grid is handed over to AWS Batch; what cannot be is refused before anything is made."""

import pytest

import raysm
from raysm.errors import InvalidRequest
from raysm.grid.batch_job.definition import ControllerJob
from raysm.grid.batch_job.sending import send
from raysm.grid.local_grids import handover_target, opened
from raysm.grid.rules import Rules
from raysm.grid.store import path_of
from raysm.views.grid.handle import attach_grid
from tests.support.handed_over_grids import JOB, ROWS, TYPE
from tests.support.sagemaker import REGION


def nothing_was_made(laptop):
    return not laptop.batch.submitted and not path_of("drives").exists()


def test_the_job_takes_the_grid_up_and_is_started_again_unless_it_says_itself_that_it_is_over(laptop):
    sent = send(laptop.planned(), JOB, laptop.services)
    (call,) = laptop.batch.submitted
    assert sent.id == "id-1"
    assert (call["jobQueue"], call["jobDefinition"]) == ("controllers", "raysm-grid-controller")
    command = call["containerOverrides"]["command"]
    assert command[:5] == ["python3", "-m", "raysm", "grid", "take-up"]
    assert command[6:] == ["--on", "aws"]
    assert call["retryStrategy"]["attempts"] == 10
    assert {(rule["onExitCode"], rule["action"]) for rule in call["retryStrategy"]["evaluateOnExit"]} == {
        ("2", "EXIT"),
        ("3", "EXIT"),
    }


def test_its_rows_are_in_its_record_and_no_job_was_sent(laptop):
    laptop.send()
    assert laptop.fake.sagemaker.sent == []
    # By the target alone, as another machine finds it.
    assert attach_grid("drives", laptop.service).status().states == {"waiting": 2}
    assert handover_target(path_of("drives")) == laptop.request().template.target


def test_while_a_batch_job_is_open_there_is_no_second_one(laptop):
    laptop.send()
    with pytest.raises(InvalidRequest, match="has a controller already, the Batch job id-1 of the queue controllers"):
        laptop.send()
    laptop.batch.status = "FAILED"
    assert laptop.send([{"key": "c", "lr": 0.3}]).id == "id-2"
    assert attach_grid("drives", laptop.service).status().states == {"waiting": 3}


def test_a_grid_that_is_over_takes_no_job(laptop, tmp_path):
    laptop.send()
    laptop.batch.status = "SUCCEEDED"
    running = laptop.take_up(tmp_path / "job")
    with running.store.database.transaction("test", fenced=False):
        running.store.database.connection.execute("UPDATE task SET state = 'done'")
    running.close()
    assert laptop.send() is None
    assert len(laptop.batch.submitted) == 1
    assert handover_target(path_of("drives")) is None


def test_what_a_batch_job_does_not_reach_is_refused(laptop):
    with pytest.raises(InvalidRequest, match="leave --no-shared"):
        laptop.send(shared=False)
    with pytest.raises(InvalidRequest, match="a path of this machine"):
        laptop.send(options={"inputs": {"data": "drives/"}})
    with pytest.raises(InvalidRequest, match="write_back needs rows from a query"):
        laptop.send(rules=Rules(write_back=True))
    assert nothing_was_made(laptop)


def test_a_queue_or_definition_that_is_not_there_is_refused(laptop):
    with pytest.raises(InvalidRequest, match="the job queue 'other'"):
        laptop.send(job=ControllerJob(job_queue="other"))
    with pytest.raises(InvalidRequest, match="no image to register one"):
        laptop.send(job=ControllerJob(job_queue="controllers", job_definition="other"))
    assert nothing_was_made(laptop)


def test_from_python_it_is_one_call_and_the_handle_goes_on(laptop):
    request = laptop.request()
    grid = raysm.Grid(
        request.template.workload, rows=ROWS, name="drives", regions=(REGION,), instance_type=TYPE, on=laptop.service
    )
    assert grid.submit(JOB) == "id-1"
    assert grid.status().states == {"waiting": 2}
    assert grid.stop().has_controller
    # In the bucket, where the controller finds it, and not in the file that it left here.
    assert attach_grid("drives", laptop.service).status().state == "open"
    with opened("drives") as store:
        assert store.grid().state == "open"
    with pytest.raises(InvalidRequest, match="extend it there"):
        grid.extend([{"key": "c", "lr": 0.3}])
