"""What a scenario does to jobs, over HTTP with boto3."""

import contextlib

import pytest
from botocore.exceptions import ClientError

from tests.support.leftovers import assert_nothing_left
from tests.support.sagemaker_server import TRAINING_LOGS, Server, spot, statuses, training_request, wait_until

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


SCENARIO = """
[logs]
ssm_streams = true
[market]
spot_saving = 0.5
[regions.us-west-1.capacity]
internal_errors = 1.0
[regions.us-west-2.capacity]
insufficient = 1.0
[regions.eu-west-1.capacity]
start_delay_s = 1000.0
[regions.eu-west-2.capacity]
interrupted_at = ["step 3"]
[regions.eu-west-3.api]
denied = ["sagemaker:EnableRemoteDebug"]
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with playing(tmp_path_factory.mktemp("scenario") / "home", SCENARIO) as running:
        yield running


class Region:
    """One region of the server."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        self.sm = server.client_in("sagemaker", name)

    def train(self, name, script, **fields):
        self.sm.create_training_job(**training_request(name, script, **fields))

    def ended(self, name):
        def is_final():
            self.server.ask("GET", f"/raysm/jobs/{self.name}/{name}/end/10")
            return self.describe(name)["TrainingJobStatus"] in ("Completed", "Failed", "Stopped")

        wait_until(is_final)
        return self.describe(name)

    def describe(self, name):
        return self.sm.describe_training_job(TrainingJobName=name)

    def streams(self, job):
        """Return the names of a job's streams and the messages in all of them."""
        logs = self.server.client_in("logs", self.name)
        listed = logs.describe_log_streams(logGroupName=TRAINING_LOGS, logStreamNamePrefix=f"{job}/")["logStreams"]
        names = [stream["logStreamName"] for stream in listed]
        events = logs.filter_log_events(logGroupName=TRAINING_LOGS, logStreamNames=names)["events"]
        return names, [event["message"] for event in events]


def test_a_job_that_aws_breaks_off_is_started_again_as_often_as_its_strategy_says(server):
    region = Region(server, "us-west-1")
    region.train("again", WAIT, RetryStrategy={"MaximumRetryAttempts": 2})
    region.train("once", WAIT)
    words = "InternalServerError: We encountered an internal error. Please try again."
    for name, attempts in (("again", 3), ("once", 1)):
        job = region.ended(name)
        assert (job["TrainingJobStatus"], job["FailureReason"]) == ("Failed", words)
        assert statuses(job).count("Training") == attempts
        assert statuses(job).count("Restarting") == attempts - 1


def test_a_job_for_which_there_is_no_capacity_fails_in_aws_words(server):
    region = Region(server, "us-west-2")
    region.train("none", "exit 0")
    job = region.ended("none")
    assert job["FailureReason"].startswith("CapacityError: Unable to provision requested ML compute capacity.")
    assert "Training" not in statuses(job)


def test_a_job_whose_instances_take_long_to_come_can_be_stopped_meanwhile(server):
    region = Region(server, "eu-west-1")
    region.train("slow", "exit 0")
    region.sm.stop_training_job(TrainingJobName="slow")
    job = region.ended("slow")
    assert (job["TrainingJobStatus"], statuses(job)) == ("Stopped", ["Starting", "Stopping", "Stopped"])


def test_the_agent_of_remote_debugging_has_its_own_streams(server):
    region = Region(server, "us-east-1")
    for name, is_on in (("plain", False), ("debugged", True)):
        region.train(name, "echo the last line", RemoteDebugConfig={"EnableRemoteDebug": is_on})
        region.ended(name)
        (own, agents), messages = region.streams(name)
        assert agents == f"{own}/ssm"
        assert "the last line" in messages
        assert any("the control channel is open" in text for text in messages) is is_on
        assert any("ssmmessages:OpenControlChannel" in text for text in messages) is not is_on


def test_an_account_may_refuse_remote_debugging(server):
    region = Region(server, "eu-west-3")
    with pytest.raises(ClientError, match="not authorized to perform: sagemaker:CreateTrainingJob"):
        region.train("debugged", "exit 0", RemoteDebugConfig={"EnableRemoteDebug": True})


def test_a_job_loses_its_instances_at_a_line_however_fast_it_goes_on_behind_it(server, tmp_path):
    # By a signal alone, a program that is done at once would never be interrupted.
    script = "if [ -e $DONE ]; then echo again; exit 0; fi; touch $DONE; echo step 3; echo done; exit 0".replace(
        "$DONE", str(tmp_path / "ran")
    )
    region = Region(server, "eu-west-2")
    region.train("on-demand", "echo step 3")
    assert "Interrupted" not in statuses(region.ended("on-demand"))
    region.train("taken", script, **spot())
    job = region.ended("taken")
    assert (job["TrainingJobStatus"], statuses(job).count("Interrupted")) == ("Completed", 1)
    assert [text for text in region.streams("taken")[1] if "ssm" not in text] == ["step 3", "done", "again"]
    region.train("later", "echo step 3", **spot())
    assert "Interrupted" not in statuses(region.ended("later"))
