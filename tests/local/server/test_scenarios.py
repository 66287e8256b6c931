"""What a scenario does to jobs, over HTTP with boto3."""

import contextlib

import pytest
from botocore.exceptions import ClientError

from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import TRAINING_LOGS, Server, spot, statuses

WAIT = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"


@contextlib.contextmanager
def playing(home, scenario, kind="process"):
    """Yield a server whose home has a scenario."""
    home.mkdir()
    (home / "scenario.toml").write_text(scenario)
    server = Server(home, "--instance-kind", kind, "--cores", "4", "--stop-grace-s", "2")
    try:
        server.make_bucket()
        yield server
        server.end()
        assert "Traceback" not in server.log()
    finally:
        server.kill()
    assert_nothing_left(home, server.process.pid)


def test_a_job_that_aws_breaks_off_is_started_again_as_often_as_its_strategy_says(tmp_path):
    with playing(tmp_path / "home", "[capacity]\ninternal_errors = 1.0\n") as server:
        server.train("again", WAIT, RetryStrategy={"MaximumRetryAttempts": 2})
        server.train("once", WAIT)
        words = "InternalServerError: We encountered an internal error. Please try again."
        for name, attempts in (("again", 3), ("once", 1)):
            job = server.ended(name)
            assert (job["TrainingJobStatus"], job["FailureReason"]) == ("Failed", words)
            assert statuses(job).count("Training") == attempts
            assert statuses(job).count("Restarting") == attempts - 1


def test_a_job_for_which_there_is_no_capacity_fails_in_aws_words(tmp_path):
    with playing(tmp_path / "home", "[capacity]\ninsufficient = 1.0\n") as server:
        server.train("none", "exit 0")
        job = server.ended("none")
        assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
        assert "Training" not in statuses(job)


def test_a_job_whose_instances_take_long_to_come_can_be_stopped_meanwhile(tmp_path):
    with playing(tmp_path / "home", "[capacity]\nstart_delay_s = 1000.0\n") as server:
        server.train("slow", "exit 0")
        server.sm.stop_training_job(TrainingJobName="slow")
        job = server.ended("slow")
        assert (job["TrainingJobStatus"], statuses(job)) == ("Stopped", ["Starting", "Stopping", "Stopped"])


def test_the_agent_of_remote_debugging_has_its_own_streams(tmp_path):
    with playing(tmp_path / "home", "[logs]\nssm_streams = true\n") as server:
        server.train("late", "echo the last line", count=2)
        server.ended("late")
        described = server.client("logs").describe_log_streams(
            logGroupName=TRAINING_LOGS, logStreamNamePrefix="late/algo-1-"
        )
        own, agents = (stream["logStreamName"] for stream in described["logStreams"])
        assert agents == f"{own}/ssm"
        events = server.client("logs").get_log_events(logGroupName=TRAINING_LOGS, logStreamName=agents)["events"]
        assert "ssmmessages:OpenControlChannel" in events[0]["message"]


def test_a_job_that_asks_for_remote_debugging_has_the_agents_stream_unless_the_account_refuses_it(tmp_path):
    with playing(tmp_path / "home", '[api]\ndenied = ["sagemaker:EnableRemoteDebug"]\n') as server:
        with pytest.raises(ClientError, match="not authorized to perform: sagemaker:CreateTrainingJob"):
            server.train("debugged", "exit 0", RemoteDebugConfig={"EnableRemoteDebug": True})
        server.train("plain", "exit 0", RemoteDebugConfig={"EnableRemoteDebug": False})
        assert server.ended("plain")["TrainingJobStatus"] == "Completed"
    with playing(tmp_path / "other", "") as server:
        server.train("debugged", "exit 0", RemoteDebugConfig={"EnableRemoteDebug": True})
        server.ended("debugged")
        names = [path.name for path in (server.home / "jobs/training/debugged/streams").iterdir()]
        assert sum(name.endswith("~ssm") for name in names) == 1


def test_a_job_loses_its_instances_at_a_line_however_fast_it_goes_on_behind_it(tmp_path):
    # By a signal alone, which comes when it comes, a program that is done at once would never be interrupted.
    script = "if [ -e $DONE ]; then echo again; exit 0; fi; touch $DONE; echo step 3; echo done; exit 0".replace(
        "$DONE", str(tmp_path / "ran")
    )
    scenario = '[capacity]\ninterrupted_at = ["step 3"]\n[market]\nspot_saving = 0.5\n'
    with playing(tmp_path / "home", scenario) as server:
        server.train("on-demand", "echo step 3")
        assert "Interrupted" not in statuses(server.ended("on-demand"))
        server.train("taken", script, **spot())
        job = server.ended("taken")
        assert (job["TrainingJobStatus"], statuses(job).count("Interrupted")) == ("Completed", 1)
        assert [text for _, text in server.lines("taken")] == ["step 3", "done", "again"]
        server.train("later", "echo step 3", **spot())
        assert "Interrupted" not in statuses(server.ended("later"))
