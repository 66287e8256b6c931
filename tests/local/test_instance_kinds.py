"""A kind of instance that this module alone adds goes wherever those of raysm go."""

import pytest

from raysm.cli.arguments import parse
from raysm.core.client.plan import plan
from raysm.core.request import JobRequest, Local
from raysm.core.request.targets import INSTANCE_KINDS, InstanceKind
from raysm.errors import InvalidRequest
from raysm.features.account.case import State
from raysm.features.account.doctor_command import local_checks
from raysm.features.script.request import Script
from raysm.local.instances import SITES, missing_for, open_site
from raysm.local.instances.process import ProcessSite
from raysm.local.job_spec import JobSpec, number_hosts
from raysm.local.local_job import LocalJob
from raysm.local.server.definitions import choose_kind
from raysm.local.server.validation import ApiError
from tests.support.jobs import Log
from tests.support.sagemaker import places_of


class AuditedSite(ProcessSite):
    """Processes, of which it is written down that they were started."""

    started = []

    def start(self, specs):
        self.started.extend(spec.host for spec in specs)
        return super().start(specs)


class AbsentSite(ProcessSite):
    """What no machine has."""

    @staticmethod
    def missing():
        return "instances of kind 'absent' need what nobody has"


@pytest.fixture(autouse=True)
def kinds():
    added = [
        InstanceKind(name="audited", summary="audited processes"),
        InstanceKind(name="absent", summary="nothing"),
    ]
    INSTANCE_KINDS.update({kind.name: kind for kind in added})
    SITES.update(audited=f"{__name__}:AuditedSite", absent=f"{__name__}:AbsentSite")
    yield
    for kind in added:
        del INSTANCE_KINDS[kind.name], SITES[kind.name]


def planned(target):
    request = JobRequest(name="job", workload=Script("x.py"))
    return plan(request, target=target, places=places_of(target)).request


def test_its_instances_run_a_job(tmp_path):
    spec = JobSpec(
        name="a-job", groups=number_hosts(("all", "local", 2)), command=("sh", "-c", "echo hello")
    )
    log = Log()
    with LocalJob(spec, root=tmp_path, kind="audited", on_line=log) as job:
        job.start()
        assert job.wait(60).status == "Completed"
    assert sorted(AuditedSite.started) == ["algo-1", "algo-2"]
    assert log.text().count("hello") == 2


def test_a_request_may_name_it_and_the_plan_tells_it_to_the_server():
    image = planned(Local(instance_kind="audited"))["AlgorithmSpecification"]["TrainingImage"]
    assert image == "raysm/audited:latest"
    assert choose_kind(image, {}, "process") == "audited"


def test_the_command_line_offers_it(capsys):
    assert parse(["run", "x.py", "--instance-kind", "audited"]).instance_kind == "audited"
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    assert "audited: audited processes" in " ".join(capsys.readouterr().out.split())


def test_the_doctor_says_whether_this_machine_can_play_it():
    checks = {check.name: check for check in local_checks()}
    assert checks["audited"].state is State.GOOD
    assert (checks["absent"].state, checks["absent"].needed) == (State.BAD, False)
    assert checks["absent"].text == missing_for("absent")


def test_a_kind_that_is_none_is_refused_by_request_and_server_with_those_that_are():
    with pytest.raises(
        InvalidRequest, match="'rocket'.* simulated, process, namespace, docker, audited"
    ):
        Local(instance_kind="rocket")
    with pytest.raises(ApiError, match="raysm:instance-kind='rocket'.* simulated"):
        choose_kind("any:latest", {"raysm:instance-kind": "rocket"}, "process")
    with pytest.raises(InvalidRequest, match="'rocket'"):
        open_site("rocket")
