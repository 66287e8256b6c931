"""Which instances can be entered, checked before anything is opened; and how a command there ended."""

import json
import os
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysm.core.client.submit import submit
from raysm.core.client.targets.local import LocalConnection
from raysm.core.request import Cluster, InstanceGroup, Local, Security
from raysm.errors import InvalidRequest, MissingDependency, ServiceError
from raysm.features.dashboard.address import DashboardAddress, open_route
from raysm.features.dashboard.tunnel.access import (
    open_tunnel,
    session_commands,
    switch_remote_debugging,
)
from raysm.features.dashboard.tunnel.terminal import MarkedCommand
from raysm.features.script.request import Script
from tests.support.client_jobs import M5
from tests.support.sagemaker import SESSION, refusal


class Ssm:
    """Refuses every session, and notes what for."""

    meta = SESSION.client("ssm", region_name="eu-west-1").meta

    def __init__(self):
        self.targets = []

    def start_session(self, **request):
        self.targets.append(request["Target"])
        raise refusal("AccessDeniedException", "no session today")


@pytest.fixture(autouse=True)
def ssm(remote, tmp_path, monkeypatch):
    """Systems Manager, and an installed plugin."""
    plugin = tmp_path / "bin" / "session-manager-plugin"
    plugin.parent.mkdir()
    plugin.write_text("#!/bin/sh\necho 1.2.650.0\n")
    plugin.chmod(0o755)
    monkeypatch.setenv("PATH", str(plugin.parent), prepend=os.pathsep)
    remote.clients["ssm"] = Ssm()
    return remote.clients["ssm"]


def target(ssm, job, on=None):
    """Return the target of the session that a tunnel asks for."""
    with pytest.raises(ServiceError, match="no session today"):
        open_tunnel(job.chain, 80, on=on)
    return ssm.targets[-1]


def running(remote, job, status="Training"):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = status
    return job


