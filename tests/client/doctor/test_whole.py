"""The plan of a job, and whether it can be entered."""

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


def test_a_job_can_be_entered_where_what_carries_a_session_is_installed(account):
    (finding,) = account.findings()["tunnel"]
    assert (finding.state, "aiohttp" in finding.text) == (State.GOOD, True)
    assert "plugin" not in finding.text


def test_without_it_the_extra_is_named_and_jobs_run_all_the_same(account):
    (finding,) = look_at_tunnel(account.case(), carrier="no_such_package")
    assert (finding.state, finding.needed) == (State.BAD, False)
    assert finding.remedy == "python3 -m pip install 'raysm[interactive]'"


def test_the_doctor_carries_these_checks_out():
    assert {look_at_plan, look_at_tunnel} <= {check.look for check in CHECKS}
