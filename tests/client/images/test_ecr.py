import pytest
from moto import mock_aws

from raysm.client.images import ecr
from raysm.client.service import Service
from raysm.errors import ServiceError
from tests.support.sagemaker import REGION, SESSION, Failure, ScriptedClient, aws, refusal

HOST = f"123456789012.dkr.ecr.{REGION}.amazonaws.com"


@pytest.fixture
def service():
    with mock_aws():
        client = SESSION.client("ecr", region_name=REGION)
        yield Service(aws(), clients=lambda name: client)


def repositories(service):
    return [item["repositoryName"] for item in service.call("ecr", "describe_repositories")["repositories"]]


def test_a_uri_names_its_repository():
    named = ecr.registry_in(f"{HOST}/team/raysm:1")
    assert (named.host, named.region, named.account, named.name) == (HOST, REGION, "123456789012", "team/raysm")
    assert ecr.registry_in("727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/pytorch@sha256:0").name == "pytorch"


@pytest.mark.parametrize("uri", ["python:3.12-slim", "public.ecr.aws/x/y:1", "docker.io/library/python", HOST, ""])
def test_what_is_elsewhere_names_none(uri):
    assert ecr.registry_in(uri) is None


def test_the_password_is_in_no_repr(service):
    registry = ecr.log_in_to(service)
    assert registry.host.endswith(f".dkr.ecr.{REGION}.amazonaws.com")
    assert registry.password
    assert registry.password not in repr(registry)


def test_a_repository_is_made_where_it_is_missing_and_left_where_it_is(service):
    assert ecr.make_repository(service, "team/raysm")
    assert not ecr.make_repository(service, "team/raysm")
    assert repositories(service) == ["team/raysm"]


def test_one_that_somebody_else_made_meanwhile_is_there():
    lost = Failure(
        "create_repository",
        refusal("RepositoryAlreadyExistsException", "there"),
        times=1,
        after=0,
        when=lambda call: True,
        done=True,
    )
    with mock_aws():
        client = ScriptedClient(SESSION.client("ecr", region_name=REGION), [lost])
        service = Service(aws(), clients=lambda name: client)
        assert ecr.make_repository(service, "raysm")
        assert repositories(service) == ["raysm"]


def test_a_refusal_is_the_users_to_know():
    denied = Failure(
        "describe_repositories",
        refusal("AccessDeniedException", "not authorized to perform: ecr:DescribeRepositories"),
        times=None,
        after=0,
        when=lambda call: True,
        done=False,
    )
    with mock_aws():
        client = ScriptedClient(SESSION.client("ecr", region_name=REGION), [denied])
        with pytest.raises(ServiceError, match="ecr:DescribeRepositories; the caller lacks this permission"):
            ecr.make_repository(Service(aws(), clients=lambda name: client), "raysm")
