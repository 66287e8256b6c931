"""Letting somebody into a job that runs."""

import json

import pytest

from raysm.client.tunnel.opening import session_commands, switch_remote_debugging
from raysm.errors import InvalidRequest


def running(remote, job, status="Training"):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = status
    return job


@pytest.mark.parametrize("status", ["Downloading", "Training"])
def test_a_job_that_runs_can_be_opened_and_shut(remote, job, status):
    running(remote, job, status)
    for enabled in (True, False):
        switch_remote_debugging(job.chain, enabled=enabled)
        assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": enabled}


@pytest.mark.parametrize("status", ["Starting", "Uploading", "Stopping"])
def test_before_and_after_it_says_when(remote, job, status):
    with pytest.raises(InvalidRequest, match=rf"is {status}: .* while a job is Downloading or Training"):
        switch_remote_debugging(running(remote, job, status).chain, enabled=True)


def test_the_ports_of_the_second_command_are_what_the_session_document_takes():
    shell, dashboard = session_commands("a-job")
    assert shell == "aws ssm start-session --target sagemaker-training-job:a-job_algo-1"
    assert dashboard.startswith(f"{shell} --document-name AWS-StartPortForwardingSession --parameters ")
    ports = json.loads(dashboard.split("'")[1])
    assert ports == {"portNumber": ["8265"], "localPortNumber": ["8265"]}
