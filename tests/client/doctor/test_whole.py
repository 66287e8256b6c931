"""The plan of a job, and whether it can be entered."""

import pytest

from raysm.client.doctor import CHECKS, State
from raysm.client.doctor.whole import look_at_plan, look_at_tunnel
from raysm.client.submit import prepare
from raysm.errors import InvalidRequest
from raysm.request import Cluster, Script


def test_a_job_of_which_all_is_known_is_planned(account, tmp_path):
    (tmp_path / "train.py").touch()
    script = Script(str(tmp_path / "train.py"))

    def plan():
        return prepare(script, cluster=Cluster("ml.m5.large"), on=account.service).plan

    (finding,) = account.findings(plan=plan)["plan"]
    assert (finding.state, finding.text) == (State.GOOD, "CreateTrainingJob keeps to the API's rules")


def test_what_the_plan_refuses_is_bad(account):
    def plan():
        raise InvalidRequest("FastFile cannot be had; drop it")

    assert account.findings(plan=plan)["plan"][0].remedy == "drop it"


def test_without_a_workload_there_is_no_plan(account):
    assert "plan" not in account.findings()


def plugin(folder, monkeypatch, version=None):
    """Put a session-manager-plugin of a version on the PATH, or none."""
    if version is not None:
        path = folder / "session-manager-plugin"
        path.write_text(f"#!/bin/sh\necho {version}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=None)


def test_with_the_plugin_jobs_can_be_entered(account, tmp_path, monkeypatch):
    plugin(tmp_path, monkeypatch, "1.2.650.0")
    (finding,) = account.findings()["tunnel"]
    assert (finding.state, "session-manager-plugin is installed" in finding.text) == (State.GOOD, True)


@pytest.mark.parametrize(("version", "said"), [(None, "not installed"), ("1.2.497.0", "has version 1.2.497.0")])
def test_without_a_new_enough_plugin_the_doctor_says_how_to_install_it(account, tmp_path, monkeypatch, version, said):
    plugin(tmp_path, monkeypatch, version)
    (finding,) = account.findings()["tunnel"]
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert said in finding.text
    assert "brew install --cask session-manager-plugin" in finding.remedy


def test_the_doctor_carries_these_checks_out():
    assert {look_at_plan, look_at_tunnel} <= {check.look for check in CHECKS}
