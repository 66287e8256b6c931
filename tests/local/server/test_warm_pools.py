"""What a job leaves of its instances for the next one that is like it, over HTTP with boto3."""

import pytest

from raysm.local.server.warm_pools import keep_alive_s, terminated
from tests.support.sagemaker_server import training_request, wait_until

CACHE = "/opt/ml/sagemaker/warmpoolcache"
COUNT = f"ls {CACHE} | wc -l; date +%N > {CACHE}/$(date +%N)"


def train(server, name, script=COUNT, keep_s=600, **resources):
    request = training_request(name, script)
    request["ResourceConfig"] |= {**({"KeepAlivePeriodInSeconds": keep_s} if keep_s else {}), **resources}
    server.sm.create_training_job(**request)
    return server.ended(name)


def pool(server, name):
    return server.describe(name).get("WarmPoolStatus", {})


def said(server, name):
    return [text.strip() for _, text in server.lines(name)]


def end(server, name):
    server.sm.update_training_job(TrainingJobName=name, ResourceConfig={"KeepAlivePeriodInSeconds": 0})


def test_the_next_job_that_is_like_it_finds_the_cache_folder_and_another_does_not(server):
    assert train(server, "first")["TrainingJobStatus"] == "Completed"
    assert pool(server, "first")["Status"] == "Available"
    train(server, "larger", VolumeSizeInGB=2)
    assert (said(server, "larger"), pool(server, "first")["Status"]) == (["0"], "Available")
    train(server, "second")
    assert said(server, "second") == ["1"]
    assert pool(server, "first")["Status"] == "Reused"
    assert pool(server, "first")["ReusedByJob"] == server.describe("second")["TrainingJobArn"]
    available = server.sm.list_training_jobs(WarmPoolStatusEquals="Available")["TrainingJobSummaries"]
    assert [job["TrainingJobName"] for job in available] == ["second", "larger"]
    # It takes the instances, and keeps them no longer.
    train(server, "last", keep_s=0)
    assert said(server, "last") == ["2"]
    assert pool(server, "last") == {}
    end(server, "larger")
    assert pool(server, "larger")["Status"] == "Terminated"


def test_a_job_that_failed_keeps_its_instances_too_and_one_that_does_not_ask_for_it_has_none(server):
    assert train(server, "failing", "exit 3")["TrainingJobStatus"] == "Failed"
    assert pool(server, "failing")["Status"] == "Available"
    end(server, "failing")
    train(server, "cold", f"ls -d {CACHE} || echo none", keep_s=0)
    assert "none" in said(server, "cold")
    assert pool(server, "cold") == {}


def test_a_pool_ends_with_its_time_and_takes_its_folder_along(server):
    train(server, "brief", keep_s=1)
    wait_until(lambda: pool(server, "brief")["Status"] == "Terminated")
    assert not (server.home / "jobs/training/brief/warm").exists()


@pytest.mark.parametrize("request_", [{}, {"ResourceConfig": None}, {"ResourceConfig": {}}])
def test_who_says_nothing_keeps_nothing(request_):
    assert keep_alive_s(request_) == 0


def test_what_a_killed_server_kept_is_gone_and_what_was_reused_is_told_so():
    assert terminated({"Status": "Available"}) == {"Status": "Terminated"}
    assert terminated({"Status": "Reused", "ReusedByJob": "x"}) == {"Status": "Reused", "ReusedByJob": "x"}
