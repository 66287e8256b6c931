"""The jobs of the first hour, as they are sent to AWS."""

from dataclasses import replace

import pytest

from raysm.client.first_job.trials import INSTANCES, MOST_S, TRIALS, prepared
from raysm.client.service_model_check import check
from raysm.contract.job_api import PROCESSING
from raysm.request import Cluster, Security
from tests.support.sagemaker import fake_aws

CLUSTER = Cluster("ml.m5.large", count=INSTANCES)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "numbers.bin").write_bytes(b"1")
    return tmp_path


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
def test_every_call_keeps_to_the_rules_of_the_api_and_to_a_short_runtime(trial, data):
    with fake_aws() as remote:
        ready = prepared(trial, remote.service, CLUSTER, data, {})
    check(ready.plan, takes_files=False)
    assert ready.plan.request["StoppingCondition"]["MaxRuntimeInSeconds"] == MOST_S


def test_the_script_is_the_entry_point_of_a_bare_job_and_raysm_of_the_others(data):
    with fake_aws() as remote:
        plans = [prepared(trial, remote.service, CLUSTER, data, {}).plan.request for trial in TRIALS]
    for trial, request in zip(TRIALS, plans, strict=True):
        specification = request.get("AlgorithmSpecification") or request["AppSpecification"]
        entry = specification["ContainerEntrypoint"]
        assert any(word.endswith("start.py") for word in entry) != trial.is_bare
        assert ("probe.py" in entry[1]) == trial.is_bare


def test_how_long_another_is_waited_for_can_be_said_and_is_the_scripts_own_choice_else(data):
    (entered,) = [trial for trial in TRIALS if trial.is_entered]
    (isolated,) = [trial for trial in TRIALS if trial.mode == "isolated"]
    with fake_aws() as remote:
        asked = [replace(entered, wait_s=2.5), entered, replace(isolated, wait_s=2.5)]
        shorter, usual, bare = (prepared(trial, remote.service, CLUSTER, data, {}) for trial in asked)
    assert (shorter.request.workload.args, usual.request.workload.args) == (("visited", "2.5"), ("visited",))
    assert bare.plan.request["AppSpecification"]["ContainerEntrypoint"][-2:] == ["isolated", "2.5"]


def test_what_all_jobs_of_an_account_need_is_in_each(data):
    security = Security(subnets=("subnet-1",), security_groups=("sg-1",))
    with fake_aws() as remote:
        requests = [
            prepared(trial, remote.service, CLUSTER, data, {"security": security}).plan.request for trial in TRIALS
        ]
    networks = [request.get("VpcConfig") or request["NetworkConfig"]["VpcConfig"] for request in requests]
    assert all(network["Subnets"] == ["subnet-1"] for network in networks)


def test_isolation_is_asked_for_in_the_call_itself(data):
    (trial,) = [trial for trial in TRIALS if trial.name == "isolated"]
    with fake_aws() as remote:
        plan = prepared(trial, remote.service, CLUSTER, data, {}).plan
    assert plan.api is PROCESSING
    assert plan.request["NetworkConfig"]["EnableNetworkIsolation"]


def test_every_trial_has_a_name_of_its_own():
    assert len({trial.name for trial in TRIALS}) == len(TRIALS)
