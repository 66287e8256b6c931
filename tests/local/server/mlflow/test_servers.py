"""The tracking servers of a home: what is kept of them, and which jobs may name them."""

import pytest

from raysm.contract.clock import Clock
from raysm.errors import InvalidRequest
from raysm.local.server.api_error import ApiError
from raysm.local.server.mlflow.servers import TrackingServer, TrackingServers

TEAM = TrackingServer(name="team", region="us-east-1", request={"ArtifactStoreUri": "s3://bucket/runs"}, created_s=7.0)


@pytest.fixture
def servers(tmp_path):
    servers = TrackingServers(tmp_path, Clock())
    servers.add(TEAM)
    return servers


def job(arn):
    return {"MlflowConfig": {"MlflowResourceArn": arn}}


def test_the_next_server_of_the_home_has_them_too_but_those_that_were_deleted(servers, tmp_path):
    assert TrackingServers(tmp_path, Clock()).all("us-east-1") == [TEAM]
    servers.delete(TEAM)
    assert TrackingServers(tmp_path, Clock()).all("us-east-1") == []
    assert list((tmp_path / "mlflow").glob("*/*")) == []


def test_one_of_another_region_is_another_one(servers):
    with pytest.raises(ApiError, match="no tracking server arn:aws:sagemaker:eu-west-1:"):
        servers.named("team", "eu-west-1")
    assert servers.all("eu-west-1") == []


@pytest.mark.parametrize(
    ("arn", "kind", "reason"),
    [
        (f"{TEAM.arn}s", "process", f"no tracking server {TEAM.arn}s here; there are: {TEAM.arn}; Create"),
        (TEAM.arn.replace("123456789012", "210987654321"), "process", "no tracking server"),
        (TEAM.arn.replace("tracking-server", "app"), "process", "is no tracking server, and MLflow apps"),
        (TEAM.arn, "docker", "instances of kind docker do not reach MLflow here"),
    ],
    ids=["name", "account", "app", "kind"],
)
def test_a_job_that_could_not_write_there_is_refused(servers, arn, kind, reason):
    with pytest.raises(ApiError, match=reason):
        servers.check(job(arn), kind)


def test_a_job_that_could_or_that_asks_for_none_is_not(servers):
    servers.check(job(TEAM.arn), "namespace")
    servers.check({}, "docker")


def test_a_job_whose_tracking_server_was_deleted_meanwhile_is_told(servers):
    with pytest.raises(InvalidRequest, match="MlflowConfig: there is no tracking server"):
        servers.variables(job(f"{TEAM.arn}s"))


def test_a_job_without_it_is_told_nothing_and_no_instance_is_entered(servers):
    assert servers.variables({}) == {}
    with servers.open_to({}, {"algo-1": None}):
        pass