def test_the_instance_of_a_job_with_groups_has_to_be_named(remote, script, ssm):
    groups = [InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.m5.large", 1)]
    job = submit(Script(str(script)), cluster=Cluster(groups=groups), on=remote.service)
    with pytest.raises(InvalidRequest, match="instance groups"):
        open_tunnel(running(remote, job).chain, 80)
    assert target(ssm, job, "algo-2").endswith("_algo-2")


def test_remote_debugging_is_switched_on_where_it_is_off_and_that_is_logged(
    remote, job, ssm, caplog
):
    target(ssm, running(remote, job))
    assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert [record.message for record in caplog.records if "entered" in record.message] == [
        f"{job.name} can now be entered by all who may start SSM sessions (raysm debug --off {job.name} ends that)"
    ]


class NoServer(LocalConnection):
    def connect(self, timeout_s):
        raise FileNotFoundError("no socket")


def test_on_this_machine_a_job_is_entered_without_a_word_about_ssm(local, script, caplog, tmp_path):
    job = submit(Script(str(script)), on=local.service)
    local.service.connection = NoServer(Local(home=str(tmp_path)))
    with pytest.raises(ServiceError, match="cannot be reached"):
        open_tunnel(running(local, job).chain, 80)
    assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    assert "entered" not in caplog.text


def test_a_job_with_remote_debugging_is_left_as_it_is(remote, script, ssm):
    job = submit(
        Script(str(script)), cluster=M5, on=remote.service, security=Security(remote_debug=True)
    )
    assert target(ssm, running(remote, job))
    assert "sagemaker:UpdateTrainingJob" not in remote.operations()


@pytest.mark.parametrize("address", ["93.184.216.34:80", "elsewhere.example:80"])
def test_a_dashboard_elsewhere_that_a_line_of_the_log_names_is_not_connected_to(
    local, script, address
):
    job = submit(Script(str(script)), on=local.service, kind="processing")
    with (
        pytest.raises(InvalidRequest, match="not on this machine"),
        open_route(job, DashboardAddress(host="algo-1", port=80, address=address)),
    ):
        pytest.fail("connected")


@pytest.mark.parametrize("status", ["Starting", "Uploading"])
def test_before_and_after_the_training_nobody_gets_in(remote, job, status):
    with pytest.raises(InvalidRequest, match=f"is {status}: .*Training"):
        open_tunnel(running(remote, job, status).chain, 80)


def test_a_processing_job_and_an_isolated_one_let_nobody_in(remote, script):
    processing = submit(Script(str(script)), cluster=M5, on=remote.service, kind="processing")
    with pytest.raises(InvalidRequest, match="Processing job"):
        open_tunnel(processing.chain, 80)
    isolated = submit(
        Script(str(script)), cluster=M5, on=remote.service, security=Security(isolation=True)
    )
    with pytest.raises(InvalidRequest, match="no network"):
        open_tunnel(running(remote, isolated).chain, 80)


@pytest.mark.parametrize(
    ("ports", "said"),
    [
        ({"port": 0}, "port .*got 0"),
        ({"port": 1, "local_port": -1}, "local_port.*got -1"),
    ],
)
def test_a_port_that_cannot_be_is_said(job, ports, said):
    with pytest.raises(InvalidRequest, match=said):
        open_tunnel(job.chain, **ports)


def test_without_the_plugin_remote_debugging_stays_off(remote, job, tmp_path, monkeypatch):
    (tmp_path / "bin" / "session-manager-plugin").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(MissingDependency, match="session-manager-plugin"):
        open_tunnel(running(remote, job).chain, 80)
    assert "sagemaker:UpdateTrainingJob" not in remote.operations()


def at_work(remote, job, status="Training"):
    remote.sagemaker.jobs[job.name]["answer"]["SecondaryStatus"] = status
    return job


@pytest.mark.parametrize("status", ["Downloading", "Training"])
def test_a_job_that_runs_can_be_opened_and_shut(remote, job, status):
    at_work(remote, job, status)
    for enabled in (True, False):
        switch_remote_debugging(job.chain, enabled=enabled)
        assert job.describe().answer["RemoteDebugConfig"] == {"EnableRemoteDebug": enabled}


@pytest.mark.parametrize("status", ["Starting", "Uploading", "Stopping"])
def test_before_and_after_it_says_when(remote, job, status):
    with pytest.raises(InvalidRequest, match=f"is {status}: .*Downloading or Training"):
        switch_remote_debugging(at_work(remote, job, status).chain, enabled=True)


def test_the_ports_of_the_second_command_are_what_the_session_document_takes():
    shell, dashboard = session_commands("a-job")
    assert shell == "aws ssm start-session --target sagemaker-training-job:a-job_algo-1"
    assert dashboard.startswith(
        f"{shell} --document-name AWS-StartPortForwardingSession --parameters "
    )
    ports = json.loads(dashboard.split("'")[1])
    assert ports == {"portNumber": ["8265"], "localPortNumber": ["8265"]}


def output_of(marked):
    """Run the line as AWS's agent does in a container, without a shell that reads it."""
    return subprocess.run(shlex.split(marked.line()), capture_output=True, timeout=60).stdout


def shown(marked, output, size):
    return b"".join(
        marked.feed(output[start : start + size]) for start in range(0, len(output), size)
    )


@pytest.mark.parametrize("code", [0, 3, 130])
@pytest.mark.parametrize("size", [1, 2, 1024])
def test_only_the_output_between_the_marks_is_shown(code, size):
    marked = MarkedCommand(["sh", "-c", f"echo 'it''s'; exit {code}"], has_terminal=True)
    output = b"Starting session\n" + output_of(marked) + b"Exiting session\n"
    assert shown(marked, output, size) == b"its\n"
    assert marked.code == code
    assert marked.preamble == b"Starting session\n"


def test_without_a_terminal_the_command_reads_nothing():
    marked = MarkedCommand(["cat"], has_terminal=False)
    assert shown(marked, output_of(marked), 10) == b""
    assert marked.code == 0


@given(
    st.lists(st.sampled_from([b"\x1e", b"a", b"\x1eab:", b"0:1\x1e"]), max_size=30),
    st.integers(1, 40),
)
def test_output_that_resembles_a_mark_is_shown(parts, size):
    marked = MarkedCommand(["true"], has_terminal=True)
    begin, end = marks(marked)
    output = b"".join(parts)
    assert shown(marked, begin + output + end, size) == output
    assert marked.code == 0


def marks(marked):
    """Return what a command without output writes: its two marks."""
    output = output_of(marked)
    middle = output.index(b"\x1e", 1) + 1
    return output[:middle], output[middle:]
